//! An in-process network for tests and simulation: endpoints that exchange packets through queues in
//! memory.
//!
//! It behaves like UDP where the layers above notice: packets to an unknown address vanish, a full
//! receive queue drops and counts, and packets of one size in a burst arrive as one batch, like
//! packets coalesced by GRO. Otherwise it is perfect: in order, without loss, without delay. Wrap it
//! in [`impair`](crate::impair) for anything worse.
//!
//! Each endpoint has one queue under one lock. A sender copies each packet once, into a batch that
//! the receiver hands to its placer; the storage then returns to the queue.

mod queue;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use queue::{Batch, Queue};

#[cfg(unix)]
use crate::EventSources;
use crate::{
    BindError, Burst, Capabilities, Datapath, PACKET_BYTES_MAX, Placer, ReceivedBatch, SendError,
    TrailerOffload,
};

/// The most batches that one `receive` hands over (a judgement: about half a megabyte, so that a
/// worker comes back to its timers soon).
const RECEIVE_BATCHES_MAX: usize = 8;

/// Ports for endpoints that ask for port 0: the dynamic range of RFC 6335.
const DYNAMIC_PORTS: std::ops::RangeInclusive<u16> = 49_152..=65_535;

/// A network inside the process; clones are the same network.
#[derive(Clone, Debug, Default)]
pub struct MemNetwork {
    /// Used for lookups only, never iterated, so its random order does not matter.
    endpoints: Arc<RwLock<HashMap<SocketAddr, Arc<Queue>>>>,
}

impl MemNetwork {
    /// A network without endpoints.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an endpoint whose receive queue holds up to `queue_bytes` of packets; it leaves the
    /// network when dropped. Port 0 asks for any free port. An empty packet counts as one byte.
    ///
    /// # Errors
    ///
    /// [`BindError::InUse`] when the address (or, for port 0, every dynamic port) is taken.
    pub fn bind(&self, addr: SocketAddr, queue_bytes: usize) -> Result<Mem, BindError> {
        let mut endpoints = self.endpoints.write().unwrap_or_else(PoisonError::into_inner);
        let mut local = addr;
        if addr.port() == 0 {
            let free = DYNAMIC_PORTS.into_iter().find(|port| {
                local.set_port(*port);
                !endpoints.contains_key(&local)
            });
            free.ok_or(BindError::InUse(addr))?;
        } else if endpoints.contains_key(&addr) {
            return Err(BindError::InUse(addr));
        }
        let queue = Arc::new(Queue::new(queue_bytes));
        endpoints.insert(local, Arc::clone(&queue));
        drop(endpoints);
        Ok(Mem {
            network: self.clone(),
            local,
            queue,
            taken: Vec::with_capacity(RECEIVE_BATCHES_MAX),
        })
    }

    fn find(&self, addr: &SocketAddr) -> Option<Arc<Queue>> {
        self.endpoints.read().unwrap_or_else(PoisonError::into_inner).get(addr).map(Arc::clone)
    }
}

/// An endpoint of a [`MemNetwork`].
#[derive(Debug)]
pub struct Mem {
    network: MemNetwork,
    local: SocketAddr,
    queue: Arc<Queue>,
    /// Batches on their way from the queue to the placer; empty between calls.
    taken: Vec<Batch>,
}

impl Datapath for Mem {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "mem",
            packet_bytes_max: PACKET_BYTES_MAX,
            burst_packets_max: Burst::PACKETS_MAX,
            segmentation_offload: true,
            receive_coalescing: true,
            congestion_marks: false,
            timestamps: false,
            trailer: TrailerOffload::None,
            receive_buffer_bytes: self.queue.bytes_max(),
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn send(&mut self, _now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        let fitting =
            (0..burst.len()).take_while(|i| burst.packet_bytes(*i) <= PACKET_BYTES_MAX).count();
        if fitting == 0 && !burst.is_empty() {
            return Err(SendError::PacketTooLarge { packet_bytes: burst.packet_bytes(0) });
        }
        if let Some(queue) = self.network.find(&burst.destination()) {
            queue.push(self.local, burst, fitting);
        }
        Ok(fitting)
    }

    fn receive(&mut self, _now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        self.queue.take(RECEIVE_BATCHES_MAX, &mut self.taken);
        let mut packets = 0;
        // The queue must not be locked here: a placer may send, even to this endpoint.
        let ip = self.local.ip();
        let local = (!ip.is_unspecified()).then_some(ip);
        for batch in &mut self.taken {
            let batch = ReceivedBatch {
                source: batch.source,
                local,
                bytes: &mut batch.bytes,
                segment_bytes: batch.segment_bytes,
                congestion_experienced: false,
                waited_ns: 0,
            };
            packets += batch.len();
            placer.on_packets(batch);
        }
        self.queue.give_back(&mut self.taken);
        Ok(packets)
    }

    fn next_event_ns(&self) -> Option<u64> {
        None
    }

    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_> {
        let event_source = self.queue.event_source();
        event_source.map_or(EventSources::none(), |source| EventSources::one(source, false))
    }

    fn receive_drops(&self) -> u64 {
        self.queue.drops()
    }
}

impl Drop for Mem {
    fn drop(&mut self) {
        let mut endpoints = self.network.endpoints.write().unwrap_or_else(PoisonError::into_inner);
        endpoints.remove(&self.local);
    }
}

#[cfg(test)]
mod tests;
