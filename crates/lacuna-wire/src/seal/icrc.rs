//! The seal of RDMA cards: the ICRC, of which the protocol makes the inner part (`icrc/flow.rs`).
//!
//! ```text
//! BTH … payload, pad | CRC-32 of these, little-endian      between protocol and datapath
//! BTH … payload, pad | ICRC                                on the wire
//! ```
//!
//! The functions here make and check the packet as it is between protocol and datapath. Who receives
//! from a datapath checks the ICRC with [`IcrcFlow::check`](crate::IcrcFlow::check) instead, before
//! it reads the packet.
//!
//! Control packets have the CRC32C of all queue pairs: no card takes them, and they must pass where
//! addresses are translated, so that the ends can tell each other so.

use crc_fast::{CrcAlgorithm, Digest};
use lacuna_crc::Crc32c;

use super::crc32c::{Castagnoli, compare, word};
use super::{PacketParts, PacketPartsMut, Seal, SealAlgorithm};
use crate::icrc::inner;
use crate::{DataHeader, PacketError};

/// The algorithm of [`Seal::Icrc`](super::Seal::Icrc).
pub(super) enum Inner {}

impl SealAlgorithm for Inner {
    const VERIFIES_FIRST: bool = true;

    #[inline(never)]
    fn copy_and_seal(header: &DataHeader, payload: &[u8], parts: PacketPartsMut<'_>) {
        parts.payload.copy_from_slice(payload);
        parts.pad.fill(0);
        let sum = sum_of(&[parts.headers, parts.payload, parts.pad]);
        parts.trailer.copy_from_slice(&(sum ^ key_in_trailer(header)).to_le_bytes());
    }

    #[inline(never)]
    fn seal(header: &DataHeader, pieces: &[&[u8]], trailer: &mut [u8]) {
        trailer.copy_from_slice(&(sum_of(pieces) ^ key_in_trailer(header)).to_le_bytes());
    }

    #[inline(never)]
    fn verify(header: &DataHeader, covered: &[u8], trailer: &[u8]) -> Result<u32, PacketError> {
        let (expected, found) = (inner(covered), word(trailer));
        match header.address {
            Some(_) => compare(expected, found).map(|()| header.rkey),
            None => Ok(expected ^ found),
        }
    }

    #[inline(never)]
    fn verify_while(
        header: &DataHeader,
        packet: &[u8],
        rkey: u32,
        take: impl FnOnce(Option<&mut Crc32c>, &[u8], &[u8]),
    ) -> Result<bool, PacketError> {
        let PacketParts { headers, payload, pad, trailer } =
            PacketParts::cut(Seal::Icrc, header, packet)?;
        let (expected, found) = (sum_of(&[headers, payload, pad]), word(trailer));
        let key = match header.address {
            Some(_) => compare(expected, found).map(|()| header.rkey)?,
            None => expected ^ found,
        };
        if key == rkey {
            take(None, headers, payload);
        }
        Ok(key == rkey)
    }

    #[inline]
    fn seal_control(covered: &[u8], trailer: &mut [u8]) {
        Castagnoli::seal_control(covered, trailer);
    }

    #[inline]
    fn verify_control(covered: &[u8], trailer: &[u8]) -> Result<(), PacketError> {
        Castagnoli::verify_control(covered, trailer)
    }
}

/// What a packet without an address has in its trailer beside the sum. On the wire no packet of this
/// seal is without ([`Seal::needs_address`](super::Seal::needs_address)).
fn key_in_trailer(header: &DataHeader) -> u32 {
    if header.address.is_some() { 0 } else { header.rkey }
}

fn sum_of(pieces: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize() as u32
}
