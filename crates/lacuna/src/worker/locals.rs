//! A worker's queue pairs by number, and how their memory is asked for ahead
//! (`lacuna_proto::prefetch`).
//!
//! Where the state of each lies is kept in a list of its own, eight bytes a queue pair, which
//! stays in the caches: to look it up in the worker's record of the queue pair would mean to
//! wait for that first.

use super::Local;
use crate::shared::Shared;
use lacuna_proto::prefetch::prefetch_value;
use std::ops::Range;
use std::sync::Arc;

/// As many queue pairs stay in a second-level cache, with 14 KB each: to ask for their
/// memory would be 9 % of the instructions of a small message. Of more, who has more to
/// send keeps its turn for some bursts.
pub(super) const FEW_QUEUE_PAIRS: usize = 32;

/// See the module's text.
#[derive(Default)]
pub(super) struct Locals {
    locals: Vec<Option<Local>>,
    /// What `locals` has as well.
    shared: Vec<Option<Arc<Shared>>>,
}

impl Locals {
    pub(super) fn insert(&mut self, local: Local) {
        let index = local.shared.number as usize;
        if self.locals.len() <= index {
            self.locals.resize_with(index + 1, || None);
            self.shared.resize_with(index + 1, || None);
        }
        self.shared[index] = Some(local.shared.clone());
        self.locals[index] = Some(local);
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Local> {
        self.shared.get_mut(number as usize)?.take();
        self.locals.get_mut(number as usize)?.take()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Local> {
        self.locals.get_mut(number as usize)?.as_mut()
    }

    /// All numbers that were ever in use.
    pub(super) fn numbers(&self) -> Range<u32> {
        0..self.locals.len() as u32
    }

    /// Asks for the memory of a queue pair that is next: with a thousand of them it is in no
    /// cache, and each of its lines would be waited for by itself.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        if self.locals.len() > FEW_QUEUE_PAIRS
            && let Some(Some(shared)) = self.shared.get(number as usize)
        {
            prefetch_value(&self.locals[number as usize]);
            prefetch_value(&**shared);
        }
    }
}
