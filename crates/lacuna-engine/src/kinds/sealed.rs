//! Packets of queue pairs whose packets are encrypted: made as of all others, but always written into the burst. A
//! payload is encrypted on its way there, or there while it is in the cache. Nothing that is not sealed leaves: a packet
//! that cannot be is blank.

use super::copying::has_room;
use super::rc::{RcPackets, RcRun};
use lacuna_burst::Burst;
use lacuna_place::prefetch::prefetch_at;
use lacuna_proto::qp::Transmit;
use lacuna_secure::association::Sealer;
use lacuna_secure::{HEAD_BYTES, SealError};
use lacuna_wire::pad_bytes;

/// Payloads up to this length are prefetched while the one before is encrypted. With longer ones the processor's own
/// prefetching is quicker. Measured: M-secure-1.
const PREFETCHED_PAYLOAD_BYTES_MAX: usize = 2 << 10;

/// Seals a packet in place, or blanks it: the keys are used up, and the receiver drops it as it drops what is forged.
/// The association remembers, and the queue pair fails when it is settled.
pub(crate) fn seal(sealer: &mut Sealer<'_>, packet: &mut [u8]) {
    if let Err(error) = sealer.seal(packet) {
        blank(packet, error);
    }
}

#[cold]
fn blank(packet: &mut [u8], error: SealError) {
    tracing::debug!(%error, "packet not sent");
    packet.iter_mut().skip(HEAD_BYTES).for_each(|byte| *byte = 0);
}

/// Adds the run's packets from `next` on to the burst; `waiting` packets are in the queue. `false` once the burst has
/// no room.
pub(super) fn fill_sdr<'p>(
    run: &'p Transmit,
    next: usize,
    burst: &mut Burst<'_, 'p>,
    waiting: usize,
    sealer: &mut Sealer<'_>,
) -> bool {
    let form = run.seal();
    for (header, payload) in run.packets_from(next) {
        let pad = pad_bytes(payload.len());
        let packet_bytes = header.header_bytes() + payload.len() + pad + form.bytes();
        if burst.len() == Burst::PACKETS_MAX || !has_room(burst, packet_bytes, waiting) {
            return false;
        }
        burst.push_whole(packet_bytes, |packet| {
            if pad > 0 {
                form.emit_packet(&header, packet, payload);
                return seal(sealer, packet);
            }
            header.emit(&mut packet[..header.header_bytes()]);
            if payload.len() <= PREFETCHED_PAYLOAD_BYTES_MAX {
                prefetch_at(payload.as_ptr_range().end, payload.len());
            }
            if let Err(error) = sealer.seal_payload(packet, payload) {
                blank(packet, error);
            }
        });
    }
    true
}

/// The same of a reliable connection.
pub(super) fn fill_rc<'p>(
    rc: &'p RcRun,
    next: usize,
    burst: &mut Burst<'_, 'p>,
    waiting: usize,
    sealer: &mut Sealer<'_>,
) -> bool {
    let RcRun { packets, seal: form, .. } = rc;
    for index in next..rc.len() {
        let bytes_max = match packets {
            RcPackets::Run(run) => run.packet_bytes(index) + form.bytes(),
            RcPackets::Coded(coded) => coded.packet(index).len(),
        };
        if burst.len() == Burst::PACKETS_MAX || !has_room(burst, bytes_max, waiting) {
            return false;
        }
        burst.push_up_to(bytes_max, |packet| {
            let bytes = match packets {
                // What may not be read any more becomes a refusal, which is shorter.
                RcPackets::Run(run) => run.emit(index, packet) + form.bytes(),
                RcPackets::Coded(coded) => {
                    packet.copy_from_slice(coded.packet(index));
                    bytes_max
                }
            };
            seal(sealer, &mut packet[..bytes]);
            bytes
        });
    }
    true
}
