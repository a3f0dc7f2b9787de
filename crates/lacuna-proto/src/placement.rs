//! The memory of one receive, as the workers see it: a place to copy payloads
//! to, with no lock and no check but bounds.
//!
//! Safe code cannot hold a `&mut [u8]` here: several workers write disjoint
//! parts at once while the application reads the parts that are complete. What
//! makes that sound is said at `Placement::write`; who guarantees it is
//! `table.rs` (one writer per byte) and `slot.rs` (no writer after `retire`).

#![allow(unsafe_code)]

use crate::sync::Shadow;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// Memory that payloads are placed into: all of a buffer or a part of it.
///
/// Outside of this crate it can be made and posted once, not shared: two slots
/// over the same bytes would be two writers.
pub struct Placement {
    start: *mut u8,
    len: usize,
    memory: Arc<Memory>,
    shadow: Shadow,
}

/// Keeps the bytes alive; the last part to go frees what is owned.
enum Memory {
    /// A vector taken apart: start, length, capacity.
    Owned(*mut u8, usize, usize),
    Foreign,
}

// SAFETY: the memory is plain bytes without thread affinity; accesses from
// several threads are governed by the contracts of `write` and `read`.
unsafe impl Send for Placement {}
// SAFETY: as above; `&Placement` gives access only through those contracts.
unsafe impl Sync for Placement {}
// SAFETY: as above; freeing the vector on another thread is fine.
unsafe impl Send for Memory {}
// SAFETY: as above; `&Memory` gives no access.
unsafe impl Sync for Memory {}

impl Placement {
    /// Takes a vector's memory; [`Placement::into_vec`] gives it back.
    pub fn from_vec(buffer: Vec<u8>) -> Self {
        let mut buffer = ManuallyDrop::new(buffer);
        let (start, len) = (buffer.as_mut_ptr(), buffer.len());
        let memory = Arc::new(Memory::Owned(start, len, buffer.capacity()));
        Self { start, len, memory, shadow: Shadow::new(len) }
    }

    /// Borrows foreign memory: the door for callers that keep the memory alive
    /// themselves (the C library, blocking calls on a borrowed slice).
    ///
    /// # Safety
    /// `start..start + len` is valid for reads and writes, and nobody else
    /// accesses bytes whose chunk is not complete, until every slot that this
    /// placement is posted in was retired and every clone is dropped.
    pub unsafe fn from_raw(start: *mut u8, len: usize) -> Self {
        Self { start, len, memory: Arc::new(Memory::Foreign), shadow: Shadow::new(len) }
    }

    /// A part of the same memory, for a message of several slots.
    ///
    /// # Panics
    /// If the range is out of bounds.
    pub(crate) fn part(&self, offset: usize, len: usize) -> Self {
        assert!(offset <= self.len && len <= self.len - offset);
        let start = self.start.wrapping_add(offset);
        Self { start, len, memory: self.memory.clone(), shadow: self.shadow.part(offset) }
    }

    /// Bytes that can be placed.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no room at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If the bytes do not fit.
    ///
    /// # Safety
    /// No other thread reads or writes this range during the call, and the
    /// memory is still lent (the slot is pinned).
    #[inline]
    pub(crate) unsafe fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset);
        self.shadow.write(offset, bytes.len());
        // SAFETY: in bounds by the line above; `bytes` is a shared borrow of
        // other memory, so the ranges do not overlap; exclusive by contract.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(offset), bytes.len());
        }
    }

    /// The bytes of a range.
    ///
    /// # Panics
    /// If the range is out of bounds.
    ///
    /// # Safety
    /// Nobody writes this range while the slice lives.
    #[inline]
    pub(crate) unsafe fn read(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset);
        self.shadow.read(offset, len);
        // SAFETY: in bounds by the line above and initialised (it was a vector's
        // or the contract of `from_raw`); not written by contract.
        unsafe { std::slice::from_raw_parts(self.start.add(offset), len) }
    }

    /// Whether this is the only handle on the memory: all parts are gone.
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }

    /// The whole vector again, or the placement while other parts live or the
    /// memory is foreign.
    pub fn into_vec(self) -> Result<Vec<u8>, Self> {
        let Self { start, len, memory, shadow } = self;
        match Arc::try_unwrap(memory) {
            Ok(memory) => {
                let memory = ManuallyDrop::new(memory);
                match *memory {
                    Memory::Owned(start, len, capacity) => {
                        // SAFETY: the parts of a vector taken apart in `from_vec`;
                        // this was the last handle and `Memory` is not dropped.
                        Ok(unsafe { Vec::from_raw_parts(start, len, capacity) })
                    }
                    Memory::Foreign => {
                        Err(Self { start, len, memory: Arc::new(Memory::Foreign), shadow })
                    }
                }
            }
            Err(memory) => Err(Self { start, len, memory, shadow }),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Self::Owned(start, len, capacity) = *self {
            // SAFETY: as in `into_vec`, and `drop` runs once.
            drop(unsafe { Vec::from_raw_parts(start, len, capacity) });
        }
    }
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Placement")
            .field("len", &self.len)
            .field("owned", &matches!(*self.memory, Memory::Owned(..)))
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_comes_back_with_what_was_placed() {
        let placement = Placement::from_vec(vec![0; 8]);
        // SAFETY: no other thread knows the placement.
        unsafe {
            placement.write(2, &[1, 2, 3]);
            assert_eq!(placement.read(1, 4), [0, 1, 2, 3]);
        }
        assert_eq!(placement.into_vec().unwrap(), [0, 0, 1, 2, 3, 0, 0, 0]);
    }

    #[test]
    fn a_vector_comes_back_only_when_its_parts_are_gone() {
        let whole = Placement::from_vec(vec![0; 8]);
        let part = whole.part(4, 4);
        let whole = whole.into_vec().unwrap_err();
        // SAFETY: no other thread knows the placement.
        unsafe { part.write(0, &[9]) };
        drop(part);
        assert_eq!(whole.into_vec().unwrap()[4], 9);
    }

    #[test]
    #[should_panic(expected = "bytes.len() <= self.len - offset")]
    fn placing_past_the_end_panics_instead_of_writing() {
        // SAFETY: no other thread knows the placement.
        unsafe { Placement::from_vec(vec![0; 8]).write(6, &[1, 2, 3]) };
    }
}
