//! Draws completion times of selective repeat.
//!
//! The message is done at the largest `i T + c O` over chunks `i` that were lost `c` times. For
//! each `c` only the last such chunk matters. With independent losses these last chunks follow
//! from each other: the last chunk lost at least once lies a geometric gap (in `p`) before the
//! end. Given the last one lost `c` times, it is lost once more with `p`; if not, the last one
//! lost `c + 1` times lies a geometric gap (in `p^(c+1)`) before *it*, because nothing is known of
//! the chunks before, and no chunk behind was lost `c` times. So a trial draws once or twice per
//! round, and touches one lost chunk per round.
//!
//! In bursts all lost chunks are followed through their rounds, each round over a link of its own.

use super::Sample;
use super::losses::Link;
use crate::{ChunkLoss, ModelError, Random, RepairTiming, Transfer};

/// Draws what [`SelectiveRepeat`](crate::SelectiveRepeat) computes. Ignores
/// [`RepairTiming::wire_time`]: see [`SerializedSampler`](super::SerializedSampler).
#[derive(Debug, Clone)]
pub struct RepeatSampler {
    chunks: u64,
    rtt_s: f64,
    repeats: Repeats,
}

impl RepeatSampler {
    /// A message with repair as `timing` says.
    ///
    /// # Errors
    ///
    /// As [`SelectiveRepeat::new`](crate::SelectiveRepeat::new).
    pub fn new(transfer: &Transfer, timing: RepairTiming) -> Result<Self, ModelError> {
        let timing = timing.checked()?;
        let repeats = Repeats::new(transfer, timing);
        Ok(Self { chunks: transfer.chunks(), rtt_s: transfer.rtt_s(), repeats })
    }
}

impl Sample for RepeatSampler {
    fn sample_s(&self, random: &mut Random) -> f64 {
        self.repeats.slowest_s(self.chunks, random) + self.rtt_s
    }
}

/// `max X_i` of a message of any length.
#[derive(Debug, Clone)]
pub(super) struct Repeats {
    chunk_s: f64,
    round_s: f64,
    loss: ChunkLoss,
    /// `ln(1 - p^c)` for `c = 1, 2, ...`, as far as it is needed often.
    ln_came: Vec<f64>,
}

/// Rounds whose logarithms are kept; deeper ones are computed when they come.
const KEPT_ROUNDS: i32 = 32;

impl Repeats {
    pub(super) fn new(transfer: &Transfer, timing: RepairTiming) -> Self {
        let p = transfer.loss().probability();
        Self {
            chunk_s: transfer.chunk_s(),
            round_s: timing.rto_rtts * transfer.rtt_s() + transfer.chunk_s(),
            loss: *transfer.loss(),
            ln_came: (1..=KEPT_ROUNDS).map(|c| (-p.powi(c)).ln_1p()).collect(),
        }
    }

    pub(super) fn slowest_s(&self, chunks: u64, random: &mut Random) -> f64 {
        let all_s = chunks as f64 * self.chunk_s;
        if self.loss.chain().is_some() {
            return self.in_bursts_s(chunks, all_s, random);
        }
        let p = self.loss.probability();
        let mut slowest_s = all_s;
        // The last chunk that was lost `c` times, counted from 1.
        let mut last = chunks as f64 - random.failures(self.ln_came[0]);
        let mut c = 1;
        while last >= 1.0 {
            slowest_s = slowest_s.max(last * self.chunk_s + f64::from(c) * self.round_s);
            c += 1;
            if !random.chance(p) {
                let kept = self.ln_came.get(c as usize - 1).copied();
                let ln_came = kept.unwrap_or_else(|| (-p.powi(c)).ln_1p());
                last -= 1.0 + random.failures(ln_came);
            }
        }
        slowest_s
    }

    fn in_bursts_s(&self, chunks: u64, all_s: f64, random: &mut Random) -> f64 {
        let mut missing = Vec::new();
        Link::new(&self.loss, random).pass_all(chunks, random, |chunk| missing.push(chunk));
        let (mut slowest_s, mut round) = (all_s, 1);
        while let Some(last) = missing.last() {
            let done_s = (last + 1) as f64 * self.chunk_s + f64::from(round) * self.round_s;
            slowest_s = slowest_s.max(done_s);
            round += 1;
            let mut link = Link::new(&self.loss, random);
            let mut next = 0;
            missing.retain(|chunk| {
                let lost = link.passes_after(chunk - next, random);
                next = chunk + 1;
                lost
            });
        }
        slowest_s
    }
}
