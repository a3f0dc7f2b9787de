//! Fork detection: which process made an object.
//!
//! A child made by `fork` has a copy of the memory, shares the open descriptors with its parent, and
//! has none of the parent's threads but the one that forked. So what it has inherited is of no use to
//! it: locks may be held for ever by threads that are not there, and each byte that it sends goes out
//! on the parent's connections. All that a child can do with it is to close the descriptors. For
//! that each object notes the process that made it ([`Process`], [`Own`]), and each descriptor is
//! noted by its number ([`descriptors`]).
//!
//! The check must cost nothing, as it stands in front of calls that take some 20 ns. On Linux it is
//! a word on a page that the kernel empties in each child (`MADV_WIPEONFORK`, Linux 4.14): it notices
//! `clone` without the C library too, which handlers of `pthread_atfork` do not. Elsewhere it is the
//! process's number, which costs a system call.

pub mod descriptors;
mod single;
mod syscall;

pub use single::PerProcess;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process, told apart from those that it descends from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

/// Processes of this line of descent so far. A child inherits it, so that no number comes twice in a
/// line; that siblings have the same does not matter, as neither has anything of the other's.
static COUNT: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The process that asks.
    #[must_use]
    pub fn current() -> Self {
        let Some(word) = syscall::wiped_word() else { return Self(std::process::id().into()) };
        let known = word.load(Ordering::Acquire);
        if known != 0 {
            return Self(known);
        }
        let next = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
        let first = word.compare_exchange(0, next, Ordering::AcqRel, Ordering::Acquire);
        Self(first.map_or_else(|known| known, |_| next))
    }

    /// Whether it is the process that asks.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        match syscall::wiped_word() {
            Some(word) => word.load(Ordering::Relaxed) == self.0,
            None => u64::from(std::process::id()) == self.0,
        }
    }
}

/// A value that ends in the process that made it. Where a child process drops what it has inherited,
/// the value is left as it is, memory and all, as threads that are not there may have been in the
/// middle of changing it; and all inherited descriptors are closed.
pub struct Own<T> {
    /// There until it is dropped.
    value: Option<T>,
    process: Process,
}

impl<T> Own<T> {
    /// Made by the process that asks.
    pub fn new(value: T) -> Self {
        Self { value: Some(value), process: Process::current() }
    }

    /// Whether another process made it.
    pub fn is_inherited(&self) -> bool {
        !self.process.is_current()
    }
}

impl<T: Clone> Clone for Own<T> {
    fn clone(&self) -> Self {
        // A child's copy of what it has inherited is inherited, too.
        Self { value: self.value.clone(), process: self.process }
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.value.as_ref().expect("there until it is dropped")
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        if self.is_inherited() {
            std::mem::forget(self.value.take());
            descriptors::close_inherited();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Own<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
