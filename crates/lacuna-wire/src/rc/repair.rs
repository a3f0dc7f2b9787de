//! The repair header of LoWAR: which packets a repair covers, or how a sender protects its packets.
//!
//! LoWAR IV-C and figure 8 give the first word and byte 4; the paper leaves open what follows. Ours:
//!
//! ```text
//!        31      24 23      16 15       8 7        0
//! word 0 | 0x1f     | destination QPN               |
//! word 1 | type     | r - 1    | c - 1    | flags    |
//! word 2 | number of the block's first packet | ISN |
//! word 3 | packets-1| length of the last    | round |
//! ```
//!
//! Types: 1 repair, 2 announcement (the block that comes), 3 request (the peer's blocks from here on).
//! Flags: 0x80 the block has its message's first packet, 0x40 it has the last one, 0x20 the code is MDS
//! (XOR otherwise), low four bits the kind of message, also of an announcement: answers to READs are
//! numbered apart from requests. The *length of the last* is that of the payload of
//! the message's last packet, if the block has it. The *round* counts how often the block was sent again,
//! modulo 256, so that sums of two rounds are never mixed.
//!
//! The type is where a BTH has bits that routers may change, so an ICRC does not cover it.
//!
//! A repair's sum follows the header: over the packets of its unit, of everything behind the BTH without
//! pad, each as if followed by zeros. So RETH, AETH and immediate are restored with the payload. From the
//! header a receiver makes the BTH anew: opcode by kind and place, number by place, pad by length. It
//! cannot know AckReq and the solicited event of a lost packet; both are set on the last one of a message.

use crate::{PSN_MASK, PacketError, Qpn};
use core::fmt;
use core::str::FromStr;

/// The first byte of a repair packet.
pub const REPAIR_OPCODE: u8 = 0x1f;
/// Bytes of the header.
pub const REPAIR_HEADER_BYTES: usize = 16;

const TYPE_REPAIR: u8 = 1;
const TYPE_ANNOUNCE: u8 = 2;
const TYPE_REQUEST: u8 = 3;

const HAS_FIRST: u8 = 0x80;
const HAS_LAST: u8 = 0x40;
const IS_MDS: u8 = 0x20;
const CLASS_MASK: u8 = 0x0f;

/// How repairs are computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CodeKind {
    /// Exclusive or, interleaved: repair j covers the packets with place j modulo c.
    #[default]
    Xor,
    /// Maximum distance separable: any c losses of a block are repaired.
    Mds,
}

/// How strongly packets are protected: LoWAR(r, c).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Strength {
    /// Data packets of a full block, 1 to 256.
    pub block_packets: u16,
    /// Repairs of a full block, 1 to 256: with XOR, the depth of interleaving.
    pub repairs: u16,
    /// How they are computed.
    pub code: CodeKind,
}

/// A strength that cannot be read from its text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{text:?} is no strength: R:C or mds:R:C, such as 32:1, with R and C from 1 to 256")]
pub struct ParseStrengthError {
    /// What was given.
    pub text: String,
}

impl fmt::Display for Strength {
    /// `32:1`, or `mds:32:2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { block_packets, repairs, code } = self;
        let code = if *code == CodeKind::Mds { "mds:" } else { "" };
        write!(f, "{code}{block_packets}:{repairs}")
    }
}

impl FromStr for Strength {
    type Err = ParseStrengthError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (code, pair) = match text.split_once(':') {
            Some(("mds", pair)) => (CodeKind::Mds, pair),
            Some(("xor", pair)) => (CodeKind::Xor, pair),
            _ => (CodeKind::Xor, text),
        };
        let number = |text: &str| text.parse().ok().filter(|number| (1..=256).contains(number));
        let pair = pair.split_once(':').and_then(|(r, c)| Some((number(r)?, number(c)?)));
        let (block_packets, repairs) =
            pair.ok_or_else(|| ParseStrengthError { text: text.to_owned() })?;
        Ok(Self { block_packets, repairs, code })
    }
}

/// What kind of message a block's packets are of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum MessageClass {
    /// SEND.
    Send = 0,
    /// SEND with immediate.
    SendImmediate = 1,
    /// SEND with invalidate.
    SendInvalidate = 2,
    /// RDMA WRITE.
    Write = 3,
    /// RDMA WRITE with immediate.
    WriteImmediate = 4,
    /// The answer to an RDMA READ.
    ReadResponse = 5,
}

impl MessageClass {
    /// Whether it is an answer, of its request's numbers.
    #[must_use]
    pub const fn is_answer(self) -> bool {
        matches!(self, Self::ReadResponse)
    }

    const fn of(bits: u8) -> Option<Self> {
        Some(match bits {
            0 => Self::Send,
            1 => Self::SendImmediate,
            2 => Self::SendInvalidate,
            3 => Self::Write,
            4 => Self::WriteImmediate,
            5 => Self::ReadResponse,
            _ => return None,
        })
    }
}

/// A block of packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BlockHeader {
    /// Number of its first packet, 24 bits.
    pub first_psn: u32,
    /// Its packets, 1 to 256.
    pub packets: u16,
    /// Whether its message begins with it.
    pub has_first: bool,
    /// Whether its message ends with it.
    pub has_last: bool,
    /// The kind of message. A block without its message's end may be of a message whose end has an
    /// immediate, which is not known before.
    pub class: MessageClass,
    /// Bytes of the last packet's payload, if the block has it.
    pub last_bytes: u16,
    /// How often it was sent before, modulo 256.
    pub round: u8,
    /// Block and repairs as used here: fewer repairs than usual for a short block, if so agreed.
    pub strength: Strength,
}

/// A repair packet's header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RepairHeader {
    /// A sum of packets, which follows.
    Repair {
        /// The block.
        block: BlockHeader,
        /// Which of its repairs this is (ISN), below `strength.repairs`.
        index: u8,
    },
    /// The sender's blocks from this number on are so protected: those of answers to READs, or those of
    /// requests, which are numbered apart.
    Announce {
        /// 24 bits.
        first_psn: u32,
        /// The kind of message of the packet with this number.
        class: MessageClass,
        /// How strongly.
        strength: Strength,
    },
    /// The receiver would have the peer's blocks so protected; `None` is not at all.
    Request {
        /// How strongly.
        strength: Option<Strength>,
    },
}

impl RepairHeader {
    /// Writes the header.
    pub fn emit(&self, destination: Qpn, out: &mut [u8; REPAIR_HEADER_BYTES]) {
        let word = |out: &mut [u8; REPAIR_HEADER_BYTES], at: usize, word: u32| {
            out[4 * at..][..4].copy_from_slice(&word.to_be_bytes());
        };
        out.fill(0);
        word(out, 0, u32::from(REPAIR_OPCODE) << 24 | destination.bits());
        let strength =
            |out: &mut [u8; REPAIR_HEADER_BYTES], kind: u8, strength: Strength, flags| {
                let Strength { block_packets, repairs, code } = strength;
                let mds = if code == CodeKind::Mds { IS_MDS } else { 0 };
                out[4..8].copy_from_slice(&[
                    kind,
                    (block_packets.wrapping_sub(1)) as u8,
                    (repairs.wrapping_sub(1)) as u8,
                    flags | mds,
                ]);
            };
        match *self {
            Self::Repair { block, index } => {
                let first = if block.has_first { HAS_FIRST } else { 0 };
                let last = if block.has_last { HAS_LAST } else { 0 };
                strength(out, TYPE_REPAIR, block.strength, first | last | block.class as u8);
                word(out, 2, (block.first_psn & PSN_MASK) << 8 | u32::from(index));
                let packets = u32::from(block.packets.wrapping_sub(1) as u8);
                let last_bytes = u32::from(block.last_bytes);
                word(out, 3, packets << 24 | last_bytes << 8 | u32::from(block.round));
            }
            Self::Announce { first_psn, class, strength: of } => {
                strength(out, TYPE_ANNOUNCE, of, class as u8);
                word(out, 2, (first_psn & PSN_MASK) << 8);
            }
            // No protection is asked for by a block of 1 with an index that no repair has.
            Self::Request { strength: Some(of) } => strength(out, TYPE_REQUEST, of, 0),
            Self::Request { strength: None } => {
                out[4] = TYPE_REQUEST;
                out[11] = u8::MAX;
            }
        }
    }

    /// Reads a repair packet from its first byte to the trailer of `trailer_bytes`: whom it is for, its
    /// header, and the sum. The trailer is not checked.
    ///
    /// # Errors
    /// When it is too short, not whole words, or says what cannot be.
    pub fn parse(packet: &[u8], trailer_bytes: usize) -> Result<(Qpn, Self, &[u8]), PacketError> {
        let found = packet.len();
        let Some((header, sum)) =
            packet.split_first_chunk::<REPAIR_HEADER_BYTES>().and_then(|(header, rest)| {
                Some((header, rest.get(..rest.len().checked_sub(trailer_bytes)?)?))
            })
        else {
            return Err(PacketError::TooShort {
                needed: REPAIR_HEADER_BYTES + trailer_bytes,
                found,
            });
        };
        if header[0] != REPAIR_OPCODE {
            return Err(PacketError::Opcode { found: header[0] });
        }
        if !found.is_multiple_of(4) {
            return Err(PacketError::Unaligned { found });
        }
        let word =
            |at: usize| u32::from_be_bytes(header[4 * at..][..4].try_into().expect("four bytes"));
        let destination = Qpn::from_bits(word(0));
        let [kind, block_packets, repairs, flags] = word(1).to_be_bytes();
        let strength = Strength {
            block_packets: u16::from(block_packets) + 1,
            repairs: u16::from(repairs) + 1,
            code: if flags & IS_MDS != 0 { CodeKind::Mds } else { CodeKind::Xor },
        };
        let (first_psn, index) = (word(2) >> 8, word(2) as u8);
        let wrong = PacketError::Repair { kind, index, repairs: strength.repairs };
        let Some(class) = MessageClass::of(flags & CLASS_MASK) else { return Err(wrong) };
        let header = match kind {
            TYPE_REPAIR => {
                let [packets, high, low, round] = word(3).to_be_bytes();
                let packets = u16::from(packets) + 1;
                if u16::from(index) >= strength.repairs || packets > strength.block_packets {
                    return Err(wrong);
                }
                let block = BlockHeader {
                    first_psn,
                    packets,
                    has_first: flags & HAS_FIRST != 0,
                    has_last: flags & HAS_LAST != 0,
                    class,
                    last_bytes: u16::from_be_bytes([high, low]),
                    round,
                    strength,
                };
                Self::Repair { block, index }
            }
            TYPE_ANNOUNCE => Self::Announce { first_psn, class, strength },
            TYPE_REQUEST if index == u8::MAX => Self::Request { strength: None },
            TYPE_REQUEST => Self::Request { strength: Some(strength) },
            _ => return Err(wrong),
        };
        Ok((destination, header, sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn strength() -> impl Strategy<Value = Strength> {
        (1u16..=256, 1u16..=256, any::<bool>()).prop_map(|(block_packets, repairs, is_mds)| {
            Strength {
                block_packets,
                repairs,
                code: if is_mds { CodeKind::Mds } else { CodeKind::Xor },
            }
        })
    }

    fn header() -> impl Strategy<Value = RepairHeader> {
        let repair = (strength(), any::<(bool, bool, u16, u8, u16, u8)>(), 0u8..6, 0u32..1 << 24)
            .prop_map(
                |(
                    strength,
                    (has_first, has_last, last_bytes, round, at, index),
                    class,
                    first_psn,
                )| {
                    RepairHeader::Repair {
                        block: BlockHeader {
                            first_psn,
                            packets: at % strength.block_packets + 1,
                            has_first,
                            has_last,
                            class: MessageClass::of(class).unwrap(),
                            last_bytes,
                            round,
                            strength,
                        },
                        index: (u16::from(index) % strength.repairs) as u8,
                    }
                },
            );
        let announce =
            (strength(), 0u32..1 << 24, 0u8..6).prop_map(|(strength, first_psn, class)| {
                let class = MessageClass::of(class).unwrap();
                RepairHeader::Announce { first_psn, class, strength }
            });
        let request = proptest::option::of(strength())
            .prop_map(|strength| RepairHeader::Request { strength });
        prop_oneof![repair, announce, request]
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            header in header(),
            destination in 0u32..1 << 24,
            words in 0usize..4,
        ) {
            let mut packet = [0; REPAIR_HEADER_BYTES];
            header.emit(Qpn::from_bits(destination), &mut packet);
            let mut packet = packet.to_vec();
            packet.resize(REPAIR_HEADER_BYTES + 4 * words + 4, 9);
            let read = RepairHeader::parse(&packet, 4);
            prop_assert_eq!(read, Ok((Qpn::from_bits(destination), header, &[9; 16][..4 * words])));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Some(first) = bytes.first_mut() {
                *first = REPAIR_OPCODE;
            }
            let _ = RepairHeader::parse(&bytes, 4);
        }
    }

    #[test]
    fn the_layout_is_that_of_the_table() {
        let block = BlockHeader {
            first_psn: 0x0a_0b0c,
            packets: 5,
            has_first: true,
            has_last: true,
            class: MessageClass::WriteImmediate,
            last_bytes: 0x0102,
            round: 7,
            strength: Strength { block_packets: 8, repairs: 2, code: CodeKind::Xor },
        };
        let mut out = [0xa5; REPAIR_HEADER_BYTES];
        RepairHeader::Repair { block, index: 1 }.emit(Qpn::from_bits(0x11_2233), &mut out);
        let expected = [0x1f, 0x11, 0x22, 0x33, 1, 7, 1, 0xc4, 0x0a, 0x0b, 0x0c, 1, 4, 1, 2, 7];
        assert_eq!(out, expected);
    }

    #[test]
    fn a_strength_is_read_from_its_text() {
        for text in ["32:1", "mds:128:16", "256:256"] {
            assert_eq!(text.parse::<Strength>().unwrap().to_string(), text);
        }
        assert_eq!("xor:8:2".parse(), "8:2".parse::<Strength>());
        for text in ["", "32", "0:1", "1:0", "257:1", "rs:3:1", "mds:3", "3:1:2", "-1:2"] {
            let error = text.parse::<Strength>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is no strength: R:C")), "{error}");
        }
    }
}
