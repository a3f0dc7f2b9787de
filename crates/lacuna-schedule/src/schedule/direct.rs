//! Everything directly from whom it is to whom it goes: gather, scatter, all-to-all, send and receive.

use super::ring::Members;
use super::table::{Builder, Part};

/// All parts to the root, which has them in its output in order.
pub(super) fn gather(builder: &mut Builder, members: Members<'_>, root: usize, offsets: &[usize]) {
    let ranks = members.count();
    let part = |i: usize| offsets[i]..offsets[i + 1];
    builder.phase(offsets[ranks] - part(root).len());
    if members.me != root {
        builder.send(members.ranks[root], Part::input(0..part(members.me).len()));
        return;
    }
    builder.copy(Part::input(0..part(root).len()), Part::output(part(root)));
    for other in (1..ranks).map(|turn| (root + turn) % ranks) {
        builder.receive(members.ranks[other], Part::output(part(other)), None);
    }
}

/// The root's parts, to each its own.
pub(super) fn scatter(builder: &mut Builder, members: Members<'_>, root: usize, offsets: &[usize]) {
    let ranks = members.count();
    let part = |i: usize| offsets[i]..offsets[i + 1];
    builder.phase(offsets[ranks] - part(root).len());
    if members.me != root {
        builder.receive(members.ranks[root], Part::output(0..part(members.me).len()), None);
        return;
    }
    builder.copy(Part::input(part(root)), Part::output(0..part(root).len()));
    for other in (1..ranks).map(|turn| (root + turn) % ranks) {
        builder.send(members.ranks[other], Part::input(part(other)));
    }
}

/// From each to each a part of its own. `sent` and `received` are where the parts of this rank are in its
/// input and output. The turns are such that nobody is sent to by two at the same time, if all are
/// equally fast.
pub(super) fn all_to_all(
    builder: &mut Builder,
    members: Members<'_>,
    sent: &[usize],
    received: &[usize],
) {
    let ranks = members.count();
    let me = members.me;
    let (from, to) = (
        |i: usize| Part::input(sent[i]..sent[i + 1]),
        |i: usize| Part::output(received[i]..received[i + 1]),
    );
    builder.phase(received[ranks]);
    builder.copy(from(me), to(me));
    for turn in 1..ranks {
        let next = (me + turn) % ranks;
        builder.send(members.ranks[next], from(next));
    }
    for turn in 1..ranks {
        let previous = (me + ranks - turn) % ranks;
        builder.receive(members.ranks[previous], to(previous), None);
    }
}

/// Sends the input to one rank and receives the output from one; both at once, so that a ring of ranks
/// that do the same does not wait for itself.
pub(super) fn exchange(
    builder: &mut Builder,
    to: Option<(usize, usize)>,
    from: Option<(usize, usize)>,
) {
    let counts = [to, from].map(|peer| peer.map_or(0, |(_, count)| count));
    builder.phase(counts[0].max(counts[1]));
    if let Some((peer, count)) = to {
        builder.send(peer, Part::input(0..count));
    }
    if let Some((peer, count)) = from {
        builder.receive(peer, Part::output(0..count), None);
    }
}
