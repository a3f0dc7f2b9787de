//! The seal between plain sockets: CRC32C of all bytes before it.
//!
//! ```text
//! BTH … payload, pad | CRC32C, little-endian
//! ```
//!
//! In a data packet without RETH, the trailer is the CRC32C xor the remote key (`data.rs`).
//!
//! RoCE's own trailer, the ICRC, also covers IP addresses, ports and the IP identification. A plain
//! socket behind NAT does not know its packets' final addresses, nor usually the identification
//! that the kernel sets, so the ICRC is only for peers that need it
//! ([`Seal::Icrc`](super::Seal::Icrc)). CRC32C covers what both ends see alike: the UDP payload,
//! without exemptions, as no switch changes the congestion bits of this BTH.
//!
//! CRC32C (Castagnoli, RFC 3720 appendix B.4) detects every burst of up to 32 bits, and processors
//! have an instruction for it. The UDP checksum is no substitute: it misses swapped words, and NICs
//! verify it before the bytes cross the bus to memory.

use lacuna_crc::Crc32c;

use super::{PacketParts, PacketPartsMut, Seal, SealAlgorithm};
use crate::{DataHeader, PacketError};

const BYTES: usize = 4;

/// The algorithm of [`Seal::Crc32c`](super::Seal::Crc32c).
pub(super) enum Castagnoli {}

impl SealAlgorithm for Castagnoli {
    const VERIFIES_FIRST: bool = false;

    #[inline]
    fn copy_and_seal(header: &DataHeader, payload: &[u8], parts: PacketPartsMut<'_>) {
        let mut sum = Crc32c::new();
        sum.copy(parts.headers, payload, parts.payload);
        if !parts.pad.is_empty() {
            parts.pad.fill(0);
            sum.update(parts.pad);
        }
        parts.trailer.copy_from_slice(&trailer_of(header, sum));
    }

    #[inline]
    fn seal(header: &DataHeader, pieces: &[&[u8]], trailer: &mut [u8]) {
        trailer.copy_from_slice(&trailer_of(header, sum_of(pieces)));
    }

    #[inline]
    fn verify(header: &DataHeader, covered: &[u8], trailer: &[u8]) -> Result<u32, PacketError> {
        key_of(header, lacuna_crc::crc32c(covered), word(trailer))
    }

    #[inline]
    fn verify_while(
        header: &DataHeader,
        packet: &[u8],
        rkey: u32,
        take: impl FnOnce(Option<&mut Crc32c>, &[u8], &[u8]),
    ) -> Result<bool, PacketError> {
        let parts = PacketParts::cut(Seal::Crc32c, header, packet)?;
        let mut sum = Crc32c::new();
        take(Some(&mut sum), parts.headers, parts.payload);
        if !parts.pad.is_empty() {
            sum.update(parts.pad);
        }
        key_of(header, sum.value(), word(parts.trailer)).map(|key| key == rkey)
    }

    #[inline]
    fn seal_control(covered: &[u8], trailer: &mut [u8]) {
        trailer.copy_from_slice(&crc32c(&[covered]));
    }

    #[inline]
    fn verify_control(covered: &[u8], trailer: &[u8]) -> Result<(), PacketError> {
        compare(lacuna_crc::crc32c(covered), word(trailer))
    }
}

/// The trailer of a data packet; `sum` covers everything before it.
#[inline]
fn trailer_of(header: &DataHeader, sum: Crc32c) -> [u8; BYTES] {
    let key = if header.address.is_some() { 0 } else { header.rkey };
    (sum.value() ^ key).to_le_bytes()
}

/// The remote key of a data packet, from the computed and the received trailer.
#[inline]
fn key_of(header: &DataHeader, expected: u32, found: u32) -> Result<u32, PacketError> {
    match header.address {
        Some(_) => compare(expected, found).map(|()| header.rkey),
        None => Ok(expected ^ found),
    }
}

#[inline]
pub(super) fn compare(expected: u32, found: u32) -> Result<(), PacketError> {
    if expected == found { Ok(()) } else { Err(PacketError::Trailer { expected, found }) }
}

#[inline]
pub(super) fn word(trailer: &[u8]) -> u32 {
    u32::from_le_bytes(trailer.try_into().expect("a trailer is as long as the table says"))
}

#[inline]
fn sum_of(pieces: &[&[u8]]) -> Crc32c {
    let mut sum = Crc32c::new();
    pieces.iter().for_each(|piece| sum.update(piece));
    sum
}

/// The CRC32C of these pieces in order, little-endian: for other formats that end with it.
#[inline]
#[must_use]
pub fn crc32c(pieces: &[&[u8]]) -> [u8; BYTES] {
    sum_of(pieces).value().to_le_bytes()
}

/// Checks that `bytes` ends with the CRC32C of the bytes before.
///
/// # Errors
/// When it does not, or is too short.
#[inline]
pub fn check_crc32c(bytes: &[u8]) -> Result<(), PacketError> {
    let Some((covered, trailer)) = bytes.split_last_chunk::<BYTES>() else {
        return Err(PacketError::TooShort { needed: BYTES, found: bytes.len() });
    };
    compare(lacuna_crc::crc32c(covered), u32::from_le_bytes(*trailer))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4, as bytes on the wire.
    #[test]
    fn rfc_3720_known_answers() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        #[rustfmt::skip]
        let read_command = [
            0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
            0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
        ];
        assert_eq!(crc32c(&[&[0; 32]]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(crc32c(&[&[0xff; 32]]), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(crc32c(&[&ascending]), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(crc32c(&[&descending]), [0x5c, 0xdb, 0x3f, 0x11]);
        assert_eq!(crc32c(&[&read_command]), [0x56, 0x3a, 0x96, 0xd9]);
    }

    /// Lengths around each change of algorithm inside the library, cut at odd offsets.
    #[test]
    fn pieces_give_the_same_as_the_whole() {
        let bytes: Vec<u8> =
            (0..5000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for length in (0..600).chain([1023, 1024, 1025, 4095, 4096, 4132, 4999]) {
            let whole = &bytes[..length];
            let bitwise = !whole.iter().fold(u32::MAX, |mut crc, &byte| {
                crc ^= u32::from(byte);
                for _ in 0..8 {
                    crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
                }
                crc
            });
            assert_eq!(crc32c(&[whole]), bitwise.to_le_bytes(), "{length} bytes");
            let (head, rest) = whole.split_at(length.min(32));
            let (middle, tail) = rest.split_at(rest.len() - rest.len().min(3));
            assert_eq!(crc32c(&[head, middle, tail]), crc32c(&[whole]), "{length} bytes");
        }
        assert_eq!(crc32c(&[]), crc32c(&[&[]]));
    }

    #[test]
    fn a_trailer_must_exist_and_match() {
        let mut packet = b"123456789".to_vec();
        packet.extend(crc32c(&[&packet]));
        assert_eq!(check_crc32c(&packet), Ok(()));
        packet[0] ^= 1;
        assert!(matches!(
            check_crc32c(&packet),
            Err(PacketError::Trailer { found: 0xe306_9283, .. })
        ));
        assert_eq!(check_crc32c(&[0; 3]), Err(PacketError::TooShort { needed: 4, found: 3 }));
    }
}
