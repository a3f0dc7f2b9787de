//! A data packet: one unreliable RDMA Write with immediate, whole in one packet.
//!
//! ```text
//! BTH 12 | RETH 16 | ImmDt 4 | payload | pad 0-3 | trailer 4        opcode 0x2B
//! ```
//!
//! SDR-RDMA 3.2.1: a Write of several packets would be dropped whole at the first gap in the
//! sequence numbers, so every packet is a Write of its own. The RETH says where the payload goes
//! (in the zero-based root key of the queue pair: message slot `i` backs `[i*M, (i+1)*M)`), the
//! immediate says which packet of which message it was. The sequence number counts the packets of
//! a channel; nothing is dropped for being out of order.

use crate::{
    PacketError, Qpn, TRAILER_BYTES,
    bth::{self, PAD_MAX},
};

/// Bytes of BTH, RETH and ImmDt.
pub const DATA_HEADER_BYTES: usize = 32;
/// Bytes of a data packet that are neither payload nor pad.
pub const DATA_OVERHEAD_BYTES: usize = DATA_HEADER_BYTES + TRAILER_BYTES;

mod field {
    use std::ops::Range;

    // RETH: InfiniBand Architecture Specification, volume 1, section 9.3.3.
    pub(super) const ADDRESS: Range<usize> = 12..20;
    pub(super) const RKEY: Range<usize> = 20..24;
    pub(super) const LENGTH: Range<usize> = 24..28;
    // ImmDt: section 9.3.6.
    pub(super) const IMMEDIATE: Range<usize> = 28..32;
}

/// How many zero bytes follow a payload so that the packet is a whole number of words.
#[inline]
#[must_use]
pub const fn pad_bytes(length: usize) -> usize {
    length.wrapping_neg() & PAD_MAX
}

/// The headers of a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DataHeader {
    /// Where the packet goes: queue pair, channel and generation.
    pub dest: Qpn,
    /// Packet sequence number, 24 bits, counted per channel.
    pub psn: u32,
    /// BTH solicited event: set on the last packet of a message, so that a receiver that sleeps
    /// may choose to be woken by that one only.
    pub ends_message: bool,
    /// BTH acknowledge request: the message carries a user immediate, so its receiver needs all
    /// fragments of it. Unreliable services ignore the bit; the immediate itself is full.
    pub carries_immediate: bool,
    /// Where in the key's address space the payload goes.
    pub address: u64,
    /// The remote key.
    pub rkey: u32,
    /// Bytes of payload (RETH DMALen).
    pub length: u32,
    /// The immediate; [`ImmediateSplit`](crate::ImmediateSplit) says what it means.
    pub immediate: u32,
}

impl DataHeader {
    /// Writes the headers; the pad count follows from [`length`](Self::length).
    #[inline]
    pub fn emit(&self, out: &mut [u8; DATA_HEADER_BYTES]) {
        let bth = out.first_chunk_mut().expect("a BTH opens the headers");
        bth::emit(bth, bth::OPCODE_DATA, self.ends_message, self.dest, self.psn);
        bth::set_pad(bth, pad_bytes(self.length as usize));
        if self.carries_immediate {
            bth::set_ack_request(bth);
        }
        out[field::ADDRESS].copy_from_slice(&self.address.to_be_bytes());
        out[field::RKEY].copy_from_slice(&self.rkey.to_be_bytes());
        out[field::LENGTH].copy_from_slice(&self.length.to_be_bytes());
        out[field::IMMEDIATE].copy_from_slice(&self.immediate.to_be_bytes());
    }

    /// Reads a packet whose opcode, version and partition key were found to be right. Always
    /// inlined for the sake of [`parse_data`](crate::parse_data).
    #[inline(always)]
    pub(crate) fn parse(packet: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        let (header, payload) = bth::split::<DATA_HEADER_BYTES>(packet)?;
        let length = bth::word(header, field::LENGTH);
        if payload.len() != length as usize {
            return Err(PacketError::Length { announced: length, found: payload.len() });
        }
        let bth = header.first_chunk().expect("a BTH opens the headers");
        let address = header[field::ADDRESS].try_into().expect("an address has eight bytes");
        let header = Self {
            dest: bth::destination(bth),
            psn: bth::sequence(bth),
            ends_message: bth::solicited(bth),
            carries_immediate: bth::ack_request(bth),
            address: u64::from_be_bytes(address),
            rkey: bth::word(header, field::RKEY),
            length,
            immediate: bth::word(header, field::IMMEDIATE),
        };
        Ok((header, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: DataHeader = DataHeader {
        dest: Qpn::from_bits(0x12_3456),
        psn: 0x78_9abc,
        ends_message: true,
        carries_immediate: false,
        address: 0x0102_0304_0506_0708,
        rkey: 0x1122_3344,
        length: 5,
        immediate: 0x5566_7788,
    };

    const BYTES: [u8; DATA_HEADER_BYTES] = [
        0x2b, 0xb0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0x78, 0x9a,
        0xbc, // BTH, 3 pad bytes
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x11, 0x22, 0x33, 0x44, // RETH
        0x00, 0x00, 0x00, 0x05, 0x55, 0x66, 0x77, 0x88, // ImmDt
    ];

    fn packet(length: usize) -> Vec<u8> {
        let mut packet = BYTES.to_vec();
        packet.resize(DATA_OVERHEAD_BYTES + length, 0);
        packet
    }

    #[test]
    fn emit_writes_every_byte() {
        let mut out = [0xa5; DATA_HEADER_BYTES];
        HEADER.emit(&mut out);
        assert_eq!(out, BYTES);
    }

    #[test]
    fn parse_separates_payload_from_pad() {
        let mut packet = packet(8);
        packet[DATA_HEADER_BYTES..][..8].copy_from_slice(&[1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(DataHeader::parse(&packet), Ok((HEADER, &[1, 2, 3, 4, 5][..])));
    }

    #[test]
    fn bits_that_nics_and_switches_may_set_are_ignored() {
        let mut packet = packet(8);
        packet[1] |= 0x40; // MigReq
        packet[4] = 0xff; // FECN, BECN, reserved
        packet[8] = 0x7f; // reserved
        assert_eq!(DataHeader::parse(&packet).map(|(header, _)| header), Ok(HEADER));
    }

    #[test]
    fn the_acknowledge_request_says_that_an_immediate_comes() {
        let header = DataHeader { carries_immediate: true, ..HEADER };
        let mut packet = packet(8);
        header.emit(packet.first_chunk_mut().unwrap());
        assert_eq!(packet[8], 0x80);
        assert_eq!(DataHeader::parse(&packet).map(|(header, _)| header), Ok(header));
    }

    #[test]
    fn lengths_that_disagree_are_rejected_with_both() {
        assert_eq!(
            DataHeader::parse(&packet(0)[..35]),
            Err(PacketError::TooShort { needed: 36, found: 35 })
        );
        assert_eq!(DataHeader::parse(&packet(5)), Err(PacketError::Unaligned { found: 41 }));
        assert_eq!(DataHeader::parse(&packet(0)), Err(PacketError::Pad { announced: 3, room: 0 }));
        assert_eq!(
            DataHeader::parse(&packet(12)),
            Err(PacketError::Length { announced: 5, found: 9 })
        );
    }

    #[test]
    fn pads_complete_words() {
        assert_eq!([0, 1, 2, 3, 4, 5, 4095, 4096].map(pad_bytes), [0, 3, 2, 1, 0, 3, 1, 0]);
    }
}
