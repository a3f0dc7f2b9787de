//! The loops compiled for instruction sets that not every processor has. A value of a type here proves
//! that this one has them.
//!
//! Elements of f16 convert by instruction (F16C), which is four times as fast as by arithmetic;
//! the results are the same, since both round to the nearest. What is not a number is replaced after the
//! reduction, as everywhere. Measured by `benches/reduce.rs`.

#![allow(unsafe_code)]

use super::loops::{self, Work};
use super::number::F16;
use crate::element::{Element, Op};
use std::arch::x86_64::{
    __m128i, __m256, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128,
    _mm256_add_ps, _mm256_and_ps, _mm256_blendv_ps, _mm256_cmp_ps, _mm256_cvtph_ps,
    _mm256_cvtps_ph, _mm256_max_ps, _mm256_min_ps, _mm256_mul_ps, _mm256_or_ps, _mm256_set1_ps,
};

/// Vectors of 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

/// Vectors of 64 bytes, with masks, on bytes and words too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx512(());

impl Avx2 {
    pub(super) fn new() -> Option<Self> {
        let has_both = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c");
        has_both.then_some(Self(()))
    }

    pub(super) fn work(self, op: Op, element: Element, work: Work<'_>) {
        // SAFETY: `self` proves that the processor has AVX2 and F16C.
        unsafe { avx2(op, element, work) }
    }
}

impl Avx512 {
    pub(super) fn new() -> Option<Self> {
        let has_all = Avx2::new().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        has_all.then_some(Self(()))
    }

    pub(super) fn work(self, op: Op, element: Element, work: Work<'_>) {
        // SAFETY: `self` proves that the processor has all of these.
        unsafe { avx512(op, element, work) }
    }
}

#[target_feature(enable = "avx2,f16c")]
fn avx2(op: Op, element: Element, work: Work<'_>) {
    if element == Element::F16 {
        halves(op, work);
    } else {
        loops::work(op, element, work);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")]
fn avx512(op: Op, element: Element, work: Work<'_>) {
    if element == Element::F16 {
        halves(op, work);
    } else {
        loops::work(op, element, work);
    }
}

/// Elements of f16 in a vector, and their bytes.
const HALVES: usize = 8;
const VECTOR_BYTES: usize = 2 * HALVES;

#[target_feature(enable = "avx2,f16c")]
fn halves(op: Op, work: Work<'_>) {
    let of = |a: &[u8; VECTOR_BYTES], b: &[u8; VECTOR_BYTES]| store(pair(op, load(a), load(b)));
    match work {
        Work::Into(dst, src) => {
            let (dst, dst_rest) = dst.as_chunks_mut::<VECTOR_BYTES>();
            let (src, src_rest) = src.as_chunks::<VECTOR_BYTES>();
            dst.iter_mut().zip(src).for_each(|(dst, src)| *dst = of(dst, src));
            loops::work(op, Element::F16, Work::Into(dst_rest, src_rest));
        }
        Work::Apart(to, a, b) => {
            let (to, to_rest) = to.as_chunks_mut::<VECTOR_BYTES>();
            let (a, a_rest) = a.as_chunks::<VECTOR_BYTES>();
            let (b, b_rest) = b.as_chunks::<VECTOR_BYTES>();
            to.iter_mut().zip(a).zip(b).for_each(|((to, a), b)| *to = of(a, b));
            loops::work(op, Element::F16, Work::Apart(to_rest, a_rest, b_rest));
        }
        Work::Divide(..) => loops::work(op, Element::F16, work),
    }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn pair(op: Op, a: __m256, b: __m256) -> __m256 {
    match op {
        Op::Sum | Op::Average => _mm256_add_ps(a, b),
        Op::Product => _mm256_mul_ps(a, b),
        // Of equal ones the instruction takes the second, so both orders differ in the sign of zero at most;
        // and in what is not a number, which is left for last.
        Op::Min => _mm256_or_ps(_mm256_min_ps(a, b), _mm256_min_ps(b, a)),
        Op::Max => {
            let most = _mm256_and_ps(_mm256_max_ps(a, b), _mm256_max_ps(b, a));
            let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(a, b);
            _mm256_or_ps(most, is_nan)
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn load(bytes: &[u8; VECTOR_BYTES]) -> __m256 {
    // SAFETY: sixteen bytes are valid there; the load needs no alignment.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(bytes.as_ptr().cast::<__m128i>()) })
}

#[inline]
#[target_feature(enable = "avx2,f16c")]
fn store(values: __m256) -> [u8; VECTOR_BYTES] {
    let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(values, values);
    let nan = _mm256_set1_ps(F16(0x7e00).to_f32());
    let halves =
        _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_blendv_ps(values, nan, is_nan));
    let mut bytes = [0; VECTOR_BYTES];
    // SAFETY: sixteen bytes are valid there; the store needs no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast::<__m128i>(), halves) };
    bytes
}
