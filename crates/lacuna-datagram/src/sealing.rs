//! Packets of a queue pair whose datagrams are sealed ([`lacuna_secure::datagram`]): how theirs and the clear ones
//! become each other.
//!
//! ```text
//! clear    |          headers, payload | CRC32C 4 |
//! sealed   | head 9 | ciphertext of it | tag 16   |
//! ```
//!
//! The tag says what the CRC32C would, so that is left out. Packets are sealed while they are made and opened where they
//! came, both without the queue pair's lock.

use crate::run::Run;
use lacuna_secure::datagram::{HEAD_BYTES, Sending, TAIL_BYTES};
use lacuna_wire::ddp::TRAILER_BYTES;
use std::sync::Arc;

/// Bytes of a sealed packet beyond those of a clear one.
pub const SEAL_BYTES: usize = HEAD_BYTES + TAIL_BYTES - TRAILER_BYTES;

/// Makes the packets of runs into bytes, sealed if the queue pair's are.
#[derive(Debug, Clone, Default)]
pub struct Emitter(Option<Arc<Sending>>);

impl Emitter {
    pub(crate) fn sealing(sending: Arc<Sending>) -> Self {
        Self(Some(sending))
    }

    /// Bytes of a packet of a run, at most.
    #[must_use]
    pub fn packet_bytes(&self, run: &Run, index: usize) -> usize {
        let is_sealed = self.0.is_some() && !run.is_greeting();
        run.packet_bytes(index) + if is_sealed { SEAL_BYTES } else { 0 }
    }

    /// Writes a packet; how many bytes it has.
    ///
    /// # Panics
    /// If there is no such packet, or `out` is shorter than [`Emitter::packet_bytes`].
    pub fn emit(&self, run: &Run, index: usize, out: &mut [u8]) -> usize {
        match &self.0 {
            Some(sending) if !run.is_greeting() => {
                let bytes = run.emit(index, &mut out[HEAD_BYTES..]) + SEAL_BYTES;
                sending.sealer().seal(&mut out[..bytes]);
                bytes
            }
            _ => run.emit(index, out),
        }
    }
}

/// The clear packet in one that was opened in place; its last bytes stand where the CRC32C would. `None` if it is empty:
/// it only says that its sender is there.
pub(crate) fn opened(packet: &[u8]) -> Option<&[u8]> {
    let clear = packet.get(HEAD_BYTES..(packet.len() + TRAILER_BYTES).checked_sub(TAIL_BYTES)?)?;
    (clear.len() > TRAILER_BYTES).then_some(clear)
}
