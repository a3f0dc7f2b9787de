//! Turns runs of the protocol into packets on a datapath.
//!
//! There is one pass over a payload here: it is summed for the trailer. On the way it may be copied
//! behind its header; so a bundle lies in one piece, still in the cache when the kernel copies it
//! once more. Or it stays where it is, for the kernel to gather; headers and trailers are then
//! written side by side into the burst's arena. Runs to one destination share a burst.
//!
//! Which is faster depends on the processor. The copy hides behind the reading, while each piece of
//! a gather list costs the kernel some 20 ns, and it copies long pieces faster than short ones: on
//! Zen 3 (loopback, buffers in DRAM, a bare sender with a checksum) copying 1,400 bytes is 15 %
//! faster, 4,096 8 %, 8,192 and 16,000 3 %. On Zen 4 to gather is 13 % faster at 8,192 and 4,096
//! bytes, and no slower at 1,400. So senders of large bursts find out by themselves: `copying.rs`.

use crate::clock::Clock;
use crate::copying::{Copying, PAYLOAD_BYTES_MAX};
use crate::shared::Shared;
use lacuna_datapath::{
    BUNDLE_PACKETS_MAX, Burst, BurstBuffers, Datapath, PACKET_BYTES_MAX, SendError,
};
use lacuna_proto::qp::Transmit;
use lacuna_wire::{TRAILER_BYTES, pad_bytes};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// A run that has its destination, and where in it to go on.
struct Outbound {
    to: SocketAddr,
    run: Transmit,
    next: usize,
    /// To be told when the run has left.
    shared: Arc<Shared>,
}

impl Outbound {
    /// Of the next packet.
    fn payload_bytes(&self) -> usize {
        self.run.packets_from(self.next).next().map_or(0, |(_, payload)| payload.len())
    }
}

/// Sends runs of one channel in order.
pub(crate) struct Packetizer {
    buffers: BurstBuffers,
    queue: VecDeque<Outbound>,
    /// Packets of all runs in the queue.
    packets: usize,
    copying: Copying,
}

/// Totals of what a datapath refused.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Refused {
    pub(crate) packets: u64,
}

impl Packetizer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            buffers: BurstBuffers::new(),
            queue: VecDeque::new(),
            packets: 0,
            copying: Copying::new(clock),
        }
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
            let timed = self.copying.start(self.packets, || first.payload_bytes());
            let bytes = fill(&mut burst, &self.queue, self.packets, timed.is_copied);
            let packets = burst.len();
            let mut sent = 0;
            let mut is_refused = false;
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
                        if let SendError::PacketTooLarge { packet_bytes } = error {
                            tell_too_large(&self.queue, sent, packet_bytes);
                        }
                        refused.packets += 1;
                        is_refused = true;
                        sent += 1;
                        burst.advance(1);
                        if burst.is_empty() {
                            break false;
                        }
                    }
                }
            };
            if sent == packets && !is_refused {
                self.copying.end(timed, bytes);
            }
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
/// as they are alike in what they say of congestion marks. `waiting` packets are in the queue.
/// Returns the bytes of their payloads.
fn fill<'p>(
    burst: &mut Burst<'_, 'p>,
    queue: &'p VecDeque<Outbound>,
    waiting: usize,
    is_copied: bool,
) -> usize {
    let to = burst.destination();
    let mut bytes = 0;
    for outbound in queue {
        if outbound.to != to || outbound.run.takes_marks() != burst.takes_marks() {
            return bytes;
        }
        for (header, payload) in outbound.run.packets_from(outbound.next) {
            if burst.len() == Burst::PACKETS_MAX {
                return bytes;
            }
            let (head_bytes, pad) = (header.header_bytes(), pad_bytes(payload.len()));
            let tail_bytes = pad + TRAILER_BYTES;
            if is_copied && payload.len() <= PAYLOAD_BYTES_MAX {
                let packet_bytes = head_bytes + payload.len() + tail_bytes;
                if !has_room(burst, packet_bytes, waiting) {
                    return bytes;
                }
                bytes += payload.len();
                burst.push_whole(packet_bytes, |packet| header.emit_packet(packet, payload));
                continue;
            }
            bytes += payload.len();
            burst.push_with(head_bytes, payload, tail_bytes, |head, tail| {
                header.emit(head);
                let (padding, trailer) = tail.split_at_mut(pad);
                padding.fill(0);
                trailer.copy_from_slice(&header.trailer(&[head, payload, padding]));
            });
        }
    }
    bytes
}

/// Whether a packet that is copied still belongs into the burst: bundles leave whole, and before
/// they fall out of the caches. (Two together share a call; four are no better.) Of `waiting`
/// packets less than a bundle that would be left over goes along, rather than in a call of its own.
fn has_room(burst: &Burst<'_, '_>, packet_bytes: usize, waiting: usize) -> bool {
    if burst.arena_bytes() <= PACKET_BYTES_MAX {
        return true;
    }
    let bundle = (PACKET_BYTES_MAX / packet_bytes).min(BUNDLE_PACKETS_MAX);
    !burst.len().is_multiple_of(bundle) || waiting < burst.len() + bundle
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

/// Tells whose packet it was, `before` packets behind the first that waits, that it was too large.
#[cold]
fn tell_too_large(queue: &VecDeque<Outbound>, mut before: usize, packet_bytes: usize) {
    for outbound in queue {
        let left = outbound.run.len() - outbound.next;
        if before < left {
            return outbound.shared.on_too_large(packet_bytes);
        }
        before -= left;
    }
}

fn note(error: &SendError, to: SocketAddr) {
    tracing::debug!(%to, %error, "packet refused by the datapath");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets that are copied for one call when so many wait.
    fn copied(buffers: &mut BurstBuffers, packet_bytes: usize, waiting: usize) -> (usize, usize) {
        let mut burst = buffers.start(([127, 0, 0, 1], 4791).into());
        while burst.len() < waiting.min(Burst::PACKETS_MAX)
            && has_room(&burst, packet_bytes, waiting)
        {
            burst.push_whole(packet_bytes, |_| {});
        }
        (burst.len(), burst.arena_bytes())
    }

    #[test]
    fn packets_that_are_copied_fill_whole_bundles_that_stay_in_the_cache() {
        let mut buffers = BurstBuffers::new();
        for packet_bytes in (20..PAYLOAD_BYTES_MAX).step_by(4) {
            let (packets, arena_bytes) = copied(&mut buffers, packet_bytes, 1 << 20);
            let bundle = (PACKET_BYTES_MAX / packet_bytes).min(BUNDLE_PACKETS_MAX);
            assert!(packets >= bundle, "{packet_bytes} bytes");
            assert!(packets.is_multiple_of(bundle), "{packet_bytes} bytes");
            assert!(arena_bytes <= 2 * PACKET_BYTES_MAX, "{packet_bytes} bytes");
        }
    }

    #[test]
    fn less_than_a_bundle_that_would_be_left_over_goes_along() {
        let mut buffers = BurstBuffers::new();
        let bundle = PACKET_BYTES_MAX / 4100;
        for (waiting, taken) in [
            (2 * bundle, 2 * bundle),
            (2 * bundle + 1, 2 * bundle + 1),
            (3 * bundle - 1, 3 * bundle - 1),
            (3 * bundle, 2 * bundle),
            (4 * bundle + 1, 2 * bundle),
        ] {
            assert_eq!(copied(&mut buffers, 4100, waiting).0, taken, "{waiting} packets");
        }
    }
}
