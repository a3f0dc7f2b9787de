//! Data packets: an unreliable RDMA Write with immediate, or an unreliable Send with immediate if
//! the immediate alone gives the payload's place.
//!
//! ```text
//! Write:  BTH 12 | RETH 16 | ImmDt 4 | payload | pad 0-3 | trailer 4        opcode 0x2B
//! Send:   BTH 12 |           ImmDt 4 | payload | pad 0-3 | trailer 4 ^ key  opcode 0x25
//! ```
//!
//! Every packet is a Write of its own (SDR-RDMA 3.2.1), because a NIC drops a Write of several
//! packets at the first gap in the sequence numbers. The RETH gives the payload's place in the
//! zero-based root key of the queue pair, in which message slot `i` has addresses `[i*M, (i+1)*M)`.
//! The immediate says which packet of which message it is. The sequence number counts the packets
//! of a channel; nothing is dropped for being out of order.
//!
//! Packet `p` of a message usually goes to `p` times the packet size, so a software receiver needs
//! no RETH: without it a packet of 1,500 bytes carries 1.1 % more. The immediate replaces the
//! address, and the datagram's length the RETH's. The remote key, a secret between the ends, is
//! combined with the trailer by exclusive or, and the receiver's checksum recovers it
//! ([`Seal::check`](crate::Seal::check)). A damaged packet gives a wrong key.
//!
//! If the path no longer passes whole packets, a packet is sent in *pieces*: Writes with the
//! packet's immediate, each with a part of the payload. The RETH's length then counts the bytes
//! from this piece to the end of the packet, as the first packet of a long Write counts the whole
//! (InfiniBand volume 1, section 9.4.3). From it a receiver computes the piece's place in the
//! packet.

use crate::bth::{self, PAD_MAX};
use crate::{PacketError, Qpn};

/// Bytes of BTH and ImmDt.
pub const DATA_HEADER_BYTES: usize = 16;
/// Bytes of BTH, RETH and ImmDt.
pub const DATA_HEADER_BYTES_MAX: usize = 32;

mod field {
    use std::ops::Range;

    // RETH: InfiniBand Architecture Specification, volume 1, section 9.3.3.
    pub(super) const ADDRESS: Range<usize> = 12..20;
    pub(super) const RKEY: Range<usize> = 20..24;
    pub(super) const LENGTH: Range<usize> = 24..28;
    // ImmDt: section 9.3.6.
    pub(super) const IMMEDIATE: Range<usize> = 28..32;
    pub(super) const IMMEDIATE_OF_SEND: Range<usize> = 12..16;
}

/// Zero bytes after a payload that make the packet a whole number of 4-byte words.
#[inline]
#[must_use]
pub const fn pad_bytes(length: usize) -> usize {
    length.wrapping_neg() & PAD_MAX
}

/// The headers of a data packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct DataHeader {
    /// Queue pair, channel and generation.
    pub dest: Qpn,
    /// Packet sequence number, 24 bits, counted per channel.
    pub psn: u32,
    /// BTH solicited event: set on the last packet of a message, so that a sleeping receiver may be
    /// woken by this packet only.
    pub ends_message: bool,
    /// BTH acknowledge request: the message carries a user immediate, so the receiver needs all its
    /// fragments. Unreliable services ignore the bit, and the immediate has no bit left.
    pub carries_immediate: bool,
    /// Place of the payload in the key's address space; `None` is the place of the packet that the
    /// immediate names.
    pub address: Option<u64>,
    /// The remote key. In a packet without an address, [`Seal::check`](crate::Seal::check) fills it
    /// in.
    pub rkey: u32,
    /// Bytes of payload.
    pub length: u32,
    /// Bytes of the packet after this payload, which come in other pieces. 0 in a whole packet, and
    /// in any packet without an address.
    pub behind: u32,
    /// The immediate; [`ImmediateSplit`](crate::ImmediateSplit) says what it means.
    pub immediate: u32,
}

impl DataHeader {
    /// Bytes of the headers.
    #[inline]
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        if self.address.is_some() { DATA_HEADER_BYTES_MAX } else { DATA_HEADER_BYTES }
    }

    /// Writes the headers; the pad count follows from [`length`](Self::length).
    ///
    /// # Panics
    /// If `out` is shorter than [`header_bytes`](Self::header_bytes).
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let at = match self.address {
            Some(address) => {
                let out: &mut [u8; DATA_HEADER_BYTES_MAX] = first(out);
                self.emit_bth(bth::OPCODE_WRITE, first(out));
                out[field::ADDRESS].copy_from_slice(&address.to_be_bytes());
                out[field::RKEY].copy_from_slice(&self.rkey.to_be_bytes());
                let left = self.length + self.behind;
                out[field::LENGTH].copy_from_slice(&left.to_be_bytes());
                field::IMMEDIATE
            }
            None => {
                self.emit_bth(bth::OPCODE_SEND, first(out));
                field::IMMEDIATE_OF_SEND
            }
        };
        out[at].copy_from_slice(&self.immediate.to_be_bytes());
    }

    #[inline]
    fn emit_bth(&self, opcode: u8, out: &mut bth::Bytes) {
        bth::emit(out, opcode, self.ends_message, self.dest, self.psn);
        bth::set_pad(out, pad_bytes(self.length as usize));
        if self.carries_immediate {
            bth::set_ack_request(out);
        }
    }

    /// Reads a Write whose first word was accepted. Always inlined, like `parse_send`, for
    /// [`parse_data`](crate::parse_data).
    #[inline(always)]
    pub(crate) fn parse_write(
        packet: &[u8],
        trailer_bytes: usize,
    ) -> Result<(Self, &[u8]), PacketError> {
        let (header, payload) = bth::split::<DATA_HEADER_BYTES_MAX>(packet, trailer_bytes)?;
        let left = bth::word(header, field::LENGTH);
        let Some(behind) = left.checked_sub(payload.len() as u32) else {
            return Err(PacketError::Length { announced: left, found: payload.len() });
        };
        let address = header[field::ADDRESS].try_into().expect("an address has eight bytes");
        let read = Self {
            address: Some(u64::from_be_bytes(address)),
            rkey: bth::word(header, field::RKEY),
            behind,
            immediate: bth::word(header, field::IMMEDIATE),
            ..Self::of_bth(header.first_chunk().expect("a BTH opens the headers"), payload)
        };
        Ok((read, payload))
    }

    /// Reads a Send whose first word was accepted.
    #[inline(always)]
    pub(crate) fn parse_send(
        packet: &[u8],
        trailer_bytes: usize,
    ) -> Result<(Self, &[u8]), PacketError> {
        let (header, payload) = bth::split::<DATA_HEADER_BYTES>(packet, trailer_bytes)?;
        let read = Self {
            immediate: bth::word(header, field::IMMEDIATE_OF_SEND),
            ..Self::of_bth(header.first_chunk().expect("a BTH opens the headers"), payload)
        };
        Ok((read, payload))
    }

    #[inline(always)]
    fn of_bth(bth: &bth::Bytes, payload: &[u8]) -> Self {
        Self {
            dest: bth::destination(bth),
            psn: bth::sequence(bth),
            ends_message: bth::solicited(bth),
            carries_immediate: bth::ack_request(bth),
            address: None,
            rkey: 0,
            length: payload.len() as u32,
            behind: 0,
            immediate: 0,
        }
    }
}

#[inline]
fn first<const N: usize>(out: &mut [u8]) -> &mut [u8; N] {
    out.first_chunk_mut().expect("there is room for the headers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seal;

    const SEAL: Seal = Seal::Crc32c;

    const HEADER: DataHeader = DataHeader {
        dest: Qpn::from_bits(0x12_3456),
        psn: 0x78_9abc,
        ends_message: true,
        carries_immediate: false,
        address: Some(0x0102_0304_0506_0708),
        rkey: 0x1122_3344,
        length: 5,
        behind: 0,
        immediate: 0x5566_7788,
    };

    const BYTES: [u8; DATA_HEADER_BYTES_MAX] = [
        0x2b, 0xb0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0x78, 0x9a,
        0xbc, // BTH, 3 pad bytes
        0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x11, 0x22, 0x33, 0x44, // RETH
        0x00, 0x00, 0x00, 0x05, 0x55, 0x66, 0x77, 0x88, // ImmDt
    ];

    fn parse_write(packet: &[u8]) -> Result<(DataHeader, &[u8]), PacketError> {
        DataHeader::parse_write(packet, SEAL.bytes())
    }

    fn parse_send(packet: &[u8]) -> Result<(DataHeader, &[u8]), PacketError> {
        DataHeader::parse_send(packet, SEAL.bytes())
    }

    fn packet(length: usize) -> Vec<u8> {
        let mut packet = BYTES.to_vec();
        packet.resize(SEAL.overhead_bytes_max() + length, 0);
        packet
    }

    #[test]
    fn emit_writes_every_byte() {
        let mut out = [0xa5; DATA_HEADER_BYTES_MAX];
        HEADER.emit(&mut out);
        assert_eq!(out, BYTES);
    }

    #[test]
    fn parse_separates_payload_from_pad() {
        let mut packet = packet(8);
        packet[DATA_HEADER_BYTES_MAX..][..8].copy_from_slice(&[1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(parse_write(&packet), Ok((HEADER, &[1, 2, 3, 4, 5][..])));
    }

    #[test]
    fn bits_that_nics_and_switches_may_set_are_ignored() {
        let mut packet = packet(8);
        packet[1] |= 0x40; // MigReq
        packet[4] = 0xff; // FECN, BECN, reserved
        packet[8] = 0x7f; // reserved
        assert_eq!(parse_write(&packet).map(|(header, _)| header), Ok(HEADER));
    }

    #[test]
    fn the_acknowledge_request_says_that_an_immediate_comes() {
        let header = DataHeader { carries_immediate: true, ..HEADER };
        let mut packet = packet(8);
        header.emit(&mut packet);
        assert_eq!(packet[8], 0x80);
        assert_eq!(parse_write(&packet).map(|(header, _)| header), Ok(header));
    }

    #[test]
    fn lengths_that_disagree_are_rejected_with_both() {
        assert_eq!(
            parse_write(&packet(0)[..35]),
            Err(PacketError::TooShort { needed: 36, found: 35 })
        );
        assert_eq!(parse_write(&packet(5)), Err(PacketError::Unaligned { found: 41 }));
        assert_eq!(parse_write(&packet(0)), Err(PacketError::Pad { announced: 3, room: 0 }));
        assert_eq!(parse_write(&packet(12)), Err(PacketError::Length { announced: 5, found: 9 }));
    }

    const SEND: DataHeader = DataHeader { address: None, ..HEADER };

    const SEND_BYTES: [u8; DATA_HEADER_BYTES] = [
        0x25, 0xb0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0x78, 0x9a,
        0xbc, // BTH, 3 pad bytes
        0x55, 0x66, 0x77, 0x88, // ImmDt
    ];

    #[test]
    fn a_send_has_no_reth() {
        let mut out = [0xa5; DATA_HEADER_BYTES];
        SEND.emit(&mut out);
        assert_eq!(out, SEND_BYTES);
    }

    #[test]
    fn a_send_says_nothing_of_its_length() {
        assert_eq!(parse_send(&[0; 19]), Err(PacketError::TooShort { needed: 20, found: 19 }));
        let mut packet = SEND_BYTES.to_vec();
        packet.resize(SEAL.overhead_bytes(false), 0);
        assert_eq!(parse_send(&packet), Err(PacketError::Pad { announced: 3, room: 0 }));
        packet.resize(SEAL.overhead_bytes(false) + 100, 0);
        assert_eq!(parse_send(&packet).unwrap().0.length, 97);
    }

    #[test]
    fn pads_complete_words() {
        assert_eq!([0, 1, 2, 3, 4, 5, 4095, 4096].map(pad_bytes), [0, 3, 2, 1, 0, 3, 1, 0]);
    }
}
