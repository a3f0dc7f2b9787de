//! Which blocks are sent raw: a bit list that travels reliably with the header of an operation.
//!
//! One NaN or infinity in a block would be in all of its coefficients, so such a block is sent as it is. A sum
//! of a raw contribution and an encoded one is neither: on decoding, all elements of such a block are NaN. The
//! lists of all contributions to a sum are merged, in any order, so every rank that has the merged list decodes
//! the same, whichever packets it lacks. If all contributions are raw, the elements' sums are what they are
//! without the transform.

/// Which blocks of a layout are not encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawBlocks {
    blocks: usize,
    /// Blocks of which a contribution is raw. Empty as long as there are none.
    any: Vec<u64>,
    /// Blocks of which all contributions are raw; as long as `any`, and within it.
    all: Vec<u64>,
}

/// What a block's elements in the encoded form are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockState {
    /// Coefficients.
    Encoded,
    /// The tensor's elements, or sums of them.
    Raw,
    /// Sums of elements and coefficients: of no use.
    Mixed,
}

/// A list that does not fit. The peer is at fault; retrying does not help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RawBlocksError {
    /// Neither empty nor of the length that the layout calls for.
    #[error("a list of raw blocks has {have} bytes: none, or {need} for {blocks} blocks")]
    Length {
        /// Bytes that there are.
        have: usize,
        /// Bytes of a list that is not empty.
        need: usize,
        /// Blocks of the layout.
        blocks: usize,
    },
    /// A block that the layout does not have, or one that is raw everywhere but not anywhere.
    #[error("a list of raw blocks contradicts itself at block {block} of {blocks}")]
    Contradiction {
        /// The block.
        block: usize,
        /// Blocks of the layout.
        blocks: usize,
    },
    /// Lists of different layouts cannot be merged.
    #[error("lists of raw blocks of {have} and {other} blocks cannot be merged")]
    Blocks {
        /// Blocks of this list.
        have: usize,
        /// Blocks of the other.
        other: usize,
    },
}

impl RawBlocks {
    /// All of so many blocks are encoded.
    pub fn none(blocks: usize) -> Self {
        Self { blocks, any: Vec::new(), all: Vec::new() }
    }

    /// Number of blocks of the layout.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Whether no block is raw or mixed.
    pub fn is_empty(&self) -> bool {
        self.any.iter().all(|word| *word == 0)
    }

    /// What a block is.
    ///
    /// # Panics
    /// If the layout does not have it.
    pub fn state(&self, block: usize) -> BlockState {
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        let is_set =
            |words: &[u64]| words.get(block / 64).is_some_and(|word| word >> (block % 64) & 1 == 1);
        match (is_set(&self.any), is_set(&self.all)) {
            (false, _) => BlockState::Encoded,
            (true, true) => BlockState::Raw,
            (true, false) => BlockState::Mixed,
        }
    }

    /// The blocks that are raw or mixed, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        let bits = |(word, bits): (usize, &u64)| {
            let bits = *bits;
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        };
        self.any.iter().enumerate().flat_map(bits)
    }

    /// Makes this the list of a sum to which both contribute.
    pub fn merge(&mut self, other: &Self) -> Result<(), RawBlocksError> {
        if self.blocks != other.blocks {
            return Err(RawBlocksError::Blocks { have: self.blocks, other: other.blocks });
        }
        if self.any.is_empty() && other.any.is_empty() {
            return Ok(());
        }
        self.make_room();
        for word in 0..self.any.len() {
            self.any[word] |= other.any.get(word).unwrap_or(&0);
            self.all[word] &= other.all.get(word).unwrap_or(&0);
        }
        Ok(())
    }

    /// The list for an operation's header: no bytes if nothing is raw; else a bit per block of which a
    /// contribution is raw, lowest bit first, and behind these a bit per block of which all are.
    pub fn to_bytes(&self) -> Vec<u8> {
        if self.is_empty() {
            return Vec::new();
        }
        let len = self.blocks.div_ceil(8);
        let bytes = |words: &[u64]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_le_bytes()).take(len).collect()
        };
        [bytes(&self.any), bytes(&self.all)].concat()
    }

    /// Reads what [`RawBlocks::to_bytes`] wrote. At most twice as much memory as the bytes have is taken.
    pub fn parse(blocks: usize, bytes: &[u8]) -> Result<Self, RawBlocksError> {
        let mut raw = Self::none(blocks);
        let len = blocks.div_ceil(8);
        if bytes.is_empty() {
            return Ok(raw);
        }
        if bytes.len() != 2 * len {
            return Err(RawBlocksError::Length { have: bytes.len(), need: 2 * len, blocks });
        }
        raw.make_room();
        for (index, byte) in bytes.iter().enumerate() {
            let (words, at) =
                if index < len { (&mut raw.any, index) } else { (&mut raw.all, index - len) };
            words[at / 8] |= u64::from(*byte) << (at % 8 * 8);
        }
        for (word, (any, all)) in raw.any.iter().zip(&raw.all).enumerate() {
            let there = match blocks - word * 64 {
                left @ 0..64 => (1 << left) - 1,
                _ => u64::MAX,
            };
            let wrong = any & !there | all & !any;
            if wrong != 0 {
                let block = word * 64 + wrong.trailing_zeros() as usize;
                return Err(RawBlocksError::Contradiction { block, blocks });
            }
        }
        Ok(raw)
    }

    /// Makes a block raw.
    pub(super) fn insert(&mut self, block: usize) {
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        self.make_room();
        self.any[block / 64] |= 1 << (block % 64);
        self.all[block / 64] |= 1 << (block % 64);
    }

    fn make_room(&mut self) {
        self.any.resize(self.blocks.div_ceil(64), 0);
        self.all.resize(self.blocks.div_ceil(64), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(blocks: usize, raw: &[usize]) -> RawBlocks {
        let mut list = RawBlocks::none(blocks);
        raw.iter().for_each(|block| list.insert(*block));
        list
    }

    proptest! {
        #[test]
        fn a_merged_list_tells_what_all_contributions_have(
            blocks in 1usize..200,
            contributions in prop::collection::vec(prop::collection::vec(any::<usize>(), 0..6), 1..5),
        ) {
            let contributions: Vec<Vec<usize>> = contributions
                .into_iter()
                .map(|raw| raw.into_iter().map(|block| block % blocks).collect())
                .collect();
            let mut merged = list(blocks, &contributions[0]);
            for raw in &contributions[1..] {
                merged.merge(&list(blocks, raw)).unwrap();
            }
            // In any order.
            let mut reversed = list(blocks, contributions.last().unwrap());
            for raw in contributions.iter().rev().skip(1) {
                reversed.merge(&list(blocks, raw)).unwrap();
            }
            for block in 0..blocks {
                let raw = contributions.iter().filter(|raw| raw.contains(&block)).count();
                let state = match raw {
                    0 => BlockState::Encoded,
                    raw if raw == contributions.len() => BlockState::Raw,
                    _ => BlockState::Mixed,
                };
                prop_assert_eq!(merged.state(block), state);
                prop_assert_eq!(reversed.state(block), state);
            }
            let read = RawBlocks::parse(blocks, &merged.to_bytes()).unwrap();
            prop_assert!((0..blocks).all(|block| read.state(block) == merged.state(block)));
            prop_assert_eq!(read.iter().collect::<Vec<_>>(), merged.iter().collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_make_the_parser_panic(blocks in 0usize..200, bytes: Vec<u8>) {
            if let Ok(list) = RawBlocks::parse(blocks, &bytes) {
                prop_assert!(list.iter().all(|block| block < blocks));
            }
        }
    }

    #[test]
    fn a_list_of_another_layout_is_refused() {
        let error = RawBlocksError::Blocks { have: 3, other: 4 };
        assert_eq!(list(3, &[1]).merge(&list(4, &[1])), Err(error));
        let error = RawBlocksError::Length { have: 3, need: 4, blocks: 9 };
        assert_eq!(RawBlocks::parse(9, &[0; 3]), Err(error));
        let error = RawBlocksError::Contradiction { block: 9, blocks: 9 };
        assert_eq!(RawBlocks::parse(9, &[0, 2, 0, 0]), Err(error));
        let error = RawBlocksError::Contradiction { block: 2, blocks: 9 };
        assert_eq!(RawBlocks::parse(9, &[1, 0, 4, 0]), Err(error));
    }
}
