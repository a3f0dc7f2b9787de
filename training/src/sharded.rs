//! Training with sharded parameters, as ZeRO-3 does it (Rajbhandari et al., 2020; OptiNIC's figures 1 and 3).
//!
//! Each rank has a part of the parameters and of the optimizer's state only. Before a step all ranks gather all
//! parameters, after the gradient each gets the average of its part from all (reduce-scatter). Parameters are
//! critical: they go over the exact group. Gradients are droppable: what is done about their losses is the
//! delivery. Since there is one copy of each parameter, no replicas can drift apart.
//!
//! Tensors are gathered and scattered in pieces. The gathers of a step are all in flight at once, and so are the
//! reductions, the last layers' first, as in a backward pass. They do not overlap with computing: the gradient
//! is computed by automatic differentiation over the whole model.

use crate::network::{Ends, Network, on_all_ranks};
use crate::optimizer::{Optimizer, share_of_rate};
use crate::parallel::{Clock, OfRank, Timed, evaluate};
use crate::task::Task;
use crate::trainer::{Batches, Settings};
use lacuna_collective::{Collective, Op};
use std::ops::Range;

/// Elements of a piece at least, if there are as many: smaller tensors go with those behind them.
const PIECE_MIN: usize = 50_000;

/// Tensors that are gathered together, and each rank's part of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    /// Their place in the vector of all parameters.
    place: Range<usize>,
    /// Where the part of each rank begins, and where the last one ends.
    bounds: Vec<usize>,
}

impl Piece {
    fn new(place: Range<usize>, ranks: usize) -> Self {
        let bounds = (0..=ranks).map(|rank| place.start + rank * place.len() / ranks).collect();
        Self { place, bounds }
    }

    fn part(&self, rank: usize) -> Range<usize> {
        self.bounds[rank]..self.bounds[rank + 1]
    }

    fn counts(&self) -> Vec<usize> {
        self.bounds.windows(2).map(|bounds| bounds[1] - bounds[0]).collect()
    }
}

/// Cuts tensors of these lengths.
fn pieces(tensors: &[usize], ranks: usize) -> Vec<Piece> {
    let total: usize = tensors.iter().sum();
    let (mut pieces, mut start, mut end) = (Vec::new(), 0, 0);
    for tensor in tensors {
        end += tensor;
        if end - start >= PIECE_MIN && total - end >= PIECE_MIN {
            pieces.push(Piece::new(start..end, ranks));
            start = end;
        }
    }
    pieces.push(Piece::new(start..total, ranks));
    pieces
}

/// The parts of tensors that lie in a range of all parameters.
fn tensors_in(tensors: &[usize], range: &Range<usize>) -> Vec<usize> {
    let mut start = 0;
    let lengths = tensors.iter().map(|tensor| {
        let end = start + tensor;
        let within = end.min(range.end).saturating_sub(range.start.max(start));
        start = end;
        within
    });
    lengths.filter(|length| *length > 0).collect()
}

/// Trains the task's model from the start that `settings.seed` says. Replicas do not matter here.
///
/// # Errors
/// When a tensor cannot be computed or the network fails.
///
/// # Panics
/// If the batch cannot be shared equally, or settings and network have different numbers of ranks.
pub fn train(task: &Task, network: &Network, settings: &Settings) -> anyhow::Result<Timed> {
    assert_eq!(settings.ranks, network.ranks, "ranks of the settings and of the network");
    assert!(settings.batch.is_multiple_of(settings.ranks), "equal shares of the batch");
    evaluate(task, on_all_ranks(network, |ends| of_rank(task, &ends, settings))?)
}

/// What a rank has.
struct Shard<'e> {
    ends: &'e Ends,
    pieces: Vec<Piece>,
    /// Its part of each piece, one behind the other.
    parameters: Vec<f32>,
    optimizer: Optimizer,
    /// The lengths of all tensors.
    tensors: Vec<usize>,
}

impl<'e> Shard<'e> {
    fn new(task: &Task, ends: &'e Ends, settings: &Settings) -> anyhow::Result<Self> {
        let (rank, ranks, tensors) = (ends.rank(), ends.ranks(), task.tensors());
        let pieces = pieces(&tensors, ranks);
        let parameters: Vec<f32> =
            pieces.iter().flat_map(|piece| &task.initial()[piece.part(rank)]).copied().collect();
        let optimizer = Optimizer::new(settings.rule, parameters.len());
        Ok(Self { ends, pieces, parameters, optimizer, tensors })
    }

    /// Gathers all parameters.
    fn gather(&self, all: &mut [f32]) -> anyhow::Result<()> {
        let rank = self.ends.rank();
        let mut start = 0;
        let mut pending = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            let end = start + piece.part(rank).len();
            let collective = Collective::AllGather { counts: piece.counts() };
            let own = self.parameters[start..end].to_vec();
            let length = piece.place.len();
            pending.push(self.ends.exact.start(&collective, Op::Sum, (own, &[]), length)?);
            start = end;
        }
        for (piece, pending) in self.pieces.iter().zip(pending) {
            all[piece.place.clone()].copy_from_slice(&pending.wait()?.values);
        }
        Ok(())
    }

    /// The average gradient of this rank's parts.
    fn scatter(&self, gradient: &[f32], clock: &mut Clock) -> anyhow::Result<Vec<f32>> {
        let rank = self.ends.rank();
        let received = clock.wait(|| -> anyhow::Result<Vec<_>> {
            let mut pending = Vec::with_capacity(self.pieces.len());
            for piece in self.pieces.iter().rev() {
                let collective = Collective::ReduceScatter { counts: piece.counts() };
                let input = gradient[piece.place.clone()].to_vec();
                let length = piece.part(rank).len();
                let tensors = tensors_in(&self.tensors, &piece.place);
                let input = (input, &tensors[..]);
                pending.push(self.ends.data.start(&collective, Op::Average, input, length)?);
            }
            pending.into_iter().rev().map(crate::network::Pending::wait).collect()
        })?;
        let mut own = Vec::with_capacity(self.parameters.len());
        for received in received {
            let weight = received.values.len() as f64 / self.parameters.len().max(1) as f64;
            clock.count(&received, weight);
            own.extend(received.values);
        }
        Ok(own)
    }
}

fn of_rank(task: &Task, ends: &Ends, settings: &Settings) -> anyhow::Result<OfRank> {
    let Settings { ranks, batch, steps, seed, .. } = *settings;
    let (rank, task) = (ends.rank(), task.with_model(seed)?);
    let mut shard = Shard::new(&task, ends, settings)?;
    let mut all = vec![0.0; task.initial().len()];
    let mut batches = Batches::new(task.examples(), seed);
    let mut kept: Vec<(usize, f64, Vec<f32>)> = Vec::new();
    ends.exact.barrier()?;
    let mut clock = Clock::start();
    for step in 0..steps {
        let examples = batches.take(batch);
        clock.wait(|| shard.gather(&mut all))?;
        if let Some((_, _, parameters)) = kept.last_mut().filter(|last| last.0 == step) {
            parameters.clone_from(&all);
        }
        task.set_parameters(&all)?;
        let mut gradient = vec![0.0; all.len()];
        task.gradient(&examples[rank * batch / ranks..(rank + 1) * batch / ranks], &mut gradient)?;
        let average = shard.scatter(&gradient, &mut clock)?;
        let rate = settings.rate * share_of_rate(step, steps);
        shard.optimizer.step(&mut shard.parameters, &average, rate);
        clock.on_step();
        let done = step + 1;
        let is_due = settings.evaluate_every > 0 && done % settings.evaluate_every == 0;
        if rank == 0 && (is_due || done == steps) {
            // All parameters are here when they are gathered next.
            kept.push((done, clock.seconds(), Vec::new()));
        }
    }
    shard.gather(&mut all)?;
    if let Some((_, _, parameters)) = kept.last_mut() {
        *parameters = all;
    }
    ends.exact.barrier()?;
    Ok(clock.finish(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_tensors_and_cover_all() {
        let tensors = [262_144, 1024, 786_432, 768, 7680, 10];
        let pieces = pieces(&tensors, 4);
        let places: Vec<Range<usize>> = pieces.iter().map(|piece| piece.place.clone()).collect();
        assert_eq!(places, [0..262_144, 262_144..1_058_058]);
        assert_eq!(pieces[1].counts().iter().sum::<usize>(), pieces[1].place.len());
        assert_eq!(pieces[1].part(0).start, 262_144);
        assert_eq!(super::pieces(&[5], 4)[0].counts(), [1, 1, 1, 2]);
    }

    #[test]
    fn parts_know_the_tensors_in_them() {
        assert_eq!(tensors_in(&[10, 5, 20], &(8..18)), [2, 5, 3]);
        assert_eq!(tensors_in(&[10, 5, 20], &(10..15)), [5]);
        assert!(tensors_in(&[10], &(4..4)).is_empty());
    }
}
