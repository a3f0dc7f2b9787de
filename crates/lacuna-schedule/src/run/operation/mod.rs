//! One operation: its table, how far each entry is, and whose contributions are where.
//!
//! Data flow by ranges: an entry works on the elements that are ready, then those that depend on it do.
//! An operation that has to end in time keeps [accounts](accounts) besides.

mod accounts;
mod time;

use super::Settings;
use super::fabric::{Fabric, Posting, Reason, Token};
use super::memory::{Buffers, Memory};
use super::note::Label;
use super::order::Order;
use super::ports::Ports;
use super::report::{Hop, Report, RunError, Straggler};
use super::who::RankSet;
use crate::schedule::{Action, Part, Table, Whose};
use accounts::Accounts;
use lacuna_path::ranges::Ranges;
use std::collections::VecDeque;
use std::ops::Range;
use time::deadlines;
pub use time::{Divisor, Time};

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
    /// Bytes that are lost on purpose, though they come: of each receive, in the order of the table.
    /// Receives behind the list lose nothing. For operations that end in time.
    pub losses: Vec<Ranges<usize>>,
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
    /// Bytes of a receive that are lost on purpose.
    dropped: Ranges<usize>,
    hop: Option<Hop>,
    /// All elements are done, and a receive has ended.
    is_settled: bool,
}

/// See the module's text.
pub(in crate::run) struct Operation {
    pub(in crate::run) sequence: u64,
    pub(in crate::run) label: Label,
    table: Table,
    order: Order,
    /// Bytes of an element.
    size: usize,
    memory: Memory,
    progress: Vec<Progress>,
    /// Entries that are not settled.
    undone: usize,
    time: Time,
    started_ns: u64,
    /// When each phase has to be over.
    deadlines_ns: Vec<u64>,
    /// Only of operations that have to end in time.
    accounts: Option<Accounts>,
    is_pipelined: bool,
}

impl Operation {
    pub(in crate::run) fn new(sequence: u64, job: Job, settings: &Settings, now_ns: u64) -> Self {
        let Job { table, label, buffers, time, losses } = job;
        let size = label.element.size_bytes();
        assert_eq!(buffers.input().len(), table.input * size, "bytes of the input");
        assert_eq!(buffers.output().len(), table.output * size, "bytes of the output");
        let deadlines_ns = match time {
            Time::Bounded { budget_ns, usual_ns, .. } => {
                deadlines(&table.phases, now_ns, budget_ns, usual_ns)
            }
            _ => Vec::new(),
        };
        let accounts = matches!(time, Time::Bounded { .. }).then(|| Accounts::new(&table));
        let mut progress: Vec<Progress> =
            table.entries.iter().map(|_| Progress::default()).collect();
        let receives = table.entries.iter().zip(&mut progress);
        let receives = receives.filter(|(e, _)| matches!(e.action, Action::Receive { .. }));
        for ((entry, progress), losses) in receives.zip(losses) {
            let bytes = entry.action.elements() * size;
            let within = losses.iter().map(|range| range.start..range.end.min(bytes));
            progress.dropped = within.filter(|range| !range.is_empty()).collect();
        }
        Self {
            sequence,
            order: Order::new(&table),
            size,
            memory: Memory::new(buffers, table.scratch, label.element, label.op),
            progress,
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

    pub(in crate::run) fn token(&self, entry: usize) -> Token {
        Token(self.sequence << 32 | entry as u64)
    }

    pub(in crate::run) fn into_buffers(self) -> Box<dyn Buffers> {
        self.memory.buffers
    }

    /// The messages to post; the peers that are sent to, and all that messages are exchanged with.
    pub(in crate::run) fn enqueue(&self, ports: &mut Ports) -> (Vec<usize>, Vec<usize>) {
        let (mut sends_to, mut partners) = (Vec::new(), Vec::new());
        let note = |list: &mut Vec<usize>, peer| {
            if !list.contains(&peer) {
                list.push(peer);
            }
        };
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
                    note(&mut sends_to, peer);
                    note(&mut partners, peer);
                }
                Action::Receive { peer, to, .. } => {
                    ports.add_receive(posting(peer, to));
                    note(&mut partners, peer);
                }
                _ => {}
            }
        }
        (sends_to, partners)
    }

    /// Entries that wait for nothing.
    pub(in crate::run) fn begin(
        &mut self,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        self.advance((0..self.table.entries.len()).collect(), fabric, ports)?;
        self.account(fabric, ports)
    }

    /// Bytes of a receive have come.
    pub(in crate::run) fn on_arrived(
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
        let Progress { arrived, dropped, .. } = &mut self.progress[entry];
        for kept in dropped.gaps(&(bytes.start..bytes.end.min(to.len * self.size))) {
            arrived.add(kept);
        }
        self.advance([entry].into(), fabric, ports)
    }

    /// A receive is over.
    pub(in crate::run) fn on_ended(
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
        let dropped = self.progress[entry].dropped.iter();
        let missing: Ranges<usize> = missing.iter().chain(dropped).cloned().collect();
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

    /// When [`Operation::on_time`] has something to do.
    pub(in crate::run) fn timeout_ns(&self) -> Option<u64> {
        match self.time {
            Time::Unlimited => None,
            Time::Within { limit_ns } => Some(self.started_ns.saturating_add(limit_ns)),
            Time::Bounded { .. } => {
                // Only notes are waited for here; data end by the fabric's deadlines.
                let next = self.accounts.as_ref()?.next();
                let entry = self.table.entries.get(next)?;
                let deadline_ns = self.deadlines_ns.get(entry.phase).copied();
                deadline_ns.filter(|_| self.progress[next].is_settled)
            }
        }
    }

    pub(in crate::run) fn on_time(
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

    pub(in crate::run) fn is_done(&self) -> bool {
        let count = self.table.entries.len();
        self.undone == 0 && self.accounts.as_ref().is_none_or(|accounts| accounts.next() == count)
    }

    /// Ends what is still open in the fabric.
    pub(in crate::run) fn abandon(&mut self, fabric: &mut impl Fabric) {
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

    /// The report of an operation that is done.
    pub(in crate::run) fn report(&mut self, now_ns: u64) -> Report {
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
