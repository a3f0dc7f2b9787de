//! The bytes that each bit of a chunk map covers.
//!
//! A message longer than a slot is sent as several transport messages, each with its own chunk
//! numbers, so the last chunk of every slot may be short.

use lacuna::{Chosen, Completed};
use std::ops::Range;

/// Chunks of a message of known length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunks {
    len_bytes: u64,
    chunk_bytes: u64,
    slot_bytes: u64,
}

impl Chunks {
    pub(crate) fn new(chosen: &Chosen, len_bytes: u64) -> Self {
        let (chunk_bytes, slot_bytes) = (chosen.chunk_bytes, chosen.slot_bytes);
        Self { len_bytes, chunk_bytes, slot_bytes }
    }

    /// Number of chunks; an empty message has one.
    pub(crate) fn count(&self) -> u64 {
        let whole_slots = self.len_bytes / self.slot_bytes;
        let rest_bytes = self.len_bytes % self.slot_bytes;
        let count = whole_slots * self.per_slot() + rest_bytes.div_ceil(self.chunk_bytes);
        count.max(1)
    }

    /// The bytes of a chunk.
    pub(crate) fn bytes(&self, chunk: u64) -> Range<usize> {
        let slot_start = chunk / self.per_slot() * self.slot_bytes;
        let start = slot_start + chunk % self.per_slot() * self.chunk_bytes;
        let end = (start + self.chunk_bytes).min(slot_start + self.slot_bytes);
        start.min(self.len_bytes) as usize..end.min(self.len_bytes) as usize
    }

    /// The bytes of every chunk, and whether it arrived.
    pub(crate) fn of<'a>(
        &'a self,
        done: &'a Completed,
    ) -> impl Iterator<Item = (Range<usize>, bool)> + 'a {
        (0..self.count()).map(|chunk| {
            let word = done.chunks.get((chunk / 64) as usize).copied().unwrap_or(0);
            (self.bytes(chunk), word >> (chunk % 64) & 1 == 1)
        })
    }

    fn per_slot(&self) -> u64 {
        self.slot_bytes.div_ceil(self.chunk_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_numbered_anew_in_each_slot() {
        // Slots of 10 bytes, chunks of 4: 4 + 4 + 2 in each.
        let chunks = Chunks { len_bytes: 25, chunk_bytes: 4, slot_bytes: 10 };
        let ranges: Vec<_> = (0..chunks.count()).map(|chunk| chunks.bytes(chunk)).collect();
        assert_eq!(ranges, [0..4, 4..8, 8..10, 10..14, 14..18, 18..20, 20..24, 24..25]);
        let empty = Chunks { len_bytes: 0, ..chunks };
        assert_eq!((empty.count(), empty.bytes(0)), (1, 0..0));
        let whole = Chunks { len_bytes: 20, ..chunks };
        assert_eq!(whole.count(), 6);
    }
}
