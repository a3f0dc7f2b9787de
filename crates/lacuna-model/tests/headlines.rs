//! What the paper says of its own model (SDR-RDMA sections 2 and 5), and what comes out.
//!
//! The paper does not state the chunk of its figures. Three hypotheses, all at 400 Gbit/s, 25 ms,
//! MDS (32, 8), beta = 1, fallback by timeouts of 3 RTT:
//!
//! - A: chunks of 4 KiB, the drop rate is theirs;
//! - B: chunks of 64 KiB, the drop rate is theirs;
//! - C: chunks of 64 KiB, the drop rate is that of their 16 packets.
//!
//! Each test names the section and says whether its headline holds. No hypothesis gives them all.

use lacuna_model::collective::ring_allreduce;
use lacuna_model::monte_carlo::{CodedSampler, RepeatSampler};
use lacuna_model::{
    Code, Completion, EcConfig, ErasureCoding, Framing, Loss, Path, Random, RepairTiming,
    SelectiveRepeat, Transfer,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const RTT_S: f64 = 0.025;

#[derive(Clone, Copy, PartialEq)]
enum Hypothesis {
    A,
    B,
    C,
}
use Hypothesis::{A, B, C};

fn transfer_at(hypothesis: Hypothesis, size: u64, loss: f64, rtt_s: f64) -> Transfer {
    let (chunk_bytes, loss) = match hypothesis {
        A => (4 * KIB, Loss::PerChunk(loss)),
        B => (64 * KIB, Loss::PerChunk(loss)),
        C => (64 * KIB, Loss::PerPacket(loss)),
    };
    let path = Path { rate_bits_per_s: 400e9, rtt_s, loss };
    let framing = Framing { chunk_bytes, packet_bytes: 4 * KIB, overhead_bytes: 0 };
    Transfer::new(&path, &framing, size).unwrap()
}

fn transfer(hypothesis: Hypothesis, size: u64, loss: f64) -> Transfer {
    transfer_at(hypothesis, size, loss, RTT_S)
}

fn sr_of(transfer: &Transfer, rto_rtts: f64) -> SelectiveRepeat {
    SelectiveRepeat::new(transfer, RepairTiming { rto_rtts, wire_time: false }).unwrap()
}

fn ec_of(transfer: &Transfer, code: Code) -> ErasureCoding {
    let code = code.shortened_to(transfer.chunks());
    ErasureCoding::new(transfer, EcConfig::paper(code)).unwrap()
}

fn mds() -> Code {
    Code::mds(32, 8).unwrap()
}

fn xor() -> Code {
    Code::xor(32, 8).unwrap()
}

/// Completion time of SR with timeouts over that of EC, mean and 99.9th percentile.
fn speedup(hypothesis: Hypothesis, size: u64, loss: f64) -> (f64, f64) {
    let transfer = transfer(hypothesis, size, loss);
    let (sr, ec) = (sr_of(&transfer, 3.0), ec_of(&transfer, mds()));
    (sr.mean_s() / ec.mean_s(), sr.quantile_s(0.999) / ec.quantile_s(0.999))
}

fn sizes() -> impl Iterator<Item = u64> + Clone {
    (17..=33).map(|exponent| 1 << exponent)
}

/// `10^(-low), ...` down to `10^(-high)` in steps of `10^(1/per_decade)`.
fn losses(low: i32, high: i32, per_decade: i32) -> impl Iterator<Item = f64> + Clone {
    (low * per_decade..=high * per_decade)
        .map(move |step| 10f64.powf(f64::from(-step) / f64::from(per_decade)))
}

/// The largest of the values, with its size and loss.
fn largest(
    grid: impl Iterator<Item = (u64, f64)>,
    of: impl Fn(u64, f64) -> f64,
) -> (f64, u64, f64) {
    grid.map(|(size, loss)| (of(size, loss), size, loss))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap()
}

fn grid(
    sizes: impl Iterator<Item = u64>,
    losses: impl Iterator<Item = f64> + Clone,
) -> impl Iterator<Item = (u64, f64)> {
    sizes.flat_map(move |size| losses.clone().map(move |loss| (size, loss)))
}

fn assert_near(actual: f64, expected: f64, tolerance: f64) {
    assert!((actual / expected - 1.0).abs() <= tolerance, "{actual} is not {expected}");
}

/// The drop rate at which `of` reaches `target`, between 1e-6 and 0.3.
fn loss_where(target: f64, of: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (1e-6f64, 0.3f64);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if of(middle) < target { low = middle } else { high = middle }
    }
    high
}

/// 5.2.1, "slowdowns of up to 6.5x on average": holds, within 5 % under A and, on a finer grid of
/// drop rates, under B.
#[test]
fn section_5_2_1_mean_slowdown_of_6_5() {
    let mean = |hypothesis| move |size, loss| speedup(hypothesis, size, loss).0;
    let (most, size, loss) = largest(grid(sizes(), losses(1, 8, 1)), mean(A));
    assert_near(most, 6.23, 2e-3);
    assert_eq!(size, 128 * MIB);
    assert_near(loss, 1e-2, 1e-9);
    assert_near(largest(grid(sizes(), losses(1, 8, 1)), mean(B)).0, 4.83, 2e-3);
    assert_near(largest(grid(sizes(), losses(1, 8, 2)), mean(B)).0, 6.06, 2e-3);
    assert_near(largest(grid(sizes(), losses(1, 8, 4)), mean(B)).0, 6.68, 2e-3);
    assert_near(largest(grid(sizes(), losses(1, 8, 2)), mean(C)).0, 6.63, 2e-3);
}

/// 5.2.1, "12.2x at the 99.9th percentile": holds under B on half decades and under A near 2e-2.
/// It needs a drop rate above 1e-2, beyond the range that the sentence speaks of.
#[test]
fn section_5_2_1_tail_slowdown_of_12_2() {
    let tail = |hypothesis| move |size, loss| speedup(hypothesis, size, loss).1;
    let (most, size, loss) = largest(grid(sizes(), losses(1, 8, 2)), tail(B));
    assert_near(most, 12.18, 1e-3);
    assert_eq!(size, 64 * MIB);
    assert_near(loss, 10f64.powf(-1.5), 1e-9);
    assert_near(speedup(A, 64 * MIB, 2e-2).1, 12.21, 1e-3);
    assert_near(speedup(A, 32 * MIB, 2e-2).1, 12.58, 1e-3);
    for (hypothesis, most) in [(A, 9.96), (B, 9.37)] {
        let up_to_1e_2 = grid(sizes(), losses(2, 8, 4));
        assert_near(largest(up_to_1e_2, tail(hypothesis)).0, most, 2e-3);
    }
}

/// Section 1, "5x and 12x": a reading that fits is B with an RTO of 4 RTT, at 1e-2.
#[test]
fn section_1_five_and_twelve_with_an_rto_of_4_rtt() {
    let at = |size| {
        let transfer = transfer(B, size, 1e-2);
        let code = mds().shortened_to(transfer.chunks());
        let fallback = RepairTiming { rto_rtts: 4.0, wire_time: false };
        let config = EcConfig { fallback, ..EcConfig::paper(code) };
        (sr_of(&transfer, 4.0), ErasureCoding::new(&transfer, config).unwrap())
    };
    let (sr, ec) = at(256 * MIB);
    assert_near(sr.mean_s() / ec.mean_s(), 5.15, 2e-3);
    let (sr, ec) = at(64 * MIB);
    assert_near(sr.quantile_s(0.999) / ec.quantile_s(0.999), 12.18, 1e-3);
}

/// 5.2.1, "NACK improves SR by up to 4x": does not hold with the stated 3 RTT against 1 RTT, whose
/// ratio is below 3 for every size and number of rounds; with 4 RTT against 1 it comes near.
#[test]
fn section_5_2_1_nack_improvement_is_below_3() {
    let ratio = |hypothesis, rto_rtts, of: fn(&SelectiveRepeat) -> f64| {
        let of_cell = move |size, loss| {
            let transfer = transfer(hypothesis, size, loss);
            of(&sr_of(&transfer, rto_rtts)) / of(&sr_of(&transfer, 1.0))
        };
        largest(grid(sizes(), losses(1, 8, 4)), of_cell).0
    };
    let mean: fn(&SelectiveRepeat) -> f64 = SelectiveRepeat::mean_s;
    let tail: fn(&SelectiveRepeat) -> f64 = |sr| sr.quantile_s(0.999);
    for (hypothesis, of, most) in
        [(A, mean, 2.60), (A, tail, 2.76), (B, mean, 2.49), (B, tail, 2.71)]
    {
        assert_near(ratio(hypothesis, 3.0, of), most, 2e-3);
        let with_4 = ratio(hypothesis, 4.0, of);
        assert!((3.2..4.0).contains(&with_4), "{with_4}");
    }
}

/// 5.2.1, "XOR falls back to SR at about 1e-3 for 128 MiB": holds, A closest.
#[test]
fn section_5_2_1_xor_falls_back_near_1e_3() {
    let fallback = |hypothesis, loss| {
        ec_of(&transfer(hypothesis, 128 * MIB, loss), xor()).fallback_probability()
    };
    for (hypothesis, at_1e_3, ten_percent, one_percent) in [
        (A, 0.0785, 1.135e-3, 3.504e-4),
        (B, 5.097e-3, 4.557e-3, 1.403e-3),
        (C, 0.714, 2.854e-4, 8.775e-5),
    ] {
        assert_near(fallback(hypothesis, 1e-3), at_1e_3, 1e-3);
        assert_near(loss_where(0.1, |loss| fallback(hypothesis, loss)), ten_percent, 1e-3);
        assert_near(loss_where(0.01, |loss| fallback(hypothesis, loss)), one_percent, 1e-3);
    }
    for hypothesis in [A, B] {
        let ec = ec_of(&transfer(hypothesis, 128 * MIB, 1e-3), xor());
        assert!(ec.quantile_s(0.999) > 2.0 * ec.quantile_s(0.5), "p99.9 has fallen back");
    }
}

/// 5.2.1, "MDS remains robust beyond 1e-2": holds under A and B. It refutes C.
#[test]
fn section_5_2_1_mds_is_robust_beyond_1e_2() {
    let fallback = |hypothesis, loss| {
        ec_of(&transfer(hypothesis, 128 * MIB, loss), mds()).fallback_probability()
    };
    assert_near(loss_where(0.01, |loss| fallback(A, loss)), 3.589e-2, 1e-3);
    assert_near(loss_where(0.01, |loss| fallback(B, loss)), 5.129e-2, 1e-3);
    assert_near(fallback(C, 1e-2), 0.9997, 2e-4);
}

/// 5.2.1, "EC outperforms SR for 128 KiB to 1 GiB, 1e-6 to 1e-2": holds under A, in the mean
/// everywhere and at p99.9 to 1 %; not under B, which fails at 1e-6.
#[test]
fn section_5_2_1_ec_wins_from_128_kib_to_1_gib() {
    let least = |hypothesis, of: fn((f64, f64)) -> f64| {
        grid((17..=30).map(|e| 1 << e), losses(2, 6, 4))
            .map(|(size, loss)| of(speedup(hypothesis, size, loss)))
            .fold(f64::INFINITY, f64::min)
    };
    assert!(least(A, |cell| cell.0) >= 1.0);
    assert!(least(A, |cell| cell.1) >= 0.99);
    assert_near(least(B, |cell| cell.0), 0.917, 1e-3);
    assert_near(speedup(B, GIB, 1e-6).0, 0.917, 1e-3);
    let from_1e_4 = grid((17..=30).map(|e| 1 << e), losses(2, 4, 4));
    assert!(from_1e_4.map(|(size, loss)| speedup(B, size, loss).0).all(|cell| cell > 0.999));
}

/// 5.2.2, "SR performs best below 1e-6 and above 1 GiB": holds for the mean if "and" means both.
/// As a statement on every size above 1 GiB it does not: at 1e-5 EC wins up to 12 GiB under A.
#[test]
fn section_5_2_2_sr_is_best_for_rare_drops_and_long_messages() {
    for hypothesis in [A, B] {
        for (size, loss) in grid([4 * GIB, 8 * GIB].into_iter(), losses(7, 8, 4)) {
            assert!(speedup(hypothesis, size, loss).0 < 0.93);
        }
    }
    let crossover_gib = |hypothesis, loss| {
        (0..4000)
            .map(|step| 2f64.powf(28.0 + f64::from(step) / 400.0))
            .find(|size| speedup(hypothesis, *size as u64, loss).0 < 1.0)
            .unwrap()
            / GIB as f64
    };
    assert_near(crossover_gib(A, 1e-5), 12.4, 5e-3);
    assert_near(crossover_gib(B, 1e-5), 3.33, 5e-3);
    assert_near(crossover_gib(A, 1e-4), 13.9, 5e-3);
    assert_near(crossover_gib(B, 1e-4), 11.5, 5e-3);
}

/// Time over the lossless time.
fn slowdown(hypothesis: Hypothesis, size: u64, loss: f64) -> f64 {
    let transfer = transfer(hypothesis, size, loss);
    sr_of(&transfer, 3.0).mean_s() / transfer.ideal_s()
}

/// Figure 3a, "SR reaches peak slowdown where one packet is likely to be dropped": holds under A,
/// where the peak is at 1.6 times 1/P chunks; under B it is small and at a third of them.
#[test]
fn figure_3a_peak_where_a_packet_is_likely_dropped() {
    let peak = |hypothesis| {
        let sizes = (0..400).map(|step| 2f64.powf(25.0 + f64::from(step) / 40.0) as u64);
        largest(grid(sizes, std::iter::once(1e-5)), |size, loss| slowdown(hypothesis, size, loss))
    };
    let (most, size, _) = peak(A);
    assert_near(most, 2.47, 2e-3);
    assert!((550 * MIB..700 * MIB).contains(&size), "{size}: the peak is flat");
    assert_near(peak(B).0, 1.23, 3e-3);
}

/// Figure 3c, "3x to 10x above 1e-4 at 128 MiB": A or C for the lower end, B for the upper one.
#[test]
fn figure_3c_three_to_ten_times() {
    for (hypothesis, loss, expected) in [
        (A, 1e-4, 3.58),
        (A, 1e-2, 6.38),
        (A, 1e-1, 12.6),
        (B, 1e-4, 1.49),
        (B, 1e-1, 9.31),
        (C, 1e-4, 3.60),
        (C, 1e-2, 11.2),
    ] {
        assert_near(slowdown(hypothesis, 128 * MIB, loss), expected, 5e-3);
    }
}

/// Figure 3b and 5.2.2, 8 GiB turns from "large" to "small" with distance: the trend holds. "SR is
/// best at 3750 km" holds under B only; under A the crossover has passed by then.
#[test]
fn figure_3b_eight_gib_becomes_small_with_distance() {
    let speedup_at = |hypothesis, km: f64| {
        let transfer = transfer_at(hypothesis, 8 * GIB, 1e-5, km / 3750.0 * RTT_S);
        sr_of(&transfer, 3.0).mean_s() / ec_of(&transfer, mds()).mean_s()
    };
    for (hypothesis, crossover_km, at_3750_km) in [(A, 2557.0, 1.0995), (B, 6129.0, 0.8955)] {
        assert!(speedup_at(hypothesis, crossover_km - 2.0) < 1.0);
        assert!(speedup_at(hypothesis, crossover_km + 2.0) > 1.0);
        assert_near(speedup_at(hypothesis, 3750.0), at_3750_km, 1e-3);
    }
}

/// 2.1, "above 32 GiB injection dominates": holds.
#[test]
fn section_2_1_injection_dominates_at_32_gib() {
    assert_near(slowdown(A, 32 * GIB, 1e-5), 1.094, 1e-3);
    assert_near(slowdown(B, 32 * GIB, 1e-5), 1.025, 1e-3);
}

/// 5.3, "EC's speedup grows with the drop rate from 3x to more than 6x" (p99.9 of ring allreduce):
/// holds under A from 1e-5 to 1e-2; under B 6x is not reached with 4 sites and 128 MiB.
#[test]
fn section_5_3_allreduce_speedup_grows_to_more_than_6() {
    let tail_speedup = |hypothesis, loss| {
        let transfer = transfer(hypothesis, 128 * MIB / 4, loss);
        let sr = RepeatSampler::new(&transfer, RepairTiming::TIMEOUT).unwrap();
        let sr = ring_allreduce(&sr, 4, 20_000, &mut Random::new(1)).unwrap();
        let ec = ec_of(&transfer, mds());
        assert!(ec.fallback_probability() < 1e-5, "every stage takes the same");
        sr.quantile_s(0.999) / (6.0 * ec.quantile_s(0.0))
    };
    // 20,000 trials see p99.9 to about one round in ten.
    for (loss, expected) in [(1e-5, 3.2), (1e-4, 4.1), (1e-3, 4.9), (1e-2, 7.8)] {
        assert_near(tail_speedup(A, loss), expected, 0.12);
    }
    for (loss, expected) in [(1e-5, 2.0), (1e-4, 2.9), (1e-3, 4.4), (1e-2, 5.8)] {
        assert_near(tail_speedup(B, loss), expected, 0.12);
    }
}

/// 5.2.1, "no more than 20 % bandwidth inflation" for (32, 8): true as a share of the wire. The
/// parity is 25 % of the data, and 8 GiB take 22 % longer than without.
#[test]
fn section_5_2_1_twenty_percent_is_a_share_of_the_wire() {
    let transfer = transfer(A, 8 * GIB, 1e-5);
    let ec = ec_of(&transfer, mds());
    let (data, parity) = (transfer.chunks() as f64, ec.parity_chunks() as f64);
    assert_near(parity / (data + parity), 0.2, 1e-12);
    assert_near(parity / data, 0.25, 1e-12);
    assert_near(ec.mean_s() / transfer.ideal_s(), 1.22, 2e-3);
}

/// 5.1.1, "the mean of 1000 samples within 5 %": holds for SR (in the tests of the simulation). Of
/// EC it holds against the exact mean; against the formula of 4.2.3 it does not where fallback is
/// neither rare nor certain.
#[test]
fn section_5_1_1_a_thousand_samples_of_ec_against_mean_and_formula() {
    use lacuna_model::monte_carlo::Samples;
    let mut random = Random::new(17);
    let mut worst_against_formula: f64 = 0.0;
    for exponent in [17, 21, 25] {
        for loss in [1e-3, 1e-2, 1e-1] {
            let transfer = transfer(A, 1 << exponent, loss);
            let code = mds().shortened_to(transfer.chunks());
            let config = EcConfig::paper(code);
            let exact = ErasureCoding::new(&transfer, config).unwrap();
            let sampler = CodedSampler::new(&transfer, config).unwrap();
            let mean_s = Samples::draw(&sampler, 1000, &mut random).mean_s();
            assert_near(mean_s, exact.mean_s(), 0.06);
            let off = (exact.mean_paper_formula_s() / mean_s - 1.0).abs();
            worst_against_formula = worst_against_formula.max(off);
        }
    }
    assert!(worst_against_formula > 0.25, "{worst_against_formula}");
}

/// 5.2.2, "8 GiB, about 8x smaller than BDP": it is 6.9 times larger.
#[test]
fn section_5_2_2_eight_gib_is_larger_than_the_bandwidth_delay_product() {
    let product_bytes = 400e9 * RTT_S / 8.0;
    assert_near(8.0 * GIB as f64 / product_bytes, 6.87, 1e-3);
}

/// 5.2.2, "above 0.1 % EC is ineffective": contradicts 5.2.1's "beyond 1e-2"; 10 % is meant.
#[test]
fn section_5_2_2_ec_is_ineffective_above_ten_percent_not_a_thousandth() {
    let fallback = |loss| ec_of(&transfer(A, 128 * MIB, loss), mds()).fallback_probability();
    assert!(fallback(1e-3) < 1e-9);
    assert!(fallback(0.1) > 0.999);
}
