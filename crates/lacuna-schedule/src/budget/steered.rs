//! What the steered rule learns: how full times are distributed, in medians, and what it owes to its target.
//!
//! A timeout of `x` medians cuts off `1 - x / r` of the bytes of a rank that needs `r`. A histogram of `r`
//! that forgets says which `x` would have cut off the target on average. Estimates of ranks that were cut
//! off are coarse, so what really was late is summed up besides, and paid back slowly: the average meets the
//! target whatever the histogram believes.
//!
//! The time is never shorter than [`FLOOR_MEDIANS`]: where nothing is late nothing needs to be cut off, and what
//! calm weather does not lose is left for bursts, since the histogram has both.
//!
//! Tried before: `x` moved by what was late beyond the target in each step. It swings in bursts: at equal
//! loss, p99 was 20 to 45 % longer than with a fixed `x`. A memory of 8,000 steps without a floor, paid back
//! both ways at once: p99 was 12 % longer in bursts, and 60 % where calm and bursts alternate, since the target
//! was spent on calm times. An aim that begins at twice the target and falls to it: p99 as with a fixed `x`
//! where weather changes, but up to 14 % longer in bursts, so it was left out.

/// A weight is forgotten by a factor of e in so many steps. By the table of `experiment` and three seeds: at equal
/// loss, p99 is 5 to 10 % longer than with the best fixed time in bursts, and 3 to 4 % longer where weather
/// changes; for 20,000 it is 5 to 10 % and 7 to 10 %. The floor and what is owed follow a change sooner.
const MEMORY_STEPS: f64 = 60_000.0;

/// What was late is summed up over so many steps of the target at most. Judgement: two changes of weather.
const PAYBACK_STEPS: f64 = 8000.0;

/// What is owed below so many steps of the target is chance: in bursts, its standard deviation is two thirds of
/// that.
const BAND_STEPS: f64 = 2000.0;

/// The shortest timeout: the margin that OptiNIC gives a first one (3.1.2).
const FLOOR_MEDIANS: f64 = 1.0 + super::GAMMA_FIRST_MIN;

/// Width of a bin, and their number: up to `1.005^278 = 4` medians.
const BIN_RATIO: f64 = 1.005;
const BINS: usize = 278;

/// How far the aim may fall to pay back, in targets.
const AIM_MIN: f64 = 0.25;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Steering {
    target: f64,
    /// Weights of times from `BIN_RATIO^i` medians on; what is shorter has none but counts in the total.
    bins: Vec<f64>,
    total: f64,
    /// What was late beyond the target, in steps.
    debt: f64,
}

impl Steering {
    pub(super) fn new(target: f64) -> Self {
        Self { target, bins: vec![0.0; BINS], total: 0.0, debt: 0.0 }
    }

    /// Full times of the ranks in a step, in medians.
    pub(super) fn learn(&mut self, ratios: impl Iterator<Item = f64>) {
        let keep = 1.0 - 1.0 / MEMORY_STEPS;
        self.bins.iter_mut().for_each(|weight| *weight *= keep);
        self.total *= keep;
        for ratio in ratios {
            self.total += 1.0;
            let bin = (ratio.ln() / BIN_RATIO.ln()).floor();
            if bin >= 0.0 {
                self.bins[(bin as usize).min(BINS - 1)] += 1.0;
            }
        }
    }

    /// What was late in a step.
    pub(super) fn owe(&mut self, late: f64) {
        self.debt += late - self.target;
        // What cannot be paid back in that time is forgiven.
        let most = self.target * PAYBACK_STEPS;
        self.debt = self.debt.clamp(-most, most);
    }

    /// The timeout, in medians.
    pub(super) fn medians(&self) -> f64 {
        let beyond = (self.debt - BAND_STEPS * self.target).max(0.0);
        let aim = self.target - beyond / (PAYBACK_STEPS / 2.0);
        let aim = aim.max(AIM_MIN * self.target);
        // From the longest times on: `late` is what a timeout at the end of a bin cuts off, for `weight` times
        // beyond it.
        let (mut weight, mut inverse) = (0.0, 0.0);
        let mut low = BIN_RATIO.powi(BINS as i32);
        for here in self.bins.iter().rev() {
            low /= BIN_RATIO;
            let middle = low * (1.0 + BIN_RATIO) / 2.0;
            // All beyond this bin, and those in it as if they were in its middle.
            let (with, with_inverse) = (weight + here, inverse + here / middle);
            if with - low * with_inverse > aim * self.total {
                // Between the ends of the bin the loss is linear in the timeout.
                let x = (with - aim * self.total) / with_inverse;
                return x.clamp(low, low * BIN_RATIO).max(FLOOR_MEDIANS);
            }
            (weight, inverse) = (with, with_inverse);
        }
        FLOOR_MEDIANS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_cuts_the_target_off_what_was_seen() {
        let mut steering = Steering::new(0.01);
        assert_eq!(steering.medians(), 1.25, "where nothing is late");
        // One in twenty takes twice as long: 1 / 20 (1 - x / 2) = 0.01 for x = 1.6.
        let times = || (0..20).map(|i| if i == 0 { 2.0 } else { 1.0 });
        (0..100).for_each(|_| steering.learn(times()));
        assert!((steering.medians() - 1.6).abs() < 0.02, "{}", steering.medians());
        // More was late than that: a longer time, until it is paid back.
        steering.owe(19.0);
        assert!((steering.medians() - 1.6).abs() < 0.02, "chance");
        steering.owe(21.0);
        let longer = steering.medians();
        assert!(longer > 1.65, "{longer}");
        (0..2000).for_each(|_| steering.owe(0.0));
        assert!((steering.medians() - 1.6).abs() < 0.02);
    }
}
