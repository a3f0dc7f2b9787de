//! The session of one sender: handles the records of its messages.
//!
//! The parser has checked the layout of records. Their order is checked here: items come in order,
//! and data and holes belong to a started item and end at its size.

use super::metadata::{Seen, Update, update_file};
use super::partial::{Finish, Partial};
use super::space::{self, Promised};
use super::tree::{Found, Tree, look, open_file};
use super::write_behind::WriteBehind;
use crate::digest::{Digest, HashThread};
use crate::name::{Name, shown, shown_text};
use crate::outbound::Outbound;
use crate::pool::Block;
use crate::report::{Blame, FileReport, Moved, Status, Tally};
use crate::wire::{
    ANSWER_BYTES, Answer, FatalKind, Hash, Meta, Outcome, RECORD_BYTES_MAX, Record, records,
};
use blake3::Hasher;
use lacuna::SendBuffer;
use lacuna::datapath::limit::{Limit, Said};
use lacuna_units::show_bytes;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Why a session ended early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The connection broke, or a stop was requested.
    Lost(String),
    /// The sender violated the protocol, or speaks another one.
    Protocol(String),
    /// This end cannot continue.
    Unable(String),
}

/// Options of the receiver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) overwrite: bool,
    pub(crate) sync: bool,
    /// The names that may come, with what is below them; `None`: any.
    pub(crate) only: Option<&'a BTreeSet<Vec<u8>>>,
    /// How to have existing files replaced.
    pub(crate) overwrite_hint: &'static str,
}

/// The session of one sender.
pub(crate) struct Session<'a> {
    pub(crate) rules: Rules<'a>,
    pub(crate) tree: Tree,
    pub(crate) outbound: &'a Outbound,
    pub(crate) hashes: &'a HashThread,
    pub(crate) behind: &'a WriteBehind,
    pub(crate) tally: &'a Tally<'a>,
    pub(crate) stop: &'a dyn Fn() -> bool,
    /// Whether a stop was requested or the sender has gone; checked while hashing, since files or
    /// holes may take hours.
    pub(crate) gone: &'a dyn Fn() -> bool,
    /// Whether this file system stores holes without space.
    pub(crate) keeps_holes: bool,
    pub(crate) promised: Promised<'a>,
    pub(crate) state: State,
}

/// Progress of the session.
#[derive(Default)]
pub(crate) struct State {
    /// From the sender's hello: its id, and whether equal size and time suffice.
    pub(crate) hello: Option<([u8; 16], bool)>,
    /// Number of files and bytes of data in all, once known.
    pub(crate) total: Option<(u64, u64)>,
    /// Data received.
    pub(crate) moved_bytes: u64,
    /// Data of the files that have ended, received or not.
    pub(super) ended_bytes: u64,
    pub(crate) is_finished: bool,
    pub(super) offers: VecDeque<Offered>,
    /// Number of the first item of `offers`.
    pub(super) first: u64,
    current: Option<Incoming>,
    /// Data that the open offers still need.
    pub(super) promised_bytes: u64,
    /// Names whose partial file is kept open from the offer on.
    pub(super) held: BTreeSet<Vec<u8>>,
    out: Vec<u8>,
}

/// An item that was offered.
pub(super) enum Offered {
    /// Settled.
    Closed,
    /// Requested from the sender; `found` is what was here, `missing_bytes` what is to come.
    Wanted { name: Name, meta: Meta, missing_bytes: u64, found: Option<Resumable> },
    /// A file of this size and hash is here.
    Compared { name: Name, meta: Meta, hash: Hash, seen: Seen },
}

/// A partial file with the hash of its content.
pub(super) struct Resumable {
    pub(super) partial: Partial,
    pub(super) prefixes: Vec<(u64, Hasher)>,
}

/// The item whose data is being received.
struct Incoming {
    number: u64,
    name: Name,
    meta: Meta,
    moved: Moved,
    started: Instant,
    /// `None` after a failure: the rest of the data is discarded.
    sink: Option<Sink>,
}

struct Sink {
    partial: Partial,
    digest: Digest,
}

/// Why an item is not received.
pub(super) enum Fault {
    Item(Outcome, String),
    Ended(Ended),
}

impl Session<'_> {
    /// Handles one message.
    pub(crate) fn on_message(&mut self, block: Block, len: usize) -> Result<(), Ended> {
        if self.tree.is_removed() {
            return Err(removed());
        }
        let message = SendBuffer::new(Arc::new(block));
        for record in records(&message[..len]) {
            let record = record.map_err(|error| Ended::Protocol(error.to_string()))?;
            self.on_record(record, &message)?;
        }
        self.promised.set(self.state.outstanding_bytes(self.keeps_holes));
        self.flush()
    }

    fn on_record(&mut self, record: Record<'_>, message: &SendBuffer) -> Result<(), Ended> {
        match (&record, &self.state.hello) {
            (Record::Hello { .. }, None) => {}
            (Record::Hello { .. }, Some(_)) => return Err(protocol("a second hello")),
            (_, None) => return Err(protocol("it did not say hello")),
            (_, Some(_)) => {}
        }
        match record {
            Record::Hello { session, quick } => {
                self.state.hello = Some((session, quick));
                self.answer(&Answer::Welcome { overwrite: self.rules.overwrite })
            }
            Record::Offer { meta, name } => self.on_offer(meta, name),
            Record::Unsent { kind, is_skipped, name, reason } => {
                self.on_unsent(kind, is_skipped, name, reason)
            }
            Record::Start { item, from } => self.on_start(item, from),
            Record::Data { range } => self.on_data(range, message),
            Record::Hole { len } => self.on_hole(len),
            Record::End { hash } => self.on_end(&hash),
            Record::Same { item } => self.on_same(item),
            Record::Drop { item, reason } => self.on_drop(item, reason),
            Record::Total { files, bytes } => {
                self.state.total = Some((files, bytes));
                Ok(())
            }
            Record::Alive => Ok(()),
            Record::Finish => {
                self.state.forget_closed();
                if self.state.current.is_some() || !self.state.offers.is_empty() {
                    return Err(protocol("it finished with items open"));
                }
                self.state.is_finished = true;
                self.answer(&Answer::Finished)
            }
        }
    }

    // ---- data ----

    fn on_start(&mut self, item: u64, from: u64) -> Result<(), Ended> {
        let (name, meta, found) = match self.take_offer(item)? {
            Offered::Wanted { name, meta, found, .. } => (name, meta, found),
            Offered::Compared { name, meta, .. } if self.rules.overwrite => (name, meta, None),
            Offered::Compared { .. } => return Err(protocol("it sends a file that exists")),
            Offered::Closed => return Err(protocol("it sends an item that is settled")),
        };
        self.state.held.remove(name.as_bytes());
        let started = Instant::now();
        let opened = self.open_sink(&name, meta, found, from);
        let (sink, fault) = match opened {
            Ok(sink) => (Some(sink), None),
            Err(Fault::Ended(ended)) => return Err(ended),
            Err(Fault::Item(outcome, reason)) => (None, Some((outcome, reason))),
        };
        if let Some((outcome, reason)) = fault {
            self.fail(item, name.as_bytes(), meta, outcome, &reason)?;
        }
        let moved = Moved { resumed_at_bytes: from, ..Moved::default() };
        self.state.current = Some(Incoming { number: item, name, meta, moved, started, sink });
        Ok(())
    }

    fn open_sink(
        &mut self,
        name: &Name,
        meta: Meta,
        found: Option<Resumable>,
        from: u64,
    ) -> Result<Sink, Fault> {
        let (mut partial, hasher) = match found {
            Some(Resumable { partial, prefixes }) => {
                let prefix = prefixes.into_iter().find(|(offset, _)| *offset == from);
                match prefix {
                    Some((_, hasher)) => (partial, hasher),
                    None if from == 0 => (partial, Hasher::new()),
                    None => return Err(Fault::Ended(protocol("it starts where nothing agreed"))),
                }
            }
            None if from == 0 => {
                let folder = self.tree.folder_of(name).map_err(|error| self.refused(&error))?;
                let made = Partial::make(&folder, name, self.stop);
                (made.map_err(|error| self.failed("write", &error))?, Hasher::new())
            }
            None => return Err(Fault::Ended(protocol("it starts behind the beginning"))),
        };
        partial.cut(from).map_err(|error| self.failed("write", &error))?;
        if !partial.may_be_of(meta.size_bytes) {
            if partial.len_bytes() == 0 {
                let _ = partial.remove();
            }
            let size = show_bytes(meta.size_bytes);
            let reason = format!("its {size} are more than the file system takes of one file");
            return Err(Fault::Item(Outcome::Failed, reason));
        }
        Ok(Sink { partial, digest: self.hashes.begin(meta.size_bytes, hasher) })
    }

    fn on_data(&mut self, range: Range<usize>, message: &SendBuffer) -> Result<(), Ended> {
        let Some(current) = &mut self.state.current else {
            return Err(protocol("data without a file"));
        };
        self.state.moved_bytes += range.len() as u64;
        current.moved.moved_bytes += range.len() as u64;
        let Some(sink) = &mut current.sink else { return Ok(()) };
        let data = message.part(range.start, range.len()).expect("checked by the parser");
        if data.len() as u64 > current.meta.size_bytes - sink.partial.len_bytes() {
            return Err(protocol("more data than the file was offered with"));
        }
        // Before the write, so that the hash thread works during it.
        self.hashes.update(&mut sink.digest, data.clone());
        let written = sink.partial.write(&data);
        let written = written.and_then(|()| sink.partial.write_behind(self.behind));
        let Err(error) = written else { return Ok(()) };
        let (number, name, meta) = (current.number, current.name.clone(), current.meta);
        let kept_bytes = sink.partial.data_bytes();
        let free_bytes = space::free_bytes(sink.partial.file());
        if let Some(Sink { partial, .. }) = current.sink.take()
            && kept_bytes == 0
        {
            // Nothing worth resuming. If it stays, the next transfer uses it.
            let _ = partial.remove();
        }
        let fault = match space::is_full(&error) {
            true => {
                let reason = space::full(&error, meta.data_bytes, kept_bytes, free_bytes);
                Fault::Item(Outcome::Failed, reason)
            }
            false => self.failed("write", &error),
        };
        match fault {
            Fault::Ended(ended) => Err(ended),
            Fault::Item(outcome, reason) => {
                self.fail(number, name.as_bytes(), meta, outcome, &reason)
            }
        }
    }

    /// The file has a hole of `len_bytes` here.
    fn on_hole(&mut self, len_bytes: u64) -> Result<(), Ended> {
        let Some(current) = &mut self.state.current else {
            return Err(protocol("a hole without a file"));
        };
        let Some(sink) = &mut current.sink else { return Ok(()) };
        if len_bytes > current.meta.size_bytes - sink.partial.len_bytes() {
            return Err(protocol("more data than the file was offered with"));
        }
        current.moved.hole_bytes += len_bytes;
        self.hashes.zeros(&mut sink.digest, len_bytes);
        sink.partial.skip(len_bytes);
        Ok(())
    }

    fn on_end(&mut self, expected: &Hash) -> Result<(), Ended> {
        let Some(current) = self.state.current.take() else {
            return Err(protocol("an end without a file"));
        };
        let Incoming { number, name, meta, moved, started, sink } = current;
        let Some(Sink { partial, digest }) = sink else { return Ok(()) };
        if partial.len_bytes() != meta.size_bytes {
            return Err(protocol("a file ended before its size"));
        }
        // Hashing holes may take a while: send waiting answers first.
        self.flush_before(moved.hole_bytes)?;
        let Some(hash) = self.hashes.finish(digest) else { return Err(self.lost()) };
        let finished = if hash == *expected {
            self.give_name(partial, &name, meta, &hash)
        } else {
            let reason =
                "its content arrived with another hash; the next transfer checks what is kept";
            Err(Fault::Item(Outcome::WrongHash, reason.to_owned()))
        };
        match finished {
            Ok(unkept) => {
                let report =
                    FileReport::unmoved(name.as_bytes(), meta.size_bytes, Status::Complete);
                let mut report = report.with_time(started.elapsed(), moved).with_hash(&hash);
                if let Some(error) = unkept {
                    let reason = format!("its time and permissions cannot be set: {error}");
                    report = report.with_error(Blame::Local, reason);
                }
                self.report(report, meta);
                self.settle(number, Outcome::Complete, "")
            }
            Err(Fault::Ended(ended)) => Err(ended),
            Err(Fault::Item(outcome, reason)) => {
                self.fail(number, name.as_bytes(), meta, outcome, &reason)
            }
        }
    }

    /// Renames a complete file; returns why its time or permissions could not be set.
    fn give_name(
        &mut self,
        partial: Partial,
        name: &Name,
        meta: Meta,
        hash: &Hash,
    ) -> Result<Option<io::Error>, Fault> {
        let finish = Finish {
            permissions: self.tree.permissions(meta.mode),
            modified: meta.modified,
            overwrite: self.rules.overwrite,
            sync: self.rules.sync,
        };
        match partial.finish(name, &finish) {
            Ok(unkept) => return Ok(unkept),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(self.failed("finish", &error)),
        }
        // Perhaps another transfer of the same file was faster.
        self.flush_before(meta.size_bytes).map_err(Fault::Ended)?;
        let appeared = partial.has_appeared(name, hash, self.gone);
        if appeared.map_err(|error| self.failed("read", &error))? {
            let removed = partial.remove().map_err(|error| self.failed("finish", &error));
            return removed.map(|()| None);
        }
        let folder = self.tree.folder_of(name).map_err(|error| self.refused(&error))?;
        Err(match look(&*folder, name.leaf()).map_err(|error| self.refused(&error))? {
            Found::File { .. } => self.rules.differs("appeared meanwhile with other content"),
            Found::Folder => taken("a folder"),
            Found::Other(what) => taken(what),
            Found::Nothing => {
                let reason = "something of its name appeared and is gone again; send it again";
                Fault::Item(Outcome::Failed, reason.to_owned())
            }
        })
    }

    fn on_same(&mut self, item: u64) -> Result<(), Ended> {
        let Offered::Compared { name, meta, hash, seen } = self.take_offer(item)? else {
            return Err(protocol("it compared an item that was not to be compared"));
        };
        let update = self.update_compared(&name, meta, seen).unwrap_or_else(Update::Failed);
        self.was_here(item, &name, meta, Some(&hash), &update)
    }

    /// Updates time and permissions of a file whose content is equal to the source's.
    fn update_compared(&mut self, name: &Name, meta: Meta, seen: Seen) -> io::Result<Update> {
        let folder = self.tree.folder_of(name)?;
        let file = open_file(&*folder, name.leaf())?;
        if Seen::of(&file)? != seen {
            // It has changed since: with the source's time it would be taken for equal.
            return Ok(Update::NotNeeded);
        }
        Ok(update_file(&file, self.tree.permissions(meta.mode), meta.modified))
    }

    /// Settles a file that was already here.
    pub(super) fn was_here(
        &mut self,
        number: u64,
        name: &Name,
        meta: Meta,
        hash: Option<&Hash>,
        update: &Update,
    ) -> Result<(), Ended> {
        self.clear_away(name);
        let is_updated = matches!(update, Update::Done);
        let mut report = FileReport::unmoved(name.as_bytes(), meta.size_bytes, Status::Identical);
        report.updated = is_updated;
        if let Some(hash) = hash {
            report = report.with_hash(hash);
        }
        let fault = update.fault();
        if let Some(fault) = &fault {
            report = report.with_error(Blame::Local, fault);
        }
        self.report(report, meta);
        let outcome = if is_updated { Outcome::Updated } else { Outcome::Identical };
        self.settle(number, outcome, &fault.unwrap_or_default())
    }

    /// Removes the partial file of a complete file.
    fn clear_away(&mut self, name: &Name) {
        if let Ok(folder) = self.tree.folder_of(name) {
            Partial::clear_away(&folder, name);
        }
    }

    fn on_drop(&mut self, item: u64, reason: &str) -> Result<(), Ended> {
        let (name, meta, status, blame) = match self.state.current.take() {
            // It has failed here before, and that was reported.
            Some(Incoming { number, sink: None, .. }) if number == item => return Ok(()),
            Some(Incoming { number, name, meta, .. }) if number == item => {
                (name, meta, Status::Failed, Blame::Peer)
            }
            Some(_) => return Err(protocol("another item was dropped than the one it sends")),
            None => match self.take_offer(item)? {
                Offered::Wanted { name, meta, .. } => {
                    self.state.held.remove(name.as_bytes());
                    (name, meta, Status::Failed, Blame::Peer)
                }
                // A different file has this name.
                Offered::Compared { name, meta, .. } => (name, meta, Status::Refused, Blame::Local),
                Offered::Closed => return Err(protocol("it dropped an item that is settled")),
            },
        };
        let report = FileReport::unmoved(name.as_bytes(), meta.size_bytes, status);
        let reason = shown_text(reason);
        let reason = if reason.is_empty() { "dropped".to_owned() } else { reason };
        self.report(report.with_error(blame, format!("the sender: {reason}")), meta);
        Ok(())
    }

    /// Takes an offer out of the queue; those before it must be settled.
    fn take_offer(&mut self, item: u64) -> Result<Offered, Ended> {
        if self.state.current.is_some() {
            return Err(protocol("an item began before the end of the last"));
        }
        self.state.forget_closed();
        let is_first = item == self.state.first;
        match self.state.offers.pop_front() {
            Some(offered) if is_first => {
                self.state.first += 1;
                if let Offered::Wanted { missing_bytes, .. } = &offered {
                    let promised_bytes = &mut self.state.promised_bytes;
                    *promised_bytes = promised_bytes.saturating_sub(*missing_bytes);
                }
                Ok(offered)
            }
            _ => Err(protocol("its items are out of order")),
        }
    }

    // ---- answers ----

    /// Settles an item that was not received.
    pub(super) fn fail(
        &mut self,
        number: u64,
        name: &[u8],
        meta: Meta,
        outcome: Outcome,
        reason: &str,
    ) -> Result<(), Ended> {
        let (status, blame) = match outcome {
            Outcome::WrongHash => (Status::WrongHash, Blame::Data),
            Outcome::Refused => (Status::Refused, Blame::Local),
            _ => (Status::Failed, Blame::Local),
        };
        let report = FileReport::unmoved(name, meta.size_bytes, status).of(meta.kind);
        self.report(report.with_error(blame, reason), meta);
        self.settle(number, outcome, reason)
    }

    /// A file has ended.
    fn report(&mut self, report: FileReport, meta: Meta) {
        // Sizes come from the peer: their sum may overflow.
        self.state.ended_bytes = self.state.ended_bytes.saturating_add(meta.data_bytes);
        self.tally.file(&report);
    }

    pub(super) fn settle(
        &mut self,
        item: u64,
        outcome: Outcome,
        reason: &str,
    ) -> Result<(), Ended> {
        self.answer(&Answer::Settled { item, outcome, reason })
    }

    pub(super) fn answer(&mut self, answer: &Answer<'_>) -> Result<(), Ended> {
        if self.state.out.len() + RECORD_BYTES_MAX > ANSWER_BYTES {
            self.flush()?;
        }
        answer.emit(&mut self.state.out);
        Ok(())
    }

    /// Tells the sender why the session ends.
    pub(crate) fn send_fatal(&mut self, kind: FatalKind, reason: &str) {
        // Best effort: the peer notices the end in any case.
        let _ = self.answer(&Answer::Fatal { kind, reason });
        let _ = self.flush();
    }

    pub(super) fn flush(&mut self) -> Result<(), Ended> {
        if self.state.out.is_empty() {
            return Ok(());
        }
        let message = std::mem::take(&mut self.state.out);
        self.outbound
            .send(message.into(), 0, self.stop)
            .map_err(|error| Ended::Lost(format!("lost the sender: {error}")))
    }

    /// The error for a file that the system refuses, or the end of the session if it would refuse
    /// all files.
    pub(super) fn failed(&self, doing: &str, error: &io::Error) -> Fault {
        match error.kind() {
            io::ErrorKind::Interrupted if (self.gone)() => Fault::Ended(self.lost()),
            io::ErrorKind::ReadOnlyFilesystem => {
                Fault::Ended(Ended::Unable(format!("cannot {doing}: {error}")))
            }
            io::ErrorKind::NotFound if self.tree.is_removed() => Fault::Ended(removed()),
            _ => Fault::Item(Outcome::Failed, format!("cannot {doing}: {}", Said(error))),
        }
    }

    /// The error for an item whose path cannot be opened, or the end of the session if none can.
    pub(super) fn refused(&self, error: &io::Error) -> Fault {
        match error.kind() {
            _ if space::is_full(error) => {
                Fault::Ended(Ended::Unable(format!("cannot make a folder: {error}")))
            }
            _ if self.tree.is_removed() => Fault::Ended(removed()),
            _ if Limit::of(error).is_some() => {
                Fault::Item(Outcome::Failed, Said(error).to_string())
            }
            _ => Fault::Item(Outcome::Refused, error.to_string()),
        }
    }

    /// Why this session has no one to serve any more.
    fn lost(&self) -> Ended {
        let reason = if (self.stop)() { "stopped" } else { "lost the sender" };
        Ended::Lost(reason.to_owned())
    }

    /// The file that was being received, for the report.
    pub(crate) fn interrupted_file(&self) -> Option<(String, u64)> {
        let current = self.state.current.as_ref()?;
        let sink = current.sink.as_ref()?;
        Some((shown(current.name.as_bytes()), sink.partial.data_bytes()))
    }
}

impl State {
    /// Bytes that are still to be written for the requested items.
    pub(super) fn outstanding_bytes(&self, keeps_holes: bool) -> u64 {
        let of_current = self.current.as_ref().and_then(|current| {
            let partial = &current.sink.as_ref()?.partial;
            Some(space::missing_bytes(current.meta, Some(partial), keeps_holes))
        });
        self.promised_bytes.saturating_add(of_current.unwrap_or(0))
    }

    /// Data of files that need not be received any more.
    pub(crate) fn done_bytes(&self) -> u64 {
        let current = self.current.as_ref().and_then(|current| current.sink.as_ref());
        self.ended_bytes.saturating_add(current.map_or(0, |sink| sink.partial.data_bytes()))
    }

    /// The file that is being received.
    pub(crate) fn current_name(&self) -> Option<String> {
        self.current.as_ref().map(|current| shown(current.name.as_bytes()))
    }

    /// Whether this session has the partial file of this name open.
    pub(super) fn is_open(&self, name: &Name) -> bool {
        let current = self.current.as_ref().map(|current| &current.name);
        self.held.contains(name.as_bytes()) || current == Some(name)
    }

    /// Removes settled offers from the front.
    pub(super) fn forget_closed(&mut self) {
        while let Some(Offered::Closed) = self.offers.front() {
            self.offers.pop_front();
            self.first += 1;
        }
    }
}

/// The folder was removed, so nothing more can be received.
fn removed() -> Ended {
    Ended::Unable("the folder that files are received into was removed meanwhile".to_owned())
}

pub(super) fn protocol(how: &str) -> Ended {
    Ended::Protocol(how.to_owned())
}

impl Rules<'_> {
    /// A different file exists.
    pub(super) fn differs(&self, how: &str) -> Fault {
        Fault::Item(Outcome::Refused, format!("{how} ({})", self.overwrite_hint))
    }

    /// Whether something of this name may come.
    pub(super) fn allow(&self, name: &[u8]) -> bool {
        let first = name.split(|byte| *byte == b'/').next().unwrap_or(name);
        self.only.is_none_or(|only| only.contains(first))
    }
}

/// Something exists that a file does not replace.
pub(super) fn taken(what: &str) -> Fault {
    let hint = "move it away there, or send under another name";
    Fault::Item(Outcome::Refused, format!("exists and is {what} ({hint})"))
}
