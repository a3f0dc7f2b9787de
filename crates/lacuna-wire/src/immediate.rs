//! The 32-bit immediate of a data packet: which message, which packet of it, and a few bits of
//! the user's own immediate.
//!
//! ```text
//!  31          22 21              4 3      0
//! |  message id  |  packet offset  |  user  |     the default split, 10 + 18 + 4
//! ```
//!
//! SDR-RDMA 3.2.4 gives the widths (10 + 18 + 4, or 8 + 22 + 2 for larger messages), but neither
//! the order of the fields nor which fragment a packet carries. Here the message id is in the high
//! bits, as the paper lists it first, and packet `p` carries fragment `p mod F` of `F` fragments,
//! so any `F` consecutive packets carry the whole user immediate. The protocol must send the
//! fragments that a message of fewer than `F` packets leaves out.
//!
//! Most user immediates are small: the number of a buffer, a step. A *compact* split sends them in groups of
//! seven bits, the least significant first, each with a bit that says whether more follow, as LEB128 does. So
//! one below 128 is whole with the first packet, and only what follows needs further ones. Both ends must
//! know of it; it is for queue pairs that no earlier version has.

use thiserror::Error;

const IMMEDIATE_BITS: u8 = 32;
const MESSAGE_BITS_MAX: u8 = 16;
const PACKET_BITS_MAX: u8 = 30;
const USER_BITS_MAX: u8 = 8;

/// Widths of the three fields; the message id has what the others leave. A value of this type is
/// always valid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ImmediateSplit {
    packet_bits: u8,
    /// Bits of the user immediate per fragment. Seven are the eight of a compact split.
    part_bits: u8,
}

/// Bits of the user immediate in a compact fragment of eight.
const GROUP_BITS: u32 = 7;
/// Set in a compact fragment that others follow.
const MORE: u32 = 1 << GROUP_BITS;
/// Groups of the longest user immediate.
const GROUPS_MAX: u32 = (IMMEDIATE_BITS as u32).div_ceil(GROUP_BITS);
/// Packets from one that carries a compact fragment to the next that carries the same. A power of two, of
/// which fragments of eight bits fit a word.
const COMPACT_PERIOD: u32 = 8;

/// The three parts of an immediate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ImmediateFields {
    /// Message id: the number of the slot, below [`ImmediateSplit::messages`].
    pub message: u32,
    /// Offset in the message, in packets, below [`ImmediateSplit::packets`].
    pub packet: u32,
    /// A fragment of the user immediate; see [`ImmediateSplit::fragment_of`].
    pub fragment: u32,
}

/// Why three widths do not divide an immediate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SplitError {
    /// The widths do not add up to 32.
    #[error("immediate split {message_bits}+{packet_bits}+{user_bits} is not 32 bits")]
    Sum {
        /// Width of the message id.
        message_bits: u8,
        /// Width of the packet offset.
        packet_bits: u8,
        /// Width of the user fragment.
        user_bits: u8,
    },
    /// The message id must have 1 to 16 bits.
    #[error("immediate split gives the message id {0} bits, not 1 to 16")]
    MessageBits(u8),
    /// The packet offset must have 1 to 30 bits.
    #[error("immediate split gives the packet offset {0} bits, not 1 to 30")]
    PacketBits(u8),
    /// The user's 32 bits must divide into fragments of 0, 1, 2, 4 or 8 bits.
    #[error("immediate split gives the user fragment {0} bits, not 0, 1, 2, 4 or 8")]
    UserBits(u8),
}

impl ImmediateSplit {
    /// 10 + 18 + 4: 1024 messages of up to 2^18 packets (1 GiB at 4 KiB).
    pub const DEFAULT: Self = Self { packet_bits: 18, part_bits: 4 };
    /// 8 + 22 + 2: 256 messages of up to 2^22 packets (16 GiB at 4 KiB).
    pub const WIDE: Self = Self { packet_bits: 22, part_bits: 2 };
    /// 8 + 16 + 8, compact: 256 messages of up to 2^16 packets (256 MiB at 4 KiB), and small user
    /// immediates in one packet.
    pub const COMPACT: Self = Self { packet_bits: 16, part_bits: GROUP_BITS as u8 };

    /// Checks three widths.
    ///
    /// # Errors
    /// When the widths do not add up to 32 or one of them is out of its range.
    pub const fn new(message_bits: u8, packet_bits: u8, user_bits: u8) -> Result<Self, SplitError> {
        if message_bits == 0 || message_bits > MESSAGE_BITS_MAX {
            return Err(SplitError::MessageBits(message_bits));
        }
        if packet_bits == 0 || packet_bits > PACKET_BITS_MAX {
            return Err(SplitError::PacketBits(packet_bits));
        }
        if user_bits > USER_BITS_MAX || (user_bits != 0 && !user_bits.is_power_of_two()) {
            return Err(SplitError::UserBits(user_bits));
        }
        // No overflow: the three maxima add up to 54.
        if message_bits + packet_bits + user_bits != IMMEDIATE_BITS {
            return Err(SplitError::Sum { message_bits, packet_bits, user_bits });
        }
        Ok(Self { packet_bits, part_bits: user_bits })
    }

    /// Width of the message id.
    #[inline]
    #[must_use]
    pub const fn message_bits(self) -> u8 {
        IMMEDIATE_BITS - self.packet_bits - self.user_bits()
    }

    /// Width of the packet offset.
    #[must_use]
    pub const fn packet_bits(self) -> u8 {
        self.packet_bits
    }

    /// Width of the user fragment.
    #[inline]
    #[must_use]
    pub const fn user_bits(self) -> u8 {
        self.part_bits + self.is_compact() as u8
    }

    #[inline]
    const fn is_compact(self) -> bool {
        self.part_bits == GROUP_BITS as u8
    }

    /// Number of message ids, which is the number of slots.
    #[inline]
    #[must_use]
    pub const fn messages(self) -> u32 {
        1 << self.message_bits()
    }

    /// Number of packet offsets in a message.
    #[inline]
    #[must_use]
    pub const fn packets(self) -> u32 {
        1 << self.packet_bits
    }

    /// Number of fragments of the user immediate, which packets carry in turn; 0 if none is carried.
    #[inline]
    #[must_use]
    pub const fn fragments(self) -> u32 {
        // Widths are powers of two.
        match self.user_bits() {
            _ if self.is_compact() => COMPACT_PERIOD,
            0 => 0,
            bits => IMMEDIATE_BITS as u32 >> bits.trailing_zeros(),
        }
    }

    /// Packs the immediate of a packet. A field that is too large is a bug of the caller: debug
    /// builds panic, release builds cut it to its width.
    #[inline]
    #[must_use]
    pub const fn pack(self, fields: ImmediateFields) -> u32 {
        debug_assert!(fields.message < self.messages());
        debug_assert!(fields.packet < self.packets());
        debug_assert!(fields.fragment <= self.fragment_mask());
        let packet = fields.packet & (self.packets() - 1);
        // What a message id has too much is shifted out.
        (fields.message << (self.packet_bits + self.user_bits()))
            | (packet << self.user_bits())
            | (fields.fragment & self.fragment_mask())
    }

    /// Unpacks an immediate. Every 32-bit value is valid.
    #[inline]
    #[must_use]
    pub const fn unpack(self, immediate: u32) -> ImmediateFields {
        ImmediateFields {
            message: immediate >> (self.packet_bits + self.user_bits()),
            packet: (immediate >> self.user_bits()) & (self.packets() - 1),
            fragment: immediate & self.fragment_mask(),
        }
    }

    /// Fragments that the receiver needs of this user immediate: the first so many.
    #[inline]
    #[must_use]
    pub const fn fragments_of(self, user_immediate: u32) -> u32 {
        match self.is_compact() {
            false => self.fragments(),
            true => {
                let bits = IMMEDIATE_BITS as u32 - user_immediate.leading_zeros();
                if bits == 0 { 1 } else { bits.div_ceil(GROUP_BITS) }
            }
        }
    }

    /// The user immediate of the fragments that have come: `mask` has a bit for each, and `fragments` has
    /// them at their places. `None` while some are missing.
    #[inline]
    #[must_use]
    pub const fn join(self, mask: u32, fragments: u64) -> Option<u32> {
        if self.is_compact() {
            return join_compact(mask, fragments);
        }
        let count = self.fragments();
        let all = if count == 32 { u32::MAX } else { (1 << count) - 1 };
        if count > 0 && mask == all { Some(fragments as u32) } else { None }
    }

    /// Index of the fragment that packet `packet` carries; 0 if none is carried.
    #[inline]
    #[must_use]
    pub const fn fragment_index(self, packet: u32) -> u32 {
        match self.fragments() {
            0 => 0,
            // A power of two.
            fragments => packet & (fragments - 1),
        }
    }

    /// The fragment of `user_immediate` that packet `packet` carries. Fragment 0 is the least
    /// significant one.
    #[inline]
    #[must_use]
    pub const fn fragment_of(self, user_immediate: u32, packet: u32) -> u32 {
        let index = self.fragment_index(packet);
        if self.is_compact() {
            return compact(user_immediate, index);
        }
        (user_immediate >> (index * self.user_bits() as u32)) & self.fragment_mask()
    }

    /// The reverse of [`fragment_of`](Self::fragment_of): shifts the fragment of packet `packet` to
    /// its place in the user immediate. Combine the results with bitwise or. (Not of a compact split.)
    #[inline]
    #[must_use]
    pub const fn fragment_placed(self, fragment: u32, packet: u32) -> u32 {
        (fragment & self.fragment_mask()) << (self.fragment_index(packet) * self.user_bits() as u32)
    }

    const fn fragment_mask(self) -> u32 {
        (1 << self.user_bits()) - 1
    }
}

/// The group of seven bits with this index, and whether others follow.
const fn compact(user_immediate: u32, index: u32) -> u32 {
    if index >= GROUPS_MAX {
        return 0;
    }
    let rest = user_immediate >> (index * GROUP_BITS);
    let more = if rest >> GROUP_BITS == 0 { 0 } else { MORE };
    rest & (MORE - 1) | more
}

const fn join_compact(mask: u32, fragments: u64) -> Option<u32> {
    let (mut immediate, mut index) = (0, 0);
    while index < GROUPS_MAX && mask >> index & 1 == 1 {
        let group = (fragments >> (index * 8)) as u32 & 0xFF;
        // What a peer sends beyond 32 bits is shifted out.
        immediate |= (group & (MORE - 1)) << (index * GROUP_BITS);
        index += 1;
        if group & MORE == 0 || index == GROUPS_MAX {
            return Some(immediate);
        }
    }
    None
}

impl Default for ImmediateSplit {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_splits_are_valid() {
        assert_eq!(ImmediateSplit::new(10, 18, 4), Ok(ImmediateSplit::DEFAULT));
        assert_eq!(ImmediateSplit::new(8, 22, 2), Ok(ImmediateSplit::WIDE));
        assert_eq!(ImmediateSplit::DEFAULT.fragments(), 8);
        assert_eq!(ImmediateSplit::WIDE.fragments(), 16);
    }

    #[test]
    fn parts_lie_where_the_diagram_says() {
        let fields = ImmediateFields { message: 0x3a5, packet: 0x2_1fed, fragment: 0xc };
        let immediate = ImmediateSplit::DEFAULT.pack(fields);
        assert_eq!(immediate, (0x3a5 << 22) | (0x2_1fed << 4) | 0xc);
        assert_eq!(ImmediateSplit::DEFAULT.unpack(immediate), fields);
    }

    #[test]
    fn widths_out_of_range_name_themselves() {
        assert_eq!(ImmediateSplit::new(0, 28, 4), Err(SplitError::MessageBits(0)));
        assert_eq!(ImmediateSplit::new(17, 11, 4), Err(SplitError::MessageBits(17)));
        assert_eq!(ImmediateSplit::new(1, 31, 0), Err(SplitError::PacketBits(31)));
        assert_eq!(ImmediateSplit::new(16, 0, 16), Err(SplitError::PacketBits(0)));
        assert_eq!(ImmediateSplit::new(10, 19, 3), Err(SplitError::UserBits(3)));
        assert_eq!(ImmediateSplit::new(10, 6, 16), Err(SplitError::UserBits(16)));
        assert_eq!(
            ImmediateSplit::new(10, 18, 8),
            Err(SplitError::Sum { message_bits: 10, packet_bits: 18, user_bits: 8 })
        );
    }

    #[test]
    fn consecutive_packets_carry_the_whole_user_immediate() {
        for split in [ImmediateSplit::DEFAULT, ImmediateSplit::WIDE] {
            let first = 13;
            let rebuilt = (first..first + split.fragments())
                .map(|packet| split.fragment_placed(split.fragment_of(0xdead_beef, packet), packet))
                .fold(0, |all, part| all | part);
            assert_eq!(rebuilt, 0xdead_beef);
        }
        assert_eq!(ImmediateSplit::DEFAULT.fragment_of(0xdead_beef, 0), 0xf);
        assert_eq!(ImmediateSplit::DEFAULT.fragment_of(0xdead_beef, 7), 0xd);
    }

    #[test]
    fn a_compact_immediate_is_whole_with_as_many_packets_as_it_needs() {
        let split = ImmediateSplit::COMPACT;
        let sizes = [(0, 1), (127, 1), (128, 2), (0x3FFF, 2), (0x4000, 3), (0xDEAD_BEEF, 5)];
        for (immediate, needed) in sizes {
            assert_eq!(split.fragments_of(immediate), needed);
            // In any order, and of any packets that carry them.
            for first in [0, 3, 8, 13] {
                let (mut mask, mut fragments) = (0, 0);
                for packet in (first..first + 8).rev() {
                    let index = packet % split.fragments();
                    let is_whole = split.join(mask, fragments).is_some();
                    assert_eq!(is_whole, mask & ((1 << needed) - 1) == (1 << needed) - 1);
                    mask |= 1 << index;
                    fragments |= u64::from(split.fragment_of(immediate, packet)) << (8 * index);
                }
                assert_eq!(split.join(mask, fragments), Some(immediate));
            }
        }
        assert_eq!(split.join(0b11111, u64::MAX), Some(u32::MAX), "a peer may say anything");
        let widths = (split.message_bits(), split.packet_bits(), split.user_bits());
        assert_eq!(widths, (8, 16, 8));
    }

    #[test]
    fn without_user_bits_every_fragment_is_zero() {
        let split = ImmediateSplit::new(10, 22, 0).unwrap();
        assert_eq!(split.fragments(), 0);
        assert_eq!(split.fragment_of(u32::MAX, 5), 0);
        assert_eq!(split.fragment_placed(u32::MAX, 5), 0);
    }
}
