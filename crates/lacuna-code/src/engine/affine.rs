//! Coefficients as 8 by 8 matrices of bits, for `gf2p8affineqb`: a product by a
//! constant is linear in the bits, whatever the field's polynomial.

use crate::gf;

/// Words of a coefficient.
pub(super) const FACTOR_WORDS: usize = 1;

/// Writes the matrix: byte 7 - i of the word is the mask of input bits whose sum is bit i of the product.
pub(super) fn write_factor(coefficient: u8, words: &mut [u64]) {
    let columns: [u8; 8] = std::array::from_fn(|bit| gf::mul(coefficient, 1 << bit));
    words[0] = (0..8).fold(0, |matrix, i| {
        let row = (0..8).fold(0, |row, bit| row | (columns[bit] >> i & 1) << bit);
        matrix | u64::from(row) << (8 * (7 - i))
    });
}
