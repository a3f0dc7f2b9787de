//! Estimates of a path: per trial, per payload size, and for the path as a whole.
//!
//! Trials during which a host dropped packets are left out if there are others, because their losses are
//! not those of the path.

use crate::client::Trial;
use crate::counted::{BINS, Counted};
use crate::estimate::{BurstFit, Estimate, LossCounts, Samples, mean, share};

/// All estimates of a measurement.
#[derive(Debug, Clone)]
pub struct Summary {
    /// By payload, in the order of the sizes asked for.
    pub sizes: Vec<SizeEstimate>,
    /// The path, from the largest payload; `None` if there was no trial.
    pub path: Option<PathEstimate>,
}

/// Estimates of the trials of one payload size.
#[derive(Debug, Clone)]
pub struct SizeEstimate {
    /// UDP payload.
    pub payload_bytes: u32,
    /// Trials, …
    pub trials: usize,
    /// … and of these, those during which a host dropped packets.
    pub marked: usize,
    /// Whether all were marked, and therefore all were used.
    pub only_marked: bool,
    /// The estimates.
    pub path: PathEstimate,
}

/// Estimates of a path.
#[derive(Debug, Clone)]
pub struct PathEstimate {
    /// Fraction of packets that were lost.
    pub loss: Estimate,
    /// Loss bursts; `None` if no packet was lost, or all were.
    pub bursts: Option<BurstFit>,
    /// Fraction of the arrived packets that were reordered.
    pub reordered: Estimate,
    /// Mean and largest reordering extent, in packets.
    pub reordering_extent: (f64, u64),
    /// The largest late time of a reordered packet, in seconds.
    pub reordering_late_s: f64,
    /// Duplicate packets.
    pub duplicates: u64,
    /// Received bits per second, headers of IP and UDP included; `None` if no packet arrived.
    pub rate_bits_per_s: Option<Estimate>,
    /// Round trips, in seconds; `None` if there were less than two.
    pub rtt: Option<RttEstimate>,
    /// Jitter (RFC 3550), in seconds.
    pub jitter_s: f64,
}

/// Round trips, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct RttEstimate {
    /// Number of samples.
    pub samples: usize,
    /// The shortest, without an interval: an upper bound of the true minimum.
    pub min_s: f64,
    /// The longest.
    pub max_s: f64,
    /// The mean.
    pub mean_s: Estimate,
    /// The standard deviation.
    pub deviation_s: Estimate,
    /// The median.
    pub p50_s: Estimate,
    /// The 99th percentile.
    pub p99_s: Estimate,
}

impl Trial {
    /// The trial's losses.
    #[must_use]
    pub fn losses(&self) -> LossCounts {
        let bursts = self.counted.bursts.min(self.counted.flow_bursts);
        LossCounts { sent: self.sent.into(), lost: self.lost(), bursts: bursts.min(self.lost()) }
    }

    /// Estimates from this trial alone. A packet has `overhead_bytes` besides its payload.
    #[must_use]
    pub fn estimate(&self, overhead_bytes: u32) -> PathEstimate {
        PathEstimate::of(&[self], overhead_bytes)
    }
}

impl Summary {
    /// Estimates from `trials`.
    #[must_use]
    pub fn new(trials: &[Trial], overhead_bytes: u32) -> Self {
        let mut payloads: Vec<u32> = Vec::new();
        for trial in trials {
            if !payloads.contains(&trial.payload_bytes) {
                payloads.push(trial.payload_bytes);
            }
        }
        let sizes: Vec<SizeEstimate> = payloads
            .into_iter()
            .map(|payload_bytes| {
                let of_size = || trials.iter().filter(|trial| trial.payload_bytes == payload_bytes);
                let clean: Vec<&Trial> = of_size().filter(|trial| !trial.is_marked()).collect();
                let (all, only_marked) = (of_size().count(), clean.is_empty());
                let used = if only_marked { of_size().collect() } else { clean };
                SizeEstimate {
                    payload_bytes,
                    trials: all,
                    marked: of_size().filter(|trial| trial.is_marked()).count(),
                    only_marked,
                    path: PathEstimate::of(&used, overhead_bytes),
                }
            })
            .collect();
        let largest = sizes.iter().max_by_key(|size| size.payload_bytes);
        let path = largest.map(|size| size.path.clone());
        Self { sizes, path }
    }
}

impl PathEstimate {
    fn of(trials: &[&Trial], overhead_bytes: u32) -> Self {
        let losses: Vec<LossCounts> = trials.iter().map(|trial| trial.losses()).collect();
        let sum = |number: fn(&Counted) -> u64| -> u64 {
            trials.iter().map(|trial| number(&trial.counted)).fold(0, u64::saturating_add)
        };
        let largest = |number: fn(&Counted) -> u64| -> u64 {
            trials.iter().map(|trial| number(&trial.counted)).max().unwrap_or(0)
        };
        let (received, reordered) = (sum(|c| c.received), sum(|c| c.reordered));
        let jitter_ns = sum(|c| c.jitter_ns) as f64 / trials.len().max(1) as f64;
        Self {
            loss: LossCounts::loss_of_all(&losses),
            bursts: LossCounts::sum(&losses).fit(),
            reordered: share(reordered as f64, received as f64, 1.0),
            reordering_extent: (
                sum(|c| c.extent_sum) as f64 / reordered.max(1) as f64,
                largest(|c| c.extent_max),
            ),
            reordering_late_s: largest(|c| c.late_ns_max) as f64 / 1e9,
            duplicates: sum(|c| c.duplicates),
            rate_bits_per_s: rate(trials, overhead_bytes),
            rtt: RttEstimate::of(trials),
            jitter_s: jitter_ns / 1e9,
        }
    }
}

/// The rate, from the bins that lie completely within a trial. A bin holds whole packets, so the interval
/// is widened by a packet, even if all bins agree.
fn rate(trials: &[&Trial], overhead_bytes: u32) -> Option<Estimate> {
    let mut rates = Vec::new();
    let mut packet_bits_per_s: f64 = 0.0;
    for trial in trials {
        let counted = &trial.counted;
        let bin_s = counted.bin_ns.max(1) as f64 / 1e9;
        let bits = f64::from(trial.payload_bytes + overhead_bytes) * 8.0;
        let whole = (trial.duration_ns / counted.bin_ns.max(1)).clamp(1, BINS as u64) as usize;
        if counted.received > 0 {
            let bins = counted.bins[..whole].iter();
            rates.extend(bins.map(|packets| f64::from(*packets) * bits / bin_s));
            packet_bits_per_s = packet_bits_per_s.max(bits / (bin_s * whole as f64));
        }
    }
    let rate = mean(&rates)?;
    Some(Estimate {
        value: rate.value,
        low: (rate.low - packet_bits_per_s).max(0.0),
        high: rate.high + packet_bits_per_s,
    })
}

impl RttEstimate {
    fn of(trials: &[&Trial]) -> Option<Self> {
        let all = trials.iter().flat_map(|trial| &trial.rtts_ns);
        // Whole nanoseconds, so that sums are exact.
        let samples = Samples::new(all.map(|rtt_ns| *rtt_ns as f64).collect());
        Some(Self {
            samples: samples.len(),
            min_s: samples.min()? * 1e-9,
            max_s: samples.max()? * 1e-9,
            mean_s: samples.mean()?.scaled(1e-9),
            deviation_s: samples.deviation()?.scaled(1e-9),
            p50_s: samples.quantile(0.5)?.scaled(1e-9),
            p99_s: samples.quantile(0.99)?.scaled(1e-9),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HostDrops;

    fn trial(payload_bytes: u32, lost: u64, socket: u64) -> Trial {
        let counted = Counted {
            received: 1000 - lost,
            bursts: lost,
            flow_bursts: lost,
            drops: HostDrops { socket, ..HostDrops::default() },
            ..Counted::default()
        };
        Trial {
            number: 1,
            payload_bytes,
            flows: 1,
            begins_ns: 0,
            duration_ns: 1_000_000_000,
            sent: 1000,
            refused: 0,
            counted,
            rtts_ns: vec![],
            sender_drops: HostDrops::default(),
        }
    }

    #[test]
    fn trials_during_which_a_host_dropped_packets_are_left_out_if_there_are_others() {
        let trials = [trial(1000, 10, 0), trial(1000, 500, 7), trial(2000, 300, 1)];
        let summary = Summary::new(&trials, 28);
        let [small, large] = &summary.sizes[..] else { panic!("two sizes") };
        assert_eq!((small.trials, small.marked, small.only_marked), (2, 1, false));
        assert_eq!(small.path.loss.value, 0.01);
        assert_eq!((large.trials, large.marked, large.only_marked), (1, 1, true));
        assert_eq!(large.path.loss.value, 0.3);
        assert_eq!(summary.path.expect("trials").loss.value, 0.3, "the largest payload's");
    }

    #[test]
    fn a_server_that_counts_more_than_was_sent_makes_no_negative_loss() {
        let mut strange = trial(1000, 0, 0);
        strange.counted = Counted { received: 5000, bursts: 9, ..strange.counted };
        let path = strange.estimate(28);
        assert_eq!((path.loss.value, path.bursts), (0.0, None));
        assert!(Summary::new(&[], 28).path.is_none());
    }
}
