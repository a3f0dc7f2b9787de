//! A data packet, whole in one packet: an unreliable RDMA Write with immediate, or, where the
//! immediate alone says where the payload goes, an unreliable Send with immediate.
//!
//! ```text
//! Write:  BTH 12 | RETH 16 | ImmDt 4 | payload | pad 0-3 | trailer 4        opcode 0x2B
//! Send:   BTH 12 |           ImmDt 4 | payload | pad 0-3 | trailer 4 ^ key  opcode 0x25
//! ```
//!
//! SDR-RDMA 3.2.1: a Write of several packets would be dropped whole at the first gap in the
//! sequence numbers, so every packet is a Write of its own. The RETH says where the payload goes
//! (in the zero-based root key of the queue pair: message slot `i` backs `[i*M, (i+1)*M)`), the
//! immediate says which packet of which message it was. The sequence number counts the packets of
//! a channel; nothing is dropped for being out of order.
//!
//! Packet `p` of a message mostly goes to `p` times the packet's size, so a receiver that is no
//! network card needs no RETH: without it a packet of 1,500 bytes carries 1.1 % more. Of what the
//! RETH says, the address follows from the immediate and the length from the datagram; the remote
//! key, which strangers cannot guess, is laid over the trailer by exclusive or and comes out of the
//! receiver's checksum ([`DataHeader::check`]). A damaged packet has a wrong key then.
//!
//! Where the path has become too narrow for whole packets, a packet goes in *pieces*: Writes with
//! the packet's immediate, each with a part of its payload. The RETH's length then counts what is
//! left of the packet from this piece on, as that of a first packet of several counts the whole
//! (InfiniBand volume 1, section 9.4.3), so a receiver knows the place of each piece in its packet.

use crate::{
    Crc32c, PacketError, Qpn, TRAILER_BYTES,
    bth::{self, PAD_MAX},
    seal::split,
};

/// Bytes of BTH and ImmDt.
pub const DATA_HEADER_BYTES: usize = 16;
/// Bytes of BTH, RETH and ImmDt.
pub const DATA_HEADER_BYTES_MAX: usize = 32;
/// Bytes of a data packet that goes where its immediate says, without payload and pad.
pub const DATA_OVERHEAD_BYTES: usize = DATA_HEADER_BYTES + TRAILER_BYTES;
/// The same of a packet with an address of its own.
pub const DATA_OVERHEAD_BYTES_MAX: usize = DATA_HEADER_BYTES_MAX + TRAILER_BYTES;

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
    /// Where in the key's address space the payload goes; without one, to the place of the
    /// packet that the immediate names.
    pub address: Option<u64>,
    /// The remote key. Of a packet without an address, [`check`](Self::check) finds it.
    pub rkey: u32,
    /// Bytes of payload.
    pub length: u32,
    /// Bytes of the packet that lie behind this payload and come in other pieces. 0 of a packet
    /// that comes whole, and always without an address.
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
    /// If there is no room for [`header_bytes`](Self::header_bytes).
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

    /// The trailer of the packet whose headers, payload and pad are given in order.
    #[inline]
    #[must_use]
    pub fn trailer(&self, pieces: &[&[u8]]) -> [u8; TRAILER_BYTES] {
        let mut sum = Crc32c::new();
        pieces.iter().for_each(|piece| sum.update(piece));
        self.seal(sum)
    }

    /// Writes the whole packet, and reads the payload once.
    ///
    /// # Panics
    /// If `out` is not as long as the packet, or the payload not as long as
    /// [`length`](Self::length) says.
    #[inline]
    pub fn emit_packet(&self, out: &mut [u8], payload: &[u8]) {
        assert_eq!(payload.len(), self.length as usize, "the header announces its payload");
        let (out, trailer) = out.split_last_chunk_mut().expect("there is room for the trailer");
        let (headers, behind) = out.split_at_mut(self.header_bytes());
        let (place, pad) = behind.split_at_mut(payload.len());
        self.emit(headers);
        let mut sum = Crc32c::new();
        sum.copy(headers, payload, place);
        assert_eq!(pad.len(), pad_bytes(payload.len()), "a packet ends behind its trailer");
        if !pad.is_empty() {
            pad.fill(0);
            sum.update(pad);
        }
        *trailer = self.seal(sum);
    }

    /// The trailer, by the sum of what it covers.
    #[inline]
    fn seal(&self, sum: Crc32c) -> [u8; TRAILER_BYTES] {
        let key = if self.address.is_some() { 0 } else { self.rkey };
        (sum.value() ^ key).to_le_bytes()
    }

    /// Checks the trailer of the whole packet that this was read from. One without an address has
    /// its key from there: of a damaged packet that is a wrong one.
    ///
    /// # Errors
    /// When the trailer of a packet with an address does not match the bytes before it, or there
    /// is no trailer.
    #[inline]
    pub fn check(&mut self, packet: &[u8]) -> Result<(), PacketError> {
        let (covered, found) = split(packet)?;
        self.rkey = self.judge(lacuna_crc::crc32c(covered), found)?;
        Ok(())
    }

    /// The same, while `take` reads headers and payload: it takes all of both into the sum, in order
    /// and once. Returns the remote key.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and if the packet is none that this was read from.
    #[inline]
    pub fn check_while(
        &self,
        packet: &[u8],
        take: impl FnOnce(&mut Crc32c, &[u8], &[u8]),
    ) -> Result<u32, PacketError> {
        let (covered, found) = split(packet)?;
        let (headers, length) = (self.header_bytes(), self.length as usize);
        let Some((headers, behind)) = covered.split_at_checked(headers) else {
            return Err(PacketError::TooShort { needed: headers, found: covered.len() });
        };
        let Some((payload, pad)) = behind.split_at_checked(length) else {
            return Err(PacketError::Length { announced: self.length, found: behind.len() });
        };
        let mut sum = Crc32c::new();
        take(&mut sum, headers, payload);
        if !pad.is_empty() {
            sum.update(pad);
        }
        self.judge(sum.value(), found)
    }

    /// The remote key, by the sum of what a trailer covers and the trailer.
    #[inline]
    fn judge(&self, expected: u32, found: u32) -> Result<u32, PacketError> {
        match self.address {
            Some(_) if expected != found => Err(PacketError::Trailer { expected, found }),
            Some(_) => Ok(self.rkey),
            None => Ok(expected ^ found),
        }
    }

    /// Reads a Write whose opcode, version and partition key were found to be right. Always
    /// inlined for the sake of [`parse_data`](crate::parse_data), as is the next.
    #[inline(always)]
    pub(crate) fn parse_write(packet: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        let (header, payload) = bth::split::<DATA_HEADER_BYTES_MAX>(packet)?;
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

    /// The same of a Send.
    #[inline(always)]
    pub(crate) fn parse_send(packet: &[u8]) -> Result<(Self, &[u8]), PacketError> {
        let (header, payload) = bth::split::<DATA_HEADER_BYTES>(packet)?;
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

    fn packet(length: usize) -> Vec<u8> {
        let mut packet = BYTES.to_vec();
        packet.resize(DATA_OVERHEAD_BYTES_MAX + length, 0);
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
        assert_eq!(DataHeader::parse_write(&packet), Ok((HEADER, &[1, 2, 3, 4, 5][..])));
    }

    #[test]
    fn a_packet_in_one_go_is_the_same_as_in_parts() {
        let payload: Vec<u8> = (0..9000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        for length in [0, 1, 4, 63, 1000, 1400, 8999] {
            for header in [HEADER, SEND].map(|header| DataHeader { length, ..header }) {
                let payload = &payload[..length as usize];
                let (head, pad) = (header.header_bytes(), pad_bytes(payload.len()));
                let mut parts = vec![0; head];
                header.emit(&mut parts);
                let trailer = header.trailer(&[&parts, payload, &[0; PAD_MAX][..pad]]);
                let parts = [&parts, payload, &[0; PAD_MAX][..pad], &trailer].concat();
                let mut whole = vec![0xa5; parts.len()];
                header.emit_packet(&mut whole, payload);
                assert_eq!(whole, parts, "{length} bytes");
            }
        }
    }

    #[test]
    #[should_panic(expected = "ends behind its trailer")]
    fn a_packet_has_no_more_room_than_it_needs() {
        HEADER.emit_packet(&mut [0; DATA_OVERHEAD_BYTES_MAX + 12], &[0; 5]);
    }

    #[test]
    fn bits_that_nics_and_switches_may_set_are_ignored() {
        let mut packet = packet(8);
        packet[1] |= 0x40; // MigReq
        packet[4] = 0xff; // FECN, BECN, reserved
        packet[8] = 0x7f; // reserved
        assert_eq!(DataHeader::parse_write(&packet).map(|(header, _)| header), Ok(HEADER));
    }

    #[test]
    fn the_acknowledge_request_says_that_an_immediate_comes() {
        let header = DataHeader { carries_immediate: true, ..HEADER };
        let mut packet = packet(8);
        header.emit(&mut packet);
        assert_eq!(packet[8], 0x80);
        assert_eq!(DataHeader::parse_write(&packet).map(|(header, _)| header), Ok(header));
    }

    #[test]
    fn lengths_that_disagree_are_rejected_with_both() {
        assert_eq!(
            DataHeader::parse_write(&packet(0)[..35]),
            Err(PacketError::TooShort { needed: 36, found: 35 })
        );
        assert_eq!(DataHeader::parse_write(&packet(5)), Err(PacketError::Unaligned { found: 41 }));
        assert_eq!(
            DataHeader::parse_write(&packet(0)),
            Err(PacketError::Pad { announced: 3, room: 0 })
        );
        assert_eq!(
            DataHeader::parse_write(&packet(12)),
            Err(PacketError::Length { announced: 5, found: 9 })
        );
    }

    const SEND: DataHeader = DataHeader { address: None, ..HEADER };

    const SEND_BYTES: [u8; DATA_HEADER_BYTES] = [
        0x25, 0xb0, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0x78, 0x9a,
        0xbc, // BTH, 3 pad bytes
        0x55, 0x66, 0x77, 0x88, // ImmDt
    ];

    #[test]
    fn without_an_address_the_key_is_in_the_trailer() {
        let mut packet = [0xa5; DATA_HEADER_BYTES].to_vec();
        SEND.emit(&mut packet);
        assert_eq!(packet, SEND_BYTES);
        packet.extend([1, 2, 3, 4, 5, 0, 0, 0]);
        packet.extend(SEND.trailer(&[&packet]));
        let (mut header, payload) = DataHeader::parse_send(&packet).unwrap();
        assert_eq!(payload, [1, 2, 3, 4, 5]);
        assert_eq!(header.check(&packet), Ok(()));
        assert_eq!(header, SEND);
        packet[20] ^= 0x10;
        assert_eq!(header.check(&packet), Ok(()));
        assert_ne!(header.rkey, SEND.rkey);
        // No key is laid over the trailer of who knows none.
        let plain = DataHeader { rkey: 0, ..SEND };
        packet.truncate(packet.len() - TRAILER_BYTES);
        packet.extend(plain.trailer(&[&packet]));
        assert_eq!(header.check(&packet), Ok(()));
        assert_eq!(header.rkey, 0);
    }

    #[test]
    fn a_write_is_checked_against_its_trailer() {
        let mut packet = packet(8);
        let end = packet.len() - TRAILER_BYTES;
        let trailer = HEADER.trailer(&[&packet[..end]]);
        packet[end..].copy_from_slice(&trailer);
        let mut header = HEADER;
        assert_eq!(header.check(&packet), Ok(()));
        assert_eq!(header, HEADER);
        packet[0] ^= 1;
        assert!(matches!(header.check(&packet), Err(PacketError::Trailer { .. })));
    }

    #[test]
    fn a_send_says_nothing_of_its_length() {
        assert_eq!(
            DataHeader::parse_send(&[0; 19]),
            Err(PacketError::TooShort { needed: 20, found: 19 })
        );
        let mut packet = SEND_BYTES.to_vec();
        packet.resize(DATA_OVERHEAD_BYTES, 0);
        assert_eq!(
            DataHeader::parse_send(&packet),
            Err(PacketError::Pad { announced: 3, room: 0 })
        );
        packet.resize(DATA_OVERHEAD_BYTES + 100, 0);
        assert_eq!(DataHeader::parse_send(&packet).unwrap().0.length, 97);
    }

    #[test]
    fn pads_complete_words() {
        assert_eq!([0, 1, 2, 3, 4, 5, 4095, 4096].map(pad_bytes), [0, 3, 2, 1, 0, 3, 1, 0]);
    }
}
