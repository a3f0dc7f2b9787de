//! The kernels as plain loops: one function that every engine compiles for its instructions.

use super::number::{Bf16, F16, Number};
use crate::element::{Element, Op};

/// What a kernel works on; lengths are equal and multiples of the element.
pub(super) enum Work<'a> {
    /// `dst = op(dst, src)`.
    Into(&'a mut [u8], &'a [u8]),
    /// `to = op(a, b)`.
    Apart(&'a mut [u8], &'a [u8], &'a [u8]),
    /// `data = data / by`.
    Divide(&'a mut [u8], u32),
}

#[inline(always)]
fn typed<T: Number>(op: Op, work: Work<'_>) {
    macro_rules! by {
        ($f:expr) => {
            match work {
                Work::Into(dst, src) => T::zip_into(dst, src, $f),
                Work::Apart(to, a, b) => T::zip(to, a, b, $f),
                Work::Divide(data, by) => T::map(data, |value| value.divide(by)),
            }
        };
    }
    match op {
        Op::Sum | Op::Average => by!(T::sum),
        Op::Product => by!(T::product),
        Op::Min => by!(T::min),
        Op::Max => by!(T::max),
    }
}

/// Carries a piece of work out.
#[inline(always)]
pub(super) fn work(op: Op, element: Element, work: Work<'_>) {
    match element {
        Element::I8 => typed::<i8>(op, work),
        Element::U8 => typed::<u8>(op, work),
        Element::I16 => typed::<i16>(op, work),
        Element::U16 => typed::<u16>(op, work),
        Element::I32 => typed::<i32>(op, work),
        Element::U32 => typed::<u32>(op, work),
        Element::I64 => typed::<i64>(op, work),
        Element::U64 => typed::<u64>(op, work),
        Element::F16 => typed::<F16>(op, work),
        Element::Bf16 => typed::<Bf16>(op, work),
        Element::F32 => typed::<f32>(op, work),
        Element::F64 => typed::<f64>(op, work),
    }
}
