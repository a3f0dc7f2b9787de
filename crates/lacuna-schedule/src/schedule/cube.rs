//! Cubes: the ranks are points of a grid with a radix per dimension (BCube; Gloo's and MPI's recursive
//! halving has radix 2 everywhere). In each dimension a rank exchanges parts with those that differ from
//! it in that coordinate alone: reduce-scatter divides what it is responsible for by the radix, all-gather
//! goes back. Few steps of large messages.
//!
//! One dimension of all ranks is the transpose all-reduce (OptiReduce): everybody sends its part to
//! everybody directly, and what is lost on one path is lost once.
//!
//! The first dimension is the one with the largest stride, so the parts of neighbours are neighbours and
//! any sizes of parts will do.

use super::ring::Members;
use super::table::{Builder, Part};
use std::ops::Range;

/// A dimension, seen by one rank.
struct Level {
    /// The peers that differ in this coordinate, as indices of members, this one among them.
    peers: Vec<usize>,
    /// This one's coordinate.
    digit: usize,
    /// The parts, as members' indices, that each of the peers is responsible for from here on.
    blocks: Vec<Range<usize>>,
}

/// The dimensions, largest stride first.
fn levels(me: usize, radices: &[usize]) -> Vec<Level> {
    let mut levels = Vec::new();
    let mut stride: usize = radices.iter().product();
    let mut block = 0;
    for radix in radices {
        stride /= radix;
        let digit = me / stride % radix;
        levels.push(Level {
            peers: (0..*radix).map(|i| me + i * stride - digit * stride).collect(),
            digit,
            blocks: (0..*radix).map(|i| block + i * stride..block + (i + 1) * stride).collect(),
        });
        block += digit * stride;
    }
    levels
}

/// Elements of a block of parts.
fn elements(offsets: &[usize], block: &Range<usize>) -> Range<usize> {
    offsets[block.start]..offsets[block.end]
}

/// Elements that the busiest rank receives in each dimension: other blocks of the same size, or one's own
/// from all others.
pub(super) fn weights(offsets: &[usize], radices: &[usize]) -> Vec<usize> {
    let mut stride: usize = radices.iter().product();
    let mut weights = Vec::new();
    for radix in radices {
        stride /= radix;
        let blocks = (0..offsets.len() - 1).step_by(stride);
        let largest = blocks.map(|start| offsets[start + stride] - offsets[start]).max();
        weights.push((radix - 1) * largest.unwrap_or(0));
    }
    weights
}

/// Member `i` ends with part `i`, in `result`. `own` is the contribution; sums on the way go to `way`,
/// which may be where the result goes.
pub(super) fn reduce_scatter(
    builder: &mut Builder,
    members: Members<'_>,
    radices: &[usize],
    offsets: &[usize],
    own: &dyn Fn(Range<usize>) -> Part,
    way: &dyn Fn(Range<usize>) -> Part,
    result: &dyn Fn(Range<usize>) -> Part,
) {
    let levels = levels(members.me, radices);
    let weights = weights(offsets, radices);
    let mut here: &dyn Fn(Range<usize>) -> Part = own;
    for (i, level) in levels.iter().enumerate() {
        builder.phase(weights[i]);
        let to = if i + 1 == levels.len() { result } else { way };
        let radix = level.peers.len();
        for turn in 1..radix {
            let other = (level.digit + turn) % radix;
            let part = here(elements(offsets, &level.blocks[other]));
            builder.send(members.ranks[level.peers[other]], part);
        }
        let mine = elements(offsets, &level.blocks[level.digit]);
        for turn in 1..radix {
            // In the order in which they come: who sends to this one first is the one before it.
            let other = (level.digit + radix - turn) % radix;
            let with = if turn == 1 { here(mine.clone()) } else { to(mine.clone()) };
            builder.receive(members.ranks[level.peers[other]], to(mine.clone()), Some(with));
        }
        here = to;
    }
}

/// Member `i` begins with part `i`, which is in `first`.
pub(super) fn all_gather(
    builder: &mut Builder,
    members: Members<'_>,
    radices: &[usize],
    offsets: &[usize],
    first: Part,
    part: &dyn Fn(Range<usize>) -> Part,
) {
    let levels = levels(members.me, radices);
    let weights = weights(offsets, radices);
    for (i, level) in levels.iter().enumerate().rev() {
        builder.phase(weights[i]);
        let is_first = i + 1 == levels.len();
        let radix = level.peers.len();
        let mine = part(elements(offsets, &level.blocks[level.digit]));
        for turn in 1..radix {
            let other = (level.digit + turn) % radix;
            builder.send(members.ranks[level.peers[other]], if is_first { first } else { mine });
        }
        for turn in 1..radix {
            let other = (level.digit + radix - turn) % radix;
            let theirs = part(elements(offsets, &level.blocks[other]));
            builder.receive(members.ranks[level.peers[other]], theirs, None);
        }
    }
}

/// As many dimensions of a radix as there are, and what is left over: `radix = 2` for 12 ranks is
/// 2, 2, 3. A prime number of ranks is one dimension.
pub(super) fn radices(ranks: usize, radix: usize) -> Vec<usize> {
    let mut radices = Vec::new();
    let mut left = ranks;
    while radix > 1 && left > radix && left.is_multiple_of(radix) {
        radices.push(radix);
        left /= radix;
    }
    radices.push(left);
    radices
}
