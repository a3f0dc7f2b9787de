//! An arena for frames in flight: a frame stays where it was read until its last part is written.
//!
//! It consists of blocks of [`BLOCK_BYTES`], filled one after the other; a block is reused when all its
//! frames are released. So reading needs no copy, a small packet takes only its own bytes, and frames
//! may be released in any order. If a frame is released before the next is read, the next one reuses
//! its memory, which keeps a path without delay in the cache.

use crate::bundle::FRAME_BYTES_MAX;

/// Some fifteen full bundles, so that the unused rest of a block, too short for another frame, is a
/// small fraction (a judgement).
const BLOCK_BYTES: usize = 1 << 20;
const _: () = assert!(BLOCK_BYTES > 2 * FRAME_BYTES_MAX);

/// The position of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    block: u32,
    start: u32,
    length: u32,
}

#[derive(Debug)]
struct Block {
    bytes: Box<[u8]>,
    /// Frames in it that are not released.
    live: u32,
}

#[derive(Debug)]
pub(crate) struct Arena {
    blocks: Vec<Block>,
    /// Blocks without frames, other than the current one.
    free: Vec<u32>,
    /// The block that is being filled, and its used bytes.
    current: usize,
    used_bytes: usize,
    blocks_max: usize,
}

impl Arena {
    /// An arena of at most `bytes_max`, rounded down to blocks.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            blocks: vec![Block::new()],
            free: vec![],
            current: 0,
            used_bytes: 0,
            blocks_max: (bytes_max / BLOCK_BYTES as u64).clamp(1, u64::from(u32::MAX)) as usize,
        }
    }

    /// Room for a frame of any length; `None` when all blocks are in use.
    pub(crate) fn room(&mut self) -> Option<&mut [u8]> {
        if self.used_bytes + FRAME_BYTES_MAX > BLOCK_BYTES {
            self.current = match self.free.pop() {
                Some(block) => block as usize,
                None if self.blocks.len() < self.blocks_max => {
                    self.blocks.push(Block::new());
                    self.blocks.len() - 1
                }
                None => return None,
            };
            self.used_bytes = 0;
        }
        Some(&mut self.blocks[self.current].bytes[self.used_bytes..][..FRAME_BYTES_MAX])
    }

    /// Keeps the first `frame_bytes` of the last [`Arena::room`] as a frame.
    pub(crate) fn keep(&mut self, frame_bytes: usize) -> Place {
        assert!(frame_bytes <= FRAME_BYTES_MAX, "more than there was room for");
        let place = Place {
            block: self.current as u32,
            start: self.used_bytes as u32,
            length: frame_bytes as u32,
        };
        self.used_bytes += frame_bytes;
        self.blocks[self.current].live += 1;
        place
    }

    pub(crate) fn frame(&self, place: Place) -> &[u8] {
        &self.blocks[place.block as usize].bytes[place.start as usize..][..place.length as usize]
    }

    /// Releases a frame's memory.
    pub(crate) fn release(&mut self, place: Place) {
        let is_current = place.block as usize == self.current;
        let block = &mut self.blocks[place.block as usize];
        block.live -= 1;
        if block.live > 0 {
            return;
        }
        if is_current {
            self.used_bytes = 0;
        } else {
            self.free.push(place.block);
        }
    }
}

impl Block {
    fn new() -> Self {
        Self { bytes: vec![0; BLOCK_BYTES].into(), live: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(arena: &mut Arena, bytes: &[u8]) -> Option<Place> {
        arena.room()?[..bytes.len()].copy_from_slice(bytes);
        Some(arena.keep(bytes.len()))
    }

    #[test]
    fn a_frame_that_goes_leaves_its_place_to_the_next() {
        let mut arena = Arena::new(1 << 30);
        for _ in 0..10_000 {
            let place = put(&mut arena, &[7; 60_000]).unwrap();
            assert_eq!((place.block, place.start), (0, 0));
            arena.release(place);
        }
    }

    #[test]
    fn what_is_full_gives_no_room_until_a_block_is_free() {
        let mut arena = Arena::new(2 * BLOCK_BYTES as u64);
        let mut places = vec![];
        while let Some(place) = put(&mut arena, &[1; 60_000]) {
            places.push(place);
        }
        assert_eq!(arena.blocks.len(), 2);
        let (first, second): (Vec<_>, Vec<_>) = places.iter().partition(|place| place.block == 0);
        for place in &first[1..] {
            arena.release(*place);
        }
        assert_eq!(arena.room(), None);
        arena.release(first[0]);
        assert!(put(&mut arena, &[2; 10]).is_some_and(|place| place.block == 0));
        assert!(second.iter().all(|place| arena.frame(*place) == [1; 60_000]));
    }

    proptest::proptest! {
        /// Frames that are still held are as they were, in whatever order others go.
        #[test]
        fn frames_stay_as_they_were(
            steps in proptest::collection::vec((0..60_000usize, 0..8usize, 0..4usize), 1..400),
        ) {
            let mut arena = Arena::new(6 * BLOCK_BYTES as u64);
            let mut held: Vec<(Place, Vec<u8>)> = vec![];
            for (number, (length, which, releases)) in steps.into_iter().enumerate() {
                let frame = vec![number as u8; length];
                if let Some(place) = put(&mut arena, &frame) {
                    held.push((place, frame));
                }
                for _ in 0..releases.min(held.len()) {
                    let (place, frame) = held.remove(which % held.len());
                    proptest::prop_assert_eq!(arena.frame(place), &frame);
                    arena.release(place);
                }
            }
            for (place, frame) in held {
                proptest::prop_assert_eq!(arena.frame(place), &frame);
                arena.release(place);
            }
            proptest::prop_assert_eq!(arena.free.len() + 1, arena.blocks.len());
        }
    }
}
