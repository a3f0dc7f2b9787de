//! A set of places in a block: 256 bits.

use crate::strength::BLOCK_PACKETS_MAX;

const WORDS: usize = BLOCK_PACKETS_MAX as usize / 64;

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Places([u64; WORDS]);

impl Places {
    #[inline]
    pub(crate) fn contains(&self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 != 0
    }

    #[inline]
    pub(crate) fn insert(&mut self, place: usize) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The largest place plus one.
    pub(crate) fn end(&self) -> usize {
        let word = self.0.iter().rposition(|word| *word != 0);
        word.map_or(0, |word| 64 * word + 64 - self.0[word].leading_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut places = Places::default();
        assert!(places.is_empty() && places.end() == 0);
        for (count, place) in [0, 63, 64, 130, 255].into_iter().enumerate() {
            assert!(!places.contains(place));
            places.insert(place);
            assert!(places.contains(place));
            assert_eq!((places.len(), places.end()), (count + 1, place + 1));
        }
    }
}
