//! All queue pairs of a context, by number and by peer, and how the socket's receive buffer is
//! divided among them as credit.
//!
//! The workers learn of every change through their inboxes, in the order in which it was made here.
//!
//! Lock order: `dealing`, `by_number`, a queue pair's books. `by_peer` is held alone.

use crate::address::ScopedIp;
use crate::clock::Clock;
use crate::credit;
use crate::error::QueuePairError;
use crate::inbox::{Command, Inbox};
use crate::paths::now_s;
use crate::shared::Shared;
use lacuna_engine::{Lane, Machine, State};
use lacuna_path::memory::PathRecord;
use lacuna_proto::qp::Failure;
use lacuna_wire::{Qpn, Seal};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Queue pairs to one peer that [`Roster::path_to`] inspects, so that connecting does not get
/// slower with thousands of them.
const INSPECTED_MAX: usize = 16;

/// A number of a reliable connection is not given out again for so long: the next one under it would take old
/// packets for its own (InfiniBand volume 1, section 10.3.1.2). Longer than any path holds a packet, and than a
/// peer's retries on most.
const REST_NS: u64 = 10_000_000_000;

/// All queue pairs of a context.
pub(crate) struct Roster {
    clock: Clock,
    channels: u8,
    /// Receive buffer of one socket.
    socket_bytes: usize,
    /// One per worker; channel `c` belongs to worker `c` modulo their number.
    inboxes: Arc<[Arc<Inbox>]>,
    by_number: Mutex<BTreeMap<u32, Arc<Shared>>>,
    /// Connected queue pairs, by the host that they were connected to.
    by_peer: Mutex<BTreeMap<ScopedIp, PeerEntry>>,
    next_number: AtomicU32,
    /// Numbers that are not given out before this time.
    resting: Mutex<BTreeMap<u32, u64>>,
    /// Number of parts that the credit was last divided into. Locked while the parts are announced,
    /// so that the latest division is announced last.
    dealing: Mutex<u32>,
    /// A worker has panicked: queue pairs make no reliable progress any more.
    is_poisoned: AtomicBool,
}

/// The queue pairs to one peer.
#[derive(Default)]
struct PeerEntry {
    by_number: BTreeMap<u32, Arc<Shared>>,
    /// Several were sending when one of them began or ended, so the rate that each finds is a share
    /// of the path's.
    is_shared: bool,
}

/// What the queue pairs to a peer know of the path.
#[derive(Debug, Default)]
pub(crate) struct PeerPath {
    /// How many are sending.
    pub(crate) sending: u64,
    /// The record with the highest rate.
    pub(crate) found: Option<PathRecord>,
    /// Whether that rate may be a share of the path's.
    pub(crate) is_shared: bool,
}

impl Roster {
    pub(crate) fn new(
        clock: Clock,
        channels: u8,
        socket_bytes: usize,
        inboxes: Arc<[Arc<Inbox>]>,
    ) -> Self {
        Self {
            clock,
            channels,
            socket_bytes,
            inboxes,
            by_number: Mutex::default(),
            by_peer: Mutex::default(),
            next_number: AtomicU32::new(Qpn::QUEUE_PAIR_MIN),
            resting: Mutex::default(),
            dealing: Mutex::new(0),
            is_poisoned: AtomicBool::new(false),
        }
    }

    /// Opens a queue pair, whose packets all end in `seal`: assigns a number, and has the workers hand its packets to
    /// `machine`.
    pub(crate) fn open_sealed(
        &self,
        qkey: u32,
        seal: Seal,
        machine: impl FnOnce(u32) -> Machine,
    ) -> Result<Arc<Shared>, QueuePairError> {
        if self.is_poisoned.load(Ordering::Acquire) {
            let source = std::io::Error::other("a worker of this context panicked");
            return Err(QueuePairError::System { what: "progress", source });
        }
        let mut by_number = lock(&self.by_number);
        let limit = Qpn::QUEUE_PAIR_MAX;
        let mut resting = lock(&self.resting);
        if !resting.is_empty() && (by_number.len() + resting.len()) as u32 >= limit {
            let now_ns = self.clock.now_ns();
            resting.retain(|_, until_ns| now_ns < *until_ns);
        }
        if (by_number.len() + resting.len()) as u32 >= limit {
            return Err(QueuePairError::TooMany { limit });
        }
        let number = loop {
            let next = self.next_number.fetch_add(1, Ordering::Relaxed);
            let number = Qpn::QUEUE_PAIR_MIN + (next - 1) % (limit - Qpn::QUEUE_PAIR_MIN + 1);
            let is_resting =
                resting.get(&number).is_some_and(|until_ns| self.clock.now_ns() < *until_ns);
            if !by_number.contains_key(&number) && !is_resting {
                break number;
            }
        };
        resting.remove(&number);
        drop(resting);
        let state = State::new(machine(number), (0..self.channels).map(|_| None));
        let shared = Arc::new(Shared::new(number, qkey, seal, state, self.inboxes.clone()));
        by_number.insert(number, shared.clone());
        // Under the lock, so that the workers learn of the end of a number before its next use.
        for inbox in self.inboxes.iter() {
            inbox.push(Command::Add(shared.clone()));
        }
        drop(by_number);
        self.share_credit(Some(&shared));
        Ok(shared)
    }

    /// Gives each worker the lanes of its own channels of queue pair `number`.
    pub(crate) fn hand_out(&self, number: u32, lanes: impl IntoIterator<Item = Lane>) {
        let mut parts: Vec<Vec<_>> = self.inboxes.iter().map(|_| Vec::new()).collect();
        for lane in lanes {
            let worker = usize::from(lane.channel()) % parts.len();
            parts[worker].push(lane);
        }
        for (inbox, part) in self.inboxes.iter().zip(parts) {
            inbox.push(Command::Lanes(number, part));
        }
    }

    pub(crate) fn close(&self, number: u32) {
        let mut by_number = lock(&self.by_number);
        let gone = by_number.remove(&number);
        let is_rc = |shared: &Arc<Shared>| matches!(shared.lock().machine, Machine::Rc(_));
        if gone.as_ref().is_some_and(is_rc) {
            lock(&self.resting).insert(number, self.clock.now_ns() + REST_NS);
        }
        for inbox in self.inboxes.iter() {
            inbox.push(Command::Remove(number));
        }
        drop(by_number);
        // Outside the lock: dropping may free buffers of the application, and run its code.
        drop(gone);
        self.share_credit(None);
    }

    /// Fails all operations: without its worker a queue pair would miss even its deadlines.
    pub(crate) fn fail_all(&self) {
        self.is_poisoned.store(true, Ordering::Release);
        let all: Vec<_> = lock(&self.by_number).values().cloned().collect();
        for shared in all {
            match &mut shared.lock().machine {
                Machine::Sdr(qp) => qp.fail(Failure::WorkerPanicked),
                Machine::Rc(qp) => qp.close(),
                Machine::Reserved(_) | Machine::Probing(..) => {}
            }
            shared.notify();
        }
    }

    // ---- peers ----

    /// Registers a connected queue pair under its peer.
    pub(crate) fn register_peer(&self, peer: ScopedIp, shared: &Arc<Shared>) {
        let mut by_peer = lock(&self.by_peer);
        by_peer.entry(peer).or_default().by_number.insert(shared.number(), shared.clone());
    }

    /// Removes it. `true` if the rate that it found may be a share of the path's.
    pub(crate) fn unregister_peer(&self, peer: ScopedIp, number: u32) -> bool {
        let mut by_peer = lock(&self.by_peer);
        let Some(entry) = by_peer.get_mut(&peer) else { return false };
        let gone = entry.by_number.remove(&number);
        let was_shared = entry.is_shared;
        if entry.by_number.is_empty() {
            by_peer.remove(&peer);
        }
        drop(by_peer);
        // Outside the lock: dropping may free buffers of the application, and run its code.
        drop(gone);
        was_shared || self.path_to(peer).is_shared
    }

    /// What the queue pairs connected to `peer` know of the path.
    pub(crate) fn path_to(&self, peer: ScopedIp) -> PeerPath {
        let (inspected, count, was_shared) = {
            let by_peer = lock(&self.by_peer);
            let Some(entry) = by_peer.get(&peer) else { return PeerPath::default() };
            let newest = entry.by_number.values().rev().take(INSPECTED_MAX).cloned();
            (newest.collect::<Vec<_>>(), entry.by_number.len() as u64, entry.is_shared)
        };
        let inspected_count = inspected.len() as u64;
        let (mut sending, mut found) = (0, None);
        for shared in inspected {
            let Machine::Sdr(qp) = &shared.lock().machine else { continue };
            sending += u64::from(qp.is_sending());
            found = [found, qp.path_record(now_s())].into_iter().flatten().max_by_key(rate_of);
        }
        let is_shared = was_shared || sending > 0;
        if is_shared
            && !was_shared
            && let Some(entry) = lock(&self.by_peer).get_mut(&peer)
        {
            entry.is_shared = true;
        }
        // Extrapolated from those inspected to all.
        let sending = (sending * count).div_ceil(inspected_count.max(1));
        PeerPath { sending, found, is_shared }
    }

    // ---- parts of the sockets ----

    /// The credit that one more queue pair gets now.
    pub(crate) fn credit_now(&self) -> u32 {
        credit::part(self.socket_bytes, credit::shares(lock(&self.by_number).len()))
    }

    /// Announces the credit to `newcomer`, and to all queue pairs if the division has changed.
    pub(crate) fn share_credit(&self, newcomer: Option<&Shared>) {
        let mut dealt = lock(&self.dealing);
        let by_number = lock(&self.by_number);
        let shares = credit::shares(by_number.len());
        let all = match *dealt == shares {
            true => Vec::new(),
            false => by_number.values().cloned().collect(),
        };
        drop(by_number);
        *dealt = shares;
        let credit_bytes = credit::part(self.socket_bytes, shares);
        let now_ns = self.clock.now_ns();
        for shared in all.iter().map(|shared| &**shared).chain(newcomer) {
            if let Machine::Sdr(qp) = &mut shared.lock().machine {
                qp.set_share(now_ns, credit_bytes);
            }
            shared.kick();
        }
    }
}

fn rate_of(record: &PathRecord) -> u64 {
    record.rate_bits_per_s
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
