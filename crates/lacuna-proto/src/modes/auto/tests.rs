//! The plan as a table, and when a choice is kept.

use super::{Choice, Chooser, Estimate, Question, cost, plan};

/// A message of `kib` over a path that is known well.
fn question(rate_mbit: u64, rtt_ms: f64, loss: f64, burst_packets: f64, kib: u32) -> Question {
    let packet_bytes = 1500;
    let message_packets = (kib * 1024).div_ceil(1432);
    let bdp_packets = rate_mbit as f64 * 1e6 * rtt_ms / 1e3 / 8.0 / packet_bytes as f64;
    let evidence_packets = 100_000.0;
    Question {
        estimate: Estimate {
            evidence_packets,
            seen_packets: evidence_packets,
            lost_packets: 0.25 + loss * evidence_packets,
            burst_packets,
            rtt_ns: (rtt_ms * 1e6) as u64,
            rate_bits_per_s: rate_mbit * 1_000_000,
        },
        message_packets,
        tail_packets: message_packets.min(bdp_packets as u32),
        rows: 3,
        packet_bytes,
        is_followed: false,
    }
}

/// The parity chosen, and a `+` for each copy of a repair but the first.
fn table() -> String {
    let mut table = String::from(
        "mbit/s  rtt ms   KiB | 0    1e-5 1e-4 1e-3 1e-2 3e-2 0.1  | 1e-3 1e-2 in bursts of 8\n",
    );
    for (rate, rtt) in
        [(100, 0.1), (100, 25.0), (1000, 1.0), (1000, 40.0), (1000, 250.0), (10_000, 40.0)]
    {
        for kib in [1, 64, 1024, 16 << 10, 128 << 10] {
            let show = |loss, burst| {
                let Choice { parity, repair_copies } = plan(&question(rate, rtt, loss, burst, kib));
                format!("{:<6}", format!("{parity}{}", "+".repeat(usize::from(repair_copies) - 1)))
            };
            let single: String = [0.0, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 0.1]
                .iter()
                .map(|loss| show(*loss, 1.0))
                .collect();
            let bursts: String = [1e-3, 1e-2].iter().map(|loss| show(*loss, 8.0)).collect();
            table += format!("{rate:>6} {rtt:>7} {kib:>6} | {single}| {bursts}").trim_end();
            table += "\n";
        }
    }
    table
}

#[test]
fn the_choices_are_those_of_the_table() {
    let table = table();
    assert_eq!(table, include_str!("plan.txt"), "now:\n{table}");
}

#[test]
fn nothing_known_hedges() {
    let mut question = question(1000, 40.0, 0.0, 1.0, 1024);
    question.estimate.evidence_packets = 500.0;
    question.estimate.seen_packets = 0.0;
    let parity = plan(&question).parity;
    assert!((2..=6).contains(&parity), "{parity}");
    assert!(question.tail_packets * u32::from(parity) / 32 < 150, "and does not cost much");
}

#[test]
fn more_loss_never_asks_for_less_while_parity_pays() {
    let mut last = 0;
    for step in 0..40 {
        let loss = 1e-6 * 10f64.powf(f64::from(step) / 10.0);
        let parity = plan(&question(1000, 40.0, loss, 1.0, 8 << 10)).parity;
        assert!(parity >= last, "{parity} after {last} at {loss}");
        last = parity;
    }
    assert!(last >= 4);
}

#[test]
fn the_chance_that_a_row_fails_is_the_binomial_one() {
    // One row of 32 and q parities: P(Bin(32 + q, p) > q), within what a Poisson
    // number of losses differs from a binomial one.
    let exact = |n: u32, q: u32, p: f64| {
        let term = |j: u32| {
            (0..j).fold(1.0, |sum, i| sum * f64::from(n - i) / f64::from(i + 1))
                * p.powi(j as i32)
                * (1.0 - p).powi((n - j) as i32)
        };
        1.0 - (0..=q).map(term).sum::<f64>()
    };
    for (parity, loss) in [(1, 1e-2), (2, 1e-2), (2, 3e-2), (4, 3e-2)] {
        let found = super::plan::row_fails(32, parity, loss);
        let ratio = found / exact(32 + u32::from(parity), u32::from(parity), loss);
        assert!((0.95..1.35).contains(&ratio), "{ratio} for {parity} at {loss}");
    }
}

#[test]
fn a_choice_is_kept_while_it_is_good_enough() {
    let mut chooser = Chooser::new(plan);
    let ask = |loss| question(1000, 40.0, loss, 1.0, 1024);
    let first = chooser.choose(ask(1e-2)).parity;
    assert!(chooser.take_chosen().is_some());
    // Estimates waver; another message of the same kind does not change it.
    for loss in [9e-3, 1.1e-2, 8e-3, 1.2e-2] {
        assert_eq!(chooser.choose(ask(loss)).parity, first, "at {loss}");
    }
    assert!(!chooser.take_chosen().unwrap().is_new);
    assert_eq!(chooser.take_chosen(), None, "told once");
    assert_eq!(chooser.choose(ask(0.0)).parity, 0, "what does nothing is not kept");
    let change = chooser.take_chosen().expect("told");
    assert!(change.to_string().starts_with("selective repeat, its repairs sent 2 "), "{change}");
    assert!(change.to_string().contains(" times: loss "), "{change}");
    let stats = chooser.stats(change.question.estimate);
    assert_eq!((stats.messages, stats.coded_messages, stats.changes), (6, 5, 1));
}

#[test]
fn one_copy_of_repairs_more_than_needed_is_kept_unless_none_is_needed() {
    let mut chooser = Chooser::new(|question| Choice {
        repair_copies: question.estimate.burst_packets as u8,
        ..Choice::default()
    });
    let mut copies =
        |wanted: u8| chooser.choose(question(1000, 40.0, 1e-2, wanted.into(), 1024)).repair_copies;
    let given = [3, 2, 4, 2, 255, 254, 1].map(|wanted| (wanted, copies(wanted)));
    assert_eq!(given, [(3, 3), (2, 3), (4, 4), (2, 2), (255, 255), (254, 255), (1, 1)]);
    let last = chooser.take_chosen().expect("told");
    assert!(!last.to_string().contains("repairs"), "{last}");
    chooser.choose(question(1000, 40.0, 1e-2, 2.0, 1024));
    let last = chooser.take_chosen().expect("told");
    assert!(last.to_string().starts_with("selective repeat, its repairs sent 2 times: "), "{last}");
}

#[test]
fn a_message_that_others_follow_or_on_a_short_path_is_not_coded() {
    let lossy = question(1000, 40.0, 1e-2, 1.0, 1024);
    assert_eq!(plan(&Question { is_followed: true, ..lossy }), Choice::default());
    assert_eq!(plan(&question(1000, 0.1, 1e-2, 1.0, 1024)), Choice::default());
    assert_eq!(plan(&Question { tail_packets: 0, ..lossy }).parity, 0);
    assert!(cost(&lossy, 0) > cost(&lossy, 4));
}

#[test]
fn a_question_like_the_last_one_is_not_asked_again() {
    let mut chooser = Chooser::new(plan);
    let ask = |loss, kib| question(1000, 40.0, loss, 1.0, kib);
    chooser.choose(ask(1e-2, 1024));
    assert_eq!(chooser.asked, Some(ask(1e-2, 1024)));
    chooser.choose(ask(1.05e-2, 1000));
    assert_eq!(chooser.asked, Some(ask(1e-2, 1024)));
    // Small steps do not add up unseen: it is the asked one that counts.
    chooser.choose(ask(1.12e-2, 1000));
    assert_eq!(chooser.asked, Some(ask(1.12e-2, 1000)));
}
