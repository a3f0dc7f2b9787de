//! A value of which each process has one: what is global must not be inherited, as its locks may be
//! held by threads that a child does not have.

#![allow(unsafe_code)]

use super::Process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A value that is made anew in each process that asks for it. Those of processes that this one
/// descends from stay where they are, for the objects that use them.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    /// That of the process that asked last.
    latest: AtomicPtr<(Process, T)>,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Nobody has asked yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { latest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value of the process that asks, made if it has none.
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &'static T {
        let mut known = self.latest.load(Ordering::Acquire);
        // SAFETY: null, or a box that was leaked below.
        match unsafe { known.as_ref() } {
            Some((process, value)) if process.is_current() => return value,
            _ => {}
        }
        let mine = Box::into_raw(Box::new((Process::current(), make())));
        loop {
            let first =
                self.latest.compare_exchange(known, mine, Ordering::AcqRel, Ordering::Acquire);
            let Err(others) = first else { break };
            // SAFETY: not null any more, and leaked as above.
            if let Some((process, value)) = unsafe { others.as_ref() }
                && process.is_current()
            {
                // SAFETY: made of a box above, and nobody has got to know it.
                drop(unsafe { Box::from_raw(mine) });
                return value;
            }
            known = others;
        }
        // SAFETY: it is leaked: `latest` lets go of what it had, and frees nothing.
        unsafe { &(*mine).1 }
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}
