//! The layout of a packet of the reliable connection: BTH, the headers that its opcode has, payload, pad,
//! trailer.
//!
//! InfiniBand Architecture Specification, volume 1, sections 9.2 (BTH), 9.3 (extended headers). What is
//! found in bytes from anyone: lengths are checked, values are not. A payload may be as long as the
//! datagram; whether it fits the path's MTU and the part of the message is the responder's question.

use super::aeth::Aeth;
use super::opcode::{Headers, Opcode};
use crate::bth::{self, PAD_MAX};
use crate::{PacketError, Qpn, pad_bytes};

/// Most bytes of headers: BTH and those of an atomic operation.
pub const RC_HEADER_BYTES_MAX: usize = bth::BYTES + Headers::Atomic.bytes();

/// Memory of the peer: the RDMA extended transport header (section 9.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reth {
    /// Address of the first byte.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// Bytes of the whole message.
    pub length: u32,
}

/// Eight bytes of the peer's memory that an atomic operation changes (section 9.3.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AtomicHeader {
    /// Address, a multiple of 8.
    pub address: u64,
    /// Remote key.
    pub key: u32,
    /// What is added, or stored if `compare` was there.
    pub swap_or_add: u64,
    /// What must be there (compare and swap).
    pub compare: u64,
}

/// The headers behind the BTH. Which ones a packet has follows from its opcode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fields {
    /// None.
    None,
    /// Memory.
    Reth(Reth),
    /// Memory and an immediate.
    RethImmediate(Reth, u32),
    /// An immediate.
    Immediate(u32),
    /// An answer.
    Aeth(Aeth),
    /// An answer, and what the memory held.
    AtomicAck(Aeth, u64),
    /// Eight bytes of memory.
    Atomic(AtomicHeader),
    /// A key that is not valid any more.
    Invalidate(u32),
}

impl Fields {
    const fn layout(&self) -> Headers {
        match self {
            Self::None => Headers::None,
            Self::Reth(_) => Headers::Reth,
            Self::RethImmediate(..) => Headers::RethImmediate,
            Self::Immediate(_) => Headers::Immediate,
            Self::Aeth(_) => Headers::Aeth,
            Self::AtomicAck(..) => Headers::AtomicAck,
            Self::Atomic(_) => Headers::Atomic,
            Self::Invalidate(_) => Headers::Invalidate,
        }
    }

    /// The memory that the packet names.
    #[inline]
    #[must_use]
    pub const fn reth(&self) -> Option<Reth> {
        match self {
            Self::Reth(reth) | Self::RethImmediate(reth, _) => Some(*reth),
            _ => None,
        }
    }

    /// The immediate.
    #[inline]
    #[must_use]
    pub const fn immediate(&self) -> Option<u32> {
        match self {
            Self::Immediate(immediate) | Self::RethImmediate(_, immediate) => Some(*immediate),
            _ => None,
        }
    }

    /// The answer.
    #[inline]
    #[must_use]
    pub const fn aeth(&self) -> Option<Aeth> {
        match self {
            Self::Aeth(aeth) | Self::AtomicAck(aeth, _) => Some(*aeth),
            _ => None,
        }
    }
}

/// The headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RcHeader {
    /// The opcode.
    pub opcode: Opcode,
    /// Queue pair that the packet is for.
    pub destination: Qpn,
    /// Packet sequence number, 24 bits.
    pub psn: u32,
    /// BTH AckReq: an answer is wanted soon.
    pub asks_ack: bool,
    /// BTH SE: wakes a receiver that waits for such messages alone.
    pub is_solicited: bool,
    /// The headers behind the BTH.
    pub fields: Fields,
}

impl RcHeader {
    /// Bytes of all headers.
    #[inline]
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        bth::BYTES + self.opcode.extended_bytes()
    }

    /// Bytes of a packet with a payload of `length` bytes, from the BTH to the pad.
    #[inline]
    #[must_use]
    pub const fn packet_bytes(&self, length: usize) -> usize {
        self.header_bytes() + length + pad_bytes(length)
    }

    /// Writes the headers of a packet whose payload has `length` bytes.
    ///
    /// # Panics
    /// If `out` is shorter than [`header_bytes`](Self::header_bytes).
    #[inline]
    pub fn emit(&self, length: usize, out: &mut [u8]) {
        debug_assert_eq!(self.fields.layout(), self.opcode.headers(), "{}", self.opcode.name());
        let (base, rest) = out.split_first_chunk_mut().expect("there is room for a BTH");
        bth::emit(base, self.opcode as u8, self.is_solicited, self.destination, self.psn);
        bth::set_pad(base, pad_bytes(length));
        if self.asks_ack {
            bth::set_ack_request(base);
        }
        let mut writer = Writer(rest);
        match self.fields {
            Fields::None => {}
            Fields::Reth(reth) => writer.reth(reth),
            Fields::RethImmediate(reth, immediate) => {
                writer.reth(reth);
                writer.put(immediate.to_be_bytes());
            }
            Fields::Immediate(word) | Fields::Invalidate(word) => writer.put(word.to_be_bytes()),
            Fields::Aeth(aeth) => writer.put(aeth.word().to_be_bytes()),
            Fields::AtomicAck(aeth, before) => {
                writer.put(aeth.word().to_be_bytes());
                writer.put(before.to_be_bytes());
            }
            Fields::Atomic(atomic) => {
                writer.put(atomic.address.to_be_bytes());
                writer.put(atomic.key.to_be_bytes());
                writer.put(atomic.swap_or_add.to_be_bytes());
                writer.put(atomic.compare.to_be_bytes());
            }
        }
    }

    /// Reads a packet from the BTH to the trailer of `trailer_bytes`, and gives its payload without pad.
    /// The trailer is not checked.
    ///
    /// # Errors
    /// When it is too short, is no packet of the reliable connection, or its lengths disagree.
    #[inline]
    pub fn parse(packet: &[u8], trailer_bytes: usize) -> Result<(Self, &[u8]), PacketError> {
        let (header, padded) = Self::read(packet, trailer_bytes)?;
        if !packet.len().is_multiple_of(4) {
            return Err(PacketError::Unaligned { found: packet.len() });
        }
        let room = padded.len();
        let pad = packet.first_chunk().map_or(0, bth::pad);
        let Some(length) = room.checked_sub(pad) else {
            return Err(PacketError::Pad { announced: pad, room });
        };
        Ok((header, &padded[..length]))
    }

    /// Reads the headers of a packet alone; its payload may be elsewhere.
    ///
    /// # Errors
    /// When it is too short or no packet of the reliable connection.
    pub fn parse_headers(packet: &[u8]) -> Result<Self, PacketError> {
        Self::read(packet, 0).map(|(header, _)| header)
    }

    /// The headers, and what is between them and the trailer.
    #[inline]
    fn read(packet: &[u8], trailer_bytes: usize) -> Result<(Self, &[u8]), PacketError> {
        let too_short = |needed| PacketError::TooShort { needed, found: packet.len() };
        let Some((base, rest)) = packet.split_first_chunk::<{ bth::BYTES }>() else {
            return Err(too_short(bth::BYTES + trailer_bytes));
        };
        let Some(opcode) = Opcode::of(base[0]) else {
            return Err(PacketError::Opcode { found: base[0] });
        };
        if bth::first(base) != bth::accepted(base[0]) {
            return Err(bth::reason_of_known(base));
        }
        let extended_bytes = opcode.extended_bytes();
        let Some(padded) = rest.len().checked_sub(extended_bytes + trailer_bytes) else {
            return Err(too_short(bth::BYTES + extended_bytes + trailer_bytes));
        };
        let (extended, rest) = rest.split_at(extended_bytes);
        let header = Self {
            opcode,
            destination: bth::destination(base),
            psn: bth::sequence(base),
            asks_ack: bth::ack_request(base),
            is_solicited: bth::solicited(base),
            fields: fields(opcode.headers(), extended),
        };
        Ok((header, &rest[..padded]))
    }
}

/// Reads headers; `bytes` has just theirs.
#[inline]
fn fields(layout: Headers, bytes: &[u8]) -> Fields {
    let word = |at: usize| u32::from_be_bytes(bytes[at..][..4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_be_bytes(bytes[at..][..8].try_into().expect("eight bytes"));
    let reth = || Reth { address: long(0), key: word(8), length: word(12) };
    match layout {
        Headers::None => Fields::None,
        Headers::Reth => Fields::Reth(reth()),
        Headers::RethImmediate => Fields::RethImmediate(reth(), word(16)),
        Headers::Immediate => Fields::Immediate(word(0)),
        Headers::Aeth => Fields::Aeth(Aeth::of_word(word(0))),
        Headers::AtomicAck => Fields::AtomicAck(Aeth::of_word(word(0)), long(4)),
        Headers::Atomic => Fields::Atomic(AtomicHeader {
            address: long(0),
            key: word(8),
            swap_or_add: long(12),
            compare: long(20),
        }),
        Headers::Invalidate => Fields::Invalidate(word(0)),
    }
}

/// Writes big-endian fields one after another.
struct Writer<'o>(&'o mut [u8]);

impl Writer<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        let (here, rest) = std::mem::take(&mut self.0).split_at_mut(N);
        here.copy_from_slice(&bytes);
        self.0 = rest;
    }

    fn reth(&mut self, reth: Reth) {
        self.put(reth.address.to_be_bytes());
        self.put(reth.key.to_be_bytes());
        self.put(reth.length.to_be_bytes());
    }
}

const _: () = assert!(PAD_MAX == 3, "two bits of the BTH count the pad");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rc::{Nak, Syndrome};
    use proptest::prelude::*;

    fn some_fields(opcode: Opcode, a: u64, b: u32, c: u64) -> Fields {
        let reth = Reth { address: a, key: b, length: c as u32 };
        match opcode.headers() {
            Headers::None => Fields::None,
            Headers::Reth => Fields::Reth(reth),
            Headers::RethImmediate => Fields::RethImmediate(reth, (c >> 32) as u32),
            Headers::Immediate => Fields::Immediate(b),
            Headers::Aeth => Fields::Aeth(Aeth::of_word(b)),
            Headers::AtomicAck => Fields::AtomicAck(Aeth::of_word(b), a),
            Headers::Atomic => {
                Fields::Atomic(AtomicHeader { address: a, key: b, swap_or_add: c, compare: a ^ c })
            }
            Headers::Invalidate => Fields::Invalidate(b),
        }
    }

    fn packet(header: &RcHeader, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0xa5; header.header_bytes()];
        header.emit(payload.len(), &mut packet);
        packet.extend_from_slice(payload);
        packet.resize(header.packet_bytes(payload.len()) + 4, 0);
        packet
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            at in 0..Opcode::all().count(),
            destination in 0u32..1 << 24,
            psn in 0u32..1 << 24,
            asks_ack: bool,
            is_solicited: bool,
            (a, b, c) in any::<(u64, u32, u64)>(),
            payload in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let opcode = Opcode::all().nth(at).unwrap();
            let header = RcHeader {
                opcode,
                destination: Qpn::from_bits(destination),
                psn,
                asks_ack,
                is_solicited,
                fields: some_fields(opcode, a, b, c),
            };
            let packet = packet(&header, &payload);
            prop_assert_eq!(RcHeader::parse(&packet, 4), Ok((header, &payload[..])));
            for cut in 0..packet.len() {
                // Shorter ones are refused, or are a shorter payload; nothing panics.
                let _ = RcHeader::parse(&packet[..cut], 4);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            if let Ok((header, payload)) = RcHeader::parse(&bytes, 4) {
                prop_assert!(header.header_bytes() + payload.len() + 4 <= bytes.len());
            }
        }
    }

    #[test]
    fn a_refusal_is_read() {
        let aeth = Aeth { syndrome: Syndrome::Nak(Nak::RemoteAccess), messages: 7 };
        let header = RcHeader {
            opcode: Opcode::Acknowledge,
            destination: Qpn::from_bits(5),
            psn: 9,
            asks_ack: false,
            is_solicited: false,
            fields: Fields::Aeth(aeth),
        };
        let packet = packet(&header, &[]);
        assert_eq!(packet[..16], [0x11, 0, 0xff, 0xff, 0, 0, 0, 5, 0, 0, 0, 9, 0x62, 0, 0, 7]);
        assert_eq!(RcHeader::parse(&packet, 4).unwrap().0.fields.aeth(), Some(aeth));
    }

    #[test]
    fn wrong_first_words_are_explained() {
        let mut bytes = [0u8; 16];
        let reject = |bytes: &[u8]| RcHeader::parse(bytes, 4).unwrap_err();
        bytes[..4].copy_from_slice(&[0x15, 0, 0xff, 0xff]);
        assert_eq!(reject(&bytes), PacketError::Opcode { found: 0x15 });
        bytes[..4].copy_from_slice(&[0x04, 3, 0xff, 0xff]);
        assert_eq!(reject(&bytes), PacketError::TransportVersion { found: 3 });
        bytes[..4].copy_from_slice(&[0x04, 0, 0x7f, 0xff]);
        assert_eq!(reject(&bytes), PacketError::PartitionKey { found: 0x7fff });
        bytes[..4].copy_from_slice(&[0x04, 0x30, 0xff, 0xff]);
        assert_eq!(reject(&bytes), PacketError::Pad { announced: 3, room: 0 });
        bytes[..4].copy_from_slice(&[0x0a, 0, 0xff, 0xff]);
        assert_eq!(reject(&bytes), PacketError::TooShort { needed: 32, found: 16 });
    }
}
