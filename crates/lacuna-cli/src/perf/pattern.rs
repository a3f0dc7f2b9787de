//! Message contents that reveal misplaced bytes: every 8-byte word is a function of the message's
//! number and its own offset.

use std::ops::Range;

/// Fills a message from a word boundary on.
pub(super) fn fill(buffer: &mut [u8], from: usize, message: u64) {
    for (index, word) in buffer[from..].chunks_mut(8).enumerate() {
        let value = value(message, from / 8 + index).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// Offset of the first wrong byte in a part of a message, if any.
pub(super) fn first_wrong(buffer: &[u8], part: Range<usize>, message: u64) -> Option<usize> {
    let words = part.start / 8 * 8..part.end;
    for (index, word) in buffer[words].chunks(8).enumerate() {
        let index = index + part.start / 8;
        let value = value(message, index).to_le_bytes();
        if word != &value[..word.len()] {
            // A part may begin within a word.
            let bytes = word.iter().zip(value).enumerate();
            let at = bytes
                .filter(|(_, (is, should))| **is != *should)
                .map(|(at, _)| index * 8 + at)
                .find(|at| part.contains(at));
            if at.is_some() {
                return at;
            }
        }
    }
    None
}

/// The message that a word is of, at its offset: the low 24 bits of its number. `None` if it is no word of a
/// message.
pub(super) fn message_of(word: u64, index: usize) -> Option<u64> {
    let inner = word.rotate_right(29).wrapping_mul(INVERSE) ^ index as u64;
    (inner << 24 == 0).then_some(inner >> 40)
}

/// The number under which message `number` is filled when messages take turns in so many places: each place
/// has numbers of its own, however many messages come.
pub(super) fn number_in_turn(number: u64, places: u32) -> u64 {
    number % turn(places)
}

/// Whether a message, by [`message_of`], belongs into the place of message `number`, and is not older.
pub(super) fn is_of_place(message: u64, number: u64, places: u32) -> bool {
    let (turn, places) = (turn(places), u64::from(places.max(1)));
    let newer = (message + turn).wrapping_sub(number % turn) % turn;
    message < turn && message % places == number % places && newer < turn / 2
}

/// Numbers that go round: a whole number for each place, and few enough for a word to tell apart.
fn turn(places: u32) -> u64 {
    let places = u64::from(places.max(1));
    (NUMBERS / places).max(1) * places
}

/// How far a message is ahead of another, by the bits of [`message_of`].
pub(super) fn ahead(message: u64, of: u64) -> u64 {
    message.wrapping_sub(of) & NUMBERS
}

/// Offset of the first word in a part of a buffer that is not of a message for which `is_right`, if any.
/// Only words that lie in the part whole are looked at.
pub(super) fn first_foreign(
    buffer: &[u8],
    part: Range<usize>,
    mut is_right: impl FnMut(Option<u64>, u64) -> bool,
) -> Option<usize> {
    let first = part.start.div_ceil(8);
    let words = buffer.get(first * 8..part.end)?.as_chunks::<8>().0;
    let is_wrong = |(at, word): &(usize, &[u8; 8])| {
        let word = u64::from_le_bytes(**word);
        !is_right(message_of(word, first + at), word)
    };
    words.iter().enumerate().find(is_wrong).map(|(at, _)| (first + at) * 8)
}

#[inline]
fn value(message: u64, index: usize) -> u64 {
    // One round of a multiplicative hash: cheap, and different for every word.
    (message << 40 ^ index as u64).wrapping_mul(FACTOR).rotate_left(29)
}

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
/// `FACTOR` times this is 1, by Newton's iteration: each step doubles the bits that are right.
const INVERSE: u64 = {
    let mut inverse = FACTOR;
    let mut step = 0;
    while step < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
};
const _: () = assert!(FACTOR.wrapping_mul(INVERSE) == 1);
/// Numbers that a word tells apart.
const NUMBERS: u64 = (1 << 24) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_message_checks_and_an_altered_one_does_not() {
        let mut buffer = vec![0; 1003];
        // In two parts.
        fill(&mut buffer[..504], 0, 7);
        fill(&mut buffer, 504, 7);
        assert_eq!(first_wrong(&buffer, 0..1003, 7), None);
        assert_eq!(first_wrong(&buffer, 0..1003, 8), Some(0));
        buffer[1001] ^= 1;
        assert_eq!(first_wrong(&buffer, 0..1003, 7), Some(1001));
    }

    #[test]
    fn a_word_says_which_message_it_is_of() {
        let mut buffer = vec![0; 100];
        fill(&mut buffer, 0, (5 << 24) + 7);
        let is_of = |wanted| move |message: Option<u64>, _| message == Some(wanted);
        assert_eq!(first_foreign(&buffer, 0..100, is_of(7)), None);
        assert_eq!(first_foreign(&buffer, 3..100, is_of(8)), Some(8), "the first whole word");
        buffer[33] ^= 1;
        assert_eq!(first_foreign(&buffer, 0..100, is_of(7)), Some(32));
        assert_eq!(first_foreign(&buffer, 0..32, is_of(7)), None);
        assert_eq!((ahead(3, (1 << 24) - 1), ahead(7, (5 << 24) + 7)), (4, 0));
    }

    #[test]
    fn a_place_has_messages_of_its_own_however_many_there_were() {
        for number in [0, 5, 1 << 24, (1 << 40) + 1] {
            let message = number_in_turn(number, 3);
            assert!(message < 1 << 24 && is_of_place(message, number, 3), "{number}");
            assert!(is_of_place(number_in_turn(number + 3, 3), number, 3), "a newer one");
            assert!(!is_of_place(number_in_turn(number + 1, 3), number, 3), "its neighbour's");
            assert!(!is_of_place(message, number + 3, 3), "an older one");
        }
    }

    #[test]
    fn a_part_is_checked_wherever_it_begins_and_ends() {
        let mut buffer = vec![0; 100];
        fill(&mut buffer, 0, 7);
        buffer[41] ^= 1;
        assert_eq!(first_wrong(&buffer, 0..41, 7), None);
        assert_eq!(first_wrong(&buffer, 42..100, 7), None, "the same word, behind it");
        assert_eq!(first_wrong(&buffer, 41..42, 7), Some(41));
        assert_eq!(first_wrong(&buffer, 36..100, 7), Some(41));
        assert_eq!(first_wrong(&buffer, 50..50, 7), None);
    }
}
