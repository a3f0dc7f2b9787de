//! AVX-512: 16 elements a register, 32 registers.

#![allow(unsafe_code)]

use super::vector::{self, Vector};
use super::{Kernel, Scratch, Task};
use std::arch::x86_64::*;

/// The proof that this processor has AVX-512 F.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx512(());

impl Avx512 {
    pub(super) fn new() -> Option<Self> {
        is_x86_feature_detected!("avx512f").then_some(Self(()))
    }
}

impl Kernel for Avx512 {
    fn transform(self, task: &Task<'_>, from: &[u8], to: &mut [u8], scratch: &mut Scratch) -> bool {
        // SAFETY: `self` proves the instructions.
        unsafe { transform(task, from, to, scratch) }
    }

    fn transform_in_place(self, data: &mut [f32], scale: f32) {
        // SAFETY: `self` proves the instructions.
        unsafe { transform_in_place(data, scale) }
    }
}

#[target_feature(enable = "avx512f")]
fn transform(task: &Task<'_>, from: &[u8], to: &mut [u8], scratch: &mut Scratch) -> bool {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::transform::<F32x16>(task, from, to, scratch) }
}

#[target_feature(enable = "avx512f")]
fn transform_in_place(data: &mut [f32], scale: f32) {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::transform_in_place::<F32x16>(data, scale) }
}

#[derive(Clone, Copy)]
struct F32x16(__m512);

// SAFETY: the functions use what `Avx512::new` checks, nothing else.
unsafe impl Vector for F32x16 {
    const LANES_LOG2: u32 = 4;
    const RADIX_LOG2_MAX: u32 = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm512_set1_ps(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the trait's contract: 64 bytes are valid at `from`.
        Self(unsafe { _mm512_loadu_ps(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the trait's contract: 64 bytes are valid at `to`.
        unsafe { _mm512_storeu_ps(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm512_add_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm512_sub_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm512_mul_ps(self.0, other.0) })
    }

    /// The partner's lane, plus this one's times 1 or -1. A product with these is exact, so a fused sum
    /// rounds as a plain one.
    #[inline(always)]
    unsafe fn within(self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe {
            let signs = |lanes: u16| {
                let one = _mm512_set1_ps(1.0);
                _mm512_mask_blend_ps(lanes, one, _mm512_set1_ps(-1.0))
            };
            let sum = self.0;
            let other = _mm512_permute_ps::<0b10_11_00_01>(sum);
            let sum = _mm512_fmadd_ps(sum, signs(0b1010_1010_1010_1010), other);
            let other = _mm512_permute_ps::<0b01_00_11_10>(sum);
            let sum = _mm512_fmadd_ps(sum, signs(0b1100_1100_1100_1100), other);
            let other = _mm512_shuffle_f32x4::<0b10_11_00_01>(sum, sum);
            let sum = _mm512_fmadd_ps(sum, signs(0b1111_0000_1111_0000), other);
            let other = _mm512_shuffle_f32x4::<0b01_00_11_10>(sum, sum);
            Self(_mm512_fmadd_ps(sum, signs(0b1111_1111_0000_0000), other))
        }
    }

    #[inline(always)]
    unsafe fn negate(self, lanes: u64) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe {
            let bits = _mm512_castps_si512(self.0);
            let sign = _mm512_set1_epi32(i32::MIN);
            Self(_mm512_castsi512_ps(_mm512_mask_xor_epi32(bits, lanes as u16, bits, sign)))
        }
    }

    #[inline(always)]
    unsafe fn note(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { _mm512_fmadd_ps(other.0, _mm512_setzero_ps(), self.0) })
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        // SAFETY: a prefetch never faults; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, _mm512_setzero_ps()) == 0xffff }
    }
}
