//! The Internet checksum (RFC 1071) and its update (RFC 1624).

/// The ones' complement sum of big-endian 16-bit words, folded; an odd last byte is padded.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let odd = words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    let total: u64 = words.map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    fold(total + odd)
}

/// Replaces `old` by `new` in a sum.
pub(super) fn exchange(sum: u16, old: u32, new: u32) -> u16 {
    // Subtracting is adding the complement.
    fold(u64::from(sum) + u64::from(!fold(u64::from(old))) + u64::from(new))
}

/// Adds carries to the low end until none is left.
fn fold(mut total: u64) -> u16 {
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_rfc_1071_section_3() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[0x00, 0x01, 0xf2]), 0xf201);
        assert_eq!(sum(&[]), 0);
    }

    proptest::proptest! {
        #[test]
        fn exchanging_a_word_is_summing_again(
            mut words in proptest::collection::vec(1..u16::MAX, 2..20),
            new in 1..u16::MAX,
        ) {
            let bytes = |words: &[u16]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>();
            let (before, old) = (sum(&bytes(&words)), words[0]);
            words[0] = new;
            let after = sum(&bytes(&words));
            // Zero has two forms in ones' complement.
            let updated = exchange(before, u32::from(old), u32::from(new));
            proptest::prop_assert!(updated == after || (updated.is_multiple_of(0xffff) && after.is_multiple_of(0xffff)));
        }
    }
}
