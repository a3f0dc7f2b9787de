//! Send buffers: shared memory that does not change while the transport may still send from it, or of
//! which it copies what it sends.

use crate::region::Slices;
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Memory that sends borrow ranges of. A borrowed range neither moves nor changes while a send uses
/// it.
///
/// The transport borrows ranges and never all of the memory, because a receive may still be writing
/// to another part (an application may forward the first chunks of a message before the rest has
/// arrived). A reference to the whole would alias those writes.
///
/// A safe implementation relies on the borrow rules: a value behind an `Arc` cannot change. A type for
/// foreign memory needs an `unsafe` constructor.
pub trait Memory: Send + Sync {
    /// Length of the memory.
    fn size_bytes(&self) -> usize;

    /// The bytes of a range.
    ///
    /// # Panics
    /// If it reaches out of the memory.
    fn range(&self, offset: usize, len: usize) -> &[u8];
}

/// Implements [`Memory`] for types that dereference to a slice.
macro_rules! slices {
    ($($memory:ty),*) => {$(
        impl Memory for $memory {
            fn size_bytes(&self) -> usize {
                self.len()
            }

            fn range(&self, offset: usize, len: usize) -> &[u8] {
                &self[offset..][..len]
            }
        }
    )*};
}

slices!(Vec<u8>, Box<[u8]>, &'static [u8]);

/// Zeros of any length, for sends whose contents do not matter. Allocates only the longest range that
/// is borrowed at once, which is one run of packets.
#[derive(Debug)]
pub struct Zeros {
    size_bytes: usize,
    /// Never written, so it takes no pages until it is read.
    zeros: Box<[u8]>,
}

impl Zeros {
    /// `size_bytes` zeros, of which at most `range_bytes_max` are borrowed at once.
    pub fn new(size_bytes: usize, range_bytes_max: usize) -> Self {
        Self { size_bytes, zeros: vec![0; range_bytes_max.min(size_bytes)].into() }
    }
}

impl Memory for Zeros {
    fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    fn range(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.size_bytes && len <= self.size_bytes - offset);
        &self.zeros[..len]
    }
}

/// Bytes that cannot be borrowed as one piece: they lie in several places, or others may write them at
/// any time. The transport copies each run of packets when it builds it, again for each repair.
///
/// Bytes that change while a send is under way arrive as they were at one time or another; parity that
/// was computed of others then repairs to bytes that never were.
pub trait Gather: Send + Sync {
    /// Number of bytes.
    fn size_bytes(&self) -> usize;

    /// Copies from `offset` to all of `out`.
    ///
    /// # Panics
    /// If the range reaches past the end.
    fn copy_to(&self, offset: usize, out: &mut [u8]);
}

impl Gather for Slices {
    fn size_bytes(&self) -> usize {
        self.len() as usize
    }

    fn copy_to(&self, offset: usize, out: &mut [u8]) {
        self.read(offset as u64, out).expect("the range is in the list");
    }
}

/// A range of a [`Memory`] or of what can be [gathered](Gather), which it keeps alive. Cloning it counts
/// a reference.
#[derive(Clone)]
pub struct SendBuffer {
    source: Source,
    offset: usize,
    len: usize,
}

#[derive(Clone)]
enum Source {
    Borrowed(Arc<dyn Memory>),
    Gathered(Arc<dyn Gather>),
}

/// A range outside of the memory. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("range of {len} bytes at {offset} is outside of the memory's {memory_bytes} bytes")]
pub struct RangeError {
    /// Start of the range.
    pub offset: usize,
    /// Its length.
    pub len: usize,
    /// Length of the memory.
    pub memory_bytes: usize,
}

impl SendBuffer {
    /// All of `memory`.
    pub fn new(memory: Arc<dyn Memory>) -> Self {
        let len = memory.size_bytes();
        Self { source: Source::Borrowed(memory), offset: 0, len }
    }

    /// All bytes that `memory` gathers.
    pub fn gathered(memory: Arc<dyn Gather>) -> Self {
        let len = memory.size_bytes();
        Self { source: Source::Gathered(memory), offset: 0, len }
    }

    /// A copy of these bytes, so that the caller's may change at once (an *inline* send of verbs).
    pub fn copy_of(bytes: &[u8]) -> Self {
        Self::from(bytes.to_vec())
    }

    /// A part of this buffer.
    pub fn part(&self, offset: usize, len: usize) -> Result<Self, RangeError> {
        if offset > self.len || len > self.len - offset {
            return Err(RangeError { offset, len, memory_bytes: self.len });
        }
        Ok(Self { source: self.source.clone(), offset: self.offset + offset, len })
    }

    /// Takes the first `len` bytes off this buffer.
    pub fn split_to(&mut self, len: usize) -> Result<Self, RangeError> {
        let front = self.part(0, len)?;
        (self.offset, self.len) = (self.offset + len, self.len - len);
        Ok(front)
    }

    /// Bytes of the buffer.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of a range. Nobody may be writing to them.
    ///
    /// # Panics
    /// If it reaches out of the buffer, or its bytes must be gathered ([`SendBuffer::gathered`]).
    #[inline]
    pub fn range(&self, offset: usize, len: usize) -> &[u8] {
        self.try_range(offset, len).expect("the bytes are in one piece")
    }

    /// The bytes of a range; `None` if they must be gathered. Nobody may be writing to them.
    ///
    /// # Panics
    /// If it reaches out of the buffer.
    #[inline]
    pub fn try_range(&self, offset: usize, len: usize) -> Option<&[u8]> {
        assert!(offset <= self.len && len <= self.len - offset);
        match &self.source {
            Source::Borrowed(memory) => Some(memory.range(self.offset + offset, len)),
            Source::Gathered(_) => None,
        }
    }

    /// Copies from `offset` to all of `out`.
    ///
    /// # Panics
    /// If the range reaches out of the buffer.
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) {
        assert!(offset <= self.len && out.len() <= self.len - offset);
        match &self.source {
            Source::Borrowed(memory) => {
                out.copy_from_slice(memory.range(self.offset + offset, out.len()));
            }
            Source::Gathered(memory) => memory.copy_to(self.offset + offset, out),
        }
    }

    /// The bytes of a range, copied if they must be gathered.
    ///
    /// # Panics
    /// If it reaches out of the buffer.
    pub fn borrow_or_copy(&self, offset: usize, len: usize) -> Cow<'_, [u8]> {
        match self.try_range(offset, len) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => {
                let mut bytes = vec![0; len];
                self.copy_to(offset, &mut bytes);
                Cow::Owned(bytes)
            }
        }
    }
}

/// All bytes of the buffer. Nobody may write to any of them meanwhile. Panics if they must be gathered
/// ([`SendBuffer::copy_to`] does not).
impl Deref for SendBuffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.range(0, self.len)
    }
}

impl From<Slices> for SendBuffer {
    fn from(slices: Slices) -> Self {
        Self::gathered(Arc::new(slices))
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

    #[test]
    fn a_little_memory_stands_for_many_zeros() {
        let mut buffer = SendBuffer::new(Arc::new(Zeros::new(1 << 40, 100)));
        assert_eq!(buffer.len(), 1 << 40);
        buffer.split_to(1 << 39).unwrap();
        assert_eq!(buffer.range((1 << 39) - 100, 100), [0; 100]);
    }

    #[test]
    fn gathered_bytes_are_copied_and_not_borrowed() {
        struct Count(usize);
        impl Gather for Count {
            fn size_bytes(&self) -> usize {
                self.0
            }

            fn copy_to(&self, offset: usize, out: &mut [u8]) {
                (offset..).zip(out).for_each(|(at, byte)| *byte = at as u8);
            }
        }
        let part = SendBuffer::gathered(Arc::new(Count(100))).part(10, 50).unwrap();
        assert_eq!((part.len(), part.try_range(3, 2)), (50, None));
        assert_eq!(*part.borrow_or_copy(3, 2), [13, 14]);
        let mut out = [0; 3];
        SendBuffer::copy_of(&[1, 2, 3, 4]).copy_to(1, &mut out);
        assert_eq!(out, [2, 3, 4]);
    }

    #[test]
    #[should_panic(expected = "len <= self.len - offset")]
    fn a_range_outside_of_a_part_is_none_of_it() {
        let whole = SendBuffer::from(vec![1, 2, 3, 4]);
        whole.part(1, 2).unwrap().range(1, 2);
    }
}
