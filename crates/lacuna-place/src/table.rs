//! The receive side of a queue pair's root key: all its slots.
//!
//! All threads share [`RecvTable`]. Only the one writer of each channel may place packets through it
//! (`writer.rs`).

use crate::discard::Discard;
use crate::geometry::Geometry;
use crate::placement::Placement;
use crate::receive::Receive;
use crate::region::{KeyError, KeyTable, PinnedKey, Rights};
use crate::slot::{Pinned, Slot};
use crate::sync::Yield;
use std::any::Any;
use std::fmt;
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
    /// The keys of regions, and the number of the peer.
    keys: OnceLock<(Arc<KeyTable>, u64)>,
    /// Asked before a message that the application is told of takes its place.
    admission: OnceLock<Admission>,
}

/// Held for a message that was admitted, and dropped with its record: an entry of a queue that it will
/// need, say.
pub type Ticket = Box<dyn Any + Send + Sync>;

/// Admits a message, with what is held for it.
struct Admission(Box<dyn Fn() -> Option<Ticket> + Send + Sync>);

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admission")
    }
}

impl RecvTable {
    /// A table without posted receives whose packets must carry `rkey`.
    pub(crate) fn new(geometry: Geometry, rkey: u32) -> Self {
        let (slots, yield_now) = (OnceLock::new(), OnceLock::new());
        let (keys, admission) = (OnceLock::new(), OnceLock::new());
        Self { geometry, rkey, slots, yield_now, keys, admission }
    }

    /// Sets the function that a thread calls to yield its core while it waits to close a slot. Without
    /// one it spins. Only the first call has an effect.
    pub fn yield_by(&self, yield_now: Yield) {
        // An error means that it was set before.
        _ = self.yield_now.set(yield_now);
    }

    /// Lets packets of unbound receives name regions by these keys. `peer` is the number of the peer, by
    /// which keys may be limited to it ([`Scope::Peer`](crate::region::Scope::Peer)) and its guesses are
    /// counted. Only the first call has an effect; without it, every key but the table's own is refused.
    ///
    /// The table's own key must be [reserved](KeyTable::reserve).
    pub fn use_keys(&self, keys: Arc<KeyTable>, peer: u64) {
        // An error means that they were set before.
        _ = self.keys.set((keys, peer));
    }

    /// Asks `admit` before the first packet of a message with an immediate takes a place in a region.
    /// Without a ticket the packet is discarded, and the message has no place yet. Only the first call
    /// has an effect; it returns whether it was.
    pub fn admit_by(&self, admit: impl Fn() -> Option<Ticket> + Send + Sync + 'static) -> bool {
        self.admission.set(Admission(Box::new(admit))).is_ok()
    }

    /// Admits a message with an immediate; the inner value is `None` if nobody is asked.
    pub(crate) fn admit(&self) -> Result<Option<Ticket>, Discard> {
        let Some(admission) = self.admission.get() else { return Ok(None) };
        (admission.0)().map(Some).ok_or(Discard::Entry)
    }

    /// Pins a key of a region for the peer to write.
    pub(crate) fn pin_key(&self, key: u32) -> Result<PinnedKey<'_>, KeyError> {
        let (keys, peer) = self.keys.get().ok_or(KeyError::Unknown { key })?;
        keys.pin(key, *peer, Rights::REMOTE_WRITE, 0..0)
    }

    /// Whether packets may name regions.
    pub(crate) fn has_keys(&self) -> bool {
        self.keys.get().is_some()
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
        let receive = Receive::shared(number, self.geometry, placement);
        let generation = self.geometry.generation_of(number);
        self.slot(number).post(generation, receive.clone()).is_ok().then_some(receive)
    }

    /// Opens the slot of message `number` without memory: its first packet with the key of a region
    /// chooses the place, and binds the receive to it ([`Receive::bound`]). `None` if the slot is
    /// occupied. The queue pair must use keys ([`RecvTable::use_keys`]), else all packets are refused.
    ///
    /// Until then the receive costs some 300 bytes, whatever the length of the message. A peer that has a
    /// key can make each take the bitmaps of as many packets as the key's range or the longest message
    /// has, whichever is shorter: 2 bits per packet. With a code, a receive also keeps parity that it needs,
    /// as much as the code has for the message. So the number of such receives and the length of messages
    /// bound what a peer can make them take.
    ///
    /// The sender must not cut the last packet of such a message into pieces: the last piece, if it came
    /// first, would look like the whole packet.
    #[inline]
    pub fn post_unbound(&self, number: u64) -> Option<Arc<Receive>> {
        let receive = Arc::new(Receive::unbound(number, self.geometry));
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
