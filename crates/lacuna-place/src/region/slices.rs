//! Parts of regions as one piece of memory: scatter/gather lists, also strided, as the columns of a
//! matrix. Receives place into it and sends take from it, so no message is copied into or out of a buffer
//! of its own.
//!
//! The bytes are accessed as all bytes of a region, so peers that have a key may write them meanwhile,
//! and a list may name the same bytes twice. A list keeps its regions' memory, but not their keys: it is
//! the owner's own access, which `revoke` does not end.
//!
//! Blocks are found by binary search, and nothing is allocated after a list was made.

use super::{OutOfBounds, Region};
use std::ops::Range;
use std::sync::Arc;

/// Equal parts of a region at equal distances: `count` of `bytes` bytes each, whose starts are
/// `stride` bytes apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stride {
    /// Where the first part begins in the region.
    pub start: u64,
    /// Bytes of each part.
    pub bytes: u64,
    /// Bytes from the start of one part to the start of the next.
    pub stride: u64,
    /// Parts.
    pub count: u64,
}

impl Stride {
    /// One part.
    pub fn of_range(range: Range<u64>) -> Self {
        let bytes = range.end.saturating_sub(range.start);
        Self { start: range.start, bytes, stride: bytes, count: 1 }
    }

    /// End of the last part in the region; `None` if that is no number.
    fn end(&self) -> Option<u64> {
        let Some(last) = self.count.checked_sub(1) else { return Some(self.start) };
        last.checked_mul(self.stride)?.checked_add(self.start)?.checked_add(self.bytes)
    }
}

/// A list of parts of regions, in the order of the message's bytes. Clones are the same list.
#[derive(Debug, Clone)]
pub struct Slices {
    // A pointer, so that a receive over a list takes no more room than another, and no allocation.
    list: Arc<List>,
}

#[derive(Debug)]
struct List {
    blocks: Arc<[Block]>,
    /// The part of the blocks that this is.
    range: Range<u64>,
}

/// Parts of one region.
#[derive(Debug)]
struct Block {
    region: Arc<Region>,
    /// Where its first byte is in the list.
    at: u64,
    parts: Stride,
}

impl Slices {
    /// A list of these parts of regions. Parts without bytes are left out.
    ///
    /// # Errors
    /// When a part is not in its region, or all together have more than `u64::MAX` bytes.
    pub fn new(
        parts: impl IntoIterator<Item = (Arc<Region>, Stride)>,
    ) -> Result<Self, OutOfBounds> {
        let mut at: u64 = 0;
        let mut blocks = Vec::new();
        for (region, parts) in parts {
            let len = region.len();
            let bytes = parts.bytes.checked_mul(parts.count);
            let next = bytes.and_then(|bytes| at.checked_add(bytes));
            let is_inside = parts.end().is_some_and(|end| end <= len);
            let (Some(bytes), Some(next), true) = (bytes, next, is_inside) else {
                let bytes = parts.end().map_or(u64::MAX, |end| end.saturating_sub(parts.start));
                return Err(OutOfBounds { offset: parts.start, bytes, len });
            };
            if bytes > 0 {
                blocks.push(Block { region, at, parts });
            }
            at = next;
        }
        Ok(Self { list: Arc::new(List { blocks: blocks.into(), range: 0..at }) })
    }

    /// Bytes of all parts.
    #[inline]
    pub fn len(&self) -> u64 {
        self.list.range.end - self.list.range.start
    }

    /// Whether there are no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.range.is_empty()
    }

    /// A part of the list, which shares its memory.
    ///
    /// # Errors
    /// When the range is not in the list.
    pub fn part(&self, range: Range<u64>) -> Result<Self, OutOfBounds> {
        let bytes = range.end.checked_sub(range.start).unwrap_or(u64::MAX);
        let start = self.check(range.start, bytes)?;
        let blocks = self.list.blocks.clone();
        Ok(Self { list: Arc::new(List { blocks, range: start..start + bytes }) })
    }

    /// Copies `bytes` to `offset` of the list.
    ///
    /// # Errors
    /// If they do not fit; then nothing is written.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), OutOfBounds> {
        let start = self.check(offset, bytes.len() as u64)?;
        self.each(start, bytes.len(), |region, at, part| region.write(at, &bytes[part]))
    }

    /// Copies from `offset` of the list to all of `out`.
    ///
    /// # Errors
    /// If the list is too short; then `out` is unchanged.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), OutOfBounds> {
        let start = self.check(offset, out.len() as u64)?;
        self.each(start, out.len(), |region, at, part| region.read(at, &mut out[part]))
    }

    /// Zeroes a range of the list.
    ///
    /// # Errors
    /// If it is out of bounds; then nothing is written.
    pub fn zero(&self, range: Range<u64>) -> Result<(), OutOfBounds> {
        let bytes = range.end.checked_sub(range.start).unwrap_or(u64::MAX);
        let start = self.check(range.start, bytes)?;
        let zero = |region: &Region, at, part: Range<usize>| {
            region.zero(at..at + (part.end - part.start) as u64)
        };
        self.each(start, bytes as usize, zero)
    }

    /// Where an offset of the list is in its blocks, if as many bytes follow.
    fn check(&self, offset: u64, bytes: u64) -> Result<u64, OutOfBounds> {
        match self.len().checked_sub(offset) {
            Some(left) if bytes <= left => Ok(self.list.range.start + offset),
            _ => Err(OutOfBounds { offset, bytes, len: self.len() }),
        }
    }

    /// Calls `access` for each piece of memory of a range of the blocks, which was checked: with its
    /// region, its place there, and its place in the range.
    fn each(
        &self,
        start: u64,
        bytes: usize,
        mut access: impl FnMut(&Region, u64, Range<usize>) -> Result<(), OutOfBounds>,
    ) -> Result<(), OutOfBounds> {
        let mut index =
            self.list.blocks.partition_point(|block| block.at <= start).saturating_sub(1);
        let mut done = 0;
        while done < bytes {
            let Block { region, at, parts } = &self.list.blocks[index];
            let within = start + done as u64 - at;
            let (part, offset) = (within / parts.bytes, within % parts.bytes);
            if part == parts.count {
                index += 1;
                continue;
            }
            let step = (parts.bytes - offset).min((bytes - done) as u64) as usize;
            access(region, parts.start + part * parts.stride + offset, done..done + step)?;
            done += step;
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::region::RegionConfig;
    use lacuna_link::SplitMix64;

    fn region(len: usize) -> Arc<Region> {
        Region::new(vec![0; len], RegionConfig::default())
    }

    fn all(region: &Region) -> Vec<u8> {
        let mut bytes = vec![0; region.len() as usize];
        region.read(0, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn random_lists_hold_what_contiguous_memory_holds() {
        let mut rng = SplitMix64::new(11);
        for _ in 0..300 {
            let regions = [region(700), region(90)];
            // The place of each byte of the list: a region and an offset, no byte twice.
            let (mut parts, mut places) = (Vec::new(), Vec::new());
            let mut free = [0, 0];
            for _ in 0..rng.below(12) {
                let which = rng.below(2) as usize;
                let (bytes, gap) = (rng.below(20), rng.below(9));
                let (count, stride) = (rng.below(4), bytes + gap);
                let start = free[which] + rng.below(5);
                let end = start + stride * count;
                if end > regions[which].len() {
                    continue;
                }
                free[which] = end;
                parts.push((regions[which].clone(), Stride { start, bytes, stride, count }));
                for part in 0..count {
                    places.extend((0..bytes).map(|byte| (which, start + part * stride + byte)));
                }
            }
            let list = Slices::new(parts).unwrap();
            assert_eq!(list.len(), places.len() as u64);
            let mut oracle = [vec![0; 700], vec![0; 90]];
            for round in 1..20 {
                let start = rng.below(list.len() + 1);
                let end = start + rng.below(list.len() - start + 1);
                let bytes = vec![round; (end - start) as usize];
                let part = list.part(start..end).unwrap();
                match round % 3 {
                    0 => part.zero(0..part.len()).unwrap(),
                    1 => part.write(0, &bytes).unwrap(),
                    _ => list.write(start, &bytes).unwrap(),
                }
                for (which, at) in &places[start as usize..end as usize] {
                    oracle[*which][*at as usize] = if round % 3 == 0 { 0 } else { round };
                }
                assert_eq!([all(&regions[0]), all(&regions[1])], oracle);
                let mut out = vec![0xEE; list.len() as usize];
                list.read(0, &mut out).unwrap();
                let byte = |(which, at): &(usize, u64)| oracle[*which][*at as usize];
                assert!(out.iter().copied().eq(places.iter().map(byte)));
            }
        }
    }

    #[test]
    fn what_is_outside_is_refused_and_nothing_changes() {
        let memory = region(100);
        let refused = |start, bytes, stride, count| {
            Slices::new([(memory.clone(), Stride { start, bytes, stride, count })]).unwrap_err()
        };
        assert_eq!(refused(90, 11, 0, 1), OutOfBounds { offset: 90, bytes: 11, len: 100 });
        assert_eq!(refused(0, 10, 46, 3).bytes, 102);
        assert_eq!(refused(0, 1, u64::MAX, 3).bytes, u64::MAX);
        assert_eq!(refused(0, u64::MAX, 0, 2).bytes, u64::MAX);
        let list = Slices::new([
            (memory.clone(), Stride::of_range(10..20)),
            (memory.clone(), Stride::of_range(50..55)),
        ])
        .unwrap();
        let refused = |offset, bytes| Err(OutOfBounds { offset, bytes, len: 15 });
        assert_eq!(list.write(14, &[1, 2]), refused(14, 2));
        assert_eq!(list.zero(3..16), refused(3, 13));
        assert_eq!(list.read(16, &mut []), refused(16, 0));
        assert!(list.part(4..16).is_err() && list.part(15..15).unwrap().is_empty());
        assert!(all(&memory).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn many_parts_may_be_the_same_bytes() {
        let memory = region(8);
        let stride = Stride { start: 0, bytes: 4, stride: 0, count: 1_000 };
        let list = Slices::new([(memory.clone(), stride)]).unwrap();
        list.write(3_996, &[1, 2, 3, 4]).unwrap();
        let mut out = [0; 6];
        list.read(1, &mut out).unwrap();
        assert_eq!(out, [2, 3, 4, 1, 2, 3]);
    }
}
