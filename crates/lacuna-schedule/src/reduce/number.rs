//! What two elements make together: the rules of [`crate::element`] in code without branches, so that
//! compilers vectorise the loops over it.

/// An element that can be reduced.
pub(super) trait Number: Copy {
    /// The sum.
    fn sum(self, other: Self) -> Self;
    /// The product.
    fn product(self, other: Self) -> Self;
    /// The smaller.
    fn min(self, other: Self) -> Self;
    /// The larger.
    fn max(self, other: Self) -> Self;
    /// One part of so many.
    fn divide(self, by: u32) -> Self;
    /// `dst = f(dst, src)`, element by element.
    fn zip_into(dst: &mut [u8], src: &[u8], f: impl Fn(Self, Self) -> Self);
    /// `to = f(a, b)`, element by element.
    fn zip(to: &mut [u8], a: &[u8], b: &[u8], f: impl Fn(Self, Self) -> Self);
    /// `data = f(data)`, element by element.
    fn map(data: &mut [u8], f: impl Fn(Self) -> Self);
}

/// The loops, over arrays of an element's bytes: they need no alignment.
macro_rules! loops {
    ($bytes:literal, $from:expr, $to:expr) => {
        #[inline(always)]
        fn zip_into(dst: &mut [u8], src: &[u8], f: impl Fn(Self, Self) -> Self) {
            let (dst, src) = (dst.as_chunks_mut::<$bytes>().0, src.as_chunks::<$bytes>().0);
            for (dst, src) in dst.iter_mut().zip(src) {
                *dst = $to(f($from(*dst), $from(*src)));
            }
        }

        #[inline(always)]
        fn zip(to: &mut [u8], a: &[u8], b: &[u8], f: impl Fn(Self, Self) -> Self) {
            let to = to.as_chunks_mut::<$bytes>().0;
            let (a, b) = (a.as_chunks::<$bytes>().0, b.as_chunks::<$bytes>().0);
            for ((to, a), b) in to.iter_mut().zip(a).zip(b) {
                *to = $to(f($from(*a), $from(*b)));
            }
        }

        #[inline(always)]
        fn map(data: &mut [u8], f: impl Fn(Self) -> Self) {
            for data in data.as_chunks_mut::<$bytes>().0 {
                *data = $to(f($from(*data)));
            }
        }
    };
}

macro_rules! integer {
    ($($type:ty, $bytes:literal, $wide:ty;)*) => {$(
        impl Number for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }

            #[inline(always)]
            fn divide(self, by: u32) -> Self {
                // The quotient is no larger than the dividend, so it fits.
                (<$wide>::from(self) / <$wide>::from(by)) as Self
            }

            loops!($bytes, <$type>::from_le_bytes, <$type>::to_le_bytes);
        }
    )*};
}

integer! {
    i8, 1, i64;
    u8, 1, i64;
    i16, 2, i64;
    u16, 2, i64;
    i32, 4, i64;
    u32, 4, i64;
    i64, 8, i64;
    u64, 8, u64;
}

/// The one that results are if they are not a number.
macro_rules! float {
    ($type:ty, $bytes:literal, $nan:literal) => {
        impl Number for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                let sum = self + other;
                if sum.is_nan() { <$type>::from_bits($nan) } else { sum }
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                let product = self * other;
                if product.is_nan() { <$type>::from_bits($nan) } else { product }
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                // Equal ones differ in the sign of zero at most.
                let equal = <$type>::from_bits(self.to_bits() | other.to_bits());
                let least = if other < self { other } else { equal };
                let least = if self < other { self } else { least };
                let is_nan = self.is_nan() | other.is_nan();
                if is_nan { <$type>::from_bits($nan) } else { least }
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                let equal = <$type>::from_bits(self.to_bits() & other.to_bits());
                let most = if other > self { other } else { equal };
                let most = if self > other { self } else { most };
                let is_nan = self.is_nan() | other.is_nan();
                if is_nan { <$type>::from_bits($nan) } else { most }
            }

            #[inline(always)]
            fn divide(self, by: u32) -> Self {
                let share = self / by as $type;
                if share.is_nan() { <$type>::from_bits($nan) } else { share }
            }

            loops!($bytes, <$type>::from_le_bytes, <$type>::to_le_bytes);
        }
    };
}

float!(f32, 4, 0x7fc0_0000);
float!(f64, 8, 0x7ff8_0000_0000_0000);

/// IEEE 754 binary16, by its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct F16(pub(super) u16);

/// The upper half of an f32, by its bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bf16(pub(super) u16);

impl F16 {
    /// Exact.
    #[inline(always)]
    pub(super) fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let magnitude = u32::from(self.0 & 0x7fff) << 13;
        // The exponents differ by 112; a product moves subnormal numbers to their place too.
        let scaled = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
        let special = if magnitude >= 0x7c00 << 13 { 0x7f80_0000 } else { 0 };
        f32::from_bits(scaled.to_bits() | special | sign)
    }

    /// To the nearest, ties to even. (F. Giesen, "float->half variants", the third fast one.)
    #[inline(always)]
    pub(super) fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let (sign, magnitude) = (bits & 0x8000_0000, bits & 0x7fff_ffff);
        // Subnormal: adding a half of the right size leaves the rounded bits at the end.
        let half = f32::from_bits((112 + 13 + 1) << 23);
        let small = (f32::from_bits(magnitude) + half).to_bits().wrapping_sub(half.to_bits());
        // Normal: move the exponent, and round by adding.
        let odd = (magnitude >> 13) & 1;
        let usual = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
        let finite = if magnitude < 113 << 23 { small } else { usual };
        let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let sign = if magnitude > 0x7f80_0000 { 0 } else { sign >> 16 };
        let result = if magnitude >= 143 << 23 { special } else { finite };
        Self((result | sign) as u16)
    }
}

impl Bf16 {
    /// Exact.
    #[inline(always)]
    pub(super) fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// To the nearest, ties to even.
    #[inline(always)]
    pub(super) fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        Self(if value.is_nan() { 0x7fc0 } else { rounded as u16 })
    }
}

macro_rules! half {
    ($type:ident) => {
        impl Number for $type {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                Self::from_f32(self.to_f32() + other.to_f32())
            }

            #[inline(always)]
            fn product(self, other: Self) -> Self {
                Self::from_f32(self.to_f32() * other.to_f32())
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Self::from_f32(Number::min(self.to_f32(), other.to_f32()))
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Self::from_f32(Number::max(self.to_f32(), other.to_f32()))
            }

            #[inline(always)]
            fn divide(self, by: u32) -> Self {
                Self::from_f32(self.to_f32() / by as f32)
            }

            loops!(2, |bytes| Self(u16::from_le_bytes(bytes)), |value: Self| value.0.to_le_bytes());
        }
    };
}

half!(F16);
half!(Bf16);
