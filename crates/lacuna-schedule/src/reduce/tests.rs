//! Every engine against one element at a time, and the rules of the element types one by one.

use super::number::{Bf16, F16, Number};
use super::*;
use lacuna_link::SplitMix64;

fn engines() -> Vec<Engine> {
    EngineKind::ALL.into_iter().filter_map(Engine::new).collect()
}

/// Interesting bits beside random ones.
fn data(random: &mut SplitMix64, element: Element, count: usize) -> Vec<u8> {
    let specials: &[u64] = match element {
        Element::F16 => &[0, 0x8000, 0x7c00, 0xfc00, 0x7e01, 0xfd00, 1, 0x83ff, 0x7bff, 0x0400],
        Element::Bf16 => &[0, 0x8000, 0x7f80, 0xff80, 0x7fc1, 0xffa0, 1, 0x7f7f, 0x3f80],
        Element::F32 => &[0, 1 << 31, 0x7f80_0000, 0xff80_0000, 0x7fc0_0001, 0xffa0_0000, 1],
        Element::F64 => &[0, 1 << 63, 0x7ff << 52, 0xfff << 52, (0x7ff << 52) + 1, 1],
        _ => &[0, u64::MAX, 1, 0x8080_8080_8080_8080, 0x7f7f_7f7f_7f7f_7f7f],
    };
    let mut bytes = Vec::new();
    for _ in 0..count {
        let bits = match random.below(4) {
            0 => specials[random.below(specials.len() as u64) as usize],
            _ => random.next_u64(),
        };
        bytes.extend_from_slice(&bits.to_le_bytes()[..element.size_bytes()]);
    }
    bytes
}

#[test]
fn all_engines_give_the_bits_of_one_element_at_a_time() {
    let portable = Engine::new(EngineKind::Portable).unwrap();
    let mut random = SplitMix64::new(1);
    for element in Element::ALL {
        let size = element.size_bytes();
        for op in Op::ALL {
            for count in (0..70).chain([127, 1009]) {
                let (a, b) = (data(&mut random, element, count), data(&mut random, element, count));
                let mut expected = a.clone();
                for (a, b) in expected.chunks_mut(size).zip(b.chunks(size)) {
                    portable.reduce_into(op, element, a, b);
                }
                let mut divided = expected.clone();
                divided.chunks_mut(size).for_each(|one| portable.divide(element, one, 3));
                for engine in engines() {
                    let what = format!("{engine:?} {element} {op} {count}");
                    // Unaligned, and nothing around is touched.
                    let mut padded = [&[0xa5; 3], &a[..], &[0xa5; 3]].concat();
                    let inner = 3..3 + a.len();
                    engine.reduce_into(op, element, &mut padded[inner.clone()], &b);
                    assert_eq!(padded[inner.clone()], expected, "{what}");
                    assert!(padded[..3].iter().chain(&padded[inner.end..]).all(|b| *b == 0xa5));
                    let mut apart = vec![0; a.len()];
                    engine.reduce(op, element, &mut apart, &b, &a);
                    assert_eq!(apart, expected, "the other way round: {what}");
                    engine.divide(element, &mut apart, 3);
                    assert_eq!(apart, divided, "{what}");
                }
            }
        }
    }
}

#[test]
fn sixteen_bit_floats_convert_both_ways() {
    for bits in 0..=u16::MAX {
        let half = F16(bits);
        let is_nan = bits & 0x7fff > 0x7c00;
        assert_eq!(half.to_f32().is_nan(), is_nan, "{bits:#x}");
        assert_eq!(F16::from_f32(half.to_f32()).0, if is_nan { 0x7e00 } else { bits });
        let half = Bf16(bits);
        let is_nan = bits & 0x7fff > 0x7f80;
        assert_eq!(Bf16::from_f32(half.to_f32()).0, if is_nan { 0x7fc0 } else { bits });
    }
    assert_eq!(F16(0x3c00).to_f32(), 1.0);
    assert_eq!(F16(1).to_f32(), 2f32.powi(-24));
    assert_eq!(F16(0x7bff).to_f32(), 65504.0);
    // Ties to even, in the normal and the subnormal range, and what overflows.
    assert_eq!(F16::from_f32(2049.0).to_f32(), 2048.0);
    assert_eq!(F16::from_f32(2051.0).to_f32(), 2052.0);
    assert_eq!(F16::from_f32(1.5 * 2f32.powi(-24)).0, 2);
    assert_eq!(F16::from_f32(2.5 * 2f32.powi(-24)).0, 2);
    assert_eq!(F16::from_f32(65519.9).0, 0x7bff);
    assert_eq!(F16::from_f32(65520.0).0, 0x7c00);
    assert_eq!(F16::from_f32(-1e30).0, 0xfc00);
    assert_eq!(Bf16::from_f32(257.0).to_f32(), 256.0);
    assert_eq!(Bf16::from_f32(259.0).to_f32(), 260.0);
    assert_eq!(Bf16::from_f32(f32::MAX).0, 0x7f80);
}

#[test]
fn every_f16_rounds_what_lies_between() {
    // The nearest by a search over all, for numbers beside and in the middle of neighbours.
    let mut values: Vec<f32> = (0..0x7c00).map(|bits| F16(bits).to_f32()).collect();
    values.push(65536.0);
    for (i, pair) in values.windows(2).enumerate() {
        let middle = (pair[0] + pair[1]) / 2.0;
        let even = if i % 2 == 0 { i } else { i + 1 };
        assert_eq!(usize::from(F16::from_f32(middle).0), even);
        assert_eq!(usize::from(F16::from_f32(middle.next_down()).0), i);
        assert_eq!(usize::from(F16::from_f32(middle.next_up()).0), i + 1);
    }
}

#[test]
fn integers_wrap_and_averages_go_towards_zero() {
    assert_eq!(Number::sum(200u8, 100), 44);
    assert_eq!(Number::sum(i32::MAX, 1), i32::MIN);
    assert_eq!(Number::product(i64::MAX, 2), -2);
    assert_eq!(Number::divide(-7i8, 2), -3);
    assert_eq!(Number::divide(7i8, 200), 0, "more ranks than the type can count");
    assert_eq!(Number::divide(u64::MAX, 2), u64::MAX / 2);
    assert_eq!(Number::divide(i64::MIN, 1), i64::MIN);
}

#[test]
fn what_is_not_a_number_makes_a_result_that_is_none() {
    let odd = f32::from_bits(0xffa0_1234);
    for result in [
        Number::sum(odd, 1.0),
        Number::sum(f32::INFINITY, f32::NEG_INFINITY),
        Number::product(0.0, f32::INFINITY),
        Number::min(odd, -1.0),
        Number::min(1.0, odd),
        Number::max(odd, f32::INFINITY),
        Number::divide(odd, 3),
    ] {
        assert_eq!(result.to_bits(), 0x7fc0_0000);
    }
    assert_eq!(Number::max(f64::NAN, 1.0).to_bits(), 0x7ff8 << 48);
    assert_eq!(Number::min(F16(0xfe01), F16(0)).0, 0x7e00);
    assert_eq!(Number::sum(Bf16(0x7f80), Bf16(0xff80)).0, 0x7fc0);
    assert_eq!(Number::sum(f32::INFINITY, 1.0), f32::INFINITY);
    assert_eq!(Number::sum(f32::MAX, f32::MAX), f32::INFINITY);
}

#[test]
fn the_sign_of_zero_does_not_depend_on_the_order() {
    for (a, b) in [(0.0f32, -0.0f32), (-0.0, 0.0)] {
        assert!(Number::min(a, b).is_sign_negative());
        assert!(Number::max(a, b).is_sign_positive());
    }
    assert_eq!(Number::min(F16(0), F16(0x8000)).0, 0x8000);
}

#[test]
#[should_panic(expected = "3 bytes of f16")]
fn half_an_element_is_refused() {
    reduce_into(Op::Sum, Element::F16, &mut [0; 3], &[0; 3]);
}
