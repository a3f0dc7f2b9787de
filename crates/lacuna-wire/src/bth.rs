//! Base Transport Header: the first twelve bytes of every packet.
//!
//! InfiniBand Architecture Specification, volume 1, section 9.2. Lacuna sets it as a RoCE NIC
//! would: default partition key, transport version 0, no migration. On receipt MigReq, the
//! congestion bits (FECN, BECN) and the reserved bits are ignored: NICs may set MigReq, and
//! switches the congestion bits.

use std::ops::Range;

use crate::{PSN_MASK, PacketError, Qpn};

pub(crate) const BYTES: usize = 12;
/// The only partition of Lacuna: the default one, full member.
pub(crate) const PARTITION_KEY: u16 = 0xffff;
/// The largest pad count of two bits.
pub(crate) const PAD_MAX: usize = 3;

/// Unreliable Connection (0b001 in the top bits), RDMA WRITE Only with Immediate.
pub(crate) const OPCODE_WRITE: u8 = 0x2b;
/// Unreliable Connection, SEND Only with Immediate.
pub(crate) const OPCODE_SEND: u8 = 0x25;
/// Unreliable Datagram (0b011 in the top bits), SEND Only.
pub(crate) const OPCODE_CONTROL: u8 = 0x64;

mod field {
    use std::ops::Range;

    /// Opcode, flags, partition key: one word, so that one comparison accepts a packet.
    pub(super) const FIRST: Range<usize> = 0..4;
    pub(super) const FLAGS: usize = 1;
    /// FECN, BECN and six reserved bits, then the destination QPN.
    pub(super) const DESTINATION: Range<usize> = 4..8;
    /// AckReq and seven reserved bits, then the packet sequence number.
    pub(super) const SEQUENCE: Range<usize> = 8..12;
}

const SOLICITED: u8 = 0x80;
const ACK_REQUEST: u8 = 0x80;
const PAD_SHIFT: u32 = 4;
const VERSION_MASK: u8 = 0x0f;
/// Bits of the first word that must match: all but solicited event, MigReq and pad count.
const FIRST_MASK: u32 = 0xff0f_ffff;

pub(crate) type Bytes = [u8; BYTES];

/// The first word of a valid BTH with this opcode, under [`FIRST_MASK`].
pub(crate) const fn accepted(opcode: u8) -> u32 {
    (opcode as u32) << 24 | PARTITION_KEY as u32
}

/// The masked first word, for comparison with [`accepted`].
#[inline]
pub(crate) fn first(bth: &Bytes) -> u32 {
    word(bth, field::FIRST) & FIRST_MASK
}

#[inline]
pub(crate) fn pad(bth: &Bytes) -> usize {
    usize::from(bth[field::FLAGS] >> PAD_SHIFT) & PAD_MAX
}

#[inline]
pub(crate) fn solicited(bth: &Bytes) -> bool {
    bth[field::FLAGS] & SOLICITED != 0
}

#[inline]
pub(crate) fn ack_request(bth: &Bytes) -> bool {
    bth[field::SEQUENCE.start] & ACK_REQUEST != 0
}

#[inline]
pub(crate) fn destination(bth: &Bytes) -> Qpn {
    Qpn::from_bits(word(bth, field::DESTINATION))
}

#[inline]
pub(crate) fn sequence(bth: &Bytes) -> u32 {
    word(bth, field::SEQUENCE) & PSN_MASK
}

#[inline]
pub(crate) fn emit(out: &mut Bytes, opcode: u8, solicited: bool, destination: Qpn, psn: u32) {
    debug_assert!(psn <= PSN_MASK, "a packet sequence number has 24 bits");
    out[field::FIRST].copy_from_slice(&accepted(opcode).to_be_bytes());
    out[field::FLAGS] |= if solicited { SOLICITED } else { 0 };
    out[field::DESTINATION].copy_from_slice(&destination.bits().to_be_bytes());
    out[field::SEQUENCE].copy_from_slice(&(psn & PSN_MASK).to_be_bytes());
}

/// Sets the acknowledge request.
#[inline]
pub(crate) fn set_ack_request(bth: &mut Bytes) {
    bth[field::SEQUENCE.start] |= ACK_REQUEST;
}

/// Sets the pad count.
#[inline]
pub(crate) fn set_pad(bth: &mut Bytes, pad: usize) {
    debug_assert!(pad <= PAD_MAX);
    bth[field::FLAGS] =
        bth[field::FLAGS] & !((PAD_MAX as u8) << PAD_SHIFT) | (pad as u8) << PAD_SHIFT;
}

/// Splits a packet into its headers, of `HEADER` bytes from the BTH on, and its payload without pad
/// and trailer. Always inlined: for most packets the trailer's length is a constant.
///
/// The pad count comes from the peer and may exceed the packet, so the subtraction is checked
/// (other stacks had underflows here). The contents of the pad bytes are not checked: the trailer
/// covers them.
#[inline(always)]
pub(crate) fn split<const HEADER: usize>(
    packet: &[u8],
    trailer_bytes: usize,
) -> Result<(&[u8; HEADER], &[u8]), PacketError> {
    let needed = HEADER + trailer_bytes;
    let found = packet.len();
    let (Some(padded), Some((header, rest))) =
        (found.checked_sub(needed), packet.split_first_chunk::<HEADER>())
    else {
        return Err(PacketError::TooShort { needed, found });
    };
    if !found.is_multiple_of(4) {
        return Err(PacketError::Unaligned { found });
    }
    let pad = pad(header.first_chunk().expect("a BTH opens every header"));
    let Some(length) = padded.checked_sub(pad) else {
        return Err(PacketError::Pad { announced: pad, room: padded });
    };
    Ok((header, &rest[..length]))
}

/// Why [`accepted`] does not match the first word.
#[cold]
pub(crate) fn reason(bth: &Bytes) -> PacketError {
    let opcode = bth[0];
    if ![OPCODE_WRITE, OPCODE_SEND, OPCODE_CONTROL].contains(&opcode) {
        PacketError::Opcode { found: opcode }
    } else {
        reason_of_known(bth)
    }
}

/// The same for an opcode that its kind of queue pair knows.
#[cold]
pub(crate) fn reason_of_known(bth: &Bytes) -> PacketError {
    let [_, flags, key @ ..] = word(bth, field::FIRST).to_be_bytes();
    if flags & VERSION_MASK != 0 {
        PacketError::TransportVersion { found: flags & VERSION_MASK }
    } else {
        PacketError::PartitionKey { found: u16::from_be_bytes(key) }
    }
}

/// A big-endian word of any header; `at` is one of the constants in `field`.
#[inline]
pub(crate) fn word<const N: usize>(header: &[u8; N], at: Range<usize>) -> u32 {
    u32::from_be_bytes(header[at].try_into().expect("a word has four bytes"))
}
