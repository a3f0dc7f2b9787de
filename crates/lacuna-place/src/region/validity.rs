//! The validity map of a region (datagram-iWARP 2.2): one bit for every 64 bytes says that writers have
//! written all of them. Writes mark granules valid, `take` reads and clears the marks in one step, so of
//! two readers one gets each mark.
//!
//! A packet marks the granules that it covers wholly. Packets may begin and end within a granule; such a
//! granule is marked when both packets have arrived. Two workers may place the two packets at the same
//! time, and at least one of them must mark. So each of them
//!
//! 1. writes its bytes,
//! 2. sets its packet's bit in the message's record by a read-modify-write,
//! 3. looks for the neighbour's bit by a read-modify-write, which changes nothing,
//! 4. marks what is covered by its packet and the neighbours it has found ([`Validity::mark_joint`]).
//!
//! All accesses to one word of the record's bitmap have one order, and a read-modify-write sees the one
//! before it. If the first worker's step 3 comes before the second's step 2 in the order of the second's
//! word, then it releases to it what the first worker did in step 2, so the second worker's step 3 finds
//! the first's bit. With plain loads in step 3 both could miss each other.
//!
//! Invariants:
//! - a mark is released after all bytes of its granule were written, and `take` and `is_valid` acquire
//!   it: who sees the mark sees bytes at least as new;
//! - no mark covers a byte that no writer wrote since the map was made;
//! - a write that comes between a `take` and the reading of the bytes marks its granules again.

use crate::sync::{AtomicU64, Ordering};
use std::ops::Range;

/// Bytes per bit of the map. The granule at the end of a region may be shorter.
pub const GRANULE_BYTES: u64 = 64;

/// One bit per granule of a region; see the module's text. Ranges are of bytes, and are cut at the end of
/// the region.
#[derive(Debug)]
pub struct Validity {
    words: Box<[AtomicU64]>,
    region_bytes: u64,
}

/// Marks that were taken or copied from a [`Validity`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granules {
    /// Number of the first word's first granule, a multiple of 64.
    first: u64,
    words: Vec<u64>,
    region_bytes: u64,
}

impl Validity {
    /// A map without marks for a region of `region_bytes`. It takes 1/512 of that.
    pub(crate) fn new(region_bytes: u64) -> Self {
        let words = region_bytes.div_ceil(GRANULE_BYTES).div_ceil(64);
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), region_bytes }
    }

    /// Marks the granules that lie wholly in `range`, all bytes of which were written.
    pub fn mark(&self, range: Range<u64>) {
        self.mark_joint(range.clone(), range);
    }

    /// Marks the granules that `packet` touches and that lie wholly in `covered`: the range of the packet
    /// and of the neighbours that have arrived, all bytes of which were written.
    pub fn mark_joint(&self, packet: Range<u64>, covered: Range<u64>) {
        debug_assert!(covered.start <= packet.start && packet.end <= covered.end);
        let whole = self.whole(&covered);
        let touched = self.touched(&packet);
        let granules = whole.start.max(touched.start)..whole.end.min(touched.end);
        for (word, mask) in masks(granules) {
            self.words[word].fetch_or(mask, Ordering::Release);
        }
    }

    /// Clears the marks of all granules that lie wholly in `range`, and returns those that were set.
    pub fn take(&self, range: Range<u64>) -> Granules {
        self.collect(range, |word, mask| match word.load(Ordering::Relaxed) & mask {
            0 => 0,
            _ => word.fetch_and(!mask, Ordering::AcqRel) & mask,
        })
    }

    /// The marks of all granules that lie wholly in `range`; nothing is cleared.
    pub fn copy(&self, range: Range<u64>) -> Granules {
        self.collect(range, |word, mask| word.load(Ordering::Acquire) & mask)
    }

    /// Whether all granules that `range` touches are marked; `false` if it reaches past the region.
    pub fn is_valid(&self, range: Range<u64>) -> bool {
        range.end <= self.region_bytes
            && masks(self.touched(&range))
                .all(|(word, mask)| self.words[word].load(Ordering::Acquire) & mask == mask)
    }

    /// Whether any granule that `range` touches is marked.
    pub fn touches(&self, range: Range<u64>) -> bool {
        masks(self.touched(&range))
            .any(|(word, mask)| self.words[word].load(Ordering::Acquire) & mask != 0)
    }

    fn collect(&self, range: Range<u64>, mut of: impl FnMut(&AtomicU64, u64) -> u64) -> Granules {
        let granules = self.whole(&range);
        let words =
            masks(granules.clone()).map(|(word, mask)| of(&self.words[word], mask)).collect();
        Granules { first: granules.start / 64 * 64, words, region_bytes: self.region_bytes }
    }

    /// The granules that lie wholly in a range of bytes.
    #[inline]
    fn whole(&self, range: &Range<u64>) -> Range<u64> {
        let end = match range.end >= self.region_bytes {
            true => self.region_bytes.div_ceil(GRANULE_BYTES),
            false => range.end / GRANULE_BYTES,
        };
        range.start.div_ceil(GRANULE_BYTES)..end
    }

    /// The granules that a range of bytes touches.
    #[inline]
    fn touched(&self, range: &Range<u64>) -> Range<u64> {
        if range.is_empty() {
            return 0..0;
        }
        let end = range.end.min(self.region_bytes).div_ceil(GRANULE_BYTES);
        range.start / GRANULE_BYTES..end
    }
}

/// The words of a range of bits, and the bits in each.
#[inline]
fn masks(bits: Range<u64>) -> impl Iterator<Item = (usize, u64)> {
    let words = if bits.is_empty() { 0..0 } else { bits.start / 64..bits.end.div_ceil(64) };
    words.map(move |word| {
        let low = bits.start.saturating_sub(word * 64);
        let high = (word * 64 + 64).saturating_sub(bits.end);
        (word as usize, u64::MAX >> high & u64::MAX << low)
    })
}

impl Granules {
    /// Whether no granule is marked.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Number of marked granules.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether the granule of a byte of the region is marked.
    pub fn contains(&self, offset: u64) -> bool {
        let Some(bit) = (offset / GRANULE_BYTES).checked_sub(self.first) else { return false };
        self.words.get((bit / 64) as usize).is_some_and(|word| word >> (bit % 64) & 1 == 1)
    }

    /// The valid bytes of the region, as the fewest ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let bits = self.words.len() as u64 * 64;
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, bits, true)?;
            at = self.next(start, bits, false).unwrap_or(bits);
            let bytes = |bit: u64| ((self.first + bit) * GRANULE_BYTES).min(self.region_bytes);
            Some(bytes(start)..bytes(at))
        })
    }

    /// The first bit from `from` on that is set or clear.
    fn next(&self, from: u64, bits: u64, is_set: bool) -> Option<u64> {
        let mut at = from;
        while at < bits {
            let word = self.words[(at / 64) as usize];
            let wanted = (if is_set { word } else { !word }) & u64::MAX << (at % 64);
            if wanted != 0 {
                return Some(at / 64 * 64 + u64::from(wanted.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ends(granules: &Granules) -> Vec<(u64, u64)> {
        granules.ranges().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn only_granules_that_are_covered_wholly_are_marked() {
        let map = Validity::new(1000);
        map.mark(1..127);
        assert!(map.copy(0..1000).is_empty());
        map.mark(1..128);
        assert_eq!(ends(&map.copy(0..1000)), [(64, 128)]);
        map.mark(961..1000);
        assert!(!map.is_valid(960..1000));
    }

    #[test]
    fn the_last_granule_of_a_region_is_as_long_as_what_is_left() {
        let map = Validity::new(1000);
        map.mark(960..999);
        assert!(map.copy(0..1000).is_empty());
        map.mark(960..1000);
        assert!(map.is_valid(960..1000) && !map.is_valid(960..1001));
        let taken = map.take(0..u64::MAX);
        assert_eq!(ends(&taken), [(960, 1000)]);
        assert!(taken.contains(999) && !taken.contains(959));
        assert!(map.take(0..1000).is_empty());
    }

    #[test]
    fn a_granule_of_two_packets_needs_both() {
        let map = Validity::new(1 << 12);
        // Packets of 100 bytes from 30 on: 30..130, 130..230.
        map.mark_joint(30..130, 30..130);
        assert_eq!(ends(&map.copy(0..4096)), [(64, 128)]);
        map.mark_joint(130..230, 30..230);
        assert_eq!(ends(&map.copy(0..4096)), [(64, 192)]);
        // What only the neighbour touches is its own business.
        let map = Validity::new(1 << 12);
        map.mark_joint(130..230, 30..230);
        assert_eq!(ends(&map.copy(0..4096)), [(128, 192)]);
    }

    #[test]
    fn an_empty_packet_marks_nothing() {
        let map = Validity::new(64);
        map.mark_joint(32..32, 0..64);
        map.mark(64..64);
        assert!(map.copy(0..64).is_empty());
        assert!(map.is_valid(10..10), "there is nothing to be valid");
    }

    proptest! {
        #[test]
        fn marks_and_takes_are_those_of_a_list_of_booleans(
            region in 1u64..40_000,
            steps in prop::collection::vec((any::<bool>(), 0u64..40_000, 0u64..9_000), 1..40),
        ) {
            let map = Validity::new(region);
            let mut oracle = vec![false; region.div_ceil(64) as usize];
            for (is_mark, start, bytes) in steps {
                let range = start..start + bytes;
                let whole = |granule: usize| {
                    let first = granule as u64 * 64;
                    range.start <= first && (first + 64).min(region) <= range.end
                };
                let inside: Vec<usize> = (0..oracle.len()).filter(|granule| whole(*granule)).collect();
                if is_mark {
                    map.mark(range.clone());
                    inside.iter().for_each(|granule| oracle[*granule] = true);
                } else {
                    let taken = map.take(range.clone());
                    for (granule, is_set) in oracle.iter().enumerate() {
                        let expected = inside.contains(&granule) && *is_set;
                        prop_assert_eq!(taken.contains(granule as u64 * 64), expected);
                    }
                    let bytes: u64 = taken.ranges().map(|range| range.end - range.start).sum();
                    prop_assert!(bytes <= taken.count() * 64 && bytes + 64 > taken.count() * 64);
                    inside.iter().for_each(|granule| oracle[*granule] = false);
                }
                let touched = oracle.iter().enumerate().filter(|(granule, _)| {
                    let first = *granule as u64 * 64;
                    first < range.end && range.start < first + 64
                });
                let expected = range.end <= region && (bytes == 0 || touched.clone().all(|(_, set)| *set));
                prop_assert_eq!(map.is_valid(range), expected);
            }
        }
    }
}
