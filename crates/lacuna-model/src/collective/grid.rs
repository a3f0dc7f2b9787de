//! A distribution on equidistant times, closed under sums and maxima of independent times.
//!
//! Each time is rounded to the nearest point of the grid, so a sum of `n` times is off by at most
//! `n / 2` steps, and the earliest possible time, where most of the weight is, by nothing.

use crate::Completion;

/// The grid ends where a stage is still unfinished with this probability.
const CUT: f64 = 1e-9;

/// A distribution on a grid; see the module's text.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    start_s: f64,
    step_s: f64,
    weights: Vec<f64>,
}

impl Grid {
    /// A distribution, cut where it is unfinished with 1e-9, on `points` points (at least 2).
    #[must_use]
    pub fn new(model: &impl Completion, points: usize) -> Self {
        let start_s = model.quantile_s(0.0);
        let range_s = model.quantile_s(1.0 - CUT) - start_s;
        if range_s <= 0.0 {
            return Self { start_s, step_s: f64::MIN_POSITIVE, weights: vec![1.0] };
        }
        let points = points.max(2);
        let step_s = range_s / (points - 1) as f64;
        let mut weights = Vec::with_capacity(points);
        let mut before = 1.0;
        for i in 0..points {
            let left = model.survival(start_s + (i as f64 + 0.5) * step_s);
            weights.push((before - left).max(0.0));
            before = left;
        }
        // What is beyond the cut counts as at the cut.
        weights[points - 1] += before;
        Self { start_s, step_s, weights }
    }

    /// Nothing: the neutral element of sums and maxima, on this grid's steps.
    #[must_use]
    pub fn nothing(&self) -> Self {
        Self { start_s: 0.0, step_s: self.step_s, weights: vec![1.0] }
    }

    /// The distribution of the sum of two independent times on grids of the same step.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut weights = vec![0.0; self.weights.len() + other.weights.len() - 1];
        for (i, a) in self.weights.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
            for (sum, b) in weights[i..].iter_mut().zip(&other.weights) {
                *sum += a * b;
            }
        }
        let mut sum = Self { start_s: self.start_s + other.start_s, weights, ..*self };
        sum.trim();
        sum
    }

    /// The distribution of the larger of two independent times on grids of the same step.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let (early, late) =
            if self.start_s <= other.start_s { (self, other) } else { (other, self) };
        let shift = ((late.start_s - early.start_s) / self.step_s).round() as usize;
        let length = late.weights.len().max(early.weights.len().saturating_sub(shift));
        // Up to the late one's start, the early one's weight only adds up.
        let mut below_early: f64 = early.weights.iter().take(shift).sum();
        let mut below_late = 0.0;
        let mut weights = Vec::with_capacity(length);
        for i in 0..length {
            let of_early = early.weights.get(shift + i).copied().unwrap_or(0.0);
            let of_late = late.weights.get(i).copied().unwrap_or(0.0);
            weights.push(of_early * (below_late + of_late) + of_late * below_early);
            below_early += of_early;
            below_late += of_late;
        }
        Self { start_s: late.start_s, weights, ..*self }
    }

    /// Cuts an end that no quantile will ever see.
    fn trim(&mut self) {
        while self.weights.len() > 1 && self.weights.last().is_some_and(|weight| *weight < 1e-18) {
            self.weights.pop();
        }
    }
}

impl Completion for Grid {
    fn mean_s(&self) -> f64 {
        let steps: f64 = self.weights.iter().enumerate().map(|(i, w)| i as f64 * w).sum();
        self.start_s + steps * self.step_s
    }

    fn cdf(&self, time_s: f64) -> f64 {
        let reached = (time_s - self.start_s) / self.step_s + 1e-9;
        if reached < 0.0 {
            return 0.0;
        }
        let count = (reached.floor() as usize).saturating_add(1).min(self.weights.len());
        self.weights[..count].iter().sum()
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        // From the end: what is left there is small and has its digits.
        let allowed = 1.0 - probability.max(0.0);
        let mut left = 0.0;
        let mut index = self.weights.len() - 1;
        while index > 0 {
            left += self.weights[index];
            if left > allowed + 1e-15 {
                break;
            }
            index -= 1;
        }
        self.start_s + index as f64 * self.step_s
    }
}
