//! How many chunks fall back, and sums over it.
//!
//! `f` of `L` submessages of `k` chunks fail, and so may the short one at the end. The weights
//! that matter are few when `f` is rare or certain; between, there are as many as `sqrt(L)` says.
//! A mean over more than [`SUMMED_MAX`] of them takes the summand at some Chebyshev nodes and
//! interpolates: it is smooth in `f`, growing like a logarithm and a straight line. A distribution
//! function, which is not smooth, is summed in full, at one step per term.

use crate::{binomial, sr::Slowest};

/// Terms up to which a mean is summed as it stands.
const SUMMED_MAX: usize = 256;

/// Nodes of the interpolation; with them the sums of more terms agree with the full ones to 1e-9.
const NODES: usize = 24;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failures {
    /// Chunks of a whole submessage.
    k: u64,
    /// The least number of failed whole submessages with a weight.
    first: u64,
    /// Their probabilities, from `first` on.
    weights: Vec<f64>,
    /// Chunks of the short submessage and its failure.
    tail: Option<(u64, f64)>,
}

impl Failures {
    pub(super) fn new(whole: u64, k: u64, failure: f64, tail: Option<(u64, f64)>) -> Self {
        let (first, weights) = binomial::weights(whole, failure);
        Self { k, first, weights, tail }
    }

    /// `E[f(chunks that fall back); some do]`.
    pub(super) fn mean(&self, of: impl Fn(u64) -> f64) -> f64 {
        self.parts()
            .map(|(extra, share)| {
                let at = |i: usize| match (self.first + i as u64) * self.k + extra {
                    0 => 0.0,
                    chunks => of(chunks),
                };
                share * weighted_sum(&self.weights, at)
            })
            .sum()
    }

    /// The probability of falling back and not having the repair done `spare_s` after its start.
    pub(super) fn not_done(&self, repair: &Slowest, spare_s: f64) -> f64 {
        self.parts()
            .map(|(extra, share)| {
                let lengths = (self.first..).take(self.weights.len()).map(|f| f * self.k + extra);
                let ln_done = repair.ln_cdf_of_lengths(spare_s, lengths.clone());
                let terms = self.weights.iter().zip(lengths).zip(ln_done);
                share
                    * terms
                        .filter(|((_, chunks), _)| *chunks > 0)
                        .map(|((weight, _), ln_done)| weight * -ln_done.exp_m1())
                        .sum::<f64>()
            })
            .sum()
    }

    /// Without and with the short submessage: its chunks and the probability.
    fn parts(&self) -> impl Iterator<Item = (u64, f64)> {
        let (chunks, failure) = self.tail.unwrap_or((0, 0.0));
        [(0, 1.0 - failure), (chunks, failure)].into_iter().filter(|(_, share)| *share > 0.0)
    }
}

/// `sum_i weights[i] f(i)`.
fn weighted_sum(weights: &[f64], f: impl Fn(usize) -> f64) -> f64 {
    if weights.len() <= SUMMED_MAX {
        return weights.iter().enumerate().map(|(i, weight)| weight * f(i)).sum();
    }
    // Chebyshev-Lobatto nodes, moved to the nearest whole number; far enough apart to stay apart.
    let last = (weights.len() - 1) as f64;
    let nodes: Vec<f64> = (0..NODES)
        .map(|i| {
            let angle = std::f64::consts::PI * i as f64 / (NODES - 1) as f64;
            (last * (1.0 - angle.cos()) / 2.0).round()
        })
        .collect();
    let values: Vec<f64> = nodes.iter().map(|node| f(*node as usize)).collect();
    // Barycentric weights, in units of a quarter of the range so that the products stay in range.
    let barycentric: Vec<f64> = nodes
        .iter()
        .map(|a| {
            let product: f64 =
                nodes.iter().filter(|b| *b != a).map(|b| (a - b) / (last / 4.0)).product();
            1.0 / product
        })
        .collect();
    let interpolated = |x: f64| {
        let (mut above, mut below) = (0.0, 0.0);
        for ((node, value), weight) in nodes.iter().zip(&values).zip(&barycentric) {
            if x == *node {
                return *value;
            }
            above += weight / (x - node) * value;
            below += weight / (x - node);
        }
        above / below
    };
    weights.iter().enumerate().map(|(i, weight)| weight * interpolated(i as f64)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_terms_are_summed_as_exactly_as_few() {
        for (draws, p) in [(65_536, 0.3), (65_536, 0.02), (1 << 20, 0.9)] {
            let (first, weights) = binomial::weights(draws, p);
            assert!(weights.len() > SUMMED_MAX);
            let f = |i: usize| {
                let n = (first + i as u64) as f64;
                1e-3 * n + n.ln() + 1.0 - (1.0 - 1e-4f64).powf(n)
            };
            let full: f64 = weights.iter().enumerate().map(|(i, w)| w * f(i)).sum();
            let actual = weighted_sum(&weights, f);
            assert!((actual / full - 1.0).abs() < 1e-10, "{actual} {full}");
        }
    }
}
