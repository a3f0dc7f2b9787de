//! Reads what has come with all that the kernel tells beside it: several messages a call, each of
//! packets that were coalesced.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;

use super::chooser::Taken;
use super::{Known, now, waited_ns};
use crate::udp::setup;
use crate::udp::syscall::{ReceiveArrays, SLOT_BYTES};
use crate::{Placer, ReceivedBatch};

/// How much one look is meant to take, so that what it hands over is still in the second-level cache
/// when the placer reads it. One to 16 slots make no difference: M-udp-5.
const BYTES_TARGET: usize = 4 * SLOT_BYTES;

/// How many messages to ask for next: twice what the last call found if that was all it asked for,
/// and not more than fit [`BYTES_TARGET`] at their size. One that is asked for and not there costs as
/// much as an empty call, some 0.4 us, which a lone packet should not wait for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask(usize);

impl Ask {
    pub(super) const ONE: Self = Self(1);

    /// After a call that found so many messages, of up to so many bytes each.
    fn after(self, messages: usize, bytes_max: usize, slots: usize) -> Self {
        let most = (BYTES_TARGET / bytes_max).clamp(1, slots);
        let is_all = messages == self.0.min(slots);
        Self(if is_all { 2 * messages } else { messages }.clamp(1, most))
    }
}

/// Takes what has come to a socket, of whose packets this much is `known`.
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
        let source = known.peer.or_else(|| message.source.map(setup::from_wire));
        // Neither happens with UDP over IP: no message is longer than a slot, all have a source.
        let (Some(source), false) = (source, message.truncated) else { continue };
        let batch = ReceivedBatch {
            source,
            local: known.local.or(message.control.local),
            segment_bytes: message.control.segment_bytes.unwrap_or(message.bytes.len()),
            bytes: message.bytes,
            congestion_experienced: message.control.congestion_experienced,
            waited_ns: waited_ns(now, message.control.came),
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
