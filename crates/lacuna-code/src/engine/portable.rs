//! The engine for any processor: safe code over blocks of 64 bytes, in a form
//! that compilers turn into whatever vector instructions there are.
//!
//! A product by a constant needs a table lookup per byte, which no compiler
//! vectorises. But the sum of products over all inputs can be ordered by the
//! coefficients' bits (Horner's rule in the variable x):
//!
//! ```text
//! output = sum over j of c(j) * input(j)
//!        = ((s(7) * x + s(6)) * x + ...) * x + s(0)
//! s(b)   = sum of the inputs j whose c(j) has bit b
//! ```
//!
//! That is plain XOR of half of the inputs per bit, and seven multiplications
//! by x per output, whatever the number of inputs. The plan is, per row and bit,
//! the set of columns.

use super::Kernel;
use super::plan::{Matrix, Task};
use crate::gf::POLYNOMIAL_LOW;
use std::ops::Range;

/// Bytes computed at a time: a cache line; four registers of 16 bytes.
const BLOCK: usize = 64;
/// Words of a set of up to 256 columns.
const SET_WORDS: usize = 4;
/// Bits of a coefficient.
const BITS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Portable;

impl Kernel for Portable {
    fn plan_words(self, rows: usize, _columns: usize) -> usize {
        rows * BITS * SET_WORDS
    }

    fn write_plan(self, matrix: &Matrix<'_>, words: &mut [u64]) {
        for (row, sets) in words.chunks_exact_mut(BITS * SET_WORDS).enumerate() {
            for (bit, set) in sets.chunks_exact_mut(SET_WORDS).enumerate() {
                set.fill(0);
                for (column, coefficient) in matrix.row(row).iter().enumerate() {
                    set[column / 64] |= u64::from(coefficient >> bit & 1) << (column % 64);
                }
            }
        }
    }

    fn mul(
        self,
        task: &Task<'_>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        columns: Range<usize>,
        accumulate: bool,
    ) {
        // All rows of a block of columns before the next one: the inputs are
        // then read from memory once.
        for at in columns.clone().step_by(BLOCK) {
            let len = BLOCK.min(columns.end - at);
            for (row, output) in outputs.iter_mut().enumerate() {
                let sets = &task.words[(task.first_row + row) * BITS * SET_WORDS..];
                let sum = row_of_block(sets, task.first_column, inputs, at, len);
                store(&mut output[at..at + len], &sum, accumulate);
            }
        }
    }

    fn xor(self, inputs: &[&[u8]], output: &mut [u8], columns: Range<usize>, accumulate: bool) {
        for at in columns.clone().step_by(BLOCK) {
            let len = BLOCK.min(columns.end - at);
            let mut sum = [0; BLOCK];
            for input in inputs {
                add(&mut sum, &input[at..at + len]);
            }
            store(&mut output[at..at + len], &sum, accumulate);
        }
    }
}

/// One output's block, by Horner's rule.
#[inline]
fn row_of_block(
    sets: &[u64],
    first_column: usize,
    inputs: &[&[u8]],
    at: usize,
    len: usize,
) -> [u8; BLOCK] {
    let mut sum = [0; BLOCK];
    for bit in (0..BITS).rev() {
        if bit < BITS - 1 {
            double(&mut sum);
        }
        let set = &sets[bit * SET_WORDS..][..SET_WORDS];
        for (index, word) in set.iter().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let column = index * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                // Columns before the first or past the last input are not asked for.
                if let Some(input) = inputs.get(column.wrapping_sub(first_column)) {
                    add(&mut sum, &input[at..at + len]);
                }
            }
        }
    }
    sum
}

#[inline(always)]
fn add(sum: &mut [u8; BLOCK], input: &[u8]) {
    match <&[u8; BLOCK]>::try_from(input) {
        Ok(block) => (0..BLOCK).for_each(|at| sum[at] ^= block[at]),
        Err(_) => sum.iter_mut().zip(input).for_each(|(sum, byte)| *sum ^= byte),
    }
}

/// Each byte times x, without a branch: the sign bit spread over the byte
/// selects the polynomial.
#[inline(always)]
fn double(block: &mut [u8; BLOCK]) {
    for byte in block {
        let carry = (*byte as i8 >> 7) as u8;
        *byte = (*byte << 1) ^ (carry & POLYNOMIAL_LOW);
    }
}

#[inline(always)]
fn store(output: &mut [u8], sum: &[u8; BLOCK], accumulate: bool) {
    if accumulate {
        output.iter_mut().zip(sum).for_each(|(byte, sum)| *byte ^= sum);
    } else {
        output.copy_from_slice(&sum[..output.len()]);
    }
}
