//! Reader and writer of a frame's payload.
//!
//! The reader knows the kind of frame, so a missing field becomes an error with the frame's name
//! and length. The writer gets a slice of the frame's exact size; to overrun it or not to fill it
//! is a bug in this crate.

use super::{FrameError, FrameKind};

pub(super) struct Reader<'a> {
    kind: FrameKind,
    /// Bytes of the whole payload, for errors.
    bytes: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// `payload` must come from a frame: its length must fit into 16 bits.
    pub(super) fn new(kind: FrameKind, payload: &'a [u8]) -> Self {
        Self { kind, bytes: payload.len(), rest: payload }
    }

    pub(super) fn kind(&self) -> FrameKind {
        self.kind
    }

    pub(super) fn u8(&mut self) -> Result<u8, FrameError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, FrameError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.wrong_length())?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The rest of the payload, which must be a whole number of entries of `size` bytes.
    pub(super) fn rest_of(&mut self, size: usize) -> Result<&'a [u8], FrameError> {
        if !self.rest.len().is_multiple_of(size) {
            return Err(self.wrong_length());
        }
        Ok(std::mem::take(&mut self.rest))
    }

    pub(super) fn skip_rest(&mut self) -> u16 {
        let rest = std::mem::take(&mut self.rest);
        u16::try_from(rest.len()).expect("a frame's length has 16 bits")
    }

    /// Checks that the payload ends here.
    pub(super) fn end(&self) -> Result<(), FrameError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.wrong_length()) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(|| self.wrong_length())?;
        self.rest = rest;
        Ok(*array)
    }

    fn wrong_length(&self) -> FrameError {
        FrameError::Length { frame: self.kind, found: self.bytes }
    }
}

pub(super) struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self { rest: out }
    }

    pub(super) fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.space(bytes.len()).copy_from_slice(bytes);
    }

    pub(super) fn zeros(&mut self, count: usize) {
        self.space(count).fill(0);
    }

    /// Checks that the frame is filled.
    pub(super) fn end(self) {
        debug_assert!(self.rest.is_empty(), "{} bytes of a frame not written", self.rest.len());
    }

    pub(super) fn space(&mut self, count: usize) -> &mut [u8] {
        let (space, rest) = std::mem::take(&mut self.rest).split_at_mut(count);
        self.rest = rest;
        space
    }
}
