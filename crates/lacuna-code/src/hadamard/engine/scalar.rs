//! Radix 2, stage by stage, in plain code: what the other engines are compared with.

use super::{Kernel, Scratch, Task, Way};

/// Needs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scalar;

impl Kernel for Scalar {
    fn transform(self, task: &Task<'_>, from: &[u8], to: &mut [u8], scratch: &mut Scratch) -> bool {
        let data = &mut scratch.0[..1 << task.log2];
        let is_negated = |way: Way, element: usize| {
            way == task.way && task.signs[element / 64] >> (element % 64) & 1 == 1
        };
        for (element, value) in data.iter_mut().enumerate() {
            let bytes = &from[4 * task.from.place(element)..][..4];
            *value = f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            if is_negated(Way::Encode, element) {
                *value = -*value;
            }
        }
        self.transform_in_place(data, task.scale);
        let mut is_finite = true;
        for (element, value) in data.iter().enumerate() {
            let value = if is_negated(Way::Decode, element) { -value } else { *value };
            is_finite &= value.is_finite();
            to[4 * task.to.place(element)..][..4].copy_from_slice(&value.to_ne_bytes());
        }
        is_finite
    }

    fn transform_in_place(self, data: &mut [f32], scale: f32) {
        let mut half = 1;
        while half < data.len() {
            for pair in data.chunks_exact_mut(2 * half) {
                let (low, high) = pair.split_at_mut(half);
                for (low, high) in low.iter_mut().zip(high) {
                    (*low, *high) = (*low + *high, *low - *high);
                }
            }
            half *= 2;
        }
        for value in data {
            *value *= scale;
        }
    }
}
