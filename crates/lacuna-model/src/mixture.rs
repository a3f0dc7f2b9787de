//! Messages that are not all alike: mixed sizes, or a path whose loss is known only as a range.
//!
//! A message drawn from the mix has the distribution of its kind, so the distribution of the mix is
//! the weighted sum of theirs. Its mean is the mean of the means; its quantiles are not.

use crate::{Completion, ModelError, completion::quantile_between, error::check};

/// A weighted mix of distributions.
#[derive(Debug, Clone, PartialEq)]
pub struct Mixture<C> {
    parts: Vec<(f64, C)>,
}

impl<C: Completion> Mixture<C> {
    /// A mix of `(weight, distribution)`. The weights are scaled so that they add up to 1.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] for a weight that is negative or not finite, or when none is
    /// more than zero.
    pub fn new(parts: impl IntoIterator<Item = (f64, C)>) -> Result<Self, ModelError> {
        let mut parts: Vec<(f64, C)> = parts.into_iter().collect();
        for (weight, _) in &parts {
            check("weight", *weight, *weight >= 0.0 && weight.is_finite(), "at least 0")?;
        }
        let sum: f64 = parts.iter().map(|part| part.0).sum();
        check("sum of weights", sum, sum > 0.0 && sum.is_finite(), "more than 0")?;
        parts.retain(|part| part.0 > 0.0);
        for part in &mut parts {
            part.0 /= sum;
        }
        Ok(Self { parts })
    }

    /// The weights and distributions.
    #[must_use]
    pub fn parts(&self) -> &[(f64, C)] {
        &self.parts
    }

    fn sum(&self, of: impl Fn(&C) -> f64) -> f64 {
        self.parts.iter().map(|(weight, part)| weight * of(part)).sum()
    }
}

impl<C: Completion> Completion for Mixture<C> {
    fn mean_s(&self) -> f64 {
        self.sum(C::mean_s)
    }

    fn cdf(&self, time_s: f64) -> f64 {
        self.sum(|part| part.cdf(time_s))
    }

    fn survival(&self, time_s: f64) -> f64 {
        self.sum(|part| part.survival(time_s))
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        if let [(_, only)] = &self.parts[..] {
            return only.quantile_s(probability);
        }
        let each = |probability: f64| {
            let times_s = self.parts.iter().map(|(_, part)| part.quantile_s(probability));
            times_s.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), time_s| {
                (low.min(time_s), high.max(time_s))
            })
        };
        let (earliest_s, _) = each(0.0);
        // Each part's own quantile lies on one side of it.
        let (low_s, high_s) = each(probability);
        let likely_s = (low_s * (1.0 - 1e-9), high_s);
        quantile_between(probability, earliest_s, likely_s, |time_s| self.survival(time_s))
    }
}

/// A loss that is known only to lie between two values: `count` losses of equal weight, spread
/// evenly over the decades between, as the drop rates of one path spread over its trials in the
/// paper's figure 2.
///
/// # Errors
///
/// [`ModelError::OutOfRange`] unless `0 < low <= high < 1`.
pub fn loss_range(low: f64, high: f64, count: usize) -> Result<Vec<f64>, ModelError> {
    check("lower loss", low, low > 0.0 && low < 1.0, "more than 0 and below 1")?;
    check("upper loss", high, (low..1.0).contains(&high), "at least the lower loss and below 1")?;
    if low == high {
        return Ok(vec![low]);
    }
    let count = count.max(1);
    let decades = (high / low).ln();
    Ok((0..count).map(|i| low * (decades * (i as f64 + 0.5) / count as f64).exp()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChunkLoss, RepairTiming, SelectiveRepeat, Transfer};

    fn sr(chunks: u64, loss: f64) -> SelectiveRepeat {
        let loss = ChunkLoss::independent(loss).unwrap();
        let transfer = Transfer::from_chunks(chunks, 1e-6, 0.01, loss).unwrap();
        SelectiveRepeat::new(&transfer, RepairTiming::TIMEOUT).unwrap()
    }

    #[test]
    fn a_mix_has_the_mean_of_its_means_and_quantiles_of_its_own() {
        let (short, long) = (sr(10, 0.01), sr(100_000, 0.01));
        let mix = Mixture::new([(3.0, short.clone()), (1.0, long.clone())]).unwrap();
        let mean_s = 0.75 * short.mean_s() + 0.25 * long.mean_s();
        assert!((mix.mean_s() / mean_s - 1.0).abs() < 1e-12);
        assert!((mix.quantile_s(0.5) / short.quantile_s(0.5) - 1.0).abs() < 1e-9);
        for probability in [0.1, 0.7, 0.9, 0.999] {
            let time_s = mix.quantile_s(probability);
            assert!(mix.cdf(time_s) >= probability - 1e-12);
            assert!(mix.cdf(time_s * (1.0 - 1e-9)) < probability + 1e-12);
        }
    }

    #[test]
    fn an_unknown_loss_costs_more_than_its_middle() {
        let losses = loss_range(1e-6, 1e-2, 16).unwrap();
        assert_eq!(losses.len(), 16);
        assert!(losses.iter().all(|loss| (1e-6..1e-2).contains(loss)));
        let mix = Mixture::new(losses.iter().map(|loss| (1.0, sr(1000, *loss)))).unwrap();
        assert!(mix.mean_s() > sr(1000, 1e-4).mean_s());
        assert!(mix.quantile_s(0.99) > sr(1000, 1e-4).quantile_s(0.99));
    }

    #[test]
    fn mixes_of_nothing_are_refused() {
        assert!(Mixture::new(Vec::<(f64, SelectiveRepeat)>::new()).is_err());
        assert!(Mixture::new([(-1.0, sr(1, 0.1))]).is_err());
        assert!(Mixture::new([(f64::NAN, sr(1, 0.1))]).is_err());
        assert!(loss_range(1e-3, 1e-4, 4).is_err());
        assert!(loss_range(0.0, 1e-4, 4).is_err());
    }
}
