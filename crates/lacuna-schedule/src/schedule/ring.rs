//! Rings: each rank sends to the next one only, one part per step, so each link carries as little as
//! possible; `n - 1` steps per round. And chains: a ring's broadcast, pipelined by the runner.

use super::table::{Builder, Part, longest};
use std::ops::Range;

/// Ranks that form a ring, and which of them this is.
#[derive(Clone, Copy)]
pub(super) struct Members<'a> {
    pub(super) ranks: &'a [usize],
    pub(super) me: usize,
}

impl Members<'_> {
    pub(super) fn count(&self) -> usize {
        self.ranks.len()
    }

    fn next(&self) -> usize {
        self.ranks[(self.me + 1) % self.count()]
    }

    fn previous(&self) -> usize {
        self.ranks[(self.me + self.count() - 1) % self.count()]
    }
}

/// Reduces each part on its way around the ring; member `i` ends with part `i`. `own` is the contribution
/// to a part, `to` where the part's sum goes in a step.
pub(super) fn reduce_scatter(
    builder: &mut Builder,
    members: Members<'_>,
    longest: usize,
    own: &dyn Fn(usize) -> Part,
    to: &dyn Fn(usize, usize) -> Part,
) {
    let count = members.count();
    for step in 0..count - 1 {
        builder.phase(longest);
        let sent = (members.me + 2 * count - 1 - step) % count;
        let received = (members.me + 2 * count - 2 - step) % count;
        let from = if step == 0 { own(sent) } else { to(step - 1, sent) };
        builder.send(members.next(), from);
        builder.receive(members.previous(), to(step, received), Some(own(received)));
    }
}

/// Passes each part around the ring; member `i` begins with part `i`, which is in `first`.
pub(super) fn all_gather(
    builder: &mut Builder,
    members: Members<'_>,
    longest: usize,
    first: Part,
    part: &dyn Fn(usize) -> Part,
) {
    let count = members.count();
    for step in 0..count - 1 {
        builder.phase(longest);
        let sent = (members.me + count - step) % count;
        let received = (members.me + 2 * count - 1 - step) % count;
        builder.send(members.next(), if step == 0 { first } else { part(sent) });
        builder.receive(members.previous(), part(received), None);
    }
}

/// Reduce-scatter, then all-gather. `own` and `part` say where a member's contribution to a part is and
/// where the part's sum belongs.
pub(super) fn all_reduce(
    builder: &mut Builder,
    members: Members<'_>,
    offsets: &[usize],
    own: &dyn Fn(Range<usize>) -> Part,
    part: &dyn Fn(Range<usize>) -> Part,
    is_average: bool,
) {
    let range = |index: usize| offsets[index]..offsets[index + 1];
    let longest = longest(offsets);
    let mine = part(range(members.me));
    reduce_scatter(builder, members, longest, &|i| own(range(i)), &|_, i| part(range(i)));
    if is_average {
        builder.divide(mine);
    }
    all_gather(builder, members, longest, mine, &|i| part(range(i)));
}

/// A later hop of a chain takes as long as a part of the message: the runner forwards chunk by chunk.
const HOP_SHARE: usize = 16;

/// The root's input, passed from one to the next.
pub(super) fn broadcast(builder: &mut Builder, members: Members<'_>, root: usize, count: usize) {
    let ranks = members.count();
    let place = (members.me + ranks - root) % ranks;
    let whole = Part::output(0..count);
    for hop in 0..ranks - 1 {
        builder.phase(if hop == 0 { count } else { count.div_ceil(HOP_SHARE) });
        if hop + 1 == place {
            builder.receive(members.previous(), whole, None);
        }
        if hop == place {
            let from = if place == 0 { Part::input(0..count) } else { whole };
            builder.send(members.next(), from);
        }
    }
}
