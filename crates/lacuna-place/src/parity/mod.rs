//! Parity as the receiving side sees it (SDR-RDMA 4.1.2): where its packets stand, which of them are
//! kept, and what is repaired with them. A sender asks only for the layout.
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
//! it repairs what is missing itself, when its burst is over, with the slot
//! pinned. A byte has one writer, as without a code; what comes late finds its
//! packet's bit set; nothing is written once the slot is closed. The price is a
//! coarser spread of a message over channels.
//!
//! Without loss nothing is decoded and nothing is copied: parity for a row that
//! is complete is counted and dropped. Parity is kept only for rows that miss
//! more than it can repair, so a peer cannot make it take more memory than the
//! buffer itself (`held.rs`).
//!
//! This folder knows no record, slot or burst: it asks for the data through the trait `DataPackets`.

mod held;
mod layout;
mod repair;

pub(crate) use held::Held;
pub use held::Taken;
pub(crate) use layout::data_packets_limit;
pub use layout::{Layout, ParityPacket, Row};
pub(crate) use repair::{Repairer, RowAt};

use lacuna_code::{Code, Codec};
use std::ops::Range;

/// The data packets of one message, as far as they came.
pub(crate) trait DataPackets {
    /// Payload bytes of a full packet.
    fn mtu_bytes(&self) -> u32;

    /// Whether a packet came.
    fn has(&self, packet: u32) -> bool;

    /// Whether the chunks of these packets are complete. One look for many packets.
    fn has_chunks_of(&self, packets: Range<u32>) -> bool;

    /// Payload bytes of a packet, as far as the end of the message is known.
    fn bytes_of(&self, packet: u32) -> usize;

    /// The payload of a packet that came; none has any if they are phantom.
    fn payload(&self, packet: u32) -> Option<&[u8]>;

    /// Whether they have no memory: what can be repaired counts as repaired, and nothing is computed.
    fn are_phantom(&self) -> bool;
}

/// A codec with the same engine for the tail of an XOR code, which has no tables and costs nothing.
pub fn codec_like(codec: &Codec, code: Code) -> Codec {
    Codec::with_engine(code, codec.engine())
}
