//! The slowest chunk, `max X_i`: its distribution, quantiles and mean, at a cost that depends on
//! the number of rounds and not on the number of chunks.
//!
//! At `M T + u` a chunk with `j` chunks behind it has had `1 + floor((u + j T) / O)` rounds, so
//!
//! ```text
//! P(max X_i <= M T + u) = prod_{j<M} a_{1 + floor((u + j T) / O)}
//! ```
//!
//! Chunks with the same number of rounds are neighbours. With `N_q(u) = clamp(ceil((q O - u) / T),
//! 0, M)`, the chunks that have had at most `q` rounds, the product is
//!
//! ```text
//! ln F(u) = sum_q (N_q - N_{q-1}) ln a_q,   N_0 = 0
//! ```
//!
//! with as many terms as there are rounds that matter (`Rounds`). Everything below is in units of
//! `T`: `v = u / T`, `rho = O / T`.

use super::{RepairTiming, walk};
use crate::Transfer;
use crate::rounds::Rounds;

/// Relative error of a difference of two products, each rounded once: what a whole number may be
/// off by before it counts as the next one.
const ROUNDING: f64 = 8.0 * f64::EPSILON;

/// `ln P(done)` below which done is as good as impossible.
const IMPOSSIBLE_LN: f64 = -40.0;

/// `ln P(done)` above which not being done is taken from a series, …
const NEAR_ONE_LN: f64 = -0.01;

/// Up to so many rounds the steps of single chunks are always walked.
const STEPPED_ROUNDS_MIN: usize = 32;

/// More rounds than this are never walked step by step: the steps are then small.
const STEPPED_ROUNDS_MAX: usize = 256;

/// Between the two, a message is smooth when it is this many chunks times a round this many chunks
/// long: lines instead of steps cost 1/24 of its inverse of the completion time.
const SMOOTH_CHUNKS_SQUARED: f64 = 1e9;

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Slowest {
    /// `T`.
    chunk_s: f64,
    /// `O / T`.
    rho: f64,
    rounds: Rounds,
}

/// How the units of a message follow each other: chunks, or submessages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// `T`: a unit on the link.
    pub(crate) unit_s: f64,
    /// `O`: from one transmission to the end of the next.
    pub(crate) round_s: f64,
    /// What a unit sends in all, repairs counted, in units.
    pub(crate) transmissions: f64,
}

/// Messages of `first`, `first + step`, ... chunks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lengths {
    pub(crate) first: f64,
    pub(crate) step: f64,
    pub(crate) count: usize,
}

/// A part of [`Lengths`] over which `ln P(max X <= time)` is a straight line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// The rounds that the first chunk of a message has had, from 1 on; they decide the slope.
    pub(crate) round: usize,
    /// Of the first length.
    pub(crate) index: usize,
    /// How many there are.
    pub(crate) length: usize,
    /// Of the first length.
    pub(crate) ln_done: f64,
    /// From one to the next; at most 0.
    pub(crate) slope: f64,
}

impl Line {
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        self.index..self.index + self.length
    }
}

impl Slowest {
    /// `chunks` is what the wire time of repairs is reckoned for.
    pub(crate) fn new(
        transfer: &Transfer,
        chunks: f64,
        timing: RepairTiming,
        rounds: Rounds,
    ) -> Self {
        let chunk_s = transfer.chunk_s();
        let pace = Pace {
            unit_s: chunk_s,
            round_s: timing.rto_rtts * transfer.rtt_s() + chunk_s,
            transmissions: 1.0 / (1.0 - transfer.loss().probability()),
        };
        Self::paced(pace, chunks, timing.wire_time, rounds)
    }

    /// With `wire_time`, repairs of `units` units take link time from first transmissions.
    pub(crate) fn paced(pace: Pace, units: f64, wire_time: bool, rounds: Rounds) -> Self {
        let rho = pace.round_s / pace.unit_s;
        let stretch = if wire_time && units > rho {
            (rho + (units - rho) * pace.transmissions) / units
        } else {
            1.0
        };
        Self { chunk_s: pace.unit_s * stretch, rho: rho / stretch, rounds }
    }

    /// `T`, with what repairs take of it.
    pub(crate) fn chunk_s(&self) -> f64 {
        self.chunk_s
    }

    /// `O / T`.
    pub(crate) fn round_chunks(&self) -> f64 {
        self.rho
    }

    /// `ln P(max X_i <= time)` for a message of `m` chunks.
    pub(crate) fn ln_cdf(&self, m: f64, time_s: f64) -> f64 {
        let v = time_s / self.chunk_s - m;
        // A time that was computed by another way as that of a step is that of the step.
        let v = v + ROUNDING * (m + v.abs() + self.rho);
        if v < 0.0 { f64::NEG_INFINITY } else { self.ln_cdf_after(m, v) }
    }

    /// `ln F`, `v` chunk times after the last first transmission; `m` need not be whole.
    fn ln_cdf_after(&self, m: f64, v: f64) -> f64 {
        let (mut sum, mut before) = (0.0, 0.0);
        let first = (v / self.rho).floor().max(1.0) as usize;
        for q in first..=self.rounds.count() {
            let behind = whole_up(q as f64 * self.rho, v).clamp(0.0, m);
            sum += (behind - before) * self.rounds.ln_arrived(q);
            before = behind;
            if behind >= m {
                break;
            }
        }
        sum
    }

    /// The first time at which the probability of being done reaches `probability`.
    pub(crate) fn quantile_s(&self, m: f64, probability: f64) -> f64 {
        if probability >= 1.0 && self.rounds.count() > 0 {
            return f64::INFINITY;
        }
        let target = probability.max(0.0).ln();
        if self.ln_cdf_after(m, 0.0) >= target {
            return m * self.chunk_s;
        }
        // The distribution is a staircase: halving finds the step on which it passes the target.
        let (mut low, mut high) = (0.0, self.rho);
        while self.ln_cdf_after(m, high) < target && high < self.end() {
            (low, high) = (high, high * 2.0);
        }
        while high - low > 1e-14 * (high + m) {
            let middle = low + (high - low) / 2.0;
            if middle <= low || middle >= high {
                break;
            }
            if self.ln_cdf_after(m, middle) < target {
                low = middle;
            } else {
                high = middle;
            }
        }
        (m + high) * self.chunk_s
    }

    /// `E[max X_i]`, exact.
    pub(crate) fn mean_s(&self, chunks: u64) -> f64 {
        let m = chunks as f64;
        let excess = if chunks == 0 {
            0.0
        } else if m - 1.0 <= self.rho {
            walk::closed_form(&self.rounds, m, self.rho)
        } else if !self.is_smooth(m) {
            walk::stepped(&self.rounds, m, self.rho, None)
        } else {
            walk::smooth(&self.rounds, m, self.rho)
        };
        (m + excess) * self.chunk_s
    }

    /// The same, together with something that is done `first_s` after the message's beginning with
    /// `a_1` and with `a_{q+1}` after `q` more rounds of `round_s`; `first_s` is after all chunks were
    /// sent. `None` where that would take too long.
    pub(crate) fn mean_with_s(
        &self,
        m: u64,
        first_s: f64,
        round_s: f64,
        rounds: &Rounds,
    ) -> Option<f64> {
        let m = m as f64;
        let is_short = self.rounds.count() <= STEPPED_ROUNDS_MAX;
        is_short.then(|| {
            let start = (first_s / self.chunk_s - m).max(0.0);
            let last = walk::Last { start, round: round_s / self.chunk_s, rounds };
            first_s + walk::stepped(&self.rounds, m, self.rho, Some(&last)) * self.chunk_s
        })
    }

    /// Whether lines instead of steps change the mean of a message longer than a round by less than
    /// anybody will see.
    fn is_smooth(&self, m: f64) -> bool {
        let rounds = self.rounds.count();
        // Where the first step is cut off matters only if it may be the last.
        let is_long = || m * self.rho > SMOOTH_CHUNKS_SQUARED && self.ln_cdf_after(m, 0.0) < -30.0;
        rounds > STEPPED_ROUNDS_MAX || (rounds > STEPPED_ROUNDS_MIN && is_long())
    }

    /// `E[max X_i]` for a number of chunks that need not be whole.
    pub(crate) fn mean_real_s(&self, m: f64) -> f64 {
        if m <= 1.0 {
            return m * self.mean_s(1);
        }
        let excess = if m - 1.0 <= self.rho {
            walk::closed_form(&self.rounds, m, self.rho)
        } else {
            walk::smooth(&self.rounds, m, self.rho)
        };
        (m + excess) * self.chunk_s
    }

    /// `sum_i weights[i] P(max X > time)` over messages of `first + i step` chunks: what a sum over
    /// the numbers of failed submessages needs, at a multiplication per term.
    pub(crate) fn not_done(&self, time_s: f64, first: f64, step: f64, weights: &[f64]) -> f64 {
        let lengths = Lengths { first, step, count: weights.len() };
        let mut sum = 0.0;
        let end = self.lines(time_s, lengths, |line| {
            let (mut ln_done, mut done, ratio) =
                (line.ln_done, line.ln_done.exp(), line.slope.exp());
            for weight in &weights[line.range()] {
                // Near 1 the difference is taken where it has its digits.
                sum += weight
                    * if ln_done > NEAR_ONE_LN { lost_near_one(ln_done) } else { 1.0 - done };
                done *= ratio;
                ln_done += line.slope;
            }
        });
        sum + weights[end..].iter().sum::<f64>()
    }

    /// Goes through `ln P(max X <= time)` over messages of these lengths, as straight lines. Returns
    /// the index from which on none is done.
    ///
    /// Chunk `i` has had `1 + floor((t - i T) / O)` rounds at `t`. So between the places where the
    /// rounds change, `ln P` is a straight line in the number of chunks.
    pub(crate) fn lines(&self, time_s: f64, lengths: Lengths, mut on: impl FnMut(Line)) -> usize {
        let Lengths { first, step, count } = lengths;
        let x = time_s / self.chunk_s;
        // The chunks up to here have had more than q rounds.
        let x = x + ROUNDING * x.abs();
        let passed = |q: usize| truncated((x - q as f64 * self.rho).max(0.0));
        let mut q = self.rounds.count() + 1;
        let (mut end, mut ln_at_end) = (0.0, 0.0);
        let mut index = 0;
        while index < count {
            let n = first + index as f64 * step;
            while q > 1 && passed(q - 1) < n {
                let next = passed(q - 1).max(end);
                ln_at_end += (next - end) * self.rounds.ln_arrived(q);
                (end, q) = (next, q - 1);
            }
            let ln_done = ln_at_end + (n - end).max(0.0) * self.rounds.ln_arrived(q);
            if n > passed(0) || ln_done < IMPOSSIBLE_LN {
                // Longer messages are not done either.
                break;
            }
            let length = ((passed(q - 1) - n) / step) as usize + 1;
            let length = length.min(count - index);
            let slope = step * self.rounds.ln_arrived(q);
            on(Line { round: q, index, length, ln_done, slope });
            index += length;
        }
        index
    }

    /// Rounds that matter.
    pub(crate) fn rounds(&self) -> usize {
        self.rounds.count()
    }

    /// After the last round that matters, in chunk times after the last first transmission.
    fn end(&self) -> f64 {
        (self.rounds.count() as f64 + 1.0) * self.rho
    }
}

/// `1 - e^x` for `x <= 0`.
pub(crate) fn lost(x: f64) -> f64 {
    if x > NEAR_ONE_LN { lost_near_one(x) } else { -x.exp_m1() }
}

/// … which is `1 - e^x`, exact to rounding there, and much cheaper than the library's: a sum over the
/// failed submessages takes it thousands of times.
fn lost_near_one(x: f64) -> f64 {
    -x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x / 4.0 * (1.0 + x / 5.0 * (1.0 + x / 6.0)))))
}

/// Truncates `x` towards zero; beyond 2^62 the result is some number beyond 2^62. Without rounding
/// instructions the library's functions are calls, and a plan makes a hundred thousand of them.
fn truncated(x: f64) -> f64 {
    x as i64 as f64
}

/// `ceil(a - b)`, where a difference that rounding has lifted above a whole number is that number.
pub(super) fn whole_up(a: f64, b: f64) -> f64 {
    let exact = a - b - ROUNDING * (a.abs() + b.abs());
    let down = truncated(exact);
    if down < exact { down + 1.0 } else { down }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_near_one_is_the_exponential_to_rounding() {
        for i in 0..=1000 {
            let x = NEAR_ONE_LN * f64::from(i) / 1000.0;
            let (series, exact) = (lost_near_one(x), -x.exp_m1());
            assert!((series - exact).abs() <= 4.0 * f64::EPSILON * exact, "{x}: {series} {exact}");
        }
    }
}
