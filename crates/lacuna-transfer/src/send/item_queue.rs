//! The item queue of a sender, shared by the sending thread and the thread that reads answers. It
//! outlives broken connections.
//!
//! An item stays in the queue from its offer until the receiver has settled it. After a break, the
//! remaining items are offered again in the same order; how much of each had arrived is found out
//! by comparing prefixes.

use super::walk::Item;
use crate::error::SendError;
use crate::name::shown_text;
use crate::report::{Blame, FileReport, Moved, Status, Tally};
use crate::retry;
use crate::wire::{FatalKind, Hash, OFFERS_MAX, Outcome, Prefix};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why an attempt ended.
pub(crate) type Ended = retry::Ended<SendError>;

/// What the receiver requests for an item.
#[derive(Debug, Clone)]
pub(crate) enum Wish {
    /// The file, after one of these prefixes.
    Send(Vec<Prefix>),
    /// Nothing, if the file has this hash.
    Compare(Hash),
}

/// The sending thread's next task.
#[derive(Debug)]
pub(crate) enum Next {
    /// An item that the receiver has answered.
    Handle { number: u64, item: Item, wish: Wish },
    /// Wait for answers.
    Wait,
    /// All items are settled.
    Done,
}

/// The item queue.
pub(crate) struct ItemQueue {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    queue: VecDeque<Entry>,
    /// Number of the first item of the queue in this session.
    first: u64,
    /// Items of the queue offered in this session.
    offered: usize,
    /// Items of the queue that were handled, or were settled before.
    handled: usize,
    /// From the receiver's welcome in this session: whether it overwrites.
    welcome: Option<bool>,
    /// Whether there was a welcome in any session.
    was_welcome: bool,
    finished: bool,
    ended: Option<Ended>,
    /// Items settled, in all sessions.
    settled: u64,
    /// Files among them and the data in them, moved or not.
    settled_files: u64,
    settled_bytes: u64,
    /// The same at the start of this session.
    settled_before: (u64, u64),
    /// Bytes sent in this session for items that are settled.
    settled_packed_bytes: u64,
    /// Data that the receiver already had of items that are started and not settled.
    open_from_bytes: u64,
}

struct Entry {
    item: Item,
    wish: Option<Wish>,
    sent: Option<Sent>,
    /// The hash that both ends computed.
    compared: Option<Hash>,
    is_settled: bool,
}

/// What was sent of an item.
struct Sent {
    started: Instant,
    /// Bytes that the receiver already had.
    from: u64,
    /// Of these, bytes of data (not holes).
    from_data_bytes: u64,
    /// Bytes sent, in flight or delivered.
    packed_bytes: u64,
    /// Bytes of holes, which are not sent.
    hole_bytes: u64,
    hash: Option<Hash>,
}

/// Progress of the transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position {
    /// Bytes of data that need not move any more.
    pub(crate) done_bytes: u64,
    /// The file in flight, and how much of its data the receiver has.
    pub(crate) current: Option<(Vec<u8>, u64)>,
}

impl ItemQueue {
    pub(crate) fn new() -> Self {
        let state = State {
            queue: VecDeque::new(),
            first: 0,
            offered: 0,
            handled: 0,
            welcome: None,
            was_welcome: false,
            finished: false,
            ended: None,
            settled: 0,
            settled_files: 0,
            settled_bytes: 0,
            settled_before: (0, 0),
            settled_packed_bytes: 0,
            open_from_bytes: 0,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    // ---- the sending thread ----

    /// Begins a session: the remaining items are offered again.
    pub(crate) fn begin(&self) {
        let mut state = self.lock();
        state.queue.retain(|entry| !entry.is_settled);
        for entry in &mut state.queue {
            (entry.wish, entry.sent, entry.compared) = (None, None, None);
        }
        (state.first, state.offered, state.handled) = (0, 0, 0);
        (state.welcome, state.finished, state.ended) = (None, false, None);
        (state.settled_packed_bytes, state.open_from_bytes) = (0, 0);
        state.settled_before = (state.settled_files, state.settled_bytes);
    }

    /// Adds an item, to be offered after the others.
    pub(crate) fn push(&self, item: Item) {
        let entry = Entry { item, wish: None, sent: None, compared: None, is_settled: false };
        self.lock().queue.push_back(entry);
    }

    /// The next item to offer.
    pub(crate) fn next_offer(&self) -> Option<Item> {
        let mut state = self.lock();
        let item = state.queue.get(state.offered)?.item.clone();
        state.offered += 1;
        Some(item)
    }

    /// Whether another item may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().queue.len() < OFFERS_MAX
    }

    /// The sending thread's next task.
    pub(crate) fn next(&self) -> Next {
        let mut state = self.lock();
        while state.queue.get(state.handled).is_some_and(|entry| entry.is_settled) {
            state.handled += 1;
        }
        state.forget_settled();
        if state.queue.is_empty() {
            return Next::Done;
        }
        let number = state.first + state.handled as u64;
        let handled = state.handled;
        let Some(entry) = state.queue.get_mut(handled) else { return Next::Wait };
        let Some(wish) = entry.wish.take() else { return Next::Wait };
        let item = entry.item.clone();
        state.handled += 1;
        Next::Handle { number, item, wish }
    }

    /// The data of an item starts at `from`; the bytes before contain `from_data_bytes` of data.
    pub(crate) fn start(&self, number: u64, from: u64, from_data_bytes: u64) {
        let mut state = self.lock();
        if let Some(entry) = state.entry(number).filter(|entry| !entry.is_settled) {
            let started = Instant::now();
            let (packed_bytes, hole_bytes) = (0, 0);
            let sent =
                Sent { started, from, from_data_bytes, packed_bytes, hole_bytes, hash: None };
            entry.sent = Some(sent);
            state.open_from_bytes += from_data_bytes;
        }
    }

    /// `bytes` more of an item were sent.
    pub(crate) fn packed(&self, number: u64, bytes: u64) {
        let mut state = self.lock();
        let Some(entry) = state.entry(number) else { return };
        if let Some(sent) = &mut entry.sent {
            sent.packed_bytes += bytes;
        }
        if entry.is_settled {
            state.settled_packed_bytes += bytes;
        }
    }

    /// `bytes` more of an item are a hole.
    pub(crate) fn skipped(&self, number: u64, bytes: u64) {
        if let Some(sent) = self.lock().entry(number).and_then(|entry| entry.sent.as_mut()) {
            sent.hole_bytes += bytes;
        }
    }

    /// All of an item was sent.
    pub(crate) fn sent(&self, number: u64, hash: Hash) {
        if let Some(sent) = self.lock().entry(number).and_then(|entry| entry.sent.as_mut()) {
            sent.hash = Some(hash);
        }
    }

    /// Both ends have the same content; the receiver settles the item.
    pub(crate) fn compared(&self, number: u64, hash: Hash) {
        if let Some(entry) = self.lock().entry(number) {
            entry.compared = Some(hash);
        }
    }

    /// Settles an item at this end; `false` if the receiver did so first.
    pub(crate) fn settle(&self, number: u64) -> bool {
        self.lock().close(number)
    }

    /// Whether the receiver has settled an item already.
    pub(crate) fn is_settled(&self, number: u64) -> bool {
        self.lock().entry(number).is_none_or(|entry| entry.is_settled)
    }

    /// Whether the receiver overwrites existing files.
    pub(crate) fn overwrites(&self) -> bool {
        self.lock().welcome == Some(true)
    }

    pub(crate) fn is_welcome(&self) -> bool {
        self.lock().welcome.is_some()
    }

    /// Whether the receiver has sent a welcome in any session.
    pub(crate) fn was_welcome(&self) -> bool {
        self.lock().was_welcome
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.lock().finished
    }

    /// Whether the session has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().ended.is_some()
    }

    /// Why the session has ended.
    pub(crate) fn take_ended(&self) -> Option<Ended> {
        self.lock().ended.take()
    }

    /// Items settled in all sessions.
    pub(crate) fn settled(&self) -> u64 {
        self.lock().settled
    }

    /// Files and bytes settled in earlier sessions.
    pub(crate) fn settled_before(&self) -> (u64, u64) {
        self.lock().settled_before
    }

    /// The progress when `delivered_bytes` of files have arrived in this session.
    pub(crate) fn position(&self, delivered_bytes: u64) -> Position {
        let state = self.lock();
        // Items are sent in order, so bytes beyond those of settled items belong to the first
        // unsettled ones.
        let mut open_bytes = delivered_bytes.saturating_sub(state.settled_packed_bytes);
        let done_bytes = state.settled_bytes + state.open_from_bytes + open_bytes;
        let mut current = None;
        for entry in state.queue.iter().take(state.handled).filter(|entry| !entry.is_settled) {
            let Some(sent) = &entry.sent else { continue };
            let arrived = open_bytes.min(sent.packed_bytes);
            current = Some((entry, sent.from_data_bytes + arrived));
            open_bytes -= arrived;
            if arrived < sent.packed_bytes || sent.hash.is_none() {
                break;
            }
        }
        let current = current.map(|(entry, bytes)| (entry.item.name.clone(), bytes));
        Position { done_bytes, current }
    }

    /// Waits for an answer.
    pub(crate) fn wait(&self, timeout: Duration) {
        let state = self.lock();
        let handled = state.handled;
        let is_answered = |state: &State| {
            let next = state.queue.get(handled);
            next.is_none_or(|entry| entry.wish.is_some() || entry.is_settled)
        };
        // An answer that came before the lock was taken is seen here.
        if state.ended.is_none() && (handled == state.queue.len() || !is_answered(&state)) {
            drop(self.changed.wait_timeout(state, timeout));
        }
    }

    // ---- the thread that hears the answers ----

    pub(crate) fn on_welcome(&self, overwrite: bool) {
        let mut state = self.lock();
        (state.welcome, state.was_welcome) = (Some(overwrite), true);
        drop(state);
        self.changed.notify_all();
    }

    /// The receiver's answer to an offer.
    pub(crate) fn on_wish(&self, number: u64, wish: Wish) -> Result<(), Ended> {
        let mut state = self.lock();
        let offered_end = state.first + state.offered as u64;
        let handled_end = state.first + state.handled as u64;
        let is_open = |entry: &&mut Entry| {
            entry.wish.is_none() && !entry.is_settled && entry.item.unsent.is_none()
        };
        let entry = state.entry(number).filter(is_open);
        let (true, Some(entry)) = ((handled_end..offered_end).contains(&number), entry) else {
            return Err(protocol_error(&format!("item {number} was answered and is not open")));
        };
        if let Wish::Send(prefixes) = &wish
            && !crate::prefix::are_valid(prefixes, entry.item.meta.size_bytes)
        {
            return Err(protocol_error("the prefixes of a partial file make no sense"));
        }
        entry.wish = Some(wish);
        self.changed.notify_all();
        Ok(())
    }

    /// The receiver says how an item ended.
    pub(crate) fn on_settled(
        &self,
        number: u64,
        outcome: Outcome,
        reason: &str,
        tally: &Tally,
    ) -> Result<(), Ended> {
        let mut state = self.lock();
        if number >= state.first + state.offered as u64 {
            return Err(protocol_error(&format!("item {number} was settled and never offered")));
        }
        // Both ends have settled it; both are right.
        let Some(entry) = state.entry(number).filter(|entry| !entry.is_settled) else {
            return Ok(());
        };
        if entry.item.unsent.is_some() {
            // Counted when it was found.
            state.close(number);
            drop(state);
            self.changed.notify_all();
            return Ok(());
        }
        let hash = entry.sent.as_ref().and_then(|sent| sent.hash);
        let is_folder = entry.item.meta.kind == crate::wire::Kind::Folder;
        if outcome == Outcome::Complete && !is_folder && hash.is_none() {
            return Err(protocol_error("a file was called complete before its end"));
        }
        let is_there = matches!(outcome, Outcome::Complete | Outcome::Identical | Outcome::Updated);
        let report = report_of(entry, outcome, reason);
        let name = is_folder.then(|| entry.item.name.clone());
        state.close(number);
        drop(state);
        match name.filter(|_| is_there) {
            Some(name) => {
                tally.folder(&name, outcome == Outcome::Updated, report.error.as_deref());
            }
            None => tally.file(&report),
        }
        self.changed.notify_all();
        Ok(())
    }

    pub(crate) fn on_finished(&self) {
        self.lock().finished = true;
        self.changed.notify_all();
    }

    pub(crate) fn end(&self, ended: Ended) {
        self.lock().ended.get_or_insert(ended);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let index = number.checked_sub(self.first)?;
        self.queue.get_mut(usize::try_from(index).ok()?)
    }

    /// Settles an item; `false` if it was settled.
    fn close(&mut self, number: u64) -> bool {
        let Some(entry) = self.entry(number) else { return false };
        if std::mem::replace(&mut entry.is_settled, true) {
            return false;
        }
        let item = &entry.item;
        let is_file = item.meta.kind == crate::wire::Kind::File && item.unsent.is_none();
        let data_bytes = entry.item.meta.data_bytes;
        let (from, packed_bytes) =
            entry.sent.as_ref().map_or((0, 0), |sent| (sent.from_data_bytes, sent.packed_bytes));
        self.settled += 1;
        self.settled_files += u64::from(is_file);
        self.settled_bytes += data_bytes;
        self.settled_packed_bytes += packed_bytes;
        self.open_from_bytes -= from;
        true
    }

    fn forget_settled(&mut self) {
        while self.handled > 0 && self.queue.front().is_some_and(|entry| entry.is_settled) {
            self.queue.pop_front();
            self.first += 1;
            self.offered -= 1;
            self.handled -= 1;
        }
    }
}

/// The receiver ended the session.
pub(crate) fn ended_by(kind: FatalKind, reason: &str) -> Ended {
    let reason = shown_text(reason);
    Ended::Failed(match kind {
        FatalKind::Unable => SendError::GaveUp { reason },
        FatalKind::Protocol => SendError::Misunderstood { reason },
    })
}

/// The receiver violated the protocol.
pub(crate) fn protocol_error(how: &str) -> Ended {
    Ended::Failed(SendError::Protocol { reason: how.to_owned() })
}

/// The report on an item.
fn report_of(entry: &Entry, outcome: Outcome, reason: &str) -> FileReport {
    let item = &entry.item;
    let status = match outcome {
        Outcome::Complete => Status::Complete,
        Outcome::Identical | Outcome::Updated => Status::Identical,
        Outcome::Refused => Status::Refused,
        Outcome::Failed => Status::Failed,
        Outcome::WrongHash => Status::WrongHash,
    };
    let report = FileReport::unmoved(&item.name, item.meta.size_bytes, status);
    let mut report = report.of(item.meta.kind);
    report.updated = outcome == Outcome::Updated;
    if let Some(hash) = &entry.compared {
        report = report.with_hash(hash);
    }
    if let Some(sent) = &entry.sent {
        let (moved_bytes, hole_bytes) = (sent.packed_bytes, sent.hole_bytes);
        let moved = Moved { resumed_at_bytes: sent.from, moved_bytes, hole_bytes };
        report = report.with_time(sent.started.elapsed(), moved);
        if let Some(hash) = &sent.hash {
            report = report.with_hash(hash);
        }
    }
    if !reason.is_empty() {
        let blame = if status == Status::WrongHash { Blame::Data } else { Blame::Peer };
        report = report.with_error(blame, format!("the receiver: {}", shown_text(reason)));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::send::walk::Unsent;
    use crate::wire::{Kind, Meta, Time};

    fn item(name: &str, size_bytes: u64) -> Item {
        let modified = Time { seconds: 0, nanos: 0 };
        let (kind, mode, data_bytes) = (Kind::File, 0o644, size_bytes);
        let meta = Meta { kind, mode, size_bytes, data_bytes, modified };
        Item { path: name.into(), name: name.into(), meta, unsent: None }
    }

    /// Offers what is left again and starts the first `started`.
    fn session(items: &ItemQueue, started: &[(u64, u64)]) {
        items.begin();
        while items.next_offer().is_some() {}
        items.on_welcome(false);
        for (number, from) in started {
            items.on_wish(*number, Wish::Send(Vec::new())).unwrap();
            assert!(matches!(items.next(), Next::Handle { number: next, .. } if next == *number));
            items.start(*number, *from, *from);
        }
    }

    fn current(items: &ItemQueue, delivered: u64) -> (u64, Option<(String, u64)>) {
        let Position { done_bytes, current } = items.position(delivered);
        let named = current.map(|(name, bytes)| (String::from_utf8(name).unwrap(), bytes));
        (done_bytes, named)
    }

    #[test]
    fn what_is_not_sent_waits_for_the_receiver_and_counts_as_nothing() {
        let (items, tally) = (ItemQueue::new(), Tally::new(&()));
        let reason = "a symbolic link".to_owned();
        let unsent = Unsent { is_skipped: true, reason };
        items.push(Item::unsent(b"link".to_vec(), Kind::File, unsent));
        items.push(item("a", 100));
        session(&items, &[]);
        assert!(matches!(items.next(), Next::Wait));
        assert!(items.on_wish(0, Wish::Send(Vec::new())).is_err(), "it is not to be had");
        // It is told of again after a break.
        session(&items, &[]);
        items.on_settled(0, Outcome::Refused, "", &tally).unwrap();
        items.on_wish(1, Wish::Send(Vec::new())).unwrap();
        assert!(matches!(items.next(), Next::Handle { number: 1, .. }));
        session(&items, &[]);
        assert_eq!(items.settled_before(), (0, 0));
        assert_eq!(tally.files_ended(), 0);
    }

    #[test]
    fn the_position_counts_every_byte_once_across_a_break() {
        let (items, tally) = (ItemQueue::new(), Tally::new(&()));
        for (name, size) in [("a", 100), ("b", 1000), ("c", 10)] {
            items.push(item(name, size));
        }
        session(&items, &[(0, 40), (1, 0)]);
        // What was there before is done as soon as that is known.
        assert_eq!(current(&items, 0), (40, Some(("a".to_owned(), 40))));
        items.packed(0, 60);
        items.sent(0, [0; 32]);
        items.packed(1, 500);
        assert_eq!(current(&items, 30), (70, Some(("a".to_owned(), 70))));
        assert_eq!(current(&items, 260), (300, Some(("b".to_owned(), 200))));
        items.on_settled(0, Outcome::Complete, "", &tally).unwrap();
        assert_eq!(current(&items, 260), (300, Some(("b".to_owned(), 200))));
        assert_eq!(items.settled_before(), (0, 0));
        // It breaks. Of "b" 450 had arrived, which is known only now.
        session(&items, &[(0, 450)]);
        assert_eq!(items.settled_before(), (1, 100));
        assert_eq!(current(&items, 0), (550, Some(("b".to_owned(), 450))));
        items.packed(0, 550);
        items.sent(0, [0; 32]);
        assert_eq!(current(&items, 550), (1100, Some(("b".to_owned(), 1000))));
        items.on_settled(0, Outcome::Complete, "", &tally).unwrap();
        assert_eq!(current(&items, 550), (1100, None));
        // The last one fails halfway: nothing of it is to come.
        items.on_wish(1, Wish::Send(Vec::new())).unwrap();
        assert!(matches!(items.next(), Next::Handle { number: 1, .. }));
        items.start(1, 0, 0);
        items.packed(1, 5);
        items.on_settled(1, Outcome::Failed, "full", &tally).unwrap();
        items.packed(1, 2);
        assert_eq!(current(&items, 557), (1110, None));
    }
}
