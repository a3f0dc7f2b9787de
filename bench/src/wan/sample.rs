//! What one run found, out of what the ends said and the path counted.

use super::cell::{Cell, Change};
use super::end::{Message, Task};
use lacuna_wan::Report;
use serde::{Deserialize, Serialize};

/// The shortest time over which a rate says something.
const WINDOW_NS_MIN: u64 = 100_000_000;
/// A rate counts as full from this share of the ideal on.
const FULL: f64 = 0.9;
/// The interval of the series that is kept.
const SERIES_NS: u64 = 500_000_000;
/// How long a transfer has to get over a change of its ends.
const SETTLED_NS: u64 = 1_000_000_000;

/// All times are in milliseconds, all rates in Mbit/s of what the application got.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sample {
    /// All flows together, from the arrival of the first on, its start-up included.
    pub(crate) goodput_mbit: Option<f64>,
    /// Each flow in the second half of the run.
    pub(crate) steady_mbit: Vec<f64>,
    /// From the arrival until the rate was full.
    pub(crate) full_after_ms: Option<f64>,
    /// From the end of darkness until something arrived.
    pub(crate) resumed_ms: Option<f64>,
    /// The longest time without a byte after a change of the ends.
    pub(crate) pause_ms: Option<f64>,
    /// The rate from a second after such a change on, as a part of the rate before it.
    pub(crate) kept_rate: Option<f64>,
    /// The rate over time, per half second.
    pub(crate) series_mbit: Vec<f64>,
    pub(crate) messages_ms: Vec<f64>,
    pub(crate) setups_ms: Vec<f64>,
    /// From the first call to the last message of a crowd.
    pub(crate) crowd_ms: Option<f64>,
    /// How long a message had been under way when the run's time was up, if that says something:
    /// if it was longer already than those that had ended took.
    pub(crate) unfinished_ms: Option<f64>,
    /// Messages of a crowd that did not come.
    pub(crate) missing: u32,
    /// What the client said of it last.
    pub(crate) complaint: String,
    /// In front of the link towards the server.
    pub(crate) queue_ms_mean: f64,
    pub(crate) queue_ms_max: f64,
    /// Processor seconds per 10^9 bytes: of the ends, where known, and of the path, which does the
    /// kernel's work of receiving too.
    pub(crate) cpu_s_per_gbyte: Option<f64>,
    pub(crate) path_cpu_s_per_gbyte: Option<f64>,
    /// Core seconds per 10^9 bytes in which the race's cores were not idle.
    pub(crate) core_s_per_gbyte: Option<f64>,
    /// Packets towards the server: lost by the path, dropped at the full queue, and dropped because
    /// the path came too late, which should not be.
    pub(crate) lost: u64,
    pub(crate) queue_drops: u64,
    pub(crate) late_drops: u64,
    /// What else ran on the machine.
    pub(crate) others_cores: f64,
    /// The longest time for which the race itself did not run.
    pub(crate) standstill_ms: f64,
}

/// What the ends said and what the race noted.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Of each flow: time and bytes, as [`super::end::Line::Arrived`].
    pub(crate) arrived: Vec<Vec<(u64, u64)>>,
    pub(crate) messages: Vec<Message>,
    /// When the clients started, and when all was over.
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    /// Whether the run's time was up before the client was done.
    pub(crate) is_cut: bool,
    /// When changes of the path were made.
    pub(crate) changes: Vec<(u64, Change)>,
    /// Of the ends, where it is known.
    pub(crate) cpu_s: Option<f64>,
    pub(crate) others_cores: f64,
    pub(crate) core_s: f64,
    pub(crate) standstill_ns: u64,
}

/// Bytes that were there at a time.
fn bytes_at(series: &[(u64, u64)], at_ns: u64) -> u64 {
    let after = series.partition_point(|(time_ns, _)| *time_ns <= at_ns);
    after.checked_sub(1).map_or(0, |last| series[last].1)
}

fn mbit(series: &[(u64, u64)], from_ns: u64, to_ns: u64) -> f64 {
    let bytes = bytes_at(series, to_ns) - bytes_at(series, from_ns);
    bytes as f64 * 8e3 / (to_ns - from_ns).max(1) as f64
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Sample {
    pub(crate) fn new(cell: &Cell, found: &Found, report: &Report) -> Self {
        let way = &report.total.ways[0];
        let mut sample = Self {
            queue_ms_mean: way.queue_ns_mean() / 1e6,
            queue_ms_max: ms(way.queue_ns_max),
            lost: way.lost,
            queue_drops: way.queue_dropped,
            late_drops: way.held_dropped + report.device_drops[0],
            others_cores: found.others_cores,
            standstill_ms: ms(found.standstill_ns),
            ..Self::default()
        };
        let bytes = match cell.task {
            Task::Bulk { .. } => sample.bulk(cell, found),
            Task::Messages { bytes, .. } | Task::Crowd { bytes, .. } => {
                sample.messages(cell, found);
                bytes * found.messages.len() as u64
            }
        };
        if bytes > 0 {
            let per_gbyte = |seconds: f64| seconds / (bytes as f64 / 1e9);
            sample.cpu_s_per_gbyte = found.cpu_s.map(per_gbyte);
            sample.path_cpu_s_per_gbyte = Some(per_gbyte(report.total.cpu.as_secs_f64()));
            sample.core_s_per_gbyte = Some(per_gbyte(found.core_s));
        }
        sample
    }

    /// Gives the bytes that came.
    fn bulk(&mut self, cell: &Cell, found: &Found) -> u64 {
        let first = found.arrived.iter().filter_map(|series| series.first()).min();
        let last = found.arrived.iter().filter_map(|series| series.last()).map(|last| last.0).min();
        let (Some((began_ns, _)), Some(ended_ns)) = (first.copied(), last) else { return 0 };
        let together = |from_ns, to_ns| -> f64 {
            found.arrived.iter().map(|series| mbit(series, from_ns, to_ns)).sum()
        };
        let half_ns = began_ns + (ended_ns - began_ns) / 2;
        self.goodput_mbit = Some(together(began_ns, ended_ns));
        self.steady_mbit =
            found.arrived.iter().map(|series| mbit(series, half_ns, ended_ns)).collect();
        let intervals = (began_ns..ended_ns.saturating_sub(SERIES_NS)).step_by(SERIES_NS as usize);
        self.series_mbit = intervals.map(|from| together(from, from + SERIES_NS).round()).collect();
        let window_ns = WINDOW_NS_MIN.max(cell.rtt_ms * 1_000_000);
        let times = || found.arrived.iter().flatten().map(|(at_ns, _)| *at_ns);
        if cell.changes.is_empty() {
            let full = times().filter(|at_ns| {
                at_ns + window_ns <= ended_ns
                    && together(*at_ns, at_ns + window_ns) >= FULL * cell.ideal_mbit()
            });
            self.full_after_ms = full.min().map(|at_ns| ms(at_ns - began_ns));
        }
        self.resumed_ms = light_again(&found.changes).and_then(|light_ns| {
            let arrivals = found.arrived.iter().flat_map(|series| {
                let before = bytes_at(series, light_ns);
                series.iter().find(move |(_, bytes)| *bytes > before)
            });
            arrivals.map(|(at_ns, _)| ms(at_ns - light_ns)).reduce(f64::min)
        });
        if let Some((at_ns, _)) = found.changes.iter().find(|(_, change)| change.is_of_ends()) {
            let at_ns = *at_ns;
            let pauses = found.arrived.iter().map(|series| longest_pause_ns(series, at_ns));
            self.pause_ms = pauses.max().map(ms);
            let before = together(at_ns.saturating_sub(2 * SETTLED_NS).max(began_ns), at_ns);
            let from_ns = at_ns + SETTLED_NS;
            self.kept_rate =
                (from_ns < ended_ns && before > 0.0).then(|| together(from_ns, ended_ns) / before);
        }
        found.arrived.iter().map(|series| bytes_at(series, ended_ns)).sum()
    }

    fn messages(&mut self, cell: &Cell, found: &Found) {
        let messages = &found.messages;
        self.messages_ms = messages.iter().map(|message| ms(message.took_ns)).collect();
        self.setups_ms = messages.iter().map(|message| ms(message.setup_ns)).collect();
        let ends_ns = || messages.iter().map(|message| message.began_ns + message.took_ns);
        if let Task::Crowd { connections, .. } = cell.task {
            let first_ns = messages.iter().map(|message| message.began_ns - message.setup_ns).min();
            self.crowd_ms = first_ns.zip(ends_ns().max()).map(|(first, last)| ms(last - first));
            self.missing = connections - messages.len() as u32;
        }
        if found.is_cut {
            let since_ns = ends_ns().max().unwrap_or(found.began_ns);
            let unfinished_ms = ms(found.ended_ns.saturating_sub(since_ns));
            let mean_ms = self.messages_ms.iter().sum::<f64>() / messages.len().max(1) as f64;
            self.unfinished_ms = Some(unfinished_ms).filter(|unfinished| *unfinished > mean_ms);
        }
    }
}

/// The longest time without a new byte, from a time on.
fn longest_pause_ns(series: &[(u64, u64)], from_ns: u64) -> u64 {
    let mut last = (from_ns, bytes_at(series, from_ns));
    let mut longest_ns = 0;
    for (at_ns, bytes) in series.iter().filter(|(at_ns, _)| *at_ns > from_ns) {
        longest_ns = longest_ns.max(at_ns - last.0);
        if *bytes > last.1 {
            last = (*at_ns, *bytes);
        }
    }
    longest_ns
}

/// When a path that had been dark let something through again.
fn light_again(changes: &[(u64, Change)]) -> Option<u64> {
    let is_dark = |change: &Change| change.loss == Some(1.0);
    let dark = changes.iter().position(|(_, change)| is_dark(change))?;
    changes[dark..].iter().find(|(_, change)| !is_dark(change)).map(|(at_ns, _)| *at_ns)
}

/// Jain's index of fairness: 1 when all have the same, 1/n when one has all.
pub(crate) fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_wan::{Progress, Timeline};

    #[test]
    fn shares_are_whose_they_are_whoever_came_first() {
        let text = "[[grid]]\nname = \"x\"\nabout = \"\"\nkind = \"bulk\"\nrates_mbit = [1000]\n\
                    rtts_ms = [40]\nlosses = [0]\nseconds = 1\ncontestants = []";
        let cell = super::super::cell::File::parse(text).unwrap().cells().unwrap().remove(0);
        let slow = vec![(50_000_000, 0), (1_000_000_000, 1_000_000)];
        let fast = vec![(0, 0), (500_000_000, 1_000_000), (999_000_000, 9_000_000)];
        let found = Found { arrived: vec![slow, fast], ..Found::default() };
        let total = Progress {
            elapsed: std::time::Duration::from_secs(1),
            ways: Default::default(),
            cpu: std::time::Duration::from_secs(1),
        };
        let report = Report { total, timeline: Timeline::new(1), device_drops: [0; 2] };
        let sample = Sample::new(&cell, &found, &report);
        assert_eq!(sample.steady_mbit[0], 0.0);
        assert!((sample.steady_mbit[1] - 144.1).abs() < 0.1, "{sample:?}");
        assert!((sample.goodput_mbit.unwrap() - 72.07).abs() < 0.01, "{sample:?}");
    }

    #[test]
    fn a_message_cut_at_its_beginning_makes_no_mean_shorter() {
        let text = "[[grid]]\nname = \"x\"\nabout = \"\"\nkind = \"message\"\nrates_mbit = [1000]\n\
                    rtts_ms = [40]\nlosses = [0]\nsizes_kib = [1]\ncount = 9\n\
                    connections = [\"fresh\"]\ncontestants = []";
        let cell = super::super::cell::File::parse(text).unwrap().cells().unwrap().remove(0);
        let message = Message { began_ns: 0, setup_ns: 0, took_ns: 100_000_000 };
        let cut = |after_ms: u64| {
            let mut sample = Sample::default();
            let ended_ns = 100_000_000 + after_ms * 1_000_000;
            let found =
                Found { messages: vec![message], is_cut: true, ended_ns, ..Found::default() };
            sample.messages(&cell, &found);
            sample.unfinished_ms
        };
        assert_eq!((cut(10), cut(900)), (None, Some(900.0)));
    }

    #[test]
    fn rates_are_of_what_was_there_at_both_times() {
        let series = [(0, 0), (10_000_000, 1_250_000), (30_000_000, 3_750_000)];
        assert_eq!(bytes_at(&series, 29_999_999), 1_250_000);
        assert!((mbit(&series, 0, 30_000_000) - 1000.0).abs() < 1e-9);
        assert_eq!(bytes_at(&[], 5), 0);
    }

    #[test]
    fn a_pause_is_the_longest_time_without_a_byte_behind_a_change() {
        let series = [(0, 0), (90, 1), (100, 2), (110, 2), (130, 3), (140, 4), (150, 4)];
        assert_eq!(longest_pause_ns(&series, 100), 30);
        assert_eq!(longest_pause_ns(&series, 115), 15, "counted from the change on");
        assert_eq!(longest_pause_ns(&series, 140), 10, "to the end");
    }

    #[test]
    fn light_comes_back_with_the_first_change_after_darkness() {
        let change = |loss| Change { loss, ..Change::default() };
        let changes = [(1, change(Some(0.1))), (2, change(Some(1.0))), (5, change(None))];
        assert_eq!(light_again(&changes), Some(5));
        assert_eq!(light_again(&changes[..2]), None);
    }

    #[test]
    fn equal_shares_are_fair() {
        assert_eq!(jain(&[3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[3.0, 0.0]), Some(0.5));
        assert_eq!(jain(&[]), None);
    }
}
