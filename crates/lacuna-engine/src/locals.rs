//! The queue pairs of an engine by number, with the engine's own state of each.

use crate::books::Books;
use crate::idle::Patience;
use crate::kinds::Lane;
use crate::run_queue::RunQueue;
use core::net::SocketAddr;
use lacuna_path::small_vec::SmallVec;
use lacuna_place::prefetch::prefetch_value;
use lacuna_wire::rc::rc_destination;
use lacuna_wire::{DataHeader, Seal, destination};
use std::ops::Range;
use std::sync::Arc;

/// Up to this many queue pairs nothing is prefetched: with 14 KB each they stay in a second-level
/// cache, and prefetching would be 9 % of the instructions of a small message. With more, one that
/// has more to send keeps its turn for several bursts ([`RunQueue`]).
pub(crate) const FEW_QUEUE_PAIRS: usize = 32;

/// One queue pair in this engine.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) books: Arc<Books>,
    /// One lane per channel of this engine, in order; empty until connected.
    pub(crate) lanes: Vec<Lane>,
    /// Where the peer's packets come from, per channel of this engine: a copy of its addresses, to be
    /// read without the lock.
    pub(crate) sources: SmallVec<Option<SocketAddr>>,
    /// When its timer expires; the timer heap may hold stale entries.
    pub(crate) due_ns: Option<u64>,
    /// It is in the run queue.
    pub(crate) is_ready: bool,
    /// Its last turn filled a burst.
    pub(crate) had_burst: bool,
    /// It is in `Engine::unsettled`.
    pub(crate) is_unsettled: bool,
    /// A turn found data to send since it was last settled.
    pub(crate) had_queued: bool,
    /// Its timer has expired.
    pub(crate) is_due: bool,
    /// How long it can wait for the next step.
    pub(crate) patience: Patience,
}

impl Local {
    pub(crate) fn new(books: Arc<Books>, channels: usize) -> Self {
        Self {
            books,
            lanes: Vec::new(),
            sources: (0..channels).map(|_| None).collect(),
            due_ns: None,
            is_ready: false,
            had_burst: false,
            is_unsettled: false,
            had_queued: false,
            is_due: false,
            patience: Patience::NONE,
        }
    }

    /// Gives it a turn.
    #[inline]
    pub(crate) fn make_ready(&mut self, number: u32, ready: &mut RunQueue) {
        if !std::mem::replace(&mut self.is_ready, true) {
            ready.push(number, self.had_burst);
        }
    }

    /// Has it settled in this step.
    #[inline]
    pub(crate) fn unsettle(&mut self, number: u32, unsettled: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.is_unsettled, true) {
            unsettled.push(number);
        }
    }
}

/// The queue pairs of an engine, indexed by number.
#[derive(Debug, Default)]
pub(crate) struct Locals {
    all: Vec<Option<Local>>,
    /// How many of them have encrypted packets.
    secure: usize,
}

impl Locals {
    pub(crate) fn insert(&mut self, local: Local) {
        let index = local.books.number() as usize;
        if self.all.len() <= index {
            self.all.resize_with(index + 1, || None);
        }
        self.secure += usize::from(local.books.seal().is_secure());
        self.all[index] = Some(local);
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Local> {
        let local = self.all.get_mut(number as usize)?.take()?;
        self.secure -= usize::from(local.books.seal().is_secure());
        Some(local)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Local> {
        self.all.get_mut(number as usize)?.as_mut()
    }

    /// The seal of the queue pair that the packet is for; the default if there is none.
    #[inline]
    pub(crate) fn seal_of(&self, packet: &[u8]) -> Seal {
        let local = destination(packet).and_then(|qpn| self.all.get(qpn.queue_pair() as usize));
        local.and_then(Option::as_ref).map_or(Seal::default(), |local| local.books.seal())
    }

    /// The number of the queue pair that the packet is for, if its packets are encrypted.
    #[inline]
    pub(crate) fn secure_destination(&self, packet: &[u8]) -> Option<u32> {
        if self.secure == 0 {
            return None;
        }
        // As its intake reads it: a repair of a reliable connection has its destination elsewhere.
        let number = rc_destination(packet)?.queue_pair();
        let local = self.all.get(number as usize)?.as_ref()?;
        local.books.seal().is_secure().then_some(number)
    }

    /// Whether packets of queue pair `number` used to come from elsewhere on the channel at `position`.
    #[inline]
    pub(crate) fn is_elsewhere(&self, number: u32, position: usize, source: SocketAddr) -> bool {
        let local = self.all.get(number as usize).and_then(Option::as_ref);
        local.is_some_and(|local| local.sources.get(position) != Some(&Some(source)))
    }

    /// Parses a data packet that `parse_data` refused because its trailer is longer than the common
    /// one, so that a Write's length seems wrong. `None` if the seal does not explain it.
    #[inline(always)]
    pub(crate) fn cut_by_seal<'p>(&self, packet: &'p [u8]) -> Option<(DataHeader, &'p [u8])> {
        let seal = self.seal_of(packet);
        if seal.has_common_length() { None } else { seal.parse_data(packet).ok() }
    }

    /// Range of all numbers that were ever in use.
    pub(crate) fn numbers(&self) -> Range<u32> {
        0..self.all.len() as u32
    }

    /// Prefetches the queue pair that is next: with a thousand of them none is in a cache, and each
    /// of its cache lines would be a miss of its own.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        if self.all.len() > FEW_QUEUE_PAIRS
            && let Some(Some(local)) = self.all.get(number as usize)
        {
            prefetch_value(&*local.books);
        }
    }
}
