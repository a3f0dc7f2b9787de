//! Turns runs of the protocol into packets on a datapath.
//!
//! Headers and trailers are written side by side into the burst's arena, the
//! payload is referenced where it lies. The one pass over the payload here is
//! the trailer's checksum, which also brings the bytes into the cache for the
//! kernel's copy; what it will read next is asked for ahead (`prefetch.rs`). A small
//! payload is copied behind its header. Runs to one destination share a burst.

use crate::prefetch::prefetch;
use crate::shared::Shared;
use lacuna_datapath::{Burst, BurstBuffers, Datapath, SendError};
use lacuna_proto::qp::Transmit;
use lacuna_wire::{TRAILER_BYTES, pad_bytes};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// How far ahead payloads are asked for, and at least the next one. With buffers
/// in DRAM this makes 52 Gbit/s 60 at 4,096-byte packets; twice as far is no better.
const PREFETCH_BYTES: usize = 4096;

/// A payload of no more than this is copied, so that its packet lies in one piece:
/// checksum and kernel then take it in one go (a judgement).
const COPIED_BYTES_MAX: usize = 512;

/// A run that has its destination, and where in it to go on.
struct Outbound {
    to: SocketAddr,
    run: Transmit,
    next: usize,
    /// To be told when the run has left.
    shared: Arc<Shared>,
}

/// Sends runs of one channel in order.
pub(crate) struct Packetizer {
    buffers: BurstBuffers,
    queue: VecDeque<Outbound>,
    /// Packets of all runs in the queue.
    packets: usize,
}

/// Totals of what a datapath refused.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Refused {
    pub(crate) packets: u64,
}

impl Packetizer {
    pub(crate) fn new() -> Self {
        Self { buffers: BurstBuffers::new(), queue: VecDeque::new(), packets: 0 }
    }

    pub(crate) fn push(&mut self, to: SocketAddr, run: Transmit, shared: Arc<Shared>) {
        self.packets += run.len();
        self.queue.push_back(Outbound { to, run, next: 0, shared });
    }

    /// Packets that wait.
    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sends until the queue is empty or the datapath would block; `false` if
    /// it would.
    pub(crate) fn flush(
        &mut self,
        now_ns: u64,
        datapath: &mut dyn Datapath,
        refused: &mut Refused,
    ) -> bool {
        while let Some(first) = self.queue.front() {
            encode(&self.queue);
            let mut burst = self.buffers.start(first.to);
            if !first.run.takes_marks() {
                burst.refuse_marks();
            }
            fill(&mut burst, &self.queue);
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
                        // The packet counts as lost on the path: repair and
                        // statistics treat it so.
                        note(&error, first.to);
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

/// Computes the parity that the next burst needs. Its data went out just before,
/// and are in the cache.
fn encode(queue: &VecDeque<Outbound>) {
    let mut packets = 0;
    for outbound in queue {
        if outbound.run.is_parity() && outbound.next == 0 {
            let start = Instant::now();
            outbound.run.prepare();
            outbound.shared.on_encoded(start.elapsed());
        }
        packets += outbound.run.len() - outbound.next;
        if packets >= Burst::PACKETS_MAX {
            return;
        }
    }
}

/// Puts the packets of the first runs to one destination into the burst, as far
/// as they are alike in what they say of congestion marks.
fn fill<'p>(burst: &mut Burst<'_, 'p>, queue: &'p VecDeque<Outbound>) {
    let to = burst.destination();
    for outbound in queue {
        if outbound.to != to || outbound.run.takes_marks() != burst.takes_marks() {
            return;
        }
        // A lone packet has none behind it, and no need of a division.
        let ahead_packets = match outbound.run.len() {
            1 => 1,
            _ => {
                let mtu_bytes = outbound.run.payload(0).map_or(0, <[u8]>::len).max(1);
                (PREFETCH_BYTES / mtu_bytes).max(1)
            }
        };
        for index in outbound.next..outbound.run.len() {
            if burst.len() == Burst::PACKETS_MAX {
                return;
            }
            if let Some(ahead) = outbound.run.payload(index + ahead_packets) {
                prefetch(ahead);
            }
            let (header, payload) = outbound.run.packet(index);
            let (head_bytes, pad) = (header.header_bytes(), pad_bytes(payload.len()));
            let tail_bytes = pad + TRAILER_BYTES;
            if payload.len() <= COPIED_BYTES_MAX {
                burst.push_whole(head_bytes + payload.len() + tail_bytes, |packet| {
                    let Some((packet, trailer)) = packet.split_last_chunk_mut() else { return };
                    header.emit(packet);
                    packet[head_bytes..][..payload.len()].copy_from_slice(payload);
                    *trailer = header.trailer(&[packet]);
                });
                continue;
            }
            burst.push_with(head_bytes, payload, tail_bytes, |head, tail| {
                header.emit(head);
                let (padding, trailer) = tail.split_at_mut(pad);
                padding.fill(0);
                trailer.copy_from_slice(&header.trailer(&[head, payload, padding]));
            });
        }
    }
}

fn consume(queue: &mut VecDeque<Outbound>, mut packets: usize) {
    while packets > 0 {
        let Some(front) = queue.front_mut() else { return };
        let left = front.run.len() - front.next;
        if left > packets {
            front.next += packets;
            return;
        }
        packets -= left;
        if let Some(gone) = queue.pop_front() {
            gone.shared.on_handed(gone.run.channel(), gone.run.psn_end());
        }
    }
}

fn note(error: &SendError, to: SocketAddr) {
    tracing::debug!(%to, %error, "packet refused by the datapath");
}
