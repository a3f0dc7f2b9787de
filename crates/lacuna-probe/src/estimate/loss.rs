//! Loss and its bursts: a Markov chain of two states, "came" and "lost", fitted to what was lost.
//!
//! The chain that loses everything in its bad state (Gilbert 1960) has two parameters, and their
//! likeliest values are two fractions: of the packets that came, the share behind which a burst
//! began, and of the lost ones, the share at which one ended. The mean burst is the inverse of the
//! latter.
//!
//! Losses in bursts say less about the loss than as many independent ones. The mean of a two-state
//! chain has the variance of an independent one times `(1 + c) / (1 - c)`, with `c` the correlation
//! of two packets in a row, one less both parameters; that is the design effect by which the number
//! of packets is divided for the interval. Where there are several trials, and they differ by more
//! than that explains, it is multiplied by as much (Pearson's statistic over its degrees of freedom,
//! as with any overdispersed binomial).
//!
//! With several flows the bursts are counted twice: in the order in which packets were sent over all
//! flows, which is right if they share the path, and within each flow, which is right if each has its
//! own. The other count breaks bursts up, so the longer mean is taken.

use super::{Estimate, share};

/// What was lost in a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LossCounts {
    /// Packets sent.
    pub sent: u64,
    /// Of these, lost.
    pub lost: u64,
    /// Runs of lost ones, in the order of sending or within the flows, whichever are fewer.
    pub bursts: u64,
}

/// The fitted chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BurstFit {
    /// Of the packets behind one that came, the share that is lost.
    pub begin: Estimate,
    /// Of the packets behind a lost one, the share that comes.
    pub end: Estimate,
    /// Mean number of packets that are lost in a row.
    pub mean_burst_packets: Estimate,
}

impl LossCounts {
    /// Several trials as one.
    #[must_use]
    pub fn sum<'c>(all: impl IntoIterator<Item = &'c Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, counts| Self {
            sent: sum.sent + counts.sent,
            lost: sum.lost + counts.lost,
            bursts: sum.bursts + counts.bursts,
        })
    }

    /// The chain; `None` if nothing was lost, or everything.
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

    /// How many packets tell as much as an independent one.
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

    /// The loss that several trials show together.
    #[must_use]
    pub fn loss_of_all(all: &[Self]) -> Estimate {
        let sum = Self::sum(all);
        let within = sum.design_effect();
        share(sum.lost as f64, sum.sent as f64, within * Self::dispersion(all, within))
    }

    /// By how much more trials differ than chance within them explains; 1 if it explains all.
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
