//! The numbers of a contestant in a cell, over all rounds.

use super::cell::{Cell, Kind};
use super::record::{Entry, Record};
use super::sample::{Sample, jain};
use crate::run::{Spread, spread};

/// See the module's text. `None` where nothing was found.
#[derive(Debug, Clone, Default)]
pub(crate) struct Summary {
    /// Of the rounds: goodput, or mean time of messages, or time of a crowd.
    pub(crate) value: Option<Spread>,
    /// Whether the value is a lower bound, because a message did not end in time.
    pub(crate) is_at_least: bool,
    /// The same with connecting, where messages have connections of their own.
    pub(crate) with_setup_ms: Option<f64>,
    /// Those that ended.
    pub(crate) messages: usize,
    /// Of all messages of all rounds.
    pub(crate) p99_ms: Option<f64>,
    /// The first of each round, median: a path never seen before.
    pub(crate) first_ms: Option<f64>,
    pub(crate) setup_ms: Option<f64>,
    pub(crate) steady_mbit: Option<f64>,
    /// The first flow's part of two.
    pub(crate) share: Option<f64>,
    pub(crate) jain: Option<f64>,
    pub(crate) full_after_ms: Option<f64>,
    pub(crate) resumed_ms: Option<f64>,
    pub(crate) pause_ms: Option<f64>,
    pub(crate) kept_rate: Option<f64>,
    pub(crate) queue_ms_mean: Option<f64>,
    pub(crate) queue_ms_max: Option<f64>,
    pub(crate) cpu_s_per_gbyte: Option<f64>,
    pub(crate) path_cpu_s_per_gbyte: Option<f64>,
    pub(crate) core_s_per_gbyte: Option<f64>,
    pub(crate) queue_drops: Option<f64>,
    pub(crate) missing: u32,
    pub(crate) complaint: String,
    pub(crate) late_drops: u64,
    pub(crate) others_cores: Option<f64>,
    pub(crate) standstill_ms: f64,
}

/// Whether a contestant is Lacuna.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("lacuna")
}

/// Whether it is Lacuna as it comes, without a rate that somebody knows.
pub(crate) fn is_default(name: &str) -> bool {
    is_ours(name) && !name.ends_with("-fixed")
}

/// Whether more is better.
pub(crate) fn is_rate(kind: Kind) -> bool {
    kind == Kind::Bulk
}

/// The value of a round. A crowd of which some did not come has none.
fn value(sample: &Sample) -> Option<f64> {
    if sample.crowd_ms.is_some() {
        return sample.crowd_ms.filter(|_| sample.missing == 0);
    }
    // What did not end took this long at least.
    let times = || sample.messages_ms.iter().chain(&sample.unfinished_ms);
    let mean = times().sum::<f64>() / times().count().max(1) as f64;
    sample.goodput_mbit.or((mean > 0.0).then_some(mean))
}

/// The times of a round's messages over a path that was seen before: all but the
/// first, which is told apart. Of a crowd all are the first; where some did not come, the
/// first that did may be a later one.
fn on_known_path(sample: &Sample) -> impl Iterator<Item = f64> {
    let is_first = sample.crowd_ms.is_none() && sample.missing == 0;
    let times = sample.messages_ms.iter().chain(&sample.unfinished_ms).copied();
    times.skip(usize::from(is_first))
}

/// The mean time of a round's messages from before connecting on.
fn with_setup(sample: &Sample) -> Option<f64> {
    let setup_ms: f64 = sample.setups_ms.iter().sum();
    let setup_ms = setup_ms / sample.setups_ms.len().max(1) as f64;
    let is_apart = sample.crowd_ms.is_none() && sample.goodput_mbit.is_none();
    value(sample).filter(|_| is_apart).map(|mean_ms| mean_ms + setup_ms)
}

/// One line of a run.
pub(crate) fn headline(sample: &Sample) -> String {
    let unit = if sample.goodput_mbit.is_some() { "Mbit/s" } else { "ms" };
    let mut text = value(sample).map_or("nothing".to_owned(), |value| format!("{value:.1} {unit}"));
    if sample.steady_mbit.len() > 1 {
        text += &format!(", then {:.0?}", sample.steady_mbit);
    }
    if let Some(resumed) = sample.resumed_ms {
        text += &format!(", resumed after {resumed:.0} ms");
    }
    if let Some((pause_ms, kept)) = sample.pause_ms.zip(sample.kept_rate) {
        text += &format!(", {pause_ms:.0} ms without a byte, then {kept:.2} of the rate before");
    }
    if !sample.messages_ms.is_empty() {
        text += &format!(" ({} messages)", sample.messages_ms.len());
    }
    if sample.missing > 0 {
        text += &format!(", {} did not come ({})", sample.missing, sample.complaint);
    }
    if let Some(unfinished) = sample.unfinished_ms {
        text += &format!(", cut {unfinished:.0} ms into one");
    }
    text + &format!(
        ", queue {:.1} ms, others {:.2} cores",
        sample.queue_ms_mean, sample.others_cores
    )
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    spread(values.collect()).map(|spread| spread.median)
}

/// The value below which a share of all lie (nearest rank).
fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

impl Summary {
    pub(crate) fn new(entry: &Entry) -> Self {
        let samples = || entry.samples.iter().flatten();
        let messages = samples().flat_map(on_known_path).collect();
        let of = |number: fn(&Sample) -> Option<f64>| median(samples().filter_map(number));
        let two = |number: fn(&[f64]) -> Option<f64>| {
            let flows = samples().filter(|sample| sample.steady_mbit.len() > 1);
            median(flows.filter_map(|sample| number(&sample.steady_mbit)))
        };
        Self {
            value: spread(samples().filter_map(value).collect()),
            is_at_least: samples().any(|sample| sample.unfinished_ms.is_some()),
            with_setup_ms: of(with_setup),
            messages: samples().map(|sample| sample.messages_ms.len()).sum(),
            p99_ms: quantile(messages, 0.99),
            first_ms: of(|sample| sample.messages_ms.first().copied()),
            setup_ms: median(samples().flat_map(|sample| sample.setups_ms.iter().copied())),
            steady_mbit: of(|sample| {
                (!sample.steady_mbit.is_empty()).then(|| sample.steady_mbit.iter().sum())
            }),
            share: two(|flows| Some(flows.first()? / flows.iter().sum::<f64>())),
            jain: two(jain),
            full_after_ms: of(|sample| sample.full_after_ms),
            resumed_ms: of(|sample| sample.resumed_ms),
            pause_ms: of(|sample| sample.pause_ms),
            kept_rate: of(|sample| sample.kept_rate),
            queue_ms_mean: of(|sample| Some(sample.queue_ms_mean)),
            queue_ms_max: samples().map(|sample| sample.queue_ms_max).reduce(f64::max),
            cpu_s_per_gbyte: of(|sample| sample.cpu_s_per_gbyte),
            path_cpu_s_per_gbyte: of(|sample| sample.path_cpu_s_per_gbyte),
            core_s_per_gbyte: of(|sample| sample.core_s_per_gbyte),
            queue_drops: of(|sample| Some(sample.queue_drops as f64)),
            missing: samples().map(|sample| sample.missing).max().unwrap_or(0),
            complaint: samples()
                .map(|sample| sample.complaint.clone())
                .find(|complaint| !complaint.is_empty())
                .unwrap_or_default(),
            late_drops: samples().map(|sample| sample.late_drops).sum(),
            others_cores: of(|sample| Some(sample.others_cores)),
            standstill_ms: samples().map(|sample| sample.standstill_ms).fold(0.0, f64::max),
        }
    }

    /// The median of the rounds as a multiple of the ideal.
    pub(crate) fn of_ideal(&self, cell: &Cell) -> Option<f64> {
        let ideal = cell.ideal_ms().unwrap_or_else(|| cell.ideal_mbit());
        Some(self.value?.median / ideal)
    }
}

/// Whoever is best in a cell, of those that a test takes.
pub(crate) fn best(record: &Record, takes: impl Fn(&str) -> bool) -> Option<(&str, f64)> {
    best_by(record, takes, |summary| Some(summary.value?.median))
}

/// The same by another number, of which more or less is better as of the value.
pub(crate) fn best_by(
    record: &Record,
    takes: impl Fn(&str) -> bool,
    number: impl Fn(&Summary) -> Option<f64>,
) -> Option<(&str, f64)> {
    let taken = record.entries.iter().filter(|(name, _)| takes(name));
    let values =
        taken.filter_map(|(name, entry)| Some((name.as_str(), number(&Summary::new(entry))?)));
    let is_better = |one: f64, other: f64| (one > other) == is_rate(record.cell.kind);
    values.reduce(|best, one| if is_better(one.1, best.1) { one } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_did_not_end_counts_with_the_time_it_had() {
        let sample =
            Sample { messages_ms: vec![100.0], unfinished_ms: Some(900.0), ..Sample::default() };
        assert_eq!(value(&sample), Some(500.0));
        assert_eq!(value(&Sample::default()), None);
        let crowd = |missing| Sample { crowd_ms: Some(5.0), missing, ..Sample::default() };
        assert_eq!((value(&crowd(0)), value(&crowd(1))), (Some(5.0), None));
    }

    #[test]
    fn what_connecting_takes_is_added_to_messages_only() {
        let messages = Sample {
            messages_ms: vec![100.0, 200.0],
            setups_ms: vec![40.0, 60.0],
            ..Sample::default()
        };
        assert_eq!((value(&messages), with_setup(&messages)), (Some(150.0), Some(200.0)));
        let crowd = Sample { crowd_ms: Some(500.0), ..messages };
        assert_eq!(with_setup(&crowd), None);
    }

    #[test]
    fn the_first_message_is_of_no_known_path() {
        let messages = Sample {
            messages_ms: vec![200.0, 100.0],
            unfinished_ms: Some(300.0),
            ..Sample::default()
        };
        assert!(on_known_path(&messages).eq([100.0, 300.0]));
        let crowd = Sample { crowd_ms: Some(500.0), unfinished_ms: None, ..messages };
        assert!(on_known_path(&crowd).eq([200.0, 100.0]));
    }

    #[test]
    fn quantiles_are_of_nearest_rank() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(values, 0.99), Some(99.0));
        assert_eq!(quantile(vec![], 0.99), None);
    }
}
