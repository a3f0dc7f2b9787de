//! Deadlines of operations in one heap, for sends and receives alike. A deadline costs nothing until it
//! is due: ended operations stay in the heap until they come first or are too many.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Entries of ended operations that may remain, besides twice as many as there are open ones. A
/// judgement.
const ENDED_MAX: usize = 64;

/// Times at which operations, named by `K`, want to be called.
#[derive(Debug)]
pub(super) struct Deadlines<K> {
    heap: BinaryHeap<Reverse<(u64, K)>>,
}

impl<K: Ord> Default for Deadlines<K> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new() }
    }
}

impl<K: Ord + Copy> Deadlines<K> {
    pub(super) fn push(&mut self, due_ns: u64, key: K) {
        self.heap.push(Reverse((due_ns, key)));
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The earliest time.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// An operation whose time has come; it stays in the heap.
    pub(super) fn overdue(&self, now_ns: u64) -> Option<K> {
        let Reverse((due_ns, key)) = *self.heap.peek()?;
        (due_ns <= now_ns).then_some(key)
    }

    /// Takes an entry whose time has come.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<K> {
        self.overdue(now_ns)?;
        self.heap.pop().map(|Reverse((_, key))| key)
    }

    /// Drops entries of ended operations: those that come first, and all if there are too many. There
    /// are `open` operations, which `is_open` tells from ended ones.
    pub(super) fn tidy(&mut self, open: usize, is_open: impl Fn(K) -> bool) {
        if self.heap.len() > 2 * open + ENDED_MAX {
            self.heap.retain(|Reverse((_, key))| is_open(*key));
        }
        while self.heap.peek().is_some_and(|Reverse((_, key))| !is_open(*key)) {
            self.heap.pop();
        }
    }

    /// Entries, of open and of ended operations.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_of_ended_operations_do_not_accumulate_behind_an_early_one() {
        let mut deadlines = Deadlines::default();
        deadlines.push(1, 0);
        for key in 1..10_000 {
            deadlines.push(1 + key, key);
            deadlines.tidy(1, |key| key == 0);
            assert!(deadlines.len() <= 3 + ENDED_MAX);
        }
        assert_eq!(deadlines.next_ns(), Some(1));
        deadlines.tidy(0, |_| false);
        assert_eq!(deadlines.next_ns(), None);
    }

    #[test]
    fn the_earliest_comes_first() {
        let mut deadlines = Deadlines::default();
        for at in [30, 10, 20] {
            deadlines.push(at, at);
        }
        assert_eq!((deadlines.overdue(9), deadlines.overdue(10)), (None, Some(10)));
        let due: Vec<_> = std::iter::from_fn(|| deadlines.pop_due(25)).collect();
        assert_eq!(due, [10, 20]);
    }
}
