//! Prepared sums over the failures, for many times: a quantile needs some dozens of them.
//!
//! Over a range of lengths `ln P(done)` is a straight line `d + b (i - a)` ([`Slowest::lines`]), and
//! its slope `b` depends on the round alone, not on the time. So with
//!
//! ```text
//! W_i = sum_{j >= i} w_j        G_i = sum_{j >= i} w_j (1 - e^{b j})
//! ```
//!
//! reckoned once per round, the sum over a line is
//!
//! ```text
//! sum_{a <= i < z} w_i (1 - e^{d + b (i - a)})
//!     = (1 - e^d) (W_a - W_z) + e^{d - b a} ((G_a - G_z) - (1 - e^{b a}) (W_a - W_z))
//! ```
//!
//! Where a line is steep the last difference cancels, so `G` and `i` begin anew after every
//! [`BLOCK_LN`] of descent. Sums run from the end, where what is lost is largest, so what is small
//! is not taken from what is large.

use crate::sr::{Lengths, Line, Slowest, lost};
use std::sync::OnceLock;

/// How far a line descends within a block: `e^4` is what the difference may lose of its digits.
const BLOCK_LN: f64 = 4.0;

/// Nearer to 1 than this a difference from it is taken from a series, where it has its digits.
const SERIES_LN: f64 = -0.01;

/// Shorter tables are summed term by term: that costs no more.
pub(super) const TERMS_MIN: usize = 32;

/// A table of weights, see the module's text.
#[derive(Debug, Clone, Default)]
pub(super) struct Prepared {
    from: Vec<f64>,
    by_round: Vec<OnceLock<Lost>>,
}

/// `G` for one round.
#[derive(Debug, Clone)]
struct Lost {
    /// Terms of a block.
    length: usize,
    /// `1 - e^{b i}` within a block.
    at: Vec<f64>,
    /// Of each block, once it is needed.
    blocks: Vec<OnceLock<Vec<f64>>>,
}

impl Prepared {
    pub(super) fn new(repair: &Slowest, weights: &[f64]) -> Self {
        let mut from = vec![0.0; weights.len() + 1];
        for i in (0..weights.len()).rev() {
            from[i] = from[i + 1] + weights[i];
        }
        Self { from, by_round: vec![OnceLock::new(); repair.rounds() + 2] }
    }

    /// [`Slowest::not_done`] of the same weights.
    pub(super) fn not_done(
        &self,
        repair: &Slowest,
        time_s: f64,
        lengths: Lengths,
        weights: &[f64],
    ) -> f64 {
        let mut sum = 0.0;
        let end = repair.lines(time_s, lengths, |line| {
            // Beyond the last round that matters everything is done.
            if line.slope < 0.0 {
                let lost = self.by_round[line.round].get_or_init(|| Lost::new(line.slope, weights));
                sum += lost.over(&line, &self.from, weights);
            }
        });
        sum + self.from[end]
    }
}

impl Lost {
    fn new(slope: f64, weights: &[f64]) -> Self {
        let length = ((BLOCK_LN / -slope) as usize).clamp(1, weights.len());
        let ratio = slope.exp();
        let mut done = 1.0;
        let lost_at = |i| {
            let ln_done = slope * i as f64;
            let at = if ln_done > SERIES_LN { lost(ln_done) } else { 1.0 - done };
            done *= ratio;
            at
        };
        let at = (0..length).map(lost_at).collect();
        Self { length, at, blocks: vec![OnceLock::new(); weights.len().div_ceil(length)] }
    }

    /// The sum over a line.
    fn over(&self, line: &Line, weight_from: &[f64], weights: &[f64]) -> f64 {
        let range = line.range();
        let (mut sum, mut at) = (0.0, range.start);
        while at < range.end {
            let (number, skipped) = (at / self.length, at % self.length);
            let first = at - skipped;
            let end = (first + self.length).min(range.end);
            let block = self.blocks[number].get_or_init(|| self.block(first, weights));
            let ln_done = line.ln_done + (at - range.start) as f64 * line.slope;
            let weight = weight_from[at] - weight_from[end];
            let mut falling = block[skipped] - block.get(end - first).copied().unwrap_or(0.0);
            if skipped > 0 {
                let ln_skipped = skipped as f64 * line.slope;
                falling = (falling - self.at[skipped] * weight) * (-ln_skipped).exp();
            }
            sum += lost(ln_done) * weight + ln_done.exp() * falling;
            at = end;
        }
        sum
    }

    fn block(&self, first: usize, weights: &[f64]) -> Vec<f64> {
        let end = (first + self.length).min(weights.len());
        let mut from: Vec<f64> =
            weights[first..end].iter().zip(&self.at).map(|(weight, lost)| weight * lost).collect();
        for i in (0..from.len() - 1).rev() {
            from[i] += from[i + 1];
        }
        from
    }
}
