//! A path that becomes too narrow during a connection: real sockets behind a datapath that drops or
//! refuses long packets, with threads and without. (With routers: `scripts/narrow.sh`.)

use lacuna::datapath::{
    Burst, BurstBuffers, Capabilities, Datapath, EventSources, Placer, SendError,
};
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig, Listener, Mode, Progress};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{io, thread};

/// What happens to packets that are too long.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// They are lost, and the host does not know why.
    Hidden,
    /// They are lost, and the host knows the route's MTU.
    Told,
    /// The datapath refuses them.
    Refused,
}

struct Narrow {
    inner: Box<dyn Datapath>,
    way: Way,
    most_bytes: Arc<AtomicUsize>,
    buffers: BurstBuffers,
    packet: Vec<u8>,
}

impl Datapath for Narrow {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        let packet = burst.packet(0);
        let packet_bytes = packet.len();
        if packet_bytes > self.most_bytes.load(Ordering::Relaxed) {
            return match self.way {
                Way::Refused => Err(SendError::PacketTooLarge { packet_bytes }),
                Way::Hidden | Way::Told => Ok(1),
            };
        }
        self.packet.clear();
        packet.copy_to(&mut self.packet);
        let mut alone = self.buffers.start(burst.destination());
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

    fn route_packet_bytes(&self, _to: SocketAddr) -> Option<usize> {
        (self.way == Way::Told).then(|| self.most_bytes.load(Ordering::Relaxed))
    }
}

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn context(way: Way, most_bytes: &Arc<AtomicUsize>, progress: Progress, channels: u8) -> Context {
    let most_bytes = most_bytes.clone();
    let config = ContextConfig {
        bind: LOCALHOST.into(),
        progress,
        channels,
        wrap: Some(Arc::new(move |_, inner| {
            let (most_bytes, buffers) = (most_bytes.clone(), BurstBuffers::new());
            Box::new(Narrow { inner, way, most_bytes, buffers, packet: Vec::new() })
        })),
        ..ContextConfig::default()
    };
    Context::new(config).expect("sockets on loopback")
}

/// Two connected ends; of `last` accepted connections the last.
fn pair(here: &Context, there: &Context, mode: Mode, last: usize) -> (Connection, Connection) {
    let config = ConnectionConfig { mode, ..ConnectionConfig::default() };
    let listener = Listener::bind(there, "127.0.0.1:0".parse().unwrap(), config).unwrap();
    let address = listener.local_addr();
    let accept = move || listener.accept().expect("the peer connects");
    let accepting = thread::spawn(move || (0..last).map(|_| accept()).last().unwrap());
    let connected = Connection::connect(here, address, config).expect("it accepts");
    (connected, accepting.join().unwrap())
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn transfer(way: Way, mode: Mode, progress: Progress, channels: u8) {
    let most_bytes = Arc::new(AtomicUsize::new(usize::MAX));
    let here = context(way, &most_bytes, progress, channels);
    let there = context(way, &most_bytes, Progress::default(), channels);
    let (a, b) = pair(&here, &there, mode, 1);
    let message = bytes(4 << 20);
    let receives: Vec<_> = (0..3).map(|_| b.post_recv(vec![0; 4 << 20]).unwrap()).collect();
    let sends: Vec<_> = (0..3).map(|_| a.start_send(message.clone(), Some(5)).unwrap()).collect();
    while receives[0].chunks_done() < 20 {
        here.progress();
        thread::yield_now();
    }
    most_bytes.store(1372, Ordering::Relaxed);
    for send in sends {
        send.wait().unwrap_or_else(|error| panic!("{way:?} {mode}: {error}"));
    }
    for receive in receives {
        let done = receive.complete();
        assert!(done.is_complete && done.buffer == message, "{way:?} {mode}");
    }
    assert_eq!(a.chosen().mtu_bytes, 4096);
    assert!(a.stats().payload_bytes_max <= 1336, "{way:?} {mode}");
}

#[test]
fn what_is_under_way_comes_through_with_threads_and_without() {
    for way in [Way::Hidden, Way::Told, Way::Refused] {
        for progress in [Progress::default(), Progress::Manual] {
            transfer(way, Mode::Auto, progress, 1);
        }
        transfer(way, Mode::EC, Progress::default(), 4);
    }
}

#[test]
fn a_path_that_is_narrow_from_the_start_is_found_so() {
    for way in [Way::Hidden, Way::Told, Way::Refused] {
        let most_bytes = Arc::new(AtomicUsize::new(1372));
        let here = context(way, &most_bytes, Progress::default(), 1);
        let there = context(way, &most_bytes, Progress::default(), 1);
        // The first one learns that its packets do not pass.
        let (a, b) = pair(&here, &there, Mode::Auto, 2);
        assert_eq!(a.chosen().mtu_bytes, 1192, "{way:?}");
        let receive = b.post_recv(vec![0; 1 << 20]).unwrap();
        a.send(&bytes(1 << 20)).unwrap();
        assert!(receive.complete().buffer == bytes(1 << 20));
    }
}
