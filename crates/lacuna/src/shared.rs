//! The state of one queue pair that application handles and workers share: the engine's [`Books`],
//! and wake-ups in both directions.
//!
//! Waking the application: a condition variable, signalled after the books' lock was released.
//! Waking a worker: its inbox, with one bit per worker in `ready`, so that a queue pair is queued
//! at most once.

use crate::completion::{AnySink, Sink, VerbSink};
use crate::error::ContextError;
use crate::inbox::Inbox;
use lacuna_datapath::Process;
use lacuna_engine::{Books, Machine, State};
use lacuna_place::table::RecvTable;
use lacuna_proto::qp::{Failure, QpStats, QueuePair};
use lacuna_wire::Seal;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// The shared state of one queue pair.
pub(crate) struct Shared {
    books: Arc<Books>,
    process: Process,
    /// Copy of the receive table, so that closing a receive takes no lock.
    table: OnceLock<Arc<RecvTable>>,
    /// Copy of the failure cell, so that polling it takes no lock.
    failure: OnceLock<Arc<OnceLock<Failure>>>,
    changed: Condvar,
    /// Threads that wait on `changed`; changed only under the books' lock.
    waiting: AtomicUsize,
    /// Callback for answers to the prober while connecting; for attempts that no thread waits for.
    on_probed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Where operations complete to that have no handle.
    sink: OnceLock<AnySink>,
    inboxes: Arc<[Arc<Inbox>]>,
    /// Workers whose inbox holds this queue pair: a bit mask.
    ready: AtomicU32,
}

impl Shared {
    pub(crate) fn new(
        number: u32,
        qkey: u32,
        seal: Seal,
        state: State,
        inboxes: Arc<[Arc<Inbox>]>,
    ) -> Self {
        Self {
            books: Arc::new(Books::new(number, qkey, seal, state, inboxes.len())),
            process: Process::current(),
            table: OnceLock::new(),
            failure: OnceLock::new(),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            on_probed: OnceLock::new(),
            sink: OnceLock::new(),
            ready: AtomicU32::new(0),
            inboxes,
        }
    }

    /// The part that the engines know.
    pub(crate) fn books(&self) -> &Arc<Books> {
        &self.books
    }

    /// The queue pair number in packets.
    pub(crate) fn number(&self) -> u32 {
        self.books.number()
    }

    /// A snapshot of the counters.
    pub(crate) fn stats(&self) -> QpStats {
        let mut stats = self.with_qp(|qp| qp.stats());
        stats.send.encode_ns = self.books.encode_ns();
        stats
    }

    /// # Panics
    /// In a forked child: a thread of the parent may have held the lock at the fork.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        if !self.process.is_current() {
            inherited();
        }
        self.books.lock()
    }

    /// Runs `f` on the connected queue pair.
    ///
    /// # Panics
    /// If it is not connected; handles exist only after that.
    #[inline]
    pub(crate) fn with_qp<R>(&self, f: impl FnOnce(&mut QueuePair) -> R) -> R {
        match &mut self.lock().machine {
            Machine::Sdr(qp) => f(qp),
            _ => unreachable!("handles are made of connected queue pairs"),
        }
    }

    /// Runs `f`, which posts or closes receives. Wakes the workers only if the time of the next
    /// report has changed: mostly a report is due anyway.
    #[inline]
    pub(crate) fn with_receives<R>(self: &Arc<Self>, f: impl FnOnce(&mut QueuePair) -> R) -> R {
        let (result, is_changed) = self.with_qp(|qp| {
            let before_ns = qp.report_due_ns();
            let result = f(qp);
            (result, qp.report_due_ns() != before_ns)
        });
        self.notify();
        if is_changed {
            self.kick();
        }
        result
    }

    /// The receive table; panics as [`Shared::with_qp`].
    pub(crate) fn table(&self) -> &RecvTable {
        self.table.get_or_init(|| self.with_qp(|qp| qp.table().clone()))
    }

    /// Why the queue pair has failed, if so; panics as [`Shared::with_qp`].
    pub(crate) fn failure(&self) -> Option<Failure> {
        let cell = self.failure.get_or_init(|| self.with_qp(|qp| qp.failure_cell().clone()));
        cell.get().copied()
    }

    /// Asks all workers to serve this queue pair.
    pub(crate) fn kick(&self) {
        self.ask(self.all_workers());
    }

    /// Asks all workers but one to serve this queue pair.
    pub(crate) fn kick_others(&self, worker: usize) {
        self.ask(self.all_workers() & !(1 << worker));
    }

    /// A bit for each worker.
    #[inline]
    fn all_workers(&self) -> u32 {
        ((1 << self.inboxes.len()) - 1_u64) as u32
    }

    /// Asks these workers to serve this queue pair.
    #[inline]
    fn ask(&self, workers: u32) {
        let mut unaware = workers & !self.ready.fetch_or(workers, Ordering::AcqRel);
        while unaware != 0 {
            self.inboxes[unaware.trailing_zeros() as usize].push_ready(self.number());
            unaware &= unaware - 1;
        }
    }

    /// The worker has taken the request and is about to serve the queue pair.
    pub(crate) fn unready(&self, worker: usize) {
        // Mostly the bit is clear, since packets made the queue pair ready: test before the atomic
        // write. A request that is missed here has queued the number again.
        if self.ready.load(Ordering::Relaxed) >> worker & 1 == 1 {
            self.ready.fetch_and(!(1 << worker), Ordering::AcqRel);
        }
    }

    /// Wakes threads that wait for this queue pair. Call after the lock under which the state
    /// changed: a thread that already waits is counted in `waiting`, another one will see the new
    /// state.
    pub(crate) fn notify(self: &Arc<Self>) {
        if let Some(sink) = self.sink.get() {
            sink.deliver(self);
        }
        // `notify_all` makes a system call even when no thread waits.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }

    /// Has operations complete to `sink`; `false` if they complete to another already.
    pub(crate) fn set_sink(&self, sink: AnySink) -> bool {
        self.sink.set(sink).is_ok()
    }

    /// Where operations complete to that have no handle.
    pub(crate) fn sink(&self) -> Option<&Sink> {
        match self.sink.get()? {
            AnySink::Operations(sink) => Some(sink),
            AnySink::Verbs(_) => None,
        }
    }

    /// Where the work requests of a reliable connection complete to.
    pub(crate) fn verb_sink(&self) -> Option<&VerbSink> {
        match self.sink.get()? {
            AnySink::Verbs(sink) => Some(sink),
            AnySink::Operations(_) => None,
        }
    }

    /// Whether this process was forked from the one that made the queue pair.
    pub(crate) fn is_inherited(&self) -> bool {
        !self.process.is_current()
    }

    /// Sets the callback for answers to the prober; before there is a prober.
    pub(crate) fn on_probed(&self, tell: Box<dyn Fn() + Send + Sync>) {
        // Set once: a queue pair is reserved for one attempt.
        let _ = self.on_probed.set(tell);
    }

    /// The prober has an answer. Call without the lock, as [`Shared::notify`].
    pub(crate) fn notify_probed(self: &Arc<Self>) {
        self.notify();
        if let Some(tell) = self.on_probed.get() {
            tell();
        }
    }

    /// Waits for [`Shared::notify`], at most `timeout`.
    pub(crate) fn wait<'s>(
        &self,
        state: MutexGuard<'s, State>,
        timeout: Duration,
    ) -> MutexGuard<'s, State> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = self.changed.wait_timeout(state, timeout);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        state
    }
}

#[cold]
fn inherited() -> ! {
    panic!("{}", ContextError::Inherited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConnectionConfig;
    use crate::queue_pair::{Keys, new_qp};
    use lacuna_datapath::Waiter;
    use lacuna_engine::kinds::Early;
    use lacuna_place::placement::Placement;

    #[test]
    fn workers_look_at_a_receive_only_if_the_peer_is_to_hear_of_it_at_another_time() {
        let (_waiter, waker) = Waiter::new().unwrap();
        let inbox = Arc::new(Inbox::new(waker));
        let config = ConnectionConfig::default();
        let (geometry, keys) = (config.geometry(4096, 1).unwrap(), Keys::random().unwrap());
        let machine = Machine::Sdr(new_qp(1, &config, geometry, &keys, 0));
        let state = State::new(machine, [None]);
        let shared =
            Arc::new(Shared::new(1, keys.qkey, Seal::default(), state, [inbox.clone()].into()));
        let asks_after_post = |now_ns| {
            let post =
                |qp: &mut QueuePair| qp.post_receive(now_ns, Placement::from_vec(vec![0; 64]));
            shared.with_receives(post).unwrap();
            let asks = inbox.take(&mut Vec::new()).is_some();
            shared.unready(0);
            asks
        };
        assert!(asks_after_post(5));
        assert!(!asks_after_post(5));
        assert!(asks_after_post(6));
    }

    #[test]
    fn each_worker_is_asked_once_until_it_looks() {
        let inboxes: Vec<_> =
            (0..3).map(|_| Arc::new(Inbox::new(Waiter::new().unwrap().1))).collect();
        let machine = Machine::Reserved(Early::default());
        let state = State::new(machine, [None; 3]);
        let shared = Shared::new(1, 2, Seal::default(), state, inboxes.clone().into());
        let asked = || {
            let was_asked = |inbox: &Arc<Inbox>| inbox.take(&mut Vec::new()).is_some();
            inboxes.iter().map(was_asked).collect::<Vec<_>>()
        };
        shared.kick_others(1);
        assert_eq!(asked(), [true, false, true]);
        shared.kick();
        assert_eq!(asked(), [false, true, false]);
        shared.unready(2);
        shared.unready(2);
        shared.kick();
        assert_eq!(asked(), [false, false, true]);
    }
}
