//! Tree allreduce: reduce to a root, then broadcast from it, along a binary tree.
//!
//! A node's two subtrees hold the other nodes in halves. Each edge carries the whole buffer, over a
//! path of its own; a node sends up when both its children's buffers are there. The time until the
//! last leaf has a broadcast is `H(n) = max over both subtrees (T + H(subtree))`, of independent
//! parts; a reduction takes the same, run backwards, so the allreduce is the sum of two of them.

use super::{Grid, SITES_MAX};
use crate::error::check;
use crate::monte_carlo::{Sample, Samples};
use crate::{Completion, ModelError, Random};
use std::collections::BTreeMap;

/// The distribution of a tree allreduce, on a grid of `points` per message. `edge` is one message
/// of the whole buffer.
///
/// # Errors
///
/// [`ModelError::OutOfRange`] for fewer than 2 sites or more than [`SITES_MAX`].
pub fn tree_allreduce(
    edge: &impl Completion,
    sites: u32,
    points: usize,
) -> Result<Grid, ModelError> {
    checked(sites)?;
    let edge = Grid::new(edge, points);
    let way = broadcast(&edge, sites, &mut BTreeMap::new());
    Ok(way.plus(&way))
}

/// The same, drawn.
///
/// # Errors
///
/// As [`tree_allreduce`].
pub fn draw_tree_allreduce(
    edge: &impl Sample,
    sites: u32,
    trials: usize,
    random: &mut Random,
) -> Result<Samples, ModelError> {
    checked(sites)?;
    let mut one = || draw_broadcast_s(edge, sites, random) + draw_broadcast_s(edge, sites, random);
    Ok(Samples::from_times((0..trials.max(1)).map(|_| one()).collect()))
}

fn checked(sites: u32) -> Result<(), ModelError> {
    check("sites", f64::from(sites), (2..=SITES_MAX).contains(&sites), "2 to 4096").map(|_| ())
}

/// Nodes of the two subtrees below the root.
fn halves(nodes: u32) -> [u32; 2] {
    [nodes / 2, (nodes - 1) / 2]
}

fn broadcast(edge: &Grid, nodes: u32, known: &mut BTreeMap<u32, Grid>) -> Grid {
    if let Some(time) = known.get(&nodes) {
        return time.clone();
    }
    let time =
        halves(nodes).into_iter().filter(|half| *half > 0).fold(edge.nothing(), |slowest, half| {
            slowest.max(&edge.plus(&broadcast(edge, half, known)))
        });
    known.insert(nodes, time.clone());
    time
}

fn draw_broadcast_s(edge: &impl Sample, nodes: u32, random: &mut Random) -> f64 {
    halves(nodes)
        .into_iter()
        .filter(|half| *half > 0)
        .map(|half| edge.sample_s(random) + draw_broadcast_s(edge, half, random))
        .fold(0.0, f64::max)
}
