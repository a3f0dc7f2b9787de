//! The bitmaps of one receive: a bit per packet and a bit per chunk.
//!
//! The worker of a channel sets packet bits, singly or a word at a time, and sets the bit of each chunk
//! that is complete by them. Readers load the words without a lock. The invariants are those of the
//! record (`receive.rs`): the bytes come before the packet's bit, and the packet bits before the chunk's.

use super::{Placed, Receive};
use crate::sync::{AtomicU64, Ordering};

/// A bitmap of `bits` bits; `None` if it has one word.
pub(super) fn long_bitmap(bits: u32) -> Option<Box<[AtomicU64]>> {
    let words = bits.div_ceil(64);
    (words != 1).then(|| (0..words).map(|_| AtomicU64::new(0)).collect())
}

impl Receive {
    #[inline]
    pub(super) fn packet_bits(&self) -> &[AtomicU64] {
        self.packet_bits.as_deref().unwrap_or(std::slice::from_ref(&self.live.packet_word))
    }

    /// A word of the packet bitmap.
    ///
    /// # Panics
    /// If the buffer has no such packets.
    #[inline]
    pub(crate) fn packet_word(&self, word: u32) -> u64 {
        self.packet_bits()[word as usize].load(Ordering::Relaxed)
    }

    /// Sets the bit of a packet whose bytes were written, and its chunk's bit if that is complete now.
    #[inline(always)]
    pub(super) fn set_packet(&self, packet: u32) -> Placed {
        let bit = 1u64 << (packet % 64);
        let word = &self.packet_bits()[(packet / 64) as usize];
        let now = word.fetch_or(bit, Ordering::AcqRel) | bit;
        Placed::New { chunk: self.finish_chunk(packet, now) }
    }

    /// Sets the clear bits `fresh` of a word, whose packets this worker has written, and the bits of the
    /// chunks that are complete now. Returns the number of those chunks.
    pub(crate) fn publish(&self, word: u32, fresh: u64) -> u64 {
        let now = self.packet_bits()[word as usize].fetch_or(fresh, Ordering::AcqRel) | fresh;
        let chunk_packets = self.geometry.chunk_packets();
        if chunk_packets == 1 {
            return u64::from(self.set_chunks(word, fresh));
        }
        if now == u64::MAX && chunk_packets <= 64 && chunk_packets.is_power_of_two() {
            // The word consists of complete chunks, as in bulk.
            let chunks = 64 >> chunk_packets.trailing_zeros();
            let first = word * chunks;
            let bits = (u64::MAX >> (64 - chunks)) << (first % 64);
            return u64::from(self.set_chunks(first / 64, bits));
        }
        // The bits of several short chunks are gathered and set a word at a time.
        let (mut done, mut bits, mut chunk_word) = (0, 0, 0);
        let mut rest = fresh;
        while rest != 0 {
            // The last new packet of the first chunk that has new packets.
            let first = word * 64 + rest.trailing_zeros();
            let next_chunk = (first / chunk_packets + 1) * chunk_packets;
            let ahead = u64::MAX.checked_shl(next_chunk - word * 64).unwrap_or(0);
            let last = word * 64 + 63 - (rest & !ahead).leading_zeros();
            if let Some(chunk) = self.whole_chunk(last, now) {
                if chunk / 64 != chunk_word {
                    done += self.set_chunks(chunk_word, std::mem::take(&mut bits));
                    chunk_word = chunk / 64;
                }
                bits |= 1 << (chunk % 64);
            }
            rest &= ahead;
        }
        u64::from(done + self.set_chunks(chunk_word, bits))
    }

    /// The packet's chunk, if it is complete; `now` is the value of the packet's word.
    #[inline]
    fn whole_chunk(&self, packet: u32, now: u64) -> Option<u32> {
        let chunk_packets = self.geometry.chunk_packets();
        let chunk = packet / chunk_packets;
        let first = chunk * chunk_packets;
        // Since the check of this packet, another worker may have learned an end before it (from a
        // sender that contradicts itself). The chunk includes this packet nevertheless.
        let last = (first + chunk_packets).min(self.packets()).max(packet + 1) - 1;
        let is_whole = if first / 64 == last / 64 {
            let mask = (u64::MAX >> (63 - (last - first))) << (first % 64);
            now & mask == mask
        } else {
            (first / 64..=last / 64).all(|word| {
                let low = first.max(word * 64) % 64;
                let high = last.min(word * 64 + 63) % 64;
                let mask = (u64::MAX >> (63 - (high - low))) << low;
                self.packet_bits()[word as usize].load(Ordering::Acquire) & mask == mask
            })
        };
        is_whole.then_some(chunk)
    }

    /// Sets the bit of the packet's chunk and returns it, if `packet` completed it; `now` is the value of
    /// the packet's word.
    #[inline]
    pub(super) fn finish_chunk(&self, packet: u32, now: u64) -> Option<u32> {
        let chunk = self.whole_chunk(packet, now)?;
        (self.set_chunks(chunk / 64, 1 << (chunk % 64)) == 1).then_some(chunk)
    }

    /// Sets bits of a word of the chunk bitmap. Returns how many of them were clear.
    #[inline]
    fn set_chunks(&self, word: u32, bits: u64) -> u32 {
        if bits == 0 {
            return 0;
        }
        let before = self.chunk_bits()[word as usize].fetch_or(bits, Ordering::AcqRel);
        let done = (bits & !before).count_ones();
        if done > 0 {
            self.live.chunks_done.fetch_add(done, Ordering::AcqRel);
        }
        done
    }

    /// Whether any packet from `first` on has arrived; called once per message.
    pub(super) fn has_packets_from(&self, first: u64) -> bool {
        let words = self.packet_bits().iter().enumerate().skip((first / 64) as usize);
        words.map(|(index, word)| (index as u64, word.load(Ordering::Relaxed))).any(
            |(index, word)| {
                let skipped = first.saturating_sub(index * 64);
                word >> skipped != 0
            },
        )
    }

    /// Whether a packet has arrived.
    #[inline]
    pub fn has_packet(&self, packet: u32) -> bool {
        self.packet_bits()
            .get((packet / 64) as usize)
            .is_some_and(|word| word.load(Ordering::Acquire) >> (packet % 64) & 1 == 1)
    }

    /// Whether a packet has arrived, as a read-modify-write that changes nothing: of two workers that set
    /// a packet's bit each and then look for the other's, one finds it (`region/validity.rs`).
    pub(crate) fn meets_packet(&self, packet: u32) -> bool {
        self.packet_bits()
            .get((packet / 64) as usize)
            .is_some_and(|word| word.fetch_or(0, Ordering::AcqRel) >> (packet % 64) & 1 == 1)
    }

    /// Number of complete chunks.
    #[inline]
    pub fn chunks_done(&self) -> u32 {
        self.live.chunks_done.load(Ordering::Acquire)
    }

    /// Whether a chunk is complete; `false` out of range.
    #[inline]
    pub fn has_chunk(&self, chunk: u32) -> bool {
        self.chunk_bits()
            .get((chunk / 64) as usize)
            .is_some_and(|word| word.load(Ordering::Acquire) >> (chunk % 64) & 1 == 1)
    }

    /// The live chunk bitmap: chunk `i` is bit `i % 64` of word `i / 64`.
    #[inline]
    pub fn chunk_bits(&self) -> &[AtomicU64] {
        self.chunk_bits.as_deref().unwrap_or(std::slice::from_ref(&self.live.chunk_word))
    }

    /// The packet bits of one chunk; of a chunk with more than 64 packets, the first 64.
    pub fn chunk_packets(&self, chunk: u32) -> u64 {
        let first = chunk.saturating_mul(self.geometry.chunk_packets());
        let count = self.geometry.chunk_packets().min(64);
        (0..count)
            .fold(0, |bits, i| bits | u64::from(self.has_packet(first.saturating_add(i))) << i)
    }

    /// Number of chunks before the first missing one: the cumulative acknowledgement.
    #[inline]
    pub fn cumulative(&self) -> u32 {
        let chunks = self.chunks();
        for (index, word) in self.chunk_bits().iter().enumerate() {
            let missing = (!word.load(Ordering::Acquire)).trailing_zeros();
            if missing < 64 {
                return (index as u32 * 64 + missing).min(chunks);
            }
        }
        chunks
    }

    /// Writes the chunk bits from `first` on into `out`, least significant bit first, as in an
    /// acknowledgement. Returns the number of bytes up to the last one with a set bit.
    pub fn copy_chunk_bits(&self, first: u32, out: &mut [u8]) -> usize {
        let load = |word: usize| {
            self.chunk_bits().get(word).map_or(0, |word| word.load(Ordering::Acquire))
        };
        let shift = first % 64;
        let mut used = 0;
        for (index, bytes) in out.chunks_mut(8).enumerate() {
            let word = (first / 64) as usize + index;
            if word >= self.chunk_bits().len() {
                break;
            }
            let mut bits = load(word) >> shift;
            if shift > 0 {
                bits |= load(word + 1) << (64 - shift);
            }
            let bits = bits.to_le_bytes();
            bytes.copy_from_slice(&bits[..bytes.len()]);
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                used = index * 8 + last + 1;
            }
        }
        used
    }
}
