//! AVX2 with FMA: 8 elements a register, 16 registers.

#![allow(unsafe_code)]

use super::vector::{self, Vector};
use super::{Kernel, Scratch, Task};
use std::arch::x86_64::*;

/// The proof that this processor has AVX2 and FMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn new() -> Option<Self> {
        let is_there = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        is_there.then_some(Self(()))
    }
}

impl Kernel for Avx2 {
    fn transform(self, task: &Task<'_>, from: &[u8], to: &mut [u8], scratch: &mut Scratch) -> bool {
        // SAFETY: `self` proves the instructions.
        unsafe { transform(task, from, to, scratch) }
    }

    fn transform_in_place(self, data: &mut [f32], scale: f32) {
        // SAFETY: `self` proves the instructions.
        unsafe { transform_in_place(data, scale) }
    }
}

#[target_feature(enable = "avx2,fma")]
fn transform(task: &Task<'_>, from: &[u8], to: &mut [u8], scratch: &mut Scratch) -> bool {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::transform::<F32x8>(task, from, to, scratch) }
}

#[target_feature(enable = "avx2,fma")]
fn transform_in_place(data: &mut [f32], scale: f32) {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::transform_in_place::<F32x8>(data, scale) }
}

#[derive(Clone, Copy)]
struct F32x8(__m256);

// SAFETY: the functions use what `Avx2::new` checks, nothing else.
unsafe impl Vector for F32x8 {
    const LANES_LOG2: u32 = 3;
    const RADIX_LOG2_MAX: u32 = 3;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm256_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the trait's contract: 32 bytes are valid at `from`.
        Self(unsafe { _mm256_loadu_ps(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the trait's contract: 32 bytes are valid at `to`.
        unsafe { _mm256_storeu_ps(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm256_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm256_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm256_mul_ps(self.0, other.0) })
    }

    /// The partner's lane, plus this one's times 1 or -1. A product with these is exact, so a fused sum
    /// rounds as a plain one.
    #[inline(always)]
    unsafe fn within(self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe {
            let one = _mm256_setr_ps(1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, -1.0);
            let two = _mm256_setr_ps(1.0, 1.0, -1.0, -1.0, 1.0, 1.0, -1.0, -1.0);
            let four = _mm256_setr_ps(1.0, 1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0);
            let sum = self.0;
            let sum = _mm256_fmadd_ps(sum, one, _mm256_permute_ps::<0b10_11_00_01>(sum));
            let sum = _mm256_fmadd_ps(sum, two, _mm256_permute_ps::<0b01_00_11_10>(sum));
            Self(_mm256_fmadd_ps(sum, four, _mm256_permute2f128_ps::<1>(sum, sum)))
        }
    }

    #[inline(always)]
    unsafe fn negate(self, lanes: u64) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe {
            // Bit n of the lanes becomes the highest bit of lane n.
            let lanes = _mm256_set1_epi32(lanes as i32);
            let shifts = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
            let signs = _mm256_castsi256_ps(_mm256_sllv_epi32(lanes, shifts));
            Self(_mm256_xor_ps(self.0, _mm256_and_ps(signs, _mm256_set1_ps(-0.0))))
        }
    }

    #[inline(always)]
    unsafe fn note(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm256_fmadd_ps(other.0, _mm256_setzero_ps(), self.0) })
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch never faults; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe {
            let is_zero = _mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, _mm256_setzero_ps());
            _mm256_movemask_ps(is_zero) == 0xff
        }
    }
}
