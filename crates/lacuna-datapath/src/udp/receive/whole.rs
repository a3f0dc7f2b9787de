//! Reads several messages per call, each of coalesced packets and with its control messages.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use super::chooser::Taken;
use super::{Known, now, waited_ns};
use crate::udp::setup;
use crate::udp::syscall::{ReceiveArrays, SLOT_BYTES};
use crate::{Placer, ReceivedBatch};

/// Wanted bytes of one read, so that they are still in the L2 cache when the placer reads them. One to
/// 16 slots make no difference. Measured: M-udp-5.
const BYTES_TARGET: usize = 4 * SLOT_BYTES;

/// How many messages to request next: twice as many as the last call returned if it returned all that
/// it requested, within [`BYTES_TARGET`] at their size. Requesting one message more than there are
/// costs as much as an empty call, some 0.4 us, which would delay a lone packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask(usize);

impl Ask {
    pub(super) const ONE: Self = Self(1);

    /// The next request after a call that returned `messages` messages of up to `bytes_max` bytes.
    fn after(self, messages: usize, bytes_max: usize, slots: usize) -> Self {
        let most = (BYTES_TARGET / bytes_max).clamp(1, slots);
        let is_all = messages == self.0.min(slots);
        Self(if is_all { 2 * messages } else { messages }.clamp(1, most))
    }
}

/// Reads a socket whose packets share the `known` addresses.
pub(super) fn take(
    socket: &UdpSocket,
    known: Known,
    ask: &mut Ask,
    arrays: &mut ReceiveArrays,
    placer: &mut dyn Placer,
) -> io::Result<Taken> {
    while let Err(error) = arrays.receive(socket.as_fd(), known.peer.is_some(), ask.0) {
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => {
                *ask = Ask::ONE;
                return Ok(Taken { is_drained: true, ..Taken::default() });
            }
            _ => return Err(error),
        }
    }
    let now = now();
    let slots = arrays.slots();
    let mut taken = Taken::default();
    let (mut messages, mut bytes_max) = (0, 1);
    for message in arrays.messages() {
        messages += 1;
        bytes_max = bytes_max.max(message.bytes.len());
        let source = known.peer.or_else(|| message.source.map(setup::unmapped));
        // Neither skip happens with UDP over IP: no message exceeds a slot, and all have a source.
        let (Some(source), false) = (source, message.truncated) else { continue };
        let batch = ReceivedBatch {
            source,
            local: known.local.or(message.control.local),
            segment_bytes: message.control.segment_bytes.unwrap_or(message.bytes.len()),
            bytes: message.bytes,
            congestion_experienced: message.control.congestion_experienced,
            waited_ns: waited_ns(now, message.control.arrival),
        };
        taken.packets += batch.len();
        taken.bytes += batch.bytes.len();
        placer.on_packets(batch);
    }
    let next = ask.after(messages, bytes_max, slots);
    taken.is_drained = next.0 < ask.0;
    *ask = next;
    Ok(taken)
}
