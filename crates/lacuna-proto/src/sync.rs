//! The one door to atomics and cells, so that loom can stand in for them.
//!
//! Every lock-free type of the crate imports from here. Under `--cfg loom` the
//! same code runs against loom's model of memory, which explores all
//! interleavings of a small case.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

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

/// Waits a little for another thread. The first rounds only hint to the
/// processor; after that the thread gives its core away, because on a machine
/// with fewer cores than workers the awaited thread may not be running.
#[inline]
pub(crate) fn back_off(round: u32) {
    #[cfg(not(loom))]
    if round < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
}
