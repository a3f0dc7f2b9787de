//! Means and quantiles, and means of paired differences with intervals.

/// A mean and half of the width of its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// The interval reaches from `mean - half` to `mean + half`; infinite for fewer than two values.
    pub half: f64,
}

/// 95 % quantiles of Student's t for 1 to 30 degrees of freedom (two-sided 90 %), from any table of it.
const STUDENT: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771,
    1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706,
    1.703, 1.701, 1.699, 1.697,
];
/// For more degrees of freedom: the normal distribution's.
const NORMAL: f64 = 1.645;

impl Interval {
    /// Of values that are normally distributed.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.len() < 2 {
            return Self { mean, half: f64::INFINITY };
        }
        let square = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let quantile = STUDENT.get(values.len() - 2).copied().unwrap_or(NORMAL);
        Self { mean, half: quantile * (square / count).sqrt() }
    }

    /// Whether the whole interval lies within `limit` of 0.
    #[must_use]
    pub fn is_within(&self, limit: f64) -> bool {
        self.mean.abs() + self.half <= limit
    }

    /// Whether the whole interval lies below `-limit`.
    #[must_use]
    pub fn is_below(&self, limit: f64) -> bool {
        self.mean + self.half < -limit
    }
}

/// The mean; not a number if there are no values.
#[must_use]
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The smallest value that at least this share of the values does not exceed; not a number if there are none.
pub fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (share * values.len() as f64).ceil() as usize;
    values.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_that_of_students_t() {
        // Deviation 1, so 2.353 / sqrt(4) on either side.
        let interval = Interval::of(&[1.0, 1.0 - 1.5f64.sqrt(), 1.0 + 1.5f64.sqrt(), 1.0]);
        assert!((interval.mean - 1.0).abs() < 1e-12);
        assert!((interval.half - 1.1765).abs() < 1e-9, "{interval:?}");
    }

    #[test]
    fn quantiles_are_values_that_occur() {
        let mut values = [4.0, 1.0, 3.0, 2.0];
        let found = [0.0, 0.25, 0.5, 0.51, 0.99, 1.0].map(|share| quantile(&mut values, share));
        assert_eq!(found, [1.0, 1.0, 2.0, 3.0, 4.0, 4.0]);
        assert!(quantile(&mut [], 0.5).is_nan() && mean(&[]).is_nan());
    }

    #[test]
    fn one_value_proves_nothing() {
        let interval = Interval::of(&[0.0]);
        assert!(!interval.is_within(1e9) && !interval.is_below(0.0));
    }

    #[test]
    fn verdicts_look_at_the_whole_interval() {
        let interval = Interval { mean: -0.4, half: 0.2 };
        assert!(!interval.is_within(0.5) && interval.is_within(0.7));
        assert!(interval.is_below(0.1) && !interval.is_below(0.2));
    }
}
