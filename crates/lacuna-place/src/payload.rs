//! The payload of a packet: either bytes to copy, or only their number.
//!
//! Only the number is known if hardware has placed the packet, or a simulation sends no bytes. The code
//! that keeps the record is generic over the two, so packets with bytes pay nothing for the other kind.

/// A payload, with or without bytes.
pub(crate) trait Payload: Copy {
    /// Bytes of the payload.
    fn len(self) -> usize;

    /// The bytes, if they are to be copied.
    fn bytes(&self) -> Option<&[u8]>;
}

impl Payload for &[u8] {
    #[inline(always)]
    fn len(self) -> usize {
        <[u8]>::len(self)
    }

    #[inline(always)]
    fn bytes(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// A payload of which only the number of bytes is known.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LengthOnly(pub(crate) usize);

impl Payload for LengthOnly {
    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    fn bytes(&self) -> Option<&[u8]> {
        None
    }
}
