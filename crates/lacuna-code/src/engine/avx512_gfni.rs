//! AVX-512 with GFNI: 64 bytes a register, a product one instruction, 32
//! registers, and masks for the bytes that fill no register.

#![allow(unsafe_code)]

use super::plan::{Matrix, Task};
use super::vector::{self, Group, Vector};
use super::{Kernel, affine};
use std::arch::x86_64::*;
use std::ops::Range;

/// The proof that this processor has AVX-512 F and BW, and GFNI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx512Gfni(());

impl Avx512Gfni {
    pub(super) fn new() -> Option<Self> {
        let available = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("gfni");
        available.then_some(Self(()))
    }
}

impl Kernel for Avx512Gfni {
    fn plan_words(self, rows: usize, columns: usize) -> usize {
        vector::plan_words::<Bytes64>(rows, columns)
    }

    fn write_plan(self, matrix: &Matrix<'_>, words: &mut [u64]) {
        vector::write_plan::<Bytes64>(matrix, words);
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

#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn mul(
    task: &Task<'_>,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    columns: Range<usize>,
    accumulate: bool,
) {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::mul::<Bytes64>(task, inputs, outputs, columns, accumulate) }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn xor(inputs: &[&[u8]], output: &mut [u8], columns: Range<usize>, accumulate: bool) {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::xor::<Bytes64>(inputs, output, columns, accumulate) }
}

#[derive(Clone, Copy)]
struct Bytes64(__m512i);

// SAFETY: the functions use what `Avx512Gfni::new` checks, nothing else.
unsafe impl Vector for Bytes64 {
    const BYTES: usize = 64;
    const ROWS: usize = 8;
    const FACTOR_WORDS: usize = affine::FACTOR_WORDS;
    type Factor = __m512i;
    type Source = __m512i;

    fn write_factor(coefficient: u8, words: &mut [u64]) {
        affine::write_factor(coefficient, words);
    }

    #[inline(always)]
    unsafe fn factor(words: *const u64) -> __m512i {
        // SAFETY: one word is valid at `words` by contract.
        unsafe { _mm512_set1_epi64(words.read().cast_signed()) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the trait's contract: 64 bytes are valid at `from`.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the trait's contract: 64 bytes are valid at `to`.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn source(self) -> __m512i {
        self.0
    }

    #[inline(always)]
    unsafe fn product(factor: __m512i, source: __m512i) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(source, factor) })
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, len: usize) -> Self {
        // SAFETY: bytes whose mask bit is clear are not accessed; `len` bytes,
        // less than 64, are valid at `from`.
        Self(unsafe { _mm512_maskz_loadu_epi8((1 << len) - 1, from.cast()) })
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, len: usize) {
        // SAFETY: as for `load_part`.
        unsafe { _mm512_mask_storeu_epi8(to.cast(), (1 << len) - 1, self.0) }
    }

    #[inline(always)]
    unsafe fn multiply_group(group: &Group<'_>, outputs: &mut [&mut [u8]], columns: Range<usize>) {
        // Sixteen sums, the sources and a factor: at most 21 registers of 32.
        // SAFETY: the contract is the callee's; the numbers of rows match.
        unsafe {
            match outputs.len() {
                1 => group.multiply::<Self, 1, 4>(outputs, columns),
                2 => group.multiply::<Self, 2, 4>(outputs, columns),
                3 => group.multiply::<Self, 3, 4>(outputs, columns),
                4 => group.multiply::<Self, 4, 4>(outputs, columns),
                5 => group.multiply::<Self, 5, 2>(outputs, columns),
                6 => group.multiply::<Self, 6, 2>(outputs, columns),
                // One input or two: loads and stores of the sums are most of the
                // work, and longer runs of fewer rows are a tenth faster.
                8 if group.input_count() <= 2 => {
                    let (low, high) = outputs.split_at_mut(4);
                    group.multiply::<Self, 4, 4>(low, columns.clone());
                    group.skip_rows::<Self>(4).multiply::<Self, 4, 4>(high, columns);
                }
                7 => group.multiply::<Self, 7, 2>(outputs, columns),
                _ => group.multiply::<Self, 8, 2>(outputs, columns),
            }
        }
    }
}
