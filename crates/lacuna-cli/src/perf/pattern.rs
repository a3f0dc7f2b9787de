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

#[inline]
fn value(message: u64, index: usize) -> u64 {
    // One round of a multiplicative hash: cheap, and different for every word.
    (message << 40 ^ index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

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
