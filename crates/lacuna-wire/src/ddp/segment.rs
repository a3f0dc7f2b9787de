//! A segment's headers: DDP's control octet, RDMAP's, and what is behind them.
//!
//! ```text
//! tagged    | T=1 L 0000 DV=01 | RV=01 00 opcode | STag 4 | offset 8 | number 4 | length 4 | place 4 | flags 1 | group 3 |
//! untagged  | T=0 L 0000 DV=01 | RV=01 00 opcode | length 4 | queue 4 | number 4 | place 4 |
//! ```
//!
//! RFC 5041, sections 4.1 to 4.3; RFC 5040, section 4.1. Of the tagged header, what follows the offset is the
//! record of a Write-Record, ours. Of the untagged one, the length stands where RFC 5040 has the STag of a Send
//! with Invalidate. Reserved bits are sent as zero and ignored.
//!
//! A message to several receivers names its *group*, so that each counts the messages of a source to a group by
//! themselves: in a record 3 bytes, 0 if there is none; of a Send the queue, which is 2^31 and the group. No
//! group has the number 0.
//!
//! A message's segments may have any lengths, so the path's MTU may change within one. The place of a tagged
//! segment in its message and its offset in memory are both there: a receiver need not know where the
//! message began.

use super::{DdpError, Operation, Queue, TRAILER_BYTES};

/// Bytes of a tagged segment's headers.
pub const TAGGED_HEADER_BYTES: usize = 30;
/// Bytes of an untagged segment's headers.
pub const UNTAGGED_HEADER_BYTES: usize = 18;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const DDP_VERSION: u8 = 1;
const DDP_VERSION_MASK: u8 = 0x03;
const RDMAP_VERSION: u8 = 1;
const RDMAP_VERSION_SHIFT: u8 = 6;
const OPCODE_MASK: u8 = 0x0f;
/// Set in the queue of a Send to a group.
const GROUP_QUEUE: u32 = 1 << 31;
/// Groups have 24 bits.
const GROUP_MAX: u32 = (1 << 24) - 1;

/// The number of a group: the lower 24 bits of the CRC32C of its address, as 16 bytes (IPv4 mapped), and its port, as
/// 2; 1 instead of 0. Groups whose numbers are alike are one to a receiver that is in both: messages are then
/// taken for missed.
#[must_use]
pub fn group_number(ip: core::net::IpAddr, port: u16) -> u32 {
    let ip = match ip {
        core::net::IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        core::net::IpAddr::V6(ip) => ip.octets(),
    };
    let sum = u32::from_le_bytes(crate::crc32c(&[&ip, &port.to_be_bytes()]));
    (sum & GROUP_MAX).max(1)
}

/// What a Write-Record is besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct RecordFlags {
    /// It wakes those who wait for solicited completions alone. Bit 0x01.
    pub is_solicited: bool,
    /// It answers the READ of this number. Bit 0x02.
    pub is_answer: bool,
    /// The STag is the name of a region that each receiver has at a place of its own. Bit 0x04.
    pub is_named: bool,
    /// It is sent again until it has come, and numbered with all such messages. Bit 0x08.
    pub is_reliable: bool,
}

impl RecordFlags {
    const fn bits(self) -> u8 {
        self.is_solicited as u8
            | (self.is_answer as u8) << 1
            | (self.is_named as u8) << 2
            | (self.is_reliable as u8) << 3
    }

    const fn from_bits(bits: u8) -> Self {
        Self {
            is_solicited: bits & 1 != 0,
            is_answer: bits & 2 != 0,
            is_named: bits & 4 != 0,
            is_reliable: bits & 8 != 0,
        }
    }
}

/// Headers of a tagged segment: part of a Write-Record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tagged {
    /// Key of the receiver's memory.
    pub stag: u32,
    /// Where the segment's first byte goes in that memory.
    pub offset: u64,
    /// Number of the message; of an answer that of its question.
    pub number: u32,
    /// Bytes of the message.
    pub length: u32,
    /// Where the segment's first byte is in the message.
    pub place: u32,
    /// What else it is.
    pub flags: RecordFlags,
    /// The group that it is for ([`group_number`]); 0 if it is for one receiver.
    pub group: u32,
}

/// Headers of an untagged segment: part of a message for a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Untagged {
    /// What it is part of; never a Write-Record.
    pub operation: Operation,
    /// It is sent again until it has come, and numbered with all such messages. Never of control.
    pub is_reliable: bool,
    /// The group that it is for ([`group_number`]), of Sends; 0 if it is for one receiver.
    pub group: u32,
    /// Number of the message in its queue.
    pub number: u32,
    /// Bytes of the message.
    pub length: u32,
    /// Where the segment's first byte is in the message.
    pub place: u32,
}

/// Headers of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Segment {
    /// For memory that has a key.
    Tagged(Tagged),
    /// For a queue.
    Untagged(Untagged),
}

impl Segment {
    /// Bytes of the headers.
    #[inline]
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        match self {
            Self::Tagged(_) => TAGGED_HEADER_BYTES,
            Self::Untagged(_) => UNTAGGED_HEADER_BYTES,
        }
    }

    /// Bytes of a packet with a payload of so many.
    #[inline]
    #[must_use]
    pub const fn packet_bytes(&self, payload: usize) -> usize {
        self.header_bytes() + payload + TRAILER_BYTES
    }

    const fn place_and_length(&self) -> (u32, u32) {
        match self {
            Self::Tagged(Tagged { place, length, .. })
            | Self::Untagged(Untagged { place, length, .. }) => (*place, *length),
        }
    }

    /// Writes the headers of a segment whose payload has so many bytes; how many were written.
    ///
    /// # Panics
    /// If `out` is shorter, or an untagged segment is part of a Write-Record.
    #[inline]
    pub fn emit(&self, payload: usize, out: &mut [u8]) -> usize {
        let (place, length) = self.place_and_length();
        let last = if place as u64 + payload as u64 == length as u64 { LAST } else { 0 };
        let rdmap = |operation: Operation| RDMAP_VERSION << RDMAP_VERSION_SHIFT | operation as u8;
        match self {
            Self::Tagged(tagged) => {
                let out = &mut out[..TAGGED_HEADER_BYTES];
                out[0] = TAGGED | last | DDP_VERSION;
                out[1] = rdmap(Operation::WriteRecord);
                out[2..6].copy_from_slice(&tagged.stag.to_be_bytes());
                out[6..14].copy_from_slice(&tagged.offset.to_be_bytes());
                out[14..18].copy_from_slice(&tagged.number.to_be_bytes());
                out[18..22].copy_from_slice(&tagged.length.to_be_bytes());
                out[22..26].copy_from_slice(&tagged.place.to_be_bytes());
                let [_, group @ ..] = tagged.group.to_be_bytes();
                out[26] = tagged.flags.bits();
                out[27..].copy_from_slice(&group);
                TAGGED_HEADER_BYTES
            }
            Self::Untagged(untagged) => {
                let Untagged { operation, is_reliable, group, .. } = *untagged;
                let queue = operation.queue(is_reliable).expect("an untagged operation");
                let queue = if group == 0 { queue.number() } else { GROUP_QUEUE | group };
                let out = &mut out[..UNTAGGED_HEADER_BYTES];
                out[0] = last | DDP_VERSION;
                out[1] = rdmap(untagged.operation);
                out[2..6].copy_from_slice(&untagged.length.to_be_bytes());
                out[6..10].copy_from_slice(&queue.to_be_bytes());
                out[10..14].copy_from_slice(&untagged.number.to_be_bytes());
                out[14..].copy_from_slice(&untagged.place.to_be_bytes());
                UNTAGGED_HEADER_BYTES
            }
        }
    }

    /// Writes a whole packet; how many bytes it has.
    ///
    /// # Panics
    /// If `out` is shorter.
    pub fn emit_packet(&self, payload: &[u8], out: &mut [u8]) -> usize {
        let header = self.emit(payload.len(), out);
        let end = header + payload.len();
        let (before, room) = out.split_at_mut(header);
        let mut sum = crate::Crc32c::new();
        sum.copy(before, payload, &mut room[..payload.len()]);
        out[end..end + TRAILER_BYTES].copy_from_slice(&sum.value().to_le_bytes());
        end + TRAILER_BYTES
    }
}

/// Reads a packet: headers and payload. The trailer is not checked ([`check`]).
///
/// # Errors
/// See [`DdpError`].
#[inline]
pub fn parse(packet: &[u8]) -> Result<(Segment, &[u8]), DdpError> {
    let found = packet.len();
    let short = |needed: usize| DdpError::TooShort { needed: needed + TRAILER_BYTES, found };
    let &[ddp, rdmap, ..] = packet else { return Err(short(UNTAGGED_HEADER_BYTES)) };
    let versions = (ddp & DDP_VERSION_MASK, rdmap >> RDMAP_VERSION_SHIFT);
    if versions != (DDP_VERSION, RDMAP_VERSION) {
        return Err(DdpError::Version { ddp: versions.0, rdmap: versions.1 });
    }
    let opcode = rdmap & OPCODE_MASK;
    let Some(operation) = Operation::of(opcode) else {
        return Err(DdpError::Opcode { found: opcode });
    };
    let is_tagged = ddp & TAGGED != 0;
    let header_bytes = if is_tagged { TAGGED_HEADER_BYTES } else { UNTAGGED_HEADER_BYTES };
    let Some(end) = found.checked_sub(TRAILER_BYTES).filter(|end| *end >= header_bytes) else {
        return Err(short(header_bytes));
    };
    let (header, payload) = packet[..end].split_at(header_bytes);
    let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().expect("four"));
    let is_reliable = !is_tagged && word(6) == Queue::Reliable.number();
    let segment = match (is_tagged, operation.queue(is_reliable)) {
        (true, None) => Segment::Tagged(Tagged {
            stag: word(2),
            offset: u64::from(word(6)) << 32 | u64::from(word(10)),
            number: word(14),
            length: word(18),
            place: word(22),
            flags: RecordFlags::from_bits(header[26]),
            group: word(26) & GROUP_MAX,
        }),
        (false, Some(Queue::Sends)) if (1..=GROUP_MAX).contains(&(word(6) ^ GROUP_QUEUE)) => {
            Segment::Untagged(Untagged {
                operation,
                is_reliable: false,
                group: word(6) & GROUP_MAX,
                number: word(10),
                length: word(2),
                place: word(14),
            })
        }
        (false, Some(queue)) if word(6) == queue.number() => Segment::Untagged(Untagged {
            operation,
            is_reliable,
            group: 0,
            number: word(10),
            length: word(2),
            place: word(14),
        }),
        (true, Some(_)) => return Err(DdpError::Model { opcode, queue: None }),
        (false, _) => return Err(DdpError::Model { opcode, queue: Some(word(6)) }),
    };
    let (place, length) = segment.place_and_length();
    let segment_end = u64::from(place) + payload.len() as u64;
    let is_last = ddp & LAST != 0;
    let is_empty = payload.is_empty() && length > 0;
    if segment_end > length.into() || is_last != (segment_end == length.into()) || is_empty {
        return Err(DdpError::Place { place, payload: payload.len(), length, is_last });
    }
    Ok((segment, payload))
}

/// Checks a packet's trailer.
///
/// # Errors
/// When it does not match.
#[inline]
pub fn check(packet: &[u8]) -> Result<(), DdpError> {
    let Some((covered, trailer)) = packet.split_last_chunk::<TRAILER_BYTES>() else {
        return Err(DdpError::TooShort { needed: TRAILER_BYTES, found: packet.len() });
    };
    let [expected, found] = [crate::crc32c(&[covered]), *trailer].map(u32::from_le_bytes);
    if expected == found { Ok(()) } else { Err(DdpError::Trailer { expected, found }) }
}

impl Queue {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn segments() -> impl Strategy<Value = (Segment, usize)> {
        let numbers = any::<(u32, u64, u32, u16, u16)>();
        (numbers, 0usize..5, 0u8..16, 1usize..100).prop_map(
            |((stag, offset, number, place, behind), kind, flags, payload)| {
                let place = u32::from(place);
                let length = place + payload as u32 + u32::from(behind % 3) * 100;
                let operation = [
                    Operation::ReadRequest,
                    Operation::Send,
                    Operation::SendSolicited,
                    Operation::Control,
                ];
                let segment = match operation.get(kind) {
                    Some(&operation) => {
                        let is_reliable = flags & 1 == 1 && operation != Operation::Control;
                        let is_send = operation.queue(false) == Some(Queue::Sends);
                        let group = if is_send && !is_reliable { stag & GROUP_MAX } else { 0 };
                        Segment::Untagged(Untagged {
                            operation,
                            is_reliable,
                            group,
                            number,
                            length,
                            place,
                        })
                    }
                    None => {
                        let flags = RecordFlags::from_bits(flags);
                        let group = number >> 8;
                        let tagged = Tagged { stag, offset, number, length, place, flags, group };
                        Segment::Tagged(tagged)
                    }
                };
                (segment, payload)
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_written_is_read((segment, bytes) in segments(), fill: u8) {
            let payload = vec![fill; bytes];
            let mut out = vec![0xa5; segment.packet_bytes(bytes)];
            prop_assert_eq!(segment.emit_packet(&payload, &mut out), out.len());
            prop_assert_eq!(parse(&out), Ok((segment, &payload[..])));
            prop_assert_eq!(check(&out), Ok(()));
        }

        #[test]
        fn damage_is_found((segment, bytes) in segments(), at: prop::sample::Index, bit in 0u8..8) {
            let mut out = vec![0; segment.packet_bytes(bytes)];
            segment.emit_packet(&vec![1; bytes], &mut out);
            let at = at.index(out.len());
            out[at] ^= 1 << bit;
            prop_assert!(check(&out).is_err());
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = (parse(&bytes), check(&bytes));
            if let [ddp, rdmap, ..] = &mut bytes[..] {
                *ddp = *ddp & !DDP_VERSION_MASK | DDP_VERSION;
                *rdmap = *rdmap & OPCODE_MASK | RDMAP_VERSION << RDMAP_VERSION_SHIFT;
            }
            if let Ok((segment, payload)) = parse(&bytes) {
                prop_assert_eq!(segment.packet_bytes(payload.len()), bytes.len());
            }
        }
    }

    #[test]
    fn the_layout_is_that_of_the_table() {
        let tagged = Segment::Tagged(Tagged {
            stag: 0x0102_0304,
            offset: 0x1112_1314_1516_1718,
            number: 0x2122_2324,
            length: 0x0000_0102,
            place: 0x0000_0100,
            flags: RecordFlags { is_solicited: true, is_named: true, ..RecordFlags::default() },
            group: 0x31_3233,
        });
        let mut out = [0xa5; 64];
        assert_eq!(tagged.emit(2, &mut out), TAGGED_HEADER_BYTES);
        let expected = [
            0xc1, 0x4c, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22,
            0x23, 0x24, 0, 0, 1, 2, 0, 0, 1, 0, 5, 0x31, 0x32, 0x33,
        ];
        assert_eq!(out[..TAGGED_HEADER_BYTES], expected);
        let queues = [(false, 0, [0; 4]), (true, 0, [0, 0, 0, 4]), (false, 7, [0x80, 0, 0, 7])];
        for (is_reliable, group, queue) in queues {
            let operation = Operation::SendSolicited;
            let (number, length, place) = (7, 9, 4);
            let untagged = Untagged { operation, is_reliable, group, number, length, place };
            assert_eq!(Segment::Untagged(untagged).emit(4, &mut out), UNTAGGED_HEADER_BYTES);
            let [q0, q1, q2, q3] = queue;
            let expected = [0x01, 0x45, 0, 0, 0, 9, q0, q1, q2, q3, 0, 0, 0, 7, 0, 0, 0, 4];
            assert_eq!(out[..UNTAGGED_HEADER_BYTES], expected);
        }
    }

    #[test]
    fn what_no_segment_is_is_refused() {
        let operation = Operation::Send;
        let (number, length, place) = (1, 8, 4);
        let untagged = Untagged { operation, is_reliable: false, group: 0, number, length, place };
        let segment = Segment::Untagged(untagged);
        let mut good = [0; 26];
        segment.emit_packet(&[1; 4], &mut good);
        let changed = |at: usize, byte: u8| {
            let mut packet = good;
            packet[at] = byte;
            parse(&packet).unwrap_err()
        };
        assert_eq!(changed(0, 0x42), DdpError::Version { ddp: 2, rdmap: 1 });
        assert_eq!(changed(1, 0x83), DdpError::Version { ddp: 1, rdmap: 2 });
        assert_eq!(changed(1, 0x47), DdpError::Opcode { found: 7 });
        assert_eq!(changed(9, 1), DdpError::Model { opcode: 3, queue: Some(1) });
        // No group has the number 0.
        assert_eq!(changed(6, 0x80), DdpError::Model { opcode: 3, queue: Some(1 << 31) });
        assert_eq!(changed(1, 0x4c), DdpError::Model { opcode: 0xc, queue: Some(0) });
        assert_eq!(changed(0, 0xc1), DdpError::TooShort { needed: 34, found: 26 });
        let place = |length, is_last| DdpError::Place { place: 4, payload: 4, length, is_last };
        assert_eq!(changed(5, 7), place(7, true));
        assert_eq!(changed(5, 9), place(9, true));
        assert_eq!(changed(0, 0x01), place(8, false));
        let empty = parse(&good[..22]).unwrap_err();
        assert_eq!(empty, DdpError::Place { place: 4, payload: 0, length: 8, is_last: true });
        assert_eq!(parse(&good[..21]), Err(DdpError::TooShort { needed: 22, found: 21 }));
    }
}
