//! A set of chunks of one block, by index: data chunks 0 to k - 1, then parity chunks k to k + m - 1. It is
//! a bitmap of four words, so it needs no allocation; a receiver makes it from its chunk bitmap.

use std::fmt;

const WORDS: usize = 4;

/// A set of chunk indices below 256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ChunkSet {
    words: [u64; WORDS],
}

impl ChunkSet {
    /// One more than the largest index.
    pub const CAPACITY: usize = WORDS * 64;

    /// No chunk.
    pub const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    /// The set of a bitmap: chunk i is bit i mod 64 of word i / 64.
    pub const fn from_words(words: [u64; WORDS]) -> Self {
        Self { words }
    }

    /// The inverse of [`ChunkSet::from_words`].
    pub const fn words(&self) -> [u64; WORDS] {
        self.words
    }

    /// Adds a chunk.
    ///
    /// # Panics
    /// If the index is 256 or more.
    #[inline]
    pub fn insert(&mut self, index: usize) {
        self.words[index / 64] |= 1 << (index % 64);
    }

    /// Removes a chunk.
    ///
    /// # Panics
    /// If the index is 256 or more.
    #[inline]
    pub fn remove(&mut self, index: usize) {
        self.words[index / 64] &= !(1 << (index % 64));
    }

    /// Whether the chunk is in the set; `false` beyond the capacity.
    #[inline]
    pub fn contains(&self, index: usize) -> bool {
        self.words.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// How many chunks.
    #[inline]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words == [0; WORDS]
    }

    /// The indices, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.words.into_iter().enumerate().flat_map(|(word_index, word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = rest.trailing_zeros() as usize;
                rest &= rest.wrapping_sub(1);
                (bit < 64).then_some(word_index * 64 + bit)
            })
        })
    }

    /// How many of the set are in `range`.
    #[inline]
    pub fn count_in(&self, range: std::ops::Range<usize>) -> usize {
        self.below(range.end).len() - self.below(range.end.min(range.start)).len()
    }

    /// Those of the set that are less than `end`.
    #[inline]
    pub fn below(&self, end: usize) -> Self {
        let mut words = self.words;
        for (index, word) in words.iter_mut().enumerate() {
            let bits = end.saturating_sub(index * 64);
            if bits < 64 {
                *word &= (1 << bits) - 1;
            }
        }
        Self { words }
    }

    /// Those of the set that are not in `other`.
    #[inline]
    pub fn without(&self, other: &Self) -> Self {
        let mut words = self.words;
        words.iter_mut().zip(other.words).for_each(|(word, other)| *word &= !other);
        Self { words }
    }

    /// The set of all indices below `end`.
    #[inline]
    pub fn all_below(end: usize) -> Self {
        Self { words: [u64::MAX; WORDS] }.below(end)
    }
}

impl FromIterator<usize> for ChunkSet {
    fn from_iter<I: IntoIterator<Item = usize>>(indices: I) -> Self {
        let mut set = Self::new();
        for index in indices {
            set.insert(index);
        }
        set
    }
}

impl fmt::Debug for ChunkSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_is_listed_in_order() {
        let indices = [0, 1, 63, 64, 127, 128, 200, 255];
        let mut set: ChunkSet = indices.into_iter().rev().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), indices);
        assert_eq!(set.len(), 8);
        assert!(set.contains(64) && !set.contains(65) && !set.contains(1 << 20));
        assert_eq!(set.count_in(1..128), 4);
        assert_eq!(set.count_in(64..64) + set.count_in(300..400), 0);
        assert_eq!(set.count_in(0..999), 8);
        assert_eq!(set.below(128).iter().last(), Some(127));
        assert_eq!(set.below(256), set);
        assert_eq!(ChunkSet::all_below(130).len(), 130);
        let rest = set.without(&ChunkSet::all_below(128));
        assert_eq!(rest.iter().collect::<Vec<_>>(), [128, 200, 255]);
        set.remove(64);
        assert!(!set.contains(64));
        assert_eq!(ChunkSet::from_words(set.words()), set);
        assert!(ChunkSet::new().is_empty());
    }
}
