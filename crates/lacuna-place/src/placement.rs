//! The memory of one receive. Workers copy payloads into it without a lock; only bounds are checked.
//! In a simulation a receive may have no memory.
//!
//! A `&mut [u8]` is not possible here: several workers write disjoint parts at once while the
//! application reads the complete parts. `Placement::write` states the contract that makes this sound;
//! `writer.rs` (one writer per byte) and `slot.rs` (no writer after `retire`) guarantee it.

#![allow(unsafe_code)]

mod elsewhere;

use crate::discard::Discard;
use crate::pool::BufferPool;
use crate::prefetch::prefetch_at;
use crate::region::{Slices, Unbound};
use crate::sync::Shadow;
use elsewhere::Pooled;
use lacuna_crc::Crc32c;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory for payloads: a buffer or a part of one.
///
/// Other crates can make a placement and post it once, but not share it: with two slots over the same
/// bytes, the bytes would have two writers.
pub struct Placement {
    /// `None` if there is no memory, or not in one piece from the beginning.
    start: Option<NonNull<u8>>,
    len: usize,
    owner: Owner,
    shadow: Shadow,
}

/// Keeps the memory alive.
enum Owner {
    /// The only placement over the memory.
    Unique(Memory),
    /// One of several parts; the last one frees owned memory.
    Shared(Arc<Memory>),
}

/// The memory; freed on drop if it is owned.
enum Memory {
    /// The raw parts of a vector: start, length, capacity.
    Owned(*mut u8, usize, usize),
    /// Memory of the caller.
    Foreign,
    /// None: the first packet of the message chooses its place in a region.
    Unbound(Unbound),
    /// None: the bytes are in a region, which is reached under its key only.
    InRegion,
    /// Parts of regions.
    Slices(Slices),
    /// A buffer that the first packet takes from a pool.
    Pooled(Box<Pooled>),
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
    /// Takes a vector's memory; [`Placement::into_vec`] returns it.
    #[inline]
    pub fn from_vec(buffer: Vec<u8>) -> Self {
        let mut buffer = ManuallyDrop::new(buffer);
        let (start, len) = (buffer.as_mut_ptr(), buffer.len());
        let owner = Owner::Unique(Memory::Owned(start, len, buffer.capacity()));
        Self { start: NonNull::new(start), len, owner, shadow: Shadow::new(len) }
    }

    /// A receive of `len` bytes without memory, for a simulation: payloads are not stored, the record is
    /// kept as usual, and chunks cannot be read.
    #[inline]
    pub fn phantom(len: usize) -> Self {
        Self { start: None, len, owner: Owner::Unique(Memory::Foreign), shadow: Shadow::new(0) }
    }

    /// For a receive whose message has no place yet.
    pub(crate) fn unbound() -> Self {
        let owner = Owner::Unique(Memory::Unbound(Unbound::default()));
        Self { start: None, len: 0, owner, shadow: Shadow::new(0) }
    }

    /// For the record of `len` bytes of a region: whoever places packets writes to the region.
    pub(crate) fn in_region(len: usize) -> Self {
        let owner = Owner::Unique(Memory::InRegion);
        Self { start: None, len, owner, shadow: Shadow::new(0) }
    }

    /// Parts of regions, which others may write, too.
    pub fn slices(slices: Slices) -> Self {
        let len = usize::try_from(slices.len()).unwrap_or(usize::MAX);
        let owner = Owner::Unique(Memory::Slices(slices));
        Self { start: None, len, owner, shadow: Shadow::new(0) }
    }

    /// A buffer that the first packet takes from a pool; [`Placement::into_vec`] returns it then. If none
    /// is taken out, it goes back to the pool.
    pub fn pooled(pool: Arc<BufferPool>) -> Self {
        let len = pool.buffer_bytes();
        let owner = Owner::Unique(Memory::Pooled(Box::new(Pooled::new(pool))));
        Self { start: None, len, owner, shadow: Shadow::new(len) }
    }

    /// The place that the first packet chooses, for a receive without one.
    #[inline]
    pub(crate) fn as_unbound(&self) -> Option<&Unbound> {
        match &self.owner {
            Owner::Unique(Memory::Unbound(unbound)) => Some(unbound),
            _ => None,
        }
    }

    /// The placement, without what an unbound receive was bound to, which no other receive takes over.
    #[inline]
    pub(crate) fn without_bound(self) -> Self {
        match self.as_unbound() {
            None => self,
            Some(_) => Self::phantom(0),
        }
    }

    /// Whether there is no memory behind it, as in a simulation.
    #[inline]
    pub fn is_phantom(&self) -> bool {
        self.start.is_none() && matches!(self.memory(), Memory::Owned(..) | Memory::Foreign)
    }

    /// Borrows memory that the caller keeps alive (the C library, blocking calls on a borrowed slice).
    ///
    /// # Safety
    /// `start..start + len` is valid for reads and writes, and nobody else
    /// accesses bytes whose chunk is not complete, until every slot that this
    /// placement is posted in was retired and every clone is dropped.
    pub unsafe fn from_raw(start: *mut u8, len: usize) -> Self {
        // C callers may pass a null pointer with a length of 0; that is not a phantom.
        let start = Some(NonNull::new(start).unwrap_or(NonNull::dangling()));
        Self { start, len, owner: Owner::Unique(Memory::Foreign), shadow: Shadow::new(len) }
    }

    /// Splits the memory into parts of `part_bytes`; the last may be shorter, and there is at least one.
    ///
    /// A buffer of a pool has one part, however long it is.
    ///
    /// # Panics
    /// If `part_bytes` is 0 and the memory is not empty.
    #[inline]
    pub fn into_parts(self, part_bytes: usize) -> impl Iterator<Item = Self> {
        let (whole, divided) = match self.len <= part_bytes || self.is_pooled() {
            true => (Some(self), None),
            false => (None, Some(self.divide(part_bytes))),
        };
        whole.into_iter().chain(divided.into_iter().flatten())
    }

    fn divide(self, part_bytes: usize) -> impl Iterator<Item = Self> {
        let (start, len, shadow) = (self.start, self.len, self.shadow.clone());
        let memory = self.share();
        let part = move |offset: usize| {
            let len = part_bytes.min(len - offset);
            Self {
                // SAFETY: the part begins within the memory, which is one piece.
                start: start.map(|start| unsafe { start.add(offset) }),
                len,
                owner: match &*memory {
                    Memory::Slices(slices) => Owner::of_slices(slices, offset, len),
                    _ => Owner::Shared(memory.clone()),
                },
                shadow: shadow.part(offset),
            }
        };
        (0..len).step_by(part_bytes).map(part)
    }

    /// Two placements over the same memory: [`Placement::into_vec`] of one shows that the other is
    /// dropped.
    #[cfg(test)]
    pub(crate) fn twice(self) -> [Self; 2] {
        let (start, len, shadow) = (self.start, self.len, self.shadow.clone());
        let memory = self.share();
        [(); 2].map(|()| Self {
            start,
            len,
            owner: Owner::Shared(memory.clone()),
            shadow: shadow.clone(),
        })
    }

    fn share(self) -> Arc<Memory> {
        match self.owner {
            Owner::Unique(memory) => Arc::new(memory),
            Owner::Shared(memory) => memory,
        }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `bytes` to `offset` of memory of any kind.
    ///
    /// # Errors
    /// If the pool has no buffer.
    ///
    /// # Panics
    /// If the bytes do not fit.
    ///
    /// # Safety
    /// As for [`Placement::write`].
    #[inline]
    pub(crate) unsafe fn put(&self, offset: usize, bytes: &[u8]) -> Result<(), Discard> {
        if self.start.is_none() {
            // SAFETY: by contract.
            return unsafe { self.put_elsewhere(offset, bytes) };
        }
        // SAFETY: by contract.
        unsafe { self.write(offset, bytes) };
        Ok(())
    }

    /// Copies `bytes` to `offset` of memory in one piece ([`Placement::is_elsewhere`]).
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
        // The next packet mostly goes behind this one. Its place comes into the cache while it is decrypted.
        // Measured: M-secure-1.
        let end = offset + bytes.len();
        let behind = bytes.len().min(self.len - end);
        prefetch_at(start.as_ptr().wrapping_add(end), behind);
    }

    /// Copies `bytes` to `offset` and adds `before` and then `bytes` to the checksum, in one pass.
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

    /// Zeroes a range.
    ///
    /// # Panics
    /// If it is out of bounds.
    ///
    /// # Safety
    /// As for [`Placement::write`].
    pub(crate) unsafe fn clear(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset);
        let Some(start) = self.start.or_else(|| self.pooled_start()) else {
            return self.zero_slices(offset, len);
        };
        self.shadow.write(offset, len);
        // SAFETY: in bounds by the first line, exclusive by contract.
        unsafe { std::ptr::write_bytes(start.as_ptr().add(offset), 0, len) };
    }

    /// Zeroes a range of memory that nobody else can write, as the exclusive borrow of its record shows.
    ///
    /// # Panics
    /// If it is out of bounds.
    pub(crate) fn zero(&mut self, offset: usize, len: usize) {
        // SAFETY: workers write only through a shared borrow of the record that owns this, and there is
        // none.
        unsafe { self.clear(offset, len) };
    }

    /// The bytes of a range; `None` if there is no memory, or others may write it.
    ///
    /// # Panics
    /// If the range is out of bounds.
    ///
    /// # Safety
    /// Nobody writes this range while the slice lives.
    #[inline]
    pub(crate) unsafe fn read(&self, offset: usize, len: usize) -> Option<&[u8]> {
        assert!(offset <= self.len && len <= self.len - offset);
        let start = self.start.or_else(|| self.pooled_start())?;
        self.shadow.read(offset, len);
        // SAFETY: in bounds by the first line and initialised (it was a vector's
        // or the contract of `from_raw`); not written by contract.
        Some(unsafe { std::slice::from_raw_parts(start.as_ptr().add(offset), len) })
    }

    fn memory(&self) -> &Memory {
        match &self.owner {
            Owner::Unique(memory) => memory,
            Owner::Shared(memory) => memory,
        }
    }

    /// Whether all other parts of the memory are dropped.
    #[inline]
    pub fn is_unique(&self) -> bool {
        match &self.owner {
            Owner::Unique(_) => true,
            Owner::Shared(memory) => Arc::strong_count(memory) == 1,
        }
    }

    /// Returns the whole vector; or the placement if other parts exist, or the memory is not one.
    #[inline]
    pub fn into_vec(self) -> Result<Vec<u8>, Self> {
        let Self { start, len, owner, shadow } = self;
        let mut memory = match owner {
            Owner::Unique(memory) => memory,
            Owner::Shared(memory) => match Arc::try_unwrap(memory) {
                Ok(memory) => memory,
                Err(memory) => {
                    return Err(Self { start, len, owner: Owner::Shared(memory), shadow });
                }
            },
        };
        if let Memory::Pooled(pooled) = &mut memory
            && let Some(buffer) = pooled.take()
        {
            return Ok(buffer);
        }
        let Memory::Owned(vec_start, vec_len, capacity) = memory else {
            return Err(Self { start, len, owner: Owner::Unique(memory), shadow });
        };
        std::mem::forget(memory);
        // SAFETY: the parts of a vector taken apart in `from_vec`; this was the last handle and `Memory`
        // is not dropped.
        Ok(unsafe { Vec::from_raw_parts(vec_start, vec_len, capacity) })
    }
}

/// [`Placement::write_summed`] without memory.
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
