//! A worker's queue pairs by number, and how their memory is asked for ahead
//! (`lacuna_place::prefetch`).

use super::Local;
use lacuna_place::prefetch::prefetch_value;
use std::ops::Range;

/// As many queue pairs stay in a second-level cache, with 14 KB each: to ask for their
/// memory would be 9 % of the instructions of a small message. Of more, who has more to
/// send keeps its turn for some bursts.
pub(super) const FEW_QUEUE_PAIRS: usize = 32;

/// See the module's text.
#[derive(Default)]
pub(super) struct Locals(Vec<Option<Local>>);

impl Locals {
    pub(super) fn insert(&mut self, local: Local) {
        let index = local.shared.number as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(local);
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<Local> {
        self.0.get_mut(number as usize)?.take()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Local> {
        self.0.get_mut(number as usize)?.as_mut()
    }

    /// All numbers that were ever in use.
    pub(super) fn numbers(&self) -> Range<u32> {
        0..self.0.len() as u32
    }

    /// Asks for the memory of a queue pair that is next: with a thousand of them it is in no
    /// cache, and each of its lines would be waited for by itself.
    #[inline]
    pub(super) fn prefetch(&self, number: u32) {
        if self.0.len() > FEW_QUEUE_PAIRS
            && let Some(Some(local)) = self.0.get(number as usize)
        {
            prefetch_value(&*local.shared);
        }
    }
}
