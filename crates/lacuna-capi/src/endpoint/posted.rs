//! Operations that complete into a queue, from their posting until their completion is polled: what the
//! program called them, and its memory that the transport may read until then.
//!
//! The transport knows an operation by its place in a table, not by the program's number, so that the
//! memory can be asked for when its completion comes: an operation can be over while a packet of it still
//! waits for a full socket.

use crate::memory::Lending;
use lacuna::Context;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A queue pair that completes into a queue.
#[derive(Default)]
pub(super) struct Source {
    /// Operations whose memory was not given back.
    operations: AtomicUsize,
}

impl Source {
    /// Whether the transport may touch memory of the program.
    pub(super) fn holds_memory(&self) -> bool {
        // Ordered behind the last touch by `Operation::drop`.
        self.operations.load(Ordering::Acquire) > 0
    }
}

/// An operation whose completion was not polled. To be dropped when its memory is the program's again.
pub(super) struct Operation {
    pub(super) user_data: u64,
    source: Arc<Source>,
    /// Of a send, with the context that makes progress while it is waited for.
    lent: Option<(Lending, Context)>,
}

impl Operation {
    pub(super) fn receive(source: &Arc<Source>, user_data: u64) -> Self {
        Self::new(source, user_data, None)
    }

    pub(super) fn send(
        source: &Arc<Source>,
        user_data: u64,
        lending: Lending,
        context: &Context,
    ) -> Self {
        Self::new(source, user_data, Some((lending, context.clone())))
    }

    fn new(source: &Arc<Source>, user_data: u64, lent: Option<(Lending, Context)>) -> Self {
        source.operations.fetch_add(1, Ordering::Relaxed);
        Self { user_data, source: source.clone(), lent }
    }

    /// Waits until the transport has let go of the memory of a send that is over.
    pub(super) fn reclaim(&mut self) {
        let Some((mut lending, context)) = self.lent.take() else { return };
        while !lending.is_over() {
            // A worker drops its reference in its next step, after sending what it holds.
            if !context.progress() {
                context.interrupt();
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.source.operations.fetch_sub(1, Ordering::Release);
    }
}

/// The operations of a queue, each at its place.
#[derive(Default)]
pub(super) struct Posted(Mutex<Table>);

#[derive(Default)]
struct Table {
    places: Vec<Option<Operation>>,
    free: Vec<usize>,
}

impl Posted {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an operation and returns its place.
    pub(super) fn add(&self, operation: Operation) -> u64 {
        let mut table = self.lock();
        let place = table.free.pop().unwrap_or(table.places.len());
        match table.places.get_mut(place) {
            Some(free) => *free = Some(operation),
            None => table.places.push(Some(operation)),
        }
        place as u64
    }

    /// Takes the operation at a place.
    pub(super) fn take(&self, place: u64) -> Option<Operation> {
        let place = usize::try_from(place).ok()?;
        let mut table = self.lock();
        let operation = table.places.get_mut(place)?.take()?;
        table.free.push(place);
        Some(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_each_operation_is_taken_once() {
        let (posted, source) = (Posted::default(), Arc::default());
        let places: Vec<_> = (0..3).map(|n| posted.add(Operation::receive(&source, n))).collect();
        assert_eq!(places, [0, 1, 2]);
        assert_eq!(posted.take(1).unwrap().user_data, 1);
        assert!(posted.take(1).is_none() && posted.take(3).is_none());
        assert!(posted.take(u64::MAX).is_none());
        assert_eq!(posted.add(Operation::receive(&source, 7)), 1);
        for place in places {
            assert!(source.holds_memory());
            posted.take(place).unwrap();
        }
        assert!(!source.holds_memory());
    }
}
