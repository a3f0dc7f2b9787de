//! The results of a measurement: a table for people, an object for scripts, and the fields that the
//! planner reads.
//!
//! The planner's fields are those of the largest payload measured, since the transport sends the
//! largest packets that the path carries. `mtu_bytes` is the payload of a Lacuna packet with the
//! length of those probes, so that loss and packet size match; none, if no packet is so short. The
//! loss is given as its interval. The burst length is given if the measurement can tell bursts from
//! independent losses.

use super::ClientArgs;
use super::refusals::Refusals;
use super::row::Row;
use crate::capture::Captured;
use crate::failure::{Ending, Failure};
use crate::output::Output;
use crate::units::{self, show_bytes, show_count, show_rate, show_time};
use comfy_table::{CellAlignment, Table, presets};
use lacuna_planner::Drops;
use lacuna_probe::estimate::{CONFIDENCE, Estimate};
use lacuna_probe::{Client, PathEstimate, Summary, Trial};
use lacuna_wire::Seal;
use serde::Serialize;

/// The planner weighs a range of losses by decades, so the range needs a lower end. Without losses,
/// it is this fraction of the upper one.
const LOW_SHARE_OF_NOTHING: f64 = 1e-3;

/// A host that sends at less than this fraction of the target rate is warned.
const BEHIND: f64 = 0.95;

/// The results of a measurement.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    host: String,
    #[serde(flatten)]
    ending: Ending,
    seconds: f64,
    confidence: f64,
    flows: u16,
    /// The rate asked for.
    target_bitrate: u64,
    /// The fields that the planner reads.
    #[serde(flatten)]
    path: PlannersPath,
    /// Largest IP packet that arrived.
    path_mtu_bytes: Option<u32>,
    /// Whether this host sends none that is larger.
    path_mtu_is_hosts_limit: Option<bool>,
    /// Packets that this host refused, those of the exchange included; and why.
    refused_packets: u64,
    refusals: Refusals,
    /// Requested sizes that exceed the path's MTU.
    left_out_payload_bytes: Vec<u32>,
    sizes: Vec<Row>,
    trials: Vec<Row>,
    /// The packets of this measurement, if they were captured.
    pub(super) capture: Option<Captured>,
    #[serde(skip)]
    summary: Summary,
    #[serde(skip)]
    drops: Vec<Drops>,
}

/// A path as `lacuna plan --from` reads it.
#[derive(Debug, Clone, Default, Serialize)]
struct PlannersPath {
    rate_bits_per_s: Option<f64>,
    rtt_s: Option<f64>,
    loss: Option<(f64, f64)>,
    mean_burst_packets: Option<f64>,
    mtu_bytes: Option<u32>,
}

impl PlannersPath {
    fn new(path: &PathEstimate, payload_bytes: u32) -> Self {
        let Estimate { low, high, .. } = path.loss;
        // Independent losses come in runs, too, of mean length 1 / (1 - loss).
        let independent = 1.0 / (1.0 - path.loss.value).max(f64::MIN_POSITIVE);
        let burst = path.bursts.map(|fit| fit.mean_burst_packets);
        Self {
            rate_bits_per_s: path.rate_bits_per_s.map(|rate| rate.value),
            rtt_s: path.rtt.map(|rtt| rtt.mean_s.value),
            loss: (high < 1.0).then_some((low.max(high * LOW_SHARE_OF_NOTHING), high)),
            mean_burst_packets: burst
                .filter(|burst| burst.low > independent)
                .map(|burst| burst.value),
            mtu_bytes: packet_bytes(payload_bytes),
        }
    }
}

/// Payload of the longest Lacuna packet (a parity packet) with the length of such a probe; `None`
/// if no packet is so short.
fn packet_bytes(payload_bytes: u32) -> Option<u32> {
    let overhead_bytes = Seal::default().overhead_bytes_max() as u32;
    let bytes = payload_bytes.saturating_sub(overhead_bytes) & !3;
    units::allowed_packet_bytes(bytes.into()).ok()
}

impl Report {
    /// The report on a client's measurement; `None` if that is empty.
    pub(super) fn new(
        args: &ClientArgs,
        client: &Client,
        overhead_bytes: u32,
        seconds: f64,
        ending: Ending,
        refusals: Refusals,
    ) -> Option<Self> {
        let trials = client.trials();
        let summary = Summary::new(trials, overhead_bytes);
        let largest = summary.sizes.iter().max_by_key(|size| size.payload_bytes)?;
        let path = PlannersPath::new(&largest.path, largest.payload_bytes);
        let is_left_out = |size: &&u32| !client.payloads_bytes().contains(size);
        let mtu = client.path_mtu();
        Some(Self {
            host: args.host.clone(),
            ending,
            seconds,
            confidence: CONFIDENCE,
            flows: args.flows,
            target_bitrate: args.rate,
            path,
            path_mtu_bytes: mtu.map(|mtu| mtu.packet_bytes),
            path_mtu_is_hosts_limit: mtu.map(|mtu| mtu.is_hosts_limit),
            refused_packets: refusals.packets(),
            refusals,
            left_out_payload_bytes: args.payload.iter().filter(is_left_out).copied().collect(),
            sizes: summary.sizes.iter().map(Row::of_size).collect(),
            trials: trials.iter().map(|trial| Row::of_trial(trial, overhead_bytes)).collect(),
            capture: None,
            drops: trials
                .iter()
                .map(|trial| Drops {
                    payload_bytes: trial.payload_bytes,
                    packets: trial.sent.into(),
                    lost: trial.lost(),
                    is_marked: trial.is_marked(),
                })
                .collect(),
            summary,
        })
    }

    pub(super) fn trials(&self) -> &[Row] {
        &self.trials
    }

    pub(super) fn drops(&self) -> Vec<Drops> {
        self.drops.clone()
    }

    #[cfg(test)]
    pub(super) fn summary(&self) -> &Summary {
        &self.summary
    }

    pub(super) fn describe_trials(&self) -> String {
        let flows = show_count(self.flows.into(), "flow");
        let rate = show_rate(self.target_bitrate as f64);
        format!("{} at {rate}, {flows}", show_count(self.trials.len() as u64, "trial"))
    }

    pub(super) fn print(&self, output: Output) -> Result<(), Failure> {
        if output.json {
            return output.object(self);
        }
        self.lines().iter().try_for_each(|line| output.line(line))
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.table()];
        if let (Some(mtu), Some(is_limit)) = (self.path_mtu_bytes, self.path_mtu_is_hosts_limit) {
            let limit = if is_limit { ", the most that this host sends" } else { "" };
            lines.push(format!("path MTU {mtu} bytes{limit}"));
        }
        for size in &self.left_out_payload_bytes {
            let size = show_bytes((*size).into());
            lines.push(format!("payloads of {size} do not fit and were left out (--fragment)"));
        }
        for size in self.summary.sizes.iter().filter(|size| size.marked > 0) {
            let used = if size.only_marked { "used, as there are no others" } else { "left out" };
            lines.push(format!(
                "{} of {} of {}: a host itself dropped packets; {used}",
                size.marked,
                show_count(size.trials as u64, "trial"),
                show_bytes(size.payload_bytes.into()),
            ));
        }
        let is_reordered = |path: &PathEstimate| path.reordered.value > 0.0;
        if let Some(path) = self.summary.path.as_ref().filter(|path| is_reordered(path)) {
            lines.push(format!(
                "reordered packets come behind {:.1} later ones on average, {} at most, and {} late",
                path.reordering_extent.0,
                path.reordering_extent.1,
                show_time(path.reordering_late_s),
            ));
        }
        lines.push(format!("in brackets: {:.0} % confidence", self.confidence * 100.0));
        lines.extend(self.refusals.describe());
        if let Some(why) = &self.ending.why {
            lines.push(format!("not complete: {}; {why}", self.describe_trials()));
        }
        lines
    }

    fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header([
            "payload",
            "trials",
            "loss",
            "mean burst",
            "RTT",
            "RTT deviation",
            "RTT p99",
            "reordered",
            "delivered",
        ]);
        for size in &self.summary.sizes {
            let path = &size.path;
            let rtt = |part: fn(&lacuna_probe::summary::RttEstimate) -> Estimate| {
                path.rtt.as_ref().map_or_else(dash, |rtt| span(part(rtt), time))
            };
            table.add_row([
                show_bytes(size.payload_bytes.into()),
                size.trials.to_string(),
                span(path.loss, share),
                path.bursts.map_or_else(dash, |fit| span(fit.mean_burst_packets, digits)),
                rtt(|rtt| rtt.mean_s),
                rtt(|rtt| rtt.deviation_s),
                rtt(|rtt| rtt.p99_s),
                span(path.reordered, share),
                path.rate_bits_per_s.map_or_else(dash, |rate| span(rate, show_rate)),
            ]);
        }
        for column in table.column_iter_mut() {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.to_string()
    }
}

/// The line for a finished trial.
pub(super) fn trial_line(trial: &Trial, overhead_bytes: u32, rate_bits_per_s: u64) -> String {
    let path = trial.estimate(overhead_bytes);
    let rtt = path.rtt.map_or_else(dash, |rtt| time(rtt.mean_s.value));
    let mut line = format!(
        "trial {}: {} payload, lost {} of {} ({}), RTT {rtt}",
        trial.number,
        show_bytes(trial.payload_bytes.into()),
        trial.lost(),
        trial.sent,
        share(path.loss.value),
    );
    let sent_bits_per_s = trial.sent_bits_per_s(overhead_bytes);
    if sent_bits_per_s < rate_bits_per_s as f64 * BEHIND {
        line += &format!("; this host sent at {} only", show_rate(sent_bits_per_s));
    }
    if trial.refused > 0 {
        line += &format!("; {} refused by this host", trial.refused);
    }
    if trial.is_marked() {
        line += "; marked";
        // Refused packets are among them.
        let here = trial.sender_drops.total().saturating_sub(trial.refused);
        let there = trial.counted.drops;
        if there.total() + here > 0 {
            line += &format!(
                ": dropped by the server's socket {}, kernel {}, card {}, by this host {here}",
                there.socket, there.kernel, there.card
            );
        }
    }
    line
}

fn dash() -> String {
    "-".to_owned()
}

/// A number with its interval.
fn span(estimate: Estimate, show: fn(f64) -> String) -> String {
    let end = |value: f64| if value.is_finite() { show(value) } else { "?".to_owned() };
    format!("{} [{}, {}]", show(estimate.value), end(estimate.low), end(estimate.high))
}

fn share(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 1e-3 => format!("{value:.1e}"),
        value => format!("{:.2} %", value * 100.0),
    }
}

fn digits(value: f64) -> String {
    format!("{value:.2}")
}

fn time(seconds: f64) -> String {
    show_time(seconds.max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_planner_is_told_of_no_packet_that_it_would_refuse() {
        assert_eq!(packet_bytes(1436), Some(1400));
        assert_eq!(packet_bytes(1439), Some(1400));
        assert_eq!(packet_bytes(100), Some(64));
        assert_eq!([99, 45, 8].map(packet_bytes), [None; 3]);
    }
}
