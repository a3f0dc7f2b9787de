//! Submessages whose parity does not suffice: how many data chunks must be sent again, and when they
//! arrive.
//!
//! A part is what is repaired or not by itself: a submessage of an MDS code, a group of an XOR code.
//! `n` of `k` data chunks are missing for good if more than `m - n` parity chunks are too; `n = 1` of a
//! group if its parity is, `n > 1` whatever its parity does.
//!
//! Under bursts submessages that follow each other fail together, and of those that a round may make
//! late there are as many as a round is long. So `ln a_q` is the logarithm of the exact probability that
//! none of so many in a row is missing after `q` rounds, divided by their number. Their repeats pass the
//! link at times of their own, and count as independent.

use crate::block::{Block, SELDOM, each_of, outcome};
use crate::code::Outcome;
use crate::loss::ChunkLoss;
use crate::rounds::Rounds;
use crate::sr::lost;
use crate::{Code, CodeKind};

/// What is less likely than the likeliest number by this factor is left out.
const NEGLIGIBLE: f64 = 1e-13;

/// `ln P` of what never happens: differences of such are numbers still.
const IMPOSSIBLE_LN: f64 = -700.0;

/// A submessage over the rounds of its repair.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Repair {
    /// `ln a_q`: it is whole after its parity, after one repetition of what is missing, ...
    pub(crate) rounds: Rounds,
    /// Chunks that go out again, on average over all submessages and over those where some do.
    pub(crate) mean_chunks: f64,
    pub(crate) mean_chunks_if_any: f64,
    /// Under bursts, after each round: the state of the link behind submessages in a row that all came;
    /// in rounds beyond these it tells nothing.
    behind: Vec<[f64; 2]>,
}

impl Repair {
    /// Of losses that are independent. `outcome` is the code's, `of_chunks` are the rounds of its chunks.
    pub(crate) fn new(code: Code, loss: &ChunkLoss, outcome: Outcome, of_chunks: &Rounds) -> Self {
        let failure = outcome.failure;
        if failure == 0.0 {
            let rounds = Rounds::of(Vec::new());
            return Self { rounds, mean_chunks: 0.0, mean_chunks_if_any: 0.0, behind: Vec::new() };
        }
        let parts = parts(code, loss.probability());
        let mut ln_whole = outcome.ln_success().max(IMPOSSIBLE_LN);
        let mut rounds = vec![ln_whole];
        for q in 1..=of_chunks.count() {
            let ln_came = of_chunks.ln_arrived(q);
            // Not less than before, where the sum is so near to 1 that its digits are lost.
            ln_whole = parts.iter().map(|part| part.ln_whole(ln_came)).sum::<f64>().max(ln_whole);
            rounds.push(ln_whole);
        }
        let mean_chunks = parts.iter().map(Part::mean_chunks).sum::<f64>();
        Self {
            rounds: Rounds::of(rounds),
            mean_chunks,
            mean_chunks_if_any: mean_chunks / failure,
            behind: Vec::new(),
        }
    }

    /// Under bursts, of one among so many in a row.
    pub(crate) fn in_bursts(block: &Block, count: u64, of_chunks: &Rounds) -> Self {
        let mut behind = Vec::with_capacity(of_chunks.count() + 1);
        let (failure, ln_alone) = (block.outcome().failure, block.outcome().ln_success());
        // Those that fail together, on average.
        let mut cluster = f64::INFINITY;
        let each = |ln_came: Option<f64>| {
            let alone = ln_came.map_or(failure, |ln_came| block.late(ln_came));
            if cluster * alone < SELDOM * failure {
                return Outcome { success: 1.0 - alone, failure: alone };
            }
            let step = ln_came.map_or(block.step, |ln_came| block.repeated(ln_came));
            let (each, state) = each_of(block.stationary, &step, count);
            if behind.is_empty() {
                cluster = ln_alone.max(IMPOSSIBLE_LN) / each.ln_success().max(IMPOSSIBLE_LN);
            }
            behind.push(state);
            each
        };
        let rounds = rounds_in_bursts(block, of_chunks, each);
        Self { behind, ..Self::with_rounds(block, rounds) }
    }

    /// Under bursts, of one that follows such ones.
    pub(crate) fn after(&self, block: &Block, of_chunks: &Rounds) -> Self {
        let mut before = self.behind.iter().copied();
        let each = |ln_came: Option<f64>| {
            let step = ln_came.map_or(block.step, |ln_came| block.repeated(ln_came));
            outcome(before.next().unwrap_or(block.stationary), &step)
        };
        Self::with_rounds(block, rounds_in_bursts(block, of_chunks, each))
    }

    fn with_rounds(block: &Block, rounds: Rounds) -> Self {
        let (mean_chunks, failure) = (block.mean_chunks(), block.outcome().failure);
        let mean_chunks_if_any = if failure > 0.0 { mean_chunks / failure } else { 0.0 };
        Self { rounds, mean_chunks, mean_chunks_if_any, behind: Vec::new() }
    }
}

/// `of` is what becomes of a submessage, as it came and once each of its missing chunks has come with so
/// much of a probability, in logarithms.
fn rounds_in_bursts(
    block: &Block,
    of_chunks: &Rounds,
    mut of: impl FnMut(Option<f64>) -> Outcome,
) -> Rounds {
    if block.outcome().failure == 0.0 {
        return Rounds::of(Vec::new());
    }
    let mut ln_whole = of(None).ln_success().max(IMPOSSIBLE_LN);
    let mut rounds = vec![ln_whole];
    for q in 1..=of_chunks.count() {
        ln_whole = of(Some(of_chunks.ln_arrived(q))).ln_success().max(ln_whole);
        rounds.push(ln_whole);
    }
    Rounds::of(rounds)
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    /// Parts like this one in a submessage.
    count: u64,
    /// Numbers of data chunks, at least 1, that are missing and cannot be repaired, with their
    /// probabilities.
    missing: Vec<(u32, f64)>,
}

impl Part {
    fn new(count: u64, mut missing: Vec<(u32, f64)>) -> Self {
        let most = missing.iter().fold(0.0, |most, (_, share)| f64::max(most, *share));
        missing.retain(|(_, share)| *share > most * NEGLIGIBLE);
        Self { count, missing }
    }

    /// The expected number of chunks, of all parts like this one.
    fn mean_chunks(&self) -> f64 {
        self.count as f64 * self.missing.iter().map(|(n, share)| f64::from(*n) * share).sum::<f64>()
    }

    /// `ln P` of all parts like this one being whole, once each chunk that was missing has come with
    /// `e^ln_came`.
    fn ln_whole(&self, ln_came: f64) -> f64 {
        let late = |(n, share): &(u32, f64)| share * lost(f64::from(*n) * ln_came);
        let late: f64 = self.missing.iter().map(late).sum();
        self.count as f64 * (-late.min(1.0)).ln_1p()
    }

    #[cfg(test)]
    fn failure(&self) -> f64 {
        self.missing.iter().map(|(_, share)| share).sum()
    }
}

/// The parts of a submessage with this code, whose chunks are lost independently with `p`.
fn parts(code: Code, p: f64) -> Vec<Part> {
    let (k, m) = (code.k(), code.m());
    match code.kind() {
        CodeKind::Mds => {
            let of_parity = parity_fails(m, p).into_iter().chain(std::iter::repeat(1.0));
            let lost = numbers_lost(k, p, m).into_iter();
            let missing = lost.zip(of_parity).map(|(lost, fails)| lost * fails);
            vec![Part::new(1, (1..).zip(missing).collect())]
        }
        CodeKind::Xor => code
            .groups()
            .filter(|(_, count)| *count > 0)
            .map(|(data, count)| {
                let mut missing = numbers_lost(data as u32, p, 1);
                // One is repaired if the parity comes.
                missing[0] *= p;
                Part::new(count, (1..).zip(missing).collect())
            })
            .collect(),
    }
}

/// `P(Bin(k, p) = n)` for `n = 1, ..., k`, up to where nothing of weight follows beyond the first
/// `least`, which are always there.
fn numbers_lost(k: u32, p: f64, least: u32) -> Vec<f64> {
    let (ln_lost, ln_came) = (p.ln(), (-p).ln_1p());
    let mut ln_choices = 0.0;
    let (mut shares, mut most) = (Vec::new(), 0.0);
    for n in 1..=k {
        ln_choices += (f64::from(k - n + 1) / f64::from(n)).ln();
        let ln_share = ln_choices + f64::from(n) * ln_lost + f64::from(k - n) * ln_came;
        let share = ln_share.exp();
        shares.push(share);
        if n > least {
            most = f64::max(most, share);
            if share < most * NEGLIGIBLE {
                break;
            }
        }
    }
    shares
}

/// The probability that fewer than `n` of `m` parity chunks come, for `n = 1, ..., m`.
fn parity_fails(m: u32, p: f64) -> Vec<f64> {
    // From the least likely on, so that no digit is lost.
    let mut sum = 0.0;
    let add = |share: &f64| {
        sum += share;
        sum
    };
    numbers_lost(m, p, m).iter().rev().map(add).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;
    use crate::block::Parity;
    use crate::gilbert::Step;

    #[test]
    fn something_is_missing_as_often_as_the_code_fails() {
        for code in [
            Code::mds(32, 8).unwrap(),
            Code::mds(4, 1).unwrap(),
            Code::xor(32, 8).unwrap(),
            Code::xor(10, 4).unwrap(),
        ] {
            for p in [1e-3, 0.2] {
                let none: f64 = parts(code, p)
                    .iter()
                    .map(|part| (1.0 - part.failure()).powi(part.count as i32))
                    .product();
                let failure = code.failure(&ChunkLoss::independent(p).unwrap());
                let actual = 1.0 - none;
                assert!(
                    (actual - failure).abs() <= 1e-10 * failure + 1e-15,
                    "{code:?} {actual} {failure}"
                );
            }
            let loss = Loss::bursts(0.01, 4.0).unwrap().of_chunk(1).unwrap();
            let block = Block::new(code, loss.chain().unwrap(), Parity::Later);
            let failure = code.failure(&loss);
            let actual: f64 = block
                .missing
                .iter()
                .map(|(_, share)| outcome(block.stationary, &Step { ok: *share, ..block.step }))
                .map(|outcome| outcome.success)
                .sum();
            assert!((actual / failure - 1.0).abs() < 1e-9, "{code:?} {actual} {failure}");
        }
    }

    #[test]
    fn a_large_code_of_which_half_is_lost_misses_half() {
        let parts = parts(Code::mds(50_000, 10).unwrap(), 0.5);
        assert!((parts[0].mean_chunks() / 25_000.0 - 1.0).abs() < 1e-9);
    }
}
