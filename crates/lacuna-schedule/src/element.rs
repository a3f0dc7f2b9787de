//! Types of elements and the operations that reduce them: what a result is, to the bit.
//!
//! Every rule below holds for every engine and every schedule, so a reduction that is carried out in
//! the same order gives the same bytes.
//!
//! | | |
//! |---|---|
//! | bytes | little-endian, in memory and between ranks |
//! | f16, bf16 | two elements are reduced in f32 and the result is rounded once, to the nearest, ties to even; between ranks they travel as they are, so `n` contributions are rounded `n - 1` times |
//! | overflow of integers | wraps |
//! | overflow of floats | infinity |
//! | average | the sum, divided at the end by the number of contributions; of integers towards zero, after the sum has wrapped |
//! | not a number | any operand that is none makes the result none, for `min` and `max` too; the result is always the positive quiet one without payload, whatever came in |
//! | zeros | `min` prefers -0, `max` prefers +0 |
//!
//! With these rules each operation gives the same bits whichever operand is first. The order in which
//! more than two are reduced matters for floats, and is the schedule's.

use std::fmt;
use std::str::FromStr;

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Element {
    /// Signed, 8 bits.
    I8 = 0,
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Signed, 16 bits.
    I16 = 2,
    /// Unsigned, 16 bits.
    U16 = 3,
    /// Signed, 32 bits.
    I32 = 4,
    /// Unsigned, 32 bits.
    U32 = 5,
    /// Signed, 64 bits.
    I64 = 6,
    /// Unsigned, 64 bits.
    U64 = 7,
    /// IEEE 754 binary16.
    F16 = 8,
    /// The upper half of an f32.
    Bf16 = 9,
    /// IEEE 754 binary32.
    F32 = 10,
    /// IEEE 754 binary64.
    F64 = 11,
}

/// How elements are reduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    /// Added.
    Sum = 0,
    /// Added, and divided by the number of contributions.
    Average = 1,
    /// Multiplied.
    Product = 2,
    /// The smallest.
    Min = 3,
    /// The largest.
    Max = 4,
}

impl Element {
    /// All types.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::U8,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
    ];

    /// Bytes of one.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Its name, as in the table of the module's text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::U8 => "u8",
            Self::I16 => "i16",
            Self::U16 => "u16",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I64 => "i64",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

impl Op {
    /// All operations.
    pub const ALL: [Self; 5] = [Self::Sum, Self::Average, Self::Product, Self::Min, Self::Max];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Average => "average",
            Self::Product => "product",
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no element type or operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{name}\" is not known: {known}")]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// What there is.
    pub known: &'static str,
}

impl FromStr for Element {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|element| element.name() == name).ok_or_else(|| UnknownName {
            name: name.to_owned(),
            known: "i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64",
        })
    }
}

impl FromStr for Op {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|op| op.name() == name).ok_or_else(|| UnknownName {
            name: name.to_owned(),
            known: "sum, average, product, min, max",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for element in Element::ALL {
            assert_eq!(element.name().parse(), Ok(element));
        }
        for op in Op::ALL {
            assert_eq!(op.name().parse(), Ok(op));
        }
        assert!("f8".parse::<Element>().unwrap_err().to_string().contains("bf16"));
        assert!("avg".parse::<Op>().is_err());
    }
}
