//! Lists of equal-sized entries in a frame, read without copying.
//!
//! A list is either a slice of values to be written, or received bytes that are decoded during
//! iteration. Both compare and print as their values. Every byte pattern is a valid entry, so a
//! list of a whole number of entries cannot fail later.

use std::iter::{Copied, FusedIterator};
use std::{fmt, slice};

use super::cursor::{Reader, Writer};
use super::{FrameError, Run};

/// Message numbers.
pub type U64List<'a> = List<'a, u64>;
/// Run-length coded capacities of receives.
pub type RunList<'a> = List<'a, Run>;

/// An entry of a [`List`]: `u64` or [`Run`].
pub trait Entry: Copy + PartialEq + fmt::Debug + sealed::Sealed {
    /// Bytes of an entry in the payload.
    const BYTES: usize;

    /// Writes an entry to `out`, which is [`BYTES`](Self::BYTES) long.
    fn encode(self, out: &mut [u8]);

    /// Reads an entry from `bytes`, which is [`BYTES`](Self::BYTES) long.
    fn decode(bytes: &[u8]) -> Self;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for super::Run {}
}

/// A borrowed list of `T`.
#[derive(Clone, Copy)]
pub struct List<'a, T>(Source<'a, T>);

#[derive(Clone, Copy)]
enum Source<'a, T> {
    Values(&'a [T]),
    /// A whole number of entries.
    Bytes(&'a [u8]),
}

impl<'a> U64List<'a> {
    /// A list of these numbers.
    #[must_use]
    pub const fn from_values(values: &'a [u64]) -> Self {
        Self(Source::Values(values))
    }
}

impl<'a> RunList<'a> {
    /// A list of these runs.
    #[must_use]
    pub const fn from_runs(runs: &'a [Run]) -> Self {
        Self(Source::Values(runs))
    }
}

impl<'a, T: Entry> List<'a, T> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Values(values) => values.len(),
            Source::Bytes(bytes) => bytes.len() / T::BYTES,
        }
    }

    /// Whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries in order.
    #[must_use]
    pub fn iter(&self) -> ListIter<'a, T> {
        ListIter(match self.0 {
            Source::Values(values) => Entries::Values(values.iter().copied()),
            Source::Bytes(bytes) => Entries::Bytes(bytes.chunks_exact(T::BYTES)),
        })
    }

    pub(super) fn bytes(&self) -> usize {
        self.len() * T::BYTES
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        for entry in self.iter() {
            entry.encode(out.space(T::BYTES));
        }
    }

    pub(super) fn parse(payload: &mut Reader<'a>, count: usize) -> Result<Self, FrameError> {
        Ok(Self(Source::Bytes(payload.bytes(count * T::BYTES)?)))
    }

    pub(super) fn parse_rest(payload: &mut Reader<'a>) -> Result<Self, FrameError> {
        Ok(Self(Source::Bytes(payload.rest_of(T::BYTES)?)))
    }
}

/// The empty list.
impl<T> Default for List<'_, T> {
    fn default() -> Self {
        Self(Source::Values(&[]))
    }
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self(Source::Values(values))
    }
}

impl<T: Entry> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: Entry + Eq> Eq for List<'_, T> {}

impl<T: Entry> fmt::Debug for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Entry> IntoIterator for List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;

    fn into_iter(self) -> ListIter<'a, T> {
        self.iter()
    }
}

/// The entries of a [`List`], by value.
#[derive(Clone, Debug)]
pub struct ListIter<'a, T>(Entries<'a, T>);

#[derive(Clone, Debug)]
enum Entries<'a, T> {
    Values(Copied<slice::Iter<'a, T>>),
    Bytes(slice::ChunksExact<'a, u8>),
}

impl<T: Entry> Iterator for ListIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match &mut self.0 {
            Entries::Values(values) => values.next(),
            Entries::Bytes(bytes) => bytes.next().map(T::decode),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Entries::Values(values) => values.size_hint(),
            Entries::Bytes(bytes) => bytes.size_hint(),
        }
    }
}

impl<T: Entry> ExactSizeIterator for ListIter<'_, T> {}
impl<T: Entry> FusedIterator for ListIter<'_, T> {}

impl Entry for u64 {
    const BYTES: usize = 8;

    fn encode(self, out: &mut [u8]) {
        out.copy_from_slice(&self.to_be_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        Self::from_be_bytes(bytes.try_into().expect("an entry has its size"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FrameKind;

    #[test]
    fn read_and_written_lists_are_the_same() {
        let values = [1, u64::MAX, 0x0102_0304_0506_0708];
        let written = U64List::from_values(&values);
        let mut bytes = vec![0xa5; written.bytes()];
        written.emit(&mut Writer::new(&mut bytes));

        let mut reader = Reader::new(FrameKind::Receives, &bytes);
        let read = U64List::parse_rest(&mut reader).unwrap();
        assert_eq!(read, written);
        assert_eq!(format!("{read:?}"), format!("{values:?}"));
        assert_eq!((read.len(), read.iter().len()), (3, 3));

        let mut again = vec![0xa5; read.bytes()];
        read.emit(&mut Writer::new(&mut again));
        assert_eq!(again, bytes);
    }

    #[test]
    fn the_default_is_empty() {
        assert!(RunList::default().is_empty());
        assert_ne!(U64List::default(), U64List::from_values(&[0]));
    }
}
