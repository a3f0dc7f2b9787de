//! The sockets of a client, and the loop that sends and receives packets at the right time.
//!
//! A packet that does not fit into a socket's buffer is kept and retried, and no other is made
//! meanwhile: packets that this host cannot send must not count as lost on the path. A packet that
//! the system refuses is dropped and counted; only errors that no socket recovers from end the
//! measurement.

use super::host::Sending;
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use lacuna::Wrap;
use lacuna::datapath::limit::{Limit, Said};
use lacuna::datapath::{
    BurstBuffers, Datapath, Offload, Placer, ReceivedBatch, SendError, Udp, UdpConfig, Waiter,
    ends_socket,
};
use lacuna_probe::client::filler;
use lacuna_probe::{Client, Packet};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Packets that may wait for their sockets.
const PENDING_MAX: usize = 64;

/// The clock of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now_ns(self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The sockets of one measurement.
pub(super) struct Sockets {
    server: SocketAddr,
    sockets: Vec<FlowSocket>,
    buffers: BurstBuffers,
    waiter: Waiter,
    pub(super) host: Sending,
}

struct FlowSocket {
    datapath: Box<dyn Datapath>,
    pending: VecDeque<Packet>,
}

/// Passes received packets to the client. Reads the clock after each arrived: a clock read before,
/// with a pause in between, would make round trips shorter than the path.
struct Reception<'c> {
    client: &'c mut Client,
    clock: Clock,
}

impl Placer for Reception<'_> {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        let now_ns = self.clock.now_ns();
        for packet in batch.packets() {
            self.client.on_datagram(now_ns, packet);
        }
    }
}

impl Sockets {
    /// Opens a socket for the exchange and one per flow, each wrapped by `wrap`.
    pub(super) fn open(
        server: SocketAddr,
        flows: u16,
        fragment: bool,
        wrap: Option<&Wrap>,
    ) -> Result<Self, Failure> {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let local = SocketAddr::new(any, 0);
        let socket = |number: u16| {
            // Only plain sockets let IP fragment. The exchange and MTU probes are never fragmented.
            let offload = if fragment && number > 0 { Offload::Plain } else { Offload::Auto };
            let config = UdpConfig { offload, ..UdpConfig::new(local) };
            let bound =
                Udp::bind_boxed(config).map_err(|error| Failure::Local(error.to_string()))?;
            let datapath = match wrap {
                Some(wrap) => wrap(number as u8, bound),
                None => bound,
            };
            Ok(FlowSocket { datapath, pending: VecDeque::new() })
        };
        let sockets = (0..=flows).map(socket).collect::<Result<Vec<_>, Failure>>()?;
        let (waiter, _) = Waiter::new().map_err(broken)?;
        let buffers = BurstBuffers::new();
        Ok(Self { server, sockets, buffers, waiter, host: Sending::default() })
    }

    /// Sends and receives what is possible now, then waits for more, for a short time at most.
    pub(super) fn turn(&mut self, client: &mut Client, clock: Clock) -> Result<(), Failure> {
        for socket in &mut self.sockets {
            let mut reception = Reception { client, clock };
            while socket.datapath.receive(clock.now_ns(), &mut reception).map_err(broken)? > 0 {}
        }
        while self.pending() < PENDING_MAX
            && let Some(packet) = client.poll_transmit(clock.now_ns(), &mut self.host)
        {
            self.sockets[packet.lane].pending.push_back(packet);
        }
        for socket in &mut self.sockets {
            socket.flush(self.server, clock, &mut self.buffers, client, &mut self.host)?;
        }
        if client.is_done() {
            return Ok(());
        }
        let is_blocked = self.pending() > 0;
        let next = client.poll_timeout().filter(|_| !is_blocked);
        let events = self.sockets.iter().filter_map(|socket| socket.datapath.next_event_ns());
        let next_ns = events.chain(next).min();
        let left_ns = next_ns.map(|next_ns| next_ns.saturating_sub(clock.now_ns()));
        let timeout = left_ns
            .map_or(POLL_INTERVAL, |left_ns| Duration::from_nanos(left_ns).min(POLL_INTERVAL));
        let sources = self.sockets.iter().map(|socket| socket.datapath.as_ref());
        self.waiter.wait(sources, Some(timeout)).map_err(broken)
    }

    fn pending(&self) -> usize {
        self.sockets.iter().map(|socket| socket.pending.len()).sum()
    }
}

impl FlowSocket {
    fn flush(
        &mut self,
        server: SocketAddr,
        clock: Clock,
        buffers: &mut BurstBuffers,
        client: &mut Client,
        host: &mut Sending,
    ) -> Result<(), Failure> {
        while !self.pending.is_empty() {
            let mut burst = buffers.start(server);
            for packet in &self.pending {
                burst.push(&packet.head, &filler()[..packet.filler_bytes], &packet.trailer);
            }
            match self.datapath.send(clock.now_ns(), &burst) {
                Ok(0) => return Ok(()),
                Ok(taken) => {
                    self.pending.drain(..taken);
                    client.on_taken();
                }
                Err(SendError::Io(error)) if ends_socket(&error).is_some() => {
                    return Err(broken(error));
                }
                Err(error) => {
                    let now_ns = clock.now_ns();
                    let Some(packet) = self.pending.pop_front() else { return Ok(()) };
                    match error {
                        SendError::PacketTooLarge { packet_bytes } if client.is_finding_mtu() => {
                            client.on_too_large(packet_bytes);
                        }
                        error => {
                            host.refusals.add(&error);
                            client.on_refused(now_ns, packet.lane);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

pub(super) fn broken(error: std::io::Error) -> Failure {
    let why = ends_socket(&error).map_or(String::new(), |why| format!(": {why}"));
    match Limit::of(&error) {
        Some(_) => Failure::Local(format!("the system refused a descriptor: {}", Said(&error))),
        None => Failure::Local(format!("a socket is broken: {error}{why}")),
    }
}
