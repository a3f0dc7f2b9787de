//! The payload of a packet, as the books see it: either bytes to copy, or only their number.
//!
//! Only the number is known of a packet that hardware has placed by itself, or that a simulation sends
//! without bytes. The code that keeps the books is generic over the two, so packets with bytes pay
//! nothing for the other kind.

/// See the module's text.
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

/// So many bytes, which are not at hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noted(pub(crate) usize);

impl Payload for Noted {
    #[inline(always)]
    fn len(self) -> usize {
        self.0
    }

    #[inline(always)]
    fn bytes(&self) -> Option<&[u8]> {
        None
    }
}
