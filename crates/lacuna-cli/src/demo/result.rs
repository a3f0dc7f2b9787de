//! Results of one mode, for the table, the plot and `--json`.

use super::DemoArgs;
use super::path::{Path, Ways};
use crate::capture::Captured;
use crate::failure::Ending;
use lacuna::{AutoStats, Mode};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// The results of one mode.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ModeResult {
    pub(super) mode: String,
    pub(super) size_bytes: u64,
    /// Messages that completed.
    pub(super) runs: u64,
    /// Whether the demo ended before all had.
    #[serde(flatten)]
    pub(super) ending: Ending,
    pub(super) completion_ms: Completion,
    /// Size / rate + RTT.
    pub(super) ideal_ms: f64,
    /// Of the bytes that arrived.
    pub(super) goodput_gbit_per_s: f64,
    pub(super) retransmitted_chunks: u64,
    /// Share of packets that were repairs.
    pub(super) retransmitted_share: f64,
    /// Of the packets, those of parity.
    pub(super) parity_packets: u64,
    /// Payload bytes of those.
    pub(super) parity_bytes: u64,
    /// Chunks that the receiver computed from parity.
    pub(super) repaired_chunks: u64,
    /// Submessages whose parity did not suffice.
    pub(super) fallbacks: u64,
    /// Seconds spent on computing parity, and chunks from it.
    pub(super) encode_s: f64,
    pub(super) decode_s: f64,
    /// What the mode `auto` knows of the path and chose, if it is that.
    pub(super) auto: Option<AutoStats>,
    /// Runs of packets whose timeout expired.
    pub(super) timeouts: u64,
    /// Packets that the path lost on the way to the receiver.
    pub(super) lost_packets: u64,
    /// Packets that found the path's queue full on the way to the receiver.
    pub(super) queue_dropped_packets: u64,
    /// Lost chunks, in modes without repair.
    pub(super) missing_chunks: u64,
    /// Bytes of those chunks.
    pub(super) missing_bytes: u64,
    /// How many receives ended for which reason.
    pub(super) ended: BTreeMap<&'static str, u64>,
    /// Whether every received chunk is right; in modes that repair, also that all arrived.
    pub(super) verified: bool,
    pub(super) chunk_bytes: u64,
    pub(super) mtu_bytes: u32,
    /// Whether the sender was not told the path's rate.
    pub(super) find_rate: bool,
    pub(super) seed: u64,
    pub(super) path: PathResult,
    /// The packets of all modes until now, if they are captured.
    pub(super) capture: Option<Captured>,
    #[serde(skip)]
    pub(super) times_ms: Vec<f64>,
}

/// The path, each way.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct PathResult {
    rate_bits_per_s: u64,
    rtt_ms: f64,
    loss: f64,
    burst_packets: f64,
    queue_bytes: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Completion {
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

/// What was seen of a mode's messages.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) times: Vec<Duration>,
    pub(super) missing_chunks: u64,
    pub(super) missing_bytes: u64,
    pub(super) ended: BTreeMap<&'static str, u64>,
    pub(super) verified: bool,
    pub(super) ending: Ending,
}

impl ModeResult {
    pub(super) fn new(args: &DemoArgs, ways: &Ways, mode: Mode, path: &Path, seen: Seen) -> Self {
        let times_ms: Vec<f64> = seen.times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
        let stats = path.sender.stats();
        let sent = stats.sent;
        let received = path.receiver.stats();
        let missing = path.missing();
        let chosen = path.sender.chosen();
        let arrived_bytes = args.size * times_ms.len() as u64 - seen.missing_bytes;
        let took_s = times_ms.iter().sum::<f64>() / 1e3;
        Self {
            mode: mode.to_string(),
            size_bytes: args.size,
            runs: times_ms.len() as u64,
            ending: seen.ending,
            completion_ms: Completion::of(&times_ms),
            ideal_ms: args.ideal_s() * 1e3,
            goodput_gbit_per_s: gbit_per_s(arrived_bytes, took_s),
            retransmitted_chunks: sent.retransmitted_chunks,
            retransmitted_share: sent.retransmission_share,
            parity_packets: sent.parity_packets,
            parity_bytes: sent.parity_bytes,
            repaired_chunks: received.channels.iter().map(|c| c.repaired_chunks).sum(),
            fallbacks: sent.fallbacks,
            encode_s: sent.encode_s,
            decode_s: received.channels.iter().map(|c| c.decode_s).sum(),
            auto: stats.auto,
            timeouts: sent.timeouts,
            lost_packets: missing.lost,
            queue_dropped_packets: missing.queue_dropped,
            missing_chunks: seen.missing_chunks,
            missing_bytes: seen.missing_bytes,
            ended: seen.ended,
            verified: seen.verified,
            chunk_bytes: chosen.chunk_bytes,
            mtu_bytes: chosen.mtu_bytes,
            find_rate: args.find_rate,
            seed: args.seed,
            path: PathResult {
                rate_bits_per_s: ways.rate_bits_per_s,
                rtt_ms: ways.rtt.as_secs_f64() * 1e3,
                loss: ways.loss,
                burst_packets: ways.burst,
                queue_bytes: ways.queue_bytes(),
            },
            capture: None,
            times_ms,
        }
    }
}

impl Completion {
    /// Quantiles are of nearest rank.
    fn of(times_ms: &[f64]) -> Self {
        let mut sorted = times_ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let rank = (share * sorted.len() as f64).ceil() as usize;
            sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
        };
        let mean = sorted.iter().sum::<f64>() / sorted.len().max(1) as f64;
        Self { mean, p50: rank(0.5), p99: rank(0.99), max: rank(1.0) }
    }
}

/// Zero bytes in zero time are a rate of 0.
fn gbit_per_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds / 1e9 } else { 0.0 }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A result of a mode that went well.
    pub(in super::super) fn result(mode: &str) -> ModeResult {
        ModeResult {
            mode: mode.to_owned(),
            size_bytes: 1 << 20,
            runs: 2,
            ending: Ending::default(),
            completion_ms: Completion::of(&[40.0, 60.0]),
            ideal_ms: 40.0,
            goodput_gbit_per_s: 0.2,
            retransmitted_chunks: 3,
            retransmitted_share: 0.01,
            parity_packets: 0,
            parity_bytes: 0,
            repaired_chunks: 0,
            fallbacks: 0,
            encode_s: 0.0,
            decode_s: 0.0,
            auto: None,
            timeouts: 0,
            lost_packets: 3,
            queue_dropped_packets: 0,
            missing_chunks: 0,
            missing_bytes: 0,
            ended: BTreeMap::from([("whole", 2)]),
            verified: true,
            chunk_bytes: 4096,
            mtu_bytes: 4096,
            find_rate: false,
            seed: 1,
            path: PathResult {
                rate_bits_per_s: 1_000_000_000,
                rtt_ms: 25.0,
                loss: 1e-3,
                burst_packets: 1.0,
                queue_bytes: 1 << 20,
            },
            capture: None,
            times_ms: vec![40.0, 60.0],
        }
    }

    #[test]
    fn completion_times_are_summed_up() {
        let times: Vec<f64> = (1..=100).map(f64::from).collect();
        let Completion { mean, p50, p99, max } = Completion::of(&times);
        assert_eq!((mean, p50, p99, max), (50.5, 50.0, 99.0, 100.0));
    }

    #[test]
    fn nothing_in_no_time_makes_numbers() {
        let Completion { mean, p50, p99, max } = Completion::of(&[]);
        assert_eq!((mean, p50, p99, max), (0.0, 0.0, 0.0, 0.0));
        assert_eq!(gbit_per_s(100, 0.0), 0.0);
        assert_eq!(gbit_per_s(1_000_000_000, 8.0), 1.0);
    }
}
