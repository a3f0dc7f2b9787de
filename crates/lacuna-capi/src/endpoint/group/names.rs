//! Types of elements, how they are reduced, and how much time an operation has: numbers of C, and what they mean.

use crate::outcome::Failure;
use lacuna_collective::{Element, Op};

/// The type of an element. In memory and between ranks it is little-endian.
#[repr(C)]
pub enum lacuna_element {
    /// int8_t.
    LACUNA_ELEMENT_I8 = 0,
    /// uint8_t.
    LACUNA_ELEMENT_U8 = 1,
    /// int16_t.
    LACUNA_ELEMENT_I16 = 2,
    /// uint16_t.
    LACUNA_ELEMENT_U16 = 3,
    /// int32_t.
    LACUNA_ELEMENT_I32 = 4,
    /// uint32_t.
    LACUNA_ELEMENT_U32 = 5,
    /// int64_t.
    LACUNA_ELEMENT_I64 = 6,
    /// uint64_t.
    LACUNA_ELEMENT_U64 = 7,
    /// IEEE 754 binary16: added in float, and rounded to this once per hop.
    LACUNA_ELEMENT_F16 = 8,
    /// The upper half of a float (bfloat16), likewise.
    LACUNA_ELEMENT_BF16 = 9,
    /// float.
    LACUNA_ELEMENT_F32 = 10,
    /// double.
    LACUNA_ELEMENT_F64 = 11,
}

/// How elements are reduced. A float that is not a number makes the result none; integers
/// wrap.
#[repr(C)]
pub enum lacuna_reduction {
    /// Added.
    LACUNA_REDUCTION_SUM = 0,
    /// Added, and divided by the number of contributions; of integers towards zero.
    LACUNA_REDUCTION_AVERAGE = 1,
    /// Multiplied.
    LACUNA_REDUCTION_PRODUCT = 2,
    /// The smallest.
    LACUNA_REDUCTION_MIN = 3,
    /// The largest.
    LACUNA_REDUCTION_MAX = 4,
}

/// How much time an operation of a group has.
#[repr(C)]
pub enum lacuna_budget {
    /// As long as it takes.
    LACUNA_BUDGET_UNLIMITED = 0,
    /// As long as it takes; if that is longer than budget_us, it fails.
    LACUNA_BUDGET_WITHIN = 1,
    /// budget_us; then it goes on with what is there. For groups of mode bounded.
    LACUNA_BUDGET_FIXED = 2,
    /// As long as operations of its kind and size take, which the group learns; then it
    /// goes on with what is there. For groups of mode bounded.
    LACUNA_BUDGET_ADAPTIVE = 3,
}

/// What an average is divided by where contributions are missing.
#[repr(C)]
pub enum lacuna_divisor {
    /// By the number of contributions that an element has.
    LACUNA_DIVISOR_CONTRIBUTORS = 0,
    /// By the number of ranks: what is missing counts as zero.
    LACUNA_DIVISOR_RANKS = 1,
}

const _: () = {
    assert!(lacuna_element::LACUNA_ELEMENT_I8 as u8 == Element::I8 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_U8 as u8 == Element::U8 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_I16 as u8 == Element::I16 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_U16 as u8 == Element::U16 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_I32 as u8 == Element::I32 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_U32 as u8 == Element::U32 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_I64 as u8 == Element::I64 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_U64 as u8 == Element::U64 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_F16 as u8 == Element::F16 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_BF16 as u8 == Element::Bf16 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_F32 as u8 == Element::F32 as u8);
    assert!(lacuna_element::LACUNA_ELEMENT_F64 as u8 == Element::F64 as u8);
    assert!(lacuna_reduction::LACUNA_REDUCTION_SUM as u8 == Op::Sum as u8);
    assert!(lacuna_reduction::LACUNA_REDUCTION_AVERAGE as u8 == Op::Average as u8);
    assert!(lacuna_reduction::LACUNA_REDUCTION_PRODUCT as u8 == Op::Product as u8);
    assert!(lacuna_reduction::LACUNA_REDUCTION_MIN as u8 == Op::Min as u8);
    assert!(lacuna_reduction::LACUNA_REDUCTION_MAX as u8 == Op::Max as u8);
};

pub(super) fn element(number: u32) -> Result<Element, Failure> {
    Element::ALL.into_iter().find(|element| *element as u32 == number).ok_or_else(|| {
        Failure::usage(format!("element {number}: must be one of enum lacuna_element"))
    })
}

pub(super) fn reduction(number: u32) -> Result<Op, Failure> {
    Op::ALL.into_iter().find(|op| *op as u32 == number).ok_or_else(|| {
        Failure::usage(format!("reduction {number}: must be one of enum lacuna_reduction"))
    })
}
