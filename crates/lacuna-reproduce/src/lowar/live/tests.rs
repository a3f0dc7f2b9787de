//! Runs, and verdicts of made-up numbers.

use super::*;
use crate::outcome::Verdict;

/// Numbers as on a perfect machine: go-back-N by its closed form, the others without any cost.
fn numbers(run: &Run, rate_bits_per_s: u64) -> Measured {
    let all = Measurement { rate_bits_per_s, time_s: 1.0, seed: 1, planned: 0, runs: Vec::new() };
    let goodput = match run.transport {
        Transport::Cubic if run.loss > 0.0 => 1e7,
        _ => all.closed_form(*run).unwrap_or_else(|| all.goodput_max(*run)),
    };
    let processor_s = match run.transport {
        Transport::Bbr => 2.0,
        Transport::Wide => 1.05,
        _ => 1.0,
    };
    Measured {
        goodput_bits_per_s: goodput,
        processor_s,
        payload_bytes: 1_000_000_000,
        queue_dropped: 0,
        dropped_frames: 0,
    }
}

fn measurement(effort: Effort) -> Measurement {
    let rate_bits_per_s = 1_000_000_000;
    let runs = runs(&EXPERIMENTS.map(|(item, _)| item), effort);
    let planned = runs.len();
    let runs = runs.into_iter().map(|run| (run, Ok(numbers(&run, rate_bits_per_s)))).collect();
    Measurement { rate_bits_per_s, time_s: 6.0, seed: 1, planned, runs }
}

#[test]
fn each_run_is_done_once_and_a_quick_set_is_small() {
    let both = EXPERIMENTS.map(|(item, _)| item);
    assert_eq!(runs(&both, Effort::Quick).len(), 4 * Transport::ALL.len());
    assert_eq!(runs(&both[1..], Effort::Quick).len(), 4 * Transport::ALL.len());
    let full = runs(&both, Effort::Full);
    assert_eq!(full.len(), (1 + 2 * 3 * 5) * Transport::ALL.len());
    assert!(full.iter().enumerate().all(|(at, run)| !full[..at].contains(run)));
}

#[test]
fn the_link_is_full_whatever_shares_it() {
    for run in runs(&[Item::Figure(9)], Effort::Full) {
        let inflight_bytes =
            u64::from(run.inflight(1_000_000_000) * run.connections) * MESSAGE_BYTES;
        let path_bytes = 1_000_000_000 / 8 * u64::from(run.rtt_ms) / 1000;
        assert!(inflight_bytes >= 2 * path_bytes && inflight_bytes > MESSAGE_BYTES, "{run:?}");
    }
}

#[test]
fn a_perfect_machine_agrees_with_the_paper() {
    let all = measurement(Effort::Full);
    let outcome = outcome(Item::Figure(9), &all).expect("it is measured");
    assert_eq!(outcome.statements.len(), 5);
    for statement in &outcome.statements {
        // The paper's baseline at 80 ms is a card that loses more than the closed form.
        let may_differ = statement.paper.starts_with("80 ms");
        assert!(may_differ || statement.verdict != Verdict::Differs, "{statement:?}");
    }
    assert_eq!(outcome.charts.len(), 2 * 3);
    let rows = outcome.rows.expect("people see rows");
    assert_eq!(rows.rows.len(), 1 + 2 * 3 * 5);
    assert!(rows.rows.iter().all(|row| row.len() == rows.header.len()));
    assert_eq!(rows.rows[0][..2], ["LAN", "1"]);
}

#[test]
fn processor_time_is_compared_per_byte() {
    let mut all = measurement(Effort::Quick);
    let verdicts = |all: &Measurement| {
        let outcome = outcome(Item::Figure(13), all).expect("it is measured");
        outcome.statements.iter().map(|statement| statement.verdict).collect::<Vec<_>>()
    };
    // With a loss the made-up go-back-N takes no more than before, so the shim gains nothing.
    let [holds, differs] = [Verdict::Holds, Verdict::Differs];
    assert_eq!(verdicts(&all), [holds, holds, differs, holds]);
    for (run, measured) in &mut all.runs {
        let measured = measured.as_mut().expect("made up");
        match run.transport {
            Transport::Wide => measured.processor_s = 1.2,
            Transport::Bbr => measured.processor_s = 0.5,
            _ => {}
        }
    }
    assert_eq!(verdicts(&all), [differs; 4]);
}

#[test]
fn runs_without_numbers_leave_statements_out_and_are_told() {
    let mut all = measurement(Effort::Quick);
    for (run, measured) in &mut all.runs {
        match run.transport {
            Transport::GoBackN => *measured = Err("the server is lost".to_owned()),
            Transport::Bbr => measured.as_mut().expect("made up").dropped_frames = 30,
            _ => {}
        }
    }
    let outcome = outcome(Item::Figure(9), &all).expect("it is measured");
    assert_eq!(outcome.statements.len(), 1, "of TCP alone: {:?}", outcome.statements);
    assert_eq!(outcome.remarks.len(), 5);
    assert!(outcome.remarks[0].contains("the server is lost"), "{:?}", outcome.remarks);
    assert!(outcome.remarks[4].starts_with("In 4 of 24 runs"), "{:?}", outcome.remarks);
    assert_eq!(outcome.rows.expect("rows").rows[0][2], "-");
}

#[test]
fn a_measurement_that_was_ended_says_how_far_it_came() {
    let mut all = measurement(Effort::Quick);
    assert!(outcome(Item::Figure(9), &all).expect("it is measured").remarks.is_empty());
    all.runs.truncate(5);
    let outcome = outcome(Item::Figure(9), &all).expect("it is measured");
    assert_eq!(outcome.remarks, ["5 of 24 runs were done"]);
}

#[test]
fn at_another_rate_the_papers_losses_are_others() {
    let mut all = measurement(Effort::Quick);
    all.rate_bits_per_s = 300_000_000;
    let outcome = outcome(Item::Figure(9), &all).expect("it is measured");
    assert_eq!(outcome.statements.len(), 1, "only what no loss is needed for");
}

#[test]
fn other_figures_are_not_measured() {
    assert!(outcome(Item::Figure(3), &measurement(Effort::Quick)).is_none());
}
