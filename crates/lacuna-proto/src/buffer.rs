//! What a send reads from: shared, immutable bytes that live as long as any
//! part of the transport may still put them on the wire.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Bytes that do not move or change while a send uses them.
///
/// Safe implementations follow from the borrow rules: whoever owns the value
/// behind an `Arc` cannot change it. Foreign memory comes in through an
/// `unsafe` constructor of the implementing type.
pub trait Memory: Send + Sync {
    /// The bytes.
    fn bytes(&self) -> &[u8];
}

impl Memory for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Memory for Box<[u8]> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl Memory for &'static [u8] {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A range of [`Memory`]. Cloning it is cheap and keeps the memory.
#[derive(Clone)]
pub struct SendBuffer {
    memory: Arc<dyn Memory>,
    offset: usize,
    len: usize,
}

/// A range outside of the memory. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("range of {len} bytes at {offset} is outside of the memory's {memory_bytes} bytes")]
pub struct RangeError {
    /// Start of the range.
    pub offset: usize,
    /// Its length.
    pub len: usize,
    /// What there is.
    pub memory_bytes: usize,
}

impl SendBuffer {
    /// All of `memory`.
    pub fn new(memory: Arc<dyn Memory>) -> Self {
        let len = memory.bytes().len();
        Self { memory, offset: 0, len }
    }

    /// A part of this buffer.
    pub fn part(&self, offset: usize, len: usize) -> Result<Self, RangeError> {
        if offset > self.len || len > self.len - offset {
            return Err(RangeError { offset, len, memory_bytes: self.len });
        }
        Ok(Self { memory: self.memory.clone(), offset: self.offset + offset, len })
    }

    /// Takes the first `len` bytes off this buffer.
    pub fn split_to(&mut self, len: usize) -> Result<Self, RangeError> {
        let front = self.part(0, len)?;
        (self.offset, self.len) = (self.offset + len, self.len - len);
        Ok(front)
    }
}

impl Deref for SendBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.memory.bytes()[self.offset..self.offset + self.len]
    }
}

impl From<Vec<u8>> for SendBuffer {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(Arc::new(bytes))
    }
}

impl fmt::Debug for SendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBuffer").field("offset", &self.offset).field("len", &self.len).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_inside() {
        let buffer = SendBuffer::from(vec![1, 2, 3, 4]);
        let part = buffer.part(1, 3).unwrap();
        assert_eq!(*part, [2, 3, 4]);
        assert_eq!(*part.part(2, 1).unwrap(), [4]);
        let error = part.part(2, 2).unwrap_err();
        assert_eq!(error, RangeError { offset: 2, len: 2, memory_bytes: 3 });
        assert!(part.part(usize::MAX, usize::MAX).is_err());
        let mut rest = part;
        assert_eq!(*rest.split_to(1).unwrap(), [2]);
        assert_eq!(*rest, [3, 4]);
        assert!(rest.split_to(3).is_err());
    }
}
