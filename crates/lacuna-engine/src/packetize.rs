//! Cuts runs into packets and sends them through a datapath.
//!
//! Each payload is read once here, for the checksum in the trailer. A payload of up to 2 KiB is
//! copied behind its header at the same time, so that the packets of a bundle are contiguous, and
//! still in cache when the kernel copies them again. A longer payload stays in place, and the
//! kernel gathers header, payload and trailer. Runs to one destination share a burst.

use crate::books::Books;
use crate::kinds::Run;
use crate::time::Time;
use core::net::SocketAddr;
use lacuna_burst::{Burst, BurstBuffers, Datapath, SendError};
use lacuna_wire::DataHeader;
use std::collections::VecDeque;
use std::sync::Arc;

/// A run on its way to a destination, and its next packet.
#[derive(Debug)]
struct QueuedRun {
    to: SocketAddr,
    run: Run,
    next: usize,
    /// Notified when the run has left.
    books: Arc<Books>,
}

/// A data packet without its bytes, for a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentHeader {
    /// Destination.
    pub to: SocketAddr,
    /// Its headers, with the length of its payload.
    pub header: DataHeader,
    /// Whether it is marked as ECN-capable.
    pub takes_marks: bool,
}

/// Sends the runs of one channel in order.
#[derive(Debug)]
pub(crate) struct Packetizer {
    buffers: BurstBuffers,
    queue: VecDeque<QueuedRun>,
    /// Packets of all runs in the queue.
    packets: usize,
}

/// Packets that datapaths refused.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Number of packets.
    pub(crate) packets: u64,
    /// Queue pair and length of packets that were too large, until the queue pairs are told.
    pub(crate) too_large: Vec<(u32, usize)>,
}

impl Packetizer {
    pub(crate) fn new() -> Self {
        Self { buffers: BurstBuffers::new(), queue: VecDeque::new(), packets: 0 }
    }

    pub(crate) fn push(&mut self, to: SocketAddr, run: Run, books: Arc<Books>) {
        self.packets += run.len();
        self.queue.push_back(QueuedRun { to, run, next: 0, books });
    }

    /// Packets that wait.
    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the packets that have headers of their own as such; touches no payload and computes no
    /// parity. Other runs stay, and leave as bytes.
    pub(crate) fn hand_out(&mut self, headers: &mut Vec<SentHeader>) {
        for queued in std::mem::take(&mut self.queue) {
            if !queued.run.has_headers() {
                self.queue.push_back(queued);
                continue;
            }
            let QueuedRun { to, run, next, books } = queued;
            self.packets -= run.len() - next;
            let takes_marks = run.takes_marks();
            run.headers_from(next, |header| headers.push(SentHeader { to, header, takes_marks }));
            let (channel, psn) = run.end();
            books.on_handed(channel, psn);
        }
    }

    /// Sends until the queue is empty (`true`) or the datapath is full (`false`).
    pub(crate) fn flush(
        &mut self,
        now_ns: u64,
        time: &impl Time,
        datapath: &mut dyn Datapath,
        refused: &mut Refused,
    ) -> bool {
        while let Some(first) = self.queue.front() {
            encode(&self.queue, time);
            let mut burst = self.buffers.start(first.to);
            if !first.run.takes_marks() {
                burst.refuse_marks();
            }
            burst.offload_trailers(first.run.trailer());
            fill(&mut burst, &self.queue, self.packets, now_ns);
            let mut sent = 0;
            let is_blocked = loop {
                match datapath.send(now_ns, &burst) {
                    Ok(0) => break true,
                    Ok(count) => {
                        sent += count;
                        burst.advance(count);
                        if burst.is_empty() {
                            break false;
                        }
                    }
                    Err(error) => {
                        // It counts as lost on the path, so that it is repaired and shows in the
                        // statistics.
                        tracing::debug!(to = %first.to, %error, "packet refused by the datapath");
                        if let SendError::PacketTooLarge { packet_bytes } = error {
                            refused.too_large.extend(too_large(&self.queue, sent, packet_bytes));
                        }
                        refused.packets += 1;
                        sent += 1;
                        burst.advance(1);
                        if burst.is_empty() {
                            break false;
                        }
                    }
                }
            };
            consume(&mut self.queue, sent);
            self.packets -= sent;
            if is_blocked {
                return false;
            }
        }
        true
    }
}

/// Computes the parity that the next burst needs. The data it covers left just before and are in
/// cache.
fn encode(queue: &VecDeque<QueuedRun>, time: &impl Time) {
    let mut packets = 0;
    for queued in queue {
        if queued.run.is_parity() && queued.next == 0 {
            let start_ns = time.now_ns();
            queued.run.prepare();
            queued.books.on_encoded(time.now_ns() - start_ns);
        }
        packets += queued.run.len() - queued.next;
        if packets >= Burst::PACKETS_MAX {
            return;
        }
    }
}

/// Fills the burst from the first runs with its destination, ECN marking and kind of trailer.
/// `waiting`: packets in the queue.
fn fill<'p>(
    burst: &mut Burst<'_, 'p>,
    queue: &'p VecDeque<QueuedRun>,
    waiting: usize,
    now_ns: u64,
) {
    let to = burst.destination();
    for queued in queue {
        if queued.to != to
            || queued.run.takes_marks() != burst.takes_marks()
            || queued.run.trailer() != burst.trailer()
        {
            return;
        }
        let association = queued.books.association();
        let sealer = association.and_then(|keys| keys.sealer(queued.run.end().0, now_ns));
        if !queued.run.fill(queued.next, burst, waiting, sealer) {
            return;
        }
    }
}

fn consume(queue: &mut VecDeque<QueuedRun>, mut packets: usize) {
    while packets > 0 {
        let Some(front) = queue.front_mut() else { return };
        let left = front.run.len() - front.next;
        if left > packets {
            front.next += packets;
            return;
        }
        packets -= left;
        if let Some(gone) = queue.pop_front() {
            let (channel, psn) = gone.run.end();
            gone.books.on_handed(channel, psn);
        }
    }
}

/// The queue pair of the packet that was too large, `before` packets behind the front of the queue.
#[cold]
fn too_large(
    queue: &VecDeque<QueuedRun>,
    mut before: usize,
    packet_bytes: usize,
) -> Option<(u32, usize)> {
    for queued in queue {
        let left = queued.run.len() - queued.next;
        if before < left {
            return Some((queued.books.number(), packet_bytes));
        }
        before -= left;
    }
    None
}
