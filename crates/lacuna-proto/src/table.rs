//! The receive side of a queue pair's root key: all its slots, and the workers'
//! way into them.
//!
//! [`RecvTable`] is shared by everyone; [`ChannelWriter`] is the right to place
//! packets of one channel and exists once per channel. Because a packet's
//! channel is a function of its offset, that right makes each byte's writer
//! unique, by construction rather than by care.

use crate::burst::BurstPlacer;
use crate::geometry::Geometry;
use crate::parity::Repairer;
use crate::pieces::Pieces;
use crate::receive::Receive;
use crate::slot::{Pinned, Slot};
use lacuna_code::Codec;
use std::sync::{Arc, OnceLock};

/// The slots of one queue pair.
#[derive(Debug)]
pub struct RecvTable {
    geometry: Geometry,
    rkey: u32,
    /// Made at the first post: a queue pair that only sends has none.
    slots: OnceLock<Box<[Slot<Arc<Receive>>]>>,
}

impl RecvTable {
    /// A table without posted receives whose packets must carry `rkey`, and
    /// the one writer of each channel, which repairs with `codec`.
    pub(crate) fn new(
        geometry: Geometry,
        rkey: u32,
        first_psn: u32,
        codec: Option<&Arc<Codec>>,
    ) -> (Arc<Self>, Vec<ChannelWriter>) {
        let table = Arc::new(Self { geometry, rkey, slots: OnceLock::new() });
        let writers = (0..geometry.channels())
            .map(|channel| ChannelWriter {
                table: table.clone(),
                channel,
                next_psn: u64::from(first_psn),
                repairer: codec.map(|codec| Box::new(Repairer::new(codec.clone()))),
                pieces: Pieces::default(),
            })
            .collect();
        (table, writers)
    }

    /// The numbers both ends agreed on.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The key that the peer's packets carry.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    fn slots(&self) -> &[Slot<Arc<Receive>>] {
        self.slots.get_or_init(|| (0..self.geometry.slots()).map(|_| Slot::new()).collect())
    }

    /// Pins a slot for the length of a burst; `None` if it is closed, or open in
    /// another generation.
    pub(crate) fn pin(&self, slot: u32, generation: u8) -> Option<Pinned<'_, Arc<Receive>>> {
        self.slots.get()?[slot as usize].pin(generation).ok()
    }

    fn slot(&self, number: u64) -> &Slot<Arc<Receive>> {
        &self.slots()[self.geometry.slot_of(number) as usize]
    }

    /// Whether the slot of message `number` can be posted.
    pub fn is_free(&self, number: u64) -> bool {
        self.slot(number).is_free()
    }

    /// Opens the slot of the receive's message. `false` if it is occupied.
    pub(crate) fn post(&self, receive: Arc<Receive>) -> bool {
        let number = receive.number();
        let generation = self.geometry.generation_of(number);
        self.slot(number).post(generation, receive).is_ok()
    }

    /// Closes the slot of message `number`: once this returns no byte of the
    /// buffer changes any more. `None` if it was closed already: also then no
    /// byte changes, a close under way is waited for. A number whose slot went
    /// on to another generation closes nothing.
    ///
    /// Waits for workers that are placing into it; must not be called by a
    /// worker in the middle of a burst.
    pub fn close(&self, number: u64) -> Option<Arc<Receive>> {
        let generation = self.geometry.generation_of(number);
        self.slot(number).retire(generation, self.geometry.config().generations)
    }
}

/// The right to place packets of one channel.
#[derive(Debug)]
pub struct ChannelWriter {
    table: Arc<RecvTable>,
    channel: u8,
    /// One past the highest packet sequence number that came.
    next_psn: u64,
    /// If messages carry parity.
    repairer: Option<Box<Repairer>>,
    /// Of packets that come in pieces.
    pieces: Pieces,
}

impl ChannelWriter {
    /// The channel this is the writer of.
    pub fn channel(&self) -> u8 {
        self.channel
    }

    /// Sets the first sequence number that the peer will use.
    pub(crate) fn expect_psn(&mut self, first_psn: u32) {
        self.next_psn = u64::from(first_psn);
    }

    /// Begins a burst; the slots it touches stay pinned until it is dropped.
    #[inline]
    pub fn burst(&mut self) -> BurstPlacer<'_> {
        let repairer = self.repairer.as_deref_mut();
        let next_psn = &mut self.next_psn;
        BurstPlacer::new(&self.table, self.channel, next_psn, repairer, &mut self.pieces)
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
