//! What an answer costs on one core: one distribution, a whole figure, a plan.
//!
//! Budgets: a distribution of 2^24 chunks in microseconds; figure 9 (17 sizes x 29 losses, mean
//! and 99.9th percentile of SR and EC) in less than a second; a plan in less than 10 ms; a strength of a
//! shim in less than 0.2 ms.
//!
//! `cargo bench -p lacuna-model` prints the median of several runs; with `--test` each runs once.

use lacuna_model::monte_carlo::{RepeatSampler, Sample};
use lacuna_model::plan::{ConnectionFraming, LossKnown, Objective, Question, connection, plan};
use lacuna_model::{
    ChunkLoss, Code, Completion, ConnectionPath, EcConfig, ErasureCoding, Framing, GoBackN, Loss,
    Path, Random, RepairTiming, SelectiveRepeat, Shim, Transfer,
};
use std::hint::black_box;
use std::time::Instant;

fn measure(name: &str, runs: usize, mut what: impl FnMut()) {
    let runs = if std::env::args().any(|argument| argument == "--test") { 1 } else { runs };
    let mut times_us: Vec<f64> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            what();
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times_us.sort_by(f64::total_cmp);
    println!("{name:<48} {:>12.1} us", times_us[runs / 2]);
}

fn transfer(chunks: u64, loss: f64) -> Transfer {
    let loss = ChunkLoss::independent(loss).expect("a probability");
    Transfer::from_chunks(chunks, 8.192e-8, 0.025, loss).expect("a message")
}

fn both(transfer: &Transfer) -> f64 {
    let sr = SelectiveRepeat::new(transfer, RepairTiming::TIMEOUT).expect("timing");
    let code = Code::mds(32, 8).expect("a code").shortened_to(transfer.chunks());
    let ec = ErasureCoding::new(transfer, EcConfig::paper(code)).expect("a code that fits");
    sr.mean_s() + sr.quantile_s(0.999) + ec.mean_s() + ec.quantile_s(0.999)
}

/// The plan that takes longest, over all sizes from 128 KiB to 8 GiB and losses up to 5e-2: of each
/// the least of three times, because the machine may be doing something else.
fn worst_plan(name: &str, objective: Objective, known: impl Fn(f64) -> (LossKnown, Option<f64>)) {
    let runs = if std::env::args().any(|argument| argument == "--test") { 1 } else { 3 };
    let mut worst = (0.0, 0u64, 0.0);
    for exponent in 17..=33 {
        for loss in [1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 2e-2, 5e-2] {
            let (loss_known, mean_burst_packets) = known(loss);
            let question = Question {
                rate_bits_per_s: 400e9,
                rtt_s: 0.025,
                loss: loss_known,
                mean_burst_packets,
                sizes_bytes: vec![1 << exponent],
                objective,
                packet_bytes: 4096,
                overhead_bytes: 64,
                auto: None,
            };
            let time_us = (0..runs)
                .map(|_| {
                    let start = Instant::now();
                    black_box(plan(black_box(&question)).expect("a plan"));
                    start.elapsed().as_secs_f64() * 1e6
                })
                .fold(f64::INFINITY, f64::min);
            if time_us > worst.0 {
                worst = (time_us, 1 << exponent, loss);
            }
        }
    }
    let (time_us, size, loss) = worst;
    println!(
        "{:<48} {time_us:>12.1} us ({} KiB, {loss:e})",
        format!("longest plan, {name}"),
        size >> 10
    );
}

fn main() {
    for loss in [1e-5, 1e-3, 1e-1] {
        let long = transfer(1 << 24, loss);
        measure(&format!("SR mean, 2^24 chunks, {loss:e}"), 1001, || {
            let sr = SelectiveRepeat::new(black_box(&long), RepairTiming::TIMEOUT);
            black_box(sr.expect("timing").mean_s());
        });
        measure(&format!("SR p99.9, 2^24 chunks, {loss:e}"), 1001, || {
            let sr = SelectiveRepeat::new(black_box(&long), RepairTiming::TIMEOUT);
            black_box(sr.expect("timing").quantile_s(0.999));
        });
    }
    measure("figure 9: 17 x 29 cells, mean and p99.9, SR and EC", 5, || {
        for exponent in 17..=33 {
            for step in 4..=32 {
                let path = Path {
                    rate_bits_per_s: 400e9,
                    rtt_s: 0.025,
                    loss: Loss::PerChunk(10f64.powf(-f64::from(step) / 4.0)),
                };
                let transfer = Transfer::new(&path, &Framing::PAPER, 1 << exponent);
                black_box(both(&transfer.expect("a message")));
            }
        }
    });
    for (objective, by) in [(Objective::P999, "p99.9"), (Objective::Mean, "mean")] {
        let plan = |name, known: fn(f64) -> (LossKnown, Option<f64>)| {
            worst_plan(&format!("{name}, by {by}"), objective, known);
        };
        plan("one loss", |loss| (LossKnown::At(loss), None));
        plan("bursts of 4", |loss| (LossKnown::At(loss), Some(4.0)));
        plan("a loss within a decade", |loss| (LossKnown::Between(loss / 10.0, loss), None));
        plan("both", |loss| (LossKnown::Between(loss / 10.0, loss), Some(4.0)));
    }
    for (name, mean_burst_packets) in [("one loss", None), ("bursts of 4", Some(4.0))] {
        let question = Question {
            rate_bits_per_s: 400e9,
            rtt_s: 0.025,
            loss: LossKnown::At(1e-3),
            mean_burst_packets,
            sizes_bytes: vec![128 << 20],
            objective: Objective::P999,
            packet_bytes: 4096,
            overhead_bytes: 64,
            auto: None,
        };
        let framing = ConnectionFraming { packet_bytes: 4096, overhead_bytes: 44 };
        measure(&format!("plan of a connection, {name}"), 5, || {
            black_box(connection(black_box(&question), framing).expect("a plan"));
        });
    }
    for (name, loss) in [
        ("independent", Loss::PerPacket(1e-3)),
        ("bursts of 8", Loss::bursts(1e-3, 8.0).expect("such a chain")),
    ] {
        let path = ConnectionPath::new(8.6e-6, 0.04, loss);
        for code in [
            Code::xor(32, 1),
            Code::xor(64, 4),
            Code::xor(64, 8),
            Code::xor(256, 32),
            Code::mds(64, 8),
            Code::mds(223, 32),
        ] {
            let code = code.expect("a code");
            measure(&format!("goodput with a shim, {name}, {code:?}"), 101, || {
                let shim = Some(Shim::new(black_box(code)));
                let connection = GoBackN::new(&path, shim).expect("a connection");
                black_box(connection.goodput(1024));
            });
        }
    }
    let sampler =
        RepeatSampler::new(&transfer(32_768, 1e-3), RepairTiming::TIMEOUT).expect("timing");
    let mut random = Random::new(1);
    measure("one million draws, 32768 chunks, 1e-3", 5, || {
        for _ in 0..1_000_000 {
            black_box(sampler.sample_s(&mut random));
        }
    });
}
