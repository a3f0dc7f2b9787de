//! What every model answers: a distribution of completion times.

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

    /// The first time by which the message is done with at least this probability. 0 and less give
    /// the earliest possible time; 1 and more give infinity, unless there is a latest time.
    fn quantile_s(&self, probability: f64) -> f64;
}

/// The smallest time at which `survival` has fallen to `1 - probability`, between a time at which
/// it has not and infinity, to 1e-13 of itself. For distributions that have no better way.
pub(crate) fn quantile_by_halving(
    probability: f64,
    earliest_s: f64,
    survival: impl Fn(f64) -> f64,
) -> f64 {
    let allowed = 1.0 - probability.max(0.0);
    if survival(earliest_s) <= allowed {
        return earliest_s;
    }
    if allowed <= 0.0 {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (earliest_s, earliest_s.max(f64::MIN_POSITIVE) * 2.0);
    while survival(high) > allowed {
        (low, high) = (high, high * 2.0);
        if !high.is_finite() {
            return f64::INFINITY;
        }
    }
    while high - low > 1e-13 * high {
        let middle = low + (high - low) / 2.0;
        if survival(middle) > allowed {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}
