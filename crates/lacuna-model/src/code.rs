//! The repair probabilities of erasure codes: which losses of a submessage can be repaired (SDR-RDMA 4.1.2,
//! 5.1.1).
//!
//! A submessage is `k` data and `m` parity chunks.
//!
//! - MDS (Reed-Solomon): any `k` of the `k + m` suffice, so it fails with `P(Bin(k+m, p) > m)`.
//! - XOR: parity `i` is the sum of the data chunks `j` with `j mod m = i`, and repairs one loss of
//!   its group. A group of `d` data chunks fails with `P(Bin(d+1, p) > 1)`.
//!
//! The early probabilities are those of being repairable from all data and the first `s` parity
//! chunks only: a receiver that answers as soon as it can needs no more.
//!
//! Under bursts a submessage is a step of the link's chain: see `block`.

use crate::block::{Block, Parity};
use crate::error::check;
use crate::loss::ChunkLoss;
use crate::{ModelError, binomial};

/// Largest submessage: the field of 2^16 elements has no longer codes.
const SUBMESSAGE_CHUNKS_MAX: u32 = 65_536;

/// Which losses a code repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CodeKind {
    /// Any `m` losses.
    Mds,
    /// One loss in each of `m` groups.
    Xor,
}

/// A code: `k` data chunks, `m` parity chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code {
    kind: CodeKind,
    k: u32,
    m: u32,
}

impl Code {
    /// A code of this kind.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] for no data, no parity, more than 65,536 chunks together, or an
    /// XOR code with more groups than data chunks.
    pub fn new(kind: CodeKind, k: u32, m: u32) -> Result<Self, ModelError> {
        let total = k.saturating_add(m);
        check("k", f64::from(k), k >= 1 && total <= SUBMESSAGE_CHUNKS_MAX, "1 to 65536 - m")?;
        check("m", f64::from(m), m >= 1, "1 to 65536 - k")?;
        if kind == CodeKind::Xor {
            check("m", f64::from(m), m <= k, "1 to k for an XOR code: a group needs a data chunk")?;
        }
        Ok(Self { kind, k, m })
    }

    /// Any `m` losses of `k + m`.
    ///
    /// # Errors
    ///
    /// See [`Code::new`].
    pub fn mds(k: u32, m: u32) -> Result<Self, ModelError> {
        Self::new(CodeKind::Mds, k, m)
    }

    /// One loss in each of `m` groups.
    ///
    /// # Errors
    ///
    /// See [`Code::new`].
    pub fn xor(k: u32, m: u32) -> Result<Self, ModelError> {
        Self::new(CodeKind::Xor, k, m)
    }

    /// Which losses it repairs.
    #[must_use]
    pub fn kind(&self) -> CodeKind {
        self.kind
    }

    /// Data chunks of a submessage.
    #[must_use]
    pub fn k(&self) -> u32 {
        self.k
    }

    /// Parity chunks of a submessage.
    #[must_use]
    pub fn m(&self) -> u32 {
        self.m
    }

    /// The code of a shorter submessage, with the same share of parity, rounded up. The paper does
    /// not say how a message ends that is no multiple of `k`; this is the project's decision.
    #[must_use]
    pub fn shortened_to(&self, chunks: u64) -> Self {
        if chunks >= u64::from(self.k) {
            return *self;
        }
        let k = (chunks as u32).max(1);
        let m = u64::from(k) * u64::from(self.m);
        Self { k, m: m.div_ceil(u64::from(self.k)) as u32, ..*self }
    }

    /// The probability that a submessage cannot be repaired. Under bursts, of one whose parity passes
    /// the link at a distance.
    #[must_use]
    pub fn failure(&self, loss: &ChunkLoss) -> f64 {
        self.outcome(loss).failure
    }

    /// Both probabilities, each with all its digits.
    pub(crate) fn outcome(&self, loss: &ChunkLoss) -> Outcome {
        let p = loss.probability();
        match (loss.chain(), self.kind) {
            (None, CodeKind::Mds) => {
                let (success, failure) =
                    binomial::tails(u64::from(self.k + self.m), p, u64::from(self.m));
                Outcome { success, failure }
            }
            (None, CodeKind::Xor) => self
                .groups()
                .map(|(data, groups)| {
                    let (success, failure) = binomial::tails(data + 1, p, 1);
                    Outcome { success, failure }.all_of(groups)
                })
                .fold(Outcome::CERTAIN, Outcome::and),
            (Some(chain), _) => Block::new(*self, chain, Parity::Later).outcome(),
        }
    }

    /// The probability of being repairable from all data and the first `s` parity chunks, for
    /// `s = 0, ..., m`.
    pub(crate) fn early(&self, loss: &ChunkLoss) -> Vec<f64> {
        let p = loss.probability();
        match (loss.chain(), self.kind) {
            (None, CodeKind::Mds) => (0..=self.m)
                .map(|s| binomial::tails(u64::from(self.k + s), p, u64::from(s)).0)
                .collect(),
            (Some(chain), _) => {
                Block::early(*self, chain).map(|block| block.outcome().success).collect()
            }
            (None, CodeKind::Xor) => {
                // The first groups may have lost one chunk of theirs, the others none.
                let none = |group| (f64::from(self.group_len(group)) * (-p).ln_1p()).exp();
                let one = |group| binomial::tails(u64::from(self.group_len(group)) + 1, p, 1).0;
                (0..=self.m)
                    .map(|s| (0..self.m).map(|g| if g < s { one(g) } else { none(g) }).product())
                    .collect()
            }
        }
    }

    /// Data chunks of an XOR group.
    fn group_len(&self, group: u32) -> u32 {
        self.k / self.m + u32::from(group < self.k % self.m)
    }

    /// The two lengths of groups and how many there are of each.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (u64, u64)> {
        let (length, longer) = (u64::from(self.k / self.m), u64::from(self.k % self.m));
        [(length + 1, longer), (length, u64::from(self.m) - longer)].into_iter()
    }
}

/// Whether a submessage, or all of several, can be repaired.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) success: f64,
    pub(crate) failure: f64,
}

impl Outcome {
    pub(crate) const CERTAIN: Self = Self { success: 1.0, failure: 0.0 };

    /// `ln P(success)`.
    pub(crate) fn ln_success(&self) -> f64 {
        if self.failure < 0.5 { (-self.failure).ln_1p() } else { self.success.ln() }
    }

    /// All of so many, each independently.
    pub(crate) fn all_of(self, count: u64) -> Self {
        if count == 0 {
            return Self::CERTAIN;
        }
        let ln_success = count as f64 * self.ln_success();
        Self { success: ln_success.exp(), failure: -ln_success.exp_m1() }
    }

    /// This one and the other.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            success: self.success * other.success,
            failure: self.failure + other.failure - self.failure * other.failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;

    fn chunk(loss: Loss) -> ChunkLoss {
        loss.of_chunk(1).unwrap()
    }

    fn assert_near(actual: f64, expected: f64, tolerance: f64) {
        assert!((actual / expected - 1.0).abs() < tolerance, "{actual} is not {expected}");
    }

    #[test]
    fn xor_fails_when_a_group_loses_two() {
        // 4.2.3: a group of d data chunks succeeds with (1-p)^d (1 + d p).
        let p: f64 = 0.02;
        let group = |d: i32| (1.0 - p).powi(d) * (1.0 + f64::from(d) * p);
        let failure = |k, m| Code::xor(k, m).unwrap().failure(&chunk(Loss::PerChunk(p)));
        assert_near(failure(32, 8), 1.0 - group(4).powi(8), 1e-12);
        assert_near(failure(10, 4), 1.0 - group(3).powi(2) * group(2).powi(2), 1e-12);
    }

    #[test]
    fn an_mds_code_of_one_parity_is_an_xor_of_one_group() {
        for loss in [Loss::PerChunk(1e-7), Loss::PerChunk(0.3), Loss::bursts(0.01, 3.0).unwrap()] {
            let mds = Code::mds(16, 1).unwrap().failure(&chunk(loss));
            let xor = Code::xor(16, 1).unwrap().failure(&chunk(loss));
            assert_near(mds, xor, 1e-9);
        }
    }

    #[test]
    fn bursts_of_the_independent_length_change_nothing() {
        let p: f64 = 0.03;
        let bursts = chunk(Loss::bursts(p, 1.0 / (1.0 - p)).unwrap());
        let independent = chunk(Loss::PerChunk(p));
        for kind in [CodeKind::Mds, CodeKind::Xor] {
            for (k, m) in [(32, 8), (24, 12), (5, 2)] {
                let code = Code::new(kind, k, m).unwrap();
                assert_near(code.failure(&bursts), code.failure(&independent), 1e-9);
                let (a, b) = (code.early(&bursts), code.early(&independent));
                assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn a_burst_of_the_groups_length_suits_interleaved_xor() {
        // Bursts of 4 over 8 interleaved groups hit each group at most once or twice; the same
        // code without interleaving (8 codes of one group) would lose nearly all of them.
        let bursts = chunk(Loss::bursts(1e-4, 4.0).unwrap());
        let interleaved = Code::xor(32, 8).unwrap().failure(&bursts);
        let consecutive = 8.0 * Code::xor(4, 1).unwrap().failure(&bursts);
        assert!(interleaved * 2.0 < consecutive, "{interleaved} {consecutive}");
    }

    #[test]
    fn early_probabilities_end_at_that_of_the_whole_code() {
        for kind in [CodeKind::Mds, CodeKind::Xor] {
            let code = Code::new(kind, 32, 8).unwrap();
            let loss = chunk(Loss::PerChunk(0.05));
            let early = code.early(&loss);
            assert_near(early[0], 0.95f64.powi(32), 1e-12);
            assert!(early.windows(2).all(|pair| pair[0] < pair[1]));
            assert_near(early[8], code.outcome(&loss).success, 1e-12);
        }
    }

    #[test]
    fn success_and_failure_keep_their_digits_and_add_up() {
        for p in [1e-12, 1e-3, 0.2, 0.9] {
            for kind in [CodeKind::Mds, CodeKind::Xor] {
                let outcome =
                    Code::new(kind, 32, 8).unwrap().outcome(&chunk(Loss::PerChunk(p))).all_of(1000);
                assert!(outcome.failure > 0.0, "{p} {kind:?}");
                assert!((outcome.success + outcome.failure - 1.0).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn impossible_codes_are_refused_by_name() {
        for (code, name) in [
            (Code::mds(0, 8), "k is 0"),
            (Code::mds(32, 0), "m is 0"),
            (Code::xor(4, 5), "m is 5"),
            (Code::mds(65_000, 1000), "k is 65000"),
            (Code::mds(u32::MAX, u32::MAX), "k is"),
        ] {
            let error = code.unwrap_err().to_string();
            assert!(error.starts_with(name), "{error}");
        }
    }

    #[test]
    fn a_short_submessage_keeps_the_share_of_parity() {
        let code = Code::mds(32, 8).unwrap();
        let lengths = |chunks| {
            let short = code.shortened_to(chunks);
            (short.k(), short.m())
        };
        assert_eq!(lengths(2), (2, 1));
        assert_eq!(lengths(5), (5, 2));
        assert_eq!(lengths(32), (32, 8));
        assert_eq!(lengths(1000), (32, 8));
    }
}
