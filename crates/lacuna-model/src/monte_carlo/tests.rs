//! The draws against the exact values, within their confidence intervals, and against the plainest
//! simulation there is.

use super::{
    CodedSampler, RepeatSampler, Sample, Samples, SerializedSampler, StreamedSampler,
    SubmessageSampler,
};
use crate::{
    ChunkLoss, Code, CodeKind, Completion, EcConfig, ErasureCoding, Loss, Random, RepairTiming,
    SelectiveRepeat, StreamedCoding, Transfer,
};

/// A deviation that happens once in 1e5 draws, in any of the some hundred comparisons below.
const Z: f64 = 4.4;

fn transfer(chunks: u64, loss: Loss) -> Transfer {
    Transfer::from_chunks(chunks, 1e-6, 2e-4, loss.of_chunk(1).unwrap()).unwrap()
}

/// Prints the interval and holds the exact values against it.
fn assert_agrees(what: &str, exact: &impl Completion, samples: &Samples, slack: f64) {
    let (low, high) = samples.mean_interval_s(Z);
    println!("{what}: mean {:.6e} in [{low:.6e}, {high:.6e}]", exact.mean_s());
    let mean_s = exact.mean_s();
    // What happens less often than Z^2 times in so many trials may not have been drawn at all.
    let unseen = Z * Z / samples.count() as f64;
    let half =
        (slack + 1e-12) * mean_s + unseen * (exact.quantile_s(1.0 - 1e-9) - exact.quantile_s(0.0));
    assert!(low - half <= mean_s && mean_s <= high + half, "{what}: {mean_s} [{low}, {high}]");
    for probability in [0.5, 0.9, 0.99] {
        let (low, high) = samples.quantile_interval_s(probability, Z);
        let exact_s = exact.quantile_s(probability);
        let half = (slack + 1e-11) * exact_s;
        assert!(
            low - half <= exact_s && exact_s <= high + half,
            "{what}, {probability}: {exact_s} [{low}, {high}]"
        );
    }
}

#[test]
fn selective_repeat_agrees_with_its_exact_distribution() {
    let mut random = Random::new(7);
    for chunks in [1, 30, 1000, 100_000] {
        for loss in [1e-5, 1e-3, 0.1, 0.5] {
            for timing in [RepairTiming::TIMEOUT, RepairTiming::NACK] {
                let transfer = transfer(chunks, Loss::PerChunk(loss));
                let exact = SelectiveRepeat::new(&transfer, timing).unwrap();
                let sampler = RepeatSampler::new(&transfer, timing).unwrap();
                let samples = Samples::draw(&sampler, 20_000, &mut random);
                assert_agrees(&format!("{chunks} {loss} {timing:?}"), &exact, &samples, 0.0);
            }
        }
    }
}

/// The paper's check (5.1.1): the mean of 1000 samples within 5 % of the analytical one.
#[test]
fn a_thousand_samples_are_within_five_percent() {
    let mut random = Random::new(11);
    for exponent in (5..=21).step_by(4) {
        for loss in [1e-6, 1e-4, 1e-2, 1e-1] {
            let loss = ChunkLoss::independent(loss).unwrap();
            let transfer = Transfer::from_chunks(1 << exponent, 8.192e-8, 0.025, loss).unwrap();
            let timing = RepairTiming::TIMEOUT;
            let exact_s = SelectiveRepeat::new(&transfer, timing).unwrap().mean_s();
            let sampler = RepeatSampler::new(&transfer, timing).unwrap();
            let mean_s = Samples::draw(&sampler, 1000, &mut random).mean_s();
            assert!((mean_s / exact_s - 1.0).abs() < 0.05, "{transfer:?}: {mean_s} {exact_s}");
        }
    }
}

/// Every chunk, every round, one draw each.
struct Plain(Transfer, f64);

impl Sample for Plain {
    fn sample_s(&self, random: &mut Random) -> f64 {
        let Self(transfer, rto_rtts) = self;
        let round_s = rto_rtts * transfer.rtt_s() + transfer.chunk_s();
        let mut slowest_s: f64 = 0.0;
        for i in 1..=transfer.chunks() {
            let mut done_s = i as f64 * transfer.chunk_s();
            while random.chance(transfer.loss().probability()) {
                done_s += round_s;
            }
            slowest_s = slowest_s.max(done_s);
        }
        slowest_s + transfer.rtt_s()
    }
}

#[test]
fn jumping_over_chunks_changes_nothing() {
    let mut random = Random::new(3);
    for loss in [0.02, 0.4] {
        let transfer = transfer(300, Loss::PerChunk(loss));
        let plain = Samples::draw(&Plain(transfer, 1.0), 20_000, &mut random);
        let sampler = RepeatSampler::new(&transfer, RepairTiming::NACK).unwrap();
        let jumping = Samples::draw(&sampler, 20_000, &mut random);
        let ((a, b), (c, d)) = (plain.mean_interval_s(Z), jumping.mean_interval_s(Z));
        assert!(a <= d && c <= b, "[{a}, {b}] [{c}, {d}]");
    }
}

#[test]
fn erasure_coding_agrees_with_its_exact_distribution() {
    let mut random = Random::new(5);
    for kind in [CodeKind::Mds, CodeKind::Xor] {
        for (chunks, loss) in [(32, 0.1), (40, 0.2), (1000, 0.02), (6400, 1e-3), (6400, 0.15)] {
            for early_ack in [false, true] {
                let code = Code::new(kind, 32, 8).unwrap();
                let config = EcConfig { early_ack, ..EcConfig::paper(code) };
                let transfer = transfer(chunks, Loss::PerChunk(loss));
                let exact = ErasureCoding::new(&transfer, config).unwrap();
                let sampler = CodedSampler::new(&transfer, config).unwrap();
                let samples = Samples::draw(&sampler, 4000, &mut random);
                let what = format!("{kind:?} {chunks} {loss} early {early_ack}");
                assert_agrees(&what, &exact, &samples, 0.0);
                if !early_ack {
                    let sampler = SubmessageSampler::new(&transfer, config).unwrap();
                    let samples = Samples::draw(&sampler, 20_000, &mut random);
                    assert_agrees(&format!("{what} by submessage"), &exact, &samples, 0.0);
                }
            }
        }
    }
}

/// The burst models approximate where blocks of chunks in different rounds meet; they may be off
/// by some percent.
#[test]
fn bursts_agree_with_their_simulation() {
    let mut random = Random::new(9);
    for (loss, burst) in [(1e-3, 4.0), (1e-2, 8.0), (0.05, 3.0), (1e-3, 32.0)] {
        let loss = Loss::bursts(loss, burst).unwrap();
        let transfer = transfer(2000, loss);
        let what = format!("{loss:?}");
        let exact = SelectiveRepeat::new(&transfer, RepairTiming::TIMEOUT).unwrap();
        let sampler = RepeatSampler::new(&transfer, RepairTiming::TIMEOUT).unwrap();
        let samples = Samples::draw(&sampler, 10_000, &mut random);
        assert_agrees(&what, &exact, &samples, 0.02);
        for kind in [CodeKind::Mds, CodeKind::Xor] {
            let config = EcConfig::paper(Code::new(kind, 32, 8).unwrap());
            let exact = ErasureCoding::new(&transfer, config).unwrap();
            let sampler = CodedSampler::new(&transfer, config).unwrap();
            let samples = Samples::draw(&sampler, 10_000, &mut random);
            let what = format!("{kind:?} {what}");
            let (low, high) = samples.mean_interval_s(Z);
            let mean_s = exact.mean_s();
            println!("{what}: mean {mean_s:.6e} in [{low:.6e}, {high:.6e}]");
            assert!(low * 0.97 <= mean_s && mean_s <= high * 1.03, "{what}: {mean_s} {low} {high}");
        }
    }
}

/// Bursts that are shorter than a submessage, longer, and longer than half of the message.
#[test]
fn submessages_that_a_burst_takes_in_a_row_agree_with_their_simulation() {
    let mut random = Random::new(21);
    for (loss, burst) in [(0.05, 3.0), (1e-2, 8.0), (1e-3, 8.0), (1e-2, 100.0), (1e-2, 1000.0)] {
        let transfer = transfer(2010, Loss::bursts(loss, burst).unwrap());
        for (kind, k, m) in [
            (CodeKind::Mds, 32, 8),
            (CodeKind::Mds, 32, 16),
            (CodeKind::Xor, 32, 8),
            (CodeKind::Xor, 32, 16),
        ] {
            let code = Code::new(kind, k, m).unwrap();
            let agrees = |what: &str, mean_s: f64, samples: &Samples| {
                let (low, high) = samples.mean_interval_s(Z);
                let what = format!("{what} {kind:?} {k} {m}, {loss} in bursts of {burst}");
                println!("{what}: mean {mean_s:.6e} in [{low:.6e}, {high:.6e}]");
                assert!(
                    low * 0.985 <= mean_s && mean_s <= high * 1.015,
                    "{what}: {mean_s} [{low}, {high}]"
                );
            };
            for early_ack in [false, true] {
                let config =
                    EcConfig { early_ack, fallback: RepairTiming::NACK, ..EcConfig::paper(code) };
                let exact = ErasureCoding::new(&transfer, config).unwrap();
                let sampler = CodedSampler::new(&transfer, config).unwrap();
                let samples = Samples::draw(&sampler, 10_000, &mut random);
                agrees(&format!("early {early_ack}"), exact.mean_s(), &samples);
            }
            let exact = StreamedCoding::new(&transfer, code, RepairTiming::NACK).unwrap();
            let sampler = StreamedSampler::new(&transfer, code, RepairTiming::NACK).unwrap();
            let samples = Samples::draw(&sampler, 10_000, &mut random);
            agrees("streamed", exact.mean_s(), &samples);
        }
    }
}

#[test]
fn the_wire_time_option_agrees_with_a_link_that_carries_one_chunk_at_a_time() {
    let mut random = Random::new(13);
    for (chunks, loss) in [(150, 0.1), (2000, 0.01), (5000, 0.1), (20_000, 1e-3), (20_000, 0.2)] {
        for rto_rtts in [1.0, 3.0] {
            let transfer = transfer(chunks, Loss::PerChunk(loss));
            let timing = RepairTiming { rto_rtts, wire_time: true };
            let model = SelectiveRepeat::new(&transfer, timing).unwrap();
            let sampler = SerializedSampler::new(&transfer, timing).unwrap();
            let samples = Samples::draw(&sampler, 4000, &mut random);
            assert_agrees(&format!("{chunks} {loss} {rto_rtts}"), &model, &samples, 0.015);
        }
    }
}

#[test]
fn repair_by_submessage_agrees_with_a_link_that_carries_one_chunk_at_a_time() {
    let mut random = Random::new(17);
    for kind in [CodeKind::Mds, CodeKind::Xor] {
        let code = Code::new(kind, 32, 8).unwrap();
        for (chunks, loss) in [
            (32, 0.1),
            (40, 0.2),
            (160, 0.15),
            (1000, 0.02),
            (6400, 1e-3),
            (6400, 0.15),
            (6410, 0.1),
        ] {
            for wire_time in [false, true] {
                let transfer = transfer(chunks, Loss::PerChunk(loss));
                let timing = RepairTiming { rto_rtts: 1.0, wire_time };
                let exact = StreamedCoding::new(&transfer, code, timing).unwrap();
                let sampler = StreamedSampler::new(&transfer, code, timing).unwrap();
                let samples = Samples::draw(&sampler, 2000, &mut random);
                let what = format!("{kind:?} {chunks} {loss} wire time {wire_time}");
                assert_agrees(&what, &exact, &samples, 0.02);
            }
        }
    }
}

#[test]
fn too_few_samples_do_not_bound_a_quantile() {
    let samples = |count: u32| Samples::from_times((0..count).map(f64::from).collect());
    assert_eq!(samples(1000).quantile_interval_s(0.999, Z).1, f64::INFINITY);
    assert_eq!(samples(100).quantile_interval_s(0.001, Z).0, 0.0);
    let (low, high) = samples(100_000).quantile_interval_s(0.999, Z);
    assert!((99_850.0..99_900.0).contains(&low) && (99_900.0..99_950.0).contains(&high));
}

#[test]
fn the_seed_decides() {
    let sampler =
        RepeatSampler::new(&transfer(5000, Loss::PerChunk(0.01)), RepairTiming::NACK).unwrap();
    let draw = |seed| Samples::draw(&sampler, 100, &mut Random::new(seed));
    assert_eq!(draw(1), draw(1));
    assert_ne!(draw(1), draw(2));
}
