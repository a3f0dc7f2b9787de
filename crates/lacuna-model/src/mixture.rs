//! Messages that are not all alike: mixed sizes, or a path whose loss is known only as a range.
//!
//! A message drawn from the mix has the distribution of its kind, so the distribution of the mix is
//! the weighted sum of theirs. Its mean is the mean of the means; its quantiles are not.

use crate::completion::quantile_between;
use crate::error::check;
use crate::{Completion, ModelError};
use std::cell::RefCell;

/// What survives of a part at least where the others survive with all that is allowed.
const LEFT_MIN: f64 = 1e-13;

/// Survivals that differ by less than this, as a fraction of what is allowed, are the same.
const SAME: f64 = 1e-15;

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

    /// Where to look for the time at which `allowed` survives. If the parts are in order, each slower
    /// than those before it, it lies between two quantiles of the part on which the probability
    /// passes; if they are not, it does so mostly.
    fn likely_s(&self, allowed: f64) -> (f64, f64) {
        let mut behind = 0.0;
        for (weight, part) in self.parts.iter().rev() {
            let from_here = behind + weight;
            if from_here > allowed {
                let low_s = part.quantile_s((1.0 - allowed / from_here).max(0.0));
                let left = ((allowed - behind) / (1.0 - behind)).max(LEFT_MIN);
                return (low_s * (1.0 - 1e-9), part.quantile_s(1.0 - left) * (1.0 + 1e-9));
            }
            behind = from_here;
        }
        (0.0, 0.0)
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

    fn prepare(&self) {
        self.parts.iter().for_each(|(_, part)| part.prepare());
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        if let [(_, only)] = &self.parts[..] {
            return only.quantile_s(probability);
        }
        let earliest_s = self.parts.iter().map(|(_, part)| part.quantile_s(0.0));
        let earliest_s = earliest_s.fold(f64::INFINITY, f64::min);
        let likely_s = self.likely_s(1.0 - probability);
        self.prepare();
        let narrowing = RefCell::new(Narrowing::new(self, 1.0 - probability));
        quantile_between(probability, earliest_s, likely_s, |time_s| {
            narrowing.borrow_mut().survival(time_s)
        })
    }
}

/// The survival of a mix while the time is being narrowed down. A part that survives as much at
/// both ends of what is left does so between them, and is asked no more.
struct Narrowing<'a, C> {
    mixture: &'a Mixture<C>,
    allowed: f64,
    /// Of each part: survival at the last time at which more than `allowed` of the mix survived, and
    /// at the last one at which no more did.
    ends: Vec<(f64, f64)>,
    /// Those times.
    from_s: f64,
    to_s: f64,
    values: Vec<f64>,
}

impl<'a, C: Completion> Narrowing<'a, C> {
    fn new(mixture: &'a Mixture<C>, allowed: f64) -> Self {
        let count = mixture.parts.len();
        let (ends, values) = (vec![(1.0, 0.0); count], vec![0.0; count]);
        Self { mixture, allowed, ends, from_s: f64::NEG_INFINITY, to_s: f64::INFINITY, values }
    }

    fn survival(&mut self, time_s: f64) -> f64 {
        let is_within = self.from_s <= time_s && time_s <= self.to_s;
        let mut sum = 0.0;
        for (i, (weight, part)) in self.mixture.parts.iter().enumerate() {
            let (at_from, at_to) = self.ends[i];
            let is_known = is_within && at_from - at_to <= SAME * self.allowed;
            self.values[i] = if is_known { at_to } else { part.survival(time_s) };
            sum += weight * self.values[i];
        }
        let is_more = sum > self.allowed;
        for ((at_from, at_to), value) in self.ends.iter_mut().zip(&self.values) {
            *(if is_more { &mut *at_from } else { at_to }) = *value;
        }
        *(if is_more { &mut self.from_s } else { &mut self.to_s }) = time_s;
        sum
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
    fn the_median_of_two_halves_apart_is_the_end_of_the_first() {
        // One half is as good as done long before the other begins: any time between is a median.
        let (short, long) = (sr(10, 0.01), sr(1_000_000, 0.3));
        let last_s = short.quantile_s(1.0 - 1e-12);
        for parts in [[&short, &long], [&long, &short]] {
            let mix = Mixture::new(parts.map(|part| (1.0, part.clone()))).unwrap();
            assert!((mix.quantile_s(0.5) / last_s - 1.0).abs() < 1e-6, "{}", mix.quantile_s(0.5));
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
