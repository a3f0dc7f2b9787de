//! How many chunks fall back, and sums over it.
//!
//! `f` of `L` submessages of `k` chunks fail, and so may the short one at the end. The weights
//! that matter are few when `f` is rare or certain; between, there are as many as `sqrt(L)` says.
//! A mean over more than [`SUMMED_MAX`] of them takes the summand at some Chebyshev nodes and
//! interpolates: it is smooth in `f`, growing like a logarithm and a straight line. A distribution
//! function, which is not smooth, is summed in full, at one step per term.

use crate::{binomial::Weights, sr::Slowest};

/// Terms up to which a mean is summed as it stands.
const SUMMED_MAX: usize = 48;

/// Nodes of the interpolation; with them the sums of more terms agree with the full ones to 1e-9.
const NODES: usize = 24;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failures {
    /// Chunks of a whole submessage.
    k: u64,
    /// The numbers of failed whole submessages.
    failed: Weights,
    /// Chunks of the short submessage and its failure.
    tail: Option<(u64, f64)>,
}

impl Failures {
    pub(super) fn new(whole: u64, k: u64, failure: f64, tail: Option<(u64, f64)>) -> Self {
        Self { k, failed: Weights::new(whole, failure), tail }
    }

    /// `E[f(chunks that fall back); some do]`.
    pub(super) fn mean(&self, of: impl Fn(u64) -> f64) -> f64 {
        let Weights { first, stride, weights } = &self.failed;
        self.parts()
            .map(|(extra, share)| {
                let none = if *first == 0 && extra > 0 { weights[0] * of(extra) } else { 0.0 };
                let skipped = usize::from(*first == 0);
                let numbers = Numbers { first: first + skipped as u64 * stride, stride: *stride };
                let at = |f: u64| of(f * self.k + extra);
                share * (none + weighted_sum(numbers, &weights[skipped..], at))
            })
            .sum()
    }

    /// The probability of falling back and not having the repair done `spare_s` after its start.
    pub(super) fn not_done(&self, repair: &Slowest, spare_s: f64) -> f64 {
        let Weights { first, stride, weights } = &self.failed;
        self.parts()
            .map(|(extra, share)| {
                let least = first * self.k + extra;
                let skipped = usize::from(least == 0);
                let step = stride * self.k;
                let least = (least + skipped as u64 * step) as f64;
                share * repair.not_done(spare_s, least, step as f64, &weights[skipped..])
            })
            .sum()
    }

    /// The numbers of chunks that may fall back, 0 among them, with their probabilities.
    pub(super) fn terms(&self) -> impl Iterator<Item = (u64, f64)> {
        self.parts().flat_map(move |(extra, share)| {
            self.failed
                .numbers()
                .zip(&self.failed.weights)
                .map(move |(f, weight)| (f * self.k + extra, weight * share))
        })
    }

    /// The least and the largest number of chunks that fall back, if any do.
    pub(super) fn range(&self) -> (u64, u64) {
        let tail = self.tail.map_or(0, |(chunks, _)| chunks);
        let last = self.failed.numbers().last().unwrap_or(0) * self.k + tail;
        let least = if self.failed.first > 0 { self.failed.first * self.k } else { 1 };
        (least.min(last.max(1)), last.max(1))
    }

    /// Without and with the short submessage: its chunks and the probability.
    fn parts(&self) -> impl Iterator<Item = (u64, f64)> {
        let (chunks, failure) = self.tail.unwrap_or((0, 0.0));
        [(0, 1.0 - failure), (chunks, failure)].into_iter().filter(|(_, share)| *share > 0.0)
    }
}

/// Whole numbers at equal distances.
#[derive(Clone, Copy)]
struct Numbers {
    first: u64,
    stride: u64,
}

impl Numbers {
    fn at(self, index: usize) -> u64 {
        self.first + index as u64 * self.stride
    }
}

/// `sum_i weights[i] f(numbers.at(i))`, the numbers being at least 1.
fn weighted_sum(numbers: Numbers, weights: &[f64], f: impl Fn(u64) -> f64) -> f64 {
    let all = || (0..weights.len()).map(|i| numbers.at(i)).zip(weights);
    if weights.len() <= SUMMED_MAX {
        return all().map(|(x, weight)| weight * f(x)).sum();
    }
    // Chebyshev-Lobatto nodes in ln x, where a logarithm is a straight line, moved to whole
    // numbers. Where these are sparser than the nodes, every one of them is a node.
    let (first, last) = (numbers.first, numbers.at(weights.len() - 1));
    let (low, high) = ((first as f64).ln(), (last as f64).ln());
    let mut whole: Vec<u64> = (0..NODES)
        .map(|i| {
            let angle = std::f64::consts::PI * i as f64 / (NODES - 1) as f64;
            let node = low + (high - low) * (1.0 - angle.cos()) / 2.0;
            (node.exp().round() as u64).clamp(first, last)
        })
        .collect();
    whole.dedup();
    let values: Vec<f64> = whole.iter().map(|x| f(*x)).collect();
    let nodes: Vec<f64> = whole.iter().map(|x| (*x as f64).ln()).collect();
    // Barycentric weights, in units of a quarter of the range so that the products stay in range.
    let unit = (high - low) / 4.0;
    let barycentric: Vec<f64> = nodes
        .iter()
        .map(|a| {
            let others = nodes.iter().filter(|b| *b != a);
            1.0 / others.map(|b| (a - b) / unit).product::<f64>()
        })
        .collect();
    let interpolated = |x: u64| {
        if let Ok(i) = whole.binary_search(&x) {
            return values[i];
        }
        let x = (x as f64).ln();
        let (mut above, mut below) = (0.0, 0.0);
        for ((node, value), weight) in nodes.iter().zip(&values).zip(&barycentric) {
            let term = weight / (x - node);
            above += term * value;
            below += term;
        }
        above / below
    };
    all().map(|(x, weight)| weight * interpolated(x)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_terms_are_summed_as_exactly_as_few() {
        for (draws, p) in [
            (65_536, 0.3),
            (65_536, 0.02),
            (1 << 20, 0.9),
            (1000, 0.03),
            (4096, 0.02),
            (1 << 40, 0.5),
        ] {
            let Weights { first, stride, weights } = Weights::new(draws, p);
            assert!(weights.len() > SUMMED_MAX);
            let skipped = usize::from(first == 0);
            let numbers = Numbers { first: first + skipped as u64, stride };
            let weights = &weights[skipped..];
            let f = |x: u64| {
                let n = x as f64;
                1e-3 * n + n.ln() + 1.0 - (1.0 - 1e-4f64).powf(n)
            };
            let full: f64 = weights.iter().enumerate().map(|(i, w)| w * f(numbers.at(i))).sum();
            let actual = weighted_sum(numbers, weights, f);
            assert!((actual / full - 1.0).abs() < 1e-10, "{actual} {full}");
        }
    }
}
