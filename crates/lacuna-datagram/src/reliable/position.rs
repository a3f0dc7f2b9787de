//! The line of messages that are sent reliably, as numbers without end.
//!
//! On the wire a message has 32 bits of number, which go round. Here it has an *index* of 64 bits, of which these are
//! the lower half, and a byte in the line has a *position*: index and place. The end of a message is the beginning
//! of the next, so a last segment reaches up to there, and an empty message is a range as others are.

use lacuna_wire::ddp::Position;
use std::ops::Range;

/// Messages that may be open: more than this many behind the first that is missing, none is sent or taken.
pub(crate) const WINDOW: u64 = 4096;

const PLACE_BITS: u32 = 32;

/// Where an index lies that is not on the wire: so high that none before it is below zero.
pub(crate) fn first_index(number: u32) -> u64 {
    1 << 32 | u64::from(number)
}

/// The index nearest to one that is known, of a number.
pub(crate) fn index_of(number: u32, near: u64) -> u64 {
    near.wrapping_add_signed(i64::from(number.wrapping_sub(near as u32) as i32))
}

/// A position.
pub(crate) fn position(index: u64, place: u32) -> u128 {
    u128::from(index) << PLACE_BITS | u128::from(place)
}

/// All of a message.
pub(crate) fn all_of(index: u64) -> Range<u128> {
    position(index, 0)..position(index + 1, 0)
}

/// The message of a position, and the place in it.
pub(crate) fn split(position: u128) -> (u64, u32) {
    ((position >> PLACE_BITS) as u64, position as u32)
}

/// A segment of a message of `length` bytes.
pub(crate) fn segment(index: u64, length: u32, place: u32, bytes: u32) -> Range<u128> {
    let end = place.saturating_add(bytes);
    let end = if end >= length { position(index + 1, 0) } else { position(index, end) };
    position(index, place)..end
}

/// The bytes of a range within one message of `length` bytes.
pub(crate) fn bytes_of(range: &Range<u128>, length: u32) -> Range<u32> {
    let (index, place) = split(range.start);
    let (end_index, end) = split(range.end);
    let end = if end_index > index { length } else { end.min(length) };
    place.min(end)..end
}

/// As it is on the wire.
pub(crate) fn to_wire(position: u128) -> Position {
    let (index, place) = split(position);
    Position { number: index as u32, place }
}

/// From the wire, nearest to an index that is known.
pub(crate) fn of_wire(on_wire: Position, near: u64) -> u128 {
    position(index_of(on_wire.number, near), on_wire.place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round_and_indices_do_not() {
        let near = first_index(u32::MAX - 1);
        assert_eq!(index_of(1, near), near + 3);
        assert_eq!(index_of(u32::MAX - 3, near), near - 2);
        let at = position(near + 3, 77);
        assert_eq!(of_wire(to_wire(at), near), at);
    }

    #[test]
    fn a_last_segment_reaches_to_the_next_message() {
        let index = first_index(7);
        assert_eq!(segment(index, 0, 0, 0), all_of(index));
        let (first, last) = (segment(index, 10, 0, 6), segment(index, 10, 6, 4));
        assert_eq!(first.end, last.start);
        assert_eq!((bytes_of(&first, 10), bytes_of(&last, 10)), (0..6, 6..10));
        assert_eq!(last.end, position(index + 1, 0));
    }
}
