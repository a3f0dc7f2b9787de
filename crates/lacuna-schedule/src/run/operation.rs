//! One operation: its table, how far each entry is, and whose contributions are where.
//!
//! Data flow by ranges: an entry works on the elements that are ready, then those that depend on it do.
//! An operation that has to end in time keeps accounts besides: in the order of the table, once an entry's
//! data are done, whose contributions its elements have. A receiver learns them from the sender's note, which
//! follows the data. If the note has not come when the receive's deadline passes, what came counts as
//! uncertain, so the accounts end in time too.

use super::Settings;
use super::fabric::{Fabric, Posting, Reason, Token};
use super::memory::{Buffers, Memory};
use super::note::{Label, Note};
use super::order::Order;
use super::ports::Ports;
use super::report::{Hop, Report, RunError, Straggler};
use super::who::{RankSet, Who, WhoMap};
use crate::schedule::{Action, Part, Space, Table, Whose};
use lacuna_path::ranges::Ranges;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// When an operation has to be over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Time {
    /// When it is complete.
    Unlimited,
    /// When it is complete; if that takes longer, it fails.
    Within {
        /// From its start.
        limit_ns: u64,
    },
    /// In time, with what is there by then. The budget is divided over the phases by their weight; what a
    /// phase does not use is left to later ones.
    Bounded {
        /// From its start.
        budget_ns: u64,
        /// What an average is divided by.
        divisor: Divisor,
    },
}

/// What the average of an operation that ends in time is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Divisor {
    /// The number of ranks: what is missing counts as zero. Chunks are divided as they come.
    Ranks,
    /// The number of contributions that an element has. Elements are divided when those are known, which
    /// is when their last note has come. Where they are not known, as [`Divisor::Ranks`].
    Contributors,
}

/// An operation to be started.
pub struct Job {
    /// The schedule of this rank.
    pub table: Table,
    /// What it is, for the other ranks to compare.
    pub label: Label,
    /// The memory; its sizes are those of the table.
    pub buffers: Box<dyn Buffers>,
    /// When it has to be over.
    pub time: Time,
}

/// How far an entry is. Elements count from the entry's start.
#[derive(Debug, Default)]
struct Progress {
    done: Ranges<usize>,
    done_count: usize,
    /// Bytes of a receive that are here.
    arrived: Ranges<usize>,
    /// Elements that a receive lacks.
    holes: Ranges<usize>,
    hop: Option<Hop>,
    /// All elements are done, and a receive has ended.
    is_settled: bool,
}

/// Whose contributions are where, as far as the table has been followed.
struct Accounts {
    spaces: [WhoMap; 3],
    next: usize,
    /// Notes on receives, by entry.
    notes: BTreeMap<usize, Vec<(usize, Who)>>,
}

pub(super) struct Operation {
    pub(super) sequence: u64,
    pub(super) label: Label,
    table: Table,
    order: Order,
    size: usize,
    memory: Memory,
    progress: Vec<Progress>,
    undone: usize,
    time: Time,
    started_ns: u64,
    /// When each phase has to be over.
    deadlines_ns: Vec<u64>,
    accounts: Option<Accounts>,
    is_pipelined: bool,
}

impl Operation {
    pub(super) fn new(sequence: u64, job: Job, settings: &Settings, now_ns: u64) -> Self {
        let Job { table, label, buffers, time } = job;
        let size = label.element.size_bytes();
        assert_eq!(buffers.input().len(), table.input * size, "bytes of the input");
        assert_eq!(buffers.output().len(), table.output * size, "bytes of the output");
        let deadlines_ns = match time {
            Time::Bounded { budget_ns, .. } => deadlines(&table.phases, now_ns, budget_ns),
            _ => Vec::new(),
        };
        let accounts = matches!(time, Time::Bounded { .. }).then(|| {
            let mut spaces: [WhoMap; 3] = Default::default();
            let own = || Who { ranks: [table.rank].into_iter().collect(), is_uncertain: false };
            spaces[Space::Input as usize].set(0..table.input, own());
            if table.is_in_place {
                spaces[Space::Output as usize].set(0..table.output, own());
            }
            Accounts { spaces, next: 0, notes: BTreeMap::new() }
        });
        Self {
            sequence,
            order: Order::new(&table),
            size,
            memory: Memory::new(buffers, table.scratch, label.element, label.op),
            progress: table.entries.iter().map(|_| Progress::default()).collect(),
            undone: table.entries.len(),
            time,
            started_ns: now_ns,
            deadlines_ns,
            accounts,
            is_pipelined: settings.is_pipelined,
            label,
            table,
        }
    }

    pub(super) fn token(&self, entry: usize) -> Token {
        Token(self.sequence << 32 | entry as u64)
    }

    pub(super) fn into_buffers(self) -> Box<dyn Buffers> {
        self.memory.buffers
    }

    /// The messages to post, and the peers that are sent to.
    pub(super) fn enqueue(&self, ports: &mut Ports) -> Vec<usize> {
        let mut peers = Vec::new();
        for (index, entry) in self.table.entries.iter().enumerate() {
            let posting = |peer, part: Part| Posting {
                token: self.token(index),
                peer,
                len_bytes: part.len * self.size,
                deadline_ns: self.deadlines_ns.get(entry.phase).copied(),
            };
            match entry.action {
                Action::Send { peer, from } => {
                    ports.add_send(posting(peer, from));
                    if !peers.contains(&peer) {
                        peers.push(peer);
                    }
                }
                Action::Receive { peer, to, .. } => ports.add_receive(posting(peer, to)),
                _ => {}
            }
        }
        peers
    }

    /// Entries that wait for nothing.
    pub(super) fn begin(
        &mut self,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        self.advance((0..self.table.entries.len()).collect(), fabric, ports)?;
        self.account(fabric, ports)
    }

    /// Bytes of a receive have come.
    pub(super) fn on_arrived(
        &mut self,
        entry: usize,
        bytes: Range<usize>,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        let Some(Action::Receive { to, .. }) = self.table.entries.get(entry).map(|e| e.action)
        else {
            return Ok(());
        };
        self.progress[entry].arrived.add(bytes.start..bytes.end.min(to.len * self.size));
        self.advance([entry].into(), fabric, ports)
    }

    /// A receive is over.
    pub(super) fn on_ended(
        &mut self,
        entry: usize,
        reason: Reason,
        missing: &Ranges<usize>,
        len_bytes: Option<usize>,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        let Some(line) = self.table.entries.get(entry).copied() else { return Ok(()) };
        let Action::Receive { peer, to, .. } = line.action else { return Ok(()) };
        if self.progress[entry].hop.is_some() {
            return Ok(());
        }
        ports.ended(fabric, peer)?;
        let expected = to.len * self.size;
        let phase = line.phase;
        if let Some(sent) = len_bytes.filter(|sent| *sent != expected) {
            return Err(RunError::Length { rank: peer, phase, sent, expected });
        }
        if reason == Reason::Failed {
            let cause = format!("its receive in phase {phase} failed");
            return Err(RunError::Gone { rank: peer, cause });
        }
        let lost: Vec<Range<usize>> = missing.within(&(0..expected)).cloned().collect();
        let came: Ranges<usize> = missing.gaps(&(0..expected)).collect();
        let hop = Hop {
            peer,
            phase,
            bytes: expected as u64,
            lost,
            reached_bytes: came.last_end().unwrap_or(0) as u64,
            reason,
            ended_ns: fabric.now_ns(),
        };
        if !hop.lost.is_empty() && self.accounts.is_none() {
            let (bytes, lost_bytes) = (hop.bytes, hop.lost_bytes());
            return Err(RunError::Incomplete { rank: peer, phase, bytes, lost_bytes, reason });
        }
        let progress = &mut self.progress[entry];
        for lost in &hop.lost {
            // An element of which a byte is missing is missing.
            progress.holes.add(lost.start / self.size..lost.end.div_ceil(self.size));
        }
        progress.arrived = came;
        progress.hop = Some(hop);
        self.advance([entry].into(), fabric, ports)?;
        // Its elements may have been done before.
        self.settle(entry, fabric);
        self.account(fabric, ports)
    }

    /// A peer says whose contributions its n-th send to this rank has.
    pub(super) fn on_account(
        &mut self,
        peer: usize,
        send: usize,
        pieces: Vec<(usize, Who)>,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        let receives = self.table.entries.iter().enumerate();
        let from_peer = |(_, entry): &(usize, &crate::schedule::Entry)| matches!(entry.action, Action::Receive { peer: from, .. } if from == peer);
        let Some((entry, _)) = receives.filter(from_peer).nth(send) else { return Ok(()) };
        let Some(accounts) = &mut self.accounts else { return Ok(()) };
        accounts.notes.entry(entry).or_insert(pieces);
        self.account(fabric, ports)
    }

    /// When [`Operation::on_time`] has something to do.
    pub(super) fn timeout_ns(&self) -> Option<u64> {
        match self.time {
            Time::Unlimited => None,
            Time::Within { limit_ns } => Some(self.started_ns.saturating_add(limit_ns)),
            Time::Bounded { .. } => {
                // Only notes are waited for here; data end by the fabric's deadlines.
                let next = self.accounts.as_ref()?.next;
                let entry = self.table.entries.get(next)?;
                let deadline_ns = self.deadlines_ns.get(entry.phase).copied();
                deadline_ns.filter(|_| self.progress[next].is_settled)
            }
        }
    }

    pub(super) fn on_time(
        &mut self,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        let now_ns = fabric.now_ns();
        if self.timeout_ns().is_none_or(|timeout_ns| now_ns < timeout_ns) {
            return Ok(());
        }
        if matches!(self.time, Time::Bounded { .. }) {
            return self.account(fabric, ports);
        }
        let open =
            self.table.entries.iter().zip(&self.progress).find_map(|(entry, progress)| match entry
                .action
            {
                Action::Receive { peer, .. } if progress.hop.is_none() => Some((peer, entry.phase)),
                _ => None,
            });
        let (rank, phase) = open.unwrap_or((self.table.rank, 0));
        Err(RunError::Late { rank, phase, waited_ns: now_ns - self.started_ns })
    }

    pub(super) fn is_done(&self) -> bool {
        let count = self.table.entries.len();
        self.undone == 0 && self.accounts.as_ref().is_none_or(|accounts| accounts.next == count)
    }

    /// Ends what is still open in the fabric.
    pub(super) fn abandon(&mut self, fabric: &mut impl Fabric) {
        for (index, entry) in self.table.entries.iter().enumerate() {
            match entry.action {
                Action::Receive { .. } if !self.progress[index].is_settled => {
                    fabric.release(self.token(index));
                }
                Action::Send { .. } => fabric.cancel(self.token(index)),
                _ => {}
            }
        }
    }

    /// Works on what is ready in these entries, then in those that wait for them.
    fn advance(
        &mut self,
        mut entries: VecDeque<usize>,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        while let Some(entry) = entries.pop_front() {
            let ready = self.ready(entry, fabric.chunk_bytes());
            if ready.is_empty() {
                continue;
            }
            for range in ready {
                self.perform(entry, range.clone(), fabric, ports)?;
                self.progress[entry].done_count += range.len();
                self.progress[entry].done.add(range);
            }
            self.settle(entry, fabric);
            for dependant in &self.order.dependants[entry] {
                if !entries.contains(dependant) {
                    entries.push_back(*dependant);
                }
            }
        }
        Ok(())
    }

    fn is_whole(&self, entry: usize) -> bool {
        self.progress[entry].done_count == self.table.entries[entry].action.elements()
    }

    fn settle(&mut self, entry: usize, fabric: &mut impl Fabric) {
        let is_receive = matches!(self.table.entries[entry].action, Action::Receive { .. });
        let is_whole = self.is_whole(entry);
        let progress = &mut self.progress[entry];
        if progress.is_settled || !is_whole || (is_receive && progress.hop.is_none()) {
            return;
        }
        progress.is_settled = true;
        self.undone -= 1;
        if is_receive {
            fabric.release(self.token(entry));
        }
    }

    /// Elements of an entry that can be worked on.
    fn ready(&self, entry: usize, chunk_bytes: usize) -> Vec<Range<usize>> {
        let action = self.table.entries[entry].action;
        let progress = &self.progress[entry];
        let len = action.elements();
        let mut open: Ranges<usize> = match action {
            Action::Receive { .. } if progress.hop.is_some() => {
                progress.done.gaps(&(0..len)).collect()
            }
            Action::Receive { .. } => {
                let size = self.size;
                let whole = |bytes: &Range<usize>| bytes.start.div_ceil(size)..bytes.end / size;
                let here: Ranges<usize> =
                    progress.arrived.iter().map(whole).filter(|r| !r.is_empty()).collect();
                here.iter().flat_map(|here| progress.done.gaps(here)).collect()
            }
            // Divided in the order of the accounts; see `account`.
            Action::Divide { .. } if self.divides_by_contributors() => return Vec::new(),
            _ => progress.done.gaps(&(0..len)).collect(),
        };
        for dependency in &self.order.dependencies[entry] {
            if open.last_end().is_none() {
                return Vec::new();
            }
            if !self.is_pipelined && !self.is_whole(dependency.on) {
                open.remove(&(dependency.start..dependency.start + dependency.len));
                continue;
            }
            let on = dependency.on_start..dependency.on_start + dependency.len;
            for gap in self.progress[dependency.on].done.gaps(&on) {
                let start = gap.start - dependency.on_start + dependency.start;
                open.remove(&(start..start + gap.len()));
            }
        }
        let mut ready: Vec<Range<usize>> = open.iter().cloned().collect();
        if matches!(action, Action::Send { .. }) {
            let chunk = chunk_bytes / self.size;
            ready.iter_mut().for_each(|range| self.trim(range, entry, len, chunk));
            ready.retain(|range| !range.is_empty());
        }
        ready
    }

    /// Cuts a part that is ready to be sent to whole chunks, but for ends that nothing is added to: those of
    /// the message and of what was sent before.
    fn trim(&self, range: &mut Range<usize>, entry: usize, len: usize, chunk: usize) {
        if chunk < 2 {
            return;
        }
        let done = &self.progress[entry].done;
        let is_final =
            |at: usize| at == 0 || at == len || done.iter().any(|r| r.start == at || r.end == at);
        if !is_final(range.start) {
            range.start = range.start.next_multiple_of(chunk);
        }
        if !is_final(range.end) {
            range.end -= range.end % chunk;
        }
        range.end = range.end.max(range.start);
    }

    fn divides_by_contributors(&self) -> bool {
        matches!(self.time, Time::Bounded { divisor: Divisor::Contributors, .. })
    }

    /// Works on elements of an entry that are ready.
    fn perform(
        &mut self,
        entry: usize,
        range: Range<usize>,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        let piece = |part: Part, range: &Range<usize>| Part {
            start: part.start + range.start,
            len: range.len(),
            ..part
        };
        let token = self.token(entry);
        match self.table.entries[entry].action {
            Action::Send { peer, from } => {
                ports.post_send(fabric, peer, token)?;
                let bytes = self.memory.read(piece(from, &range));
                fabric.offer(token, range.start * self.size, bytes)?;
            }
            Action::Receive { to, with, .. } => {
                let holes = &self.progress[entry].holes;
                let here: Vec<Range<usize>> = holes.gaps(&range).collect();
                let missing: Vec<Range<usize>> = holes
                    .within(&range)
                    .map(|hole| hole.start.max(range.start)..hole.end.min(range.end))
                    .collect();
                for range in here {
                    let came = fabric.view(token, range.start * self.size..range.end * self.size);
                    let with = with.map(|with| piece(with, &range));
                    self.memory.receive(piece(to, &range), with, came);
                }
                for range in missing {
                    let with = with.map(|with| piece(with, &range));
                    self.memory.leave_out(piece(to, &range), with);
                }
            }
            Action::Copy { from, to } => self.memory.copy(piece(from, &range), piece(to, &range)),
            Action::Divide { part } => self.memory.divide(piece(part, &range), self.table.ranks),
        }
        Ok(())
    }

    /// Follows the accounts as far as data and notes are here.
    fn account(&mut self, fabric: &mut impl Fabric, ports: &mut Ports) -> Result<(), RunError> {
        while let Some(entry) = self.accounts.as_ref().map(|accounts| accounts.next) {
            let Some(line) = self.table.entries.get(entry).copied() else { break };
            let is_divided_here =
                matches!(line.action, Action::Divide { .. }) && self.divides_by_contributors();
            if !self.progress[entry].is_settled && !is_divided_here {
                break;
            }
            match line.action {
                Action::Send { peer, from } => {
                    let pieces = self.who(from).into_iter();
                    let pieces = pieces.map(|(range, who)| (range.len(), who)).collect();
                    let send = self.sends_before(entry, peer);
                    fabric.tell(peer, &Note::Account { send, pieces }.write(self.sequence))?;
                }
                Action::Receive { peer, to, with } => {
                    let is_late = fabric.now_ns() >= self.deadlines_ns[line.phase];
                    if !self.take_account(entry, peer, to, with, is_late) {
                        break;
                    }
                }
                Action::Copy { from, to } => {
                    for (range, who) in self.who(from) {
                        self.set_who(to, range.start - from.start..range.end - from.start, who);
                    }
                }
                Action::Divide { part } if is_divided_here => {
                    for (range, who) in self.who(part) {
                        let by = if who.is_uncertain { self.table.ranks } else { who.ranks.len() };
                        let part = Part { start: range.start, len: range.len(), ..part };
                        self.memory.divide(part, by);
                    }
                    self.progress[entry].done.add(0..part.len);
                    self.progress[entry].done_count = part.len;
                    self.settle(entry, fabric);
                    let waiting = self.order.dependants[entry].iter().copied().collect();
                    self.advance(waiting, fabric, ports)?;
                }
                Action::Divide { .. } => {}
            }
            if let Some(accounts) = &mut self.accounts {
                accounts.next += 1;
            }
        }
        Ok(())
    }

    /// Whose contributions a receive brought; false if that is still to be waited for.
    fn take_account(
        &mut self,
        entry: usize,
        peer: usize,
        to: Part,
        with: Option<Part>,
        is_late: bool,
    ) -> bool {
        let Some(accounts) = &mut self.accounts else { return true };
        let holes = &self.progress[entry].holes;
        let came = accounts.notes.remove(&entry);
        // Where nothing came, nothing has to be said.
        let is_needed = holes.gaps(&(0..to.len)).next().is_some();
        if came.is_none() && is_needed && !is_late {
            return false;
        }
        let mut incoming = WhoMap::default();
        let open = Who { ranks: [peer].into_iter().collect(), is_uncertain: true };
        incoming.set(0..to.len, open);
        let mut at = 0usize;
        for (len, who) in came.unwrap_or_default() {
            let end = at.saturating_add(len).min(to.len);
            incoming.set(at..end, who);
            at = end;
        }
        for hole in holes.iter() {
            incoming.set(hole.clone(), Who::default());
        }
        for (range, who) in incoming.get(0..to.len) {
            let Some(with) = with else {
                self.set_who(to, range, who);
                continue;
            };
            let own = Part { start: with.start + range.start, len: range.len(), ..with };
            for (piece, own) in self.who(own) {
                let both = Who {
                    ranks: own.ranks.union(&who.ranks),
                    is_uncertain: own.is_uncertain || who.is_uncertain,
                };
                self.set_who(to, piece.start - with.start..piece.end - with.start, both);
            }
        }
        true
    }

    fn who(&self, part: Part) -> Vec<(Range<usize>, Who)> {
        let accounts = self.accounts.as_ref();
        accounts
            .map_or(Vec::new(), |accounts| accounts.spaces[part.space as usize].get(part.range()))
    }

    fn set_who(&mut self, part: Part, range: Range<usize>, who: Who) {
        if let Some(accounts) = &mut self.accounts {
            let range = part.start + range.start..part.start + range.end;
            accounts.spaces[part.space as usize].set(range, who);
        }
    }

    fn sends_before(&self, entry: usize, peer: usize) -> usize {
        let is_to_peer = |e: &&crate::schedule::Entry| matches!(e.action, Action::Send { peer: to, .. } if to == peer);
        self.table.entries[..entry].iter().filter(is_to_peer).count()
    }

    /// The report of an operation that is done.
    pub(super) fn report(&mut self, now_ns: u64) -> Report {
        let mut missing: Vec<(Range<usize>, RankSet)> = Vec::new();
        let mut uncertain: Ranges<usize> = Ranges::default();
        if self.accounts.is_some() {
            for (range, whose) in &self.table.expected {
                let expected = match whose {
                    Whose::All => RankSet::all(self.table.ranks),
                    Whose::Rank(rank) => [*rank].into_iter().collect(),
                };
                for (range, who) in self.who(Part::output(range.clone())) {
                    if who.is_uncertain {
                        uncertain.add(range);
                        continue;
                    }
                    let lacks = expected.without(&who.ranks);
                    match missing.last_mut() {
                        _ if lacks.is_empty() => {}
                        Some((last, same)) if last.end == range.start && *same == lacks => {
                            last.end = range.end;
                        }
                        _ => missing.push((range, lacks)),
                    }
                }
            }
        }
        let hops: Vec<Hop> = self.progress.iter_mut().filter_map(|p| p.hop.take()).collect();
        let straggler = straggler(&hops, self.started_ns, self.table.phases.len());
        Report {
            started_ns: self.started_ns,
            ended_ns: now_ns,
            hops,
            missing,
            uncertain: uncertain.iter().cloned().collect(),
            straggler,
        }
    }
}

/// When each phase has to be over: shares of the budget by weight, one after the other. A phase that ends
/// early leaves its time to those behind it, whose deadlines stay.
fn deadlines(weights: &[u64], now_ns: u64, budget_ns: u64) -> Vec<u64> {
    let total: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let ends = weights.iter().scan(0u128, |end, weight| {
        *end += u128::from(*weight);
        Some(*end)
    });
    let of = |end: u128| (u128::from(budget_ns) * end).checked_div(total);
    let last = weights.len().saturating_sub(1);
    ends.enumerate()
        .map(|(phase, end)| {
            let share = of(end).map_or(budget_ns, |share| share as u64);
            now_ns.saturating_add(if phase == last { budget_ns } else { share })
        })
        .collect()
}

fn straggler(hops: &[Hop], started_ns: u64, phases: usize) -> Option<Straggler> {
    let mut ends_ns = vec![started_ns; phases];
    for hop in hops {
        ends_ns[hop.phase] = ends_ns[hop.phase].max(hop.ended_ns);
    }
    let before = |phase: usize| ends_ns[..phase].iter().max().copied().unwrap_or(started_ns);
    let waits = hops.iter().map(|hop| Straggler {
        rank: hop.peer,
        phase: hop.phase,
        waited_ns: hop.ended_ns.saturating_sub(before(hop.phase)),
    });
    // The first of equals.
    waits.fold(None, |longest: Option<Straggler>, wait| match longest {
        Some(longest) if longest.waited_ns >= wait.waited_ns => Some(longest),
        _ => Some(wait),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_divided_by_weight_and_ends_exactly() {
        assert_eq!(deadlines(&[3, 1, 0, 4], 1000, 801), [1300, 1400, 1400, 1801]);
        assert_eq!(deadlines(&[0, 0], 5, 10), [15, 15]);
        assert_eq!(deadlines(&[1 << 62; 2], 0, u64::MAX), [u64::MAX / 2, u64::MAX]);
        assert_eq!(deadlines(&[7; 3], u64::MAX - 5, 90)[2], u64::MAX);
    }
}
