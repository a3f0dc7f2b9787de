//! Coefficients as tables of nibbles, for byte shuffles: a product is linear, so
//! c * x = c * (low four bits of x) + c * (high four bits of x), and each part
//! has sixteen values, which fit a register.

use crate::gf;

/// Words of a coefficient: sixteen products of low nibbles, then of high ones.
pub(super) const FACTOR_WORDS: usize = 4;

/// Writes both tables.
pub(super) fn write_factor(coefficient: u8, words: &mut [u64]) {
    for (index, word) in words.iter_mut().enumerate() {
        let shift = if index < 2 { 0 } else { 4 };
        let first = (index % 2 * 8) as u8;
        let products =
            std::array::from_fn(|value| gf::mul(coefficient, (first + value as u8) << shift));
        // In memory order, whatever the processor's.
        *word = u64::from_ne_bytes(products);
    }
}
