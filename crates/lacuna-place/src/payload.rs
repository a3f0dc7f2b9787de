//! The payload of a packet as the books see it: bytes that are copied to their place, or only their
//! number, of a packet that was placed by others or has no memory to go to.
//!
//! All that follows from a packet is written once, for either kind; the kind is known when the code
//! is compiled, so it costs nothing where packets have bytes.

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
