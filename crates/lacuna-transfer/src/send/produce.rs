//! The sending thread: offers items ahead of their data, and sends what the receiver requests, in
//! order.

use super::item_queue::{Ended, ItemQueue, Next, Wish};
use super::packer::{PackError, Packer};
use super::walk::{self, Entry, Item, Unsent, Walker};
use crate::digest::Digest;
use crate::error::SendError;
use crate::extents::{Extent, Extents};
use crate::inbound::SILENCE_MAX;
use crate::prefix;
use crate::report::{Blame, FileReport, Status, Tally};
use crate::wire::{Hash, Kind, Prefix, Record};
use lacuna::datapath::limit::Said;
use lacuna_service::STOP_POLL;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Offers in a row before answers are handled.
const OFFERS_PER_TURN: usize = 512;
/// How long the receiver may take to send its welcome.
const WELCOME_WITHIN: Duration = Duration::from_secs(10);

/// The sending thread.
pub(crate) struct Producer<'a> {
    pub(crate) items: &'a ItemQueue,
    pub(crate) walker: &'a mut Walker,
    pub(crate) packer: Packer<'a>,
    pub(crate) tally: &'a Tally<'a>,
    pub(crate) stop: &'a dyn Fn() -> bool,
    /// Files and bytes in all, once known; sent to the receiver once.
    pub(crate) total: &'a dyn Fn() -> Option<(u64, u64)>,
    pub(crate) is_total_told: bool,
    /// Whether the receiver is told of what is not sent.
    pub(crate) tells_unsent: bool,
}

/// Why an item is not sent further.
enum NotSent {
    Up(String),
    Ended(Ended),
}

impl Producer<'_> {
    /// One session, from the hello to the receiver's goodbye.
    pub(crate) fn run(&mut self, session: [u8; 16], quick: bool) -> Result<(), Ended> {
        self.packer.put(&Record::Hello { session, quick })?;
        self.packer.flush()?;
        self.await_peer(
            WELCOME_WITHIN,
            ItemQueue::is_welcome,
            "it does not answer as `lacuna recv` does",
        )?;
        loop {
            self.check()?;
            let offered = self.offer()?;
            self.tell_total()?;
            match self.items.next() {
                Next::Handle { number, item, wish } => self.handle(number, &item, wish)?,
                Next::Wait | Next::Done if offered > 0 => {}
                Next::Wait => {
                    self.packer.flush()?;
                    self.items.wait(STOP_POLL);
                }
                Next::Done => break,
            }
        }
        self.packer.put(&Record::Finish)?;
        self.packer.flush()?;
        self.await_peer(SILENCE_MAX, ItemQueue::is_finished, "it does not say that it has all")
    }

    fn await_peer(
        &self,
        patience: Duration,
        is_there: fn(&ItemQueue) -> bool,
        otherwise: &'static str,
    ) -> Result<(), Ended> {
        let since = Instant::now();
        while !is_there(self.items) {
            self.check()?;
            if since.elapsed() > patience {
                // A peer that was a receiver before may be one again.
                return Err(match self.items.was_welcome() {
                    true => Ended::Lost(format!("lost the receiver: {otherwise}")),
                    false => Ended::Failed(SendError::NoAnswer { what: otherwise }),
                });
            }
            self.items.wait(STOP_POLL);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Ended> {
        if (self.stop)() || self.items.has_ended() {
            // The item queue has the reason.
            return Err(Ended::Lost("stopped".to_owned()));
        }
        Ok(())
    }

    /// Offers the next items while there is room; returns how many.
    fn offer(&mut self) -> Result<usize, Ended> {
        let mut offered = 0;
        while offered < OFFERS_PER_TURN {
            if let Some(item) = self.items.next_offer() {
                self.packer.put(&record_of(&item))?;
                offered += 1;
                continue;
            }
            if !self.items.has_room() {
                break;
            }
            match self.walker.next() {
                None => break,
                Some(Entry::Item(item)) => self.items.push(item),
                Some(Entry::Skipped { name, reason }) => {
                    let unsent = Unsent { is_skipped: true, reason: format!("skipped: {reason}") };
                    self.leave_out(name, Kind::File, unsent);
                }
                Some(Entry::Unreadable { name, kind, error }) => {
                    let reason = format!("cannot be read: {}", Said(&error));
                    self.leave_out(name, kind, Unsent { is_skipped: false, reason });
                }
            }
        }
        Ok(offered)
    }

    /// Reports what is not sent.
    fn leave_out(&mut self, name: Vec<u8>, kind: Kind, unsent: Unsent) {
        let status = if unsent.is_skipped { Status::Skipped } else { Status::Failed };
        let report = FileReport::unmoved(&name, 0, status).of(kind);
        self.tally.file(&report.with_error(Blame::Local, unsent.reason.clone()));
        if self.tells_unsent {
            self.items.push(Item::unsent(name, kind, unsent));
        }
    }

    fn tell_total(&mut self) -> Result<(), Ended> {
        if !self.is_total_told
            && let Some((files, bytes)) = (self.total)()
        {
            self.is_total_told = true;
            // Items settled in earlier sessions are not offered again.
            let (settled_files, settled_bytes) = self.items.settled_before();
            let files = files.saturating_sub(settled_files);
            let bytes = bytes.saturating_sub(settled_bytes);
            self.packer.put(&Record::Total { files, bytes })?;
        }
        Ok(())
    }

    fn handle(&mut self, number: u64, item: &Item, wish: Wish) -> Result<(), Ended> {
        let handled = match wish {
            Wish::Send(prefixes) => self.send(number, item, &prefixes),
            Wish::Compare(hash) => self.compare(number, item, &hash),
        };
        match handled {
            Ok(()) => Ok(()),
            Err(NotSent::Ended(ended)) => Err(ended),
            Err(NotSent::Up(reason)) => {
                self.give_up(number, item, (Status::Failed, Blame::Local), &reason)
            }
        }
    }

    /// The receiver has a file of this name and size.
    fn compare(&mut self, number: u64, item: &Item, theirs: &Hash) -> Result<(), NotSent> {
        let file = open(item)?;
        let ours = prefix::hash_of(&file, item.meta.size_bytes, self.stop)
            .map_err(|error| self.unreadable(&error))?;
        if ours == *theirs {
            self.items.compared(number, ours);
            return self.packer.put(&Record::Same { item: number }).map_err(NotSent::Ended);
        }
        if self.items.overwrites() {
            return self.send_file(number, item, &file, &[]);
        }
        // A receiver that fetches is the command that was given.
        let hint = if self.tells_unsent { "--overwrite" } else { "recv --overwrite" };
        let reason = format!("exists at the receiver with other content ({hint} replaces it)");
        self.give_up(number, item, (Status::Refused, Blame::Peer), &reason).map_err(NotSent::Ended)
    }

    fn send(&mut self, number: u64, item: &Item, prefixes: &[Prefix]) -> Result<(), NotSent> {
        let file = open(item)?;
        self.send_file(number, item, &file, prefixes)
    }

    fn send_file(
        &mut self,
        number: u64,
        item: &Item,
        file: &File,
        prefixes: &[Prefix],
    ) -> Result<(), NotSent> {
        if !prefixes.is_empty() {
            // Hashing may take a while: send what is packed first.
            self.packer.flush().map_err(NotSent::Ended)?;
        }
        let agreed = prefix::longest_common(file, prefixes, self.stop);
        let agreed = agreed.map_err(|error| self.unreadable(&error))?;
        let from = agreed.offset;
        self.items.start(number, from, agreed.data_bytes);
        self.packer.put(&Record::Start { item: number, from }).map_err(NotSent::Ended)?;
        let size_bytes = item.meta.size_bytes;
        let mut digest = self.packer.begin(size_bytes, agreed.hasher);
        let mut extents = Extents::of(file).map_err(|error| self.unreadable(&error))?;
        let mut at = from;
        while at < size_bytes {
            self.check().map_err(NotSent::Ended)?;
            if self.items.is_settled(number) {
                // The receiver failed it and has said why.
                let dropped = Record::Drop { item: number, reason: "" };
                return self.packer.put(&dropped).map_err(NotSent::Ended);
            }
            match extents.at(at, size_bytes).map_err(|error| self.unreadable(&error))? {
                Extent::Data { end } => {
                    let packed_bytes = self.read(file, at, end - at, &mut digest)?;
                    self.items.packed(number, packed_bytes);
                    at += packed_bytes;
                }
                Extent::Hole { end } => {
                    self.packer.skip(end - at, &mut digest).map_err(NotSent::Ended)?;
                    self.items.skipped(number, end - at);
                    at = end;
                }
            }
        }
        if !is_unchanged(file, item) {
            return Err(NotSent::Up("changed while it was sent".to_owned()));
        }
        let hash = self.packer.finish(digest).map_err(NotSent::Ended)?;
        self.items.sent(number, hash);
        self.packer.put(&Record::End { hash }).map_err(NotSent::Ended)
    }

    fn read(
        &mut self,
        file: &File,
        at: u64,
        len_max: u64,
        digest: &mut Digest,
    ) -> Result<u64, NotSent> {
        self.packer.read(file, at, len_max, digest).map_err(|error| match error {
            PackError::Read(error) => self.unreadable(&error),
            PackError::Ended(ended) => NotSent::Ended(ended),
        })
    }

    fn unreadable(&self, error: &io::Error) -> NotSent {
        match error.kind() {
            io::ErrorKind::Interrupted if (self.stop)() => {
                NotSent::Ended(Ended::Lost("stopped".to_owned()))
            }
            io::ErrorKind::UnexpectedEof => {
                NotSent::Up("became shorter while it was sent".to_owned())
            }
            _ => NotSent::Up(format!("cannot be read: {}", Said(error))),
        }
    }

    /// Gives an item up and reports it.
    fn give_up(
        &mut self,
        number: u64,
        item: &Item,
        (status, blame): (Status, Blame),
        reason: &str,
    ) -> Result<(), Ended> {
        if self.items.settle(number) {
            let report = FileReport::unmoved(&item.name, item.meta.size_bytes, status);
            self.tally.file(&report.with_error(blame, reason));
        }
        self.packer.put(&Record::Drop { item: number, reason })
    }
}

/// What the receiver is told of an item.
fn record_of(item: &Item) -> Record<'_> {
    let name = &item.name;
    match &item.unsent {
        None => Record::Offer { meta: item.meta, name },
        Some(Unsent { is_skipped, reason }) => {
            Record::Unsent { kind: item.meta.kind, is_skipped: *is_skipped, name, reason }
        }
    }
}

fn open(item: &Item) -> Result<File, NotSent> {
    let (file, meta) =
        walk::open(&item.path).map_err(|error| NotSent::Up(format!("cannot be read: {error}")))?;
    if meta.size_bytes != item.meta.size_bytes || meta.modified != item.meta.modified {
        return Err(NotSent::Up("changed after it was offered".to_owned()));
    }
    // Files of /proc and /sys report no size and are made as they are read.
    if meta.size_bytes == 0 && file.read_at(&mut [0], 0).is_ok_and(|read| read > 0) {
        return Err(NotSent::Up("has content though its size is 0: send a copy of it".to_owned()));
    }
    Ok(file)
}

fn is_unchanged(file: &File, item: &Item) -> bool {
    file.metadata().is_ok_and(|metadata| {
        let meta = walk::meta_of(&metadata);
        meta.size_bytes == item.meta.size_bytes && meta.modified == item.meta.modified
    })
}
