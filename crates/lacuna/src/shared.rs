//! What the application's handles and the workers share of one queue pair: the
//! protocol's state under a lock, and the way to wake whoever must act on it.
//!
//! Lock order: a slot's pins are never held while the lock is taken (a closing
//! application waits for pins), and closing waits without the lock.

use crate::address::ScopedIp;
use crate::error::ContextError;
use crate::handshake::early::Early;
use crate::inbox::Inbox;
use lacuna_datapath::Process;
use lacuna_path::small_vec::SmallVec;
use lacuna_place::table::RecvTable;
use lacuna_proto::probe::Prober;
use lacuna_proto::qp::Failure;
use lacuna_proto::qp::QpStats;
use lacuna_proto::qp::QueuePair;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// Who reacts to packets for this queue pair number.
#[allow(
    clippy::large_enum_variant,
    reason = "the largest is what they all become, and best lies beside its lock"
)]
pub(crate) enum Machine {
    /// Nobody yet: the number is taken, the peer's is not known.
    Reserved(Early),
    /// Finding the path before the queue pair is made.
    Probing(Box<Prober>, Early),
    /// Connected, or about to be.
    Connected(QueuePair),
}

impl Machine {
    /// A reserved number's peer is known now.
    pub(crate) fn probe(&mut self, mut prober: Prober) {
        let early = self.take_early();
        early.show(&mut prober);
        *self = Self::Probing(Box::new(prober), early);
    }

    /// The queue pair is connected: it gets what came before.
    pub(crate) fn connect(&mut self, mut qp: QueuePair) {
        self.take_early().hand_to(&mut qp);
        *self = Self::Connected(qp);
    }

    fn take_early(&mut self) -> Early {
        match self {
            Self::Reserved(early) | Self::Probing(_, early) => std::mem::take(early),
            Self::Connected(_) => Early::default(),
        }
    }
}

/// Everything under the lock.
pub(crate) struct State {
    pub(crate) machine: Machine,
    /// Where the peer's channels are, as far as known.
    pub(crate) addresses: SmallVec<Option<SocketAddr>>,
}

impl State {
    /// The peer's host, as far as known.
    pub(crate) fn peer(&self) -> Option<ScopedIp> {
        self.addresses.iter().flatten().next().copied().map(ScopedIp::from)
    }
}

/// See the module's text.
pub(crate) struct Shared {
    pub(crate) number: u32,
    pub(crate) qkey: u32,
    process: Process,
    state: Mutex<State>,
    /// The connected queue pair's slots, for those who close receives.
    table: OnceLock<Arc<RecvTable>>,
    /// The same of why it failed, for those who look often.
    failure: OnceLock<Arc<OnceLock<Failure>>>,
    changed: Condvar,
    /// Applications that wait on `changed`; only moved under the lock.
    waiting: AtomicUsize,
    inboxes: Arc<[Arc<Inbox>]>,
    /// Workers that were asked to look at it and have not yet, a mask.
    ready: AtomicU32,
    /// Per channel: everything before this sequence number was handed to the
    /// datapath, by the channel's worker.
    handed_psn: SmallVec<OwnLine<AtomicU64>>,
    /// Time that the workers have spent on computing parity.
    encode_ns: AtomicU64,
    /// Workers that cannot place packets for it yet.
    without_writers: AtomicUsize,
    /// The shortest packet that was refused as too large since a worker last looked; 0 if none.
    too_large_bytes: AtomicUsize,
}

/// On a cache line of its own: each is written by another worker.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OwnLine<T>(T);

impl Shared {
    pub(crate) fn new(number: u32, qkey: u32, state: State, inboxes: Arc<[Arc<Inbox>]>) -> Self {
        Self {
            number,
            qkey,
            process: Process::current(),
            table: OnceLock::new(),
            failure: OnceLock::new(),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            ready: AtomicU32::new(0),
            handed_psn: state.addresses.iter().map(|_| OwnLine::default()).collect(),
            encode_ns: AtomicU64::new(0),
            without_writers: AtomicUsize::new(inboxes.len()),
            too_large_bytes: AtomicUsize::new(0),
            state: Mutex::new(state),
            inboxes,
        }
    }

    /// A worker has spent time on computing parity.
    pub(crate) fn on_encoded(&self, took: Duration) {
        self.encode_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Counters of now.
    pub(crate) fn stats(&self) -> QpStats {
        let mut stats = self.with_qp(|qp| qp.stats());
        stats.send.encode_ns = self.encode_ns.load(Ordering::Relaxed);
        stats
    }

    /// The worker of `channel` has handed everything before `psn` to its datapath.
    pub(crate) fn on_handed(&self, channel: u8, psn: u64) {
        self.handed_psn[usize::from(channel)].0.store(psn, Ordering::Release);
    }

    /// A datapath has refused a packet as too large. Whoever looks at the queue pair next tells it.
    pub(crate) fn on_too_large(&self, packet_bytes: usize) {
        let shorter = |known: usize| (known == 0 || packet_bytes < known).then_some(packet_bytes);
        if self.too_large_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, shorter) == Ok(0)
        {
            self.kick();
        }
    }

    /// Whether a packet was refused as too large.
    pub(crate) fn has_too_large(&self) -> bool {
        self.too_large_bytes.load(Ordering::Relaxed) > 0
    }

    /// The shortest packet that was refused as too large, once.
    pub(crate) fn take_too_large(&self) -> Option<usize> {
        Some(self.too_large_bytes.swap(0, Ordering::AcqRel)).filter(|bytes| *bytes > 0)
    }

    /// A worker can place packets of its channels from now on.
    pub(crate) fn on_writers(&self) {
        let fewer = |workers: usize| workers.checked_sub(1);
        let before = self.without_writers.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
        if before == Ok(1) {
            self.kick();
        }
    }

    /// Whether all workers can place packets for it. Before that the peer is told nothing: told
    /// of a receive it sends, on every channel, and where nobody repairs it, what comes to a
    /// worker that is behind is lost for good.
    pub(crate) fn can_place(&self) -> bool {
        self.without_writers.load(Ordering::Acquire) == 0
    }

    /// Tells the queue pair what was handed over on all channels.
    pub(crate) fn tell_handed(&self, qp: &mut QueuePair) {
        for (channel, OwnLine(psn)) in self.handed_psn.iter().enumerate() {
            qp.on_handed(channel as u8, psn.load(Ordering::Acquire));
        }
    }

    /// # Panics
    /// In a process that has inherited it: a thread that is not there may hold it.
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        if !self.process.is_current() {
            inherited();
        }
        // A panic under the lock is a bug that the panicking thread reports; if
        // it was a worker, all queue pairs are failed right after.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on the connected queue pair.
    ///
    /// # Panics
    /// If it is not connected; handles exist only after that.
    pub(crate) fn with_qp<R>(&self, f: impl FnOnce(&mut QueuePair) -> R) -> R {
        match &mut self.lock().machine {
            Machine::Connected(qp) => f(qp),
            _ => unreachable!("handles are made of connected queue pairs"),
        }
    }

    /// The same for what `f` does to receives. Workers look at the queue pair only if
    /// that has changed when the peer is to hear of something: mostly a report of what
    /// came is due anyway, and has its timer.
    pub(crate) fn with_receives<R>(&self, f: impl FnOnce(&mut QueuePair) -> R) -> R {
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

    /// The slots; as [`Shared::with_qp`].
    pub(crate) fn table(&self) -> &RecvTable {
        self.table.get_or_init(|| self.with_qp(|qp| qp.table().clone()))
    }

    /// Why it cannot go on, if so; as [`Shared::with_qp`].
    pub(crate) fn failure(&self) -> Option<Failure> {
        let cell = self.failure.get_or_init(|| self.with_qp(|qp| qp.failure_cell().clone()));
        cell.get().copied()
    }

    /// Asks all workers to look at this queue pair.
    pub(crate) fn kick(&self) {
        self.kick_others(usize::MAX);
    }

    /// Asks all workers but one to look at this queue pair.
    pub(crate) fn kick_others(&self, worker: usize) {
        let asked = (0..self.inboxes.len()).filter(|index| *index != worker);
        let asked = asked.fold(0, |mask, index| mask | 1 << index);
        let knew = self.ready.fetch_or(asked, Ordering::AcqRel);
        for (index, inbox) in self.inboxes.iter().enumerate() {
            if (asked & !knew) >> index & 1 == 1 {
                inbox.push_ready(self.number);
            }
        }
    }

    /// A worker takes the queue pair off its list.
    pub(crate) fn unready(&self, worker: usize) {
        // Mostly it was not there: what came made it ready. Whoever asks just now is
        // not seen, and has the worker look again.
        if self.ready.load(Ordering::Relaxed) >> worker & 1 == 1 {
            self.ready.fetch_and(!(1 << worker), Ordering::AcqRel);
        }
    }

    /// Wakes the applications that wait for this queue pair. To be called after
    /// the lock was held for what they wait for: who then waits already is
    /// counted, and who does not yet will see it.
    pub(crate) fn notify(&self) {
        // The standard library makes a system call of it even if nobody waits.
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits for news, at most `timeout`.
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
    use crate::queue_pair::{Keys, protocol};
    use lacuna_datapath::Waiter;
    use lacuna_place::placement::Placement;

    #[test]
    fn workers_look_at_a_receive_only_if_the_peer_is_to_hear_of_it_at_another_time() {
        let (_waiter, waker) = Waiter::new().unwrap();
        let inbox = Arc::new(Inbox::new(waker));
        let config = ConnectionConfig::default();
        let (geometry, keys) = (config.geometry(4096, 1).unwrap(), Keys::random().unwrap());
        let machine = Machine::Connected(protocol(1, &config, geometry, &keys, 0));
        let state = State { machine, addresses: [None].into_iter().collect() };
        let shared = Shared::new(1, keys.qkey, state, [inbox.clone()].into());
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
    fn the_last_worker_that_can_place_packets_has_all_look() {
        let waiters = [(); 2].map(|()| Waiter::new().unwrap());
        let inboxes = waiters.map(|(_, waker)| Arc::new(Inbox::new(waker)));
        let state = State {
            machine: Machine::Reserved(Early::default()),
            addresses: [None].into_iter().collect(),
        };
        let shared = Shared::new(7, 1, state, inboxes.to_vec().into());
        let asked = || inboxes.each_ref().map(|inbox| inbox.take(&mut Vec::new()));
        assert!(!shared.can_place());
        shared.on_writers();
        assert!(!shared.can_place(), "the peer would send to the other as well");
        assert_eq!(asked(), [None; 2]);
        shared.on_writers();
        assert!(shared.can_place());
        assert_eq!(asked(), [Some(7); 2]);
    }

    #[test]
    fn each_worker_is_asked_once_until_it_looks() {
        let inboxes: Vec<_> =
            (0..3).map(|_| Arc::new(Inbox::new(Waiter::new().unwrap().1))).collect();
        let machine = Machine::Reserved(Early::default());
        let state = State { machine, addresses: (0..3).map(|_| None).collect() };
        let shared = Shared::new(1, 2, state, inboxes.clone().into());
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
