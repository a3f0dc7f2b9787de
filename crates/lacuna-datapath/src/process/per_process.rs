//! A global value that each process makes anew. A child must not inherit one: its locks may be held
//! by threads that do not exist in the child.

#![allow(unsafe_code)]

use super::Process;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A global value that each process makes at its first use. The values of ancestor processes are
/// leaked, because inherited objects may still point to them.
#[derive(Debug)]
pub struct PerProcess<T: 'static> {
    /// The value of the process that used it last.
    latest: AtomicPtr<(Process, T)>,
}

impl<T: Send + Sync> PerProcess<T> {
    /// No value yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { latest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The value of the calling process, made now if there is none.
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
