//! The entries that are not in use: a lock-free stack of indices (Treiber), last in, first out, so
//! that as few entries as possible are touched and these are in the caches.
//!
//! A count beside the index changes with each `pop`. Without it a `pop` that was interrupted could
//! take an index that others took and gave back meanwhile, with a link that is out of date (ABA).

use crate::links::{Links, NONE};
use crate::sync::{AtomicU64, Ordering};

/// Bits 0 to 31: the first index. Bits 32 to 63: how many were taken, wrapping.
pub(crate) struct FreeList(AtomicU64);

const TAKEN: u64 = 1 << 32;

impl FreeList {
    /// All entries that `links` chains, from index 0 on.
    pub(crate) fn all() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Takes an entry. `None` if there is none, which a reservation excludes.
    #[inline]
    pub(crate) fn pop(&self, links: &Links) -> Option<u32> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            let first = word as u32;
            if first == NONE {
                return None;
            }
            let rest =
                (word & !u64::from(u32::MAX)).wrapping_add(TAKEN) | u64::from(links.next(first));
            // Acquire: whoever gave the entry back has read its cell before.
            match self.0.compare_exchange_weak(word, rest, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(first),
                Err(now) => word = now,
            }
        }
    }

    /// Gives back the list from `first` to `last`.
    #[inline]
    pub(crate) fn push_list(&self, links: &Links, first: u32, last: u32) {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            links.set_next(last, word as u32);
            let more = word & !u64::from(u32::MAX) | u64::from(first);
            match self.0.compare_exchange_weak(word, more, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}
