//! Memory of the entries. A cell is written by whoever took its index from the free list, and read
//! by whoever took that index from the queue; both give it away by a release of the list's head.
//!
//! Cells are not initialised, so that entries that were never used take no memory: the free list
//! hands out those first that were used last.

#![allow(unsafe_code)]

use crate::sync::UnsafeCell;
use std::mem::MaybeUninit;

/// Neighbours are used by different threads at the same time, so they share no cache line.
#[repr(align(64))]
struct Cell<T>(UnsafeCell<MaybeUninit<T>>);

/// See the module's text.
pub(crate) struct Cells<T>(Box<[Cell<T>]>);

// SAFETY: a cell is accessed by one thread at a time, as the contracts of `write` and `read` ask;
// values move between threads, which needs `T: Send`.
unsafe impl<T: Send> Sync for Cells<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Cells<T> {}

impl<T> Cells<T> {
    pub(crate) fn new(count: u32) -> Self {
        let cell = |_| Cell(UnsafeCell::new(MaybeUninit::uninit()));
        Self((0..count).map(cell).collect())
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// # Safety
    /// The caller alone has `index`, and it came from the free list: the cell holds nothing.
    #[inline]
    pub(crate) unsafe fn write(&self, index: u32, value: T) {
        self.0[index as usize].0.with_mut(|cell| {
            // SAFETY: nobody else accesses the cell. It holds no value that this would leak.
            unsafe { (*cell).write(value) };
        });
    }

    /// Moves the value out.
    ///
    /// # Safety
    /// The caller alone has `index`, and it came from the queue: `write` was the last access.
    #[inline]
    pub(crate) unsafe fn read(&self, index: u32) -> T {
        self.0[index as usize].0.with_mut(|cell| {
            // SAFETY: nobody else accesses the cell, and it was written since it was last read.
            unsafe { (*cell).assume_init_read() }
        })
    }
}
