//! Erasure coding with selective repeat behind it, SDR-RDMA 4.1.2.
//!
//! A message goes out as submessages of k data chunks, each followed at once by
//! its m parity chunks. What is lost of a submessage is computed where it is
//! missing as soon as enough of it came, while later ones still arrive. Only
//! where the parity does not suffice do the missing chunks go out again.
//!
//! Where parity travels, and how the receiver repairs with it, is placement's and the same in
//! every mode whose messages carry parity: see `parity/mod.rs`.
//!
//! # Encoding
//!
//! The parity of a submessage is computed when its first parity packet is built,
//! outside of the queue pair's lock, right after its data passed the checksum
//! and while they are in cache (`qp/encode.rs`). Each data byte is read once more.
//!
//! # Falling back
//!
//! The acknowledgement is selective repeat's bitmap, in which repaired chunks
//! are set. It is the positive acknowledgement when it is full, and the NACK for
//! a submessage whose last parity packet was passed: all that could come of it
//! came, and the chunks that the bitmap lacks are sent again, and from then on as
//! in selective repeat. That moment is the fallback timeout of 4.2.3,
//! FTO = (M + ceil(M / R)) T_INJ + beta RTT, measured instead of reckoned and for
//! each submessage: neither end has to know T_INJ, and the slack beta RTT, for
//! which the paper gives no value, is the path's reordering window, or the
//! retransmission timeout where nothing is heard.
//!
//! Fragments of a user immediate travel on parity packets too; those that are
//! missing once all parity was passed are sent again.

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
