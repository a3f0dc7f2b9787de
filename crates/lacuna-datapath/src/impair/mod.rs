//! Link emulation: a wrapper around a datapath that loses, delays, reorders, duplicates and corrupts
//! packets, like `netem`.
//!
//! It impairs the packets that this end *sends*; for both directions, wrap both ends. A packet passes
//!
//! ```text
//! loss -> queue, rate -> delay, jitter -> reordering, duplication, corruption -> inner datapath
//! ```
//!
//! Packets in flight are copies, held in order of their release times. `send` and `receive`, and
//! nothing else, hand due packets to the inner datapath, so the caller must call one of them at
//! [`next_event_ns`](Datapath::next_event_ns). Due packets leave in bursts, so that segmentation
//! offload keeps working. An impairment without effect passes bursts straight through.
//!
//! All randomness comes from the seed: the n-th packet has the same random draws in every run with
//! the same seed; what the queue does to it depends on when it is sent. The models are those of
//! [`lacuna_link`], so the same seed means the same losses in every emulator that uses them.
//!
//! What is not modelled: reordering and duplication cost the link no capacity, and the queue is
//! drop-tail only.

mod config;
mod counters;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

pub use config::{Impairment, ImpairmentError};
use counters::SharedCounters;
pub use counters::{ImpairCounters, ImpairCountersHandle};
pub use lacuna_link::{Fraction, Loss, LossError};
use lacuna_link::{Pipe, Schedule, SlotIndex, charge_bytes};

#[cfg(unix)]
use crate::EventSources;
use crate::{
    Burst, BurstBuffers, Capabilities, Datapath, Placer, SendError, TrailerOffload, TxPacket,
};

/// Destination and options of a packet in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Outgoing {
    destination: SocketAddr,
    /// See [`Burst::takes_marks`].
    takes_marks: bool,
    /// See [`Burst::trailer`].
    trailer: TrailerOffload,
}

/// A datapath whose outgoing link is impaired.
#[derive(Debug)]
pub struct Impair<D> {
    inner: D,
    is_transparent: bool,
    packet_bytes_max: usize,
    pipe: Pipe,
    /// Packets in flight.
    schedule: Schedule<Outgoing>,
    /// Bound on their charged bytes: [`Impairment::HELD_BYTES_MAX`].
    held_bytes_max: u64,
    /// Due packets, in order, that the inner datapath has not taken yet. Empty between calls unless it
    /// blocks.
    due: VecDeque<SlotIndex>,
    /// The latest time seen; if the caller's clock steps back, time stands still.
    now_ns: u64,
    buffers: BurstBuffers,
    counters: Arc<SharedCounters>,
}

impl<D: Datapath> Impair<D> {
    /// Puts a link in front of `inner`.
    ///
    /// # Panics
    ///
    /// When [`Impairment::validate`] returns an error.
    pub fn new(inner: D, impairment: Impairment, seed: u64) -> Self {
        if let Err(error) = impairment.validate() {
            panic!("{error}");
        }
        Self {
            is_transparent: impairment.is_transparent(),
            packet_bytes_max: inner.capabilities().packet_bytes_max,
            inner,
            // Never change the stream number: it is part of what a seed means.
            pipe: Pipe::new(impairment.pipe(), seed, 0),
            schedule: Schedule::default(),
            held_bytes_max: Impairment::HELD_BYTES_MAX,
            due: VecDeque::new(),
            now_ns: 0,
            buffers: BurstBuffers::new(),
            counters: Arc::default(),
        }
    }

    /// What the link has done so far.
    pub fn counters(&self) -> ImpairCounters {
        self.counters.read()
    }

    /// The same, for other threads.
    pub fn counters_handle(&self) -> ImpairCountersHandle {
        ImpairCountersHandle(Arc::clone(&self.counters))
    }

    /// One packet enters the link.
    fn on_packet(&mut self, outgoing: Outgoing, packet: TxPacket<'_>) {
        let faults = self.pipe.draw(packet.len() as u64);
        if faults.is_lost {
            self.counters.lost.add(1);
            return;
        }
        let held_bytes = charge_bytes(packet.len()) * (1 + u64::from(faults.is_duplicated));
        if self.schedule.charge_bytes() + held_bytes > self.held_bytes_max {
            self.counters.queue_dropped.add(1);
            return;
        }
        let Some(passed) = self.pipe.pass(self.now_ns, packet.len() as u64, &faults) else {
            self.counters.queue_dropped.add(1);
            return;
        };
        let release_ns = passed.release_ns;
        self.counters.reordered.add(u64::from(faults.is_held_back));
        self.schedule.insert(release_ns, outgoing, |bytes| {
            packet.copy_to(bytes);
            if let Some(bit) = faults.flipped_bit {
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            }
        });
        self.counters.corrupted.add(u64::from(faults.flipped_bit.is_some()));
        if faults.is_duplicated {
            self.counters.duplicated.add(1);
            self.schedule.insert(release_ns, outgoing, |bytes| packet.copy_to(bytes));
        }
    }

    /// Hands due packets to the inner datapath, as far as it takes them.
    fn release(&mut self) {
        while let Some(slot) = self.schedule.pop_due(self.now_ns) {
            self.due.push_back(slot);
        }
        while let Some(first) = self.due.front() {
            let outgoing = self.schedule.packet(*first).tag;
            let mut burst = self.buffers.start(outgoing.destination);
            if !outgoing.takes_marks {
                burst.refuse_marks();
            }
            burst.offload_trailers(outgoing.trailer);
            for slot in self.due.iter().take(Burst::PACKETS_MAX) {
                let packet = self.schedule.packet(*slot);
                if packet.tag != outgoing {
                    break;
                }
                burst.push(&[], &packet.bytes, &[]);
            }
            let done = match self.inner.send(self.now_ns, &burst) {
                Ok(0) => return,
                Ok(taken) => taken,
                Err(_) => {
                    // The sender's call returned long ago, so the error can only be counted.
                    self.counters.refused.add(1);
                    1
                }
            };
            for slot in self.due.drain(..done) {
                self.schedule.remove(slot);
            }
        }
    }
}

impl<D: Datapath> Datapath for Impair<D> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner.local_addr()
    }

    /// Takes all packets up to one that is too large for the inner datapath. A packet that is too
    /// large for the path beyond is lost when it is released.
    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        if self.is_transparent {
            let taken = self.inner.send(now_ns, burst)?;
            self.counters.sent.add(taken as u64);
            return Ok(taken);
        }
        self.now_ns = self.now_ns.max(now_ns);
        let fitting = (0..burst.len())
            .take_while(|i| burst.packet_bytes(*i) <= self.packet_bytes_max)
            .count();
        if fitting == 0 && !burst.is_empty() {
            return Err(SendError::PacketTooLarge { packet_bytes: burst.packet_bytes(0) });
        }
        // Make room first: due packets have left the link.
        self.release();
        let outgoing = Outgoing {
            destination: burst.destination(),
            takes_marks: burst.takes_marks(),
            trailer: burst.trailer(),
        };
        for packet in burst.packets().take(fitting) {
            self.on_packet(outgoing, packet);
        }
        self.counters.sent.add(fitting as u64);
        self.release();
        Ok(fitting)
    }

    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        self.now_ns = self.now_ns.max(now_ns);
        self.release();
        self.inner.receive(now_ns, placer)
    }

    fn next_event_ns(&self) -> Option<u64> {
        // While the inner datapath blocks, time changes nothing: the caller waits for its event
        // source.
        let own = if self.due.is_empty() { self.schedule.next_ns() } else { None };
        own.into_iter().chain(self.inner.next_event_ns()).min()
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

#[cfg(test)]
mod tests;
