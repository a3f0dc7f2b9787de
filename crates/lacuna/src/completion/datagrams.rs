//! Completions of datagram queue pairs: from the queue pair's list of what is done to its completion queue.
//!
//! Work requests and receives take an entry each when they are posted, as those of reliable connections do
//! (`verbs.rs`). A Write-Record that comes was posted by nobody: before packets are taken that may begin some, as
//! many entries are reserved as there are, and the queue pair takes no more of them. What is not used goes back
//! at once, so a small queue stays free for what is posted.
//!
//! Lock order: `entries`, then the queue pair.

use super::sink::lock;
use super::{Completion, CompletionQueue, Full, Outcome, Reservation};
use lacuna_datagram::{Done, Endpoint, Operation};
use std::sync::{Mutex, MutexGuard};

/// What a datagram queue pair needs to complete into a queue.
pub(crate) struct DatagramSink {
    /// The queue pair's number in completions.
    number: u32,
    entries: Mutex<Entries>,
}

/// Entries that are reserved.
pub(crate) struct Entries {
    sends: Reservation,
    receives: Reservation,
    records: Reservation,
    /// Between collecting and pushing; empty otherwise.
    ready: Vec<Done>,
}

impl DatagramSink {
    pub(crate) fn new(queue: &CompletionQueue, number: u32) -> Self {
        let entries = Entries {
            sends: queue.none(),
            receives: queue.none(),
            records: queue.none(),
            ready: Vec::new(),
        };
        Self { number, entries: Mutex::new(entries) }
    }

    /// To be held while packets are taken.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        lock(&self.entries)
    }

    /// Posts a work request of the send queue, with an entry for it. `lock_endpoint` is called without a lock
    /// of the queue pair held.
    pub(crate) fn post_send<E: From<Full>, G: std::ops::DerefMut<Target = Endpoint>>(
        &self,
        lock_endpoint: impl Fn() -> G,
        post: impl FnOnce(&mut Endpoint) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut entries = self.lock();
        if entries.sends.grow(1).is_err() {
            // What ended without a completion has one, perhaps.
            self.deliver_with(&mut entries, &lock_endpoint);
            entries.sends.grow(1)?;
        }
        let posted = post(&mut lock_endpoint());
        if posted.is_err() {
            drop(entries.sends.split(1));
        }
        posted
    }

    /// Posts a receive, with an entry for it.
    pub(crate) fn post_recv<E: From<Full>>(
        &self,
        post: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut entries = self.lock();
        entries.receives.grow(1)?;
        let posted = post();
        if posted.is_err() {
            drop(entries.receives.split(1));
        }
        posted
    }

    /// Queues the completions of what is done.
    pub(crate) fn deliver<G: std::ops::DerefMut<Target = Endpoint>>(
        &self,
        lock_endpoint: impl Fn() -> G,
    ) {
        self.deliver_with(&mut self.lock(), &lock_endpoint);
    }

    fn deliver_with<G: std::ops::DerefMut<Target = Endpoint>>(
        &self,
        entries: &mut Entries,
        lock_endpoint: &impl Fn() -> G,
    ) {
        let Entries { sends, receives, records, ready } = entries;
        let (open, open_records) = {
            let mut endpoint = lock_endpoint();
            ready.extend(std::iter::from_fn(|| endpoint.poll_done()));
            (endpoint.open_sends() as u32, endpoint.records() as u32)
        };
        for done in ready.drain(..) {
            let (operation, is_solicited) = (done.operation, done.is_solicited());
            let completion = Completion {
                user_data: done.id,
                queue_pair: self.number,
                is_silent: !done.is_signaled,
                outcome: Outcome::Datagram(done),
            };
            match operation {
                Operation::Receive => receives.push(completion, is_solicited),
                Operation::Record => records.push(completion, is_solicited),
                Operation::Send | Operation::WriteRecord | Operation::Read => {
                    sends.push(completion, is_solicited);
                }
            }
        }
        release(sends, open);
        release(records, open_records);
    }
}

impl Entries {
    /// Makes room for Write-Records that begin with the next packets, at most so many, as far as entries are free.
    pub(crate) fn make_room(&mut self, endpoint: &mut Endpoint, beginning: usize) {
        let wanted = (endpoint.records() + beginning) as u32;
        let mut missing = wanted.saturating_sub(self.records.entries());
        while missing > 0 {
            if self.records.grow(missing).is_ok() {
                break;
            }
            missing /= 2;
        }
        endpoint.set_records_max(self.records.entries() as usize);
    }
}

/// Gives back what is more than this.
fn release(entries: &mut Reservation, wanted: u32) {
    if entries.entries() > wanted {
        drop(entries.split(entries.entries() - wanted));
    }
}
