//! Offers: finds out what is already here of each offered item, and requests the rest.

use super::metadata::{Seen, Update, is_same_time, update_file};
use super::partial::Partial;
use super::session::{Ended, Fault, Offered, Resumable, Session, protocol, taken};
use super::space;
use super::tree::{Found, look, open_file};
use crate::name::{Name, shown_text};
use crate::prefix;
use crate::report::{Blame, FileReport, Status};
use crate::wire::{Answer, Kind, Meta, OFFERS_MAX, Outcome, Prefix};
use blake3::Hasher;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Partial files of one session that stay open between offer and data. There is more than one only
/// after several breaks; further ones are received from the beginning.
const RESUMED_MAX: usize = 32;
/// Hashing more than this sends waiting answers first.
const SLOW_BYTES: u64 = 4 << 20;

impl Session<'_> {
    /// Handles and answers the next offer.
    pub(super) fn on_offer(&mut self, meta: Meta, name: &[u8]) -> Result<(), Ended> {
        let number = self.next_number()?;
        let answered = match Name::parse(name) {
            Ok(_) if !self.rules.allow(name) => {
                let reason = "was not asked for".to_owned();
                Err(Fault::Item(Outcome::Refused, reason))
            }
            Ok(parsed) => match meta.kind {
                Kind::Folder => self.take_folder(number, &parsed, meta),
                Kind::File => self.take_file(number, parsed, meta),
            },
            Err(error) => Err(Fault::Item(Outcome::Refused, error.to_string())),
        };
        match answered {
            Ok(offered) => {
                self.state.offers.push_back(offered);
                Ok(())
            }
            Err(Fault::Ended(ended)) => Err(ended),
            Err(Fault::Item(outcome, reason)) => {
                self.state.offers.push_back(Offered::Closed);
                self.fail(number, name, meta, outcome, &reason)
            }
        }
    }

    /// The sender tells of something that it does not send.
    pub(super) fn on_unsent(
        &mut self,
        kind: Kind,
        is_skipped: bool,
        name: &[u8],
        reason: &str,
    ) -> Result<(), Ended> {
        let number = self.next_number()?;
        self.state.offers.push_back(Offered::Closed);
        let status = if is_skipped { Status::Skipped } else { Status::Failed };
        let report = FileReport::unmoved(name, 0, status).of(kind);
        let reason = format!("the sender: {}", shown_text(reason));
        self.tally.file(&report.with_error(Blame::Peer, reason));
        self.settle(number, Outcome::Refused, "")
    }

    /// The number of the next item.
    fn next_number(&mut self) -> Result<u64, Ended> {
        self.state.forget_closed();
        match self.state.offers.len() {
            OFFERS_MAX => Err(protocol("too many open offers")),
            open => Ok(self.state.first + open as u64),
        }
    }

    fn take_folder(&mut self, number: u64, name: &Name, meta: Meta) -> Result<Offered, Fault> {
        let made = self.tree.make_folder(name, meta.mode);
        let update = made.map_err(|error| self.refused(&error))?;
        let fault = update.fault();
        let is_updated = matches!(update, Update::Done);
        self.tally.folder(name.as_bytes(), is_updated, fault.as_deref());
        let outcome = if is_updated { Outcome::Updated } else { Outcome::Complete };
        self.settle(number, outcome, &fault.unwrap_or_default()).map_err(Fault::Ended)?;
        Ok(Offered::Closed)
    }

    fn take_file(&mut self, number: u64, name: Name, meta: Meta) -> Result<Offered, Fault> {
        let folder = self.tree.folder_of(&name).map_err(|error| self.refused(&error))?;
        let found = look(&*folder, name.leaf()).map_err(|error| self.refused(&error))?;
        match found {
            Found::Nothing => self.want(number, name, meta, &folder),
            Found::File { size_bytes, modified, mode } if size_bytes == meta.size_bytes => {
                let quick = self.state.hello.is_some_and(|(_, quick)| quick);
                if quick && is_same_time(modified, meta.modified, &folder, &name) {
                    let permissions = self.tree.permissions(meta.mode);
                    let update = match mode == permissions.as_raw_mode() {
                        true => Update::NotNeeded,
                        // The time is as near as this file system can store it.
                        false => match open_file(&*folder, name.leaf()) {
                            Ok(file) => update_file(&file, permissions, modified),
                            Err(error) => Update::Failed(error),
                        },
                    };
                    self.was_here(number, &name, meta, None, &update).map_err(Fault::Ended)?;
                    return Ok(Offered::Closed);
                }
                self.compare(number, name, meta, &folder)
            }
            Found::File { .. } if self.rules.overwrite => self.want(number, name, meta, &folder),
            Found::File { .. } => Err(self.rules.differs("exists with another size")),
            Found::Folder => Err(taken("a folder")),
            Found::Other(what) => Err(taken(what)),
        }
    }

    /// Sends the hash of the existing file.
    fn compare(
        &mut self,
        number: u64,
        name: Name,
        meta: Meta,
        folder: &Arc<OwnedFd>,
    ) -> Result<Offered, Fault> {
        self.flush_before(meta.size_bytes).map_err(Fault::Ended)?;
        let (seen, hash) = open_file(&**folder, name.leaf())
            .and_then(|file| {
                let seen = Seen::of(&file)?;
                Ok((seen, prefix::hash_of(&file, meta.size_bytes, self.gone)?))
            })
            .map_err(|error| self.failed("read", &error))?;
        self.answer(&Answer::Exists { item: number, hash }).map_err(Fault::Ended)?;
        Ok(Offered::Compared { name, meta, hash, seen })
    }

    /// Requests the missing part.
    fn want(
        &mut self,
        number: u64,
        name: Name,
        meta: Meta,
        folder: &Arc<OwnedFd>,
    ) -> Result<Offered, Fault> {
        if self.state.is_open(&name) {
            return Err(Fault::Item(Outcome::Refused, "offered twice".to_owned()));
        }
        let mut partial = None;
        if self.state.held.len() < RESUMED_MAX {
            partial = Partial::find(folder, &name, self.stop)
                .map_err(|error| self.failed("open", &error))?;
            if partial.is_none()
                && let Found::File { size_bytes, .. } =
                    look(&**folder, name.leaf()).map_err(|error| self.refused(&error))?
                && size_bytes == meta.size_bytes
            {
                // Another transfer held the partial file and has completed it.
                return self.compare(number, name, meta, folder);
            }
        }
        let here_bytes = partial.as_ref().map_or(0, Partial::len_bytes).min(meta.size_bytes);
        let missing_bytes = space::missing_bytes(meta, partial.as_ref(), self.keeps_holes);
        self.promised.set(self.state.outstanding_bytes(self.keeps_holes));
        self.promised
            .add(missing_bytes, || space::free_bytes(&**folder))
            .map_err(|reason| Fault::Item(Outcome::Failed, reason))?;
        let mut found = None;
        if let Some(partial) = partial {
            self.flush_before(here_bytes).map_err(Fault::Ended)?;
            let mut prefixes = Vec::new();
            let offsets = prefix::offsets(here_bytes);
            prefix::hash_prefixes(partial.file(), offsets, self.gone, |offset, hasher, _| {
                prefixes.push((offset, hasher.clone()));
            })
            .map_err(|error| self.failed("read what was received of it", &error))?;
            self.state.held.insert(name.as_bytes().to_vec());
            found = Some(Resumable { partial, prefixes });
        }
        let prefix = |(offset, hasher): &(u64, Hasher)| Prefix {
            offset: *offset,
            hash: hasher.finalize().into(),
        };
        let prefixes = found.iter().flat_map(|found| found.prefixes.iter().map(prefix)).collect();
        self.answer(&Answer::Want { item: number, prefixes }).map_err(Fault::Ended)?;
        self.state.promised_bytes = self.state.promised_bytes.saturating_add(missing_bytes);
        Ok(Offered::Wanted { name, meta, missing_bytes, found })
    }

    pub(super) fn flush_before(&mut self, hashed_bytes: u64) -> Result<(), Ended> {
        if hashed_bytes > SLOW_BYTES { self.flush() } else { Ok(()) }
    }
}
