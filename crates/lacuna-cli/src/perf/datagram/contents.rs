//! Which bytes a message has, so that misplaced and stale ones are noticed.
//!
//! A place of the server's memory is written again and again, and nothing tells the client when the server has
//! looked at it. So what is there may be newer than the message that is looked at, but never older: an older byte
//! was not written by this message, though its map says so. To tell them apart, the messages of a place
//! take [`ROUNDS`] keys of the same memory in turns: the key says which round a message is of, up to a multiple
//! of [`ROUNDS`], and so which words it may have.
//!
//! Invariant: packets hold whole words, so that no word is of two messages.

use crate::perf::pattern;
use std::ops::Range;

/// Bytes that are written at once.
pub(super) const WORD_BYTES: u64 = 8;
/// Keys that the messages of a place take in turns.
pub(super) const ROUNDS: u32 = 64;
/// How many rounds what is there may be ahead of the message that is looked at; beyond, it is an older one.
const AHEAD_MAX: u32 = ROUNDS / 4 * 3;
/// Places whose messages a word tells apart, with their rounds.
pub(super) const PLACES_MAX: u64 = (1 << 24) / ROUNDS as u64 / 2;

/// Contents of Write-Records to a memory of so many places.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contents {
    places: u32,
}

impl Contents {
    pub(super) fn new(places: u32) -> Self {
        Self { places }
    }

    /// The number that a message is filled with: to a place, so many messages of it before.
    pub(super) fn number(self, place: u32, earlier: u64) -> u64 {
        let number = earlier.wrapping_mul(self.places.into()).wrapping_add(place.into());
        pattern::number_in_turn(number, self.places.saturating_mul(ROUNDS))
    }

    /// Offset of the first wrong word in a part of a message that came to a place under a round's key.
    pub(super) fn first_wrong(
        self,
        message: &[u8],
        part: Range<usize>,
        place: u32,
        round: u32,
    ) -> Option<usize> {
        let places = u64::from(self.places.max(1));
        let is_right = |number: Option<u64>, _| {
            number.is_some_and(|number| {
                let its_round = (number / places % u64::from(ROUNDS)) as u32;
                let ahead = (its_round + ROUNDS - round % ROUNDS) % ROUNDS;
                number % places == u64::from(place) && ahead < AHEAD_MAX
            })
        };
        pattern::first_foreign(message, part, is_right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_words_of_a_place_are_right_and_older_or_foreign_ones_wrong() {
        let contents = Contents::new(5);
        let mut message = vec![0; 80];
        for earlier in [0, 7, 63, 64, 1_000_003] {
            let round = (earlier % u64::from(ROUNDS)) as u32;
            let mut of = |place, earlier, at: Option<u32>| {
                pattern::fill(&mut message, 0, contents.number(place, earlier));
                contents.first_wrong(&message, 0..80, at.unwrap_or(place), round)
            };
            assert_eq!(of(3, earlier, None), None);
            assert_eq!(of(3, earlier + 1, None), None, "a newer one");
            assert_eq!(of(3, earlier + 40, None), None, "a much newer one");
            assert_eq!(of(3, earlier + u64::from(ROUNDS) - 1, None), Some(0), "an older one");
            assert_eq!(of(4, earlier, Some(3)), Some(0), "its neighbour's");
        }
    }

    #[test]
    fn zeros_are_nobodys_and_only_the_part_is_looked_at() {
        let contents = Contents::new(1);
        let mut message = vec![0; 64];
        pattern::fill(&mut message[..32], 0, contents.number(0, 9));
        assert_eq!(contents.first_wrong(&message, 0..32, 0, 9), None);
        assert_eq!(contents.first_wrong(&message, 0..64, 0, 9), Some(32));
    }
}
