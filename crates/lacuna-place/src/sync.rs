//! Atomics, locks and cells, from the standard library or from loom.
//!
//! Every lock-free type of the crate imports them from here. Under `--cfg loom` the same code runs
//! against loom's memory model, which explores all interleavings of a small case.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// `std::cell::UnsafeCell` with loom's closure interface.
#[cfg(not(loom))]
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// A cell that is set once.
#[cfg(not(loom))]
pub(crate) use std::sync::OnceLock as SetOnce;

/// The standard library's cell, with its order of accesses told to loom. Nothing that loom switches
/// threads at is between the flag and the cell, so they change together.
#[cfg(loom)]
#[derive(Debug)]
pub(crate) struct SetOnce<T> {
    is_set: AtomicU32,
    cell: std::sync::OnceLock<T>,
}

#[cfg(loom)]
impl<T> SetOnce<T> {
    pub(crate) fn new() -> Self {
        Self { is_set: AtomicU32::new(0), cell: std::sync::OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) == 1 { self.cell.get() } else { None }
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        match self.is_set.fetch_or(1, Ordering::AcqRel) {
            0 => self.cell.set(value),
            _ => Err(value),
        }
    }

    pub(crate) fn take(&mut self) -> Option<T> {
        self.is_set = AtomicU32::new(0);
        self.cell.take()
    }
}

#[cfg(loom)]
impl<T> Default for SetOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A function that yields the core to other threads: `std::thread::yield_now`, or
/// `core::hint::spin_loop` where there is only one thread. The owner of the threads chooses.
pub type Yield = fn();

/// Waits a little for another thread. The first 64 rounds spin; later ones yield the core, because on a
/// machine with fewer cores than workers the other thread may not be running.
#[inline]
pub(crate) fn back_off(round: u32, yield_now: Yield) {
    #[cfg(not(loom))]
    if round < 64 {
        core::hint::spin_loop();
    } else {
        yield_now();
    }
    #[cfg(loom)]
    {
        let _ = (round, yield_now);
        loom::thread::yield_now();
    }
}

/// Shadows plain memory for loom: a cell for every 64 bytes, accessed along with them, so that loom
/// reports unordered reads and writes. Without loom it is empty.
#[cfg(not(loom))]
#[derive(Debug, Clone)]
pub(crate) struct Shadow;

#[cfg(not(loom))]
impl Shadow {
    pub(crate) fn new(_len: usize) -> Self {
        Self
    }

    pub(crate) fn part(&self, _offset: usize) -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn write(&self, _offset: usize, _len: usize) {}

    #[inline(always)]
    pub(crate) fn read(&self, _offset: usize, _len: usize) {}
}

#[cfg(loom)]
#[derive(Clone)]
pub(crate) struct Shadow {
    cells: std::sync::Arc<[UnsafeCell<()>]>,
    start: usize,
}

#[cfg(loom)]
impl Shadow {
    const UNIT: usize = 64;

    pub(crate) fn new(len: usize) -> Self {
        Self { cells: (0..=len / Self::UNIT).map(|_| UnsafeCell::new(())).collect(), start: 0 }
    }

    pub(crate) fn part(&self, offset: usize) -> Self {
        Self { cells: self.cells.clone(), start: self.start + offset }
    }

    fn cells(&self, offset: usize, len: usize) -> &[UnsafeCell<()>] {
        let start = self.start + offset;
        &self.cells[start / Self::UNIT..(start + len).div_ceil(Self::UNIT)]
    }

    pub(crate) fn write(&self, offset: usize, len: usize) {
        self.cells(offset, len).iter().for_each(|cell| cell.with_mut(|_| ()));
    }

    pub(crate) fn read(&self, offset: usize, len: usize) {
        self.cells(offset, len).iter().for_each(|cell| cell.with(|_| ()));
    }
}
