//! The binomial distribution in its numerically difficult ranges: tails down to 1e-300 and tables of 2^24
//! draws.
//!
//! A tail is summed from its largest term outwards, so nothing is subtracted and it is as good as
//! that term. The term comes from the saddle-point form of Loader ("Fast and accurate computation
//! of binomial probabilities", 2000), whose parts do not cancel however large the numbers are.

use std::f64::consts::PI;

/// Terms below this fraction of the sum do not change it.
const NEGLIGIBLE: f64 = 1e-19;

/// `(P(X <= k), P(X > k))` for `X ~ Bin(n, p)`. The smaller of the two has all its digits.
pub(crate) fn tails(n: u64, p: f64, k: u64) -> (f64, f64) {
    if k >= n || p <= 0.0 {
        return (1.0, 0.0);
    }
    if p >= 1.0 {
        return (0.0, 1.0);
    }
    let odds = p / (1.0 - p);
    let (trials, k_f) = (n as f64, k as f64);
    if k_f + 1.0 > trials * p {
        let ratio = |x: f64| (trials - x) / (x + 1.0) * odds;
        let first = ln_term(n, p, k + 1).exp();
        let upper = first * series(k_f + 1.0, 1.0, trials, ratio);
        (1.0 - upper, upper)
    } else {
        let ratio = |x: f64| x / ((trials - x + 1.0) * odds);
        let lower = ln_term(n, p, k).exp() * series(k_f, -1.0, 0.0, ratio);
        (lower, 1.0 - lower)
    }
}

/// `1 + r(x) + r(x) r(x + step) + ...` up to `end`.
fn series(mut x: f64, step: f64, end: f64, ratio: impl Fn(f64) -> f64) -> f64 {
    let (mut term, mut sum) = (1.0, 1.0);
    while x != end && term > NEGLIGIBLE * sum {
        term *= ratio(x);
        sum += term;
        x += step;
    }
    sum
}

/// The smallest `k` with `P(X <= k) >= probability`.
pub(crate) fn quantile(n: u64, p: f64, probability: f64) -> u64 {
    if n == 0 || p <= 0.0 || probability <= 0.0 {
        return 0;
    }
    if p >= 1.0 || probability >= 1.0 {
        return n;
    }
    let reached = |k: u64| {
        let (lower, upper) = tails(n, p, k);
        // Compare on the side that has its digits.
        if probability < 0.5 { lower >= probability } else { upper <= 1.0 - probability }
    };
    let (mut low, mut high) = (0, n);
    // A bracket of ever more standard deviations around the mean.
    let (mean, deviation) = (n as f64 * p, (n as f64 * p * (1.0 - p)).sqrt().max(1.0));
    for width in [2.0, 5.0, 12.0, 40.0] {
        let below = (mean - width * deviation).max(0.0) as u64;
        let above = ((mean + width * deviation).ceil() as u64).min(n);
        if (below == 0 || !reached(below)) && reached(above) {
            (low, high) = (below, above);
            break;
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if reached(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Weights below this fraction of the largest do not change a mean or a quantile.
const WEIGHT_MIN: f64 = 1e-16;

/// Most numbers in a table of weights. A wider distribution has every n-th only: of some 18
/// standard deviations then, a 65,536th is less than 1e-7 of the mean.
const WEIGHTS_MAX: f64 = 65_536.0;

/// Standard deviations from the mean to where the weights end of such a table.
const REACH: f64 = 9.0;

/// The numbers that a binomial variable takes with a weight that matters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Weights {
    /// The least of them.
    pub(crate) first: u64,
    /// From one to the next.
    pub(crate) stride: u64,
    /// Their probabilities. They add up to 1 to rounding.
    pub(crate) weights: Vec<f64>,
}

impl Weights {
    /// Of `Bin(n, p)`.
    pub(crate) fn new(n: u64, p: f64) -> Self {
        let certain = |first| Self { first, stride: 1, weights: vec![1.0] };
        if p <= 0.0 || n == 0 {
            return certain(0);
        }
        if p >= 1.0 {
            return certain(n);
        }
        let deviation = (n as f64 * p * (1.0 - p)).sqrt();
        if 2.0 * REACH * deviation > WEIGHTS_MAX {
            return Self::strided(n, p, deviation);
        }
        let odds = p / (1.0 - p);
        let mode = (((n + 1) as f64 * p).floor() as u64).min(n);
        let mut below = Vec::new();
        let (mut x, mut term) = (mode, 1.0);
        while x > 0 && term > WEIGHT_MIN {
            term *= x as f64 / ((n - x + 1) as f64 * odds);
            below.push(term);
            x -= 1;
        }
        let first = x;
        let mut weights: Vec<f64> = below.into_iter().rev().chain(std::iter::once(1.0)).collect();
        (x, term) = (mode, 1.0);
        while x < n && (term > WEIGHT_MIN || x - mode < 2) {
            term *= (n - x) as f64 / (x + 1) as f64 * odds;
            weights.push(term);
            x += 1;
        }
        Self::scaled(first, 1, weights)
    }

    fn strided(n: u64, p: f64, deviation: f64) -> Self {
        let stride = (2.0 * REACH * deviation / WEIGHTS_MAX).ceil() as u64;
        let mean = n as f64 * p;
        let first = (mean - REACH * deviation).max(1.0) as u64;
        let last = ((mean + REACH * deviation) as u64).min(n - 1);
        let at_mean = ln_term(n, p, mean as u64);
        let weights = (first..=last)
            .step_by(stride as usize)
            .map(|x| (ln_term(n, p, x) - at_mean).exp())
            .collect();
        Self::scaled(first, stride, weights)
    }

    fn scaled(first: u64, stride: u64, mut weights: Vec<f64>) -> Self {
        let sum: f64 = weights.iter().sum();
        for weight in &mut weights {
            *weight /= sum;
        }
        Self { first, stride, weights }
    }

    /// The numbers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        let (first, stride) = (self.first, self.stride);
        (0..self.weights.len() as u64).map(move |i| first + i * stride)
    }
}

/// `ln P(X = x)`, for `0 < p < 1`.
fn ln_term(n: u64, p: f64, x: u64) -> f64 {
    let (trials, hits) = (n as f64, x as f64);
    if x == 0 {
        return trials * (-p).ln_1p();
    }
    if x == n {
        return trials * p.ln();
    }
    let misses = trials - hits;
    stirling_error(trials)
        - stirling_error(hits)
        - stirling_error(misses)
        - deviance(hits, trials * p)
        - deviance(misses, trials * (1.0 - p))
        + 0.5 * (trials / (2.0 * PI * hits * misses)).ln()
}

/// `ln n! - ln(sqrt(2 pi n) (n/e)^n)`.
fn stirling_error(n: f64) -> f64 {
    if n < 16.0 {
        let ln_factorial: f64 = (2..=n as u32).map(|i| f64::from(i).ln()).sum();
        return ln_factorial - (n + 0.5) * n.ln() + n - 0.5 * (2.0 * PI).ln();
    }
    // The asymptotic series; at 16 the next term is below 1e-16.
    let n2 = n * n;
    (1.0 / 12.0
        - (1.0 / 360.0 - (1.0 / 1260.0 - (1.0 / 1680.0 - 1.0 / 1188.0 / n2) / n2) / n2) / n2)
        / n
}

/// `x ln(x / mean) + mean - x`.
fn deviance(x: f64, mean: f64) -> f64 {
    let difference = x - mean;
    if difference.abs() >= 0.1 * (x + mean) {
        return x * (x / mean).ln() + mean - x;
    }
    // Near each other the three parts cancel; this is their series in v.
    let v = difference / (x + mean);
    let mut sum = difference * v;
    let mut power = 2.0 * x * v;
    for j in 1..1000 {
        power *= v * v;
        let next = sum + power / f64::from(2 * j + 1);
        if next == sum {
            break;
        }
        sum = next;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_near(actual: f64, expected: f64, tolerance: f64) {
        assert!((actual / expected - 1.0).abs() < tolerance, "{actual} is not {expected}");
    }

    #[test]
    fn small_tables_are_those_of_the_definition() {
        // Bin(5, 0.3), by hand.
        let terms = [0.16807, 0.36015, 0.3087, 0.1323, 0.02835, 0.00243];
        let mut lower = 0.0;
        for (k, term) in terms.iter().enumerate() {
            lower += term;
            let (actual, upper) = tails(5, 0.3, k as u64);
            assert_near(actual, lower, 1e-12);
            assert!((upper - (1.0 - lower)).abs() < 1e-12);
        }
        let table = Weights::new(5, 0.3);
        assert_eq!(table.first, 0);
        for (weight, term) in table.weights.iter().zip(terms) {
            assert_near(*weight, term, 1e-12);
        }
    }

    #[test]
    fn deep_tails_keep_their_digits() {
        // mpmath, 40 digits: 1 - betainc-based CDF.
        assert_near(tails(40, 1e-8, 8).1, 2.734_388_037_105_629_5e-64, 1e-11);
        assert_near(tails(40, 1e-32, 8).1, 2.734_388_800_000_001e-280, 1e-11);
        assert_near(tails(40, 0.999, 8).0, 7.631_011_381_190_375e-89, 1e-11);
    }

    #[test]
    fn quantiles_are_where_the_table_crosses() {
        for (n, p) in [(10, 0.5), (1000, 1e-3), (1 << 24, 1e-3), (1 << 24, 0.3), (7, 1e-12)] {
            for probability in [1e-6, 0.1, 0.5, 0.99, 0.999, 1.0 - 1e-9] {
                let k = quantile(n, p, probability);
                assert!(tails(n, p, k).0 >= probability - 1e-15, "{n} {p} {probability}");
                assert!(k == 0 || tails(n, p, k - 1).0 < probability, "{n} {p} {probability}");
            }
        }
    }

    #[test]
    fn weights_of_many_draws_have_their_mean_and_deviation() {
        for (n, p) in [(1 << 24, 0.25), (65_536, 1e-9), (300, 0.999), (1 << 43, 0.4)] {
            let table = Weights::new(n, p);
            assert!(table.weights.len() <= 70_000, "{}", table.weights.len());
            let expected = n as f64 * p;
            let moment = |power: i32| -> f64 {
                let terms = table.numbers().zip(&table.weights);
                terms.map(|(x, w)| (x as f64 - expected).powi(power) * w).sum()
            };
            assert!(moment(1).abs() < 1e-9 * expected, "{n} {p}: {}", moment(1));
            assert_near(moment(2), expected * (1.0 - p), 1e-6);
        }
    }
}
