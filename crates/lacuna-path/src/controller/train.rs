//! The rate of a path from the dispersion of a packet train: packets that leave together arrive spread
//! out by the slowest link (Keshav 1991; Dovrolis, Ramanathan and Moore 2001, section 4).
//!
//! The train is the first flight of a flow. Reports say how much of it had arrived, and when. The
//! rate is the bytes after the first report divided by the time after it; the first report's own
//! bytes are left out, because the beginning of their arrival is not known. A train sent more
//! slowly than the path carries shows the sender's rate. So a train never shows less than the rate
//! of sending, nor more than the path carries, except for errors of the hosts' clocks. Cross
//! traffic between the packets makes the path look slower, so the rate has to be validated.
//!
//! The link, or a host, may stand still while a train arrives. Then nothing arrives for a while,
//! and what waited arrives at once. A slow path shows no such gap: reports come every millisecond,
//! and if packets arrive in bunches, the bunches are alike. So after a gap the path carries the
//! train's rate at least, and maybe several times as much. The parts before and after the gap are
//! not believed instead: on a shared radio link, packets arrive in such parts, too.

use super::super::delivery::rate_of;

/// Error of a train's time on a host without kernel timestamps of arrivals: a wake-up of the
/// receiver before the first packet.
const WAKE_UP_NS: u64 = 25_000;
/// Shortest spread that is measured: several wake-ups.
const SPREAD_NS_MIN: u64 = 150_000;
/// Spread from which on this error is no reason not to jump: a rate that is too high shows as a
/// queue at once. Measured: M-bbr-13.
const SPREAD_NS_EXACT: u64 = 250_000;
/// Longest time that a host takes to send a train.
const SENT_TOGETHER_NS: u64 = 200_000;
/// Fewest bytes after the first report for an estimate.
const BYTES_MIN: u64 = 16 << 10;

/// Shortest time without arrivals that may be a gap: longer than a report waits, and this part of
/// the train's time.
const GAP_NS_MIN: u64 = 1_500_000;
const GAP_PERCENT: u64 = 67;
/// It is a gap if this many times as many bytes came after it as with the first report, or if what
/// came before it came this many times as fast as the whole.
const GAP_TIMES: u64 = 2;

/// A gap is judged only after this many of the first train's 128 KiB: the rest may arrive as
/// slowly.
const WHOLE_BYTES: u64 = 96 << 10;

/// A train that is arriving.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Train {
    /// When its first packets were sent.
    sent_ns: u64,
    /// Bytes delivered before its first report.
    from_bytes: u64,
    /// Arrival and total delivered of its first report, and of the latest.
    first: Option<(u64, u64)>,
    last: (u64, u64),
    /// The longest time between the arrivals of two reports, and the earlier one.
    gap_ns: u64,
    before_gap: (u64, u64),
}

/// The rate that a train shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Estimate {
    /// Bytes per second.
    pub(super) rate: u64,
    /// Whether the train was long enough for an exact rate.
    pub(super) is_exact: bool,
    /// There was a gap, and the path may carry much more.
    pub(super) is_doubtful: bool,
}

impl Train {
    /// Whether packets sent at `sent_ns` that arrived by `arrived_ns` belong to the train: later
    /// ones show the sender's pauses, not the path.
    pub(super) fn holds(&self, sent_ns: u64, arrived_ns: u64) -> bool {
        let Some((first_ns, _)) = self.first else { return true };
        let left_ns = sent_ns.saturating_sub(self.sent_ns);
        left_ns <= SENT_TOGETHER_NS.max(arrived_ns.saturating_sub(first_ns) / 4)
    }

    /// Takes in a report: `delivered_bytes` in all had arrived by `arrived_ns`, of which the newest
    /// were sent at `sent_ns`.
    pub(super) fn on_report(
        &mut self,
        sent_ns: u64,
        arrived_ns: u64,
        delivered_bytes: u64,
        newly_bytes: u64,
    ) {
        if self.first.is_none() {
            self.sent_ns = sent_ns;
            self.from_bytes = delivered_bytes.saturating_sub(newly_bytes);
            self.first = Some((arrived_ns, delivered_bytes));
        }
        if delivered_bytes > self.last.1 {
            let gap_ns = arrived_ns.saturating_sub(self.last.0);
            if self.last.1 > 0 && gap_ns > self.gap_ns {
                (self.gap_ns, self.before_gap) = (gap_ns, self.last);
            }
            self.last = (arrived_ns.max(self.last.0), delivered_bytes);
        }
    }

    /// Bytes that came after its first report.
    pub(super) fn bytes(&self) -> u64 {
        self.first.map_or(0, |(_, first_bytes)| self.last.1.saturating_sub(first_bytes))
    }

    /// The rate, once the train is long enough to tell.
    pub(super) fn estimate(&self) -> Option<Estimate> {
        let estimate = self.estimate_until(self.last)?;
        Some(Estimate { is_doubtful: self.has_gap(estimate.rate), ..estimate })
    }

    /// Whether there is a gap in a train that seems to have arrived at this rate.
    fn has_gap(&self, rate: u64) -> bool {
        let Some((first_ns, first_bytes)) = self.first else { return false };
        if self.last.1.saturating_sub(self.from_bytes) < WHOLE_BYTES {
            return false;
        }
        let spread_ns = self.last.0.saturating_sub(first_ns);
        let behind_bytes = self.last.1.saturating_sub(self.before_gap.1);
        let is_long =
            u128::from(self.gap_ns) * 100 >= u128::from(spread_ns) * u128::from(GAP_PERCENT);
        let waited = behind_bytes / GAP_TIMES >= first_bytes.saturating_sub(self.from_bytes);
        let before = || self.estimate_until(self.before_gap);
        let is_slower = || before().is_some_and(|before| before.rate / GAP_TIMES >= rate);
        self.gap_ns >= GAP_NS_MIN && is_long && (waited || is_slower())
    }

    fn estimate_until(&self, (last_ns, last_bytes): (u64, u64)) -> Option<Estimate> {
        let (first_ns, first_bytes) = self.first?;
        let spread_ns = last_ns.saturating_sub(first_ns);
        let bytes = last_bytes.saturating_sub(first_bytes);
        if spread_ns < SPREAD_NS_MIN || bytes < BYTES_MIN {
            return None;
        }
        let rate = rate_of(bytes, spread_ns + WAKE_UP_NS);
        Some(Estimate { rate, is_exact: spread_ns >= SPREAD_NS_EXACT, is_doubtful: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_of_a_train_is_the_rate() {
        let mut train = Train::default();
        // 125 MB/s: a millisecond and a half after the first report.
        train.on_report(0, 40_000_000, 20_000, 20_000);
        train.on_report(0, 41_000_000, 145_000, 125_000);
        train.on_report(100_000, 41_500_000, 207_500, 62_500);
        let Estimate { rate, is_exact, .. } = train.estimate().unwrap();
        assert!(is_exact);
        assert!((120_000_000..=125_000_000).contains(&rate), "{rate}");
    }

    #[test]
    fn what_left_later_is_of_no_train() {
        let mut train = Train::default();
        train.on_report(0, 40_000_000, 20_000, 20_000);
        assert!(train.holds(150_000, 40_100_000));
        assert!(train.holds(1_000_000, 44_000_000), "a slow path: it left well before");
        assert!(!train.holds(20_000_000, 60_000_000));
    }

    #[test]
    fn what_comes_at_once_says_nothing() {
        let mut train = Train::default();
        train.on_report(0, 40_000_000, 60_000, 60_000);
        train.on_report(0, 40_010_000, 130_000, 70_000);
        assert_eq!(train.estimate(), None);
    }

    #[test]
    fn a_gap_leaves_a_doubt() {
        let is_doubtful = |train: &Train| train.estimate().unwrap().is_doubtful;
        let mut train = Train::default();
        train.on_report(0, 40_000_000, 20_000, 20_000);
        train.on_report(0, 40_500_000, 82_500, 62_500);
        assert!(!is_doubtful(&train));
        // The rest waited for 3 ms.
        train.on_report(0, 43_500_000, 115_000, 32_500);
        assert!(is_doubtful(&train));
        // Almost all of it waited.
        let mut train = Train::default();
        train.on_report(0, 40_000_000, 20_000, 20_000);
        train.on_report(0, 43_500_000, 150_000, 130_000);
        assert!(is_doubtful(&train));
        // As much again comes as slowly.
        train.on_report(0, 46_500_000, 280_000, 130_000);
        assert!(!is_doubtful(&train));
    }

    #[test]
    fn a_slow_path_has_no_gap() {
        // 5 Mbit/s, a packet every 2.4 ms; and 100 Mbit/s, a bundle every 5.2 ms.
        for (every_ns, bytes) in [(2_400_000, 1_500), (5_200_000, 65_000)] {
            let mut train = Train::default();
            for bunch in 1..40 {
                train.on_report(0, 40_000_000 + bunch * every_ns, 500_000 + bunch * bytes, bytes);
                assert!(train.estimate().is_none_or(|estimate| !estimate.is_doubtful));
            }
            assert!(train.estimate().unwrap().is_exact);
        }
    }
}
