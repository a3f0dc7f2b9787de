//! Types of elements, and 16-bit floats as f32.

/// The type of a tensor's elements; also that of its encoded form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Element {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision. Coefficients above 65,504 make a block raw.
    F16,
    /// The upper half of an f32.
    Bf16,
}

impl Element {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Converts elements, in the processor's byte order, to f32.
    pub(super) fn widen(self, from: &[u8], to: &mut [f32]) {
        match self {
            Self::F32 => {
                let (words, _) = from.as_chunks();
                for (word, value) in words.iter().zip(to) {
                    *value = f32::from_ne_bytes(*word);
                }
            }
            Self::F16 | Self::Bf16 => {
                let convert = if self == Self::F16 { f32_of_f16 } else { f32_of_bf16 };
                let (words, _) = from.as_chunks();
                for (word, value) in words.iter().zip(to) {
                    *value = convert(u16::from_ne_bytes(*word));
                }
            }
        }
    }

    /// Converts f32 to elements; whether all of them are finite.
    pub(super) fn narrow(self, from: &[f32], to: &mut [u8]) -> bool {
        match self {
            Self::F32 => {
                let (words, _) = to.as_chunks_mut();
                for (value, word) in from.iter().zip(words) {
                    *word = value.to_ne_bytes();
                }
                from.iter().all(|value| value.is_finite())
            }
            Self::F16 | Self::Bf16 => {
                let is_half = self == Self::F16;
                let convert = if is_half { f16_of_f32 } else { bf16_of_f32 };
                let exponent = if is_half { 0x7c00 } else { 0x7f80 };
                let (words, _) = to.as_chunks_mut();
                let mut is_finite = true;
                for (value, word) in from.iter().zip(words) {
                    let bits = convert(*value);
                    is_finite &= bits & exponent != exponent;
                    *word = bits.to_ne_bytes();
                }
                is_finite
            }
        }
    }

    /// Fills elements with NaN.
    pub(super) fn fill_nan(self, to: &mut [u8]) {
        match self {
            Self::F32 => to.as_chunks_mut().0.fill(f32::NAN.to_ne_bytes()),
            Self::F16 => to.as_chunks_mut().0.fill(0x7e00u16.to_ne_bytes()),
            Self::Bf16 => to.as_chunks_mut().0.fill(0x7fc0u16.to_ne_bytes()),
        }
    }
}

/// Exact.
pub fn f32_of_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// To the nearest, ties to even. NaN stays NaN, made quiet.
pub fn bf16_of_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    // Just below half of the last place, and one more if that is odd.
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Exact.
pub fn f32_of_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let magnitude = u32::from(bits & 0x7fff);
    let value = if magnitude >= 0x7c00 {
        f32::from_bits(0x7f80_0000 | (magnitude & 0x3ff) << 13)
    } else {
        // As a subnormal or small f32 it lacks the difference of the exponents' biases, 127 - 15.
        f32::from_bits(magnitude << 13) * f32::from_bits((127 + 112) << 23)
    };
    f32::from_bits(value.to_bits() | sign)
}

/// To the nearest, ties to even; too large becomes infinite. NaN stays NaN, made quiet.
pub fn f16_of_f32(value: f32) -> u16 {
    let sign = (value.to_bits() >> 16) as u16 & 0x8000;
    let magnitude = value.abs();
    let bits = magnitude.to_bits();
    if value.is_nan() {
        return sign | 0x7e00 | (bits >> 13) as u16 & 0x3ff;
    }
    // 65,520 is halfway between the largest and what would come next.
    if magnitude >= 65_520.0 {
        return sign | 0x7c00;
    }
    // Below 2^-14 the last place is 2^-24: adding 0.5, whose last place is that, rounds there.
    if bits < (127 - 14) << 23 {
        return sign | (magnitude + 0.5).to_bits() as u16;
    }
    let bits = bits - (112 << 23);
    sign | ((bits + 0xfff + (bits >> 13 & 1)) >> 13) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_16_bit_float_comes_back() {
        for bits in 0..=u16::MAX {
            for (wide, back) in
                [(f32_of_f16(bits), f16_of_f32 as fn(f32) -> u16), (f32_of_bf16(bits), bf16_of_f32)]
            {
                if wide.is_nan() {
                    assert!(back(wide) & 0x7fff >= bits & 0x7fff, "{bits:x}");
                } else {
                    assert_eq!(back(wide), bits, "{bits:x}");
                }
            }
        }
        assert_eq!(f32_of_f16(0x3c00), 1.0);
        assert_eq!(f32_of_f16(0xfbff), -65_504.0);
        assert_eq!(f32_of_f16(1), 2f32.powi(-24));
        assert_eq!(f32_of_bf16(0xbf80), -1.0);
    }

    #[test]
    fn values_between_two_16_bit_floats_become_the_nearer_or_the_even_one() {
        for bits in 0..0x7f7fu16 {
            for (of, narrow, last) in [
                (f32_of_f16 as fn(u16) -> f32, f16_of_f32 as fn(f32) -> u16, 0x7bff),
                (f32_of_bf16, bf16_of_f32, 0x7f7f),
            ] {
                if bits >= last {
                    continue;
                }
                let (low, high) = (of(bits), of(bits + 1));
                let middle = ((f64::from(low) + f64::from(high)) / 2.0) as f32;
                assert_eq!(narrow(middle), bits + (bits & 1), "{bits:x}");
                assert_eq!(narrow(middle.next_down()), bits, "{bits:x}");
                assert_eq!(narrow(middle.next_up()), bits + 1, "{bits:x}");
                assert_eq!(narrow(-middle), 0x8000 | (bits + (bits & 1)), "{bits:x}");
            }
        }
        assert_eq!(f16_of_f32(65_519.0), 0x7bff);
        assert_eq!(f16_of_f32(65_520.0), 0x7c00);
        assert_eq!(bf16_of_f32(f32::MAX), 0x7f80);
    }
}
