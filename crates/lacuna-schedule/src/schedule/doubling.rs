//! Recursive halving and doubling, for any number of ranks: `log2 n` steps.
//!
//! If the ranks are no power of two, some first give their contribution to a neighbour, sit out, and get
//! the result from it (MPICH's way). Two ranks that exchange sums compute the same bytes, because no
//! operation depends on which operand is first.

use super::cube;
use super::ring::Members;
use super::table::{Builder, Part, shares};
use std::ops::Range;

/// Those that take part, after others have given them their contribution.
struct Folded {
    ranks: Vec<usize>,
    /// This one's place among them, if it takes part.
    me: Option<usize>,
    /// Whether its contribution is a sum in the output by now.
    has_sum: bool,
}

/// The largest power of two.
fn power(count: usize) -> usize {
    1 << count.ilog2()
}

fn fold(builder: &mut Builder, members: Members<'_>, whole: &Range<usize>) -> Folded {
    let count = members.count();
    let extra = count - power(count);
    let pairs = 2 * extra;
    let ranks = (0..count).filter(|i| *i >= pairs || i % 2 == 1);
    let ranks: Vec<usize> = ranks.map(|i| members.ranks[i]).collect();
    if extra > 0 {
        builder.phase(whole.len());
    }
    let me = members.me;
    if me < pairs && me.is_multiple_of(2) {
        builder.send(members.ranks[me + 1], Part::input(whole.clone()));
        return Folded { ranks, me: None, has_sum: false };
    }
    let has_sum = me < pairs;
    if has_sum {
        let (to, with) = (Part::output(whole.clone()), Part::input(whole.clone()));
        builder.receive(members.ranks[me - 1], to, Some(with));
    }
    Folded { ranks, me: Some(if has_sum { me / 2 } else { me - extra }), has_sum }
}

fn unfold(builder: &mut Builder, members: Members<'_>, whole: &Range<usize>) {
    let count = members.count();
    let pairs = 2 * (count - power(count));
    if pairs == 0 {
        return;
    }
    builder.phase(whole.len());
    let me = members.me;
    if me < pairs && me.is_multiple_of(2) {
        builder.receive(members.ranks[me + 1], Part::output(whole.clone()), None);
    } else if me < pairs {
        builder.send(members.ranks[me - 1], Part::output(whole.clone()));
    }
}

/// Recursive doubling: everything is exchanged in each step. The least steps, for short messages.
pub(super) fn all_reduce(
    builder: &mut Builder,
    members: Members<'_>,
    count: usize,
    is_average: bool,
) {
    let whole = 0..count;
    let folded = fold(builder, members, &whole);
    let output = Part::output(whole.clone());
    for bit in 0..folded.ranks.len().ilog2() {
        builder.phase(count);
        let Some(me) = folded.me else { continue };
        let peer = folded.ranks[me ^ (1 << bit)];
        let is_own = bit == 0 && !folded.has_sum;
        let here = if is_own { Part::input(whole.clone()) } else { output };
        builder.send(peer, here);
        builder.receive(peer, output, Some(here));
    }
    // Everybody has the sum: each divides it, and gets the same.
    if is_average && folded.me.is_some() {
        builder.divide(output);
    }
    unfold(builder, members, &whole);
}

/// Recursive halving, then doubling: the traffic of a ring in `2 log2 n` steps.
pub(super) fn halving_all_reduce(
    builder: &mut Builder,
    members: Members<'_>,
    count: usize,
    is_average: bool,
) {
    let whole = 0..count;
    let folded = fold(builder, members, &whole);
    let radices = vec![2; folded.ranks.len().ilog2() as usize];
    let offsets = shares(count, folded.ranks.len());
    if let Some(me) = folded.me {
        let inner = Members { ranks: &folded.ranks, me };
        let own = |range| if folded.has_sum { Part::output(range) } else { Part::input(range) };
        cube::reduce_scatter(
            builder,
            inner,
            &radices,
            &offsets,
            &own,
            &Part::output,
            &Part::output,
        );
        let mine = Part::output(offsets[me]..offsets[me + 1]);
        if is_average {
            builder.divide(mine);
        }
        cube::all_gather(builder, inner, &radices, &offsets, mine, &Part::output);
    } else {
        let weights = cube::weights(&offsets, &radices);
        weights.iter().chain(weights.iter().rev()).for_each(|weight| builder.phase(*weight));
    }
    unfold(builder, members, &whole);
}

/// All-gather in `ceil(log2 n)` steps for any number of ranks (Bruck's, without the rotation): after step
/// `k` a rank has the parts of the `2^k` ranks before it.
pub(super) fn all_gather(builder: &mut Builder, members: Members<'_>, offsets: &[usize]) {
    let count = members.count();
    let me = members.me;
    let part = |index: usize| Part::output(offsets[index]..offsets[index + 1]);
    let mut distance = 1;
    while distance < count {
        let parts = distance.min(count - distance);
        // What each rank receives, at most.
        let received = |rank: usize| {
            let parts = (0..parts).map(|i| part((rank + 2 * count - distance - i) % count).len);
            parts.sum::<usize>()
        };
        builder.phase((0..count).map(received).max().unwrap_or(0));
        let to = members.ranks[(me + distance) % count];
        let from = members.ranks[(me + count - distance) % count];
        for i in 0..parts {
            let index = (me + count - i) % count;
            let own = Part::input(0..offsets[me + 1] - offsets[me]);
            builder.send(to, if i == 0 { own } else { part(index) });
        }
        for i in 0..parts {
            builder.receive(from, part((me + 2 * count - distance - i) % count), None);
        }
        distance *= 2;
    }
}

/// Dissemination: after step `k` a rank knows of the `2^k` before it. One element of scratch memory
/// travels; what it holds is of no interest.
pub(super) fn barrier(builder: &mut Builder, members: Members<'_>) {
    let count = members.count();
    builder.scratch(1);
    let mark = Part::scratch(0..1);
    let mut distance = 1;
    while distance < count {
        builder.phase(1);
        builder.send(members.ranks[(members.me + distance) % count], mark);
        builder.receive(members.ranks[(members.me + count - distance) % count], mark, None);
        distance *= 2;
    }
}
