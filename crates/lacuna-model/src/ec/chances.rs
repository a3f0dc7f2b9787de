//! Failures of submessages in a message whose parity follows all of its data.
//!
//! A burst can hit several submessages in a row. The probability that all can be repaired is exact
//! ([`Block`]). The number of failures is approximated by `L'` independent draws with the same
//! probability, each of `L / L'` submessages that fail together:
//!
//! ```text
//! L' = ln P(all can be repaired) / ln P(one can be)      f ~ L / L' Bin(L', 1 - P_EC)
//! ```
//!
//! The probability of any failure and the mean number of failures are correct. The longest bursts are
//! longer than in this approximation, so high percentiles are too low where a burst takes as long to send
//! as a round trip.

use super::Early;
use crate::Code;
use crate::block::{Block, Parity};
use crate::code::Outcome;
use crate::gilbert::ChunkChain;
use crate::loss::ChunkLoss;

/// See the module's text.
pub(super) struct Chances {
    /// Of a whole submessage, as if it were independent of the others: all come to what they do.
    pub(super) each: Outcome,
    /// Of the short one at the end, if the others can be repaired.
    pub(super) tail: Option<Outcome>,
    pub(super) failing: Failing,
    pub(super) early: Option<Early>,
}

/// How many chunks of whole submessages fall back: so many draws, each fails for itself.
pub(super) struct Failing {
    pub(super) draws: u64,
    pub(super) failure: f64,
    /// Of a draw that fails.
    pub(super) chunks: u64,
    pub(super) expected_chunks: f64,
}

impl Chances {
    pub(super) fn new(
        code: Code,
        whole: u64,
        tail: Option<Code>,
        loss: &ChunkLoss,
        early_ack: bool,
    ) -> Self {
        if let Some(chain) = loss.chain() {
            return Self::in_bursts(code, whole, tail, chain, early_ack);
        }
        let each = code.outcome(loss);
        let early = || Early::new(whole, code.early(loss), tail.map(|tail| tail.early(loss)));
        Self {
            each,
            tail: tail.map(|tail| tail.outcome(loss)),
            failing: Failing {
                draws: whole,
                failure: each.failure,
                chunks: code.k().into(),
                expected_chunks: whole as f64 * each.failure * f64::from(code.k()),
            },
            early: early_ack.then(early),
        }
    }

    fn in_bursts(
        code: Code,
        whole: u64,
        tail: Option<Code>,
        chain: &ChunkChain,
        early_ack: bool,
    ) -> Self {
        let block = Block::new(code, chain, Parity::Later);
        let each = block.each_of(whole);
        let early = || {
            let of_tail = |tail| {
                Block::early(tail, chain).map(|tail| tail.after(&block, whole).success).collect()
            };
            let each = Block::early(code, chain).map(|block| block.each_of(whole).success);
            Early::new(whole, each.collect(), tail.map(of_tail))
        };
        let of_tail = |tail| Block::new(tail, chain, Parity::Later).after(&block, whole);
        Self {
            each,
            tail: tail.map(of_tail),
            failing: Failing::in_bursts(whole, code.k(), each, block.outcome()),
            early: early_ack.then(early),
        }
    }
}

impl Failing {
    /// `alone` is the outcome of one whatever becomes of the others.
    fn in_bursts(whole: u64, k: u32, each: Outcome, alone: Outcome) -> Self {
        let expected_chunks = whole as f64 * alone.failure * f64::from(k);
        let ln_all = whole as f64 * each.ln_success();
        let draws = (ln_all / alone.ln_success()).round();
        // Where all fail or none does, there is nothing to tell apart.
        let draws = if draws.is_nan() { whole } else { (draws as u64).clamp(1, whole) };
        let failure = -(ln_all / draws as f64).exp_m1();
        let chunks = (expected_chunks / (draws as f64 * failure)).round();
        let chunks = if chunks.is_nan() { u64::from(k) } else { chunks.max(1.0) as u64 };
        Self { draws, failure, chunks, expected_chunks }
    }
}
