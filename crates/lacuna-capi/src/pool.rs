//! Object pools: objects that C programs hold by pointer, at addresses that stay valid as long as
//! the pool, whatever the program does.
//!
//! An object whose use has ended goes to the free list, and a later use takes the one that has been
//! free for longest. So a pointer that is used after its end, by mistake or because another thread
//! was faster, finds an object that says "not in use", and not freed memory. Memory is bounded by
//! the most objects in use at once plus [`FREE_MIN`].
//!
//! Invariants:
//! - Addresses are given out only while the pool lives, and objects are freed only with the pool.
//! - An object is in the free list or in use, never both.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Objects that must be free before one is reused (a judgement: more than the queue depths of
/// programs, and a few KiB).
const FREE_MIN: usize = 256;

/// Indices of free objects, the longest free first.
#[derive(Debug, Default)]
pub(crate) struct FreeList(Mutex<VecDeque<usize>>);

impl FreeList {
    /// Frees an object.
    pub(crate) fn put(&self, index: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(index);
    }
}

/// Objects at fixed addresses.
pub(crate) struct ObjectPool<T> {
    all: Mutex<Vec<NonNull<T>>>,
    free: Arc<FreeList>,
    limit: usize,
}

// SAFETY: a pool owns its objects as a vector of boxes would, and gives out
// shared references only.
unsafe impl<T: Send + Sync> Send for ObjectPool<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for ObjectPool<T> {}

impl<T> ObjectPool<T> {
    /// A pool of at most `limit` objects.
    pub(crate) fn new(limit: usize) -> Self {
        Self { all: Mutex::new(Vec::new()), free: Arc::default(), limit }
    }

    /// Takes an object into use. `make` builds a new one from its index and the free list that it
    /// returns to. `None` if `limit` objects are in use.
    pub(crate) fn take(&self, make: impl FnOnce(usize, Arc<FreeList>) -> T) -> Option<&T> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self.free.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = all.len() >= self.limit;
        let reused = if is_full || free.len() >= FREE_MIN { free.pop_front() } else { None };
        let object = match reused {
            Some(index) => all[index],
            None if is_full => return None,
            None => {
                let object = Box::new(make(all.len(), self.free.clone()));
                // Leaked, because moving a box would invalidate pointers into it.
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

impl<T> Drop for ObjectPool<T> {
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
        let pool: ObjectPool<usize> = ObjectPool::new(usize::MAX);
        let mut addresses = Vec::new();
        for _ in 0..=FREE_MIN {
            let object = pool.take(|index, _| index).unwrap();
            addresses.push(std::ptr::from_ref(object));
            pool.free.put(*object);
        }
        let mut distinct = addresses.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), FREE_MIN);
        assert_eq!(addresses[0], addresses[FREE_MIN], "the longest free comes first");
    }

    #[test]
    fn the_limit_holds_until_an_object_comes_back() {
        let pool: ObjectPool<usize> = ObjectPool::new(2);
        let first = pool.take(|index, _| index).unwrap();
        assert!(pool.take(|index, _| index).is_some());
        assert!(pool.take(|index, _| index).is_none());
        pool.free.put(*first);
        assert_eq!(pool.take(|index, _| index), Some(&0));
    }
}
