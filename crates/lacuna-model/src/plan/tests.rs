//! Plans that everybody can check.

use super::*;
use crate::{Code, TailParity, TailQuestion};

const MIB: u64 = 1 << 20;

fn question() -> Question {
    Question {
        rate_bits_per_s: 400e9,
        rtt_s: 0.025,
        loss: LossKnown::At(1e-3),
        mean_burst_packets: None,
        sizes_bytes: vec![128 * MIB],
        objective: Objective::P999,
        packet_bytes: 4096,
        overhead_bytes: 64,
        auto: None,
    }
}

#[test]
fn a_long_lossy_path_gets_a_code_and_a_sentence_that_says_why() {
    let plan = plan(&question()).unwrap();
    assert!(plan.choice().candidate.scheme.is_coded(), "{:?}", plan.choice());
    assert!(plan.matters);
    assert!(plan.other_family_worse > 1.0, "{}", plan.other_family_worse);
    assert_eq!(plan.window_bytes, 1_250_000_000);
    assert!(plan.reason.contains("25.0 ms"), "{}", plan.reason);
    assert!(!plan.reason.contains('\n'));
    let times: Vec<f64> = plan.candidates.iter().map(|expected| expected.p999_s).collect();
    assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "best first");
    assert!(times[0] >= plan.ideal_s);
}

#[test]
fn a_message_much_longer_than_the_path_is_repeated() {
    let sizes_bytes = vec![64 << 30];
    let plan = plan(&Question { sizes_bytes, loss: LossKnown::At(1e-6), ..question() }).unwrap();
    assert_eq!(plan.choice().candidate.scheme, Scheme::Repeat { rto_rtts: 1.0 });
}

#[test]
fn without_loss_it_does_not_matter() {
    let plan = plan(&Question { loss: LossKnown::At(0.0), ..question() }).unwrap();
    assert!(!plan.matters);
    assert_eq!(plan.choice().candidate.scheme.to_string(), "sr");
    assert!(plan.reason.contains("without loss"), "{}", plan.reason);
    assert!((plan.choice().mean_s / plan.ideal_s - 1.0).abs() < 1e-9);
}

#[test]
fn a_short_path_makes_the_choice_not_matter() {
    let sizes_bytes = vec![1 << 30];
    let plan = plan(&Question { sizes_bytes, rtt_s: 1e-5, ..question() }).unwrap();
    assert!(!plan.matters, "{}", plan.other_family_worse);
    assert!(!plan.choice().candidate.scheme.is_coded());
}

#[test]
fn the_choice_is_another_one_beyond_a_flip() {
    for loss in [1e-3, 1e-5, 1e-7] {
        let question = Question { loss: LossKnown::At(loss), ..question() };
        let here = plan(&question).unwrap();
        let coded = here.choice().candidate.scheme.is_coded();
        assert!(!here.flips.is_empty(), "{loss}");
        for flip in &here.flips {
            assert_eq!(flip.to_coding, !coded, "{loss} {flip:?}");
            let from = flip.axis.of(&question);
            let beyond = if flip.value > from { flip.value * 1.1 } else { flip.value / 1.1 };
            let there = plan(&flip.axis.at(&question, beyond)).unwrap();
            assert_eq!(there.choice().candidate.scheme.is_coded(), flip.to_coding, "{flip:?}");
        }
    }
}

#[test]
fn the_fallback_of_a_certain_failure_counts_its_own_wire_time() {
    // A message far longer than a round, at a loss that the code does not stand.
    let question = Question {
        rate_bits_per_s: 1e9,
        rtt_s: 0.005,
        loss: LossKnown::At(0.3),
        sizes_bytes: vec![64 * MIB],
        ..question()
    };
    let plan = plan(&question).unwrap();
    for expected in &plan.candidates {
        let Scheme::Code(code) = expected.candidate.scheme else { continue };
        let share = f64::from(code.m()) / f64::from(code.k() + code.m());
        assert!((expected.parity_share / share - 1.0).abs() < 1e-9, "{expected:?}");
    }
}

#[test]
fn a_long_message_whose_submessages_fail_now_and_then_pays_for_the_last_ones_only() {
    // Nine of ten messages have a submessage that falls back, one in four near enough to the end.
    let question = Question {
        rate_bits_per_s: 1e9,
        loss: LossKnown::At(0.01),
        sizes_bytes: vec![32 * MIB],
        ..question()
    };
    let plan = plan(&question).unwrap();
    let xor = Candidate { scheme: Scheme::Code(Code::xor(32, 8).unwrap()), chunk_packets: 1 };
    let expected = plan.candidates.iter().find(|e| e.candidate == xor).unwrap();
    assert!(expected.fallback.unwrap() > 0.8);
    assert!(expected.mean_s - expected.p50_s < question.rtt_s / 4.0, "{expected:?}");
}

#[test]
fn every_candidate_has_all_numbers() {
    for mean_burst_packets in [None, Some(8.0)] {
        let plan = plan(&Question { mean_burst_packets, ..question() }).unwrap();
        assert_eq!(plan.candidates.len(), 30);
        for expected in &plan.candidates {
            let times = [expected.p50_s, expected.p99_s, expected.p999_s];
            assert!(times.windows(2).all(|pair| pair[0] <= pair[1]), "{expected:?}");
            assert!(expected.mean_s >= plan.ideal_s * (1.0 - 1e-9));
            assert_eq!(expected.fallback.is_some(), expected.candidate.scheme.is_coded());
            assert_eq!(expected.parity_share > 0.0, expected.candidate.scheme.is_coded());
            assert!(expected.timeout_s >= 0.025);
        }
    }
}

#[test]
fn bursts_and_unknown_losses_change_the_numbers() {
    let best = |question: &Question| plan(question).unwrap().choice().p999_s;
    let known = best(&question());
    let unknown = best(&Question { loss: LossKnown::Between(1e-5, 1e-1), ..question() });
    assert!(unknown > known);
    let bursts = best(&Question { mean_burst_packets: Some(64.0), ..question() });
    assert!(bursts > known, "a code of 32 + 8 does not survive bursts of 64");
}

#[test]
fn a_code_at_the_edge_of_its_strength_is_not_recommended() {
    // At 1e-4, XOR (32, 8) falls back with 8e-4: within p99.9, but not at a little more loss.
    let question = Question { loss: LossKnown::At(1e-4), ..question() };
    let plan = plan(&question).unwrap();
    let at_the_edge = plan
        .candidates
        .iter()
        .find(|e| e.candidate.scheme.to_string() == "ec:xor:32:8" && e.chunk_bytes == 4096)
        .unwrap();
    assert!(at_the_edge.p999_s < plan.candidates[0].p999_s * (1.0 + TIE));
    let choice = plan.choice().candidate;
    let more = Question { loss: LossKnown::At(2e-4), ..question };
    let ratio = choice.expected(&more).unwrap().p999_s / plan.choice().p999_s;
    assert!(ratio < 1.05, "{choice:?}: {ratio}");
}

#[test]
fn chunks_that_hardly_ever_come_through_are_left_out() {
    let candidates = |loss| {
        let plan = plan(&Question { loss, ..question() })?;
        Ok::<_, ModelError>(plan.candidates.iter().map(|e| e.candidate.chunk_packets).max())
    };
    assert_eq!(candidates(LossKnown::At(0.3)), Ok(Some(16)));
    assert_eq!(candidates(LossKnown::At(0.4)), Ok(Some(4)));
    assert_eq!(candidates(LossKnown::At(0.9)), Ok(Some(1)));
    assert!(candidates(LossKnown::At(0.9999)).is_err(), "not even a packet does");
    // Here they do, but not where the search for flips looks.
    assert_eq!(candidates(LossKnown::Between(0.05, 0.3)), Ok(Some(16)));
}

#[test]
fn several_sizes_are_one_question() {
    let one = plan(&question()).unwrap();
    let both = plan(&Question { sizes_bytes: vec![MIB, 128 * MIB], ..question() }).unwrap();
    assert!(both.choice().mean_s < one.choice().mean_s);
    assert!(both.ideal_s < one.ideal_s);
    assert!(plan(&Question { sizes_bytes: vec![], ..question() }).is_err());
}

#[test]
fn a_message_of_one_packet_has_a_plan() {
    let plan = plan(&Question { sizes_bytes: vec![100], ..question() }).unwrap();
    assert_eq!(plan.choice().chunk_bytes, 4096);
}

#[test]
fn schemes_are_written_as_modes_are() {
    let code = |kind, k, m| Scheme::Code(Code::new(kind, k, m).unwrap()).to_string();
    assert_eq!(code(crate::CodeKind::Mds, 32, 8), "ec:mds:32:8");
    assert_eq!(code(crate::CodeKind::Xor, 16, 4), "ec:xor:16:4");
    assert_eq!(Scheme::Repeat { rto_rtts: 3.0 }.to_string(), "sr:rto");
}

#[test]
fn a_code_is_reckoned_with_all_of_its_parity_even_if_next_to_nothing_is_lost() {
    // The transport sends parity behind each submessage, so the last data have almost all of it
    // before them.
    let question = Question {
        rate_bits_per_s: 1e9,
        rtt_s: 0.025,
        loss: LossKnown::At(1e-9),
        mean_burst_packets: None,
        sizes_bytes: vec![64 << 20],
        objective: Objective::Mean,
        packet_bytes: 4096,
        overhead_bytes: 64,
        auto: None,
    };
    let plan = plan(&question).expect("a plan");
    let coded = plan.candidates.iter().filter(|e| e.candidate.scheme.is_coded());
    for expected in coded {
        let injection_s = (plan.ideal_s - 0.025) / (1.0 - expected.parity_share);
        let mean_s = injection_s + 0.025;
        assert!((expected.mean_s / mean_s - 1.0).abs() < 1e-3, "{expected:?}");
    }
}

fn auto(rule: crate::TailRule) -> Option<TailMode> {
    Some(TailMode { code: Code::mds(32, 16).unwrap(), rows: 1, slot_packets: 1 << 17, rule })
}

#[test]
fn a_mode_that_chooses_is_recommended_where_no_fixed_one_beats_it() {
    let good = auto(|_| TailParity { parity: 3, repair_copies: 2 });
    let bad = auto(|_| TailParity { parity: 0, repair_copies: 1 });
    let plan_of = |auto| plan(&Question { auto, ..question() }).unwrap();
    let without = plan_of(None);
    assert!(without.auto().is_none() && without.recommended == without.fixed);
    for (mode, is_taken) in [(good, true), (bad, false)] {
        let plan = plan_of(mode);
        assert_eq!(plan.candidates.len(), without.candidates.len() + 1);
        assert_eq!(!plan.choice().candidate.scheme.is_fixed(), is_taken);
        // What is said of the fixed ones does not hang on it.
        assert_eq!(plan.fixed_choice(), without.choice());
        assert_eq!((&plan.reason, &plan.flips), (&without.reason, &without.flips));
        assert_eq!(plan.other_family_worse, without.other_family_worse);
        let auto = plan.auto().expect("a line of its own");
        assert_eq!(auto.candidate.scheme.to_string(), "auto");
        assert!(auto.mean_s >= plan.ideal_s && auto.p50_s <= auto.p999_s);
        let (question, choice) = auto.tails[0];
        assert_eq!((auto.tails.len(), question.message_packets), (1, 32_768));
        assert_eq!(auto.fallback.is_some(), choice.parity > 0);
    }
}

#[test]
fn a_mode_that_chooses_is_asked_for_each_size_and_loss() {
    let rule = |tail: &TailQuestion| TailParity {
        parity: if tail.loss > 1e-3 { 4 } else { 1 },
        repair_copies: 1,
    };
    let loss = LossKnown::Between(1e-5, 1e-1);
    let sizes_bytes = vec![MIB, 128 * MIB];
    let question = Question { auto: auto(rule), loss, sizes_bytes, ..question() };
    let plan = plan(&question).unwrap();
    let tails = &plan.auto().expect("a line").tails;
    assert_eq!(tails.len(), 2 * RANGE_LOSSES);
    assert!(tails.windows(2).all(|pair| pair[0].0.loss <= pair[1].0.loss));
    let parity = |wanted: u32| tails.iter().filter(|(_, choice)| choice.parity == wanted).count();
    assert_eq!((parity(1), parity(4)), (8, 8));
}

#[test]
fn what_is_in_time_is_the_receivers_half_a_round_trip_before_the_sender_knows() {
    // One packet of 8 us: there after 12.508 ms, or one round trip later if it is lost once.
    let question = Question {
        rate_bits_per_s: 4096.0 * 8.0 / 8e-6,
        rtt_s: 0.025,
        loss: LossKnown::At(0.01),
        mean_burst_packets: None,
        sizes_bytes: vec![4096],
        objective: Objective::P99,
        packet_bytes: 4096,
        overhead_bytes: 0,
        auto: None,
    };
    let plan = plan(&question).unwrap();
    let repeat = Candidate { scheme: Scheme::Repeat { rto_rtts: 1.0 }, chunk_packets: 1 };
    let index = plan.candidates.iter().position(|one| one.candidate == repeat).unwrap();
    let by = |deadline_s| in_time(&question, &plan, deadline_s).unwrap();
    let near = |actual: f64, expected: f64| (actual - expected).abs() < 1e-12;
    assert!(near(by(0.0125).candidates[index], 0.0));
    assert!(near(by(0.0126).candidates[index], 0.99));
    assert!(near(by(0.0380).candidates[index], 0.9999));
    assert!(near(by(0.0125).unrepaired_share, 0.0));
    for deadline_s in [0.0126, 1.0] {
        assert!(near(by(deadline_s).unrepaired_share, 0.99), "nothing comes later");
        assert!(near(by(deadline_s).unrepaired_complete, 0.99));
    }
    assert!(in_time(&question, &plan, f64::NAN).is_err());
    assert!(in_time(&question, &plan, -1.0).is_err());
}

const CONNECTION: ConnectionFraming = ConnectionFraming { packet_bytes: 1024, overhead_bytes: 44 };

/// A gigabit per second over 40 ms.
fn long_path(loss: f64) -> Question {
    Question {
        rate_bits_per_s: 1e9,
        rtt_s: 0.04,
        loss: LossKnown::At(loss),
        sizes_bytes: vec![MIB],
        objective: Objective::Mean,
        ..question()
    }
}

#[test]
fn a_reliable_connection_gets_the_shim_that_its_path_calls_for() {
    let shim = |question: &Question| connection(question, CONNECTION).unwrap();
    let share = |plan: &ConnectionPlan| plan.best.repair_share;
    let rare = shim(&long_path(1e-4));
    let code = rare.best.shim.unwrap().code;
    assert!(code.kind() == crate::CodeKind::Xor && share(&rare) < 0.04, "{code:?}");
    assert!(rare.best.mean_s < rare.without.mean_s * 0.95);
    assert!(rare.best.goodput > 0.9 && rare.without.goodput < 0.75);
    assert_eq!(rare.window_packets, 4682);
    let lossy = shim(&long_path(1e-2));
    assert_eq!(lossy.best.shim.unwrap().code.kind(), crate::CodeKind::Mds);
    assert!(share(&lossy) > share(&rare) && lossy.best.mean_s < lossy.without.mean_s / 5.0);
    let bursts = shim(&Question { mean_burst_packets: Some(8.0), ..long_path(1e-3) });
    assert!(bursts.best.shim.unwrap().code.m() >= 8, "{:?}", bursts.best);
    for plan in [rare, lossy, bursts] {
        for expected in [plan.best, plan.without] {
            let times = [expected.p50_s, expected.p99_s, expected.p999_s];
            assert!(times.is_sorted() && expected.mean_s > 0.04, "{expected:?}");
        }
    }
}

#[test]
fn a_connection_that_loses_nothing_or_is_near_needs_no_shim() {
    let shim = |question: &Question| connection(question, CONNECTION).unwrap().best.shim;
    assert_eq!(shim(&long_path(0.0)), None);
    assert_eq!(shim(&Question { rtt_s: 1e-4, ..long_path(1e-4) }), None);
    // A slow path: a block of eight takes longer than its receiver waits.
    assert_eq!(shim(&Question { rate_bits_per_s: 1e6, ..long_path(1e-3) }), None);
}

#[test]
fn a_connection_over_a_path_of_unknown_loss_is_protected_against_the_worst() {
    let known = connection(&long_path(1e-5), CONNECTION).unwrap();
    let range = Question { loss: LossKnown::Between(1e-5, 1e-2), ..long_path(0.0) };
    let unknown = connection(&range, CONNECTION).unwrap();
    assert!(unknown.best.repair_share > known.best.repair_share);
    assert!(unknown.best.mean_s < unknown.without.mean_s / 2.0);
    assert!(connection(&Question { rtt_s: -1.0, ..long_path(0.1) }, CONNECTION).is_err());
}
