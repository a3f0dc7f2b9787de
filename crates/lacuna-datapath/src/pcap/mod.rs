//! Packet capture: a wrapper around a datapath that writes every packet to a pcap file.
//!
//! The file shows the packets that this end sends and receives, at the moment when the inner datapath
//! takes or delivers them: put the wrapper outside an impairment to see what the application sends,
//! inside to see what survives. Packets get the headers of the RoCEv2 packets that they resemble
//! (`headers.rs`), so that Wireshark decodes them as InfiniBand. An end that is bound to all addresses
//! appears with the source address of its route to the peer (`local.rs`).

mod headers;
mod local;
mod writer;

use std::io;
use std::net::SocketAddr;

use headers::Flow;
use local::LocalAddress;
use writer::Direction;
pub use writer::{PcapOptions, PcapSummary, PcapTime, PcapWriter};

#[cfg(unix)]
use crate::EventSources;
use crate::{Burst, Capabilities, Datapath, Placer, ReceivedBatch, SendError};

/// A datapath whose packets are captured.
#[derive(Debug)]
pub struct Pcap<D> {
    inner: D,
    local: LocalAddress,
    writer: PcapWriter,
}

impl<D: Datapath> Pcap<D> {
    /// Captures the packets of `inner`. One writer serves any number of datapaths.
    pub fn new(inner: D, writer: PcapWriter) -> Self {
        Self { local: LocalAddress::new(inner.local_addr()), inner, writer }
    }
}

impl<D: Datapath> Datapath for Pcap<D> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        let taken = self.inner.send(now_ns, burst)?;
        let flow = Flow {
            source: self.local.towards(burst.destination()),
            destination: burst.destination(),
            congestion_experienced: false,
        };
        let mut packets = burst.packets().take(taken);
        self.writer.write(now_ns, flow, Direction::Sent, |frame| {
            packets.next().inspect(|packet| packet.copy_to(frame)).is_some()
        });
        Ok(taken)
    }

    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        let mut capturing =
            Capturing { placer, now_ns, local: &mut self.local, writer: &self.writer };
        self.inner.receive(now_ns, &mut capturing)
    }

    fn next_event_ns(&self) -> Option<u64> {
        self.inner.next_event_ns()
    }

    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_> {
        self.inner.event_sources()
    }

    fn send_blocked(&self) -> bool {
        self.inner.send_blocked()
    }

    fn tell_local(&mut self) {
        self.inner.tell_local();
    }

    fn receive_drops(&self) -> u64 {
        self.inner.receive_drops()
    }

    fn route_packet_bytes(&self, to: SocketAddr) -> Option<usize> {
        self.inner.route_packet_bytes(to)
    }
}

/// The placer for the inner datapath: it captures the packets and passes them on.
struct Capturing<'a> {
    placer: &'a mut dyn Placer,
    now_ns: u64,
    local: &'a mut LocalAddress,
    writer: &'a PcapWriter,
}

impl Placer for Capturing<'_> {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        let flow = Flow {
            source: batch.source,
            destination: self.local.towards(batch.source),
            congestion_experienced: batch.congestion_experienced,
        };
        let mut packets = batch.packets();
        self.writer.write(self.now_ns, flow, Direction::Received, |frame| {
            packets.next().inspect(|packet| frame.extend_from_slice(packet)).is_some()
        });
        self.placer.on_packets(batch);
    }
}

#[cfg(test)]
mod tests;
