//! Carry-less products of 128 bits: any x86-64 since 2010.

#![allow(unsafe_code)]

use super::fold::{self, Keys, Lanes};
use std::arch::x86_64::*;

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse4.2")
}

/// # Safety
/// The kernel [is available](is_available).
#[target_feature(enable = "pclmulqdq,sse4.2")]
pub(super) unsafe fn update(register: u32, bytes: &[u8]) -> u32 {
    // SAFETY: this function has the instructions enabled.
    unsafe { fold::run::<Bytes16, false>(register, bytes, std::ptr::null_mut()) }
}

/// # Safety
/// As for `Crc32c::copy_to`, and the kernel [is available](is_available).
#[target_feature(enable = "pclmulqdq,sse4.2")]
pub(super) unsafe fn copy_to(register: u32, before: &[u8], from: &[u8], to: *mut u8) -> u32 {
    // SAFETY: this function has the instructions enabled; else its own contract.
    unsafe { fold::run::<Bytes16, true>(fold::words(register, before), from, to) }
}

#[derive(Clone, Copy)]
struct Bytes16(__m128i);

impl Lanes for Bytes16 {
    const BYTES: usize = 16;
    const WORDS: usize = 3;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: by contract the instructions are there, and the bytes to be read.
        Self(unsafe { _mm_loadu_si128(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: by contract the instructions are there, and room for the bytes.
        unsafe { _mm_storeu_si128(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn begin(self, before: __m128i) -> Self {
        // SAFETY: by contract the instructions are there.
        unsafe { Self(_mm_xor_si128(self.0, before)) }
    }

    #[inline(always)]
    unsafe fn fold(self, keys: Keys, onto: Self) -> Self {
        // SAFETY: by contract the instructions are there.
        unsafe { Self(fold::fold_lane(self.0, keys, onto.0)) }
    }

    #[inline(always)]
    unsafe fn narrow(self) -> __m128i {
        self.0
    }
}
