//! Receives whose memory is not one piece from the beginning: parts of regions, and a buffer that the
//! first packet takes from a pool. The fast path of bursts leaves them alone ([`Placement::is_elsewhere`]),
//! so plain memory does not pay for them.
//!
//! The bytes of regions are accessed as there, since others may write them at the same time. A buffer of a
//! pool belongs to its receive alone, so the contracts of plain memory hold for it.

#![allow(unsafe_code)]

use super::{Memory, Owner, Placement};
use crate::discard::Discard;
use crate::pool::BufferPool;
use crate::region::Slices;
use crate::sync::SetOnce;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

/// A buffer that is taken from a pool when it is needed, and goes back when this is dropped.
pub(super) struct Pooled {
    pool: Arc<BufferPool>,
    /// The raw parts of the vector that was taken.
    taken: SetOnce<Parts>,
}

/// The raw parts of a vector: start, length, capacity.
struct Parts(NonNull<u8>, usize, usize);

// SAFETY: the parts own plain bytes without thread affinity, as the vector did.
unsafe impl Send for Parts {}
// SAFETY: as above; `&Parts` gives access only through the contracts of `Placement`.
unsafe impl Sync for Parts {}

impl Pooled {
    pub(super) fn new(pool: Arc<BufferPool>) -> Self {
        Self { pool, taken: SetOnce::default() }
    }

    /// The buffer, which is taken now if it was not.
    fn start(&self) -> Result<NonNull<u8>, Discard> {
        if self.taken.get().is_none() {
            let mut buffer = ManuallyDrop::new(self.pool.take().ok_or(Discard::Pool)?);
            // A vector's pointer is never null.
            let start = NonNull::new(buffer.as_mut_ptr()).unwrap_or(NonNull::dangling());
            let parts = Parts(start, buffer.len(), buffer.capacity());
            if let Err(unneeded) = self.taken.set(parts) {
                // Another worker was first.
                self.pool.put(unneeded.into_vec());
            }
        }
        self.taken.get().map(|Parts(start, ..)| *start).ok_or(Discard::Pool)
    }

    /// Takes the buffer out, if there is one.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        self.taken.take().map(Parts::into_vec)
    }
}

impl Parts {
    fn into_vec(self) -> Vec<u8> {
        // SAFETY: the parts of a vector taken apart in `start`; they are moved out, so this is done once.
        unsafe { Vec::from_raw_parts(self.0.as_ptr(), self.1, self.2) }
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(buffer) = self.take() {
            self.pool.put(buffer);
        }
    }
}

impl Owner {
    /// A part of a list.
    pub(super) fn of_slices(slices: &Slices, offset: usize, len: usize) -> Self {
        let range = offset as u64..(offset + len) as u64;
        let part = slices.part(range).expect("a part of the memory");
        Self::Unique(Memory::Slices(part))
    }
}

impl Placement {
    /// Whether there is memory, but not in one piece from the beginning.
    #[inline]
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.start.is_none() && matches!(self.memory(), Memory::Slices(_) | Memory::Pooled(_))
    }

    /// Whether others may write the memory at any time.
    #[inline]
    pub(crate) fn is_in_regions(&self) -> bool {
        matches!(self.memory(), Memory::Slices(_) | Memory::InRegion)
    }

    /// Whether this is the place of a message in a region, which its first packet has chosen.
    #[inline]
    pub(crate) fn is_in_window(&self) -> bool {
        matches!(self.memory(), Memory::InRegion)
    }

    /// Whether the memory is a buffer that the first packet takes from a pool.
    pub fn is_pooled(&self) -> bool {
        matches!(self.memory(), Memory::Pooled(_))
    }

    /// Copies `bytes` to `offset` of such memory.
    ///
    /// # Errors
    /// If the pool has no buffer.
    ///
    /// # Safety
    /// As for [`Placement::write`].
    #[cold]
    pub(super) unsafe fn put_elsewhere(&self, offset: usize, bytes: &[u8]) -> Result<(), Discard> {
        assert!(offset <= self.len && bytes.len() <= self.len - offset);
        match self.memory() {
            Memory::Slices(slices) => {
                slices.write(offset as u64, bytes).map_err(|_| Discard::OutOfRange)
            }
            Memory::Pooled(pooled) => {
                let start = pooled.start()?;
                self.shadow.write(offset, bytes.len());
                // SAFETY: a buffer has `len` bytes, so this is in bounds by the first line; `bytes` is
                // other memory; exclusive by contract.
                unsafe {
                    let to = start.as_ptr().add(offset);
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Where the buffer of a pool begins, if one was taken.
    #[cold]
    pub(super) fn pooled_start(&self) -> Option<NonNull<u8>> {
        let Memory::Pooled(pooled) = self.memory() else { return None };
        pooled.taken.get().map(|Parts(start, ..)| *start)
    }

    /// Zeroes a range that is in bounds, if the memory is parts of regions.
    #[cold]
    pub(super) fn zero_slices(&self, offset: usize, len: usize) {
        if let Memory::Slices(slices) = self.memory() {
            let range = offset as u64..(offset + len) as u64;
            slices.zero(range).expect("the caller has checked the bounds");
        }
    }

    /// Copies bytes of memory that others may write to all of `out`; `false` if it is none.
    pub(crate) fn copy(&self, offset: u64, out: &mut [u8]) -> bool {
        matches!(self.memory(), Memory::Slices(slices) if slices.read(offset, out).is_ok())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::region::{Region, RegionConfig, Stride};

    #[test]
    fn a_buffer_is_taken_by_the_first_bytes_and_goes_back_unless_it_is_taken_out() {
        let pool = BufferPool::new(8);
        pool.put(vec![9; 8]);
        let placement = Placement::pooled(pool.clone());
        assert!(placement.is_elsewhere() && !placement.is_phantom());
        assert_eq!((placement.len(), pool.free()), (8, 1));
        // SAFETY: no other thread knows the placement, here and below.
        assert_eq!(unsafe { placement.put(2, &[1, 2]) }, Ok(()));
        assert_eq!(pool.free(), 0);
        let other = Placement::pooled(pool.clone());
        // SAFETY: as above.
        assert_eq!(unsafe { other.put(0, &[1]) }, Err(Discard::Pool));
        // SAFETY: as above.
        assert_eq!(unsafe { placement.read(1, 4) }, Some(&[9, 1, 2, 9][..]));
        assert_eq!(placement.into_vec().unwrap(), [9, 9, 1, 2, 9, 9, 9, 9]);
        assert!(other.into_vec().is_err());
        pool.put(Vec::new());
        let placement = Placement::pooled(pool.clone());
        // SAFETY: as above.
        assert_eq!(unsafe { placement.put(0, &[5]) }, Ok(()));
        drop(placement);
        assert_eq!(pool.free(), 1);
    }

    #[test]
    fn parts_of_a_list_place_where_the_list_says() {
        let region = Region::new(vec![7; 100], RegionConfig::default());
        let columns = Stride { start: 10, bytes: 2, stride: 10, count: 5 };
        let list = Slices::new([(region.clone(), columns)]).unwrap();
        let mut parts: Vec<_> = Placement::slices(list).into_parts(4).collect();
        assert!(parts.iter().map(Placement::len).eq([4, 4, 2]));
        // SAFETY: the memory is that of a region.
        unsafe { parts[1].put(1, &[1, 2, 3]) }.unwrap();
        parts[2].zero(0, 2);
        let mut bytes = [0; 100];
        region.read(0, &mut bytes).unwrap();
        let changed = |(at, byte): (usize, &u8)| (*byte != 7).then_some((at, *byte));
        let changed: Vec<_> = bytes.iter().enumerate().filter_map(changed).collect();
        assert_eq!(changed, [(31, 1), (40, 2), (41, 3), (50, 0), (51, 0)]);
        // SAFETY: as above.
        assert_eq!(unsafe { parts[1].read(0, 4) }, None);
        let mut out = [0; 2];
        assert!(parts[1].copy(2, &mut out) && out == [2, 3]);
        assert!(!Placement::from_vec(vec![0; 4]).copy(0, &mut out));
    }
}

/// `RUSTFLAGS="--cfg loom" cargo test -p lacuna-place --release elsewhere::loom`
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::thread;

    #[test]
    fn workers_that_take_a_buffer_at_the_same_time_share_one() {
        loom::model(|| {
            let pool = BufferPool::new(128);
            (0..2).for_each(|_| pool.put(Vec::new()));
            let placement = Arc::new(Placement::pooled(pool.clone()));
            let other = {
                let placement = placement.clone();
                // SAFETY: each thread writes bytes of its own.
                thread::spawn(move || unsafe { placement.put(64, &[1; 64]) }.unwrap())
            };
            // SAFETY: as above.
            unsafe { placement.put(0, &[2; 64]) }.unwrap();
            other.join().unwrap();
            let placement = Arc::into_inner(placement).expect("the other has ended");
            let buffer = placement.into_vec().unwrap();
            assert_eq!((buffer[0], buffer[127], pool.free()), (2, 1, 1));
        });
    }
}
