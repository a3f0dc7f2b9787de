//! Arithmetic in GF(2^8): bytes as polynomials over GF(2), modulo
//! x^8 + x^4 + x^3 + x^2 + 1 (0x11d), the polynomial of ISA-L and of most
//! Reed-Solomon codes in storage. Addition is XOR.
//!
//! This file computes with single coefficients, for matrices; `engine` computes with chunks.

/// The polynomial without its x^8 term: a carry out of bit 7 adds it back.
pub(crate) const POLYNOMIAL_LOW: u8 = 0x1d;

/// Order of the multiplicative group; x (2) generates it.
const ORDER: usize = 255;

/// `EXP[i]` = 2^i, twice over so that a sum of two logarithms needs no modulo.
static EXP: [u8; 2 * ORDER] = exp_table();
/// `LOG[2^i]` = i; `LOG[0]` is not used.
static LOG: [u8; 256] = log_table();

/// x times two.
pub(crate) const fn double(x: u8) -> u8 {
    (x << 1) ^ (if x & 0x80 == 0 { 0 } else { POLYNOMIAL_LOW })
}

/// The product.
#[inline]
pub(crate) fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[usize::from(LOG[usize::from(a)]) + usize::from(LOG[usize::from(b)])]
}

/// The multiplicative inverse.
///
/// # Panics
/// For zero, which has none.
#[inline]
pub(crate) fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[ORDER - usize::from(LOG[usize::from(a)])]
}

const fn exp_table() -> [u8; 2 * ORDER] {
    let mut table = [0; 2 * ORDER];
    let mut power = 1;
    let mut index = 0;
    while index < ORDER {
        table[index] = power;
        table[index + ORDER] = power;
        power = double(power);
        index += 1;
    }
    table
}

const fn log_table() -> [u8; 256] {
    let exp = exp_table();
    let mut table = [0; 256];
    let mut index = 0;
    while index < ORDER {
        table[exp[index] as usize] = index as u8;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The product by its definition: shift and reduce.
    fn mul_by_definition(a: u8, b: u8) -> u8 {
        let mut power = a;
        (0..8).fold(0, |sum, bit| {
            let term = if b >> bit & 1 == 1 { power } else { 0 };
            power = double(power);
            sum ^ term
        })
    }

    #[test]
    fn tables_agree_with_the_definition_for_all_pairs() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul_by_definition(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_its_inverse() {
        for a in 1..=255 {
            assert_eq!(mul(a, inverse(a)), 1, "{a}");
        }
    }
}
