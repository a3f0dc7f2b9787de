//! Control packets: InfiniBand datagrams with a sequence of frames as payload.
//!
//! ```text
//! BTH 12 | DETH 8 | body | pad 0-3 | trailer 4                       opcode 0x64
//! body:  | version 1 | reserved 3 | sequence 4 | frames … |
//! ```
//!
//! SDR-RDMA 4.1 uses "a UC or UD queue pair" for control. Lacuna uses UD SEND Only, so that on a
//! NIC one datagram queue pair serves all peers. Control packets are not retransmitted: frames
//! carry state, and the body's sequence number says which of two states is newer.

mod body;
mod writer;

pub use body::{ControlBody, FrameIter};
pub use writer::ControlWriter;

use crate::{PacketError, Qpn, bth};

/// Bytes of BTH and DETH.
pub const CONTROL_HEADER_BYTES: usize = 20;
/// The version of the body and its frames.
pub const CONTROL_VERSION: u8 = 1;

/// Bytes of version, reserved bytes and sequence.
const BODY_HEADER_BYTES: usize = 8;
/// Offset of the first frame.
pub(crate) const FRAMES_AT: usize = CONTROL_HEADER_BYTES + BODY_HEADER_BYTES;

mod field {
    use std::ops::Range;

    // DETH: InfiniBand Architecture Specification, volume 1, section 9.3.2.
    pub(super) const QKEY: Range<usize> = 12..16;
    /// A reserved byte, then the QPN.
    pub(super) const SOURCE: Range<usize> = 16..20;

    /// In the body: the version and three reserved bytes.
    pub(super) const VERSION: usize = 0;
    /// In the body.
    pub(super) const SEQUENCE: Range<usize> = 4..8;
}

/// The headers of a control packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ControlHeader {
    /// The receiver's queue pair, channel and generation.
    pub dest: Qpn,
    /// Packet sequence number of the BTH, 24 bits. InfiniBand datagrams do not use it; the body's
    /// sequence number orders the states.
    pub psn: u32,
    /// The receiver's queue key; stray packets do not have it.
    pub qkey: u32,
    /// The sender's queue pair, channel and generation.
    pub source: Qpn,
}

impl ControlHeader {
    /// Writes the headers, with a pad count of zero.
    #[inline]
    fn emit(&self, out: &mut [u8; CONTROL_HEADER_BYTES]) {
        let bth = out.first_chunk_mut().expect("a BTH opens the headers");
        bth::emit(bth, bth::OPCODE_CONTROL, false, self.dest, self.psn);
        out[field::QKEY].copy_from_slice(&self.qkey.to_be_bytes());
        out[field::SOURCE].copy_from_slice(&self.source.bits().to_be_bytes());
    }

    /// Reads a packet whose first word was accepted.
    #[inline]
    pub(crate) fn parse(packet: &[u8], trailer_bytes: usize) -> Result<(Self, &[u8]), PacketError> {
        let (header, body) = bth::split::<CONTROL_HEADER_BYTES>(packet, trailer_bytes)?;
        let bth = header.first_chunk().expect("a BTH opens the headers");
        let header = Self {
            dest: bth::destination(bth),
            psn: bth::sequence(bth),
            qkey: bth::word(header, field::QKEY),
            source: Qpn::from_bits(bth::word(header, field::SOURCE)),
        };
        Ok((header, body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: ControlHeader = ControlHeader {
        dest: Qpn::from_bits(0x12_3456),
        psn: 0x78_9abc,
        qkey: 0x1122_3344,
        source: Qpn::from_bits(0x65_4321),
    };

    const BYTES: [u8; CONTROL_HEADER_BYTES] = [
        0x64, 0x00, 0xff, 0xff, 0x00, 0x12, 0x34, 0x56, 0x00, 0x78, 0x9a, 0xbc, // BTH
        0x11, 0x22, 0x33, 0x44, 0x00, 0x65, 0x43, 0x21, // DETH
    ];

    #[test]
    fn emit_writes_every_byte() {
        let mut out = [0xa5; CONTROL_HEADER_BYTES];
        HEADER.emit(&mut out);
        assert_eq!(out, BYTES);
    }

    #[test]
    fn parse_separates_body_from_pad() {
        let mut packet = BYTES.to_vec();
        packet[1] = 0x20; // two pad bytes
        packet.extend([1, 2, 3, 4, 5, 6, 0, 0, 0xaa, 0xaa, 0xaa, 0xaa]);
        assert_eq!(ControlHeader::parse(&packet, 4), Ok((HEADER, &[1, 2, 3, 4, 5, 6][..])));
    }

    #[test]
    fn lengths_that_disagree_are_rejected_with_both() {
        let mut packet = BYTES.to_vec();
        packet.extend([0; 3]);
        let error = PacketError::TooShort { needed: 24, found: 23 };
        assert_eq!(ControlHeader::parse(&packet, 4), Err(error));
        packet.push(0);
        packet[1] = 0x10;
        let error = PacketError::Pad { announced: 1, room: 0 };
        assert_eq!(ControlHeader::parse(&packet, 4), Err(error));
        packet.push(0);
        assert_eq!(ControlHeader::parse(&packet, 4), Err(PacketError::Unaligned { found: 25 }));
    }
}
