//! The accounts of an operation that has to end in time: whose contributions are in which elements.
//!
//! They follow the table entry by entry, once an entry's data are done. A receiver learns whose
//! contributions a message has from the sender's note, which follows the data. If the note has not come when
//! the receive's deadline passes, what came counts as uncertain, so the accounts end in time too.

use super::{Divisor, Operation, Time};
use crate::run::fabric::Fabric;
use crate::run::note::Note;
use crate::run::ports::Ports;
use crate::run::report::RunError;
use crate::run::who::{Who, WhoMap};
use crate::schedule::{Action, Entry, Part, Space, Table};
use std::collections::BTreeMap;
use std::ops::Range;

/// Whose contributions are where, as far as the table has been followed.
pub(super) struct Accounts {
    spaces: [WhoMap; 3],
    next: usize,
    /// Notes on receives, by entry.
    notes: BTreeMap<usize, Vec<(usize, Who)>>,
}

impl Accounts {
    /// Before the first entry: the input is this rank's.
    pub(super) fn new(table: &Table) -> Self {
        let mut spaces: [WhoMap; 3] = Default::default();
        let own = || Who { ranks: [table.rank].into_iter().collect(), is_uncertain: false };
        spaces[Space::Input as usize].set(0..table.input, own());
        if table.is_in_place {
            spaces[Space::Output as usize].set(0..table.output, own());
        }
        Self { spaces, next: 0, notes: BTreeMap::new() }
    }

    /// The entry that is to be followed next.
    pub(super) fn next(&self) -> usize {
        self.next
    }
}

impl Operation {
    /// A peer says whose contributions its n-th send to this rank has.
    pub(in crate::run) fn on_account(
        &mut self,
        peer: usize,
        send: usize,
        pieces: Vec<(usize, Who)>,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        let receives = self.table.entries.iter().enumerate();
        let from_peer = |(_, entry): &(usize, &Entry)| matches!(entry.action, Action::Receive { peer: from, .. } if from == peer);
        let Some((entry, _)) = receives.filter(from_peer).nth(send) else { return Ok(()) };
        let Some(accounts) = &mut self.accounts else { return Ok(()) };
        accounts.notes.entry(entry).or_insert(pieces);
        self.account(fabric, ports)
    }

    /// Follows the accounts as far as data and notes are here.
    pub(super) fn account(
        &mut self,
        fabric: &mut impl Fabric,
        ports: &mut Ports,
    ) -> Result<(), RunError> {
        while let Some(entry) = self.accounts.as_ref().map(|accounts| accounts.next) {
            let Some(line) = self.table.entries.get(entry).copied() else { break };
            let is_divided_here =
                matches!(line.action, Action::Divide { .. }) && self.divides_by_contributors();
            if !self.progress[entry].is_settled && !is_divided_here {
                break;
            }
            match line.action {
                Action::Send { peer, from } => {
                    if let Some(news) = ports.board.news_for(peer) {
                        fabric.tell(peer, &news.write(self.sequence))?;
                    }
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

    pub(super) fn who(&self, part: Part) -> Vec<(Range<usize>, Who)> {
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
        let is_to_peer =
            |e: &&Entry| matches!(e.action, Action::Send { peer: to, .. } if to == peer);
        self.table.entries[..entry].iter().filter(is_to_peer).count()
    }

    pub(super) fn divides_by_contributors(&self) -> bool {
        matches!(self.time, Time::Bounded { divisor: Divisor::Contributors, .. })
    }
}
