//! The sum over failures against itself written out, the paper's formula, early answers.

use super::{EcConfig, ErasureCoding, StreamedCoding};
use crate::{ChunkLoss, Code, CodeKind, Completion, RepairTiming, SelectiveRepeat, Transfer};

fn transfer(chunks: u64, loss: f64) -> Transfer {
    Transfer::from_chunks(chunks, 8.192e-8, 0.025, ChunkLoss::independent(loss).unwrap()).unwrap()
}

fn mds() -> EcConfig {
    EcConfig::paper(Code::mds(32, 8).unwrap())
}

fn assert_near(actual: f64, expected: f64, tolerance: f64) {
    assert!((actual - expected).abs() <= tolerance * expected.abs(), "{actual} is not {expected}");
}

#[test]
fn one_submessage_either_comes_or_falls_back_whole() {
    for config in [mds(), EcConfig::paper(Code::xor(32, 8).unwrap())] {
        let transfer = transfer(32, 0.1);
        let ec = ErasureCoding::new(&transfer, config).unwrap();
        let repeat = SelectiveRepeat::new(&transfer, RepairTiming::TIMEOUT).unwrap();
        let failure = config.code.failure(transfer.loss());
        assert_near(ec.fallback_probability(), failure, 1e-12);
        let injection_s = 40.0 * transfer.chunk_s();
        let expected = injection_s + (1.0 - failure) * 0.025 + failure * (0.05 + repeat.mean_s());
        assert_near(ec.mean_s(), expected, 1e-12);
        let late = injection_s + 0.05 + repeat.quantile_s(0.9);
        assert_near(
            ec.survival(late),
            failure * (1.0 - repeat.cdf(late - injection_s - 0.05)),
            1e-9,
        );
        assert_near(ec.fallback_timeout_s(), injection_s + 0.025, 1e-12);
    }
}

#[test]
fn a_short_submessage_at_the_end_falls_back_by_itself() {
    // 40 chunks: 32 + 8 data, 8 + 2 parity.
    let transfer = transfer(40, 0.2);
    let ec = ErasureCoding::new(&transfer, mds()).unwrap();
    assert_eq!(ec.parity_chunks(), 10);
    let whole = mds().code.failure(transfer.loss());
    let tail = mds().code.shortened_to(8).failure(transfer.loss());
    assert_near(ec.fallback_probability(), 1.0 - (1.0 - whole) * (1.0 - tail), 1e-12);
    let repeat = |chunks| {
        let timing = RepairTiming::TIMEOUT;
        SelectiveRepeat::new(&transfer.with_chunks(chunks), timing).unwrap().mean_s() + 0.05
    };
    let expected = 50.0 * transfer.chunk_s()
        + (1.0 - whole) * (1.0 - tail) * 0.025
        + whole * (1.0 - tail) * repeat(32)
        + (1.0 - whole) * tail * repeat(8)
        + whole * tail * repeat(40);
    assert_near(ec.mean_s(), expected, 1e-12);
}

#[test]
fn a_quantile_is_the_first_time_that_reaches_its_probability() {
    for (chunks, loss) in [(32, 0.3), (1024, 0.05), (32_768, 0.04), (32_768, 1e-4), (100, 0.1)] {
        for early_ack in [false, true] {
            let config = EcConfig { early_ack, ..mds() };
            let ec = ErasureCoding::new(&transfer(chunks, loss), config).unwrap();
            for probability in [0.01, 0.5, 0.99, 0.999] {
                let time_s = ec.quantile_s(probability);
                assert!(ec.cdf(time_s) >= probability - 1e-12, "{chunks} {loss} {probability}");
                let before = ec.cdf(time_s - 1e-10);
                assert!(before < probability, "{chunks} {loss} {early_ack} {probability}");
            }
        }
    }
}

#[test]
fn the_paper_formula_is_the_mean_where_fallback_is_rare_or_certain() {
    for (loss, tolerance) in [(1e-5, 1e-12), (0.3, 0.02)] {
        let ec = ErasureCoding::new(&transfer(32_768, loss), mds()).unwrap();
        assert_near(ec.mean_paper_formula_s(), ec.mean_s(), tolerance);
    }
}

/// Verdict on 4.2.3, "lower bound": the formula exceeds the mean that it is said to bound, at 10 %
/// loss by 29 % for 512 KiB and by 47 % for 2 MiB.
#[test]
fn section_4_2_3_the_formula_is_no_lower_bound() {
    for (chunks, above) in [(128, 0.294_32), (512, 0.471_0)] {
        let ec = ErasureCoding::new(&transfer(chunks, 0.1), mds()).unwrap();
        assert_near(ec.mean_paper_formula_s() / ec.mean_s() - 1.0, above, 1e-3);
    }
}

#[test]
fn an_early_answer_saves_parity_and_nothing_else() {
    for loss in [0.0, 1e-6, 1e-3, 0.05] {
        let transfer = transfer(32_768, loss);
        let late = ErasureCoding::new(&transfer, mds()).unwrap();
        let early = ErasureCoding::new(&transfer, EcConfig { early_ack: true, ..mds() }).unwrap();
        assert!(early.mean_s() <= late.mean_s() * (1.0 + 1e-12), "{loss}");
        assert!(early.mean_s() >= transfer.ideal_s() * (1.0 - 1e-12), "{loss}");
        assert_eq!(early.fallback_probability(), late.fallback_probability());
        let after = late.quantile_s(0.9999) + 0.1;
        assert_near(early.survival(after), late.survival(after), 1e-12);
    }
    let lossless = ErasureCoding::new(&transfer(64, 0.0), EcConfig { early_ack: true, ..mds() });
    assert_near(lossless.unwrap().mean_s(), transfer(64, 0.0).ideal_s(), 1e-12);
}

#[test]
fn a_message_of_fewer_chunks_than_the_code_is_one_short_submessage() {
    for kind in [CodeKind::Mds, CodeKind::Xor] {
        for chunks in [1, 5, 31] {
            let transfer = transfer(chunks, 0.1);
            let code = Code::new(kind, 32, 8).unwrap();
            let short = code.shortened_to(chunks);
            let (long, own) = (EcConfig::paper(code), EcConfig::paper(short));
            let long = ErasureCoding::new(&transfer, long).unwrap();
            assert_eq!(long, ErasureCoding::new(&transfer, own).unwrap());
            assert_eq!(long.parity_chunks(), u64::from(short.m()));
            let streamed = StreamedCoding::new(&transfer, code, RepairTiming::NACK).unwrap();
            let sent_s = (chunks + u64::from(short.m())) as f64 * transfer.chunk_s();
            assert_near(streamed.quantile_s(0.0), sent_s + transfer.rtt_s(), 1e-12);
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for beta in [-1.0, f64::NAN, f64::INFINITY] {
        let error = ErasureCoding::new(&transfer(32, 0.1), EcConfig { beta, ..mds() }).unwrap_err();
        assert!(error.to_string().starts_with("beta is"), "{error}");
    }
}

#[test]
fn a_distribution_that_is_asked_often_is_the_one_summed_term_by_term() {
    // From failures that are rare to certain ones, rounds longer and shorter than the message.
    for (chunks, chunk_s) in [(65_536, 8.192e-8), (200_000, 1e-6), (40_000, 1e-4)] {
        for loss in [0.03, 0.1, 0.2, 0.4] {
            let loss = ChunkLoss::independent(loss).unwrap();
            let transfer = Transfer::from_chunks(chunks, chunk_s, 0.025, loss).unwrap();
            for code in [Code::mds(32, 8).unwrap(), Code::xor(32, 8).unwrap()] {
                let once = ErasureCoding::new(&transfer, EcConfig::paper(code)).unwrap();
                let often = once.clone();
                often.prepare();
                let (start_s, end_s) = (once.ends_s().1, once.quantile_s(1.0 - 1e-15));
                for step in 0..=400 {
                    let time_s = start_s + (end_s - start_s) * f64::from(step) / 390.0;
                    let (a, b) = (once.survival(time_s), often.survival(time_s));
                    assert!((a - b).abs() <= 1e-9 * a + 1e-300, "{code:?} {time_s}: {a} {b}");
                }
            }
        }
    }
}

#[test]
fn a_submessage_that_hardly_ever_comes_whole_has_a_mean_all_the_same() {
    let loss = ChunkLoss::independent(0.977).unwrap();
    for chunks in [11, 436, 65_536] {
        for rtt_s in [0.0, 0.1] {
            let transfer = Transfer::from_chunks(chunks, 0.03, rtt_s, loss).unwrap();
            for code in [Code::xor(11, 1).unwrap(), Code::mds(11, 2).unwrap()] {
                let timing = RepairTiming { rto_rtts: 0.5, wire_time: false };
                let streamed = StreamedCoding::new(&transfer, code, timing).unwrap();
                // A chunk takes 43 transmissions on average.
                assert!(streamed.mean_s() > 40.0 * rtt_s / 2.0, "{streamed:?}");
                assert!(streamed.quantile_s(0.999) > streamed.mean_s());
            }
        }
    }
}
