//! Memory for the data of a run that must be gathered. A thread builds one run after another and drops
//! each when it was sent, so it uses the same memory again and again: after the first runs nothing is
//! allocated.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// Most pieces of memory that a thread keeps. A worker holds the runs of one batch at a time. A judgement.
const KEPT_MAX: usize = 16;
/// Longest piece that it keeps: a good deal more than the longest run.
const KEPT_BYTES_MAX: usize = 1 << 20;

thread_local! {
    static KEPT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Memory of a given length, whose contents are those of an earlier use.
#[derive(Debug)]
pub(super) struct Scratch(Vec<u8>);

impl Scratch {
    /// `len` bytes.
    pub(super) fn new(len: usize) -> Self {
        let kept = KEPT.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
        let mut memory = kept.unwrap_or_default();
        memory.resize(len, 0);
        Self(memory)
    }
}

impl Deref for Scratch {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        let mut clone = Self::new(self.len());
        clone.copy_from_slice(self);
        clone
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.0);
        if memory.capacity() > KEPT_BYTES_MAX {
            return;
        }
        // An error means that the thread is ending.
        _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT_MAX {
                kept.push(memory);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_one_run_serves_the_next() {
        let first = Scratch::new(1000);
        let place = first.as_ptr();
        drop(first);
        let second = Scratch::new(999);
        assert_eq!((second.as_ptr(), second.len()), (place, 999));
        assert_ne!(second.clone().as_ptr(), place);
    }
}
