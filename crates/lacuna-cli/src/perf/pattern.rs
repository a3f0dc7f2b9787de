//! Message contents that tell on misplaced bytes: every 8-byte word is a
//! function of the message's number and its own offset.

/// Fills a message.
pub(super) fn fill(buffer: &mut [u8], message: u64) {
    for (index, word) in buffer.chunks_mut(8).enumerate() {
        let value = value(message, index as u64).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

/// Offset of the first wrong byte, if any.
pub(super) fn first_wrong(buffer: &[u8], message: u64) -> Option<usize> {
    for (index, word) in buffer.chunks(8).enumerate() {
        let value = value(message, index as u64).to_le_bytes();
        if word != &value[..word.len()] {
            let at = word.iter().zip(value).position(|(is, should)| *is != should);
            return Some(index * 8 + at.unwrap_or(0));
        }
    }
    None
}

#[inline]
fn value(message: u64, index: u64) -> u64 {
    // One round of a multiplicative hash: cheap, and no two words alike.
    (message << 40 ^ index).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filled_message_checks_and_an_altered_one_does_not() {
        let mut buffer = vec![0; 1003];
        fill(&mut buffer, 7);
        assert_eq!(first_wrong(&buffer, 7), None);
        assert_eq!(first_wrong(&buffer, 8), Some(0));
        buffer[1001] ^= 1;
        assert_eq!(first_wrong(&buffer, 7), Some(1001));
    }
}
