//! What must hold of every distribution, whatever the numbers.

use lacuna_model::{
    BestEffort, Code, CodeKind, Completion, EcConfig, ErasureCoding, Framing, Loss, Path,
    RepairTiming, SelectiveRepeat, StreamedCoding, Transfer,
};
use proptest::prelude::*;

/// From a byte to 16 GiB, from 1 Mbit/s to 1 Tbit/s, from no distance to two seconds.
/// With whether losses come in bursts.
fn transfers() -> impl Strategy<Value = (Transfer, bool)> {
    let loss = prop_oneof![
        Just(Loss::PerChunk(0.0)),
        (-9.0..-0.01f64).prop_map(|e| Loss::PerChunk(10f64.powf(e))),
        (-9.0..-1.0f64).prop_map(|e| Loss::PerPacket(10f64.powf(e))),
        ((-9.0..-1.0f64), (0.0..0.99f64))
            .prop_map(|(e, correlation)| Loss::Correlated { loss: 10f64.powf(e), correlation }),
        ((-6.0..-1.0f64), (0.1..8.0f64)).prop_map(|(e, burst)| Loss::bursts(
            10f64.powf(e),
            burst.exp()
        )
        .expect("possible bursts")),
    ];
    (loss, 0.0..34.0f64, 6.0..12.0f64, 0.0..2.0f64, 0u32..3, prop_oneof![Just(0), Just(64)])
        .prop_map(|(loss, size, rate, rtt_s, chunk, overhead_bytes)| {
            let path = Path { rate_bits_per_s: 10f64.powf(rate), rtt_s, loss };
            let framing =
                Framing { chunk_bytes: 4096 << (2 * chunk), packet_bytes: 4096, overhead_bytes };
            let transfer = Transfer::new(&path, &framing, size.exp2() as u64).expect("a message");
            (transfer, matches!(loss, Loss::Bursts(_)))
        })
}

fn holds(model: &impl Completion, earliest_s: f64) -> Result<(), TestCaseError> {
    let mean_s = model.mean_s();
    prop_assert!(mean_s.is_finite() && mean_s >= earliest_s * (1.0 - 1e-9), "{}", mean_s);
    let (mut before_s, mut before) = (0.0, -1e-9);
    for probability in [0.0, 1e-6, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0 - 1e-9] {
        let time_s = model.quantile_s(probability);
        prop_assert!(time_s >= before_s * (1.0 - 1e-11), "{} {}", probability, time_s);
        let reached = model.cdf(time_s);
        prop_assert!(reached >= probability - 1e-9, "{}: {} {}", time_s, reached, probability);
        prop_assert!((before - 1e-9..=1.0 + 1e-12).contains(&reached));
        prop_assert!((reached + model.survival(time_s) - 1.0).abs() < 1e-9);
        (before_s, before) = (time_s, reached);
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_distribution_rises_from_the_ideal_to_certainty(
        (transfer, in_bursts) in transfers(),
        rto_rtts in 0.5..5.0f64,
        wire_time in any::<bool>(),
        (kind, k, m) in (any::<bool>(), 1u32..70, 1u32..20),
        beta in 0.0..3.0f64,
        early_ack in any::<bool>(),
    ) {
        let timing = RepairTiming { rto_rtts, wire_time };
        holds(&SelectiveRepeat::new(&transfer, timing).expect("timing"), transfer.ideal_s())?;
        let kind = if kind { CodeKind::Mds } else { CodeKind::Xor };
        let code = Code::new(kind, k, m.min(k)).expect("a code").shortened_to(transfer.chunks());
        let config = EcConfig { code, beta, fallback: timing, early_ack };
        let ec = ErasureCoding::new(&transfer, config).expect("a code that fits");
        holds(&ec, transfer.ideal_s())?;
        prop_assert!((0.0..=1.0).contains(&ec.fallback_probability()));
        prop_assert!(ec.mean_paper_formula_s().is_finite());
        let streamed = StreamedCoding::new(&transfer, code, timing).expect("a code that fits");
        holds(&streamed, transfer.ideal_s())?;
        prop_assert!((0.0..=1.0).contains(&streamed.fallback_probability()));
        if !in_bursts {
            let (streamed, later) = (streamed.fallback_probability(), ec.fallback_probability());
            prop_assert!((streamed - later).abs() < 1e-12);
        }
    }

    #[test]
    fn what_is_missing_at_a_deadline_is_a_fraction((transfer, _) in transfers(), factor in 0.0..2.0f64) {
        let end = BestEffort::new(&transfer, transfer.ideal_s() * factor).expect("a deadline");
        let (mean, tail) = (end.missing_mean(), end.missing_quantile(0.999));
        prop_assert!((0.0..=1.0).contains(&mean) && (0.0..=1.0 + 1e-9).contains(&tail));
        prop_assert!(end.mean_s() <= transfer.ideal_s() * factor.max(1.0));
    }
}
