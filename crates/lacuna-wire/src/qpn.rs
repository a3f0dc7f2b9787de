//! The destination QPN of a packet: 24 bits that name a queue pair, a channel and a generation.
//!
//! ```text
//!  23                    7 6     3 2     0
//! |  queue pair, 17 bits  | chan. | gen.  |
//! ```
//!
//! SDR-RDMA runs several internal QPs per connection: one per channel, so that receive workers
//! share nothing (3.4.1), and one per generation, so that a late packet of a finished message is
//! not taken for the next message in the slot (3.3.2). A NIC needs a real QP for each; in software
//! the number is enough. The sub-fields are in the low bits, so the QPNs of a queue pair are
//! contiguous and a table indexed by queue pair is dense.

use std::fmt;

/// The most channels of a queue pair: 4 bits.
pub const CHANNELS_MAX: usize = 1 << CHANNEL_BITS;
/// The most generations of a slot: 3 bits. SDR-RDMA's example uses 4.
pub const GENERATIONS_MAX: usize = 1 << GENERATION_BITS;

const CHANNEL_BITS: u32 = 4;
const GENERATION_BITS: u32 = 3;
const QPN_BITS: u32 = 24;
const CHANNEL_MASK: u32 = (1 << CHANNEL_BITS) - 1;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const QUEUE_PAIR_SHIFT: u32 = CHANNEL_BITS + GENERATION_BITS;
const QPN_MASK: u32 = (1 << QPN_BITS) - 1;

/// A 24-bit queue pair number with Lacuna's sub-fields. Invariant: the top byte is zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Qpn(u32);

impl Qpn {
    /// The smallest queue pair. Number 0 is left out because raw QPNs 0 and 1 belong to
    /// InfiniBand's management interfaces (SMI, GSI).
    pub const QUEUE_PAIR_MIN: u32 = 1;
    /// The largest queue pair. The one above it is left out because its last raw QPN, 0xFFFFFF,
    /// is InfiniBand's multicast QP.
    pub const QUEUE_PAIR_MAX: u32 = (QPN_MASK >> QUEUE_PAIR_SHIFT) - 1;

    /// Packs a QPN. A field that is too large is a bug of the caller: debug builds panic, release
    /// builds cut it to its width.
    #[inline]
    #[must_use]
    pub const fn new(queue_pair: u32, channel: u8, generation: u8) -> Self {
        debug_assert!(queue_pair <= QPN_MASK >> QUEUE_PAIR_SHIFT);
        Self((queue_pair << QUEUE_PAIR_SHIFT) & QPN_MASK)
            .with_channel(channel)
            .with_generation(generation)
    }

    /// The QPN of a header field; bits above the 24th are dropped.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & QPN_MASK)
    }

    /// The 24 bits of the header field.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The queue pair, 17 bits.
    #[inline]
    #[must_use]
    pub const fn queue_pair(self) -> u32 {
        self.0 >> QUEUE_PAIR_SHIFT
    }

    /// The channel, below [`CHANNELS_MAX`].
    #[inline]
    #[must_use]
    pub const fn channel(self) -> u8 {
        ((self.0 >> GENERATION_BITS) & CHANNEL_MASK) as u8
    }

    /// The generation, below [`GENERATIONS_MAX`].
    #[inline]
    #[must_use]
    pub const fn generation(self) -> u8 {
        (self.0 & GENERATION_MASK) as u8
    }

    /// The same queue pair and generation on another channel.
    #[inline]
    #[must_use]
    pub const fn with_channel(self, channel: u8) -> Self {
        debug_assert!((channel as usize) < CHANNELS_MAX);
        let channel = (channel as u32 & CHANNEL_MASK) << GENERATION_BITS;
        Self((self.0 & !(CHANNEL_MASK << GENERATION_BITS)) | channel)
    }

    /// The same queue pair and channel in another generation.
    #[inline]
    #[must_use]
    pub const fn with_generation(self, generation: u8) -> Self {
        debug_assert!((generation as usize) < GENERATIONS_MAX);
        Self((self.0 & !GENERATION_MASK) | (generation as u32 & GENERATION_MASK))
    }
}

/// `qp7/c2/g1`: queue pair 7, channel 2, generation 1.
impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qp{}/c{}/g{}", self.queue_pair(), self.channel(), self.generation())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_where_the_diagram_says() {
        let qpn = Qpn::new(0x1_2345, 0xa, 0x5);
        assert_eq!(qpn.bits(), (0x1_2345 << 7) | (0xa << 3) | 0x5);
        assert_eq!((qpn.queue_pair(), qpn.channel(), qpn.generation()), (0x1_2345, 0xa, 0x5));
        assert_eq!(qpn.to_string(), "qp74565/c10/g5");
    }

    #[test]
    fn changing_one_part_leaves_the_others() {
        let qpn = Qpn::new(Qpn::QUEUE_PAIR_MAX, 15, 7);
        assert_eq!(qpn.with_channel(0), Qpn::new(Qpn::QUEUE_PAIR_MAX, 0, 7));
        assert_eq!(qpn.with_generation(0), Qpn::new(Qpn::QUEUE_PAIR_MAX, 15, 0));
    }

    #[test]
    fn reserved_infiniband_numbers_are_out_of_range() {
        assert!(Qpn::new(Qpn::QUEUE_PAIR_MIN, 0, 0).bits() > 1);
        assert!(Qpn::new(Qpn::QUEUE_PAIR_MAX, 15, 7).bits() < 0x00ff_ff80);
    }

    #[test]
    fn bits_beyond_the_header_field_are_dropped() {
        assert_eq!(Qpn::from_bits(0xffff_ffff).bits(), 0x00ff_ffff);
    }
}
