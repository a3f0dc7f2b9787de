//! The message that a burst is placing into: its pinned slot, the bounds for plain packets, and the
//! packet bits that are gathered but not published yet.
//!
//! Invariant: bits are published before the slot is unpinned.

use super::PacketId;
use super::repairs::Repairs;
use crate::receive::Receive;
use crate::region::PinnedKey;
use crate::slot::Pinned;
use crate::summary::BurstSummary;
use std::sync::Arc;

/// The current message of a burst; see the module's text.
#[derive(Debug)]
pub(super) struct Current<'w> {
    pub(super) slot: u32,
    pub(super) generation: u8,
    pub(super) receive: Pinned<'w, Arc<Receive>>,
    /// The slot's address in the root key.
    pub(super) base: u64,
    /// End of the message as far as known, else of the buffer; 0 if its memory is not plain.
    pub(super) limit_bytes: u64,
    /// The immediate is complete.
    pub(super) has_immediate: bool,
    /// Index of the bitmap word that is gathered.
    pub(super) word: u32,
    /// Its set bits: the published ones and `fresh`.
    pub(super) set: u64,
    /// Gathered bits that are not published.
    pub(super) fresh: u64,
    /// Parity is stored for rows of this channel, so data packets may make them repairable.
    pub(super) has_parity: bool,
    /// The key of the message's place in a region, once a packet has named it.
    pub(super) window: Option<PinnedKey<'w>>,
}

/// No word is gathered: no bitmap is that long.
const NO_WORD: u32 = u32::MAX;

impl<'w> Current<'w> {
    #[inline(always)]
    pub(super) fn new(
        channel: u8,
        slot: u32,
        generation: u8,
        receive: Pinned<'w, Arc<Receive>>,
    ) -> Self {
        let has_parity = receive.parity().is_some_and(|parity| !parity.is_empty(channel));
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
            has_parity,
            window: None,
        };
        current.refresh();
        current
    }

    /// Whether a packet belongs to this message.
    #[inline(always)]
    pub(super) fn is(&self, id: PacketId) -> bool {
        id.slot == self.slot && id.generation == self.generation
    }

    /// Reloads the fields that a packet outside the fast path may have changed.
    #[inline]
    pub(super) fn refresh(&mut self) {
        self.limit_bytes = self.receive.plain_limit_bytes();
        self.has_immediate = self.receive.immediate().is_some();
    }

    /// Switches to another word of the bitmap; the one before must be published.
    #[inline]
    pub(super) fn gather(&mut self, word: u32) {
        self.word = word;
        self.set = self.receive.packet_word(word);
    }

    /// Stops gathering, because a packet outside the fast path is about to change the bitmap.
    pub(super) fn gather_none(&mut self) {
        self.word = NO_WORD;
    }

    /// Publishes the gathered bits.
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
            self.receive.touch();
            summary.touch(self.receive.number());
            if self.has_parity {
                let bits = (0..64).filter(|bit| fresh >> bit & 1 == 1);
                bits.for_each(|bit| repairs.on_data(self, channel, self.word * 64 + bit));
            }
        }
    }
}
