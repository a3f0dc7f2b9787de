//! Posted receives: taken in order by the messages of one queue pair, or of several that share them (a
//! shared receive queue, SRQ).
//!
//! A lock is held for one push or pop. A responder takes a receive with a message's first packet, and
//! keeps it until the message is whole.

use crate::work::RecvWork;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module's text.
#[derive(Debug, Default)]
pub struct ReceiveQueue {
    posted: Mutex<VecDeque<RecvWork>>,
    is_shared: bool,
}

impl ReceiveQueue {
    /// A queue of one queue pair.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A queue of several queue pairs: what fails one of them leaves the posted receives to the others.
    #[must_use]
    pub fn shared() -> Self {
        Self { is_shared: true, ..Self::default() }
    }

    /// Posts a receive.
    pub fn post(&self, work: RecvWork) {
        self.lock().push_back(work);
    }

    /// Receives that nobody has taken.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the oldest receive.
    pub(crate) fn take(&self) -> Option<RecvWork> {
        self.lock().pop_front()
    }

    /// Takes all receives of a queue pair that has failed; none of a shared queue.
    pub(crate) fn flush(&self) -> VecDeque<RecvWork> {
        if self.is_shared { VecDeque::new() } else { std::mem::take(&mut *self.lock()) }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<RecvWork>> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
