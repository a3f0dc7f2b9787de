//! Parser of a datagram's layout, which finds the kind of packet. It runs once per datagram, on
//! bytes from anyone.
//!
//! Budget: a few nanoseconds, no loop, no allocation, no access to the payload. One masked
//! comparison of the first word accepts opcode, transport version and partition key together; only
//! a refused packet is examined for the wrong one. The trailer is not checked here: the check
//! depends on the path, and over 4 KiB it costs about fifteen times as much (`cargo bench -p
//! lacuna-wire`).

use crate::{ControlHeader, DataHeader, PacketError, Qpn, Seal, bth};

/// A packet with a valid layout. Its trailer was not checked yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Packet<'a> {
    /// Headers and payload, without the pad; see [`Seal::check`].
    Data(DataHeader, &'a [u8]),
    /// Headers and body, without the pad; see [`ControlBody`](crate::ControlBody).
    Control(ControlHeader, &'a [u8]),
}

const WRITE: u32 = bth::accepted(bth::OPCODE_WRITE);
const SEND: u32 = bth::accepted(bth::OPCODE_SEND);
const CONTROL: u32 = bth::accepted(bth::OPCODE_CONTROL);

/// The seal that the functions below assume. All ends know it and nearly all packets have it, so
/// that its length is a constant in the loop over packets.
const COMMON: Seal = Seal::Crc32c;

/// [`Seal::parse`] of a packet that is sealed by CRC32C.
///
/// # Errors
/// Those of [`Seal::parse`].
#[inline]
pub fn parse(packet: &[u8]) -> Result<Packet<'_>, PacketError> {
    COMMON.parse(packet)
}

/// [`Seal::parse_checked`] of a packet that is sealed by CRC32C.
///
/// # Errors
/// Those of [`Seal::parse_checked`].
#[inline]
pub fn parse_checked(packet: &[u8]) -> Result<Packet<'_>, PacketError> {
    COMMON.parse_checked(packet)
}

/// Reads the layout of a data packet with a trailer as long as CRC32C's; `None` for anything else,
/// which [`parse`] then examines. If the queue pair has a seal of another length, the caller must
/// parse the packet again ([`Seal::has_common_length`]).
///
/// For loops over packets that are mostly data. Always inlined, so that the headers stay in
/// registers. As a returned value they are stored in small pieces and loaded in larger ones, which
/// waits until all earlier stores, payloads included, have left the store buffer (failed store
/// forwarding). That wait was half of a receiver's time at 1,400 bytes.
#[inline(always)]
#[must_use]
pub fn parse_data(packet: &[u8]) -> Option<(DataHeader, &[u8])> {
    data(packet, COMMON.bytes())
}

/// The destination QPN of a packet of any kind and seal.
#[inline]
#[must_use]
pub fn destination(packet: &[u8]) -> Option<Qpn> {
    packet.first_chunk().map(bth::destination)
}

#[inline(always)]
fn data(packet: &[u8], trailer_bytes: usize) -> Option<(DataHeader, &[u8])> {
    match bth::first(packet.first_chunk()?) {
        SEND => DataHeader::parse_send(packet, trailer_bytes).ok(),
        WRITE => DataHeader::parse_write(packet, trailer_bytes).ok(),
        _ => None,
    }
}

impl Seal {
    /// Reads the layout of a datagram, from the BTH to the trailer. Does not check the trailer.
    ///
    /// # Errors
    /// When the datagram is too short, is neither a data nor a control packet, or its lengths
    /// disagree.
    #[inline]
    pub fn parse(self, packet: &[u8]) -> Result<Packet<'_>, PacketError> {
        let trailer_bytes = self.bytes();
        let Some(bth) = packet.first_chunk() else {
            let needed = bth::BYTES + trailer_bytes;
            return Err(PacketError::TooShort { needed, found: packet.len() });
        };
        match bth::first(bth) {
            SEND => DataHeader::parse_send(packet, trailer_bytes)
                .map(|(header, data)| Packet::Data(header, data)),
            WRITE => DataHeader::parse_write(packet, trailer_bytes)
                .map(|(header, data)| Packet::Data(header, data)),
            CONTROL => ControlHeader::parse(packet, trailer_bytes)
                .map(|(header, body)| Packet::Control(header, body)),
            _ => Err(bth::reason(bth)),
        }
    }

    /// The same, and checks the trailer. The remote key of a Send comes from the trailer: damage
    /// gives a wrong key, which the caller must refuse.
    ///
    /// # Errors
    /// Also when the trailer of a control packet, or of a data packet with an address, does not
    /// match.
    #[inline]
    pub fn parse_checked(self, packet: &[u8]) -> Result<Packet<'_>, PacketError> {
        let mut parsed = self.parse(packet)?;
        match &mut parsed {
            Packet::Data(header, _) => self.check(header, packet)?,
            Packet::Control(..) => self.check_control(packet)?,
        }
        Ok(parsed)
    }

    /// Whether [`parse_data`] reads packets with this seal correctly. If not, use [`Seal::parse_data`].
    #[inline]
    #[must_use]
    pub const fn has_common_length(self) -> bool {
        self.bytes() == COMMON.bytes()
    }

    /// Reads the layout of a data packet with the length of this seal's trailer.
    ///
    /// # Errors
    /// Those of [`Seal::parse`], and if it is a control packet.
    #[cold]
    pub fn parse_data(self, packet: &[u8]) -> Result<(DataHeader, &[u8]), PacketError> {
        match self.parse(packet)? {
            Packet::Data(header, payload) => Ok((header, payload)),
            Packet::Control(..) => Err(PacketError::Opcode { found: bth::OPCODE_CONTROL }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(first: [u8; 4], length: usize) -> Vec<u8> {
        let mut packet = first.to_vec();
        packet.resize(length, 0);
        packet
    }

    #[test]
    fn the_opcode_decides() {
        for (opcode, has_address) in [(0x25, false), (0x2b, true)] {
            let overhead = COMMON.overhead_bytes(has_address);
            let data = packet([opcode, 0, 0xff, 0xff], overhead);
            assert!(matches!(parse(&data), Ok(Packet::Data(_, []))));
            assert!(matches!(parse_data(&data), Some((_, []))));
            assert_eq!(parse_data(&data[..overhead - 1]), None);
        }
        let control = packet([0x64, 0, 0xff, 0xff], COMMON.control_overhead_bytes());
        assert!(matches!(parse(&control), Ok(Packet::Control(_, body)) if body.len() == 8));
        assert_eq!(parse_data(&control), None);
    }

    #[test]
    fn a_wrong_first_word_is_explained() {
        let reject = |first| parse(&packet(first, 64)).unwrap_err();
        assert_eq!(reject([0x0a, 0, 0xff, 0xff]), PacketError::Opcode { found: 0x0a });
        assert_eq!(reject([0x2b, 5, 0xff, 0xff]), PacketError::TransportVersion { found: 5 });
        assert_eq!(reject([0x64, 0, 0x7f, 0xff]), PacketError::PartitionKey { found: 0x7fff });
    }

    #[test]
    fn less_than_a_base_header_is_too_short_for_any_kind() {
        for length in 0..12 {
            let error = PacketError::TooShort { needed: 16, found: length };
            assert_eq!(parse(&packet([0x2b, 0, 0xff, 0xff], 12)[..length]), Err(error));
        }
    }

    /// A `Packet` is returned by value for every datagram.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_packet_fits_in_a_cache_line() {
        assert!(size_of::<Packet<'_>>() <= 64);
        assert!(size_of::<Result<Packet<'_>, PacketError>>() <= 64);
    }
}
