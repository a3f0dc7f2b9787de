//! The number of chunks that fall back to selective repeat, and sums over its distribution.
//!
//! `f` of `L` submessages of `k` chunks fail, and so may the short one at the end. The weights
//! that matter are few when `f` is rare or certain; between, there are as many as `sqrt(L)` says.
//! A mean over more than a few takes the summand at some Chebyshev nodes and
//! interpolates: it is smooth in `f`, growing like a logarithm and a straight line. A distribution
//! function, which is not smooth, is summed in full, at one step per term.

use super::prepared::{Prepared, TERMS_MIN};
use crate::binomial::Weights;
use crate::sr::{Lengths, Slowest};
use std::sync::OnceLock;

/// Nodes of the interpolation at most; with them the sums of more terms agree with the full ones to
/// 1e-9.
const NODES_MAX: usize = 24;

/// A mean time bends where the number of chunks passes a multiple of those that fit in a round. Over
/// this fraction of a round a bend is slight enough for the fewest nodes.
const SLIGHT: f64 = 0.1;

/// Nodes for a sum that covers `width` in `ln x` and so many rounds.
fn nodes(width: f64, rounds: f64) -> usize {
    let least = if rounds < SLIGHT { 8.0 } else { 18.0 };
    ((least + 30.0 * width) as usize).min(NODES_MAX)
}

/// Of a long table every n-th term is summed, so that about so many are. A table reaches some 17
/// standard deviations, so they are a seventh of one apart, and what a sum over a bell misses from
/// that is beyond `f64`: `e^(-2 pi^2 7^2)`.
const THINNED_TERMS: usize = 128;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failures {
    /// Chunks of a whole submessage.
    k: u64,
    whole: u64,
    /// The probability that one of `whole` submessages fails.
    failure: f64,
    /// The numbers of failed whole submessages, once they are needed.
    failed: Cached<Weights>,
    /// Chunks of the short submessage and its failure.
    tail: Option<(u64, f64)>,
    /// Whether many times are to be asked for, …
    is_asked_often: Cached<()>,
    /// … which this makes cheap.
    prepared: Cached<Prepared>,
}

/// What can be reckoned again from the rest, and so makes no two values different.
#[derive(Debug, Clone)]
struct Cached<T>(OnceLock<T>);

impl<T> Default for Cached<T> {
    fn default() -> Self {
        Self(OnceLock::new())
    }
}

impl<T> PartialEq for Cached<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Failures {
    pub(super) fn new(whole: u64, k: u64, failure: f64, tail: Option<(u64, f64)>) -> Self {
        Self {
            k,
            whole,
            failure,
            failed: Cached::default(),
            tail,
            is_asked_often: Cached::default(),
            prepared: Cached::default(),
        }
    }

    fn failed(&self) -> &Weights {
        self.failed.0.get_or_init(|| Weights::new(self.whole, self.failure))
    }

    /// `E[f(chunks that fall back); some do]`. `round_chunks` fit in a round of repair.
    pub(super) fn mean(&self, round_chunks: f64, of: impl Fn(u64) -> f64) -> f64 {
        let round = round_chunks / self.k as f64;
        let Weights { first, stride, weights } = self.failed();
        self.parts()
            .map(|(extra, share)| {
                let none = if *first == 0 && extra > 0 { weights[0] * of(extra) } else { 0.0 };
                let skipped = usize::from(*first == 0);
                let numbers = Numbers { first: first + skipped as u64 * stride, stride: *stride };
                let at = |f: u64| of(f * self.k + extra);
                share * (none + weighted_sum(numbers, &weights[skipped..], round, at))
            })
            .sum()
    }

    /// Makes [`Self::not_done`] cheap from now on.
    pub(super) fn prepare(&self) {
        self.is_asked_often.0.get_or_init(|| ());
    }

    fn prepared(&self, repair: &Slowest) -> Option<&Prepared> {
        let weights = &self.failed().weights;
        let pays = self.is_asked_often.0.get().is_some() && weights.len() >= TERMS_MIN;
        pays.then(|| self.prepared.0.get_or_init(|| Prepared::new(repair, weights)))
    }

    /// The probability of falling back and not having the repair done `spare_s` after its start.
    pub(super) fn not_done(&self, repair: &Slowest, spare_s: f64) -> f64 {
        let Weights { first, stride, weights } = self.failed();
        self.parts()
            .map(|(extra, share)| {
                let least = first * self.k + extra;
                let step = (stride * self.k) as f64;
                // A message of which nothing fails needs no repair, and is done at any time.
                if let Some(prepared) = self.prepared(repair).filter(|_| least > 0) {
                    let lengths = Lengths { first: least as f64, step, count: weights.len() };
                    return share * prepared.not_done(repair, spare_s, lengths, weights);
                }
                let skipped = usize::from(least == 0);
                let least = least as f64 + skipped as f64 * step;
                share * repair.not_done(spare_s, least, step, &weights[skipped..])
            })
            .sum()
    }

    /// The numbers of chunks that may fall back, 0 among them, with their probabilities.
    pub(super) fn terms(&self) -> impl Iterator<Item = (u64, f64)> {
        self.parts().flat_map(move |(extra, share)| {
            self.failed()
                .numbers()
                .zip(&self.failed().weights)
                .map(move |(f, weight)| (f * self.k + extra, weight * share))
        })
    }

    /// The least and the largest number of chunks that fall back, if any do.
    pub(super) fn range(&self) -> (u64, u64) {
        let tail = self.tail.map_or(0, |(chunks, _)| chunks);
        let last = self.failed().numbers().last().unwrap_or(0) * self.k + tail;
        let least = if self.failed().first > 0 { self.failed().first * self.k } else { 1 };
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

/// `sum_i weights[i] f(numbers.at(i))`, the numbers being at least 1. `f` bends at multiples of
/// `round`.
fn weighted_sum(numbers: Numbers, weights: &[f64], round: f64, f: impl Fn(u64) -> f64) -> f64 {
    let all = || (0..weights.len()).map(|i| numbers.at(i)).zip(weights);
    let Some(last) = weights.len().checked_sub(1).map(|last| numbers.at(last)) else { return 0.0 };
    let first = numbers.first;
    let (low, high) = ((first as f64).ln(), (last as f64).ln());
    let count = nodes(high - low, (last - first) as f64 / round);
    if weights.len() <= 2 * count {
        return all().map(|(x, weight)| weight * f(x)).sum();
    }
    // Chebyshev-Lobatto nodes in ln x, where a logarithm is a straight line, moved to whole
    // numbers. Where these are sparser than the nodes, every one of them is a node.
    let mut whole: Vec<u64> = (0..count)
        .map(|i| {
            let angle = std::f64::consts::PI * i as f64 / (count - 1) as f64;
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
    let stride = (weights.len() / THINNED_TERMS).max(1);
    let sum: f64 = all().step_by(stride).map(|(x, weight)| weight * interpolated(x)).sum();
    sum * stride as f64
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
            assert!(weights.len() > 2 * NODES_MAX);
            let skipped = usize::from(first == 0);
            let numbers = Numbers { first: first + skipped as u64, stride };
            let weights = &weights[skipped..];
            let f = |x: u64| {
                let n = x as f64;
                1e-3 * n + n.ln() + 1.0 - (1.0 - 1e-4f64).powf(n)
            };
            let full: f64 = weights.iter().enumerate().map(|(i, w)| w * f(numbers.at(i))).sum();
            let actual = weighted_sum(numbers, weights, 1.0, f);
            assert!((actual / full - 1.0).abs() < 1e-10, "{actual} {full}");
        }
    }
}
