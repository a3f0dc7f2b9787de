//! The rounds of repair of a message's chunks: `ln a_q`, the logarithm of the probability that a chunk
//! arrives within its first `q` transmissions.
//!
//! Independent losses: `a_q = 1 - p^q`, whatever the message (4.2.2).
//!
//! Bursts: the transmissions of round `q` pass the link one round later than those of round
//! `q - 1`, at the same spacing, so each round sees its own run of the chain, and a chunk is still
//! missing after `q` rounds when `q` independent chains all lost it. Such chunks come in clusters,
//! so the message as a whole fares better than its chunks would one by one. `ln a_q` is then the
//! logarithm of the exact probability that *no* chunk of the message is missing after `q` rounds,
//! divided by the number of chunks. For up to [`EXACT_ROUNDS`] rounds it comes from the joint
//! chain of `2^q` states; beyond, where a missing chunk is rare, from the mean cluster: after one
//! missing chunk the next is missing too with `c^q`, `c` being the loss after a loss, so clusters
//! are `1 / (1 - c^q)` chunks long (the extremal index of the chain).

use crate::gilbert::ChunkChain;
use crate::loss::ChunkLoss;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rounds after which fewer than this many chunks are expected to be missing do not matter: it is
/// 1e-4 of the resolution of an `f64` near 1.
const MISSING_CHUNKS_MIN: f64 = 1e-20;

/// Rounds for which bursts are followed exactly, at `8^q` steps each.
const EXACT_ROUNDS: usize = 3;

/// `ln a_q` for `q = 1, 2, ...`, ending where every later one is as good as zero.
#[derive(Debug, Clone)]
pub(crate) struct Rounds {
    /// There may be more of them than matter.
    ln_arrived: Arc<[f64]>,
    count: usize,
}

impl PartialEq for Rounds {
    fn eq(&self, other: &Self) -> bool {
        self.ln_arrived[..self.count] == other.ln_arrived[..other.count]
    }
}

impl Rounds {
    /// For messages of up to `chunks` chunks.
    pub(crate) fn new(loss: &ChunkLoss, chunks: u64) -> Self {
        RoundsOf::new(*loss).rounds(chunks)
    }

    /// Of something that is no chunk: `ln a_q`, from `q = 1`.
    pub(crate) fn of(ln_arrived: Vec<f64>) -> Self {
        Self { count: ln_arrived.len(), ln_arrived: ln_arrived.into() }
    }

    /// Number of rounds that matter.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// `ln a_q`, from `q = 1`; zero beyond the last round that matters.
    pub(crate) fn ln_arrived(&self, q: usize) -> f64 {
        if q <= self.count { self.ln_arrived[q - 1] } else { 0.0 }
    }

    /// `ln a_{q+1} - ln a_q`: what one chunk that gets one more round adds.
    pub(crate) fn gain(&self, q: usize) -> f64 {
        self.ln_arrived(q + 1) - self.ln_arrived(q)
    }
}

/// The rounds of one loss, for messages of several lengths: they have most of their numbers in
/// common.
#[derive(Debug)]
pub(crate) struct RoundsOf {
    loss: ChunkLoss,
    /// Independent losses: the longest so far.
    longest: RefCell<Arc<[f64]>>,
    /// Bursts: by number of chunks.
    by_chunks: RefCell<BTreeMap<u64, Rounds>>,
    joint: RefCell<[joint::Chains; EXACT_ROUNDS]>,
}

impl RoundsOf {
    pub(crate) fn new(loss: ChunkLoss) -> Self {
        Self {
            loss,
            longest: RefCell::default(),
            by_chunks: RefCell::default(),
            joint: RefCell::default(),
        }
    }

    /// See [`Rounds::new`].
    pub(crate) fn rounds(&self, chunks: u64) -> Rounds {
        let p = self.loss.probability();
        if p == 0.0 {
            return Rounds { ln_arrived: Arc::default(), count: 0 };
        }
        let count = ((MISSING_CHUNKS_MIN / chunks as f64).ln() / p.ln()).ceil().max(1.0) as usize;
        let Some(chain) = self.loss.chain() else {
            let mut longest = self.longest.borrow_mut();
            if longest.len() < count {
                *longest = (1..=count).map(|q| (-p.powi(q as i32)).ln_1p()).collect();
            }
            return Rounds { ln_arrived: longest.clone(), count };
        };
        if let Some(known) = self.by_chunks.borrow().get(&chunks) {
            return known.clone();
        }
        let rounds = Rounds { ln_arrived: self.in_bursts(chain, chunks, count), count };
        self.by_chunks.borrow_mut().insert(chunks, rounds.clone());
        rounds
    }

    fn in_bursts(&self, chain: &ChunkChain, chunks: u64, count: usize) -> Arc<[f64]> {
        let (p, after_loss) = (self.loss.probability(), chain.loss_after_loss());
        // Missing after q rounds; and next to one that is missing.
        let (mut missing, mut together) = (1.0, 1.0);
        let mut joint = self.joint.borrow_mut();
        (1..=count)
            .map(|q| {
                missing *= p;
                together *= after_loss;
                if let Some(chains) = joint.get_mut(q - 1) {
                    return chains.ln_none_missing(chain, q, chunks) / chunks as f64;
                }
                let alone = 1.0 - together;
                let clusters_per_chunk = alone + (1.0 - alone) / chunks as f64;
                (-missing * clusters_per_chunk).ln_1p()
            })
            .collect()
    }
}

/// The chain of `q` rounds side by side, each in one of two states.
mod joint {
    use crate::gilbert::{ChunkChain, Matrix};

    /// States of the joint chain at most: a plan asks for hundreds of these, so none is on the heap.
    const STATES_MAX: usize = 1 << super::EXACT_ROUNDS;

    type Row = [f64; STATES_MAX];
    type Square = [Row; STATES_MAX];

    /// What becomes of 1, 2, 4, ... chunks over `q` rounds; filled as far as was asked for.
    ///
    /// For small losses `none` is near a matrix whose powers keep all of the probability, and the
    /// difference from 1 drowns in rounding. So `lost` is carried beside it: the probability that
    /// something has been missing so far.
    #[derive(Debug, Default)]
    pub(super) struct Chains {
        doubled: Vec<Chunks>,
    }

    #[derive(Debug)]
    struct Chunks {
        none: Square,
        lost: Square,
    }

    impl Chains {
        /// Logarithm of the probability that none of `chunks` chunks is lost in all `q` rounds.
        pub(super) fn ln_none_missing(&mut self, chain: &ChunkChain, q: usize, chunks: u64) -> f64 {
            let size = 1 << q;
            // (none missing so far, by state), and the total that has been missing.
            let (mut alive, mut missing) = ([0.0; STATES_MAX], 0.0);
            for (states, alive) in alive.iter_mut().enumerate().take(size) {
                *alive = (0..q).map(|round| chain.stationary[states >> round & 1]).product();
            }
            for bit in 0..u64::BITS - chunks.leading_zeros() {
                if self.doubled.len() == bit as usize {
                    let last = self.doubled.last();
                    let next = last.map_or_else(|| Chunks::one(chain, q), |last| last.twice(size));
                    self.doubled.push(next);
                }
                let Chunks { none, lost } = &self.doubled[bit as usize];
                if chunks >> bit & 1 == 1 {
                    missing += times(&alive, lost, size).iter().sum::<f64>();
                    alive = times(&alive, none, size);
                }
            }
            let alive: f64 = alive.iter().sum();
            if missing < 0.5 { (-missing).ln_1p() } else { alive.max(f64::MIN_POSITIVE).ln() }
        }
    }

    impl Chunks {
        fn one(chain: &ChunkChain, q: usize) -> Self {
            let lost = power(&chain.step.lost, q);
            let mut none = power(&chain.step.all(), q);
            for (none, lost) in none.iter_mut().zip(&lost) {
                for (none, lost) in none.iter_mut().zip(lost) {
                    *none = (*none - lost).max(0.0);
                }
            }
            Self { none, lost }
        }

        fn twice(&self, size: usize) -> Self {
            // Missing in two steps: in the first (whatever then), or in the second.
            let mut lost = product(&self.none, &self.lost, size);
            for (row, before) in lost.iter_mut().zip(&self.lost) {
                // Once missing, the state does not matter any more: book it anywhere.
                row[0] += before.iter().sum::<f64>();
            }
            Self { none: product(&self.none, &self.none, size), lost }
        }
    }

    /// `q` independent chains as one.
    fn power(matrix: &Matrix, q: usize) -> Square {
        let mut power = [[0.0; STATES_MAX]; STATES_MAX];
        for (from, row) in power.iter_mut().enumerate().take(1 << q) {
            for (to, entry) in row.iter_mut().enumerate().take(1 << q) {
                *entry = (0..q).map(|round| matrix[from >> round & 1][to >> round & 1]).product();
            }
        }
        power
    }

    fn product(a: &Square, b: &Square, size: usize) -> Square {
        let mut result = [[0.0; STATES_MAX]; STATES_MAX];
        for (row, a) in result.iter_mut().zip(a).take(size) {
            *row = times(a, b, size);
        }
        result
    }

    fn times(row: &Row, matrix: &Square, size: usize) -> Row {
        let mut result = [0.0; STATES_MAX];
        for (value, line) in row.iter().zip(matrix).take(size) {
            for (sum, entry) in result.iter_mut().zip(line) {
                *sum += value * entry;
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Loss;

    fn rounds(loss: Loss, packets: u64, chunks: u64) -> Rounds {
        Rounds::new(&loss.of_chunk(packets).unwrap(), chunks)
    }

    #[test]
    fn the_last_round_leaves_nothing_that_an_f64_would_notice() {
        for p in [1e-8, 1e-3, 0.1, 0.9] {
            let rounds = rounds(Loss::PerChunk(p), 1, 1 << 24);
            let missing = f64::powi(p, rounds.count() as i32) * f64::from(1 << 24);
            assert!(missing <= 1e-20 && missing / p > 1e-20, "{p}: {missing}");
        }
        assert_eq!(rounds(Loss::PerChunk(0.0), 1, 9).count(), 0);
    }

    #[test]
    fn bursts_of_the_independent_length_give_the_independent_rounds() {
        let p: f64 = 0.05;
        let bursts = rounds(Loss::bursts(p, 1.0 / (1.0 - p)).unwrap(), 1, 1000);
        let independent = rounds(Loss::PerChunk(p), 1, 1000);
        for q in 1..=independent.count() {
            let (a, b) = (bursts.ln_arrived(q), independent.ln_arrived(q));
            assert!((a / b - 1.0).abs() < 1e-3, "round {q}: {a} and {b}");
        }
    }

    #[test]
    fn one_chunk_is_missing_after_q_rounds_with_p_to_the_q() {
        let bursts = rounds(Loss::bursts(0.1, 5.0).unwrap(), 1, 1);
        for q in 1..=6 {
            let expected = (-(0.1f64.powi(q))).ln_1p();
            let actual = bursts.ln_arrived(q as usize);
            assert!((actual / expected - 1.0).abs() < 1e-9, "round {q}: {actual}, {expected}");
        }
    }

    #[test]
    fn messages_of_several_lengths_share_their_rounds_and_have_their_own_number() {
        for loss in [Loss::PerChunk(0.1), Loss::bursts(0.1, 4.0).unwrap()] {
            let of = RoundsOf::new(loss.of_chunk(1).unwrap());
            for chunks in [1000, 7, 1 << 24, 1000, 1] {
                assert_eq!(of.rounds(chunks).count(), rounds(loss, 1, chunks).count());
                for q in 1..60 {
                    let (shared, alone) = (of.rounds(chunks), rounds(loss, 1, chunks));
                    assert_eq!(shared.ln_arrived(q), alone.ln_arrived(q), "{chunks} {q}");
                }
            }
        }
    }

    #[test]
    fn the_mean_cluster_continues_what_the_joint_chain_begins() {
        let loss = Loss::bursts(1e-3, 8.0).unwrap().of_chunk(1).unwrap();
        let chain = loss.chain().unwrap();
        for q in 2..=EXACT_ROUNDS {
            let exact = joint::Chains::default().ln_none_missing(chain, q, 100_000) / 1e5;
            let alone = 1.0 - chain.loss_after_loss().powi(q as i32);
            let approximate = -(1e-3f64.powi(q as i32)) * alone;
            assert!((exact / approximate - 1.0).abs() < 1e-3, "{q}: {exact} {approximate}");
        }
    }
}
