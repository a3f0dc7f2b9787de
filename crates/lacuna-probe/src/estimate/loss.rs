//! Estimates of loss and loss bursts: a two-state Markov chain ("arrived", "lost") is fitted to the
//! losses.
//!
//! The chain that loses all packets in its bad state (Gilbert 1960) has two parameters, whose maximum
//! likelihood estimates are two fractions: of the arrived packets, those that are followed by a burst;
//! and of the lost packets, those that end a burst. The mean burst length is the inverse of the latter.
//!
//! Losses in bursts say less about the loss rate than as many independent ones. The variance of the mean
//! of a two-state chain is that of independent samples times `(1 + c) / (1 - c)`, where `c`, the
//! correlation of two consecutive packets, is one minus both parameters. This design effect divides the
//! number of packets for the interval. If several trials differ by more than it explains, it is
//! multiplied accordingly (Pearson's statistic over its degrees of freedom, as for any overdispersed
//! binomial).
//!
//! With several flows, bursts are counted in two ways: in order of sending over all flows, which is right
//! if the flows share the path, and within each flow, which is right if each has its own. The wrong count
//! splits bursts, so the one with the longer mean is used.

use super::{Estimate, share};

/// Losses of a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Packets sent.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Loss bursts, in order of sending or within the flows, whichever are fewer.
    pub bursts: u64,
}

/// The fitted chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstFit {
    /// Probability that a packet after an arrived one is lost.
    pub begin: Estimate,
    /// Probability that a packet after a lost one arrives.
    pub end: Estimate,
    /// Mean length of a loss burst.
    pub mean_burst_packets: Estimate,
}

impl LossCounts {
    /// The sum of several trials.
    #[must_use]
    pub fn sum<'c>(all: impl IntoIterator<Item = &'c Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, counts| Self {
            sent: sum.sent + counts.sent,
            lost: sum.lost + counts.lost,
            bursts: sum.bursts + counts.bursts,
        })
    }

    /// Fits the chain; `None` if no packet was lost, or all were.
    #[must_use]
    pub fn fit(&self) -> Option<BurstFit> {
        let came = self.sent.saturating_sub(self.lost);
        if self.bursts == 0 || came == 0 {
            return None;
        }
        let begin = share(self.bursts as f64, came as f64, 1.0);
        let end = share(self.bursts as f64, self.lost as f64, 1.0);
        let mean_burst_packets = Estimate {
            value: 1.0 / end.value,
            low: 1.0 / end.high,
            high: 1.0 / end.low.max(f64::MIN_POSITIVE),
        };
        Some(BurstFit { begin, end, mean_burst_packets })
    }

    /// How many packets are worth one independent packet.
    #[must_use]
    pub fn design_effect(&self) -> f64 {
        let Some(fit) = self.fit() else { return 1.0 };
        let correlation = (1.0 - fit.begin.value - fit.end.value).clamp(0.0, 0.999_999);
        (1.0 + correlation) / (1.0 - correlation)
    }

    /// The loss of one trial.
    #[must_use]
    pub fn loss(&self) -> Estimate {
        share(self.lost as f64, self.sent as f64, self.design_effect())
    }

    /// The loss of several trials together.
    #[must_use]
    pub fn loss_of_all(all: &[Self]) -> Estimate {
        let sum = Self::sum(all);
        let within = sum.design_effect();
        share(sum.lost as f64, sum.sent as f64, within * Self::dispersion(all, within))
    }

    /// Overdispersion: the variance between trials over that explained within them; at least 1.
    fn dispersion(all: &[Self], within: f64) -> f64 {
        let sum = Self::sum(all);
        let used = all.iter().filter(|counts| counts.sent > 0);
        let freedom = used.clone().count().saturating_sub(1);
        let loss = sum.lost as f64 / (sum.sent as f64).max(1.0);
        if freedom == 0 || loss <= 0.0 || loss >= 1.0 {
            return 1.0;
        }
        let statistic: f64 = used
            .map(|counts| {
                let sent = counts.sent as f64;
                (counts.lost as f64 - sent * loss).powi(2) / (sent * loss * (1.0 - loss) * within)
            })
            .sum();
        (statistic / freedom as f64).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_link::{Loss, LossProcess, Prng};

    fn trial(loss: f64, burst: f64, packets: u64, seed: u64) -> LossCounts {
        let model = Loss::bursts(loss, burst).expect("such a chain exists");
        let mut process = LossProcess::new(model, Prng::new(seed, 0));
        let (mut counts, mut was_lost) =
            (LossCounts { sent: packets, ..Default::default() }, false);
        for _ in 0..packets {
            let is_lost = process.loses();
            counts.lost += u64::from(is_lost);
            counts.bursts += u64::from(is_lost && !was_lost);
            was_lost = is_lost;
        }
        counts
    }

    /// Of the intervals of this many measurements, how many hold the truth.
    fn coverage(holds: impl Fn(u64) -> bool) -> f64 {
        const RUNS: u64 = 1000;
        (0..RUNS).filter(|seed| holds(*seed)).count() as f64 / RUNS as f64
    }

    #[test]
    fn intervals_of_the_loss_hold_the_truth_as_often_as_they_say() {
        for (loss, burst, packets) in [
            (1e-2, 1.02, 5000),
            (1e-2, 4.0, 20_000),
            (5e-2, 8.0, 20_000),
            (1e-3, 3.0, 100_000),
            (0.3, 5.0, 5000),
        ] {
            let held = coverage(|seed| trial(loss, burst, packets, seed).loss().holds(loss));
            assert!((0.92..0.985).contains(&held), "{loss} in bursts of {burst}: {held}");
        }
    }

    #[test]
    fn without_the_design_effect_bursts_would_make_intervals_too_narrow() {
        let plain = coverage(|seed| {
            let counts = trial(1e-2, 8.0, 20_000, seed);
            share(counts.lost as f64, counts.sent as f64, 1.0).holds(1e-2)
        });
        assert!(plain < 0.7, "{plain}");
    }

    #[test]
    fn intervals_of_the_burst_hold_the_truth_as_often_as_they_say() {
        for (loss, burst, packets) in
            [(1e-2, 4.0, 20_000), (5e-2, 8.0, 20_000), (1e-2, 1.02, 20_000), (1e-3, 3.0, 100_000)]
        {
            let held = coverage(|seed| {
                let fit = trial(loss, burst, packets, seed).fit();
                fit.is_some_and(|fit| fit.mean_burst_packets.holds(burst))
            });
            assert!((0.92..0.99).contains(&held), "{loss} in bursts of {burst}: {held}");
        }
    }

    #[test]
    fn trials_that_differ_widen_the_interval() {
        let trial = |lost| LossCounts { sent: 10_000, lost, bursts: lost };
        let alike = LossCounts::loss_of_all(&[trial(100), trial(98), trial(102)]);
        let unlike = LossCounts::loss_of_all(&[trial(10), trial(90), trial(200)]);
        assert!((alike.value - unlike.value).abs() < 1e-12);
        assert!(unlike.high - unlike.low > 5.0 * (alike.high - alike.low), "{unlike:?}");
        // As if it were one.
        let one = LossCounts { sent: 30_000, lost: 300, bursts: 300 }.loss();
        assert!((alike.high - one.high).abs() < 1e-9);
    }

    #[test]
    fn nothing_lost_has_no_bursts_and_bounds_the_loss() {
        let clean = LossCounts { sent: 10_000, lost: 0, bursts: 0 };
        assert_eq!(clean.fit(), None);
        let loss = clean.loss();
        assert_eq!((loss.value, loss.low), (0.0, 0.0));
        assert!((3e-4..5e-4).contains(&loss.high), "{loss:?}");
        let dark = LossCounts { sent: 100, lost: 100, bursts: 1 };
        assert_eq!((dark.fit(), dark.loss().high), (None, 1.0));
        assert!(LossCounts::default().loss().holds(0.5), "nothing sent says nothing");
    }
}
