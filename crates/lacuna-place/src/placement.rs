//! The memory of one receive, as the workers see it: payloads are copied to it without a lock, and
//! only bounds are checked. A receive may have no memory, in a simulation.
//!
//! Safe code cannot hold a `&mut [u8]` here: several workers write disjoint
//! parts at once while the application reads the parts that are complete. What
//! makes that sound is said at `Placement::write`; who guarantees it is
//! `table.rs` (one writer per byte) and `slot.rs` (no writer after `retire`).

#![allow(unsafe_code)]

use crate::sync::Shadow;
use lacuna_crc::Crc32c;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that payloads are placed into: all of a buffer or a part of it.
///
/// Outside of this crate it can be made and posted once, not shared: two slots
/// over the same bytes would be two writers.
pub struct Placement {
    /// `None` if there is no memory.
    start: Option<NonNull<u8>>,
    len: usize,
    hold: Hold,
    shadow: Shadow,
}

/// Keeps the bytes alive.
enum Hold {
    /// By the only placement over them.
    Alone(Memory),
    /// By parts; the last to go frees what is owned.
    Shared(Arc<Memory>),
}

/// Bytes, freed with it if they are owned.
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
    #[inline]
    pub fn from_vec(buffer: Vec<u8>) -> Self {
        let mut buffer = ManuallyDrop::new(buffer);
        let (start, len) = (buffer.as_mut_ptr(), buffer.len());
        let hold = Hold::Alone(Memory::Owned(start, len, buffer.capacity()));
        Self { start: NonNull::new(start), len, hold, shadow: Shadow::new(len) }
    }

    /// A receive of `len` bytes without memory, for a simulation: what is placed in it goes nowhere,
    /// its record is like any other's, and its chunks cannot be read.
    pub fn phantom(len: usize) -> Self {
        Self { start: None, len, hold: Hold::Alone(Memory::Foreign), shadow: Shadow::new(0) }
    }

    /// Whether there is no memory behind it.
    #[inline]
    pub fn is_phantom(&self) -> bool {
        self.start.is_none()
    }

    /// Borrows foreign memory: the door for callers that keep the memory alive
    /// themselves (the C library, blocking calls on a borrowed slice).
    ///
    /// # Safety
    /// `start..start + len` is valid for reads and writes, and nobody else
    /// accesses bytes whose chunk is not complete, until every slot that this
    /// placement is posted in was retired and every clone is dropped.
    pub unsafe fn from_raw(start: *mut u8, len: usize) -> Self {
        // A slice of no bytes may be given as a null pointer in C; it is no phantom for it.
        let start = Some(NonNull::new(start).unwrap_or(NonNull::dangling()));
        Self { start, len, hold: Hold::Alone(Memory::Foreign), shadow: Shadow::new(len) }
    }

    /// Parts of the same memory, of `part_bytes` each but the last: one at least.
    ///
    /// # Panics
    /// If parts have no bytes and the whole has some.
    #[inline]
    pub fn into_parts(self, part_bytes: usize) -> impl Iterator<Item = Self> {
        let (whole, divided) = match self.len <= part_bytes {
            true => (Some(self), None),
            false => (None, Some(self.divide(part_bytes))),
        };
        whole.into_iter().chain(divided.into_iter().flatten())
    }

    fn divide(self, part_bytes: usize) -> impl Iterator<Item = Self> {
        let (start, len, shadow) = (self.start, self.len, self.shadow.clone());
        let memory = self.share();
        let part = move |offset: usize| Self {
            // SAFETY: the part begins within the memory, which is one piece.
            start: start.map(|start| unsafe { start.add(offset) }),
            len: part_bytes.min(len - offset),
            hold: Hold::Shared(memory.clone()),
            shadow: shadow.part(offset),
        };
        (0..len).step_by(part_bytes).map(part)
    }

    /// A second placement over all of it, which proves by [`Placement::into_vec`] that
    /// the first is gone.
    #[cfg(test)]
    pub(crate) fn twice(self) -> [Self; 2] {
        let (start, len, shadow) = (self.start, self.len, self.shadow.clone());
        let memory = self.share();
        [(); 2].map(|()| Self {
            start,
            len,
            hold: Hold::Shared(memory.clone()),
            shadow: shadow.clone(),
        })
    }

    fn share(self) -> Arc<Memory> {
        match self.hold {
            Hold::Alone(memory) => Arc::new(memory),
            Hold::Shared(memory) => memory,
        }
    }

    /// Bytes that can be placed.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no room at all.
    #[inline]
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
        let Some(start) = self.start else { return };
        self.shadow.write(offset, bytes.len());
        // SAFETY: in bounds by the first line; `bytes` is a shared borrow of
        // other memory, so the ranges do not overlap; exclusive by contract.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start.as_ptr().add(offset), bytes.len());
        }
    }

    /// The same, and takes the bytes into a checksum on the way, behind those of `before`.
    ///
    /// # Panics
    /// If the bytes do not fit.
    ///
    /// # Safety
    /// As for [`Placement::write`].
    #[inline]
    pub(crate) unsafe fn write_summed(
        &self,
        offset: usize,
        sum: &mut Crc32c,
        before: &[u8],
        bytes: &[u8],
    ) {
        assert!(offset <= self.len && bytes.len() <= self.len - offset);
        let Some(start) = self.start else { return sum_only(sum, before, bytes) };
        self.shadow.write(offset, bytes.len());
        // SAFETY: as in `write`.
        unsafe { sum.copy_to(before, bytes, start.as_ptr().add(offset)) };
    }

    /// Clears a range.
    ///
    /// # Panics
    /// If it is out of bounds.
    ///
    /// # Safety
    /// As for [`Placement::write`].
    pub(crate) unsafe fn clear(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset);
        let Some(start) = self.start else { return };
        self.shadow.write(offset, len);
        // SAFETY: in bounds by the first line, exclusive by contract.
        unsafe { std::ptr::write_bytes(start.as_ptr().add(offset), 0, len) };
    }

    /// The bytes of a range; `None` if there is no memory.
    ///
    /// # Panics
    /// If the range is out of bounds.
    ///
    /// # Safety
    /// Nobody writes this range while the slice lives.
    #[inline]
    pub(crate) unsafe fn read(&self, offset: usize, len: usize) -> Option<&[u8]> {
        assert!(offset <= self.len && len <= self.len - offset);
        let start = self.start?;
        self.shadow.read(offset, len);
        // SAFETY: in bounds by the first line and initialised (it was a vector's
        // or the contract of `from_raw`); not written by contract.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr().add(offset), len) })
    }

    fn memory(&self) -> &Memory {
        match &self.hold {
            Hold::Alone(memory) => memory,
            Hold::Shared(memory) => memory,
        }
    }

    /// Whether this is the only handle on the memory: all parts are gone.
    #[inline]
    pub fn is_unique(&self) -> bool {
        match &self.hold {
            Hold::Alone(_) => true,
            Hold::Shared(memory) => Arc::strong_count(memory) == 1,
        }
    }

    /// The whole vector again, or the placement while other parts live, or the
    /// memory is foreign or none.
    #[inline]
    pub fn into_vec(self) -> Result<Vec<u8>, Self> {
        let Self { start, len, hold, shadow } = self;
        let memory = match hold {
            Hold::Alone(memory) => memory,
            Hold::Shared(memory) => match Arc::try_unwrap(memory) {
                Ok(memory) => memory,
                Err(memory) => return Err(Self { start, len, hold: Hold::Shared(memory), shadow }),
            },
        };
        match *ManuallyDrop::new(memory) {
            Memory::Owned(start, len, capacity) => {
                // SAFETY: the parts of a vector taken apart in `from_vec`;
                // this was the last handle and `Memory` is not dropped.
                Ok(unsafe { Vec::from_raw_parts(start, len, capacity) })
            }
            Memory::Foreign => Err(Self { start, len, hold: Hold::Alone(Memory::Foreign), shadow }),
        }
    }
}

/// What [`Placement::write_summed`] does without memory.
#[cold]
fn sum_only(sum: &mut Crc32c, before: &[u8], bytes: &[u8]) {
    sum.update(before);
    sum.update(bytes);
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
            .field("owned", &matches!(self.memory(), Memory::Owned(..)))
            .field("phantom", &self.is_phantom())
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
            assert_eq!(placement.read(1, 4), Some(&[0, 1, 2, 3][..]));
        }
        assert_eq!(placement.into_vec().unwrap(), [0, 0, 1, 2, 3, 0, 0, 0]);
    }

    #[test]
    fn a_vector_comes_back_only_when_its_other_parts_are_gone() {
        let parts: Vec<_> = Placement::from_vec(vec![0; 10]).into_parts(4).collect();
        assert!(parts.iter().map(Placement::len).eq([4, 4, 2]));
        // SAFETY: no other thread knows the placement.
        unsafe { parts[2].write(1, &[9]) };
        let mut parts = parts.into_iter();
        let first = parts.next().unwrap();
        assert!(!first.is_unique());
        let first = first.into_vec().unwrap_err();
        drop(parts);
        assert!(first.is_unique());
        assert_eq!(first.into_vec().unwrap()[9], 9);
    }

    #[test]
    fn what_fits_one_part_is_one_part() {
        for len in [0, 3, 4] {
            let mut parts = Placement::from_vec(vec![7; len]).into_parts(4);
            let only = parts.next().unwrap();
            assert!(parts.next().is_none());
            assert_eq!(only.into_vec().unwrap(), vec![7; len]);
        }
    }

    #[test]
    fn a_phantom_takes_and_sums_what_it_has_no_room_for() {
        let mut parts = Placement::phantom(10).into_parts(6);
        let phantom = parts.next().unwrap();
        assert_eq!((phantom.len(), parts.next().unwrap().len()), (6, 4));
        let [mut of_phantom, mut of_memory] = [Crc32c::new(), Crc32c::new()];
        let memory = Placement::from_vec(vec![0; 6]);
        // SAFETY: no other thread knows the placements.
        unsafe {
            phantom.write(2, &[1, 2, 3]);
            phantom.write_summed(1, &mut of_phantom, &[9], &[4, 5]);
            memory.write_summed(1, &mut of_memory, &[9], &[4, 5]);
            phantom.clear(0, 6);
            assert_eq!(phantom.read(0, 6), None);
        }
        assert_eq!(of_phantom.value(), of_memory.value());
        assert!(phantom.is_phantom() && phantom.into_vec().is_err());
    }

    #[test]
    #[should_panic(expected = "bytes.len() <= self.len - offset")]
    fn placing_past_the_end_panics_instead_of_writing() {
        // SAFETY: no other thread knows the placement.
        unsafe { Placement::from_vec(vec![0; 8]).write(6, &[1, 2, 3]) };
    }
}
