//! AVX2: 32 bytes a register, a product two byte shuffles, 16 registers.

#![allow(unsafe_code)]

use super::plan::{Matrix, Task};
use super::vector::{self, Group, Vector};
use super::{Kernel, nibbles};
use std::arch::x86_64::*;
use std::ops::Range;

/// The proof that this processor has AVX2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn new() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

impl Kernel for Avx2 {
    fn plan_words(self, rows: usize, columns: usize) -> usize {
        vector::plan_words::<Bytes32>(rows, columns)
    }

    fn write_plan(self, matrix: &Matrix<'_>, words: &mut [u64]) {
        vector::write_plan::<Bytes32>(matrix, words);
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

#[target_feature(enable = "avx2")]
fn mul(
    task: &Task<'_>,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    columns: Range<usize>,
    accumulate: bool,
) {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::mul::<Bytes32>(task, inputs, outputs, columns, accumulate) }
}

#[target_feature(enable = "avx2")]
fn xor(inputs: &[&[u8]], output: &mut [u8], columns: Range<usize>, accumulate: bool) {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::xor::<Bytes32>(inputs, output, columns, accumulate) }
}

#[derive(Clone, Copy)]
struct Bytes32(__m256i);

// SAFETY: the functions use what `Avx2::new` checks, nothing else.
unsafe impl Vector for Bytes32 {
    const BYTES: usize = 32;
    const ROWS: usize = 8;
    const FACTOR_WORDS: usize = nibbles::FACTOR_WORDS;
    /// Products of the low nibbles, of the high ones.
    type Factor = (__m256i, __m256i);
    /// Low nibbles, high nibbles.
    type Source = (__m256i, __m256i);

    fn write_factor(coefficient: u8, words: &mut [u64]) {
        nibbles::write_factor(coefficient, words);
    }

    #[inline(always)]
    unsafe fn factor(words: *const u64) -> Self::Factor {
        // SAFETY: four words are valid at `words` by contract.
        unsafe {
            let low = _mm_loadu_si128(words.cast());
            let high = _mm_loadu_si128(words.add(2).cast());
            (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
        }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the trait's contract: 32 bytes are valid at `from`.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the trait's contract: 32 bytes are valid at `to`.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn source(self) -> Self::Source {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe {
            let low = _mm256_set1_epi8(0x0f);
            (_mm256_and_si256(self.0, low), _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), low))
        }
    }

    #[inline(always)]
    unsafe fn product(factor: Self::Factor, source: Self::Source) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe {
            Self(_mm256_xor_si256(
                _mm256_shuffle_epi8(factor.0, source.0),
                _mm256_shuffle_epi8(factor.1, source.1),
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
