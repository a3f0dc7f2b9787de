//! The grace for reordering, RACK's reordering window (RFC 8985, section 6.2, step 4): the time in
//! which later packets may overtake one before it counts as lost. One per queue pair.
//!
//! The grace is zero while the peer has seen every packet come in order: the first packet after a
//! gap proves the loss, and repair costs one round trip. After reordering was seen, the grace is a
//! quarter of the smallest round trip. It grows by as much in each round trip in which packets
//! arrived twice (the sign of needless repairs, RFC 8985's DSACK), up to the smoothed round trip.

use crate::rtt::RttEstimator;

/// Round trips without duplicates after which the grace starts anew
/// (RFC 8985: 16 recoveries).
const PERSIST_RTTS: u64 = 16;

/// Reordering seen on a path.
#[derive(Debug, Clone, Default)]
pub(super) struct Reordering {
    is_seen: bool,
    /// Quarters of the smallest round trip, beyond the first.
    steps: u32,
    /// When `steps` last changed.
    changed_ns: u64,
}

impl Reordering {
    /// Takes in a report of one channel: the largest distance so far by which packets came late,
    /// and whether packets came twice since the last report.
    pub(super) fn on_report(
        &mut self,
        now_ns: u64,
        late_by_packets: u32,
        has_duplicates: bool,
        rtt: &RttEstimator,
    ) {
        self.is_seen |= late_by_packets > 0;
        let rtt_ns = rtt.smoothed_ns().unwrap_or(0);
        let since_ns = now_ns.saturating_sub(self.changed_ns);
        if has_duplicates {
            if since_ns >= rtt_ns {
                self.steps = self.steps.saturating_add(1);
                self.changed_ns = now_ns;
            }
        } else if since_ns >= PERSIST_RTTS * rtt_ns {
            self.steps = 0;
            self.changed_ns = now_ns;
        }
    }

    /// The current grace; 0 while everything came in order.
    pub(super) fn grace_ns(&self, rtt: &RttEstimator) -> u64 {
        if !self.is_seen {
            return 0;
        }
        let quarter_ns = rtt.min_ns().unwrap_or(0) / 4;
        let grace_ns = quarter_ns.saturating_mul(u64::from(self.steps) + 1);
        grace_ns.min(rtt.smoothed_ns().unwrap_or(0)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtt() -> RttEstimator {
        let mut rtt = RttEstimator::default();
        rtt.on_sample(0, 8000);
        rtt
    }

    #[test]
    fn in_order_needs_no_grace() {
        let mut reordering = Reordering::default();
        reordering.on_report(10_000, 0, true, &rtt());
        assert_eq!(reordering.grace_ns(&rtt()), 0);
    }

    #[test]
    fn the_grace_grows_with_duplicates_and_is_forgotten() {
        let mut reordering = Reordering::default();
        reordering.on_report(10_000, 1, false, &rtt());
        assert_eq!(reordering.grace_ns(&rtt()), 2000);
        reordering.on_report(20_000, 1, true, &rtt());
        assert_eq!(reordering.grace_ns(&rtt()), 4000);
        reordering.on_report(21_000, 1, true, &rtt());
        assert_eq!(reordering.grace_ns(&rtt()), 4000, "once per round trip");
        for round in 3..20 {
            reordering.on_report(round * 10_000, 1, true, &rtt());
        }
        assert_eq!(reordering.grace_ns(&rtt()), 8000, "never above a round trip");
        reordering.on_report(190_000 + PERSIST_RTTS * 8000, 1, false, &rtt());
        assert_eq!(reordering.grace_ns(&rtt()), 2000);
    }
}
