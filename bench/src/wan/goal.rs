//! Goals, held against what was found.

use super::cell::Goal;
use super::record::Record;
use super::summary::{Summary, best, is_rate};

/// What became of one number of a goal.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    /// The number, in words.
    pub(crate) what: String,
    pub(crate) found: f64,
    /// The bound, in words.
    pub(crate) wanted: String,
    pub(crate) holds: bool,
}

impl Verdict {
    fn at_least(what: impl Into<String>, found: f64, least: f64) -> Self {
        let wanted = format!("≥ {least}");
        Self { what: what.into(), found, wanted, holds: found >= least }
    }

    fn at_most(what: impl Into<String>, found: f64, most: f64) -> Self {
        let wanted = format!("≤ {most}");
        Self { what: what.into(), found, wanted, holds: found <= most }
    }
}

/// What a goal says of a cell. Empty where ours was not measured.
pub(crate) fn verdicts(goal: &Goal, record: &Record) -> Vec<Verdict> {
    let Some(entry) = record.entries.get(&goal.ours) else { return Vec::new() };
    let ours = Summary::new(entry);
    let Some(value) = ours.value else { return Vec::new() };
    let cell = &record.cell;
    let rtt_ms = cell.rtt_ms as f64;
    let mut verdicts = Vec::new();
    let is_other = |name: &str| goal.against.iter().any(|other| other == name);
    if let (Some(factor), Some((name, theirs))) = (goal.factor, best(record, is_other)) {
        let found = if is_rate(cell.kind) { value.median / theirs } else { theirs / value.median };
        verdicts.push(Verdict::at_least(format!("times better than {name}"), found, factor));
    }
    if let Some(share) = goal.cpu_share {
        let others = record.entries.iter().filter(|(name, _)| is_other(name));
        let most = others
            .filter_map(|(name, entry)| Some((name, cpu_share(&ours, &Summary::new(entry))?)))
            .reduce(|most, one| if one.1 > most.1 { one } else { most });
        if let Some((name, found)) = most {
            let what = format!("processor time per byte, of {name}'s");
            verdicts.push(Verdict::at_most(what, found, share));
        }
    }
    let of_ideal = ours.of_ideal(cell);
    if let (Some(share), Some(found)) = (goal.of_ideal_rate, of_ideal) {
        verdicts.push(Verdict::at_least("of the ideal rate", found, share));
    }
    if let (Some(most), Some(found)) = (goal.of_ideal_time, of_ideal) {
        verdicts.push(Verdict::at_most("of the ideal time, mean", found, most));
    }
    let p99 = ours.p99_ms.zip(cell.ideal_ms()).map(|(p99_ms, ideal_ms)| p99_ms / ideal_ms);
    if let (Some(most), Some(found)) = (goal.of_ideal_time_p99, p99) {
        verdicts.push(Verdict::at_most("of the ideal time, p99", found, most));
    }
    if let Some(most) = goal.full_within_rtts {
        let found = ours.full_after_ms.map_or(f64::INFINITY, |ms| ms / rtt_ms);
        verdicts.push(Verdict::at_most("round trips until the rate is full", found, most));
    }
    if let (Some(most), Some(mean_ms)) = (goal.queue_bdp, ours.queue_ms_mean) {
        verdicts.push(Verdict::at_most("mean queue, of the path", mean_ms / rtt_ms, most));
    }
    if let (Some(least), Some(found)) = (goal.jain, ours.jain) {
        verdicts.push(Verdict::at_least("Jain's index", found, least));
    }
    if let (Some([least, most]), Some(found)) = (goal.share, ours.share) {
        let what = "share of the first".to_owned();
        let wanted = format!("{least} to {most}");
        let holds = (least..=most).contains(&found);
        verdicts.push(Verdict { what, found, wanted, holds });
    }
    if let Some(extra_ms) = goal.resumed_ms {
        let found = ours.resumed_ms.unwrap_or(f64::INFINITY);
        verdicts.push(Verdict::at_most("ms until it resumed", found, rtt_ms + extra_ms));
    }
    if let Some(extra_ms) = goal.pause_ms {
        let found = ours.pause_ms.unwrap_or(f64::INFINITY);
        verdicts.push(Verdict::at_most("ms without a byte", found, 2.0 * rtt_ms + extra_ms));
    }
    if let Some(least) = goal.kept_rate {
        let found = ours.kept_rate.unwrap_or(0.0);
        verdicts.push(Verdict::at_least("of the rate before", found, least));
    }
    verdicts
}

/// Processor time per byte, ours as a part of theirs: of the race's cores where that was measured,
/// as part of it is nobody's; else of ends and path together, as some contestants receive in the one,
/// some in the other.
fn cpu_share(ours: &Summary, theirs: &Summary) -> Option<f64> {
    let of = |summary: &Summary| Some(summary.cpu_s_per_gbyte? + summary.path_cpu_s_per_gbyte?);
    match (ours.core_s_per_gbyte, theirs.core_s_per_gbyte) {
        (Some(ours), Some(theirs)) => Some(ours / theirs),
        _ => Some(of(ours)? / of(theirs)?),
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::super::testing::records;
    use super::*;

    fn record(kind: &str, samples: &[(&str, Sample)]) -> Record {
        let lines = format!("kind = \"{kind}\"\nrtts_ms = [40]\nlosses = [0]");
        records(&lines, samples).remove(0)
    }

    #[test]
    fn less_time_is_better_and_more_rate_is_better() {
        let goal = Goal {
            ours: "us".to_owned(),
            against: vec!["a".to_owned(), "b".to_owned()],
            factor: Some(2.0),
            ..Goal::default()
        };
        let time = |ms| Sample { messages_ms: vec![ms], ..Sample::default() };
        let samples = [("us", time(100.0)), ("a", time(300.0)), ("b", time(150.0))];
        let found = verdicts(&goal, &record("message", &samples));
        assert_eq!((found[0].found, found[0].holds), (1.5, false));
        let rate = |mbit| Sample { goodput_mbit: Some(mbit), ..Sample::default() };
        let samples = [("us", rate(900.0)), ("a", rate(300.0)), ("b", rate(450.0))];
        let found = verdicts(&goal, &record("bulk", &samples));
        assert_eq!((found[0].found, found[0].holds), (2.0, true));
    }

    #[test]
    fn processor_time_is_of_the_cores_where_both_have_it() {
        let goal = Goal {
            ours: "us".to_owned(),
            against: vec!["a".to_owned()],
            cpu_share: Some(1.5),
            ..Goal::default()
        };
        let used = |ends, path, cores| Sample {
            goodput_mbit: Some(1.0),
            cpu_s_per_gbyte: Some(ends),
            path_cpu_s_per_gbyte: Some(path),
            core_s_per_gbyte: cores,
            ..Sample::default()
        };
        let share = |theirs| {
            let samples = [("us", used(3.0, 1.0, Some(5.0))), ("a", used(1.0, 1.0, theirs))];
            verdicts(&goal, &record("bulk", &samples))[0].found
        };
        assert_eq!(share(Some(4.0)), 1.25);
        assert_eq!(share(None), 2.0);
    }

    #[test]
    fn what_never_came_misses_its_goal() {
        let goal = Goal {
            ours: "us".to_owned(),
            full_within_rtts: Some(5.0),
            resumed_ms: Some(200.0),
            ..Goal::default()
        };
        let sample = Sample { goodput_mbit: Some(1.0), ..Sample::default() };
        let found = verdicts(&goal, &record("bulk", &[("us", sample)]));
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|verdict| !verdict.holds));
        assert!(verdicts(&goal, &record("bulk", &[])).is_empty());
    }
}
