//! SSSE3: 16 bytes a register, a product two byte shuffles, 16 registers. Every
//! x86-64 processor since 2006 has it.

#![allow(unsafe_code)]

use super::plan::{Matrix, Task};
use super::vector::{self, Group, Vector};
use super::{Kernel, nibbles};
use std::arch::x86_64::*;
use std::ops::Range;

/// The proof that this processor has SSSE3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ssse3(());

impl Ssse3 {
    pub(super) fn new() -> Option<Self> {
        is_x86_feature_detected!("ssse3").then_some(Self(()))
    }
}

impl Kernel for Ssse3 {
    fn plan_words(self, rows: usize, columns: usize) -> usize {
        vector::plan_words::<Bytes16>(rows, columns)
    }

    fn write_plan(self, matrix: &Matrix<'_>, words: &mut [u64]) {
        vector::write_plan::<Bytes16>(matrix, words);
    }

    fn mul(
        self,
        task: &Task<'_>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        columns: Range<usize>,
        accumulate: bool,
    ) {
        // SAFETY: `self` proves the instructions.
        unsafe { mul(task, inputs, outputs, columns, accumulate) }
    }

    fn xor(self, inputs: &[&[u8]], output: &mut [u8], columns: Range<usize>, accumulate: bool) {
        // SAFETY: `self` proves the instructions.
        unsafe { xor(inputs, output, columns, accumulate) }
    }
}

#[target_feature(enable = "ssse3")]
fn mul(
    task: &Task<'_>,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    columns: Range<usize>,
    accumulate: bool,
) {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::mul::<Bytes16>(task, inputs, outputs, columns, accumulate) }
}

#[target_feature(enable = "ssse3")]
fn xor(inputs: &[&[u8]], output: &mut [u8], columns: Range<usize>, accumulate: bool) {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::xor::<Bytes16>(inputs, output, columns, accumulate) }
}

#[derive(Clone, Copy)]
struct Bytes16(__m128i);

// SAFETY: the functions use what `Ssse3::new` checks, nothing else.
unsafe impl Vector for Bytes16 {
    const BYTES: usize = 16;
    const ROWS: usize = 8;
    const FACTOR_WORDS: usize = nibbles::FACTOR_WORDS;
    /// Products of the low nibbles, of the high ones.
    type Factor = (__m128i, __m128i);
    /// Low nibbles, high nibbles.
    type Source = (__m128i, __m128i);

    fn write_factor(coefficient: u8, words: &mut [u64]) {
        nibbles::write_factor(coefficient, words);
    }

    #[inline(always)]
    unsafe fn factor(words: *const u64) -> Self::Factor {
        // SAFETY: four words are valid at `words` by contract.
        unsafe { (_mm_loadu_si128(words.cast()), _mm_loadu_si128(words.add(2).cast())) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm_setzero_si128() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the trait's contract: 16 bytes are valid at `from`.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the trait's contract: 16 bytes are valid at `to`.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm_xor_si128(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn source(self) -> Self::Source {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe {
            let low = _mm_set1_epi8(0x0f);
            (_mm_and_si128(self.0, low), _mm_and_si128(_mm_srli_epi64::<4>(self.0), low))
        }
    }

    #[inline(always)]
    unsafe fn product(factor: Self::Factor, source: Self::Source) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe {
            Self(_mm_xor_si128(
                _mm_shuffle_epi8(factor.0, source.0),
                _mm_shuffle_epi8(factor.1, source.1),
            ))
        }
    }

    #[inline(always)]
    unsafe fn multiply_group(group: &Group<'_>, outputs: &mut [&mut [u8]], columns: Range<usize>) {
        // The sums, two nibbles per source, two tables and a product: 16 registers.
        // SAFETY: the contract is the callee's; the numbers of rows match.
        unsafe {
            match outputs.len() {
                1 => group.multiply::<Self, 1, 4>(outputs, columns),
                2 => group.multiply::<Self, 2, 2>(outputs, columns),
                3 => group.multiply::<Self, 3, 2>(outputs, columns),
                4 => group.multiply::<Self, 4, 2>(outputs, columns),
                5 => group.multiply::<Self, 5, 1>(outputs, columns),
                6 => group.multiply::<Self, 6, 1>(outputs, columns),
                7 => group.multiply::<Self, 7, 1>(outputs, columns),
                _ => group.multiply::<Self, 8, 1>(outputs, columns),
            }
        }
    }
}
