//! Completions of reliable connections: from a queue pair's list of what is done to its completion queue.
//!
//! An entry is reserved for each work request. They are alike, so it is counts that are kept: one for what is
//! sent, and one for receives, which belongs to the receives where several queue pairs share them. A work
//! request that ends without a completion gives its entry back with the next that has one, or when an entry
//! is wanted.
//!
//! Lock order: `entries`, then the queue pair, then the entries of shared receives.

use super::sink::lock;
use super::{Completion, CompletionQueue, Full, Outcome, Reservation};
use crate::shared::Shared;
use lacuna_engine::Machine;
use lacuna_rc::{Done, Operation, ReceiveQueue, RecvWork};
use std::sync::{Arc, Mutex};

/// What a reliable connection's queue pair needs to complete into a queue.
pub(crate) struct VerbSink {
    receives: Option<Arc<SharedReceives>>,
    entries: Mutex<Entries>,
}

struct Entries {
    sends: Reservation,
    receives: Reservation,
    /// Between collecting and pushing; empty otherwise.
    ready: Vec<Done>,
}

/// Receives that several queue pairs take in order (a shared receive queue, SRQ): each message takes the
/// oldest one, whichever connection it comes by. The queue pairs have completion queues if this has one.
#[derive(Debug)]
pub struct SharedReceives {
    queue: Arc<ReceiveQueue>,
    entries: Option<Mutex<Reservation>>,
}

impl SharedReceives {
    /// No receive is posted yet. What they get completes into this queue, or is found by
    /// [`QueuePair::poll`](crate::rc::QueuePair::poll) of the queue pair that took it.
    #[must_use]
    pub fn new(completions: Option<&CompletionQueue>) -> Self {
        let entries = completions.map(|queue| Mutex::new(queue.none()));
        Self { queue: Arc::new(ReceiveQueue::shared()), entries }
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// When the completion queue has no free entry.
    pub fn post(&self, work: RecvWork) -> Result<(), Full> {
        if let Some(entries) = &self.entries {
            lock(entries).grow(1)?;
        }
        self.queue.post(work);
        Ok(())
    }

    /// Receives that no message has taken.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn queue(&self) -> &Arc<ReceiveQueue> {
        &self.queue
    }

    fn push(&self, completion: Completion, is_solicited: bool) {
        if let Some(entries) = &self.entries {
            lock(entries).push(completion, is_solicited);
        }
    }

    /// Whether what receives get completes into a queue.
    pub(crate) fn completes(&self) -> bool {
        self.entries.is_some()
    }
}

impl VerbSink {
    pub(crate) fn new(queue: &CompletionQueue, receives: Option<Arc<SharedReceives>>) -> Self {
        let entries = Entries { sends: queue.none(), receives: queue.none(), ready: Vec::new() };
        Self { receives, entries: Mutex::new(entries) }
    }

    /// Posts a work request of the send queue, with an entry for it.
    pub(crate) fn post_send<E: From<Full>>(
        &self,
        shared: &Arc<Shared>,
        post: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut entries = lock(&self.entries);
        if entries.sends.grow(1).is_err() {
            // What ended without a completion has one, perhaps.
            self.deliver_with(shared, &mut entries);
            entries.sends.grow(1)?;
        }
        let posted = post();
        if posted.is_err() {
            drop(entries.sends.split(1));
        }
        posted
    }

    /// Posts a receive of this queue pair alone, with an entry for it.
    pub(crate) fn post_recv<E: From<Full>>(
        &self,
        post: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut entries = lock(&self.entries);
        entries.receives.grow(1)?;
        let posted = post();
        if posted.is_err() {
            drop(entries.receives.split(1));
        }
        posted
    }

    /// Queues the completions of what is done. To be called without the queue pair's lock.
    pub(crate) fn deliver(&self, shared: &Arc<Shared>) {
        self.deliver_with(shared, &mut lock(&self.entries));
    }

    fn deliver_with(&self, shared: &Arc<Shared>, entries: &mut Entries) {
        let Entries { sends, receives, ready } = entries;
        let open = {
            let mut state = shared.lock();
            let Machine::Rc(qp) = &mut state.machine else { return };
            ready.extend(std::iter::from_fn(|| qp.poll_done()));
            qp.open_sends() as u32
        };
        for done in ready.drain(..) {
            let completion = Completion {
                user_data: done.id,
                queue_pair: shared.number(),
                is_silent: !done.is_signaled,
                outcome: Outcome::Verb(done),
            };
            let is_solicited = done.is_solicited();
            match done.operation {
                Operation::Receive | Operation::ReceiveWritten => match &self.receives {
                    Some(shared) => shared.push(completion, is_solicited),
                    None => receives.push(completion, is_solicited),
                },
                _ => sends.push(completion, is_solicited),
            }
        }
        if sends.entries() > open {
            drop(sends.split(sends.entries() - open));
        }
    }
}
