//! Operations that are encoded, over real sockets: what a lossy path does to their results.

use lacuna::Wrap;
use lacuna::datapath::{Fraction, Impair, Impairment, Loss};
use lacuna_collective::rendezvous::{HeldPort, Meeting};
use lacuna_collective::{
    Algorithm, Budget, Collective, Element, Encode, EncodeError, Group, GroupConfig, Op,
    OperationError, Options, Outcome, Vectors,
};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(60);

/// Of this process, until it ends.
fn free_port() -> u16 {
    let held = HeldPort::any(Ipv4Addr::LOCALHOST.into()).unwrap();
    let port = held.address().port();
    std::mem::forget(held);
    port
}

/// Runs the same on all ranks; what each of them returned.
fn on_all<R: Send>(
    ranks: usize,
    change: impl Fn(&mut GroupConfig) + Sync,
    run: impl Fn(&Group) -> R + Sync,
) -> Vec<R> {
    let host = format!("127.0.0.1:{}", free_port());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                let (change, run, host) = (&change, &run, host.clone());
                scope.spawn(move || {
                    let meeting = Meeting { host, rank, ranks, job: String::new(), timeout: WAIT };
                    let bind = Ipv4Addr::LOCALHOST.into();
                    let mut config = GroupConfig { bind, ..GroupConfig::new(meeting) };
                    change(&mut config);
                    run(&Group::form(&config).unwrap())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Ends in time, over a path that loses 5 %.
fn bounded(config: &mut GroupConfig) {
    let loss = Loss::Independent(Fraction::from_ppm(50_000));
    let wrap: Wrap = Arc::new(move |number, inner| {
        let impairment = Impairment { loss: loss.clone(), ..Impairment::default() };
        Box::new(Impair::new(inner, impairment, u64::from(number) + 1))
    });
    config.mode = "bounded".parse().unwrap();
    config.wrap = Some(wrap);
}

/// Values without pattern, between -1 and 1.
fn values(rank: usize, count: usize) -> Vec<f32> {
    let mut state = rank as u64 + 1;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn sum(ranks: usize, count: usize) -> Vec<f32> {
    let all: Vec<Vec<f32>> = (0..ranks).map(|rank| values(rank, count)).collect();
    (0..count).map(|at| all.iter().map(|values| values[at]).sum()).collect()
}

fn run(
    group: &Group,
    (collective, op): (&Collective, Op),
    (input, output): (Vec<f32>, usize),
    options: &Options,
) -> Result<Outcome, OperationError> {
    let buffers = Box::new(Vectors { input: bytes(&input), output: vec![0xee; 4 * output] });
    group.run(collective, (Element::F32, op), buffers, options)
}

fn encoded() -> Options {
    Options { encode: Some(Encode::default()), ..Options::default() }
}

fn result(outcome: &Outcome) -> Vec<f32> {
    floats(outcome.buffers.output())
}

fn assert_near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 2e-5, "{what}: element {at} is {found}, not {expected}");
    }
}

#[test]
fn without_losses_encoded_results_are_those_of_the_operation_within_rounding() {
    for ranks in 2..=5 {
        on_all(
            ranks,
            |_| {},
            |group| {
                let rank = group.rank();
                for count in [0, 1, 7, 1000, 100_003] {
                    let what = format!("{count} elements on {ranks} ranks");
                    let whole = values(rank, count);
                    let (summed, root) = (sum(ranks, count), ranks - 1);
                    let average: Vec<f32> = summed.iter().map(|v| v / ranks as f32).collect();
                    let own = |all: &[f32], counts: &[usize]| {
                        let start = counts[..rank].iter().sum::<usize>();
                        all[start..start + counts[rank]].to_vec()
                    };
                    let mut counts: Vec<usize> =
                        (0..ranks).map(|rank| count * rank % 1013).collect();
                    counts[0] = 3;
                    let total = counts.iter().sum();

                    let all_reduce = Collective::AllReduce { count };
                    for (op, expected) in [(Op::Sum, &summed), (Op::Average, &average)] {
                        let memory = (whole.clone(), count);
                        let outcome = run(group, (&all_reduce, op), memory, &encoded()).unwrap();
                        assert_near(&result(&outcome), expected, &what);
                        assert_eq!(outcome.decoded, Some(Default::default()));
                    }
                    // In place: there is no input.
                    let buffers = Box::new(Vectors { input: Vec::new(), output: bytes(&whole) });
                    let types = (Element::F32, Op::Sum);
                    let outcome = group.run(&all_reduce, types, buffers, &encoded()).unwrap();
                    assert_near(&result(&outcome), &summed, &what);

                    let reduce = Collective::Reduce { root, count };
                    let output = if rank == root { count } else { 0 };
                    let memory = (whole.clone(), output);
                    let outcome = run(group, (&reduce, Op::Sum), memory, &encoded()).unwrap();
                    assert_near(&result(&outcome), &summed[..output], &what);

                    let broadcast = Collective::Broadcast { root, count };
                    let input = if rank == root { whole } else { Vec::new() };
                    let memory = (input, count);
                    let outcome = run(group, (&broadcast, Op::Sum), memory, &encoded()).unwrap();
                    assert_near(&result(&outcome), &values(root, count), &what);

                    let scatter = Collective::ReduceScatter { counts: counts.clone() };
                    let memory = (values(rank, total), counts[rank]);
                    let outcome = run(group, (&scatter, Op::Sum), memory, &encoded()).unwrap();
                    assert_near(&result(&outcome), &own(&sum(ranks, total), &counts), &what);

                    let gather = Collective::AllGather { counts: counts.clone() };
                    let memory = (own(&values(9, total), &counts), total);
                    let outcome = run(group, (&gather, Op::Sum), memory, &encoded()).unwrap();
                    assert_near(&result(&outcome), &values(9, total), &what);
                    // In place: what this rank contributes is in its part of the output.
                    let mut output = vec![0.0; total];
                    let start = counts[..rank].iter().sum::<usize>();
                    output[start..start + counts[rank]]
                        .copy_from_slice(&own(&values(9, total), &counts));
                    let buffers = Box::new(Vectors { input: Vec::new(), output: bytes(&output) });
                    let outcome = group.run(&gather, types, buffers, &encoded()).unwrap();
                    assert_near(&result(&outcome), &values(9, total), &what);
                }
            },
        );
    }
}

#[test]
fn sixteen_bit_floats_are_encoded_as_such() {
    for (element, one, roundoff) in
        [(Element::F16, 0x3c00u16, 1.0 / 2048.0), (Element::Bf16, 0x3f80, 1.0 / 256.0)]
    {
        on_all(
            3,
            |_| {},
            |group| {
                let count = 2000;
                let input = [one.to_le_bytes()].concat().repeat(count);
                let buffers = Box::new(Vectors { input, output: vec![0; 2 * count] });
                let collective = Collective::AllReduce { count };
                let outcome = group.run(&collective, (element, Op::Sum), buffers, &encoded());
                let outcome = outcome.unwrap();
                for bytes in outcome.buffers.output().as_chunks().0 {
                    let bits = u16::from_le_bytes(*bytes);
                    let value = match element {
                        Element::F16 => lacuna_code::hadamard::f32_of_f16(bits),
                        _ => lacuna_code::hadamard::f32_of_bf16(bits),
                    };
                    assert!((value - 3.0).abs() < 20.0 * roundoff, "{element}: {value}");
                }
            },
        );
    }
}

/// Squared error over squared size: of all elements, and of the worst block of 1,024.
fn errors(found: &[f32], expected: &[f32]) -> (f64, f64) {
    let square = |values: &mut dyn Iterator<Item = f32>| -> f64 {
        values.map(|value| f64::from(value).powi(2)).sum()
    };
    let of = |found: &[f32], expected: &[f32]| {
        let differences = &mut found.iter().zip(expected).map(|(found, expected)| found - expected);
        square(differences) / square(&mut expected.iter().copied())
    };
    let blocks = found.chunks(1024).zip(expected.chunks(1024));
    (of(found, expected), blocks.map(|(found, expected)| of(found, expected)).fold(0.0, f64::max))
}

#[test]
fn losses_are_spread_over_blocks_and_the_mean_error_stays() {
    let (ranks, count) = (3, 300_000);
    let collective = Collective::AllReduce { count };
    let expected = sum(ranks, count);
    let found = on_all(ranks, bounded, |group| {
        [None, Some(Encode::default())].map(|encode| {
            let options = Options { budget: Budget::Fixed(WAIT), encode, ..Options::default() };
            // Several operations, so that means differ little.
            let all: Vec<_> = (0..8)
                .map(|_| {
                    let memory = (values(group.rank(), count), count);
                    let outcome = run(group, (&collective, Op::Sum), memory, &options).unwrap();
                    if let Some(decoded) = &outcome.decoded {
                        check_told(&outcome, &expected, decoded);
                    }
                    errors(&result(&outcome), &expected)
                })
                .collect();
            let mean = all.iter().map(|(mean, _)| mean).sum::<f64>() / all.len() as f64;
            (mean, all.iter().map(|(_, worst)| *worst).fold(0.0, f64::max))
        })
    });
    let mean = |which: usize| found.iter().map(|of| of[which].0).sum::<f64>() / ranks as f64;
    let worst = |which: usize| found.iter().map(|of| of[which].1).fold(0.0, f64::max);
    assert!(mean(0) > 0.02, "the path loses: {}", mean(0));
    assert!((mean(1) / mean(0) - 1.0).abs() < 0.3, "{} and {}", mean(0), mean(1));
    assert!(worst(0) > 0.6 && worst(1) < 0.4, "{} and {}", worst(0), worst(1));
}

/// Blocks that are not told to lack anything are right, and told ones are off by about what they lack.
fn check_told(outcome: &Outcome, expected: &[f32], decoded: &lacuna_collective::Decoded) {
    let found = result(outcome);
    let mut next = 0;
    for (range, share) in &decoded.incomplete {
        assert_near(&found[next..range.start], &expected[next..range.start], "told to be whole");
        next = range.end;
        assert!((0.0..=1.0).contains(share));
        if range.len() == 1024 {
            let (error, _) = errors(&found[range.clone()], &expected[range.clone()]);
            // Three equal contributions: one that is lost has a third of the square, two have two thirds.
            assert!(error < 2.0 * share + 0.05, "{error} of a block that lacks {share}");
        }
    }
    assert_near(&found[next..], &expected[next..], "told to be whole");
    assert!(decoded.not_finite.is_empty());
}

#[test]
fn losses_of_one_run_are_repeated_in_another_to_the_bit() {
    let (ranks, count) = (3, 50_000);
    let collective = Collective::AllReduce { count };
    for encode in [None, Some(Encode { seed: Some(5), ..Encode::default() })] {
        let once = |group: &Group, losses| {
            let encode = encode.clone();
            let budget = Budget::Fixed(WAIT);
            // The same schedule in both runs: the choice depends on the round trips of each.
            let algorithm = Some(Algorithm::Ring);
            let options = Options { algorithm, budget, encode, losses, ..Options::default() };
            let memory = (values(group.rank(), count), count);
            let outcome = run(group, (&collective, Op::Average), memory, &options).unwrap();
            let lost: Vec<_> = outcome.report.hops.iter().map(|hop| hop.lost.clone()).collect();
            (lost, outcome.report.missing.clone(), result(&outcome))
        };
        let logged = on_all(ranks, bounded, |group| once(group, Vec::new()));
        assert!(logged.iter().any(|(lost, ..)| lost.iter().any(|hop| !hop.is_empty())));
        let lossless = |config: &mut GroupConfig| config.mode = "bounded".parse().unwrap();
        let again = on_all(ranks, lossless, |group| once(group, logged[group.rank()].0.clone()));
        assert!(again == logged, "with {encode:?}");
    }
    let refused = on_all(
        1,
        |_| {},
        |group| {
            let options = Options { losses: vec![Vec::new()], ..Options::default() };
            run(group, (&collective, Op::Sum), (values(0, count), count), &options).map(drop)
        },
    );
    assert_eq!(refused, [Err(OperationError::Losses)]);
}

#[test]
fn a_value_that_is_not_finite_poisons_its_block_on_every_rank_and_no_other() {
    let (ranks, count) = (3, 10_000);
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let found = on_all(
            ranks,
            |_| {},
            |group| {
                let mut input = values(group.rank(), count);
                if group.rank() == 1 {
                    input[5000] = bad;
                    // In the last block, which is of 16 elements: 10,000 is 9 of 1,024, and 512, 256, 16.
                    input[count - 1] = bad;
                }
                let collective = Collective::AllReduce { count };
                let memory = (input, count);
                let outcome = run(group, (&collective, Op::Average), memory, &encoded()).unwrap();
                (result(&outcome), outcome.decoded.unwrap())
            },
        );
        for (result, decoded) in found {
            assert_eq!(decoded.not_finite, [4096..5120, 9984..10_000]);
            for (at, (found, sum)) in result.iter().zip(sum(ranks, count)).enumerate() {
                let is_poisoned = decoded.not_finite.iter().any(|range| range.contains(&at));
                assert!(found.is_nan() == is_poisoned, "element {at}");
                assert!(is_poisoned || (found - sum / ranks as f32).abs() < 1e-5, "element {at}");
            }
        }
    }
}

#[test]
fn a_poisoned_block_is_found_whatever_packets_are_lost() {
    let (ranks, count) = (3, 100_000);
    let found = on_all(ranks, bounded, |group| {
        let mut input = values(group.rank(), count);
        if group.rank() == 2 {
            input[50_000] = f32::NAN;
        }
        let collective = Collective::AllReduce { count };
        let options = Options { budget: Budget::Fixed(WAIT), ..encoded() };
        let outcome = run(group, (&collective, Op::Sum), (input, count), &options).unwrap();
        (result(&outcome), outcome.decoded.unwrap())
    });
    for (result, decoded) in found {
        assert!(!decoded.incomplete.is_empty(), "the path loses");
        assert_eq!(decoded.not_finite.first(), Some(&(48 * 1024..49 * 1024)));
        assert_eq!(decoded.not_finite.len(), 1);
        assert_eq!(result.iter().filter(|value| !value.is_finite()).count(), 1024);
    }
}

#[test]
fn blocks_keep_to_their_tensors() {
    // A NaN in one tensor does not reach the other, though it is less than a block away.
    let (ranks, count) = (2, 2000);
    let found = on_all(
        ranks,
        |_| {},
        |group| {
            let mut input = values(group.rank(), count);
            input[999] = f32::NAN;
            let encode = Encode { tensors: vec![1000, 1000], ..Encode::default() };
            let options = Options { encode: Some(encode), ..Options::default() };
            let collective = Collective::AllReduce { count };
            let outcome = run(group, (&collective, Op::Sum), (input, count), &options).unwrap();
            outcome.decoded.unwrap().not_finite
        },
    );
    // 1,000 is 512, 256, 128, 64, 32 and 8.
    assert!(found.into_iter().flatten().eq([992..1000, 992..1000]));
}

#[test]
fn ranks_that_encode_in_another_way_are_told() {
    let plain = Encode::default();
    let others = [
        None,
        Some(Encode { stride: 16, ..plain.clone() }),
        Some(Encode { seed: Some(3), ..plain.clone() }),
        Some(Encode { tensors: vec![400, 600], ..plain.clone() }),
    ];
    for other in others {
        let found = on_all(
            2,
            |_| {},
            |group| {
                let encode = if group.rank() == 0 { Some(plain.clone()) } else { other.clone() };
                let options = Options { encode, ..Options::default() };
                let collective = Collective::AllReduce { count: 1000 };
                let memory = (values(0, 1000), 1000);
                run(group, (&collective, Op::Sum), memory, &options).map(drop)
            },
        );
        let texts: Vec<String> =
            found.into_iter().map(|result| result.unwrap_err().to_string()).collect();
        let named = texts.iter().filter(|text| text.contains("hadamard:64:1024"));
        assert!(named.count() > 0, "{texts:?}");
    }
}

#[test]
fn what_cannot_be_encoded_is_refused_with_what_can_be() {
    on_all(
        1,
        |_| {},
        |group| {
            let count = 8;
            let refused = |collective: &Collective, types| {
                let buffers = Box::new(Vectors { input: vec![0; 64], output: vec![0; 64] });
                match group.run(collective, types, buffers, &encoded()) {
                    Err(OperationError::Encode(error)) => error,
                    other => panic!("{other:?}"),
                }
            };
            let all_reduce = Collective::AllReduce { count };
            let error = refused(&all_reduce, (Element::F64, Op::Sum));
            assert_eq!(error, EncodeError::Element { element: Element::F64 });
            assert!(error.to_string().contains("use f32, f16 or bf16"), "{error}");
            let buffers = Box::new(Vectors { input: vec![0; 32], output: vec![0; 32] });
            let types = (Element::F32, Op::Max);
            let error = group.run(&all_reduce, types, buffers, &encoded()).unwrap_err();
            assert_eq!(error, OperationError::Encode(EncodeError::Op { op: Op::Max }));
            let all_to_all = Collective::AllToAll { sent: vec![8], received: vec![8] };
            let buffers = Box::new(Vectors { input: vec![0; 32], output: vec![0; 32] });
            let types = (Element::F32, Op::Sum);
            let error = group.run(&all_to_all, types, buffers, &encoded()).unwrap_err();
            assert!(error.to_string().contains("use all-reduce"), "{error}");
            // The group goes on.
            let memory = (values(0, count), count);
            run(group, (&all_reduce, Op::Sum), memory, &encoded()).unwrap();
        },
    );
}
