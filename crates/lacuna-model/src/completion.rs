//! The trait of all models: a distribution of completion times.

/// A distribution of completion times, in seconds.
pub trait Completion {
    /// The expected completion time.
    fn mean_s(&self) -> f64;

    /// The probability of being done by `time_s`.
    fn cdf(&self, time_s: f64) -> f64;

    /// The probability of not being done by `time_s`. Keeps its digits where [`Self::cdf`] rounds
    /// to 1.
    fn survival(&self, time_s: f64) -> f64 {
        1.0 - self.cdf(time_s)
    }

    /// Announces many calls of [`Self::survival`], so that their common part can be computed in advance.
    /// Changes results only by rounding.
    fn prepare(&self) {}

    /// The first time by which the message is done with at least this probability. 0 and less give
    /// the earliest possible time; 1 and more give infinity, unless there is a latest time.
    fn quantile_s(&self, probability: f64) -> f64;
}

/// Relative precision of a quantile found by bisection.
const PRECISION: f64 = 1e-12;

/// How much more than allowed may survive, as a fraction of it. A mixture of two halves that have
/// nothing in common survives with exactly one half for a while; without this, its median would be
/// any time of that while, as rounding has it, and not the first.
const SLACK: f64 = 1e-12;

/// The smallest time at which `survival` has fallen to `1 - probability`, between a time at which it has
/// not and infinity, to a relative precision of 1e-12. For distributions without a better method. The
/// search begins at the guess `likely_s`.
///
/// The bracket is narrowed by ITP (Oliveira and Takahashi, "An enhancement of the bisection method
/// average performance preserving minmax optimality", 2020): a handful of evaluations where the
/// distribution is smooth, and never more than one above halving where it is a staircase.
pub(crate) fn quantile_between(
    probability: f64,
    earliest_s: f64,
    likely_s: (f64, f64),
    survival: impl Fn(f64) -> f64,
) -> f64 {
    let allowed = (1.0 - probability.max(0.0)) * (1.0 + SLACK);
    if survival(earliest_s) <= allowed {
        return earliest_s;
    }
    if allowed <= 0.0 {
        return f64::INFINITY;
    }
    // Positive while too much survives. In logarithms a tail is nearer to a straight line.
    let excess = |time_s: f64| (survival(time_s) / allowed).max(f64::MIN_POSITIVE).ln();
    let (mut low, mut high) = (earliest_s, likely_s.1.max(earliest_s).max(f64::MIN_POSITIVE));
    let (mut at_low, mut at_high) = (excess(low), excess(high));
    while at_high > 0.0 {
        (low, at_low) = (high, at_high);
        high *= 2.0;
        if !high.is_finite() {
            return f64::INFINITY;
        }
        at_high = excess(high);
    }
    if low < likely_s.0 && likely_s.0 < high {
        let at_likely = excess(likely_s.0);
        if at_likely > 0.0 {
            (low, at_low) = (likely_s.0, at_likely);
        }
    }
    let precision = PRECISION * high;
    let first = high - low;
    let mut halvings = (first / precision).log2().ceil().max(0.0) + 1.0;
    while high - low > precision {
        let middle = low + (high - low) / 2.0;
        let falsi = (at_low * high - at_high * low) / (at_low - at_high);
        let towards = (middle - falsi).signum();
        // Interpolate, truncate towards the middle, project into what halving can still catch up.
        let truncated = 0.2 * (high - low).powi(2) / first;
        let estimate =
            if truncated <= (middle - falsi).abs() { falsi + towards * truncated } else { middle };
        let radius = (precision / 2.0 * halvings.exp2() - (high - low) / 2.0).max(0.0);
        let tried =
            if (estimate - middle).abs() <= radius { estimate } else { middle - towards * radius };
        let tried = if low < tried && tried < high { tried } else { middle };
        if middle <= low || middle >= high {
            break;
        }
        let at_tried = excess(tried);
        if at_tried > 0.0 {
            (low, at_low) = (tried, at_tried);
        } else {
            (high, at_high) = (tried, at_tried);
        }
        halvings -= 1.0;
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn smooth_tails_are_found_in_few_steps_and_staircases_in_as_many_as_halving() {
        for (survival, expected, most) in [
            ((|t: f64| (-t).exp()) as fn(f64) -> f64, 1000f64.ln(), 16),
            (|t: f64| if t < 7.25 { 1.0 } else { 0.0 }, 7.25, 48),
            (|t: f64| if t < 3.5 { 0.01 } else { 0.000_9 }, 3.5, 48),
        ] {
            for likely_s in [(0.0, 20.0), (0.0, 1.0), (6.0, 8.0)] {
                let count = Cell::new(0);
                let counted = |time_s| {
                    count.set(count.get() + 1);
                    survival(time_s)
                };
                let time_s = quantile_between(0.999, 0.0, likely_s, counted);
                assert!((time_s / expected - 1.0).abs() < 3e-12, "{time_s} {expected}");
                assert!(survival(time_s) <= 0.001 * (1.0 + 1e-9));
                assert!(count.get() <= most, "{} evaluations", count.get());
            }
        }
    }
}
