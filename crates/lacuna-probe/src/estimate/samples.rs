//! Means, deviations and quantiles of autocorrelated samples, such as round trips: a queue that is long
//! for one packet is long for the next.
//!
//! The samples are divided into batches that are long against the correlation, so batches are nearly
//! independent, and their variation gives the confidence interval (batch means; Schmeiser 1982: 10 to 30
//! batches suffice).

use super::{Estimate, Z, student};

/// Batches. Fewer if there are not so many samples.
const BATCHES: usize = 20;

/// Samples in the order in which they were taken, in any unit.
#[derive(Debug, Clone, Default)]
pub struct Samples {
    /// In the order in which they were taken.
    values: Vec<f64>,
    /// Ascending.
    sorted: Vec<f64>,
}

impl Samples {
    /// Sorts a copy of `values`.
    #[must_use]
    pub fn new(values: Vec<f64>) -> Self {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        Self { values, sorted }
    }

    /// Number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The smallest; `None` if there is none.
    #[must_use]
    pub fn min(&self) -> Option<f64> {
        self.sorted.first().copied()
    }

    /// The largest.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.sorted.last().copied()
    }

    /// The mean.
    #[must_use]
    pub fn mean(&self) -> Option<Estimate> {
        over_batches(&self.values, mean_of)
    }

    /// The standard deviation.
    #[must_use]
    pub fn deviation(&self) -> Option<Estimate> {
        let deviation = over_batches(&self.values, deviation_of)?;
        Some(Estimate { low: deviation.low.max(0.0), ..deviation })
    }

    /// The quantile: a fraction `share` of the samples is not above it.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<Estimate> {
        quantile(&self.sorted, share, design_effect(&self.values))
    }
}

/// Mean of independent values, with Student's interval.
#[must_use]
pub fn mean(values: &[f64]) -> Option<Estimate> {
    if values.is_empty() {
        return None;
    }
    let (value, n) = (mean_of(values), values.len() as f64);
    if values.len() == 1 {
        return Some(Estimate { value, low: f64::NEG_INFINITY, high: f64::INFINITY });
    }
    let half = student(n - 1.0) * deviation_of(values) / n.sqrt();
    Some(Estimate { value, low: value - half, high: value + half })
}

/// A statistic of samples in order, with an interval by the jackknife: the statistic is computed without
/// each batch in turn. `None` for less than two samples.
#[must_use]
pub fn over_batches(values: &[f64], statistic: impl Fn(&[f64]) -> f64) -> Option<Estimate> {
    let batches = BATCHES.min(values.len());
    if batches < 2 {
        return None;
    }
    let (value, count) = (statistic(values), batches as f64);
    let mut rest = Vec::with_capacity(values.len());
    let mut replicates = Vec::with_capacity(batches);
    for batch in 0..batches {
        let (from, to) = (values.len() * batch / batches, values.len() * (batch + 1) / batches);
        rest.clear();
        rest.extend_from_slice(&values[..from]);
        rest.extend_from_slice(&values[to..]);
        replicates.push(statistic(&rest));
    }
    let middle = mean_of(&replicates);
    let sum: f64 = replicates.iter().map(|replicate| (replicate - middle).powi(2)).sum();
    let half = student(count - 1.0) * (sum * (count - 1.0) / count).sqrt();
    Some(Estimate { value, low: value - half, high: value + half })
}

/// The quantile of sorted samples. The ends of the interval are samples whose ranks follow from the
/// binomial distribution of the effective number of samples.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64, design_effect: f64) -> Option<Estimate> {
    let n = sorted.len() as f64;
    let last = sorted.len().checked_sub(1)?;
    let at = |rank: f64| sorted[(rank.max(1.0) as usize - 1).min(last)];
    let half = Z * (n * share * (1.0 - share) * design_effect.max(1.0)).sqrt();
    let rank = (n * share).ceil();
    Some(Estimate {
        value: at(rank),
        low: at((n * share - half).floor()),
        high: at((n * share + half).ceil() + 1.0),
    })
}

/// The design effect: how many samples in order are worth one independent sample. It is the variance of
/// batch means over that of independent samples.
fn design_effect(values: &[f64]) -> f64 {
    let variance = deviation_of(values).powi(2);
    let (batches, n) = (BATCHES, values.len());
    if n < 2 * batches || variance <= 0.0 {
        return 1.0;
    }
    let means: Vec<f64> = (0..batches)
        .map(|batch| mean_of(&values[n * batch / batches..n * (batch + 1) / batches]))
        .collect();
    let expected = variance / (n / batches) as f64;
    (deviation_of(&means).powi(2) / expected).clamp(1.0, n as f64)
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / (values.len() as f64).max(1.0)
}

fn deviation_of(values: &[f64]) -> f64 {
    let middle = mean_of(values);
    let sum: f64 = values.iter().map(|value| (value - middle).powi(2)).sum();
    (sum / (values.len() as f64 - 1.0).max(1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_link::Prng;

    /// Uniform within 0 to 1, each like the one before by `memory`.
    fn draw(count: usize, memory: f64, seed: u64) -> Vec<f64> {
        let mut prng = Prng::new(seed, 0);
        let mut uniform = || prng.next_u64() as f64 / u64::MAX as f64;
        let mut last = uniform();
        (0..count)
            .map(|_| {
                if uniform() >= memory {
                    last = uniform();
                }
                last
            })
            .collect()
    }

    fn coverage(holds: impl Fn(Samples) -> bool, memory: f64) -> f64 {
        const RUNS: u64 = 400;
        let held = (0..RUNS).filter(|seed| holds(Samples::new(draw(2000, memory, *seed))));
        held.count() as f64 / RUNS as f64
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say_even_if_samples_are_alike() {
        for memory in [0.0, 0.9] {
            let mean = coverage(|samples| samples.mean().unwrap().holds(0.5), memory);
            assert!((0.91..0.99).contains(&mean), "mean, {memory}: {mean}");
            let truth = (1.0f64 / 12.0).sqrt();
            let deviation = coverage(|samples| samples.deviation().unwrap().holds(truth), memory);
            assert!((0.91..0.99).contains(&deviation), "deviation, {memory}: {deviation}");
            for share in [0.5, 0.9] {
                let quantile =
                    coverage(|samples| samples.quantile(share).unwrap().holds(share), memory);
                assert!((0.9..1.0).contains(&quantile), "{share}, {memory}: {quantile}");
            }
        }
    }

    #[test]
    fn few_samples_say_little_and_none_say_nothing() {
        assert!(Samples::default().mean().is_none() && Samples::default().quantile(0.5).is_none());
        let one = Samples::new(vec![3.0]);
        assert_eq!((one.mean(), one.min(), one.max()), (None, Some(3.0), Some(3.0)));
        assert_eq!(one.quantile(0.99).map(|quantile| quantile.value), Some(3.0));
        let two = Samples::new(vec![1.0, 3.0]).mean().unwrap();
        assert_eq!(two.value, 2.0);
        assert!(two.low < -10.0 && two.high > 10.0, "{two:?}");
        let alike = Samples::new(vec![7.0; 100]);
        assert_eq!(alike.mean(), Some(Estimate { value: 7.0, low: 7.0, high: 7.0 }));
        assert_eq!(alike.deviation(), Some(Estimate { value: 0.0, low: 0.0, high: 0.0 }));
    }

    #[test]
    fn a_mean_of_bins_has_students_interval() {
        let estimate = mean(&[9.0, 10.0, 11.0]).unwrap();
        assert_eq!(estimate.value, 10.0);
        assert!((estimate.high - 10.0 - 4.303 / 3f64.sqrt()).abs() < 1e-3, "{estimate:?}");
        assert_eq!(mean(&[]), None);
    }
}
