//! An engine's queue pairs by number, and what it knows of each.

use crate::books::Books;
use crate::idle::Patience;
use crate::kinds::Lane;
use lacuna_place::prefetch::prefetch_value;
use lacuna_wire::{DataHeader, Seal, destination};
use std::ops::Range;
use std::sync::Arc;

/// With up to this many queue pairs no memory is asked for ahead: they stay in a second-level cache,
/// with 14 KB each, and asking would be 9 % of the instructions of a small message. With more, one that
/// has more to send keeps its turn for some bursts ([`RunQueue`](crate::run_queue::RunQueue)).
pub(crate) const FEW_QUEUE_PAIRS: usize = 32;

/// A queue pair as this engine knows it.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) books: Arc<Books>,
    /// The lanes of this engine's channels, in their order; empty until connected.
    pub(crate) lanes: Vec<Lane>,
    /// When it wants to be served; the timer heap may hold stale entries.
    pub(crate) due_ns: Option<u64>,
    /// In the run queue.
    pub(crate) is_ready: bool,
    /// Its last turn took a whole burst.
    pub(crate) had_burst: bool,
    /// In the list of the unsettled.
    pub(crate) is_unsettled: bool,
    /// Data waited at a turn since it was last settled.
    pub(crate) had_queued: bool,
    /// Its time has come.
    pub(crate) is_due: bool,
    /// How long it can wait.
    pub(crate) patience: Patience,
}

impl Local {
    pub(crate) fn new(books: Arc<Books>) -> Self {
        Self {
            books,
            lanes: Vec::new(),
            due_ns: None,
            is_ready: false,
            had_burst: false,
            is_unsettled: false,
            had_queued: false,
            is_due: false,
            patience: Patience::NONE,
        }
    }

    /// It is settled in this step.
    #[inline]
    pub(crate) fn unsettle(&mut self, number: u32, unsettled: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.is_unsettled, true) {
            unsettled.push(number);
        }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Locals(Vec<Option<Local>>);

impl Locals {
    pub(crate) fn insert(&mut self, local: Local) {
        let index = local.books.number() as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(local);
    }

    pub(crate) fn remove(&mut self, number: u32) -> Option<Local> {
        self.0.get_mut(number as usize)?.take()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Local> {
        self.0.get_mut(number as usize)?.as_mut()
    }

    /// How a packet of any kind is sealed, by where it goes: as all ends know, if that is nowhere.
    #[inline]
    pub(crate) fn seal_of(&self, packet: &[u8]) -> Seal {
        let local = destination(packet).and_then(|qpn| self.0.get(qpn.queue_pair() as usize));
        local.and_then(Option::as_ref).map_or(Seal::default(), |local| local.books.seal())
    }

    /// A data packet of which `parse_data` makes nothing, if its seal explains that: with a longer
    /// trailer the length that a Write announces seems wrong.
    #[inline(always)]
    pub(crate) fn cut_by_seal<'p>(&self, packet: &'p [u8]) -> Option<(DataHeader, &'p [u8])> {
        let seal = self.seal_of(packet);
        if seal.has_common_length() { None } else { seal.cut(packet).ok() }
    }

    /// All numbers that were ever in use.
    pub(crate) fn numbers(&self) -> Range<u32> {
        0..self.0.len() as u32
    }

    /// Asks for the memory of a queue pair that is next: with a thousand of them it is in no
    /// cache, and each of its lines would be waited for by itself.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        if self.0.len() > FEW_QUEUE_PAIRS
            && let Some(Some(local)) = self.0.get(number as usize)
        {
            prefetch_value(&*local.books);
        }
    }
}
