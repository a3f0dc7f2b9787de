//! The form of RDMA on real sockets: every data packet is a whole RDMA WRITE with an ICRC that the
//! peer's check accepts, over both protocols, with offloads and without; and it is refused where it
//! cannot be. (With a capture and another decoder: `scripts/wire-rdma.sh`.)

use lacuna::datapath::{
    Burst, BurstBuffers, Capabilities, Datapath, EventSources, Fraction, Impair, Impairment, Loss,
    MemNetwork, Placer, SendError, TrailerOffload,
};
use lacuna::{
    ConnectError, Connection, ConnectionConfig, Context, ContextConfig, DatapathKind, Listener,
    Mode, Progress, QueuePairError, Wire, Wrap,
};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LOCALHOST_V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

fn rdma(mode: Mode) -> ConnectionConfig {
    ConnectionConfig { mode, wire: Wire::Rdma, ..ConnectionConfig::default() }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Looks at the packets that are sent, and loses those that are too long.
struct Spy {
    inner: Box<dyn Datapath>,
    seen: Arc<Seen>,
    buffers: BurstBuffers,
    packet: Vec<u8>,
}

struct Seen {
    /// Longest packet that passes.
    most_bytes: AtomicUsize,
    /// Data packets, all of them RDMA WRITE Only with Immediate.
    writes: AtomicUsize,
    /// Those that are part of a packet.
    pieces: AtomicUsize,
}

impl Seen {
    fn new() -> Arc<Self> {
        let most_bytes = AtomicUsize::new(usize::MAX);
        Arc::new(Self { most_bytes, writes: AtomicUsize::new(0), pieces: AtomicUsize::new(0) })
    }

    fn look(&self, packet: &[u8], trailer: TrailerOffload) {
        if packet[0] == 0x64 {
            assert_eq!(trailer, TrailerOffload::None, "control packets have no ICRC");
            return;
        }
        assert_eq!((packet[0], trailer), (0x2b, TrailerOffload::Icrc));
        let pad = usize::from(packet[1] >> 4 & 3);
        let dma_bytes = u32::from_be_bytes(packet[24..28].try_into().unwrap()) as usize;
        let payload_bytes = packet.len() - 36 - pad;
        self.writes.fetch_add(1, Ordering::Relaxed);
        if dma_bytes != payload_bytes {
            assert!(dma_bytes > payload_bytes);
            self.pieces.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(packet[2..5], [0xff, 0xff, 0], "partition key, no congestion");
    }
}

impl Datapath for Spy {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        let packet = burst.packet(0);
        if packet.len() > self.seen.most_bytes.load(Ordering::Relaxed) {
            return Ok(1);
        }
        let most_bytes = self.seen.most_bytes.load(Ordering::Relaxed);
        let is_short = |packet: &usize| burst.packet_bytes(*packet) <= most_bytes;
        let passing = (0..burst.len()).take_while(is_short).count();
        for packet in burst.packets().take(passing) {
            self.packet.clear();
            packet.copy_to(&mut self.packet);
            self.seen.look(&self.packet, burst.trailer());
        }
        if passing == burst.len() {
            return self.inner.send(now_ns, burst);
        }
        self.packet.clear();
        packet.copy_to(&mut self.packet);
        let mut alone = self.buffers.start(burst.destination());
        alone.offload_trailers(burst.trailer());
        alone.push(&[], &self.packet, &[]);
        self.inner.send(now_ns, &alone)
    }

    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        self.inner.receive(now_ns, placer)
    }

    fn next_event_ns(&self) -> Option<u64> {
        self.inner.next_event_ns()
    }

    fn event_sources(&self) -> EventSources<'_> {
        self.inner.event_sources()
    }

    fn send_blocked(&self) -> bool {
        self.inner.send_blocked()
    }

    fn receive_drops(&self) -> u64 {
        self.inner.receive_drops()
    }

    fn tell_local(&mut self) {
        self.inner.tell_local();
    }
}

fn spied(config: ContextConfig, seen: &Arc<Seen>) -> ContextConfig {
    let seen = seen.clone();
    let wrap: Wrap = Arc::new(move |_, inner| {
        let (seen, buffers) = (seen.clone(), BurstBuffers::new());
        Box::new(Spy { inner, seen, buffers, packet: Vec::new() })
    });
    ContextConfig { wrap: Some(wrap), ..config }
}

fn connect(
    here: &Context,
    there: &Context,
    to: IpAddr,
    config: ConnectionConfig,
) -> Result<(Connection, Connection), ConnectError> {
    let at = SocketAddr::new(to, 0);
    let listener = Listener::bind(there, at, ConnectionConfig::default()).unwrap();
    let address = listener.local_addr();
    let accepting = thread::spawn(move || listener.accept());
    let connected = Connection::connect(here, address, config);
    let accepted = accepting.join().unwrap();
    Ok((connected?, accepted?))
}

fn exchange(a: &Connection, b: &Connection) {
    for len in [0, 1, 5, 4096, 65_537, 1_000_000, 5_000_001] {
        let message = bytes(len);
        let receive = b.post_recv(vec![0; len + 1]).unwrap();
        // Without threads both ends need somebody who waits.
        thread::scope(|scope| {
            scope.spawn(|| {
                receive.wait(Duration::from_secs(60)).unwrap();
            });
            let send = a.start_send(message.clone(), Some(0x1234_5678)).unwrap();
            send.wait().unwrap();
        });
        let done = receive.complete();
        assert!(done.is_complete && done.buffer[..len] == message, "{len} bytes");
    }
}

#[test]
fn messages_of_any_length_arrive_over_both_protocols_with_offloads_and_without() {
    let plain = ContextConfig { datapath: DatapathKind::UdpPlain, ..ContextConfig::default() };
    let manual = ContextConfig { progress: Progress::Manual, ..ContextConfig::default() };
    let channels = ContextConfig { channels: 3, ..ContextConfig::default() };
    let ways = [ContextConfig::default(), plain, manual, channels];
    for (way, config) in ways.iter().enumerate() {
        for (bind, to) in [
            (LOCALHOST, LOCALHOST),
            (LOCALHOST_V6, LOCALHOST_V6),
            (Ipv4Addr::UNSPECIFIED.into(), LOCALHOST),
            (Ipv6Addr::UNSPECIFIED.into(), LOCALHOST),
            (Ipv6Addr::UNSPECIFIED.into(), LOCALHOST_V6),
            // Not the address that this host would choose itself.
            (Ipv4Addr::UNSPECIFIED.into(), [127, 0, 0, 9].into()),
        ] {
            for mode in [Mode::Auto, Mode::EC] {
                let seen = Seen::new();
                let config = ContextConfig { bind: bind.into(), ..config.clone() };
                let here = Context::new(spied(config.clone(), &seen)).unwrap();
                let there = Context::new(spied(config, &seen)).unwrap();
                let (a, b) = connect(&here, &there, to, rdma(mode)).unwrap();
                assert_eq!((a.chosen().wire, b.chosen().wire), ("rdma", "rdma"));
                exchange(&a, &b);
                // And back, now that this end has a connected socket.
                exchange(&b, &a);
                let case = format!("way {way}, {bind} to {to}, {mode}");
                assert!(seen.writes.load(Ordering::Relaxed) > 2000, "{case}");
                assert_eq!(seen.pieces.load(Ordering::Relaxed), 0, "{case}");
                assert_eq!(here.stats().rejected_packets(), 0, "{case}: {:?}", here.stats());
                assert_eq!(there.stats().rejected_packets(), 0, "{case}: {:?}", there.stats());
            }
        }
    }
}

fn impaired(impairment: Impairment, datapath: DatapathKind) -> Context {
    let wrap: Wrap = Arc::new(move |channel, inner| {
        Box::new(Impair::new(inner, impairment.clone(), 5 + u64::from(channel)))
    });
    let config = ContextConfig {
        bind: LOCALHOST.into(),
        datapath,
        wrap: Some(wrap),
        ..ContextConfig::default()
    };
    Context::new(config).unwrap()
}

#[test]
fn what_is_lost_or_damaged_is_repaired() {
    let impairment = Impairment {
        loss: Loss::Independent(Fraction::from_ppm(20_000)),
        corrupt: Fraction::from_ppm(20_000),
        reorder: Fraction::from_ppm(10_000),
        ..Impairment::default()
    };
    for datapath in [DatapathKind::Udp, DatapathKind::UdpPlain] {
        for mode in [Mode::SR, Mode::EC, Mode::Auto] {
            let here = impaired(impairment.clone(), datapath.clone());
            let there = impaired(Impairment::default(), datapath.clone());
            let (a, b) = connect(&here, &there, LOCALHOST, rdma(mode)).unwrap();
            for _ in 0..3 {
                exchange(&a, &b);
            }
            assert!(there.stats().rejected["trailer"] > 10, "{mode}: {:?}", there.stats());
        }
    }
}

#[test]
fn on_a_path_that_became_narrow_pieces_have_icrcs() {
    for mode in [Mode::Auto, Mode::EC] {
        let seen = Seen::new();
        let config = ContextConfig { bind: LOCALHOST.into(), ..ContextConfig::default() };
        let here = Context::new(spied(config.clone(), &seen)).unwrap();
        let there = Context::new(spied(config, &Seen::new())).unwrap();
        let (a, b) = connect(&here, &there, LOCALHOST, rdma(mode)).unwrap();
        let message = bytes(4 << 20);
        let receives: Vec<_> = (0..3).map(|_| b.post_recv(vec![0; 4 << 20]).unwrap()).collect();
        let sends: Vec<_> =
            (0..3).map(|_| a.start_send(message.clone(), Some(5)).unwrap()).collect();
        while receives[0].chunks_done() < 20 {
            thread::yield_now();
        }
        seen.most_bytes.store(1372, Ordering::Relaxed);
        for send in sends {
            send.wait().unwrap();
        }
        for receive in receives {
            assert!(receive.complete().buffer == message, "{mode}");
        }
        assert!(seen.pieces.load(Ordering::Relaxed) > 100, "{mode}");
        assert_eq!(there.stats().rejected_packets(), 0, "{mode}");
    }
}

#[test]
fn a_datapath_that_cannot_refuses_by_name() {
    let network = MemNetwork::new();
    let config = ContextConfig { datapath: DatapathKind::Mem(network), ..ContextConfig::default() };
    let context = Context::new(config).unwrap();
    let error = context.queue_pair(&rdma(Mode::Auto)).unwrap_err();
    assert!(matches!(error, QueuePairError::Wire { wire: Wire::Rdma, datapath: "mem" }));
    let text = error.to_string();
    assert!(text.contains("datapath mem cannot") && text.contains("or wire short"), "{text}");
    // The connecting end refuses before the peer hears of it.
    let error = Connection::connect(&context, "127.0.0.1:9", rdma(Mode::Auto)).unwrap_err();
    assert!(!error.is_retryable(), "{error}");
}

#[test]
fn an_accepting_end_that_cannot_says_so() {
    let mem = || DatapathKind::Mem(MemNetwork::new());
    let there = ContextConfig { datapath: mem(), ..ContextConfig::default() };
    let there = Context::new(there).unwrap();
    let here = Context::new(ContextConfig::default()).unwrap();
    let error = connect(&here, &there, LOCALHOST, rdma(Mode::Auto)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("refused: the datapath mem cannot send"), "{text}");
}

/// Forwards a connection, so that each end sees another address than the other.
fn translating(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for incoming in listener.incoming().flatten() {
            let Ok(outgoing) = TcpStream::connect(to) else { return };
            for (from, to) in [
                (incoming.try_clone().unwrap(), outgoing.try_clone().unwrap()),
                (outgoing, incoming),
            ] {
                thread::spawn(move || copy(from, to));
            }
        }
    });
    address
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

#[test]
fn address_translation_is_noticed_and_the_remedy_named() {
    let here = Context::new(ContextConfig::default()).unwrap();
    let there = Context::new(ContextConfig::default()).unwrap();
    let at = SocketAddr::new(LOCALHOST, 0);
    let listener = Listener::bind(&there, at, ConnectionConfig::default()).unwrap();
    let address = translating(listener.local_addr());
    let accepting = thread::spawn(move || (listener.accept(), listener.accept()));
    let error = Connection::connect(&here, address, rdma(Mode::Auto)).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ConnectError::Refused { .. }), "{text}");
    assert!(text.contains("address translation on the path (your 127.0.0.1:"), "{text}");
    assert!(text.ends_with("which wire rdma cannot pass: use wire short"), "{text}");
    // The short form does not mind.
    let connected = Connection::connect(&here, address, ConnectionConfig::default()).unwrap();
    assert_eq!(connected.chosen().wire, "short");
    let (refused, accepted) = accepting.join().unwrap();
    assert!(matches!(refused, Err(ConnectError::Unacceptable { .. })));
    accepted.unwrap();
}

#[test]
fn two_forms_do_not_connect() {
    let context = Context::new(ContextConfig::default()).unwrap();
    let short = context.queue_pair(&ConnectionConfig::default()).unwrap();
    let rdma = context.queue_pair(&rdma(Mode::Auto)).unwrap();
    let error = short.connect(&rdma.info(LOCALHOST)).unwrap_err().to_string();
    assert!(error.contains("the form of packets: short here, rdma at the peer"), "{error}");
    let error = rdma.connect(&short.info(LOCALHOST)).unwrap_err().to_string();
    assert!(error.contains("rdma here, short at the peer; give both the same wire"), "{error}");
}
