//! Objects that C programs hold by pointer: each has an address that stays good
//! for as long as its pool, whatever the program does with it.
//!
//! An object whose use has ended goes back to its pool, and a later use takes the
//! one that has rested longest. So a pointer that is used after its end, by
//! mistake or because another thread was faster, finds an object that says "not
//! in use", and not freed memory. Memory is bounded by the most objects that were
//! in use at once, and the resting ones.
//!
//! Invariants:
//! - an object's address is given out only while the pool lives, and the object
//!   is freed only with the pool;
//! - an object is in the resting list or in use, never both.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Objects that rest before one of them is used again (a judgement: more than
/// the queue depths that programs use, and a few KiB).
const RESTING_MIN: usize = 256;

/// Indices of objects that are not in use, the longest resting first.
#[derive(Debug, Default)]
pub(crate) struct Resting(Mutex<VecDeque<usize>>);

impl Resting {
    /// The object's use has ended.
    pub(crate) fn put(&self, index: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(index);
    }
}

/// See the module's text.
pub(crate) struct Pool<T> {
    all: Mutex<Vec<NonNull<T>>>,
    resting: Arc<Resting>,
    limit: usize,
}

// SAFETY: a pool owns its objects as a vector of boxes would, and gives out
// shared references only.
unsafe impl<T: Send + Sync> Send for Pool<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Pool<T> {}

impl<T> Pool<T> {
    /// A pool of at most `limit` objects.
    pub(crate) fn new(limit: usize) -> Self {
        Self { all: Mutex::new(Vec::new()), resting: Arc::default(), limit }
    }

    /// Takes an object into use; `make` is called for a new one with its index,
    /// and with where to put that back. `None` if all that there may be are in use.
    pub(crate) fn take(&self, make: impl FnOnce(usize, Arc<Resting>) -> T) -> Option<&T> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let mut resting = self.resting.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = all.len() >= self.limit;
        let reused =
            if is_full || resting.len() >= RESTING_MIN { resting.pop_front() } else { None };
        let object = match reused {
            Some(index) => all[index],
            None if is_full => return None,
            None => {
                let object = Box::new(make(all.len(), self.resting.clone()));
                // The pointer of a box that is taken apart: moving a box would
                // end the validity of pointers to its inside.
                let object = NonNull::from(Box::leak(object));
                all.push(object);
                object
            }
        };
        // SAFETY: made of a box, and freed only with the pool, which is borrowed.
        Some(unsafe { object.as_ref() })
    }

    /// Calls `each` for every object, in use or not.
    pub(crate) fn for_each(&self, each: impl FnMut(&T)) {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // SAFETY: as in `take`.
        all.into_iter().map(|object| unsafe { &*object.as_ptr() }).for_each(each);
    }
}

impl<T> Drop for Pool<T> {
    fn drop(&mut self) {
        let all = self.all.get_mut().unwrap_or_else(PoisonError::into_inner);
        for object in all.drain(..) {
            // SAFETY: each was made of a box once, and the pool is borrowed no more.
            drop(unsafe { Box::from_raw(object.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_rests_before_it_is_used_again() {
        let pool: Pool<usize> = Pool::new(usize::MAX);
        let mut addresses = Vec::new();
        for _ in 0..=RESTING_MIN {
            let object = pool.take(|index, _| index).unwrap();
            addresses.push(std::ptr::from_ref(object));
            pool.resting.put(*object);
        }
        let mut distinct = addresses.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), RESTING_MIN);
        assert_eq!(addresses[0], addresses[RESTING_MIN], "the longest resting comes first");
    }

    #[test]
    fn the_limit_holds_until_an_object_comes_back() {
        let pool: Pool<usize> = Pool::new(2);
        let first = pool.take(|index, _| index).unwrap();
        assert!(pool.take(|index, _| index).is_some());
        assert!(pool.take(|index, _| index).is_none());
        pool.resting.put(*first);
        assert_eq!(pool.take(|index, _| index), Some(&0));
    }
}
