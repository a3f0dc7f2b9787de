//! The sending thread: offers items ahead of their data, and sends what the receiver requests, in
//! order.

use super::board::{Board, Ended, Next, Wish};
use super::packer::{PackError, Packer};
use super::walk::{self, Entry, Item, Walker};
use crate::digest::Digest;
use crate::error::SendError;
use crate::extents::{Extents, Run};
use crate::inbound::PATIENCE;
use crate::ladder;
use crate::report::{Blame, FileReport, Status, Tally};
use crate::wire::{Hash, Record, Rung};
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
    pub(crate) board: &'a Board,
    pub(crate) walker: &'a mut Walker,
    pub(crate) packer: Packer<'a>,
    pub(crate) tally: &'a Tally<'a>,
    pub(crate) stop: &'a dyn Fn() -> bool,
    /// Files and bytes in all, once known; sent to the receiver once.
    pub(crate) total: &'a dyn Fn() -> Option<(u64, u64)>,
    pub(crate) is_total_told: bool,
}

/// Why an item is not sent further.
enum Given {
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
            Board::is_welcome,
            "it does not answer as `lacuna recv` does",
        )?;
        loop {
            self.check()?;
            let offered = self.offer()?;
            self.tell_total()?;
            match self.board.next() {
                Next::Handle { number, item, wish } => self.handle(number, &item, wish)?,
                Next::Wait | Next::Done if offered > 0 => {}
                Next::Wait => {
                    self.packer.flush()?;
                    self.board.wait(STOP_POLL);
                }
                Next::Done => break,
            }
        }
        self.packer.put(&Record::Finish)?;
        self.packer.flush()?;
        self.await_peer(PATIENCE, Board::is_finished, "it does not say that it has all")
    }

    fn await_peer(
        &self,
        patience: Duration,
        is_there: fn(&Board) -> bool,
        otherwise: &'static str,
    ) -> Result<(), Ended> {
        let since = Instant::now();
        while !is_there(self.board) {
            self.check()?;
            if since.elapsed() > patience {
                // A peer that was a receiver before may be one again.
                return Err(match self.board.was_welcome() {
                    true => Ended::Lost(format!("lost the receiver: {otherwise}")),
                    false => Ended::Failed(SendError::NoAnswer { what: otherwise }),
                });
            }
            self.board.wait(STOP_POLL);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Ended> {
        if (self.stop)() || self.board.has_ended() {
            // The item queue has the reason.
            return Err(Ended::Lost("stopped".to_owned()));
        }
        Ok(())
    }

    /// Offers the next items while there is room; returns how many.
    fn offer(&mut self) -> Result<usize, Ended> {
        let mut offered = 0;
        while offered < OFFERS_PER_TURN {
            if let Some(item) = self.board.next_offer() {
                self.packer.put(&Record::Offer { meta: item.meta, name: &item.name })?;
                offered += 1;
                continue;
            }
            if !self.board.has_room() {
                break;
            }
            match self.walker.next() {
                None => break,
                Some(Entry::Item(item)) => self.board.push(item),
                Some(Entry::Skipped { name, reason }) => {
                    let report = FileReport::unmoved(&name, 0, Status::Skipped);
                    self.tally.file(&report.with_error(Blame::Local, format!("skipped: {reason}")));
                }
                Some(Entry::Unreadable { name, kind, error }) => {
                    let report = FileReport::unmoved(&name, 0, Status::Failed).of(kind);
                    let why = format!("cannot be read: {}", Said(&error));
                    self.tally.file(&report.with_error(Blame::Local, why));
                }
            }
        }
        Ok(offered)
    }

    fn tell_total(&mut self) -> Result<(), Ended> {
        if !self.is_total_told
            && let Some((files, bytes)) = (self.total)()
        {
            self.is_total_told = true;
            // Items settled in earlier sessions are not offered again.
            let (settled_files, settled_bytes) = self.board.settled_before();
            let files = files.saturating_sub(settled_files);
            let bytes = bytes.saturating_sub(settled_bytes);
            self.packer.put(&Record::Total { files, bytes })?;
        }
        Ok(())
    }

    fn handle(&mut self, number: u64, item: &Item, wish: Wish) -> Result<(), Ended> {
        let handled = match wish {
            Wish::Send(rungs) => self.send(number, item, &rungs),
            Wish::Compare(hash) => self.compare(number, item, &hash),
        };
        match handled {
            Ok(()) => Ok(()),
            Err(Given::Ended(ended)) => Err(ended),
            Err(Given::Up(reason)) => {
                self.give_up(number, item, (Status::Failed, Blame::Local), &reason)
            }
        }
    }

    /// The receiver has a file of this name and size.
    fn compare(&mut self, number: u64, item: &Item, theirs: &Hash) -> Result<(), Given> {
        let file = open(item)?;
        let ours = ladder::hash_of(&file, item.meta.size_bytes, self.stop)
            .map_err(|error| self.unreadable(&error))?;
        if ours == *theirs {
            self.board.compared(number, ours);
            return self.packer.put(&Record::Same { item: number }).map_err(Given::Ended);
        }
        if self.board.overwrites() {
            return self.send_file(number, item, &file, &[]);
        }
        let reason = "exists at the receiver with other content (recv --overwrite replaces it)";
        self.give_up(number, item, (Status::Refused, Blame::Peer), reason).map_err(Given::Ended)
    }

    fn send(&mut self, number: u64, item: &Item, rungs: &[Rung]) -> Result<(), Given> {
        let file = open(item)?;
        self.send_file(number, item, &file, rungs)
    }

    fn send_file(
        &mut self,
        number: u64,
        item: &Item,
        file: &File,
        rungs: &[Rung],
    ) -> Result<(), Given> {
        if !rungs.is_empty() {
            // Hashing may take a while: send what is packed first.
            self.packer.flush().map_err(Given::Ended)?;
        }
        let agreed = ladder::agree(file, rungs, self.stop);
        let agreed = agreed.map_err(|error| self.unreadable(&error))?;
        let from = agreed.offset;
        self.board.start(number, from, agreed.data_bytes);
        self.packer.put(&Record::Start { item: number, from }).map_err(Given::Ended)?;
        let size_bytes = item.meta.size_bytes;
        let mut digest = self.packer.begin(size_bytes, agreed.hasher);
        let mut extents = Extents::of(file).map_err(|error| self.unreadable(&error))?;
        let mut at = from;
        while at < size_bytes {
            self.check().map_err(Given::Ended)?;
            if self.board.is_settled(number) {
                // The receiver failed it and has said why.
                let dropped = Record::Drop { item: number, reason: "" };
                return self.packer.put(&dropped).map_err(Given::Ended);
            }
            match extents.at(at, size_bytes).map_err(|error| self.unreadable(&error))? {
                Run::Data { end } => {
                    let packed_bytes = self.read(file, at, end - at, &mut digest)?;
                    self.board.packed(number, packed_bytes);
                    at += packed_bytes;
                }
                Run::Hole { end } => {
                    self.packer.skip(end - at, &mut digest).map_err(Given::Ended)?;
                    self.board.skipped(number, end - at);
                    at = end;
                }
            }
        }
        if !is_unchanged(file, item) {
            return Err(Given::Up("changed while it was sent".to_owned()));
        }
        let hash = self.packer.finish(digest).map_err(Given::Ended)?;
        self.board.sent(number, hash);
        self.packer.put(&Record::End { hash }).map_err(Given::Ended)
    }

    fn read(
        &mut self,
        file: &File,
        at: u64,
        len_max: u64,
        digest: &mut Digest,
    ) -> Result<u64, Given> {
        self.packer.read(file, at, len_max, digest).map_err(|error| match error {
            PackError::Read(error) => self.unreadable(&error),
            PackError::Ended(ended) => Given::Ended(ended),
        })
    }

    fn unreadable(&self, error: &io::Error) -> Given {
        match error.kind() {
            io::ErrorKind::Interrupted if (self.stop)() => {
                Given::Ended(Ended::Lost("stopped".to_owned()))
            }
            io::ErrorKind::UnexpectedEof => {
                Given::Up("became shorter while it was sent".to_owned())
            }
            _ => Given::Up(format!("cannot be read: {}", Said(error))),
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
        if self.board.settle(number) {
            let report = FileReport::unmoved(&item.name, item.meta.size_bytes, status);
            self.tally.file(&report.with_error(blame, reason));
        }
        self.packer.put(&Record::Drop { item: number, reason })
    }
}

fn open(item: &Item) -> Result<File, Given> {
    let (file, meta) =
        walk::open(&item.path).map_err(|error| Given::Up(format!("cannot be read: {error}")))?;
    if meta.size_bytes != item.meta.size_bytes || meta.modified != item.meta.modified {
        return Err(Given::Up("changed after it was offered".to_owned()));
    }
    // Files of /proc and /sys report no size and are made as they are read.
    if meta.size_bytes == 0 && file.read_at(&mut [0], 0).is_ok_and(|read| read > 0) {
        return Err(Given::Up("has content though its size is 0: send a copy of it".to_owned()));
    }
    Ok(file)
}

fn is_unchanged(file: &File, item: &Item) -> bool {
    file.metadata().is_ok_and(|metadata| {
        let meta = walk::meta_of(&metadata);
        meta.size_bytes == item.meta.size_bytes && meta.modified == item.meta.modified
    })
}
