//! The parts of BBR's model of the path: packet-timed rounds, the largest delivery rate, the smallest
//! round trip, what the latest round showed, and by how much reports run ahead of the rate.

use crate::controller::{RateSample, Sample};

/// `MinRTTFilterLen` [2.15].
const MIN_RTT_LASTS_NS: u64 = 10_000_000_000;
/// `ProbeRTTInterval` [2.15].
const PROBE_RTT_EVERY_NS: u64 = 5_000_000_000;
/// A round trip renews the smallest one if it is longer by at most one part in 32.
const RENEWS_PART: u64 = 32;
/// Most that deliveries may run ahead of the rate: 100 ms at the rate, as in Linux.
const EXTRA_NS_MAX: u64 = 100_000_000;

/// Bytes that a rate carries in a time.
pub(super) fn times(rate: u64, time_ns: u64) -> u128 {
    u128::from(rate) * u128::from(time_ns) / 1_000_000_000
}

/// Packet-timed round trips [5.5.1].
#[derive(Debug, Clone, Default)]
pub(super) struct Rounds {
    count: u64,
    end_bytes: u64,
    is_start: bool,
}

impl Rounds {
    pub(super) fn on_report(&mut self, rate: Option<&RateSample>, delivered_bytes: u64) {
        self.is_start = rate.is_some_and(|rate| rate.prior_delivered_bytes >= self.end_bytes);
        if self.is_start {
            self.count += 1;
            self.end_bytes = delivered_bytes;
        }
    }

    /// `BBRStartRound`: the next round begins now.
    pub(super) fn restart(&mut self, delivered_bytes: u64) {
        self.end_bytes = delivered_bytes;
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Whether the latest report began a round.
    pub(super) fn is_start(&self) -> bool {
        self.is_start
    }
}

/// Largest delivery rate of this cycle and the one before [5.5.5, 5.5.6].
#[derive(Debug, Clone, Default)]
pub(super) struct MaxBandwidth {
    before: u64,
    now: u64,
}

impl MaxBandwidth {
    pub(super) fn on_sample(&mut self, rate: u64) {
        self.now = self.now.max(rate);
    }

    /// `BBRAdvanceMaxBwFilter`.
    pub(super) fn advance(&mut self) {
        if self.now > 0 {
            self.before = self.now;
            self.now = 0;
        }
    }

    /// Replaces the estimate.
    pub(super) fn set(&mut self, rate: u64) {
        *self = Self { before: 0, now: rate };
    }

    pub(super) fn get(&self) -> u64 {
        self.before.max(self.now)
    }
}

/// Mean of the delivery rates of a round, weighted with the bytes delivered.
#[derive(Debug, Clone, Default)]
pub(super) struct RoundMean {
    weighted: u128,
    bytes: u64,
    is_app_limited: bool,
}

impl RoundMean {
    /// Takes in a sample. Returns the mean of the round that it ends, and whether that was limited
    /// by the application.
    pub(super) fn on_report(
        &mut self,
        sample: &Sample,
        is_round_start: bool,
    ) -> Option<(u64, bool)> {
        let ended = if is_round_start { self.end() } else { None };
        if let Some(rate) = &sample.rate {
            self.weighted += u128::from(rate.rate) * u128::from(sample.newly_delivered_bytes);
            self.bytes += sample.newly_delivered_bytes;
            self.is_app_limited |= rate.is_app_limited;
        }
        ended
    }

    /// Ends the mean and returns it, if there is one; another begins.
    pub(super) fn end(&mut self) -> Option<(u64, bool)> {
        let ended = std::mem::take(self);
        let mean = ended.weighted.checked_div(u128::from(ended.bytes))?;
        Some((u64::try_from(mean).unwrap_or(u64::MAX), ended.is_app_limited))
    }

    /// Bytes that it is the mean of.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The smallest round trip, and when to probe for it again [5.5.7, 5.3.4.3].
#[derive(Debug, Clone, Default)]
pub(super) struct MinRtt {
    /// The value that the model uses, and when it was measured.
    min: Option<(u64, u64)>,
    /// The smallest since the last ProbeRTT, and when it was measured.
    probed: Option<(u64, u64)>,
    is_expired: bool,
}

impl MinRtt {
    pub(super) fn on_report(&mut self, now_ns: u64, rtt_ns: Option<u64>) {
        let since = |stamp_ns: u64| now_ns.saturating_sub(stamp_ns);
        self.is_expired = self.probed.is_some_and(|probed| since(probed.1) > PROBE_RTT_EVERY_NS);
        let Some(rtt_ns) = rtt_ns else { return };
        let rtt_ns = rtt_ns.max(1);
        self.probed = Some(match self.probed {
            Some((least_ns, _)) if rtt_ns >= least_ns && !self.is_expired => {
                let renews = rtt_ns - least_ns <= least_ns / RENEWS_PART;
                (least_ns, if renews { now_ns } else { self.probed.map_or(0, |p| p.1) })
            }
            _ => (rtt_ns, now_ns),
        });
        let Some(probed) = self.probed else { return };
        self.min = Some(match self.min {
            Some(min) if probed.0 > min.0 && since(min.1) <= MIN_RTT_LASTS_NS => min,
            _ => probed,
        });
    }

    /// A ProbeRTT has ended.
    pub(super) fn on_probed(&mut self, now_ns: u64) {
        if let Some(probed) = &mut self.probed {
            probed.1 = now_ns;
        }
    }

    /// Whether it is time for a ProbeRTT, as of the latest report.
    pub(super) fn is_expired(&self) -> bool {
        self.is_expired
    }

    pub(super) fn get(&self) -> Option<u64> {
        self.min.map(|(min_ns, _)| min_ns)
    }
}

/// What the latest round delivered: `bw_latest`, `inflight_latest` [5.5.10.3].
#[derive(Debug, Clone, Default)]
pub(super) struct Latest {
    rate: u64,
    bytes: u64,
    end_bytes: u64,
    is_round_start: bool,
}

impl Latest {
    pub(super) fn on_report(&mut self, rate: Option<&RateSample>, delivered_bytes: u64) {
        self.is_round_start = false;
        let Some(rate) = rate else { return };
        self.rate = self.rate.max(rate.rate);
        self.bytes = self.bytes.max(rate.delivered_bytes);
        if rate.prior_delivered_bytes >= self.end_bytes {
            self.end_bytes = delivered_bytes;
            self.is_round_start = true;
        }
    }

    /// `BBRAdvanceLatestDeliverySignals`.
    pub(super) fn advance(&mut self, rate: Option<&RateSample>) {
        if let Some(rate) = rate.filter(|_| self.is_round_start) {
            self.rate = rate.rate;
            self.bytes = rate.delivered_bytes;
        }
    }

    pub(super) fn reset(&mut self) {
        self.rate = 0;
        self.bytes = 0;
    }

    pub(super) fn is_round_start(&self) -> bool {
        self.is_round_start
    }

    pub(super) fn rate(&self) -> u64 {
        self.rate
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// By how much deliveries in bunches run ahead of the rate [5.5.9], which the window needs beyond
/// the path so as not to run dry between reports.
#[derive(Debug, Clone, Default)]
pub(super) struct ExtraAcked {
    since_ns: u64,
    delivered_bytes: u64,
    /// The largest of the recent rounds, with its round. The window slides by halves: the best of
    /// each.
    best: [(u64, u64); 2],
}

impl ExtraAcked {
    pub(super) fn restart(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
        self.delivered_bytes = 0;
    }

    pub(super) fn on_report(
        &mut self,
        sample: &Sample,
        rate: u64,
        window_bytes: u64,
        round: u64,
        lasts_rounds: u64,
    ) {
        let expected = |since_ns: u64| {
            let bytes = times(rate, sample.now_ns.saturating_sub(since_ns));
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        if self.delivered_bytes <= expected(self.since_ns) {
            self.restart(sample.now_ns);
        }
        self.delivered_bytes += sample.newly_delivered_bytes;
        let extra = self.delivered_bytes.saturating_sub(expected(self.since_ns));
        let most = u64::try_from(times(rate, EXTRA_NS_MAX)).unwrap_or(u64::MAX).min(window_bytes);
        let [newer, older] = &mut self.best;
        if round >= newer.1 + lasts_rounds.div_ceil(2) {
            *older = *newer;
            *newer = (0, round);
        }
        if round > older.1 + 2 * lasts_rounds {
            older.0 = 0;
        }
        newer.0 = newer.0.max(extra.min(most));
    }

    pub(super) fn get(&self) -> u64 {
        self.best[0].0.max(self.best[1].0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_largest_rate_lasts_two_cycles() {
        let mut rate = MaxBandwidth::default();
        rate.on_sample(500);
        rate.advance();
        rate.on_sample(300);
        assert_eq!(rate.get(), 500);
        rate.advance();
        assert_eq!(rate.get(), 300);
        // A cycle without a sample forgets nothing.
        rate.advance();
        rate.advance();
        assert_eq!(rate.get(), 300);
    }

    #[test]
    fn what_comes_late_and_then_in_a_bunch_leaves_the_mean() {
        let mut mean = RoundMean::default();
        for rate in [900, 1100, 1000, 950, 1050] {
            let rate = RateSample {
                rate,
                delivered_bytes: 0,
                prior_delivered_bytes: 0,
                lost_bytes: 0,
                in_flight_bytes: 0,
                is_app_limited: false,
                late_ns: 0,
            };
            let sample =
                Sample { newly_delivered_bytes: 10, rate: Some(rate), ..Sample::default() };
            assert_eq!(mean.on_report(&sample, false), None);
        }
        assert_eq!(mean.on_report(&Sample::default(), true), Some((1000, false)));
        assert_eq!(mean.on_report(&Sample::default(), true), None);
    }

    #[test]
    fn a_round_trip_close_to_the_smallest_renews_it() {
        let mut min_rtt = MinRtt::default();
        min_rtt.on_report(0, Some(3200));
        for step in 1..10 {
            min_rtt.on_report(step * 4 * SECOND, Some(3300));
            assert!(!min_rtt.is_expired(), "{step}");
        }
        assert_eq!(min_rtt.get(), Some(3200));
        min_rtt.on_report(45 * SECOND, Some(3301));
        assert!(min_rtt.is_expired());
    }

    #[test]
    fn a_path_that_became_longer_is_noticed() {
        let mut min_rtt = MinRtt::default();
        min_rtt.on_report(0, Some(1000));
        for second in 1..30 {
            min_rtt.on_report(second * SECOND, Some(2000));
        }
        assert_eq!(min_rtt.get(), Some(2000));
    }
}
