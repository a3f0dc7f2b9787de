//! Parity at the receiver (SDR-RDMA 4.1.2): the numbering of parity packets, the store of those that
//! are still needed, and repairs with them. A sender uses only the numbering.
//!
//! # Parity packets
//!
//! The paper sends data and parity as separate messages, 2L of them, more than a queue pair has message
//! ids for. Here parity packets are further packets of the same message, so there is one slot, one
//! record and one generation, and late packets of either kind are refused alike. Their numbers depend
//! only on the submessage and come after all numbers that a slot's data can have (`layout.rs`). Data
//! packets keep their offsets in the application's buffer.
//!
//! The receiver learns the message's length from any parity packet. In the slot's part of the root key,
//! parity follows the data, so the address in the RETH minus the packet's offset among the parity is
//! the message's length. The solicited-event bit means, as on a data packet, that the message ends in
//! this slot. So no frame has to announce the length, even if the packet that ends the message is lost.
//!
//! # Rows
//!
//! Bytes at equal positions in the chunks of a submessage form a codeword. So the packets at equal
//! positions, a *row*, are coded independently of other rows, and the receiver repairs row by row: a
//! chunk of 16 packets that misses one costs one parity packet, and losses in different rows do not
//! add up. Since m losses per row are repairable, not per submessage, a large chunk is as robust as a
//! small one.
//!
//! # One writer
//!
//! A stripe consists of whole submessages, and parity travels on the channel of its data
//! (`geometry.rs`). So the channel's worker receives all packets of a submessage, and repairs the
//! missing ones itself at the end of its burst, with the slot pinned. As without a code, each byte has
//! one writer, a late copy finds its packet's bit set, and nothing is written once the slot is closed.
//! The price: a message spreads over channels in larger units.
//!
//! Without loss nothing is decoded or copied: parity of a complete row is counted and dropped. Parity is
//! stored only for rows that miss more data than the store has parity for, so a peer cannot make it
//! take more memory than the buffer itself (`store.rs`).
//!
//! This folder does not know records, slots or bursts: it reads the data through the trait
//! `DataPackets`.

mod layout;
mod repair;
mod store;
mod sums;

pub(crate) use layout::data_packets_limit;
pub use layout::{Layout, ParityPacket, Row};
pub(crate) use repair::{Repairer, RowId};
pub use store::ParityOutcome;
pub(crate) use store::ParityStore;

use lacuna_code::{Code, Codec};
use std::ops::Range;

/// The data packets of one message that have arrived.
pub(crate) trait DataPackets {
    /// Payload bytes of a full packet.
    fn mtu_bytes(&self) -> u32;

    /// Whether a packet has arrived.
    fn has(&self, packet: u32) -> bool;

    /// Whether the chunks of these packets are complete; cheaper than asking for each packet.
    fn has_chunks_of(&self, packets: Range<u32>) -> bool;

    /// Payload bytes of a packet; of a full packet if the end of the message is unknown.
    fn bytes_of(&self, packet: u32) -> usize;

    /// The payload of a packet that has arrived; always `None` for a phantom receive.
    fn payload(&self, packet: u32) -> Option<&[u8]>;

    /// Whether the receive is a phantom, without memory: repairs are counted and not computed.
    fn are_phantom(&self) -> bool;

    /// Whether others may write the packets' bytes at any time, as in a region: then they are not
    /// borrowed ([`DataPackets::payload`]) but copied ([`DataPackets::copy`]).
    fn must_be_copied(&self) -> bool {
        false
    }

    /// Copies the payload of a packet that has arrived to all of `out`; `false` if the bytes there are
    /// no longer those that arrived.
    fn copy(&self, packet: u32, out: &mut [u8]) -> bool {
        self.payload(packet).is_some_and(|bytes| {
            out.copy_from_slice(bytes);
            true
        })
    }
}

/// A codec with the same SIMD back end as `codec` for the short last submessage of an XOR code. It is
/// cheap to make, because an XOR code has no tables.
pub fn codec_like(codec: &Codec, code: Code) -> Codec {
    Codec::with_engine(code, codec.engine())
}
