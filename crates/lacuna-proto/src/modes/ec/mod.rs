//! Erasure coding with selective repeat behind it, SDR-RDMA 4.1.2.
//!
//! A message goes out as submessages of k data chunks, each followed at once by
//! its m parity chunks. What is lost of a submessage is computed where it is
//! missing as soon as enough of it came, while later ones still arrive. Only
//! where the parity does not suffice do the missing chunks go out again.
//!
//! # Where parity travels
//!
//! The paper sends data and parity as messages of their own, 2L of them, more
//! than a queue pair has ids for. Here parity is further packets of the same
//! message, so there is one slot, one record and one generation, and late
//! packets of either kind are refused alike. `layout.rs` says how its packets
//! are numbered: by submessage alone, behind all that the data of a slot can
//! have. Data keep their places and arrive where the application reads them.
//!
//! A parity packet says for itself how long its message is. Parity lies right
//! behind the data in the slot's part of the root key, so the address in its
//! RETH less its place among the parity is the message's length; the
//! solicited-event bit says, as on a data packet, that the message ends in this
//! slot. One parity packet tells the receiver the shape of the message, also
//! if the packet that ends it is lost; no frame announces anything.
//!
//! # Rows
//!
//! Bytes of equal place in the chunks make a codeword, so packets of equal
//! place in them, a *row*, are a block of the code for themselves. The receiver
//! repairs row by row: a chunk of 16 packets that misses one costs one packet of
//! parity, and losses in different rows do not add up. With m losses per row,
//! not per submessage, a large chunk is as robust as a small one.
//!
//! # Who writes
//!
//! A stripe is whole submessages, and parity is on the channel of its data
//! (`geometry.rs`). So one worker, the channel's, gets all of a submessage, and
//! it repairs what is missing itself, between two of its packets, with the slot
//! pinned. A byte has one writer, as without a code; what comes late finds its
//! packet's bit set; nothing is written once the slot is closed. The price is a
//! coarser spread of a message over channels.
//!
//! Without loss nothing is decoded and nothing is copied: parity for a row that
//! is complete is counted and dropped. Parity is kept only for rows that miss
//! more than it can repair, so a peer cannot make it take more memory than the
//! buffer itself (`held.rs`).
//!
//! # Encoding
//!
//! The parity of a submessage is computed when its first parity packet is built,
//! outside of the queue pair's lock, right after its data passed the checksum
//! and while they are in cache (`encode.rs`). Each data byte is read once more.
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
