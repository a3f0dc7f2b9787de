//! The receive side of a queue pair's root key: all its slots.
//!
//! All threads share [`RecvTable`]. Only the one writer of each channel may place packets through it
//! (`writer.rs`).

use crate::geometry::Geometry;
use crate::placement::Placement;
use crate::receive::Receive;
use crate::slot::{Pinned, Slot};
use crate::sync::Yield;
use std::sync::{Arc, OnceLock};

/// The slots of one queue pair.
#[derive(Debug)]
pub struct RecvTable {
    geometry: Geometry,
    rkey: u32,
    /// Allocated by the first post, so a queue pair that only sends has none.
    slots: OnceLock<Box<[Slot<Arc<Receive>>]>>,
    /// Called by a thread that closes a slot, while workers still write to it.
    yield_now: OnceLock<Yield>,
}

impl RecvTable {
    /// A table without posted receives whose packets must carry `rkey`.
    pub(crate) fn new(geometry: Geometry, rkey: u32) -> Self {
        Self { geometry, rkey, slots: OnceLock::new(), yield_now: OnceLock::new() }
    }

    /// Sets the function that a thread calls to yield its core while it waits to close a slot. Without
    /// one it spins. Only the first call has an effect.
    pub fn yield_by(&self, yield_now: Yield) {
        // An error means that it was set before.
        _ = self.yield_now.set(yield_now);
    }

    /// The geometry that both ends agreed on.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The remote key that the peer's packets must carry.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    #[inline]
    fn slots(&self) -> &[Slot<Arc<Receive>>] {
        self.slots.get_or_init(|| (0..self.geometry.slots()).map(|_| Slot::new()).collect())
    }

    /// Pins a slot for one burst; `None` if it is closed, or open in another generation.
    #[inline]
    pub(crate) fn pin(&self, slot: u32, generation: u8) -> Option<Pinned<'_, Arc<Receive>>> {
        self.slots.get()?[slot as usize].pin(generation).ok()
    }

    #[inline]
    fn slot(&self, number: u64) -> &Slot<Arc<Receive>> {
        &self.slots()[self.geometry.slot_of(number) as usize]
    }

    /// Whether the slot of message `number` can be posted.
    #[inline]
    pub fn is_free(&self, number: u64) -> bool {
        self.slot(number).is_free()
    }

    /// Opens the slot of message `number` over `placement` and returns its record; `None` if the slot is
    /// occupied. The record is made here, so that none is ever in two slots: then the same bytes would
    /// have two writers.
    ///
    /// # Panics
    /// If the placement is longer than one slot allows.
    #[inline]
    pub fn post(&self, number: u64, placement: Placement) -> Option<Arc<Receive>> {
        let receive = Arc::new(Receive::new(number, self.geometry, placement));
        let generation = self.geometry.generation_of(number);
        self.slot(number).post(generation, receive.clone()).is_ok().then_some(receive)
    }

    /// Closes the slot of message `number`: once this returns, no byte of the buffer changes any more.
    /// Returns `None` if the slot was closed already, after waiting for a close in progress, or if it
    /// is in another generation.
    ///
    /// Waits for workers that are placing into the slot; a worker must not call it during a burst.
    #[inline]
    pub fn close(&self, number: u64) -> Option<Arc<Receive>> {
        let generation = self.geometry.generation_of(number);
        let yield_now = self.yield_now.get().copied().unwrap_or(core::hint::spin_loop);
        self.slot(number).retire(generation, self.geometry.config().generations, yield_now)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
