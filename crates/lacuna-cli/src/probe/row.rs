//! Named numbers in order: a row of the CSV, or an object of the JSON.
//!
//! A field that `iperf3` has, too, keeps its name and unit: `start`, `end`, `seconds`, `bytes`
//! (that arrived), `bits_per_second` (of payload), `jitter_ms`, `lost_packets`, `packets` (sent),
//! `lost_percent`, `out_of_order`. Others have the unit in the name. A number with an interval is
//! followed by its ends, `_low` and `_high`.
//! with an interval is followed by its ends, `_low` and `_high`.

use lacuna_probe::estimate::Estimate;
use lacuna_probe::{PathEstimate, SizeEstimate, Trial};
use serde::{Serialize, Serializer};

/// A row of named numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct Row(Vec<(&'static str, Cell)>);

/// A number, or none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Cell {
    Count(u64),
    Number(f64),
    Flag(bool),
    Nothing,
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, cell)| (name, cell)))
    }
}

impl Row {
    /// Of a trial.
    pub(super) fn of_trial(trial: &Trial, overhead_bytes: u32) -> Self {
        let mut row = Self::default();
        let (start_s, seconds) = (trial.begins_ns as f64 / 1e9, trial.duration_ns as f64 / 1e9);
        let bytes = trial.counted.received.saturating_mul(trial.payload_bytes.into());
        let lost_percent = trial.lost() as f64 * 100.0 / f64::from(trial.sent.max(1));
        row.count("trial", trial.number.into());
        row.number("start", start_s);
        row.number("end", start_s + seconds);
        row.number("seconds", seconds);
        row.count("payload_bytes", trial.payload_bytes.into());
        row.count("flows", trial.flows.into());
        row.count("bytes", bytes);
        row.number("bits_per_second", bytes as f64 * 8.0 / seconds.max(1e-9));
        row.number("jitter_ms", trial.counted.jitter_ns as f64 / 1e6);
        row.count("lost_packets", trial.lost());
        row.count("packets", trial.sent.into());
        row.number("lost_percent", lost_percent);
        row.count("out_of_order", trial.counted.reordered);
        row.number("sent_bits_per_s", trial.sent_bits_per_s(overhead_bytes));
        row.path(&trial.estimate(overhead_bytes));
        row.flag("marked", trial.is_marked());
        row.count("receiver_socket_drops", trial.counted.drops.socket);
        row.count("receiver_kernel_drops", trial.counted.drops.kernel);
        row.count("receiver_card_drops", trial.counted.drops.card);
        row.count("sender_drops", trial.sender_drops.total());
        row.count("refused_packets", trial.refused);
        row
    }

    /// Of all trials of a size.
    pub(super) fn of_size(size: &SizeEstimate) -> Self {
        let mut row = Self::default();
        row.count("payload_bytes", size.payload_bytes.into());
        row.count("trials", size.trials as u64);
        row.count("marked_trials", size.marked as u64);
        row.flag("only_marked_trials", size.only_marked);
        row.path(&size.path);
        row
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    pub(super) fn cells(&self) -> impl Iterator<Item = Cell> {
        self.0.iter().map(|(_, cell)| *cell)
    }

    /// The estimates, the same for a trial and for several.
    fn path(&mut self, path: &PathEstimate) {
        self.estimate(["loss", "loss_low", "loss_high"], Some(path.loss));
        let burst = path.bursts.map(|fit| fit.mean_burst_packets);
        self.estimate(
            ["mean_burst_packets", "mean_burst_packets_low", "mean_burst_packets_high"],
            burst,
        );
        self.estimate(
            ["reordered_share", "reordered_share_low", "reordered_share_high"],
            Some(path.reordered),
        );
        self.number("reordering_extent_mean", path.reordering_extent.0);
        self.count("reordering_extent_max", path.reordering_extent.1);
        self.number("reordering_late_max_s", path.reordering_late_s);
        self.count("duplicates", path.duplicates);
        self.estimate(
            ["rate_bits_per_s", "rate_bits_per_s_low", "rate_bits_per_s_high"],
            path.rate_bits_per_s,
        );
        let rtt = path.rtt;
        self.count("rtt_samples", rtt.map_or(0, |rtt| rtt.samples as u64));
        self.maybe("rtt_min_s", rtt.map(|rtt| rtt.min_s));
        self.maybe("rtt_max_s", rtt.map(|rtt| rtt.max_s));
        self.estimate(["rtt_s", "rtt_s_low", "rtt_s_high"], rtt.map(|rtt| rtt.mean_s));
        self.estimate(
            ["rtt_deviation_s", "rtt_deviation_s_low", "rtt_deviation_s_high"],
            rtt.map(|rtt| rtt.deviation_s),
        );
        self.estimate(["rtt_p50_s", "rtt_p50_s_low", "rtt_p50_s_high"], rtt.map(|rtt| rtt.p50_s));
        self.estimate(["rtt_p99_s", "rtt_p99_s_low", "rtt_p99_s_high"], rtt.map(|rtt| rtt.p99_s));
    }

    fn estimate(&mut self, names: [&'static str; 3], estimate: Option<Estimate>) {
        let parts = [|e: Estimate| e.value, |e: Estimate| e.low, |e: Estimate| e.high];
        for (name, part) in names.into_iter().zip(parts) {
            self.maybe(name, estimate.map(part));
        }
    }

    fn maybe(&mut self, name: &'static str, value: Option<f64>) {
        // Infinity has no number.
        let cell = value.filter(|value| value.is_finite()).map_or(Cell::Nothing, Cell::Number);
        self.0.push((name, cell));
    }

    fn number(&mut self, name: &'static str, value: f64) {
        self.maybe(name, Some(value));
    }

    fn count(&mut self, name: &'static str, value: u64) {
        self.0.push((name, Cell::Count(value)));
    }

    fn flag(&mut self, name: &'static str, value: bool) {
        self.0.push((name, Cell::Flag(value)));
    }
}
