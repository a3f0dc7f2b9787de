//! The seal of encrypted packets: only its place. Whoever has the keys makes and checks it, around the whole packet,
//! when the protocol has written it and before the protocol reads it (`lacuna_secure`, through the engine).
//!
//! ```text
//! BTH … payload, pad | 0 …                                          between protocol and engine
//! BTH | ciphertext of what is behind it | epoch, number 4 | tag 16  on the wire
//! ```
//!
//! So a packet that reaches the functions here is the peer's. One without an address needs no key; the key of one with
//! an address says which memory it is for, and is checked.

use lacuna_crc::Crc32c;

use super::{PacketParts, PacketPartsMut, Seal, SealAlgorithm};
use crate::{DataHeader, PacketError};

/// The algorithm of [`Seal::Aead`](super::Seal::Aead).
pub(super) enum Opened {}

impl SealAlgorithm for Opened {
    const VERIFIES_FIRST: bool = true;

    #[inline]
    fn copy_and_seal(_header: &DataHeader, payload: &[u8], parts: PacketPartsMut<'_>) {
        parts.payload.copy_from_slice(payload);
        parts.pad.fill(0);
        parts.trailer.fill(0);
    }

    #[inline]
    fn seal(_header: &DataHeader, _pieces: &[&[u8]], trailer: &mut [u8]) {
        trailer.fill(0);
    }

    #[inline]
    fn verify(header: &DataHeader, _covered: &[u8], _trailer: &[u8]) -> Result<u32, PacketError> {
        Ok(header.rkey)
    }

    #[inline]
    fn verify_while(
        header: &DataHeader,
        packet: &[u8],
        rkey: u32,
        take: impl FnOnce(Option<&mut Crc32c>, &[u8], &[u8]),
    ) -> Result<bool, PacketError> {
        let PacketParts { headers, payload, .. } = PacketParts::cut(Seal::Aead, header, packet)?;
        let is_right = header.address.is_none() || header.rkey == rkey;
        if is_right {
            take(None, headers, payload);
        }
        Ok(is_right)
    }

    #[inline]
    fn seal_control(_covered: &[u8], trailer: &mut [u8]) {
        trailer.fill(0);
    }

    #[inline]
    fn verify_control(_covered: &[u8], _trailer: &[u8]) -> Result<(), PacketError> {
        Ok(())
    }
}
