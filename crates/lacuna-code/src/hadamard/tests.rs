//! The transform as a whole: what comes back, from what came.

use super::signs::mix;
use super::*;
use proptest::prelude::*;

const SEED: u64 = 0x1ac4;

/// About normal, of a size.
fn normal(seed: u64, len: usize, size: f32) -> Vec<f32> {
    let uniform = |index: u64| (mix(seed ^ mix(index)) >> 40) as f32 / (1 << 24) as f32;
    let value = |index: u64| (0..6).map(|part| uniform(8 * index + part)).sum::<f32>() - 3.0;
    (0..len as u64).map(|index| value(index) * size * 2f32.sqrt()).collect()
}

fn transform(element: Element) -> Transform {
    Transform::new(element, SEED).unwrap()
}

fn to_bytes(element: Element, values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * element.bytes()];
    element.narrow(values, &mut bytes);
    bytes
}

fn to_f32(element: Element, bytes: &[u8]) -> Vec<f32> {
    let mut values = vec![0.0; bytes.len() / element.bytes()];
    element.widen(bytes, &mut values);
    values
}

fn decode(
    element: Element,
    layout: &Layout,
    wire: &[u8],
    arrived: Arrived<'_>,
    raw: &RawBlocks,
    scale: Scale,
) -> Vec<f32> {
    let mut tensors = vec![0x5a; wire.len()];
    let mut wire = wire.to_vec();
    transform(element).decode(layout, &mut wire, arrived, raw, scale, &mut tensors).unwrap();
    to_f32(element, &tensors)
}

fn squared_error(mine: &[f32], exact: &[f32]) -> f64 {
    mine.iter().zip(exact).map(|(a, b)| f64::from(a - b).powi(2)).sum()
}

fn energy(values: &[f32]) -> f64 {
    values.iter().map(|value| f64::from(*value).powi(2)).sum()
}

/// All packets but those of a list.
fn all_but(layout: &Layout, lost: &[usize]) -> Vec<u64> {
    let mut words = vec![u64::MAX; layout.packets().div_ceil(64)];
    for packet in lost {
        words[packet / 64] &= !(1 << (packet % 64));
    }
    words
}

fn layouts() -> impl Strategy<Value = Layout> {
    let lengths = prop::collection::vec(prop_oneof![0usize..100, 0usize..9000], 0..6);
    (6u32..=10, 0u32..=10, lengths).prop_map(|(block, stride, tensors)| {
        Layout::new(1 << block, 1 << stride.min(block), &tensors).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_lengths_come_back_if_nothing_is_lost(layout in layouts(), seed: u64) {
        let values = normal(seed, layout.elements(), 1.0);
        for (element, tolerance) in
            [(Element::F32, 1e-5), (Element::F16, 2e-2), (Element::Bf16, 1.5e-1)]
        {
            let tensors = to_bytes(element, &values);
            let exact = to_f32(element, &tensors);
            let mut wire = vec![0; tensors.len()];
            let raw = transform(element).encode(&layout, &tensors, &mut wire).unwrap();
            prop_assert!(raw.is_empty());
            let decoded = decode(element, &layout, &wire, Arrived::All, &raw, Scale::Unbiased);
            for (mine, exact) in decoded.iter().zip(&exact) {
                prop_assert!((mine - exact).abs() <= tolerance, "{mine} {exact}");
            }
        }
    }

    #[test]
    fn every_engine_encodes_and_decodes_to_the_same_bytes(layout in layouts(), seed: u64) {
        let values = normal(seed, layout.elements(), 1.0);
        let lost: Vec<usize> =
            (0..layout.packets()).filter(|packet| mix(seed ^ *packet as u64).is_multiple_of(5)).collect();
        let words = all_but(&layout, &lost);
        for element in [Element::F32, Element::F16, Element::Bf16] {
            let tensors = to_bytes(element, &values);
            let results: Vec<_> = Engine::available()
                .map(|engine| {
                    let mut transform = Transform::with_engine(element, SEED, engine);
                    let mut wire = vec![0; tensors.len()];
                    let raw = transform.encode(&layout, &tensors, &mut wire).unwrap();
                    let (encoded, mut decoded) = (wire.clone(), tensors.clone());
                    let came = Arrived::Bits(&words);
                    transform
                        .decode(&layout, &mut wire, came, &raw, Scale::Unbiased, &mut decoded)
                        .unwrap();
                    (encoded, decoded)
                })
                .collect();
            prop_assert!(results.iter().all(|result| *result == results[0]));
        }
    }

    #[test]
    fn the_squared_error_is_the_energy_of_the_lost_coefficients(layout in layouts(), seed: u64) {
        let values = normal(seed, layout.elements(), 1.0);
        let mut wire = vec![0; 4 * values.len()];
        let raw = transform(Element::F32).encode(&layout, bytes_of(&values), &mut wire).unwrap();
        let coefficients = to_f32(Element::F32, &wire);
        let is_lost = |packet: usize| mix(seed ^ packet as u64).is_multiple_of(3);
        let lost: Vec<usize> = (0..layout.packets()).filter(|packet| is_lost(*packet)).collect();
        let words = all_but(&layout, &lost);
        let came = Arrived::Bits(&words);
        let decoded = decode(Element::F32, &layout, &wire, came, &raw, Scale::Kept);
        let lost: Vec<f32> = (coefficients.iter().enumerate())
            .filter(|(place, _)| is_lost(place / layout.packet_elements()))
            .map(|(_, coefficient)| *coefficient)
            .collect();
        let (error, expected) = (squared_error(&decoded, &values), energy(&lost));
        prop_assert!((error - expected).abs() <= 1e-4 * (1.0 + expected), "{error} {expected}");
    }

    #[test]
    fn units_in_any_order_are_the_whole(layout in layouts(), seed: u64) {
        let values = normal(seed, layout.elements(), 1.0);
        let mut whole = vec![0; 4 * values.len()];
        let mut transform = transform(Element::F32);
        let expected = transform.encode(&layout, bytes_of(&values), &mut whole).unwrap();
        let (mut parts, mut raw) = (vec![1; whole.len()], RawBlocks::none(layout.blocks()));
        let mut decoded = vec![0.0; values.len()];
        for unit in (0..layout.units()).rev().map(|unit| layout.unit(unit)) {
            let range = unit.wire().start * 4..unit.wire().end * 4;
            let wire = &mut parts[range];
            transform.encode_unit(&layout, &unit, bytes_of(&values), wire, &mut raw).unwrap();
            let (came, to) = (Arrived::All, bytes_of_mut(&mut decoded));
            transform.decode_unit(&layout, &unit, wire, came, &raw, Scale::Kept, to).unwrap();
        }
        prop_assert!(parts == whole && raw == expected);
        prop_assert!(squared_error(&decoded, &values) <= 1e-9 * energy(&values));
    }
}

#[test]
fn encoded_tensors_are_summed_without_decoding() {
    let layout = Layout::new(256, 64, &[100_000, 777]).unwrap();
    for (element, tolerance) in [(Element::F32, 1e-5), (Element::Bf16, 0.2)] {
        let ranks: Vec<Vec<f32>> =
            (0..4).map(|rank| normal(rank, layout.elements(), 1.0)).collect();
        let mut sum = vec![0.0; layout.elements()];
        let mut raw = RawBlocks::none(layout.blocks());
        for values in &ranks {
            let tensors = to_bytes(element, values);
            let mut wire = vec![0; tensors.len()];
            let list = transform(element).encode(&layout, &tensors, &mut wire).unwrap();
            raw.merge(&list).unwrap();
            for (sum, value) in sum.iter_mut().zip(to_f32(element, &wire)) {
                *sum += value;
            }
        }
        let wire = to_bytes(element, &sum);
        let decoded = decode(element, &layout, &wire, Arrived::All, &raw, Scale::Kept);
        for (index, value) in decoded.iter().enumerate() {
            let exact: f32 = ranks.iter().map(|values| values[index]).sum();
            assert!((value - exact).abs() < tolerance, "{element:?} {index}: {value} {exact}");
        }
    }
}

#[test]
fn a_stride_spreads_what_a_lost_packet_costs_over_its_blocks() {
    // The worst block's error over its energy, after one packet in 64 is lost.
    let worst = |stride: usize| {
        let layout = Layout::new(1024, stride, &[1024 * 64]).unwrap();
        let values = normal(3, layout.elements(), 1.0);
        let mut wire = vec![0; 4 * values.len()];
        let raw = transform(Element::F32).encode(&layout, bytes_of(&values), &mut wire).unwrap();
        let words = all_but(&layout, &[17]);
        let came = Arrived::Bits(&words);
        let decoded = decode(Element::F32, &layout, &wire, came, &raw, Scale::Kept);
        let blocks = decoded.chunks(1024).zip(values.chunks(1024));
        blocks.map(|(mine, exact)| squared_error(mine, exact) / energy(exact)).fold(0.0, f64::max)
    };
    assert!((worst(1) - 1.0).abs() < 1e-3);
    assert!((0.15..0.40).contains(&worst(4)));
    assert!(worst(64) < 0.05, "{}", worst(64));
}

#[test]
fn a_small_tensor_is_not_disturbed_by_a_large_one() {
    let layout = Layout::new(1024, 64, &[60_000, 2100, 60_000]).unwrap();
    let mut values = normal(1, layout.elements(), 1000.0);
    values[60_000..62_100].copy_from_slice(&normal(2, 2100, 1e-3));
    let mut wire = vec![0; 4 * values.len()];
    let raw = transform(Element::F32).encode(&layout, bytes_of(&values), &mut wire).unwrap();
    let lost: Vec<usize> = (0..layout.packets()).step_by(20).collect();
    let words = all_but(&layout, &lost);
    let came = Arrived::Bits(&words);
    let decoded = decode(Element::F32, &layout, &wire, came, &raw, Scale::Kept);
    let small = 60_000..62_100;
    let error = squared_error(&decoded[small.clone()], &values[small.clone()]);
    assert!(error < 0.3 * energy(&values[small]), "{error}");
}

#[test]
fn unbiased_scaling_keeps_the_mean_over_many_losses() {
    let layout = Layout::new(64, 16, &[1024]).unwrap();
    let values: Vec<f32> = normal(1, 1024, 1.0).iter().map(|value| value + 1.0).collect();
    let mut wire = vec![0; 4 * values.len()];
    let raw = transform(Element::F32).encode(&layout, bytes_of(&values), &mut wire).unwrap();
    let mean = |scale: Scale| {
        let mut sum = vec![0.0; values.len()];
        for pattern in 0..2000 {
            // 4 of 16 packets.
            let mut lost: Vec<usize> = (0..16).collect();
            lost.sort_by_key(|packet| mix(pattern ^ mix(*packet as u64)));
            let words = all_but(&layout, &lost[..4]);
            let came = Arrived::Bits(&words);
            let decoded = decode(Element::F32, &layout, &wire, came, &raw, scale);
            sum.iter_mut().zip(decoded).for_each(|(sum, value)| *sum += value / 2000.0);
        }
        let product: f32 = sum.iter().zip(&values).map(|(a, b)| a * b).sum();
        f64::from(product) / energy(&values)
    };
    assert!((mean(Scale::Kept) - 0.75).abs() < 0.01);
    assert!((mean(Scale::Unbiased) - 1.0).abs() < 0.01);
    assert!((mean(Scale::By(2.0)) - 1.5).abs() < 0.02);
}

#[test]
fn without_signs_a_mean_is_in_one_coefficient_and_with_them_in_all() {
    let layout = Layout::new(1024, 64, &[1024]).unwrap();
    let values = vec![1.0; 1024];
    let largest = |transform: Transform| {
        let (mut transform, mut wire) = (transform, vec![0; 4096]);
        transform.encode(&layout, bytes_of(&values), &mut wire).unwrap();
        to_f32(Element::F32, &wire).iter().fold(0.0f32, |most, value| most.max(value.abs()))
    };
    assert_eq!(largest(transform(Element::F32).without_signs()), 32.0);
    assert!(largest(transform(Element::F32)) < 5.0);
}

#[test]
fn blocks_have_signs_of_their_own_and_another_seed_gives_others() {
    let layout = Layout::new(64, 1, &[128]).unwrap();
    let values = vec![1.0; 128];
    let encode = |seed: u64| {
        let mut wire = vec![0; 512];
        let mut transform = Transform::new(Element::F32, seed).unwrap();
        transform.encode(&layout, bytes_of(&values), &mut wire).unwrap();
        wire
    };
    assert_ne!(encode(1)[..256], encode(1)[256..]);
    assert_ne!(encode(1), encode(2));
}

#[test]
fn a_block_with_a_nan_or_infinity_is_sent_raw_and_the_others_are_not_touched() {
    let layout = Layout::new(64, 4, &[640, 40]).unwrap();
    for element in [Element::F32, Element::F16, Element::Bf16] {
        for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            // In a full block, and in one of 8 elements at the tensor's end.
            for place in [200, 676] {
                let mut values = normal(1, 680, 1.0);
                values[place] = wrong;
                let tensors = to_bytes(element, &values);
                let mut wire = vec![0; tensors.len()];
                let raw = transform(element).encode(&layout, &tensors, &mut wire).unwrap();
                let block = layout.block_of(place);
                assert_eq!(raw.iter().collect::<Vec<_>>(), [block]);
                let decoded = decode(element, &layout, &wire, Arrived::All, &raw, Scale::Kept);
                let range = layout.block(block).range();
                for (index, exact) in to_f32(element, &tensors).iter().enumerate() {
                    let mine = decoded[index];
                    if range.contains(&index) {
                        // The element's own bits, also those beside what is not finite.
                        assert!(
                            mine.to_bits() == exact.to_bits() || mine.is_nan() && exact.is_nan()
                        );
                    } else {
                        assert!((mine - exact).abs() < 0.15);
                    }
                }
            }
        }
    }
}

#[test]
fn coefficients_that_would_overflow_make_a_block_raw() {
    let layout = Layout::new(64, 4, &[128]).unwrap();
    for (element, large) in [(Element::F32, f32::MAX), (Element::F16, 60_000.0)] {
        let mut values = vec![1.0; 128];
        values[64..].fill(large);
        let tensors = to_bytes(element, &values);
        let mut wire = vec![0; tensors.len()];
        let raw = transform(element).without_signs().encode(&layout, &tensors, &mut wire).unwrap();
        assert_eq!(raw.iter().collect::<Vec<_>>(), [1]);
    }
}

#[test]
fn a_sum_with_a_raw_contribution_is_nan_at_every_rank_whatever_came() {
    let layout = Layout::new(64, 4, &[640]).unwrap();
    let mut poisoned = normal(1, 640, 1.0);
    poisoned[100] = f32::NAN;
    let ranks = [normal(2, 640, 1.0), poisoned, normal(3, 640, 1.0)];
    let mut sum = vec![0.0; 640];
    let mut raw = RawBlocks::none(layout.blocks());
    for values in &ranks {
        let mut wire = vec![0; 4 * 640];
        let list = transform(Element::F32).encode(&layout, bytes_of(values), &mut wire).unwrap();
        raw.merge(&RawBlocks::parse(layout.blocks(), &list.to_bytes()).unwrap()).unwrap();
        let values = to_f32(Element::F32, &wire);
        sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    let wire = to_bytes(Element::F32, &sum);
    // One rank lacks the packet with the NaN.
    let (packet, _) = layout.place(100);
    let words = all_but(&layout, &[packet]);
    for came in [Arrived::All, Arrived::Bits(&words)] {
        let decoded = decode(Element::F32, &layout, &wire, came, &raw, Scale::Kept);
        for (index, value) in decoded.iter().enumerate() {
            assert_eq!(value.is_nan(), (64..128).contains(&index), "{index}: {value}");
        }
    }
}

#[test]
fn a_sum_of_raw_contributions_alone_is_the_elements_sum() {
    let layout = Layout::new(64, 4, &[640]).unwrap();
    let mut values = vec![1.0; 640];
    values[100] = f32::INFINITY;
    let mut wire = vec![0; 4 * 640];
    let mut raw = transform(Element::F32).encode(&layout, bytes_of(&values), &mut wire).unwrap();
    raw.merge(&raw.clone()).unwrap();
    let sum: Vec<f32> = to_f32(Element::F32, &wire).iter().map(|value| value * 2.0).collect();
    let decoded = decode(Element::F32, &layout, bytes_of(&sum), Arrived::All, &raw, Scale::By(3.0));
    for (index, value) in decoded.iter().enumerate().skip(64).take(64) {
        assert_eq!(*value, if index == 100 { f32::INFINITY } else { 2.0 });
    }
}

#[test]
fn packets_of_another_length_may_cross_units() {
    let layout = Layout::new(64, 16, &[5000]).unwrap().with_packet_elements(100).unwrap();
    let values = normal(1, 5000, 1.0);
    let mut wire = vec![0; 20_000];
    let raw = transform(Element::F32).encode(&layout, bytes_of(&values), &mut wire).unwrap();
    let coefficients = to_f32(Element::F32, &wire);
    // Packet 10 has the end of the first unit, 1,024 elements, and the start of the second.
    let words = all_but(&layout, &[10]);
    let decoded = decode(Element::F32, &layout, &wire, Arrived::Bits(&words), &raw, Scale::Kept);
    let (error, lost) = (squared_error(&decoded, &values), energy(&coefficients[1000..1100]));
    assert!((error - lost).abs() < 1e-3 * lost, "{error} {lost}");
}

#[test]
fn buffers_that_do_not_fit_are_refused() {
    let layout = Layout::new(64, 4, &[100]).unwrap();
    let mut transform = transform(Element::F32);
    let error = TransformError::Wire { have: 399, need: 400 };
    assert_eq!(transform.encode(&layout, &[0; 400], &mut [0; 399]), Err(error));
    let error = TransformError::Tensors { have: 404, need: 400 };
    assert_eq!(transform.encode(&layout, &[0; 404], &mut [0; 400]), Err(error));
    let (raw, mut wire, mut tensors) = (RawBlocks::none(5), [0; 400], [0; 400]);
    let result =
        transform.decode(&layout, &mut wire, Arrived::All, &raw, Scale::Kept, &mut tensors);
    assert_eq!(result, Err(TransformError::Blocks { have: 5, need: layout.blocks() }));
}

#[test]
fn nothing_at_all_is_a_tensor_too() {
    let layout = Layout::new(64, 4, &[0, 0]).unwrap();
    assert_eq!((layout.units(), layout.packets(), layout.blocks()), (0, 0, 0));
    let raw = transform(Element::F32).encode(&layout, &[], &mut []).unwrap();
    assert!(decode(Element::F32, &layout, &[], Arrived::Bits(&[]), &raw, Scale::Kept).is_empty());
}
