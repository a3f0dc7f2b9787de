//! The fixtures of the conformance tests: makes ends that reach each other. An end sends all packets,
//! waits for those that it expects, and panics when they do not arrive in time.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use lacuna_datapath::{
    BindError, Burst, BurstBuffers, Datapath, MemNetwork, Offload, PcapOptions, PcapWriter, Placer,
    PortRange, ReceivedBatch, SendError, TrailerOffload, Udp, UdpConfig, Waiter, ports,
};

/// A test that has waited this long for something that must happen has failed. No test takes
/// anything near it when all is well.
const PATIENCE: Duration = Duration::from_secs(20);

type Wrap = fn(Box<dyn Datapath>) -> Box<dyn Datapath>;

/// A place for ends of one kind of datapath.
pub(crate) struct World {
    kind: Kind,
    wrap: Wrap,
    ip: IpAddr,
    next_mem_port: Cell<u16>,
    /// The largest packet that gets through.
    pub(crate) largest: usize,
    /// Whether the datapath knows what its receive queue dropped.
    pub(crate) counts_drops: bool,
    /// Whether an end for any address learns the destination of a packet; `None` if no such end can
    /// be reached.
    pub(crate) any_learns_local: Option<bool>,
}

enum Kind {
    Udp(Offload),
    Mem(MemNetwork),
}

impl World {
    /// `None` on a machine without IPv6, when that is asked for.
    pub(crate) fn udp(offload: Offload, is_v6: bool, wrap: Wrap) -> Option<Self> {
        let world = Self {
            kind: Kind::Udp(offload),
            wrap,
            ip: loopback(is_v6),
            next_mem_port: Cell::new(0),
            // The MTU of the loopback interface of Linux is 65,536 bytes, and IPv6 and UDP take 48.
            largest: if is_v6 { 65_488 } else { lacuna_datapath::PACKET_BYTES_MAX },
            counts_drops: cfg!(target_os = "linux"),
            any_learns_local: Some(cfg!(target_os = "linux") && offload == Offload::Auto),
        };
        match world.bind(1 << 16) {
            Err(BindError::NotAvailable(_) | BindError::Io { .. }) if is_v6 => {
                eprintln!("not tested: this machine has no IPv6");
                None
            }
            _ => Some(world),
        }
    }

    pub(crate) fn mem(is_v6: bool, wrap: Wrap) -> Option<Self> {
        Some(Self {
            kind: Kind::Mem(MemNetwork::new()),
            wrap,
            ip: loopback(is_v6),
            next_mem_port: Cell::new(1000),
            largest: lacuna_datapath::PACKET_BYTES_MAX,
            counts_drops: true,
            any_learns_local: None,
        })
    }

    /// An end with room for anything that a test sends before it receives.
    pub(crate) fn end(&self) -> End {
        self.end_with(4 << 20)
    }

    pub(crate) fn end_with(&self, queue_bytes: usize) -> End {
        let datapath = self.bind(queue_bytes).expect("an end can be bound");
        End::new((self.wrap)(datapath))
    }

    /// An end for any address of this host.
    pub(crate) fn end_for_any(&self) -> End {
        let ip: IpAddr = match self.ip {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let datapath = self.bind_at(SocketAddr::new(ip, 0), 1 << 20);
        End::new((self.wrap)(datapath.expect("an end for any address can be bound")))
    }

    /// An end at the first free port of a range, and the ports that were taken.
    pub(crate) fn end_in(&self, ports: PortRange) -> Result<(End, Vec<u16>), BindError> {
        let local = SocketAddr::new(self.ip, 0);
        let bound = ports::bind_in(local, ports, |local| self.bind_at(local, 1 << 20));
        bound.map(|(datapath, taken)| (End::new((self.wrap)(datapath)), taken))
    }

    fn bind(&self, queue_bytes: usize) -> Result<Box<dyn Datapath>, BindError> {
        let port = match &self.kind {
            Kind::Udp(_) => 0,
            Kind::Mem(_) => self.next_mem_port.replace(self.next_mem_port.get() + 1),
        };
        self.bind_at(SocketAddr::new(self.ip, port), queue_bytes)
    }

    fn bind_at(
        &self,
        local: SocketAddr,
        queue_bytes: usize,
    ) -> Result<Box<dyn Datapath>, BindError> {
        match &self.kind {
            Kind::Udp(offload) => Udp::bind_boxed(UdpConfig {
                offload: *offload,
                receive_buffer_bytes: queue_bytes,
                tells_local: true,
                ..UdpConfig::new(local)
            }),
            Kind::Mem(network) => Ok(Box::new(network.bind(local, queue_bytes)?)),
        }
    }
}

fn loopback(is_v6: bool) -> IpAddr {
    if is_v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

/// A capture that nobody reads.
pub(crate) fn discarding_writer() -> PcapWriter {
    PcapWriter::new(Box::new(io::sink()), PcapOptions::default())
        .expect("the header can be written to nowhere")
}

/// A datapath and what it takes to use it.
pub(crate) struct End {
    pub(crate) datapath: Box<dyn Datapath>,
    pub(crate) addr: SocketAddr,
    buffers: BurstBuffers,
    waiter: Waiter,
    start: Instant,
    /// Received, and not yet asked for.
    inbox: Inbox,
}

#[derive(Default)]
struct Inbox {
    packets: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Destination of the last batch.
    local: Option<IpAddr>,
}

impl Placer for Inbox {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        self.local = batch.local;
        self.packets.extend(batch.packets().map(|packet| (batch.source, packet.to_vec())));
    }
}

impl End {
    fn new(datapath: Box<dyn Datapath>) -> Self {
        Self {
            addr: datapath.local_addr(),
            datapath,
            buffers: BurstBuffers::new(),
            waiter: Waiter::new().expect("a waiter can be made").0,
            start: Instant::now(),
            inbox: Inbox::default(),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("tests end within 584 years")
    }

    /// Sends packets, each as payload, in bursts as large as they come.
    pub(crate) fn send(&mut self, to: SocketAddr, packets: &[Vec<u8>]) {
        for packets in packets.chunks(Burst::PACKETS_MAX) {
            self.send_parts(to, packets.iter().map(|packet| (&[][..], &packet[..], &[][..])));
        }
        self.flush();
    }

    /// Sends one burst of packets given in parts.
    pub(crate) fn send_parts<'p>(
        &mut self,
        to: SocketAddr,
        packets: impl IntoIterator<Item = (&'p [u8], &'p [u8], &'p [u8])>,
    ) {
        self.send_completed(to, TrailerOffload::None, packets);
    }

    /// The same, with trailers that the datapath completes.
    pub(crate) fn send_completed<'p>(
        &mut self,
        to: SocketAddr,
        trailer: TrailerOffload,
        packets: impl IntoIterator<Item = (&'p [u8], &'p [u8], &'p [u8])>,
    ) {
        let now_ns = self.now_ns();
        let mut burst = self.buffers.start(to);
        burst.offload_trailers(trailer);
        for (header, payload, trailer) in packets {
            burst.push(header, payload, trailer);
        }
        let patience = Instant::now() + PATIENCE;
        while !burst.is_empty() {
            let taken = self.datapath.send(now_ns, &burst).expect("the packets can be sent");
            burst.advance(taken);
            if taken == 0 {
                let source: &dyn Datapath = &*self.datapath;
                self.waiter.wait([source], Some(PATIENCE)).expect("waiting works");
            }
            assert!(Instant::now() < patience, "the way out stays full");
        }
    }

    /// Sends one burst of packets and returns the datapath's result.
    pub(crate) fn try_send(
        &mut self,
        to: SocketAddr,
        packets: &[Vec<u8>],
    ) -> Result<usize, SendError> {
        let now_ns = self.now_ns();
        let mut burst = self.buffers.start(to);
        for packet in packets {
            burst.push(&[], packet, &[]);
        }
        let result = self.datapath.send(now_ns, &burst);
        self.flush();
        result
    }

    /// Waits until the datapath holds no packet back.
    pub(crate) fn flush(&mut self) {
        let patience = Instant::now() + PATIENCE;
        while self.datapath.next_event_ns().is_some() || self.datapath.send_blocked() {
            self.receive();
            assert!(Instant::now() < patience, "packets are held back for ever");
        }
    }

    /// Receives once, into the inbox.
    pub(crate) fn receive(&mut self) -> usize {
        let now_ns = self.now_ns();
        let before = self.inbox.packets.len();
        let packets = self.datapath.receive(now_ns, &mut self.inbox).expect("receiving works");
        assert_eq!(self.inbox.packets.len() - before, packets, "the count is what was handed over");
        packets
    }

    /// Destination of the last packet received.
    pub(crate) fn last_local(&self) -> Option<IpAddr> {
        self.inbox.local
    }

    /// The next packet.
    pub(crate) fn next(&mut self) -> (SocketAddr, Vec<u8>) {
        let patience = Instant::now() + PATIENCE;
        loop {
            if let Some(packet) = self.inbox.packets.pop_front() {
                return packet;
            }
            if self.receive() == 0 {
                self.wait();
            }
            assert!(Instant::now() < patience, "no packet comes");
        }
    }

    /// Waits for the datapath, roughly.
    pub(crate) fn wait(&mut self) {
        let source: &dyn Datapath = &*self.datapath;
        self.waiter.wait([source], Some(PATIENCE)).expect("waiting works");
    }

    pub(crate) fn expect(&mut self, from: SocketAddr, packets: &[Vec<u8>]) {
        for (i, expected) in packets.iter().enumerate() {
            let (source, packet) = self.next();
            assert_eq!(source, from, "source of packet {i}");
            assert_eq!(packet.len(), expected.len(), "size of packet {i}");
            assert!(packet == *expected, "bytes of packet {i}");
        }
    }

    /// All that arrived before the one with these bytes, which `sender` repeats until it does.
    pub(crate) fn expect_until(&mut self, sender: &mut Self, last: &[u8]) -> Vec<Vec<u8>> {
        let patience = Instant::now() + PATIENCE;
        let mut arrived = Vec::new();
        loop {
            sender.send(self.addr, &[last.to_vec()]);
            while self.receive() > 0 {}
            for (_, packet) in self.inbox.packets.drain(..) {
                if packet == last {
                    return arrived;
                }
                arrived.push(packet);
            }
            assert!(Instant::now() < patience, "the last packet never comes");
        }
    }
}

/// Takes packets like a receiver that decrypts in place: each is overwritten and passed on.
#[derive(Default)]
pub(crate) struct Inverting {
    pub(crate) packets: Vec<Vec<u8>>,
}

impl Placer for Inverting {
    fn on_packets(&mut self, mut batch: ReceivedBatch<'_>) {
        let sizes: Vec<_> = batch.packets().map(<[u8]>::len).collect();
        for packet in batch.packets_mut() {
            packet.iter_mut().for_each(|byte| *byte = !*byte);
        }
        assert!(batch.packets().map(<[u8]>::len).eq(sizes));
        self.packets.extend(batch.packets().map(<[u8]>::to_vec));
    }
}
