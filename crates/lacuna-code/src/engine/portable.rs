//! The engine for any processor: safe code over blocks of fixed length that compilers can vectorise.
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
//! That takes an XOR of half of the inputs per bit, and seven multiplications by x per output, whatever the
//! number of inputs. With fewer inputs than outputs, as in an update with one chunk, the inputs are
//! multiplied instead. The plan is, per row and bit, the set of columns.
//!
//! The inputs of a block of columns are first copied side by side: chunks of a power-of-two length would
//! otherwise evict each other from the L1 cache before the next row reads them again.

use super::Kernel;
use super::plan::{Matrix, Task};
use crate::code::CHUNKS_MAX;
use crate::gf::POLYNOMIAL_LOW;
use std::ops::Range;

/// Bytes computed at a time: eight registers of 16 bytes, half of what x86-64
/// and a quarter of what AArch64 has. Half as many halve the speed.
const BLOCK: usize = 128;
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
        if inputs.len() < outputs.len() {
            return mul_few(task, inputs, outputs, columns, accumulate);
        }
        let mut blocks = [[0; BLOCK]; CHUNKS_MAX];
        for at in columns.clone().step_by(BLOCK) {
            let columns = at..columns.end.min(at + BLOCK);
            for (block, input) in blocks.iter_mut().zip(inputs) {
                block[..columns.len()].copy_from_slice(&input[columns.clone()]);
            }
            for (row, output) in outputs.iter_mut().enumerate() {
                let sum = row_of_block(task, row, &blocks[..inputs.len()]);
                store(&mut output[columns.clone()], &sum, accumulate);
            }
        }
    }

    fn xor(self, inputs: &[&[u8]], output: &mut [u8], columns: Range<usize>, accumulate: bool) {
        let mut at = columns.start;
        while columns.end - at >= BLOCK {
            let mut sum = [0; BLOCK];
            for input in inputs {
                let block = &input[at..at + BLOCK];
                (0..BLOCK).for_each(|at| sum[at] ^= block[at]);
            }
            store(&mut output[at..at + BLOCK], &sum, accumulate);
            at += BLOCK;
        }
        let rest = at..columns.end;
        let mut sum = [0; BLOCK];
        for input in inputs {
            sum.iter_mut().zip(&input[rest.clone()]).for_each(|(sum, byte)| *sum ^= byte);
        }
        store(&mut output[rest], &sum, accumulate);
    }
}

/// The multiplication for few inputs: computes each input's products with eight powers of x and adds them
/// to the outputs.
fn mul_few(
    task: &Task<'_>,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    columns: Range<usize>,
    accumulate: bool,
) {
    let mut powers = [[0; BLOCK]; BITS];
    for at in columns.clone().step_by(BLOCK) {
        let columns = at..columns.end.min(at + BLOCK);
        if inputs.is_empty() {
            outputs.iter_mut().for_each(|o| store(&mut o[columns.clone()], &powers[0], accumulate));
        }
        for (index, input) in inputs.iter().enumerate() {
            let accumulate = accumulate || index > 0;
            powers[0][..columns.len()].copy_from_slice(&input[columns.clone()]);
            for bit in 1..BITS {
                powers[bit] = powers[bit - 1];
                double(&mut powers[bit]);
            }
            let column = task.first_column + index;
            for (row, output) in outputs.iter_mut().enumerate() {
                let mut sum = [0; BLOCK];
                for (power, set) in powers.iter().zip(sets(task, row)) {
                    if set[column / 64] >> (column % 64) & 1 == 1 {
                        add(&mut sum, power);
                    }
                }
                store(&mut output[columns.clone()], &sum, accumulate);
            }
        }
    }
}

/// One output's block, by Horner's rule.
#[inline]
fn row_of_block(task: &Task<'_>, row: usize, blocks: &[[u8; BLOCK]]) -> [u8; BLOCK] {
    let mut sum = [0; BLOCK];
    for set in sets(task, row).rev() {
        double(&mut sum);
        for (index, word) in set.iter().enumerate() {
            let mut rest = *word;
            while rest != 0 {
                let column = index * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                // Skip columns before the first or past the last input.
                if let Some(block) = blocks.get(column.wrapping_sub(task.first_column)) {
                    add(&mut sum, block);
                }
            }
        }
    }
    sum
}

/// A row's sets of columns, by bit of the coefficient.
fn sets<'p>(task: &Task<'p>, row: usize) -> impl DoubleEndedIterator<Item = &'p [u64]> {
    let sets = &task.words[(task.first_row + row) * BITS * SET_WORDS..];
    sets[..BITS * SET_WORDS].chunks_exact(SET_WORDS)
}

#[inline(always)]
fn add(sum: &mut [u8; BLOCK], block: &[u8; BLOCK]) {
    (0..BLOCK).for_each(|at| sum[at] ^= block[at]);
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
fn store(output: &mut [u8], sum: &[u8], accumulate: bool) {
    if accumulate {
        output.iter_mut().zip(sum).for_each(|(byte, sum)| *byte ^= sum);
    } else {
        output.copy_from_slice(&sum[..output.len()]);
    }
}
