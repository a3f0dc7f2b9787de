//! The kind SDR: packets are placed in slots (`lacuna_proto::qp`).

use super::ControlEffects;
use super::copying::{COPIED_PAYLOAD_BYTES_MAX, has_room};
use lacuna_burst::Burst;
use lacuna_proto::path_frames::PathFrames;
use lacuna_proto::qp::{QueuePair, Transmit};
use lacuna_wire::pad_bytes;

/// Gives a control packet to its queue pair.
#[inline]
pub(super) fn on_control(
    qp: &mut QueuePair,
    came_ns: u64,
    channel: u8,
    body: &[u8],
    packet_bytes: usize,
) -> ControlEffects {
    let (is_newest, path_frames) = match qp.on_control(came_ns, channel, body, packet_bytes) {
        Ok(is_newest) => (is_newest, qp.path_frames()),
        Err(error) => {
            tracing::debug!(number = qp.config().queue_pair, %error, "control packet dropped");
            (false, PathFrames::default())
        }
    };
    ControlEffects { is_newest, has_queued: qp.has_queued(), path_frames }
}

/// Adds the run's packets from `next` on to the burst; `waiting` packets are in the queue. `false`
/// once the burst has no room.
#[inline]
pub(crate) fn fill<'p>(
    run: &'p Transmit,
    next: usize,
    burst: &mut Burst<'_, 'p>,
    waiting: usize,
) -> bool {
    let seal = run.seal();
    for (header, payload) in run.packets_from(next) {
        if burst.len() == Burst::PACKETS_MAX {
            return false;
        }
        let (head_bytes, pad) = (header.header_bytes(), pad_bytes(payload.len()));
        let tail_bytes = pad + seal.bytes();
        if payload.len() <= COPIED_PAYLOAD_BYTES_MAX {
            let packet_bytes = head_bytes + payload.len() + tail_bytes;
            if !has_room(burst, packet_bytes, waiting) {
                return false;
            }
            burst.push_whole(packet_bytes, |packet| seal.emit_packet(&header, packet, payload));
            continue;
        }
        burst.push_with(head_bytes, payload, tail_bytes, |head, tail| {
            header.emit(head);
            let (padding, trailer) = tail.split_at_mut(pad);
            padding.fill(0);
            seal.emit_trailer(&header, &[head, payload, padding], trailer);
        });
    }
    true
}
