//! Estimates with 95 % confidence intervals, from counts.
//!
//! | number | interval |
//! |---|---|
//! | loss, reordering | Wilson's, of an effective number of packets: see [`share`] and [`LossCounts`] |
//! | length of a burst | Wilson's for the chance that a burst ends, of which it is the inverse |
//! | mean round trip, its deviation | jackknife over batches: [`over_batches`] |
//! | quantiles of the round trip | order statistics, of an effective number of samples: [`quantile`] |
//! | rate | Student's, over the bins of a trial: [`mean`] |

mod loss;
mod samples;

pub use loss::{BurstFit, LossCounts};
pub use samples::{Samples, mean, over_batches, quantile};

/// Confidence level of the intervals.
pub const CONFIDENCE: f64 = 0.95;
/// The corresponding number of standard deviations of a normal variable.
pub(crate) const Z: f64 = 1.959_963_984_540_054;

/// A number and its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The most likely value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Estimate {
    /// Whether the interval contains `truth`.
    #[must_use]
    pub fn holds(&self, truth: f64) -> bool {
        (self.low..=self.high).contains(&truth)
    }

    /// Converts to another unit.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self { value: self.value * factor, low: self.low * factor, high: self.high * factor }
    }
}

/// A fraction: `count` out of `of`, each worth `1 / design_effect` independent observations.
///
/// The interval is Wilson's (1927), which also holds for small counts; for a count of 0 its upper end is
/// about 3.8 out of all.
#[must_use]
pub fn share(count: f64, of: f64, design_effect: f64) -> Estimate {
    if of <= 0.0 {
        return Estimate { value: 0.0, low: 0.0, high: 1.0 };
    }
    let value = (count / of).clamp(0.0, 1.0);
    let n = of / design_effect.max(1.0);
    let z2 = Z * Z;
    let middle = (value + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (value * (1.0 - value) / n + z2 / (4.0 * n * n)).sqrt();
    // Exact at the ends, where rounding would cut the value off.
    let low = if count <= 0.0 { 0.0 } else { (middle - half).clamp(0.0, value) };
    let high = if count >= of { 1.0 } else { (middle + half).clamp(value, 1.0) };
    Estimate { value, low, high }
}

/// Student's distribution: the number of standard errors of a 95 % interval, by degrees of freedom. The
/// expansion is Fisher and Cornish's; below 4 degrees it is not accurate enough, so a table is used.
pub(crate) fn student(freedom: f64) -> f64 {
    match freedom {
        f if f < 1.5 => 12.706,
        f if f < 2.5 => 4.303,
        f if f < 3.5 => 3.182,
        f => {
            let z = Z;
            let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
            z + (z3 + z) / (4.0 * f)
                + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * f * f)
                + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * f.powi(3))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wilsons_interval_is_the_published_one() {
        // Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29.
        for (count, of, low, high) in [
            (81.0, 263.0, 0.2553, 0.3662),
            (15.0, 148.0, 0.0624, 0.1605),
            (0.0, 20.0, 0.0, 0.1611),
            (1.0, 29.0, 0.0061, 0.1718),
        ] {
            let estimate = share(count, of, 1.0);
            assert!((estimate.low - low).abs() < 5e-5, "{estimate:?}");
            assert!((estimate.high - high).abs() < 5e-5, "{estimate:?}");
        }
        assert_eq!(share(5.0, 5.0, 1.0).high, 1.0);
        assert_eq!(share(0.0, 0.0, 1.0), Estimate { value: 0.0, low: 0.0, high: 1.0 });
        let effective = share(20.0, 2000.0, 10.0);
        let plain = share(2.0, 200.0, 1.0);
        assert!((effective.high - plain.high).abs() < 1e-12);
    }

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, quantile) in
            [(1.0, 12.706), (2.0, 4.303), (3.0, 3.182), (4.0, 2.776), (9.0, 2.262), (31.0, 2.040)]
        {
            assert!((student(freedom) - quantile).abs() < 0.012, "{freedom}");
        }
    }
}
