//! Erasure coding with selective repeat behind it, SDR-RDMA 4.1.2.
//!
//! A message is sent as submessages of k data chunks, each followed at once by its m parity chunks.
//! The receiver computes lost packets of a submessage as soon as enough of it has arrived, while later
//! submessages still arrive. The missing chunks are retransmitted only if the parity does not suffice.
//!
//! The numbering of parity packets and the receiver's repair are the same for every mode with parity:
//! see `parity/mod.rs` of `lacuna-place`.
//!
//! # Encoding
//!
//! The sender computes the parity of a submessage when it builds the first parity packet. That
//! happens outside of the queue pair's lock, right after the data passed the checksum and while
//! they are in cache (`qp/encode.rs`). Each data byte is read once more.
//!
//! # Falling back
//!
//! The receiver sends selective repeat's bitmap, in which repaired chunks are set. A full bitmap is
//! the positive acknowledgement. The NACK of a submessage is the bitmap at the time when its last
//! parity packet was passed (later packets have arrived), since no more of the submessage will come.
//! The sender then retransmits the missing chunks, and goes on with them as in selective repeat.
//!
//! That moment is the fallback timeout of 4.2.3, FTO = (M + ceil(M / R)) T_INJ + beta RTT, measured
//! for each submessage instead of computed: neither end has to know T_INJ. The slack beta RTT, for
//! which the paper gives no value, is the path's reordering window, or the retransmission timeout
//! where nothing is heard.
//!
//! Parity packets carry fragments of the user immediate too. Fragments that are missing once all
//! parity was passed are sent again.

mod recv;
mod send;
#[cfg(test)]
mod tests;

pub use recv::Receiver;
pub use send::Sender;

use lacuna_code::Code;

/// Parameters that both ends agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Kind, k and m.
    pub code: Code,
}
