//! From a queue pair to its completion queue. For each operation posted to it, the sink keeps the reserved
//! entry and what belongs to the completion. Whoever has changed the queue pair calls [`Sink::deliver`],
//! after its lock was released: what has ended is collected under the lock, and pushed without it. One
//! thread at a time delivers, so the completions of a queue pair keep the order in which its operations
//! ended.
//!
//! Lock order: `delivering`, then the queue pair, then `pending`.

use super::ended::{EndedReceive, Held};
use super::reads::Reads;
use super::{Completion, CompletionQueue, Outcome, Reservation};
use crate::clock::Clock;
use crate::completed::Missing;
use crate::one_sided::Written;
use crate::shared::Shared;
use lacuna_engine::Machine;
use lacuna_path::small_vec::SmallVec;
use lacuna_place::reason::Reason;
use lacuna_place::receive::Receive;
use lacuna_place::region::Bound;
use lacuna_proto::modes::Mode;
use lacuna_proto::qp::{self, PostedReceive, SendId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What a queue pair needs to complete its operations into a queue.
pub(crate) struct Sink {
    clock: Clock,
    pub(super) pending: Mutex<Pending>,
    pub(super) delivering: Mutex<Delivering>,
    /// The user data of messages that the peer writes to regions, if they complete here.
    pub(super) written: OnceLock<u64>,
}

/// What belongs to the thread that delivers.
#[derive(Default)]
pub(super) struct Delivering {
    /// Completions between collecting and pushing, and whether they are solicited; empty while nobody
    /// delivers.
    ready: Vec<(Reservation, Completion, bool)>,
    pub(super) reads: Reads,
}

/// Operations that have not ended.
#[derive(Default)]
pub(super) struct Pending {
    /// `None` once the queue pair has gone.
    pub(super) queue: Option<CompletionQueue>,
    pub(super) sends: HashMap<SendId, PendingSend>,
    pub(super) receives: HashMap<u64, PendingReceive>,
    pub(super) chunks: Vec<PendingChunks>,
}

pub(super) struct PendingSend {
    pub(super) entry: Reservation,
    pub(super) user_data: u64,
    pub(super) is_silent: bool,
    pub(super) is_write: bool,
}

pub(super) struct PendingReceive {
    pub(super) entry: Reservation,
    pub(super) user_data: u64,
    pub(super) posted: PostedReceive,
    pub(super) missing: Option<Missing>,
}

/// Chunks of a receive with a handle, which the application waits for.
pub(super) struct PendingChunks {
    pub(super) entry: Reservation,
    pub(super) user_data: u64,
    pub(super) chunks: u32,
    /// The receive. Its handle gives the memory back after this was delivered, at the latest.
    pub(super) parts: SmallVec<Arc<Receive>>,
}

impl PendingChunks {
    /// How many chunks are here, if those are enough or no more will come.
    fn result(&self) -> Option<u32> {
        let done = self.parts.iter().map(|part| part.chunks_done()).sum();
        let is_over = self.parts.first().is_none_or(|part| part.reason().is_some());
        (done >= self.chunks || is_over).then_some(done)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sink {
    pub(super) fn new(queue: CompletionQueue, clock: Clock) -> Self {
        let pending = Pending { queue: Some(queue), ..Pending::default() };
        let (delivering, written) = (Mutex::default(), OnceLock::new());
        Self { clock, pending: Mutex::new(pending), delivering, written }
    }

    /// Queues the completions of operations that have ended. To be called without the queue pair's lock.
    pub(crate) fn deliver(&self, shared: &Arc<Shared>) {
        let mut delivering = lock(&self.delivering);
        let Delivering { ready, reads } = &mut *delivering;
        let has_room = {
            let mut state = shared.lock();
            let Machine::Sdr(qp) = &mut state.machine else { return };
            let before_ns = qp.report_due_ns();
            self.collect(qp, shared, ready);
            reads.collect(qp);
            qp.report_due_ns() != before_ns
        };
        if has_room {
            // The peer is to hear that it can write more.
            shared.kick();
        }
        reads.go_on(shared, self.clock, ready);
        for (mut entry, completion, is_solicited) in ready.drain(..) {
            entry.push(completion, is_solicited);
        }
    }

    /// Collects what has ended, under the queue pair's lock.
    fn collect(
        &self,
        qp: &mut qp::QueuePair,
        shared: &Arc<Shared>,
        into: &mut Vec<(Reservation, Completion, bool)>,
    ) {
        let mut pending = lock(&self.pending);
        let queue_pair = shared.number();
        while let Some((id, result)) = qp.poll_ended_send() {
            let Some(PendingSend { entry, user_data, is_silent, is_write }) =
                pending.sends.remove(&id)
            else {
                continue;
            };
            if is_silent && result.is_ok() {
                continue;
            }
            let outcome = if is_write { Outcome::Wrote(result) } else { Outcome::Sent(result) };
            let completion = Completion { user_data, queue_pair, is_silent, outcome };
            into.push((entry, completion, result.is_err()));
        }
        while let Some(head) = qp.poll_ended_receive() {
            let Some(PendingReceive { entry, user_data, posted, missing }) =
                pending.receives.remove(&head)
            else {
                continue;
            };
            let is_whole = posted.reason() == Some(Reason::Whole);
            let is_solicited = !is_whole || posted.immediate().is_some();
            let zeroes = match missing {
                Some(missing) => missing == Missing::Zero,
                None => matches!(qp.config().mode, Mode::Bounded(_)),
            };
            let held = Held { shared: shared.clone(), clock: self.clock, zeroes, posted };
            let outcome = Outcome::Received(EndedReceive { held: Some(held) });
            let completion = Completion { user_data, queue_pair, is_silent: false, outcome };
            into.push((entry, completion, is_solicited));
        }
        let mut index = 0;
        while let Some(watch) = pending.chunks.get(index) {
            let Some(done) = watch.result() else {
                index += 1;
                continue;
            };
            let PendingChunks { entry, user_data, .. } = pending.chunks.remove(index);
            let outcome = Outcome::Chunks(done);
            into.push((
                entry,
                Completion { user_data, queue_pair, is_silent: false, outcome },
                false,
            ));
        }
        if let (Some(user_data), Some(queue)) = (self.written.get(), &pending.queue) {
            self.collect_written(qp, queue, *user_data, into);
        }
    }

    /// Collects the messages that the peer has written to regions.
    fn collect_written(
        &self,
        qp: &mut qp::QueuePair,
        queue: &CompletionQueue,
        user_data: u64,
        into: &mut Vec<(Reservation, Completion, bool)>,
    ) {
        while let Some(next) = qp.peek_written() {
            let ticket = next.receive.bound().and_then(Bound::take_ticket);
            let reserved = ticket.and_then(|ticket| ticket.downcast::<Reservation>().ok());
            // One that began before messages were admitted has none. Without an entry it waits.
            let Some(entry) = reserved.map(|entry| *entry).or_else(|| queue.try_reserve()) else {
                return;
            };
            let Some(written) = qp.poll_written(self.clock.now_ns()) else { return };
            let outcome = Outcome::Written(Written::of(&written));
            let queue_pair = qp.config().queue_pair;
            let completion = Completion { user_data, queue_pair, is_silent: false, outcome };
            into.push((entry, completion, true));
        }
    }

    /// The queue pair has gone, and its operations have failed. What is left, if anything, gives its
    /// entries and memory back; and the queue is let go, which may hold receives of this queue pair.
    pub(crate) fn close(&self, shared: &Shared) {
        drop(std::mem::take(&mut lock(&self.delivering).reads));
        let Pending { queue, sends, receives, chunks } = std::mem::take(&mut *lock(&self.pending));
        for receive in receives.values() {
            receive.posted.parts.iter().for_each(|part| drop(shared.table().close(part.number())));
        }
        drop((queue, sends, receives, chunks));
    }
}
