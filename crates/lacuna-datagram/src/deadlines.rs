//! When messages that wait for their turn are given up, by the queue they wait in.
//!
//! Invariant: a time stays as long as one message of the queue has it, however many others with the same one are
//! over.

use std::collections::{BTreeMap, btree_map::Entry};

/// How many messages of a queue have a deadline.
#[derive(Debug, Default)]
pub(crate) struct Deadlines(BTreeMap<(u64, u32), u32>);

impl Deadlines {
    /// A message waits in a queue.
    pub(crate) fn add(&mut self, ns: u64, queue: u32) {
        *self.0.entry((ns, queue)).or_default() += 1;
    }

    /// One of them is over.
    pub(crate) fn remove(&mut self, ns: u64, queue: u32) {
        if let Entry::Occupied(mut count) = self.0.entry((ns, queue)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// A queue with messages whose time is over; their times are forgotten.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<u32> {
        let first = self.0.first_entry().filter(|first| first.key().0 <= now_ns)?;
        let ((_, queue), _) = first.remove_entry();
        Some(queue)
    }

    /// The next one.
    pub(crate) fn first(&self) -> Option<u64> {
        self.0.first_key_value().map(|((ns, _), _)| *ns)
    }
}
