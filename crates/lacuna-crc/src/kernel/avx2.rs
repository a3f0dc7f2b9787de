//! AVX2 with carry-less products of 256 bits: Zen 3, Ice Lake and Alder Lake.

#![allow(unsafe_code)]

use super::fold::{self, Keys, Lanes};
use std::arch::x86_64::*;

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

/// # Safety
/// The kernel [is available](is_available).
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
pub(super) unsafe fn update(register: u32, bytes: &[u8]) -> u32 {
    // SAFETY: this function has the instructions enabled.
    unsafe { fold::run::<Bytes32, false>(register, bytes, std::ptr::null_mut()) }
}

/// # Safety
/// As for `Crc32c::copy_to`, and the kernel [is available](is_available).
#[target_feature(enable = "avx2,vpclmulqdq,pclmulqdq,sse4.2")]
pub(super) unsafe fn copy_to(register: u32, before: &[u8], from: &[u8], to: *mut u8) -> u32 {
    // SAFETY: this function has the instructions enabled; else its own contract.
    unsafe { fold::run::<Bytes32, true>(fold::words(register, before), from, to) }
}

#[derive(Clone, Copy)]
struct Bytes32(__m256i);

impl Lanes for Bytes32 {
    const BYTES: usize = 32;
    const WORDS: usize = 5;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: by contract the instructions are there, and the bytes to be read.
        Self(unsafe { _mm256_loadu_si256(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: by contract the instructions are there, and room for the bytes.
        unsafe { _mm256_storeu_si256(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn begin(self, before: __m128i) -> Self {
        // SAFETY: by contract the instructions are there.
        unsafe { Self(_mm256_xor_si256(self.0, _mm256_zextsi128_si256(before))) }
    }

    #[inline(always)]
    unsafe fn fold(self, keys: Keys, onto: Self) -> Self {
        // SAFETY: by contract the instructions are there.
        unsafe {
            let keys = _mm256_set_epi64x(keys.high, keys.low, keys.high, keys.low);
            let low = _mm256_clmulepi64_epi128::<0x00>(self.0, keys);
            let high = _mm256_clmulepi64_epi128::<0x11>(self.0, keys);
            Self(_mm256_xor_si256(_mm256_xor_si256(low, high), onto.0))
        }
    }

    #[inline(always)]
    unsafe fn narrow(self) -> __m128i {
        let near = const { Keys::of_bytes(16) };
        // SAFETY: by contract the instructions are there.
        unsafe {
            let first = _mm256_castsi256_si128(self.0);
            fold::fold_lane(first, near, _mm256_extracti128_si256::<1>(self.0))
        }
    }
}
