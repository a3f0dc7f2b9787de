//! Binomial trees: `ceil(log2 n)` steps of the whole message, for short ones.

use super::ring::Members;
use super::table::{Builder, Part};

/// Distances of the steps, the smallest first.
fn distances(count: usize) -> Vec<usize> {
    (0..).map(|bit| 1 << bit).take_while(|distance| *distance < count).collect()
}

/// The root's input, to all.
pub(super) fn broadcast(builder: &mut Builder, members: Members<'_>, root: usize, count: usize) {
    let ranks = members.count();
    let place = (members.me + ranks - root) % ranks;
    let peer = |place: usize| members.ranks[(place + root) % ranks];
    let whole = Part::output(0..count);
    for distance in distances(ranks).into_iter().rev() {
        builder.phase(count);
        if place % (2 * distance) == distance {
            builder.receive(peer(place - distance), whole, None);
        } else if place.is_multiple_of(2 * distance) && place + distance < ranks {
            let from = if place == 0 { Part::input(0..count) } else { whole };
            builder.send(peer(place + distance), from);
        }
    }
}

/// The sum, to the root.
pub(super) fn reduce(builder: &mut Builder, members: Members<'_>, root: usize, count: usize) {
    let ranks = members.count();
    let place = (members.me + ranks - root) % ranks;
    let peer = |place: usize| members.ranks[(place + root) % ranks];
    let sum = if place == 0 { Part::output(0..count) } else { Part::scratch(0..count) };
    let mut here = Part::input(0..count);
    for distance in distances(ranks) {
        builder.phase(count);
        if place % (2 * distance) == distance {
            builder.send(peer(place - distance), here);
        } else if place.is_multiple_of(2 * distance) && place + distance < ranks {
            if place != 0 {
                builder.scratch(count);
            }
            builder.receive(peer(place + distance), sum, Some(here));
            here = sum;
        }
    }
}
