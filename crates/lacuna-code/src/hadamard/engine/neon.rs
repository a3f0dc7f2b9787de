//! NEON: 4 elements a register, 32 registers.

#![allow(unsafe_code)]

use super::vector::{self, Vector};
use super::{Kernel, Scratch, Task};
use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

/// The proof that this processor has NEON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Neon(());

impl Neon {
    pub(super) fn new() -> Option<Self> {
        is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

impl Kernel for Neon {
    fn transform(self, task: &Task<'_>, from: &[u8], to: &mut [u8], scratch: &mut Scratch) -> bool {
        // SAFETY: `self` proves the instructions.
        unsafe { transform(task, from, to, scratch) }
    }

    fn transform_in_place(self, data: &mut [f32], scale: f32) {
        // SAFETY: `self` proves the instructions.
        unsafe { transform_in_place(data, scale) }
    }
}

#[target_feature(enable = "neon")]
fn transform(task: &Task<'_>, from: &[u8], to: &mut [u8], scratch: &mut Scratch) -> bool {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::transform::<F32x4>(task, from, to, scratch) }
}

#[target_feature(enable = "neon")]
fn transform_in_place(data: &mut [f32], scale: f32) {
    // SAFETY: this function has the instructions enabled.
    unsafe { vector::transform_in_place::<F32x4>(data, scale) }
}

#[derive(Clone, Copy)]
struct F32x4(float32x4_t);

// SAFETY: the functions use what `Neon::new` checks, nothing else.
unsafe impl Vector for F32x4 {
    const LANES_LOG2: u32 = 2;
    const RADIX_LOG2_MAX: u32 = 4;

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { vdupq_n_f32(value) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the trait's contract: 16 bytes are valid at `from`; bytes need no alignment.
        Self(unsafe { vreinterpretq_f32_u8(vld1q_u8(from)) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the trait's contract: 16 bytes are valid at `to`; bytes need no alignment.
        unsafe { vst1q_u8(to, vreinterpretq_u8_f32(self.0)) }
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { vaddq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { vsubq_f32(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { vmulq_f32(self.0, other.0) })
    }

    /// The partner's lane, plus this one's times 1 or -1. A product with these is exact, so a fused sum
    /// rounds as a plain one.
    #[inline(always)]
    unsafe fn within(self) -> Self {
        // SAFETY: the trait's contract: the instructions are there; the arrays have four elements.
        unsafe {
            let one = vld1q_f32([1.0, -1.0, 1.0, -1.0].as_ptr());
            let two = vld1q_f32([1.0, 1.0, -1.0, -1.0].as_ptr());
            let sum = self.0;
            let sum = vfmaq_f32(vrev64q_f32(sum), sum, one);
            Self(vfmaq_f32(vextq_f32::<2>(sum, sum), sum, two))
        }
    }

    #[inline(always)]
    unsafe fn negate(self, lanes: u64) -> Self {
        // SAFETY: the trait's contract: the instructions are there; the array has four elements.
        unsafe {
            // Bit n of the lanes becomes the highest bit of lane n.
            let shifts = vld1q_s32([31, 30, 29, 28].as_ptr());
            let signs = vshlq_u32(vdupq_n_u32(lanes as u32), shifts);
            let signs = vandq_u32(signs, vdupq_n_u32(1 << 31));
            Self(vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(self.0), signs)))
        }
    }

    #[inline(always)]
    unsafe fn note(self, other: Self) -> Self {
        // SAFETY: the trait's contract: the instructions are there.
        Self(unsafe { vfmaq_f32(self.0, other.0, vdupq_n_f32(0.0)) })
    }

    /// No stable intrinsic does it.
    #[inline(always)]
    unsafe fn prefetch(_at: *const u8) {}

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: the trait's contract: the instructions are there.
        unsafe { vminvq_u32(vceqzq_f32(self.0)) == u32::MAX }
    }
}
