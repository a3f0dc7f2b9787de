//! A distribution whose logarithm rises in straight ramps: that of the last of many things, where the
//! things of a group are alike and reach their next stage one behind the other at a steady pace.
//!
//! The file stores how much the logarithm still has to rise: near certainty that is a small number, which
//! a difference of large ones would lose.

use crate::completion::quantile_between;

/// Where so much of `ln F` is left, `F` is no part of an integral of `1 - F`.
const NEVER: f64 = 45.0;

/// A rise this small is integrated by its middle.
const FLAT: f64 = 1e-4;

/// Between these times `ln F` rises by this much. They may be one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ramp {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) gain: f64,
}

/// See the module's text. Nothing is done before the start.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Ramps {
    start_s: f64,
    ramps: Vec<Ramp>,
}

impl Ramp {
    /// The part of the gain that is still to come.
    fn left(&self, time_s: f64) -> f64 {
        if time_s >= self.to_s {
            0.0
        } else if time_s <= self.from_s {
            self.gain
        } else {
            self.gain * (self.to_s - time_s) / (self.to_s - self.from_s)
        }
    }
}

impl Ramps {
    pub(super) fn new(start_s: f64, mut ramps: Vec<Ramp>) -> Self {
        ramps.retain(|ramp| ramp.gain > 0.0);
        Self { start_s, ramps }
    }

    pub(super) fn start_s(&self) -> f64 {
        self.start_s
    }

    /// `ln P(done)`.
    pub(super) fn ln_cdf(&self, time_s: f64) -> f64 {
        // A time that was computed by another way as one of these is that one.
        let time_s = time_s * (1.0 + 8.0 * f64::EPSILON);
        if time_s < self.start_s {
            return f64::NEG_INFINITY;
        }
        -self.ramps.iter().map(|ramp| ramp.left(time_s)).sum::<f64>()
    }

    pub(super) fn mean_s(&self) -> f64 {
        // When the slope changes, by how much, and what is gained at once.
        let mut bends: Vec<(f64, f64, f64)> = Vec::with_capacity(2 * self.ramps.len());
        for ramp in &self.ramps {
            let (from_s, left) = (ramp.from_s.max(self.start_s), ramp.left(self.start_s));
            if ramp.to_s > from_s {
                let slope = left / (ramp.to_s - from_s);
                bends.extend([(from_s, slope, 0.0), (ramp.to_s, -slope, 0.0)]);
            } else if ramp.to_s > self.start_s {
                bends.push((ramp.to_s, 0.0, left));
            }
        }
        bends.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Backwards from certainty, as what is left is kept.
        let (mut sum_s, mut slope, mut left) = (0.0, 0.0, 0.0);
        for (index, (at_s, change, gain)) in bends.iter().enumerate().rev() {
            slope = f64::max(slope - change, 0.0);
            left += gain;
            let before_s = index.checked_sub(1).map_or(self.start_s, |before| bends[before].0);
            let length_s = at_s - before_s;
            let rise = slope * length_s;
            sum_s += length_s * mean_lost(left, rise);
            left += rise;
        }
        self.start_s + sum_s
    }

    pub(super) fn quantile_s(&self, probability: f64) -> f64 {
        let last_s = self.ramps.iter().fold(self.start_s, |last_s, ramp| last_s.max(ramp.to_s));
        let likely_s = (self.start_s, last_s * (1.0 + 1e-9));
        quantile_between(probability, self.start_s, likely_s, |time_s| {
            -self.ln_cdf(time_s).exp_m1()
        })
    }
}

/// The mean of `1 - e^x` over `x` from `-left - rise` to `-left`.
fn mean_lost(left: f64, rise: f64) -> f64 {
    if left > NEVER {
        1.0
    } else if rise < FLAT {
        -(-left - rise / 2.0).exp_m1()
    } else {
        1.0 + (-left).exp() * (-rise).exp_m1() / rise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramps() -> Ramps {
        let ramp = |from_s, to_s, gain| Ramp { from_s, to_s, gain };
        Ramps::new(1.0, vec![ramp(1.0, 2.0, 5.0), ramp(1.5, 1.5, 0.5), ramp(3.0, 4.0, 0.01)])
    }

    #[test]
    fn the_mean_is_the_integral_of_what_is_not_done() {
        let ramps = ramps();
        let steps = 400_000;
        let step_s = 3.0 / f64::from(steps);
        let times = (0..steps).map(|i| 1.0 + (f64::from(i) + 0.5) * step_s);
        let sum: f64 = times.map(|time_s| -ramps.ln_cdf(time_s).exp_m1() * step_s).sum();
        assert!((ramps.mean_s() / (1.0 + sum) - 1.0).abs() < 1e-6, "{} {sum}", ramps.mean_s());
    }

    #[test]
    fn quantiles_invert_the_distribution_and_jumps_are_reached_at_once() {
        let ramps = ramps();
        for probability in [0.01, 0.5, 0.9, 0.99, 0.999] {
            let time_s = ramps.quantile_s(probability);
            assert!((ramps.ln_cdf(time_s).exp() - probability).abs() < 1e-9, "{probability}");
        }
        let jump = Ramps::new(1.0, vec![Ramp { from_s: 2.0, to_s: 2.0, gain: 1.0 }]);
        assert_eq!((jump.quantile_s(0.3), jump.quantile_s(0.0)), (1.0, 1.0));
        assert!((jump.quantile_s(0.5) - 2.0).abs() < 1e-9);
        assert!((jump.mean_s() - (1.0 + 1.0 - (-1f64).exp())).abs() < 1e-12);
        assert_eq!(Ramps::new(3.0, vec![]).mean_s(), 3.0);
    }
}
