//! What engines and the application share of one queue pair: its state machine under a lock, and
//! what engines tell each other about it without the lock.
//!
//! Lock order: a slot's pins are never held while the lock is taken (an application that closes a
//! receive waits for pins), and closing waits without the lock.

use crate::kinds::Machine;
use core::net::SocketAddr;
use lacuna_path::small_vec::SmallVec;
use lacuna_proto::qp::QueuePair;
use lacuna_wire::Seal;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// Everything under the lock.
#[derive(Debug)]
pub struct State {
    /// Who reacts to packets.
    pub machine: Machine,
    /// Where the peer's channels are, as far as known.
    pub addresses: SmallVec<Option<SocketAddr>>,
}

impl State {
    /// The peer's host, as far as known: the address of its first known channel.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.addresses.iter().flatten().next().copied()
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Books {
    number: u32,
    qkey: u32,
    /// How its packets are sealed: known before the queue pair is, whose geometry says the same.
    seal: Seal,
    state: Mutex<State>,
    /// Per channel: everything before this sequence number was handed to the
    /// datapath, by the channel's engine.
    handed_psn: SmallVec<OwnLine<AtomicU64>>,
    /// Time that the engines have spent on computing parity.
    encode_ns: AtomicU64,
    /// Engines that cannot place packets for it yet.
    without_lanes: AtomicUsize,
    /// The shortest packet that was refused as too large since an engine last looked; 0 if none.
    too_large_bytes: AtomicUsize,
    /// How often the lock was taken.
    #[cfg(test)]
    pub(crate) locks: AtomicUsize,
}

/// On a cache line of its own: each is written by another engine.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OwnLine<T>(T);

impl Books {
    /// The books of queue pair `number`, whose control packets carry `qkey` and whose packets have
    /// this seal; `engines` serve it.
    pub fn new(number: u32, qkey: u32, seal: Seal, state: State, engines: usize) -> Self {
        Self {
            number,
            qkey,
            seal,
            handed_psn: state.addresses.iter().map(|_| OwnLine::default()).collect(),
            encode_ns: AtomicU64::new(0),
            without_lanes: AtomicUsize::new(engines),
            too_large_bytes: AtomicUsize::new(0),
            state: Mutex::new(state),
            #[cfg(test)]
            locks: AtomicUsize::new(0),
        }
    }

    /// The number that packets reach it by.
    #[inline]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The key of control packets to it.
    #[inline]
    pub fn qkey(&self) -> u32 {
        self.qkey
    }

    /// How its packets are sealed.
    #[inline]
    pub fn seal(&self) -> Seal {
        self.seal
    }

    /// Takes the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, State> {
        #[cfg(test)]
        self.locks.fetch_add(1, Ordering::Relaxed);
        // A panic under the lock is a bug that the panicking thread reports; if
        // it was a worker, all queue pairs are failed right after.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock, if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Time that engines have spent on computing parity.
    pub fn encode_ns(&self) -> u64 {
        self.encode_ns.load(Ordering::Relaxed)
    }

    /// An engine has spent time on computing parity.
    pub(crate) fn on_encoded(&self, took_ns: u64) {
        self.encode_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    /// The engine of `channel` has handed everything before `psn` to its datapath.
    pub(crate) fn on_handed(&self, channel: u8, psn: u64) {
        self.handed_psn[usize::from(channel)].0.store(psn, Ordering::Release);
    }

    /// Tells the queue pair what was handed over on all channels.
    pub(crate) fn tell_handed(&self, qp: &mut QueuePair) {
        for (channel, OwnLine(psn)) in self.handed_psn.iter().enumerate() {
            qp.on_handed(channel as u8, psn.load(Ordering::Acquire));
        }
    }

    /// A datapath has refused a packet as too large. Whichever engine looks at the queue pair next
    /// tells it.
    pub(crate) fn on_too_large(&self, packet_bytes: usize) {
        let shorter = |known: usize| (known == 0 || packet_bytes < known).then_some(packet_bytes);
        // An error says that a shorter one is known.
        _ = self.too_large_bytes.fetch_update(Ordering::AcqRel, Ordering::Acquire, shorter);
    }

    /// Whether a packet was refused as too large.
    pub(crate) fn has_too_large(&self) -> bool {
        self.too_large_bytes.load(Ordering::Relaxed) > 0
    }

    /// The shortest packet that was refused as too large, once.
    pub(crate) fn take_too_large(&self) -> Option<usize> {
        Some(self.too_large_bytes.swap(0, Ordering::AcqRel)).filter(|bytes| *bytes > 0)
    }

    /// An engine can place packets of its channels from now on; `true` if it is the last of them.
    pub(crate) fn on_lanes(&self) -> bool {
        let fewer = |engines: usize| engines.checked_sub(1);
        self.without_lanes.fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer) == Ok(1)
    }

    /// Whether all engines can place packets for it. Before that the peer is told nothing: told
    /// of a receive it sends, on every channel, and where nobody repairs it, what comes to an
    /// engine that is behind is lost for good.
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
        let state = State { machine, addresses: [None].into_iter().collect() };
        let books = Books::new(7, 1, Seal::default(), state, 2);
        assert!(!books.can_place());
        assert!(!books.on_lanes());
        assert!(!books.can_place(), "the peer would send to the other as well");
        assert!(books.on_lanes());
        assert!(books.can_place());
        assert!(!books.on_lanes(), "told once");
    }
}
