//! What the peer is known to have of one message, from its acknowledgements: a
//! bit per chunk, and how far the newest acknowledgement describes them.

use super::MessageShape;
use lacuna_wire::Ack;
use std::ops::Range;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Acked {
    chunks: u32,
    /// Fragments of the immediate that there are.
    fragments_max: u32,
    /// One bit per chunk that the peer has.
    bits: Vec<u64>,
    count: u32,
    /// Fragments of the immediate that the peer has.
    fragments: u32,
    /// Control packet that the newest acknowledgement came with.
    sequence: u64,
    /// Chunks that the bitmap of the newest acknowledgement describes, as it does
    /// those before its cumulative count.
    covered_chunks: Range<u32>,
    cumulative: u32,
}

impl Acked {
    pub(super) fn new(shape: &MessageShape) -> Self {
        Self {
            chunks: shape.chunks(),
            fragments_max: shape.fragments,
            bits: vec![0; shape.chunks().div_ceil(64) as usize],
            count: 0,
            fragments: 0,
            sequence: 0,
            covered_chunks: 0..0,
            cumulative: 0,
        }
    }

    /// Takes in an acknowledgement that came with control packet `sequence`.
    /// Returns whether it is as new as any before it.
    pub(super) fn on_ack(&mut self, sequence: u64, ack: &Ack<'_>) -> bool {
        let cumulative = ack.cumulative.min(self.chunks);
        self.set(0..cumulative);
        let start = u64::from(cumulative) + u64::from(ack.skipped_bytes) * 8;
        for (index, byte) in ack.chunks.iter().enumerate() {
            let first = start + index as u64 * 8;
            for bit in 0..8 {
                let chunk = first + bit;
                if byte >> bit & 1 == 1 && chunk < u64::from(self.chunks) {
                    self.set(chunk as u32..chunk as u32 + 1);
                }
            }
        }
        self.fragments |= ack.immediate_fragments;
        if sequence < self.sequence {
            return false;
        }
        self.sequence = sequence;
        self.cumulative = cumulative;
        let within = |chunk: u64| chunk.min(u64::from(self.chunks)) as u32;
        let end = match ack.truncated {
            true => within(start + ack.chunks.len() as u64 * 8),
            false => u32::MAX,
        };
        self.covered_chunks = within(start)..end;
        true
    }

    /// Whether these chunks are described by an acknowledgement as new as control
    /// packet `sequence`.
    pub(super) fn describes(&self, sequence: u64, chunks: &Range<u32>) -> bool {
        let Range { start, end } = self.covered_chunks;
        let is_covered = chunks.start.max(self.cumulative) >= start && chunks.end <= end;
        self.sequence >= sequence && (chunks.end <= self.cumulative || is_covered)
    }

    /// Whether the peer has the chunk.
    pub(super) fn has(&self, chunk: u32) -> bool {
        self.bits[(chunk / 64) as usize] >> (chunk % 64) & 1 == 1
    }

    /// Chunks that the peer has.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Whether the peer has the fragment that a packet carries.
    pub(super) fn has_fragment(&self, packet: u32) -> bool {
        self.fragments_max == 0 || self.fragments >> (packet % self.fragments_max) & 1 == 1
    }

    fn set(&mut self, chunks: Range<u32>) {
        let mut chunk = chunks.start;
        while chunk < chunks.end {
            let word = &mut self.bits[(chunk / 64) as usize];
            let count = (64 - chunk % 64).min(chunks.end - chunk);
            let mask = (u64::MAX >> (64 - count)) << (chunk % 64);
            self.count += (mask & !*word).count_ones();
            *word |= mask;
            chunk += count;
        }
    }
}
