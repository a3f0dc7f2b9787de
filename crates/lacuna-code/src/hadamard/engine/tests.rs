//! Every engine against the naive product with the matrix, and bit by bit against the scalar one.

use super::*;
use crate::hadamard::bytes::{bytes_of, bytes_of_mut};
use crate::hadamard::signs::mix;

fn values(seed: u64, len: usize) -> Vec<f32> {
    let value = |index| {
        let bits = mix(seed ^ mix(index as u64));
        // Of all sizes, so that the order of additions shows in the bits.
        let size = [1e-3, 1.0, 1e3][(bits % 3) as usize];
        ((bits >> 40) as f32 / (1 << 23) as f32 - 1.0) * size
    };
    (0..len).map(value).collect()
}

fn signs(seed: u64) -> [u64; SIGN_WORDS] {
    std::array::from_fn(|word| mix(seed + word as u64))
}

fn is_negated(signs: &[u64; SIGN_WORDS], element: usize) -> bool {
    signs[element / 64] >> (element % 64) & 1 == 1
}

/// Coefficient k = sum over i of x_i times (-1)^(number of bits that k and i share).
fn naive(input: &[f32], scale: f64) -> Vec<f64> {
    let coefficient = |k: usize| {
        let term = |(i, x): (usize, &f32)| {
            if (k & i).count_ones().is_multiple_of(2) { f64::from(*x) } else { -f64::from(*x) }
        };
        input.iter().enumerate().map(term).sum::<f64>() * scale
    };
    (0..input.len()).map(coefficient).collect()
}

fn transform(engine: Engine, task: &Task<'_>, from: &[f32], to_len: usize) -> (Vec<f32>, bool) {
    let mut to = vec![7.0; to_len];
    let is_finite =
        engine.transform(task, bytes_of(from), bytes_of_mut(&mut to), &mut Scratch::new());
    (to, is_finite)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn every_engine_agrees_with_the_product_with_the_matrix() {
    for engine in Engine::available() {
        for log2 in 0..=12 {
            let n = 1usize << log2;
            let (input, signs) = (values(log2.into(), n), signs(9));
            let scale = (n as f64).sqrt().recip();
            let signed: Vec<f32> = (input.iter().enumerate())
                .map(|(i, x)| if is_negated(&signs, i) { -x } else { *x })
                .collect();
            let expected = naive(&signed, scale);
            let contiguous = Runs::CONTIGUOUS;
            let task = Task {
                log2,
                way: Way::Encode,
                from: contiguous,
                to: contiguous,
                signs: &signs,
                scale: scale as f32,
            };
            let (encoded, is_finite) = transform(engine, &task, &input, n);
            assert!(is_finite);
            // Each of log2 n additions and the scale round to 2^-24 of the largest partial sum.
            let size = input.iter().map(|x| f64::from(x.abs())).sum::<f64>() * scale;
            let tolerance = f64::from(log2 + 2) * size / (1 << 24) as f64;
            for (k, (mine, exact)) in encoded.iter().zip(&expected).enumerate() {
                let error = (f64::from(*mine) - exact).abs();
                assert!(error <= tolerance, "{}, 2^{log2}, {k}: {error}", engine.kind());
            }
            let back = Task { way: Way::Decode, ..task };
            let (decoded, _) = transform(engine, &back, &encoded, n);
            for (mine, exact) in decoded.iter().zip(&input) {
                let error = f64::from((mine - exact).abs());
                assert!(error <= 2.0 * size * f64::from(log2 + 2) / (1 << 24) as f64);
            }
        }
    }
}

#[test]
fn every_engine_computes_the_same_bits_wherever_the_elements_lie() {
    let scalar = Engine::new(EngineKind::Scalar).unwrap();
    for engine in Engine::available() {
        for log2 in 0..=12u32 {
            let signs = signs(u64::from(log2));
            for run_log2 in [0, 1, 2, 3, 4, 5, 12, 63] {
                let regular = if run_log2 < log2 {
                    Runs { run_log2, pitch: 3 << run_log2 }
                } else {
                    Runs::CONTIGUOUS
                };
                for (from, to) in [(Runs::CONTIGUOUS, regular), (regular, Runs::CONTIGUOUS)] {
                    let last = (1 << log2) - 1;
                    let input = values(5, from.place(last) + 1);
                    for way in [Way::Encode, Way::Decode] {
                        let task = Task { log2, way, from, to, signs: &signs, scale: 0.3 };
                        let to_len = to.place(last) + 2;
                        let (mine, _) = transform(engine, &task, &input, to_len);
                        let (theirs, _) = transform(scalar, &task, &input, to_len);
                        assert_eq!(bits(&mine), bits(&theirs), "{}: {task:?}", engine.kind());
                    }
                }
            }
        }
    }
}

#[test]
fn large_blocks_have_the_same_bits_on_every_engine() {
    let scalar = Engine::new(EngineKind::Scalar).unwrap();
    for log2 in 0..=19 {
        let input = values(11, 1 << log2);
        let mut expected = input.clone();
        scalar.transform_in_place(&mut expected, 0.7);
        for engine in Engine::available() {
            let mut mine = input.clone();
            engine.transform_in_place(&mut mine, 0.7);
            assert!(bits(&mine) == bits(&expected), "{}, 2^{log2}", engine.kind());
        }
    }
}

#[test]
fn what_is_not_finite_is_noticed_in_every_place() {
    for engine in Engine::available() {
        for log2 in [0u32, 3, 6, 10] {
            let n = 1usize << log2;
            let signs = [0; SIGN_WORDS];
            let task = Task {
                log2,
                way: Way::Encode,
                from: Runs::CONTIGUOUS,
                to: Runs::CONTIGUOUS,
                signs: &signs,
                scale: 1.0,
            };
            for wrong in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                for place in (0..n).step_by(1 + n / 70) {
                    let mut input = values(1, n);
                    input[place] = wrong;
                    assert!(!transform(engine, &task, &input, n).1, "{}", engine.kind());
                }
            }
            assert!(transform(engine, &task, &values(1, n), n).1);
            // Finite, but the sum is too large.
            if n > 1 {
                assert!(!transform(engine, &task, &vec![f32::MAX; n], n).1);
            }
        }
    }
}

#[test]
fn unknown_engines_are_named() {
    let error = Engine::named("mmx").unwrap_err().to_string();
    assert!(error.contains("mmx") && error.contains("scalar, avx2, avx512, neon"), "{error}");
    assert_eq!(Engine::named("scalar").unwrap().kind(), EngineKind::Scalar);
}
