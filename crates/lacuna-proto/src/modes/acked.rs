//! The sender's scoreboard of one message: a bit per acknowledged chunk, and the range of chunks that
//! the newest acknowledgement covers.

use super::MessageShape;
use lacuna_path::small_vec::SmallVec;
use lacuna_wire::Ack;
use std::ops::Range;

/// Acknowledged chunks and fragments of a message.
#[derive(Debug)]
pub(super) struct Acked {
    chunks: u32,
    /// Fragments of the message's user immediate; 0 without one.
    fragments_max: u32,
    /// One bit per chunk that the peer has.
    bits: SmallVec<u64>,
    count: u32,
    /// Fragments of the immediate that the peer has.
    fragments: u32,
    /// Sequence number of the control packet that brought the newest acknowledgement.
    sequence: u64,
    /// Chunks that the bitmap of the newest acknowledgement covers. It also covers those before its
    /// cumulative count.
    covered_chunks: Range<u32>,
    cumulative: u32,
}

impl Acked {
    pub(super) fn new(shape: &MessageShape) -> Self {
        Self {
            chunks: shape.chunks(),
            fragments_max: shape.fragments,
            bits: (0..shape.chunks().div_ceil(64)).map(|_| 0).collect(),
            count: 0,
            fragments: 0,
            sequence: 0,
            covered_chunks: 0..0,
            cumulative: 0,
        }
    }

    /// Takes in an acknowledgement of control packet `sequence`. Returns whether it is the newest.
    pub(super) fn on_ack(&mut self, sequence: u64, ack: &Ack<'_>) -> bool {
        let cumulative = ack.cumulative.min(self.chunks);
        self.set(0..cumulative);
        let start = u64::from(cumulative) + u64::from(ack.skipped_bytes) * 8;
        for (index, bytes) in ack.chunks.chunks(8).enumerate() {
            let mut bits = [0; 8];
            bits[..bytes.len()].copy_from_slice(bytes);
            self.set_bits(start + index as u64 * 64, u64::from_le_bytes(bits));
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

    /// Whether the newest acknowledgement covers these chunks and is at least as new as control
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

    /// Whether the peer has the fragment of the immediate that this packet carries.
    pub(super) fn has_fragment(&self, packet: u32) -> bool {
        self.fragments_max == 0 || self.fragments >> (packet % self.fragments_max) & 1 == 1
    }

    /// The first run among these packets that the peer is not known to have. Parity is never
    /// acknowledged, so a run of parity is returned whole.
    pub(super) fn missing(&self, shape: &MessageShape, packets: Range<u32>) -> Range<u32> {
        if packets.start >= shape.total_packets {
            return packets;
        }
        let Range { start, end } = packets;
        // Of a chunk repaired from parity the peer has no fragments of the immediate.
        let has = |packet: u32| {
            let is_data = packet < shape.data_packets;
            self.has_fragment(packet) && (!is_data || self.has(packet / shape.chunk_packets))
        };
        let start = (start..end).find(|packet| !has(*packet)).unwrap_or(end);
        // Bounds the scan: the caller asks again for later packets.
        let end = end.min(start.saturating_add(Self::SCANNED_MAX));
        start..(start..end).find(|packet| has(*packet)).unwrap_or(end)
    }

    /// Packets that [`Acked::missing`] scans after the first missing one.
    const SCANNED_MAX: u32 = 256;

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

    /// Sets those chunks from `first` on whose bits are set, ignoring bits past the message's end.
    fn set_bits(&mut self, first: u64, bits: u64) {
        let count = u64::from(self.chunks).saturating_sub(first).min(64);
        if count == 0 {
            return;
        }
        let bits = bits & u64::MAX >> (64 - count);
        let (index, shift) = ((first / 64) as usize, first % 64);
        let behind = if shift > 0 { bits >> (64 - shift) } else { 0 };
        for (index, bits) in [(index, bits << shift), (index + 1, behind)] {
            if bits != 0 {
                let word = &mut self.bits[index];
                self.count += (bits & !*word).count_ones();
                *word |= bits;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_link::SplitMix64;

    #[test]
    fn what_the_peer_has_is_what_a_list_of_booleans_says() {
        let mut rng = SplitMix64::new(5);
        for _ in 0..300 {
            let chunks = 1 + rng.below(400) as u32;
            let shape = MessageShape {
                chunk_packets: 1,
                data_packets: chunks,
                total_packets: chunks,
                fragments: 0,
                layout: None,
            };
            let mut acked = Acked::new(&shape);
            let mut list = vec![false; chunks as usize];
            for sequence in 0..4 {
                let cumulative = rng.below(u64::from(chunks) + 20) as u32;
                let skipped_bytes = rng.below(30) as u32;
                // Longer than the message, too: a peer may say anything.
                let bits: Vec<u8> = (0..rng.below(70)).map(|_| rng.below(256) as u8).collect();
                let ack = Ack {
                    message: 0,
                    cumulative,
                    immediate_fragments: 0,
                    truncated: false,
                    skipped_bytes,
                    chunks: &bits,
                };
                acked.on_ack(sequence, &ack);
                let start = cumulative.min(chunks) + skipped_bytes * 8;
                for (chunk, has) in list.iter_mut().enumerate() {
                    let bit = chunk.checked_sub(start as usize);
                    let byte = bit.and_then(|bit| Some(bits.get(bit / 8)? >> (bit % 8) & 1));
                    *has |= chunk < cumulative as usize || byte == Some(1);
                    assert_eq!(acked.has(chunk as u32), *has, "chunk {chunk} of {chunks}");
                }
                assert_eq!(acked.count() as usize, list.iter().filter(|has| **has).count());
            }
        }
    }

    #[test]
    fn missing_packets_lack_their_chunk_or_their_fragment() {
        // Three chunks of two packets, and two empty packets for the rest of an immediate of eight.
        let shape = MessageShape {
            chunk_packets: 2,
            data_packets: 6,
            total_packets: 8,
            fragments: 8,
            layout: None,
        };
        let mut acked = Acked::new(&shape);
        let ack = |immediate_fragments| Ack {
            message: 0,
            cumulative: 1,
            immediate_fragments,
            truncated: false,
            skipped_bytes: 0,
            chunks: &[0b010],
        };
        acked.on_ack(1, &ack(0b1011_1101));
        // The first chunk was repaired and lacks a fragment, the second was lost, the third came.
        assert_eq!(acked.missing(&shape, 0..8), 1..4);
        assert_eq!(acked.missing(&shape, 3..8), 3..4);
        assert_eq!(acked.missing(&shape, 4..8), 6..7);
        assert_eq!(acked.missing(&shape, 7..8), 8..8);
        // No acknowledgement tells of parity.
        assert_eq!(acked.missing(&shape, 10..14), 10..14);
    }
}
