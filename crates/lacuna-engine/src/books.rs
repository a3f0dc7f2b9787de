//! The state of one queue pair that all its engines and the application share: the protocol's state
//! machine under a lock, and atomics that engines exchange without it.
//!
//! Lock order: no slot is pinned while the lock is taken, because an application that closes a
//! receive waits for pins. Closing a receive waits without the lock.

use crate::challenge_values::ChallengeValues;
use crate::counters::Counters;
use crate::kinds::Machine;
use crate::migration::{self, Facts, Heard, Migration, Outcome};
use core::net::SocketAddr;
use lacuna_path::small_vec::SmallVec;
use lacuna_proto::qp::QueuePair;
use lacuna_secure::Association;
use lacuna_wire::Seal;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};

/// The part under the lock.
#[derive(Debug)]
pub struct State {
    /// The protocol that handles the packets.
    pub machine: Machine,
    /// The peer's address per channel, as far as known: one entry for each channel of this end, even
    /// if the peer has fewer.
    pub addresses: SmallVec<Option<SocketAddr>>,
    /// How they follow the peer.
    pub(crate) migration: Migration,
}

impl State {
    /// Of a queue pair with this machine, whose peer is at these addresses.
    pub fn new(machine: Machine, addresses: impl IntoIterator<Item = Option<SocketAddr>>) -> Self {
        let addresses = addresses.into_iter().collect();
        Self { machine, addresses, migration: Migration::default() }
    }

    /// A packet of the peer came. Its address follows if it has to; see `migration.rs`.
    #[inline]
    pub(crate) fn on_heard(
        &mut self,
        heard: &Heard,
        values: &mut ChallengeValues,
        counters: &Counters,
    ) {
        let known = self.addresses.get(usize::from(heard.channel)).copied().flatten();
        let is_usual = known == Some(heard.source)
            && self.migration.is_settled(heard.channel)
            && heard.frames.challenge.is_none();
        if !is_usual {
            self.on_heard_elsewhere(heard, values, counters);
        }
    }

    #[cold]
    fn on_heard_elsewhere(
        &mut self,
        heard: &Heard,
        values: &mut ChallengeValues,
        counters: &Counters,
    ) {
        let Self { machine, addresses, migration } = self;
        let Some(address) = addresses.get_mut(usize::from(heard.channel)) else { return };
        let interval_ns = migration::interval_ns(machine.rtt_ns());
        let facts = Facts { interval_ns, draw: &mut || values.draw() };
        let before = *address;
        let outcome = migration.on_heard(heard, address, facts);
        if heard.frames.challenge.is_some() {
            let others = (0..).zip(addresses.iter()).filter(|(index, _)| *index != heard.channel);
            let others = others.filter_map(|(index, to)| Some((index, (*to)?)));
            migration.announce(heard.now_ns, others, interval_ns);
        }
        match outcome {
            Some(Outcome::Moved) => _ = counters.paths_moved.fetch_add(1, Ordering::Relaxed),
            Some(Outcome::Kept) => _ = counters.paths_kept.fetch_add(1, Ordering::Relaxed),
            None => {}
        }
        let now = addresses[usize::from(heard.channel)];
        if let (Some(now), Some(before)) = (now, before)
            && now != before
        {
            tracing::debug!(channel = heard.channel, %before, %now, "the path has moved");
            // The first channel that moves to a host takes the path along.
            let mut others = addresses.iter().enumerate();
            let is_known = now.ip() == before.ip()
                || others.any(|(channel, other)| {
                    channel != usize::from(heard.channel)
                        && other.is_some_and(|other| other.ip() == now.ip())
                });
            machine.on_path_moved(heard.now_ns, heard.channel, !is_known);
        }
    }

    /// The peer's host, as far as known: the address of its first known channel.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.addresses.iter().flatten().next().copied()
    }
}

/// The shared state of one queue pair.
#[derive(Debug)]
pub struct Books {
    number: u32,
    qkey: u32,
    /// The packets' trailer. Known before the machine is [`Machine::Sdr`], whose geometry has the
    /// same.
    seal: Seal,
    /// Its keys, once both ends have them. Until then nothing is sent and nothing taken.
    association: OnceLock<Box<Association>>,
    state: Mutex<State>,
    /// Per channel: all packets before this sequence number were passed to the datapath. Written by
    /// the channel's engine.
    handed_psn: SmallVec<OwnLine<AtomicU64>>,
    /// Time that the engines have spent computing parity.
    encode_ns: AtomicU64,
    /// Engines that have not received their lanes.
    without_lanes: AtomicUsize,
    /// Length of the shortest packet that a datapath refused as too large since it was last taken;
    /// 0 if none.
    too_large_bytes: AtomicUsize,
    /// How often the lock was taken.
    #[cfg(test)]
    pub(crate) locks: AtomicUsize,
}

/// On its own cache line: each value is written by another engine.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OwnLine<T>(T);

impl Books {
    /// Queue pair `number`, served by `engines`; `qkey` is in its control packets, `seal` ends all
    /// its packets.
    pub fn new(number: u32, qkey: u32, seal: Seal, state: State, engines: usize) -> Self {
        Self {
            number,
            qkey,
            seal,
            association: OnceLock::new(),
            handed_psn: state.addresses.iter().map(|_| OwnLine::default()).collect(),
            encode_ns: AtomicU64::new(0),
            without_lanes: AtomicUsize::new(engines),
            too_large_bytes: AtomicUsize::new(0),
            state: Mutex::new(state),
            #[cfg(test)]
            locks: AtomicUsize::new(0),
        }
    }

    /// The queue pair number in packets.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The Q_Key that control packets to it carry.
    #[inline]
    pub fn qkey(&self) -> u32 {
        self.qkey
    }

    /// The trailer of its packets.
    #[inline]
    pub fn seal(&self) -> Seal {
        self.seal
    }

    /// Sets the keys of a queue pair whose packets are encrypted. Those that were set first stay.
    pub fn secure(&self, association: Association) {
        let _ = self.association.set(Box::new(association));
    }

    /// The keys, if its packets are encrypted and both ends have them.
    #[inline]
    pub fn association(&self) -> Option<&Association> {
        self.association.get().map(|association| &**association)
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, State> {
        #[cfg(test)]
        self.locks.fetch_add(1, Ordering::Relaxed);
        // After a panic under the lock the state is used all the same. The thread reports its
        // panic, and if it is a worker, all queue pairs fail right after.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Time that the engines have spent computing parity.
    pub fn encode_ns(&self) -> u64 {
        self.encode_ns.load(Ordering::Relaxed)
    }

    /// Adds time spent computing parity.
    pub(crate) fn on_encoded(&self, took_ns: u64) {
        self.encode_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    /// The engine of `channel` has passed all packets before `psn` to its datapath.
    pub(crate) fn on_handed(&self, channel: u8, psn: u64) {
        self.handed_psn[usize::from(channel)].0.store(psn, Ordering::Release);
    }

    /// Tells the queue pair what was passed to the datapaths of all channels.
    pub(crate) fn tell_handed(&self, qp: &mut QueuePair) {
        for (channel, OwnLine(psn)) in self.handed_psn.iter().enumerate() {
            qp.on_handed(channel as u8, psn.load(Ordering::Acquire));
        }
    }

    /// A datapath refused a packet as too large. The next engine that settles the queue pair
    /// reports it.
    pub(crate) fn on_too_large(&self, packet_bytes: usize) {
        let shorter = |known: usize| (known == 0 || packet_bytes < known).then_some(packet_bytes);
        // `Err` means that a shorter one is already noted.
        _ = self.too_large_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, shorter);
    }

    /// Whether a packet was refused as too large.
    pub(crate) fn has_too_large(&self) -> bool {
        self.too_large_bytes.load(Ordering::Relaxed) > 0
    }

    /// Takes the length of the shortest packet that was refused as too large.
    pub(crate) fn take_too_large(&self) -> Option<usize> {
        Some(self.too_large_bytes.swap(0, Ordering::AcqRel)).filter(|bytes| *bytes > 0)
    }

    /// An engine has received its lanes; `true` if it is the last one.
    pub(crate) fn on_lanes(&self) -> bool {
        let fewer = |engines: usize| engines.checked_sub(1);
        self.without_lanes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer) == Ok(1)
    }

    /// Whether all engines have their lanes. Until then the peer is told of no receive: it would
    /// send on every channel, and an engine without its lane cannot place what arrives, which in a
    /// mode without repair is lost for good.
    pub(crate) fn can_place(&self) -> bool {
        self.without_lanes.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::Early;

    #[test]
    fn nothing_is_told_before_the_last_engine_can_place_packets() {
        let machine = Machine::Reserved(Early::default());
        let state = State::new(machine, [None]);
        let books = Books::new(7, 1, Seal::default(), state, 2);
        assert!(!books.can_place());
        assert!(!books.on_lanes());
        assert!(!books.can_place(), "the peer would send to the other as well");
        assert!(books.on_lanes());
        assert!(books.can_place());
        assert!(!books.on_lanes(), "told once");
    }
}
