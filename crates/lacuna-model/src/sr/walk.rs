//! `integral (1 - F(u)) du`: how much longer than its injection the slowest chunk takes on
//! average, in chunk times. Three ways to the same number:
//!
//! - [`closed_form`]: `(M-1) T <= O`. At any time only two neighbouring round numbers occur.
//! - [`stepped`]: any message. Between the times at which the *set* of occurring round numbers
//!   changes, each of them loses one chunk to the next per chunk time, at a phase of its own. So
//!   `F` is a staircase that repeats every chunk time but for a constant factor, and its integral
//!   is a geometric series per phase. Exact, and as long as the rounds that matter, squared.
//! - [`smooth`]: any message, and a number of chunks that need not be whole. `ceil(x)` becomes
//!   `x + 1/2`, `ln F` becomes piecewise linear, and each piece has the integral
//!   `w - (e^f1 - e^f0) w / (f1 - f0)`. Agrees with the staircase to 1e-9 of the completion time
//!   when the message is longer than a round and many chunks long.

use super::slowest::whole_up;
use crate::rounds::Rounds;

/// `ln F` below which `F` is no part of an integral of `1 - F`: `e^-45` is 3e-20.
const NEVER_LN: f64 = -45.0;

/// What the rounds to come may add at most, as a fraction of the sum so far, to be left out.
const NEGLIGIBLE: f64 = 1e-17;

/// `sum_q (rho - (M-1)) (1 - a_q^M) + (M-1) - G_q`, with
/// `G_q = sum_{n=1}^{M-1} a_q^{M-n} a_{q+1}^n`, a geometric series.
pub(super) fn closed_form(rounds: &Rounds, m: f64, rho: f64) -> f64 {
    let mut sum = 0.0;
    for q in 1..=rounds.count() {
        let (ln_a, gain) = (rounds.ln_arrived(q), rounds.gain(q));
        if m * (ln_a + gain) < NEVER_LN {
            sum += rho;
            continue;
        }
        // `1 - F` only falls, and is at most `-ln F`.
        let to_come = (rounds.count() - q + 1) as f64 * rho;
        if -m * ln_a * to_come < NEGLIGIBLE * sum {
            break;
        }
        sum += (rho - (m - 1.0)) * -(m * ln_a).exp_m1();
        // a_q^M r (r^(M-1) - 1) / (r - 1) with r = a_{q+1} / a_q, in logarithms.
        let ratio = if gain > 0.0 { ((m - 1.0) * gain).exp_m1() / gain.exp_m1() } else { m - 1.0 };
        let falling = if ratio.is_finite() {
            (m * ln_a + gain).exp() * ratio
        } else {
            // r^(M-1) beyond f64: a_q^M is as far below it.
            (m * ln_a + m * gain).exp() / gain.exp_m1()
        };
        sum += (m - 1.0) - falling;
    }
    sum
}

/// One more thing that has to be done: after `q` rounds, the first of which ends at `start`, with
/// `a_q`. In chunk times after the last first transmission.
pub(super) struct Last<'r> {
    pub(super) start: f64,
    pub(super) round: f64,
    pub(super) rounds: &'r Rounds,
}

/// See the module's text. With a `last`, the integral begins where that one's first round ends.
pub(super) fn stepped(rounds: &Rounds, m: f64, rho: f64, last: Option<&Last>) -> f64 {
    let count = rounds.count();
    let from = last.map_or(0.0, |last| last.start);
    let mut bounds = vec![from];
    for q in 1..=count {
        let end = q as f64 * rho;
        bounds.push((end - (m - 1.0)).max(from));
        bounds.push(end.max(from));
    }
    if let Some(last) = last {
        bounds.extend((1..=last.rounds.count()).map(|q| last.start + q as f64 * last.round));
    }
    bounds.sort_by(f64::total_cmp);
    let mut steps: Vec<(f64, f64)> = Vec::with_capacity(count);
    let mut sum = 0.0;
    for pair in bounds.windows(2) {
        let (start, length) = (pair[0], pair[1] - pair[0]);
        if length <= 0.0 {
            continue;
        }
        steps.clear();
        let (mut ln_f, mut before) = (0.0, 0.0);
        // Before the first of these no chunk is behind, after the last all are: they add nothing.
        let first = (start / rho).floor().max(1.0) as usize;
        for q in first..=count {
            let end = q as f64 * rho;
            let behind = whole_up(end, start).clamp(0.0, m);
            ln_f += (behind - before) * rounds.ln_arrived(q);
            before = behind;
            if behind >= m {
                break;
            }
            if behind >= 1.0 {
                steps.push(((end - start - (behind - 1.0)).clamp(0.0, 1.0), rounds.gain(q)));
            }
        }
        if let Some(last) = last {
            // Its steps are bounds: anywhere within them its round is the same.
            let again = (start - last.start + length / 2.0) / last.round;
            ln_f += last.rounds.ln_arrived((again as usize).saturating_add(1));
        }
        if -ln_f * (bounds[bounds.len() - 1] - start) < NEGLIGIBLE * sum {
            break;
        }
        steps.sort_by(|a, b| a.0.total_cmp(&b.0));
        sum += staircase(ln_f, length, &steps);
    }
    sum
}

/// `integral (1 - F)` over `length` periods, where `ln F` starts at `ln_f` and rises in each
/// period by the steps `(phase, gain)`, in order of their phases.
fn staircase(ln_f: f64, length: f64, steps: &[(f64, f64)]) -> f64 {
    let per_period: f64 = steps.iter().map(|step| step.1).sum();
    let periods = length.floor();
    if ln_f + per_period * (periods + 1.0) < NEVER_LN {
        return length;
    }
    let rest = length - periods;
    let (periods, after) = Periods::new(per_period, periods);
    let mut done = 0.0;
    let (mut level, mut phase) = (ln_f, 0.0);
    for (next, gain) in steps.iter().copied().chain(std::iter::once((1.0, 0.0))) {
        let at = (level + periods.ln_from).exp();
        done += (next - phase) * at * periods.sum;
        let left = rest.min(next) - phase;
        if left > 0.0 {
            done += left * at * after;
        }
        (level, phase) = (level + gain, next);
    }
    length - done
}

/// `sum_{n < periods} e^(level + n gain) = e^(level + ln_from) sum`: what the steps of a period
/// have in common.
struct Periods {
    ln_from: f64,
    sum: f64,
}

impl Periods {
    /// And `e^(periods gain - ln_from)`.
    fn new(gain: f64, periods: f64) -> (Self, f64) {
        let rise = gain * periods;
        if rise <= 0.0 {
            (Self { ln_from: 0.0, sum: periods }, 1.0)
        } else if rise < 1.0 {
            let risen = rise.exp_m1();
            (Self { ln_from: 0.0, sum: risen / gain.exp_m1() }, 1.0 + risen)
        } else {
            // The level is as far below zero as the gain will lift it, so nothing overflows.
            (Self { ln_from: rise, sum: -(-rise).exp_m1() / gain.exp_m1() }, 1.0)
        }
    }
}

/// See the module's text.
pub(super) fn smooth(rounds: &Rounds, m: f64, rho: f64) -> f64 {
    let count = rounds.count();
    let mut bends: Vec<(f64, f64)> = Vec::with_capacity(2 * count + 1);
    let (mut ln_f, mut before) = (0.0, 0.0);
    for q in 1..=count {
        let end = q as f64 * rho + 0.5;
        let behind = end.min(m);
        ln_f += (behind - before) * rounds.ln_arrived(q);
        before = behind;
        bends.push(((end - m).max(0.0), rounds.gain(q)));
        bends.push((end, -rounds.gain(q)));
    }
    bends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum, mut slope, mut at) = (0.0, 0.0, 0.0);
    for (bend, change) in bends {
        let length = bend - at;
        let rise = slope * length;
        sum += if rise.abs() < 1e-4 {
            // (e^d - 1) / d by its series: both go to zero.
            length - length * ln_f.min(0.0).exp() * (1.0 + rise / 2.0 + rise * rise / 6.0)
        } else {
            length - ((ln_f + rise).min(0.0).exp() - ln_f.min(0.0).exp()) * length / rise
        };
        ln_f += rise;
        (slope, at) = (slope + change, bend);
    }
    sum
}
