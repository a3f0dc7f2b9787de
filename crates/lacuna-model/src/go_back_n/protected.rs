//! A block of a connection's packets with its repairs, as a step of the link's chain: either all of its
//! data is there in the end (`ok`), or something stays missing (`lost`).
//!
//! Repairs follow the block's data at once, and may be lost, too. With `n` data packets:
//!
//! - No repairs: the step of a packet, `n` times.
//! - MDS with `c` repairs: `ok` is at most `c` losses among `n + c` packets, since `c` repairs alone
//!   cannot be more than `c` losses. One walk over (losses, state).
//! - XOR with interleaving depth `c`: group `j` is the places `j`, `j + c`, ... and its repair, and must
//!   not lose two. For `c` up to [`SETS_MAX`] exactly, by the walk over sets of hit groups of
//!   [`crate::block`].
//! - Deeper XOR: the groups that fail come in *clumps*. A burst that is longer than the depth by `x` makes
//!   `x` neighbouring groups fail at once, so the sum of their probabilities is far too much. It is divided
//!   by the mean length of a clump, which follows from how many groups fail with one in the middle; that two
//!   groups fail is a walk over (losses of one, losses of the other, state), which is exact. That clumps are as
//!   good as independent of each other (the Poisson clumping heuristic of Aldous, 1989) and have geometric
//!   lengths is the approximation.

use crate::block::{Block, Parity};
use crate::gilbert::{ChunkChain, Matrix, Step, product, row_times, sum};
use crate::loss::ChunkLoss;
use crate::{Code, CodeKind};

/// Groups whose hits are followed as a set: 2^groups states for each packet.
const SETS_MAX: u32 = 4;

const NOTHING: Matrix = [[0.0; 2]; 2];
const UNCHANGED: Matrix = [[1.0, 0.0], [0.0, 1.0]];

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Protected {
    pub(crate) step: Step,
    /// Data packets.
    pub(crate) data: u32,
    /// Repairs.
    pub(crate) repairs: u32,
}

impl Protected {
    /// A packet without repairs.
    pub(crate) fn packet(loss: &ChunkLoss) -> Self {
        let step = loss.chain().map_or_else(|| diagonal(loss.probability()), |chain| chain.step);
        Self { step, data: 1, repairs: 0 }
    }

    /// A block with the repairs of a code.
    pub(crate) fn block(loss: &ChunkLoss, code: Code) -> Self {
        let (data, repairs) = (code.k(), code.m());
        let step = match (loss.chain(), code.kind()) {
            (None, _) => diagonal(code.failure(loss)),
            (Some(chain), CodeKind::Mds) => at_most(chain, data + repairs, repairs),
            (Some(chain), CodeKind::Xor) if repairs <= SETS_MAX => {
                Block::new(code, chain, Parity::AtOnce).step
            }
            (Some(chain), CodeKind::Xor) => interleaved(chain, data, repairs),
        };
        Self { step, data, repairs }
    }
}

/// A step of packets that are lost independently: the state never changes.
fn diagonal(failure: f64) -> Step {
    let of = |share: f64| [[share, 0.0], [0.0, share]];
    Step { ok: of(1.0 - failure), lost: of(failure) }
}

/// So many packets, of which at most so many are lost.
fn at_most(chain: &ChunkChain, packets: u32, lost_max: u32) -> Step {
    let (packet, all) = (chain.step, chain.step.all());
    let mut exactly = vec![NOTHING; lost_max as usize + 1];
    exactly[0] = UNCHANGED;
    let mut more = NOTHING;
    for passed in 0..packets {
        more = product(&more, &all);
        let mut lost_before = NOTHING;
        for states in exactly.iter_mut().take(passed as usize + 2) {
            let lost = product(states, &packet.lost);
            *states = sum(&product(states, &packet.ok), &lost_before);
            lost_before = lost;
        }
        if passed >= lost_max {
            more = sum(&more, &lost_before);
        }
    }
    let ok = exactly.iter().fold(NOTHING, |ok, states| sum(&ok, states));
    Step { ok, lost: more }
}

/// XOR by clumps of failing groups; see the module's text.
fn interleaved(chain: &ChunkChain, data: u32, depth: u32) -> Step {
    let mut groups = Groups::new(chain, data, depth);
    let failing = (0..depth).fold(NOTHING, |failing, group| sum(&failing, &groups.fails(group)));
    let each = clump_groups(groups.failing_beside(depth / 2), depth);
    let all = chain.step.repeated(u64::from(data + depth)).all();
    let mut step = Step { ok: all, lost: NOTHING };
    for from in 0..2 {
        let mean: f64 = failing[from].iter().sum();
        if mean <= 0.0 {
            continue;
        }
        // From the mean number of clumps to the chance of any.
        let any = -(-mean / each).exp_m1();
        for to in 0..2 {
            let lost = (failing[from][to] / mean * any).min(all[from][to]);
            step.lost[from][to] = lost;
            step.ok[from][to] = all[from][to] - lost;
        }
    }
    step
}

/// Groups of a clump on average, from those of the clump that a failing group is in, which is a longer one
/// the more groups there are in it. Lengths are taken for geometric, up to all groups.
fn clump_groups(of_failing: f64, depth: u32) -> f64 {
    let moments = |more: f64| {
        // E[N] and E[N^2] by the chances of having more than so many.
        let (mut chance, mut first, mut second) = (1.0, 0.0, 0.0);
        for n in 0..depth {
            first += chance;
            second += f64::from(2 * n + 1) * chance;
            chance *= more;
        }
        (first, second / first)
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..30 {
        let middle = f64::midpoint(low, high);
        match moments(middle).1 < of_failing {
            true => low = middle,
            false => high = middle,
        }
    }
    moments(low).0
}

/// The groups of an interleaved XOR code, in time.
struct Groups<'c> {
    chain: &'c ChunkChain,
    data: u32,
    depth: u32,
    /// Packets whose fate is not asked for.
    skips: Vec<(u32, Matrix)>,
}

impl<'c> Groups<'c> {
    fn new(chain: &'c ChunkChain, data: u32, depth: u32) -> Self {
        Self { chain, data, depth, skips: Vec::with_capacity(8) }
    }

    fn over(&mut self, packets: u32) -> Matrix {
        if let Some((_, matrix)) = self.skips.iter().find(|(known, _)| *known == packets) {
            return *matrix;
        }
        let matrix = self.chain.step.repeated(packets.into()).all();
        self.skips.push((packets, matrix));
        matrix
    }

    /// Places of a group's packets, its repair last.
    fn members(&self, group: u32) -> impl Iterator<Item = u32> + use<> {
        let places = (group..self.data).step_by(self.depth as usize);
        places.chain(std::iter::once(self.data + group))
    }

    /// That a group fails: by state before the block's first packet and behind its last repair.
    fn fails(&mut self, group: u32) -> Matrix {
        let mut states = [UNCHANGED, NOTHING, NOTHING];
        let mut at = 0;
        for place in self.members(group) {
            let skip = self.over(place - at);
            at = place + 1;
            states = passed(states, &skip, &self.chain.step);
        }
        let rest = self.over(self.data + self.depth - at);
        product(&states[2], &rest)
    }

    /// Groups that fail with this one, itself included, beyond those that would anyway.
    fn failing_beside(&mut self, group: u32) -> f64 {
        let from = self.chain.stationary;
        let share = |matrix: &Matrix| row_times(from, matrix).iter().sum::<f64>();
        let alone = share(&self.fails(group));
        let mut count = 1.0;
        for other in (0..self.depth).filter(|other| *other != group) {
            let both = share(&self.both_fail(group, other));
            count += (both / alone - share(&self.fails(other))).max(0.0);
        }
        if alone > 0.0 { count } else { 1.0 }
    }

    /// That two groups fail.
    fn both_fail(&mut self, one: u32, other: u32) -> Matrix {
        let mut places: Vec<(u32, bool)> = self.members(one).map(|at| (at, true)).collect();
        places.extend(self.members(other).map(|at| (at, false)));
        places.sort_unstable();
        // None, one or more losses of the one, and of the other.
        let mut states = [[NOTHING; 3]; 3];
        states[0][0] = UNCHANGED;
        let mut at = 0;
        for (place, is_one) in places {
            let skip = self.over(place - at);
            at = place + 1;
            let pass = |states| passed(states, &skip, &self.chain.step);
            states = match is_one {
                true => transposed(transposed(states).map(pass)),
                false => states.map(pass),
            };
        }
        let rest = self.over(self.data + self.depth - at);
        product(&states[2][2], &rest)
    }
}

/// None, one or more losses, after one more packet that follows some others.
fn passed([none, one, more]: [Matrix; 3], skip: &Matrix, step: &Step) -> [Matrix; 3] {
    let (ok, lost) = (product(skip, &step.ok), product(skip, &step.lost));
    [
        product(&none, &ok),
        sum(&product(&one, &ok), &product(&none, &lost)),
        sum(&product(&more, &sum(&ok, &lost)), &product(&one, &lost)),
    ]
}

fn transposed(states: [[Matrix; 3]; 3]) -> [[Matrix; 3]; 3] {
    [0, 1, 2].map(|column| [0, 1, 2].map(|row| states[row][column]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::outcome;
    use crate::{Gilbert, Loss};

    fn bursts(loss: f64, packets: f64) -> ChunkLoss {
        Loss::bursts(loss, packets).unwrap().of_chunk(1).unwrap()
    }

    fn failure(loss: &ChunkLoss, step: &Step) -> f64 {
        loss.chain().map_or(step.lost[0][0], |chain| outcome(chain.stationary, step).failure)
    }

    #[test]
    fn an_mds_block_is_what_the_walk_over_data_and_parity_says() {
        let general = Loss::Bursts(Gilbert::new(1e-3, 0.3, 1e-3, 0.2).unwrap());
        for loss in [bursts(1e-3, 8.0), bursts(1e-2, 3.0), general.of_chunk(1).unwrap()] {
            for (r, c) in [(1, 1), (16, 1), (64, 8), (5, 9)] {
                let code = Code::mds(r, c).unwrap();
                let exact = Block::new(code, loss.chain().unwrap(), Parity::AtOnce).step;
                let ours = Protected::block(&loss, code).step;
                for (a, b) in exact.lost.iter().flatten().zip(ours.lost.iter().flatten()) {
                    assert!((a - b).abs() <= 1e-9 * a, "{code:?}: {a} {b}");
                }
            }
        }
    }

    #[test]
    fn clumps_come_near_the_exact_walk_over_sets() {
        // Bursts shorter and longer than the depth, and losses inside of bursts at random.
        let chains = [
            Gilbert::bursts(1e-3, 8.0).unwrap(),
            Gilbert::bursts(1e-3, 20.0).unwrap(),
            Gilbert::bursts(1e-3, 2.0).unwrap(),
            Gilbert::new(0.0, 0.3, 1e-4, 1.0 / 8.0).unwrap(),
            Gilbert::new(0.0, 0.7, 1e-4, 1.0 / 8.0).unwrap(),
        ];
        for chain in chains {
            let loss = Loss::Bursts(chain).of_chunk(1).unwrap();
            let chain = loss.chain().unwrap();
            for (r, c) in [(32, 4), (64, 8), (60, 8), (100, 10), (21, 7)] {
                let exact = Block::new(Code::xor(r, c).unwrap(), chain, Parity::AtOnce).step;
                let exact = failure(&loss, &exact);
                let near = failure(&loss, &interleaved(chain, r, c));
                assert!((0.8..1.1).contains(&(near / exact)), "({r},{c}): {near} of {exact}");
            }
        }
    }

    #[test]
    fn a_block_is_repaired_or_not() {
        let loss = bursts(1e-2, 12.0);
        for code in [Code::mds(100, 6), Code::xor(100, 6), Code::xor(256, 32), Code::xor(30, 3)] {
            let block = Protected::block(&loss, code.unwrap());
            let packets = u64::from(block.data + block.repairs);
            let all = loss.chain().unwrap().step.repeated(packets).all();
            for (a, b) in block.step.all().iter().flatten().zip(all.iter().flatten()) {
                assert!((a - b).abs() < 1e-12, "{code:?}");
            }
        }
    }
}
