//! What a submessage misses when its parity does not suffice: how many of its data chunks have to go
//! out again, and how they fare.
//!
//! A part is what is repaired or not by itself: a submessage of an MDS code, a group of an XOR code.
//! `n` of `k` data chunks are missing for good if more than `m - n` parity chunks are too; `n = 1` of a
//! group if its parity is, `n > 1` whatever its parity does.
//!
//! Under bursts the losses of a submessage come from an exact walk, as far as [`BURST_LOSSES_MAX`];
//! groups count as independent of each other, scaled to the probability that one of them fails.

use crate::{
    Code, CodeKind,
    code::{Losses, Outcome, thinned},
    gilbert::ChunkChain,
    loss::ChunkLoss,
    rounds::Rounds,
    sr::lost,
};

/// Under bursts, losses of a submessage beyond `m` that are told apart.
const BURST_LOSSES_MAX: u32 = 64;

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
}

impl Repair {
    /// `outcome` is the code's under this loss, `of_chunks` are the rounds of its chunks.
    pub(crate) fn new(code: Code, loss: &ChunkLoss, outcome: Outcome, of_chunks: &Rounds) -> Self {
        let failure = outcome.failure;
        if failure == 0.0 {
            let rounds = Rounds::of(Vec::new());
            return Self { rounds, mean_chunks: 0.0, mean_chunks_if_any: 0.0 };
        }
        let parts = parts(code, loss, failure);
        let mut ln_whole = outcome.ln_success().max(IMPOSSIBLE_LN);
        let mut rounds = vec![ln_whole];
        for q in 1..=of_chunks.count() {
            let ln_came = of_chunks.ln_arrived(q);
            // Not less than before, where the sum is so near to 1 that its digits are lost.
            ln_whole = parts.iter().map(|part| part.ln_whole(ln_came)).sum::<f64>().max(ln_whole);
            rounds.push(ln_whole);
        }
        let mean_chunks = parts.iter().map(Part::mean_chunks).sum::<f64>();
        Self { rounds: Rounds::of(rounds), mean_chunks, mean_chunks_if_any: mean_chunks / failure }
    }
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

    fn failure(&self) -> f64 {
        self.missing.iter().map(|(_, share)| share).sum()
    }
}

/// The parts of a submessage with this code, which fails with `failure`.
fn parts(code: Code, loss: &ChunkLoss, failure: f64) -> Vec<Part> {
    let p = loss.probability();
    let (k, m) = (code.k(), code.m());
    match (loss.chain(), code.kind()) {
        (_, _) if p == 0.0 => Vec::new(),
        (None, CodeKind::Mds) => {
            let of_parity = parity_fails(m, p).into_iter().chain(std::iter::repeat(1.0));
            let lost = numbers_lost(k, p, m).into_iter();
            let missing = lost.zip(of_parity).map(|(lost, fails)| lost * fails);
            vec![Part::new(1, (1..).zip(missing).collect())]
        }
        (None, CodeKind::Xor) => code
            .groups()
            .filter(|(_, count)| *count > 0)
            .map(|(data, count)| {
                let mut missing = numbers_lost(data as u32, p, 1);
                // One is repaired if the parity comes.
                missing[0] *= p;
                Part::new(count, (1..).zip(missing).collect())
            })
            .collect(),
        (Some(chain), CodeKind::Mds) => vec![Part::new(1, in_bursts(chain, chain, k, m))],
        (Some(chain), CodeKind::Xor) => {
            let apart = thinned(chain, m);
            let groups = code.groups().filter(|(_, count)| *count > 0);
            let mut parts: Vec<Part> = groups
                .map(|(data, count)| Part::new(count, in_bursts(&apart, chain, data as u32, 1)))
                .collect();
            let each = |part: &Part| {
                let failure = part.failure();
                Outcome { success: 1.0 - failure, failure }.all_of(part.count)
            };
            let some = parts.iter().map(each).fold(Outcome::CERTAIN, Outcome::and).failure;
            let scale = if some > 0.0 { failure / some } else { 1.0 };
            for (_, share) in parts.iter_mut().flat_map(|part| &mut part.missing) {
                *share = (*share * scale).min(1.0);
            }
            parts
        }
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

/// `k` data chunks as `data` says, `m` parity chunks as `parity` does.
fn in_bursts(data: &ChunkChain, parity: &ChunkChain, k: u32, m: u32) -> Vec<(u32, f64)> {
    let most = k.min(m + BURST_LOSSES_MAX);
    let mut lost = Losses::new(data, most as usize);
    (0..k).for_each(|_| lost.pass(data));
    let mut of_parity = Losses::new(parity, m as usize);
    (0..m).for_each(|_| of_parity.pass(parity));
    let of_parity = of_parity.exactly();
    let fails = |n: u32| {
        if n > m { 1.0 } else { of_parity[(m - n + 1) as usize..].iter().sum::<f64>() }
    };
    let numbers = lost.exactly().into_iter().zip(0..).skip(1);
    let mut missing: Vec<_> = numbers.map(|(share, n)| (n, share * fails(n))).collect();
    missing.push((most.saturating_add(1).min(k), lost.more));
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;

    #[test]
    fn something_is_missing_as_often_as_the_code_fails() {
        for (loss, tolerance) in [
            (Loss::PerChunk(1e-3), 1e-10),
            (Loss::PerChunk(0.2), 1e-10),
            (Loss::bursts(0.01, 4.0).unwrap(), 1e-9),
        ] {
            let loss = loss.of_chunk(1).unwrap();
            for code in [
                Code::mds(32, 8).unwrap(),
                Code::mds(4, 1).unwrap(),
                Code::xor(32, 8).unwrap(),
                Code::xor(10, 4).unwrap(),
            ] {
                let none: f64 = parts(code, &loss, code.failure(&loss))
                    .iter()
                    .map(|p| (1.0 - p.failure()).powi(p.count as i32))
                    .product();
                let (actual, failure) = (1.0 - none, code.failure(&loss));
                let slack = if code.kind() == CodeKind::Xor && loss.chain().is_some() {
                    // Scaled as if groups failed one at a time.
                    0.02
                } else {
                    tolerance
                };
                assert!(
                    (actual - failure).abs() <= slack * failure + 1e-15,
                    "{code:?} {actual} {failure}"
                );
            }
        }
    }

    #[test]
    fn a_large_code_of_which_half_is_lost_misses_half() {
        let loss = ChunkLoss::independent(0.5).unwrap();
        let parts = parts(Code::mds(50_000, 10).unwrap(), &loss, 1.0);
        assert!((parts[0].mean_chunks() / 25_000.0 - 1.0).abs() < 1e-9);
    }
}
