//! The loops compiled for instruction sets that not every processor has. A value of a type here proves
//! that this one has them.

#![allow(unsafe_code)]

use super::loops::{self, Work};
use crate::element::{Element, Op};

/// Vectors of 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

/// Vectors of 64 bytes, with masks, on bytes and words too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx512(());

impl Avx2 {
    pub(super) fn new() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    pub(super) fn work(self, op: Op, element: Element, work: Work<'_>) {
        // SAFETY: `self` proves that the processor has AVX2.
        unsafe { avx2(op, element, work) }
    }
}

impl Avx512 {
    pub(super) fn new() -> Option<Self> {
        let has_all = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        has_all.then_some(Self(()))
    }

    pub(super) fn work(self, op: Op, element: Element, work: Work<'_>) {
        // SAFETY: `self` proves that the processor has these four.
        unsafe { avx512(op, element, work) }
    }
}

#[target_feature(enable = "avx2")]
fn avx2(op: Op, element: Element, work: Work<'_>) {
    loops::work(op, element, work);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512(op: Op, element: Element, work: Work<'_>) {
    loops::work(op, element, work);
}
