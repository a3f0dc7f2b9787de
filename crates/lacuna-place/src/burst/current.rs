//! The message that a burst is placing into: its pinned slot, the bounds that plain packets are checked
//! against, and the packet bits that were gathered but not published yet.
//!
//! Invariant: bits are published before the slot is unpinned.

use super::Named;
use super::repairs::Repairs;
use crate::receive::Receive;
use crate::slot::Pinned;
use crate::summary::BurstSummary;
use std::sync::Arc;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Current<'w> {
    pub(super) slot: u32,
    pub(super) generation: u8,
    pub(super) receive: Pinned<'w, Arc<Receive>>,
    /// The slot's address.
    pub(super) base: u64,
    /// Where full packets end at the latest.
    pub(super) limit_bytes: u64,
    /// Fragments of an immediate have no news any more.
    pub(super) has_immediate: bool,
    /// Word of the packet bitmap that is gathered.
    pub(super) word: u32,
    /// Its bits that count as set: published ones and `fresh`.
    pub(super) set: u64,
    /// Bits to be published.
    pub(super) fresh: u64,
    /// Parity is kept for rows of this channel: packets may make them repairable.
    pub(super) has_held: bool,
}

/// No word is gathered: no bitmap has so many.
const NO_WORD: u32 = u32::MAX;

impl<'w> Current<'w> {
    pub(super) fn new(
        channel: u8,
        slot: u32,
        generation: u8,
        receive: Pinned<'w, Arc<Receive>>,
    ) -> Self {
        let has_held = receive.held().is_some_and(|held| !held.is_empty(channel));
        let base = receive.geometry().slot_address(slot);
        let mut current = Self {
            slot,
            generation,
            receive,
            base,
            limit_bytes: 0,
            has_immediate: false,
            word: NO_WORD,
            set: 0,
            fresh: 0,
            has_held,
        };
        current.refresh();
        current
    }

    /// Whether a packet that names this is of this message.
    #[inline(always)]
    pub(super) fn is(&self, named: Named) -> bool {
        named.slot == self.slot && named.generation == self.generation
    }

    /// Takes in what a packet that is not plain may have changed.
    pub(super) fn refresh(&mut self) {
        self.limit_bytes = self.receive.limit_bytes();
        self.has_immediate = self.receive.immediate().is_some();
    }

    /// Goes on to another word of the bitmap; the one before it was published.
    #[inline]
    pub(super) fn gather(&mut self, word: u32) {
        self.word = word;
        self.set = self.receive.packet_word(word);
    }

    /// Gathers no word: a packet that is placed by itself changes the bitmap.
    pub(super) fn gather_none(&mut self) {
        self.word = NO_WORD;
    }

    /// Publishes what was gathered.
    #[inline]
    pub(super) fn publish(
        &mut self,
        channel: u8,
        repairs: &mut Repairs<'_>,
        summary: &mut BurstSummary,
    ) {
        if self.fresh != 0 {
            let fresh = std::mem::take(&mut self.fresh);
            summary.chunks += self.receive.publish(self.word, fresh);
            summary.touch(self.receive.number());
            if self.has_held {
                let bits = (0..64).filter(|bit| fresh >> bit & 1 == 1);
                bits.for_each(|bit| repairs.on_data(self, channel, self.word * 64 + bit));
            }
        }
    }
}
