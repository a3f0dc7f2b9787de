//! AVX-512 with carry-less products of 512 bits: Zen 4, Ice Lake servers.

#![allow(unsafe_code)]

use super::fold::{self, Keys, Lanes};
use std::arch::x86_64::*;

pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("pclmulqdq")
        && is_x86_feature_detected!("sse4.2")
}

/// # Safety
/// The kernel [is available](is_available).
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
pub(super) unsafe fn update(register: u32, bytes: &[u8]) -> u32 {
    // SAFETY: this function has the instructions enabled.
    unsafe { fold::run::<Bytes64, false>(register, bytes, std::ptr::null_mut()) }
}

/// # Safety
/// As for `Crc32c::copy_to`, and the kernel [is available](is_available).
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
pub(super) unsafe fn copy_to(register: u32, before: &[u8], from: &[u8], to: *mut u8) -> u32 {
    // SAFETY: this function has the instructions enabled; else its own contract.
    unsafe { fold::run::<Bytes64, true>(fold::words(register, before), from, to) }
}

#[derive(Clone, Copy)]
struct Bytes64(__m512i);

impl Lanes for Bytes64 {
    const BYTES: usize = 64;
    const WORDS: usize = 5;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> Self {
        // SAFETY: by contract the instructions are there, and the bytes to be read.
        Self(unsafe { _mm512_loadu_si512(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut u8) {
        // SAFETY: by contract the instructions are there, and room for the bytes.
        unsafe { _mm512_storeu_si512(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn begin(self, before: __m128i) -> Self {
        // SAFETY: by contract the instructions are there.
        unsafe { Self(_mm512_xor_si512(self.0, _mm512_zextsi128_si512(before))) }
    }

    #[inline(always)]
    unsafe fn fold(self, keys: Keys, onto: Self) -> Self {
        // SAFETY: by contract the instructions are there.
        unsafe {
            let (low, high) = (keys.low, keys.high);
            let keys = _mm512_set_epi64(high, low, high, low, high, low, high, low);
            let low = _mm512_clmulepi64_epi128::<0x00>(self.0, keys);
            let high = _mm512_clmulepi64_epi128::<0x11>(self.0, keys);
            // 0x96: the sum of all three.
            Self(_mm512_ternarylogic_epi64::<0x96>(low, high, onto.0))
        }
    }

    #[inline(always)]
    unsafe fn narrow(self) -> __m128i {
        let near = const { Keys::of_bytes(16) };
        // SAFETY: by contract the instructions are there.
        unsafe {
            let second = _mm512_extracti32x4_epi32::<1>(self.0);
            let third = _mm512_extracti32x4_epi32::<2>(self.0);
            let fourth = _mm512_extracti32x4_epi32::<3>(self.0);
            let first = _mm512_castsi512_si128(self.0);
            let two = fold::fold_lane(first, near, second);
            fold::fold_lane(fold::fold_lane(two, near, third), near, fourth)
        }
    }
}
