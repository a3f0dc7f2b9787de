//! Loss estimate: the loss rate of the path and the mean length of loss bursts. It comes from the
//! peer's counts, whether or not parity or a retransmission repaired a loss.
//!
//! Evidence has two parts: *recent*, the last few thousand packets, and *past*. While they agree,
//! both count, and recent is added to past when it is full. While recent differs from past by more
//! than chance allows, recent counts alone, and past is discarded if the difference stays. So the
//! estimate of a steady path improves with time, and a change shows within one recent part. The
//! weight of past decays with time, because the path may change while it is unused.
//!
//! Burst length: each report with losses mostly covers one burst, since a gap makes the peer report
//! soon. Some reports cover several bursts; their expected number follows from the packets that the
//! report covers and the rate of bursts.
//!
//! A late packet counts as missing for a short time. The total of losses may fall again, and the
//! estimate follows it.

/// Packets of the recent part.
const RECENT_PACKETS: f64 = 4096.0;
/// Largest weight of the past, in packets. A change to twice the loss shows at this weight anyway;
/// a larger one would only hide a drift for longer.
const PAST_PACKETS_MAX: f64 = 1e6;
/// Prior of an unknown path: a quarter of a loss in five hundred packets. Most paths lose nothing,
/// some lose one in a hundred.
const PRIOR_LOST: f64 = 0.25;
const PRIOR_PACKETS: f64 = 500.0;
/// Time in which past loses half of its weight.
const HALF_LIFE_NS: f64 = 30e9;
/// Difference between recent and past that chance allows: standard deviations, and bursts besides.
const CHANCE_DEVIATIONS: f64 = 4.0;
const CHANCE_LOSSES: f64 = 3.0;

#[derive(Debug, Clone, Copy, Default)]
struct Evidence {
    packets: f64,
    lost: f64,
    bursts: f64,
}

/// Estimate of loss rate and burst length.
#[derive(Debug, Clone, Default)]
pub struct LossEstimate {
    recent: Evidence,
    past: Evidence,
    faded_ns: u64,
}

impl Evidence {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.lost += other.lost;
        self.bursts += other.bursts;
    }

    /// Mean losses in a row, with a prior of one burst of one loss.
    fn burst_packets(&self) -> f64 {
        (self.lost + 1.0) / (self.bursts.min(self.lost) + 1.0)
    }

    /// Subtracts losses whose packets came late. Returns how many exceed those of this part.
    fn take_back(&mut self, lost: f64) -> f64 {
        let taken = lost.min(self.lost);
        if taken > 0.0 {
            self.bursts *= 1.0 - taken / self.lost;
            self.lost -= taken;
        }
        lost - taken
    }

    fn scale(&mut self, factor: f64) {
        *self = Self {
            packets: self.packets * factor,
            lost: self.lost * factor,
            bursts: self.bursts * factor,
        };
    }
}

impl LossEstimate {
    /// Starts with remembered losses, as if `packets` packets had shown them.
    pub fn start_at(&mut self, loss: f64, burst_packets: f64, packets: f64) {
        let lost = loss.clamp(0.0, 1.0) * packets;
        self.past = Evidence { packets, lost, bursts: lost / burst_packets.max(1.0) };
    }

    /// A report covers `packets` more than the one before, and the total of losses has changed by
    /// `lost`.
    pub(super) fn on_report(&mut self, now_ns: u64, packets: u64, lost: i64) {
        self.fade(now_ns);
        self.recent.packets += packets as f64;
        if lost > 0 {
            let lost = lost as f64;
            let x = self.bursts_per_packet() * packets as f64;
            // Mean number of bursts in a report that has any.
            let bursts = if x < 1e-6 { 1.0 } else { x / -(-x).exp_m1() };
            self.recent.lost += lost;
            // This may exceed one report's losses, but it is right for the sum of many reports.
            self.recent.bursts = (self.recent.bursts + bursts).min(self.recent.lost);
        } else if lost < 0 {
            let left = self.recent.take_back(-lost as f64);
            self.past.take_back(left);
        }
        if self.recent.packets >= RECENT_PACKETS {
            self.fold_recent();
        }
    }

    fn fold_recent(&mut self) {
        if self.has_changed() {
            self.past = Evidence::default();
        }
        let recent = std::mem::take(&mut self.recent);
        self.past.add(recent);
        if self.past.packets > PAST_PACKETS_MAX {
            self.past.scale(PAST_PACKETS_MAX / self.past.packets);
        }
    }

    /// Whether recent differs from past by more than chance.
    fn has_changed(&self) -> bool {
        if self.past.packets < 1.0 {
            return false;
        }
        let burst = self.past.burst_packets().max(self.recent.burst_packets());
        let expected = self.recent.packets * self.past.lost / self.past.packets;
        // The variance grows with the length of the bursts, and the expected value has one of its
        // own, which falls with the weight of the past.
        let variance = expected * burst * (1.0 + self.recent.packets / self.past.packets);
        let by_chance = CHANCE_DEVIATIONS * variance.sqrt() + CHANCE_LOSSES * burst;
        (self.recent.lost - expected).abs() > by_chance
    }

    fn fade(&mut self, now_ns: u64) {
        let since_ns = now_ns.saturating_sub(self.faded_ns);
        // Not for each report, because rounding errors would add up.
        if since_ns as f64 > HALF_LIFE_NS / 64.0 {
            if self.faded_ns > 0 {
                self.past.scale((-(since_ns as f64) / HALF_LIFE_NS).exp2());
            }
            self.faded_ns = now_ns;
        }
    }

    fn bursts_per_packet(&self) -> f64 {
        (PRIOR_LOST + self.counted().bursts) / self.evidence_packets()
    }

    /// The evidence that counts now.
    fn counted(&self) -> Evidence {
        let mut counted = self.recent;
        if !self.has_changed() {
            counted.add(self.past);
        }
        counted
    }

    /// Weight of the evidence in packets, the prior included.
    pub fn evidence_packets(&self) -> f64 {
        PRIOR_PACKETS + self.seen_packets()
    }

    /// Weight of the evidence in packets, without the prior.
    pub fn seen_packets(&self) -> f64 {
        self.counted().packets
    }

    /// Lost packets among [`LossEstimate::evidence_packets`], the prior's included.
    pub fn lost_packets(&self) -> f64 {
        PRIOR_LOST + self.counted().lost
    }

    /// Share of lost packets, without the prior.
    pub fn loss(&self) -> f64 {
        let counted = self.counted();
        if counted.packets > 0.0 { counted.lost / counted.packets } else { 0.0 }
    }

    /// Mean losses in a row.
    pub fn burst_packets(&self) -> f64 {
        self.counted().burst_packets()
    }

    /// Mean losses in a row without the prior, for the path memory: each stored value starts the next
    /// estimate, so the prior would be added again and again.
    pub fn seen_burst_packets(&self) -> f64 {
        let Evidence { lost, bursts, .. } = self.counted();
        if bursts > 0.0 { (lost / bursts).max(1.0) } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::PathLosses;
    use lacuna_link::SplitMix64;

    /// Feeds reports of `per_report` packets of a path with these bursts per
    /// packet and their length.
    fn feed(estimate: &mut LossEstimate, packets: u64, bursts_ppm: u32, length: i64) {
        feed_reports(estimate, 24, packets, bursts_ppm, length);
    }

    fn feed_reports(
        estimate: &mut LossEstimate,
        per_report: u64,
        packets: u64,
        bursts_ppm: u32,
        length: i64,
    ) {
        let mut rng = SplitMix64::new(7);
        for report in 0..packets / per_report {
            let bursts = (0..per_report).filter(|_| rng.chance(bursts_ppm)).count() as i64;
            estimate.on_report(1 + report * 300_000, per_report, bursts * length);
        }
    }

    fn loss(estimate: &LossEstimate) -> f64 {
        estimate.lost_packets() / estimate.evidence_packets()
    }

    #[test]
    fn loss_and_bursts_are_found() {
        for (bursts_ppm, length, expected) in [(10_000, 1, 1e-2), (1000, 1, 1e-3), (1000, 8, 8e-3)]
        {
            let mut estimate = LossEstimate::default();
            feed(&mut estimate, 500_000, bursts_ppm, length);
            let ratio = loss(&estimate) / expected;
            assert!((0.85..1.15).contains(&ratio), "{ratio} of {expected}");
            let ratio = estimate.burst_packets() / length as f64;
            assert!((0.85..1.15).contains(&ratio), "{ratio} of bursts of {length}");
        }
    }

    #[test]
    fn several_losses_in_a_report_are_no_burst() {
        for (per_report, bursts_ppm) in [(24, 10_000), (88, 10_000), (24, 50_000)] {
            let mut estimate = LossEstimate::default();
            feed_reports(&mut estimate, per_report, 50_000, bursts_ppm, 1);
            let burst = estimate.burst_packets();
            assert!(burst < 1.1, "{per_report} packets, {bursts_ppm} ppm: {burst}");
        }
    }

    #[test]
    fn a_path_that_begins_to_lose_is_noticed_within_a_part() {
        let mut estimate = LossEstimate::default();
        feed(&mut estimate, 2_000_000, 0, 1);
        assert!(loss(&estimate) < 1e-6);
        feed(&mut estimate, 2000, 10_000, 1);
        assert!((5e-3..2e-2).contains(&loss(&estimate)), "{}", loss(&estimate));
    }

    #[test]
    fn a_path_that_has_stopped_losing_is_noticed() {
        let mut estimate = LossEstimate::default();
        feed(&mut estimate, 200_000, 10_000, 1);
        feed(&mut estimate, 2 * RECENT_PACKETS as u64, 0, 1);
        assert!(loss(&estimate) < 1e-3, "{}", loss(&estimate));
    }

    #[test]
    fn what_came_late_does_not_count() {
        let mut estimate = LossEstimate::default();
        for report in 0..100 {
            estimate.on_report(report * 1000, 20, if report % 2 == 0 { 3 } else { -3 });
        }
        assert!(estimate.lost_packets() < 1.0);
    }

    #[test]
    fn evidence_fades() {
        let mut estimate = LossEstimate::default();
        feed(&mut estimate, 100_000, 1000, 1);
        let before = estimate.evidence_packets();
        estimate.on_report(200_000_000_000, 1, 0);
        assert!(estimate.evidence_packets() < before / 10.0);
    }

    /// A connection for each message of 1 MiB, over a path with these bursts; what is
    /// remembered before the first and after the last.
    fn remembered(mut losses: PathLosses, messages: usize, ppm: u32, length: i64) -> PathLosses {
        let mut rng = SplitMix64::new(7);
        for _ in 0..messages {
            let mut estimate = LossEstimate::default();
            estimate.start_at(losses.loss(), losses.burst_packets(), losses.evidence_packets(0));
            for report in 0..730 / 24 {
                let bursts = (0..24).filter(|_| rng.chance(ppm)).count() as i64;
                estimate.on_report(1 + report * 300_000, 24, bursts * length);
            }
            losses = PathLosses::of(&estimate);
        }
        losses
    }

    #[test]
    fn bursts_are_remembered_from_message_to_message() {
        for messages in [1, 10, 100, 200] {
            let losses = remembered(PathLosses::new(1e-3, 8.0, 1e5), messages, 125, 8);
            let burst = losses.burst_packets();
            assert!((7.5..8.5).contains(&burst), "after {messages}: {burst}");
        }
    }

    #[test]
    fn a_clean_path_that_begins_to_lose_is_noticed_over_short_messages() {
        for (ppm, length) in [(1000, 1), (250, 8)] {
            let losses = remembered(PathLosses::new(0.0, 1.0, 1e5), 12, ppm, length);
            let share = losses.loss() * 1e6 / (f64::from(ppm) * length as f64);
            assert!(share > 0.5, "{share} of {ppm} bursts of {length}");
        }
    }

    #[test]
    fn what_is_remembered_is_believed_until_seen_otherwise() {
        let mut estimate = LossEstimate::default();
        estimate.start_at(1e-2, 4.0, 1000.0);
        assert!((5e-3..1.5e-2).contains(&loss(&estimate)));
        assert!((2.0..5.0).contains(&estimate.burst_packets()));
        feed(&mut estimate, 2 * RECENT_PACKETS as u64, 0, 1);
        assert!(loss(&estimate) < 2e-3, "{}", loss(&estimate));
    }
}
