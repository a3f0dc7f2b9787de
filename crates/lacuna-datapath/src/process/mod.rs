//! Fork detection: which process made an object.
//!
//! A child made by `fork` has a copy of the memory, shares the open descriptors with its parent, and
//! has only the thread that forked. It cannot use the objects that it inherits: locks may be held by
//! threads that do not exist in the child, and bytes that it sends go out on the parent's
//! connections. All it can do is close the descriptors. For that, each object records the process
//! that made it ([`Process`], [`Own`]), and a table records each open descriptor ([`descriptors`]).
//!
//! The check stands in front of calls that take some 20 ns, so it must be cheap. On Linux it reads a
//! word on a page that the kernel zeroes in each child (`MADV_WIPEONFORK`, Linux 4.14). That detects
//! a raw `clone` too, which `pthread_atfork` handlers miss. Elsewhere it asks for the process ID,
//! which costs a system call.

pub mod descriptors;
mod per_process;
mod syscall;

pub use per_process::PerProcess;

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

/// Identifies a process among its ancestors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

/// Processes of this line of descent so far. A child inherits the count, so a number is unique among
/// a process and its ancestors. Siblings may share one: neither has objects of the other.
static COUNT: AtomicU64 = AtomicU64::new(0);

impl Process {
    /// The calling process.
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

    /// Whether this is the calling process.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        match syscall::wiped_word() {
            Some(word) => word.load(Ordering::Relaxed) == self.0,
            None => u64::from(std::process::id()) == self.0,
        }
    }
}

/// A value that only the process that made it drops. When a child drops an inherited `Own`, it leaks
/// the value, because a thread of the parent may have been changing it during the fork, and closes
/// all inherited descriptors.
pub struct Own<T> {
    /// `Some` until `drop`.
    value: Option<T>,
    process: Process,
}

impl<T> Own<T> {
    /// A value of the calling process.
    pub fn new(value: T) -> Self {
        Self { value: Some(value), process: Process::current() }
    }

    /// Whether another process made the value.
    pub fn is_inherited(&self) -> bool {
        !self.process.is_current()
    }
}

impl<T: Clone> Clone for Own<T> {
    fn clone(&self) -> Self {
        // A child's clone of an inherited value counts as inherited, too.
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
