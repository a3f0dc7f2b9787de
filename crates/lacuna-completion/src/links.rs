//! The links of all lists: for each entry the one behind it, in whichever list it is.
//!
//! They lie apart from the entries. A consumer follows them one after the other, and 16 of them
//! share a cache line.

use crate::sync::{AtomicU32, Ordering};

/// Not an index: the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// See the module's text.
pub(crate) struct Links(Box<[AtomicU32]>);

impl Links {
    /// One list of all entries, in the order of their indices.
    pub(crate) fn chained(count: u32) -> Self {
        let next = |index| if index + 1 == count { NONE } else { index + 1 };
        Self((0..count).map(|index| AtomicU32::new(next(index))).collect())
    }

    // Relaxed, both: a list is handed over by a release of its head, which orders its links too.

    #[inline]
    pub(crate) fn next(&self, index: u32) -> u32 {
        self.0[index as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_next(&self, index: u32, next: u32) {
        self.0[index as usize].store(next, Ordering::Relaxed);
    }
}
