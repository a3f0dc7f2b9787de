//! Results: how each file ended, and the sum of them.

use crate::name::shown;
use crate::observer::Observer;
pub use crate::wire::Kind;
use crate::wire::{Hash, OFFERS_MAX};
use lacuna::AutoStats;
use lacuna_service::{Blames, Fault};
use lacuna_units::show_count;
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Whose fault it is that a file is not at the receiver, least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blame {
    /// The other end's.
    Peer,
    /// This machine's: a file that cannot be read, written or replaced.
    Local,
    /// What arrived is not what was sent.
    Data,
}

/// How a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Moved, verified, named.
    Complete,
    /// Was there already.
    Identical,
    /// Not taken by the receiver.
    Refused,
    /// Not moved: it could not be read or written, or changed meanwhile.
    Failed,
    /// What arrived is not what was sent.
    WrongHash,
    /// No regular file and no folder.
    Skipped,
}

/// How one file ended.
#[derive(Debug, Clone)]
pub struct FileReport {
    /// Name below the receiver's folder: any bytes but zero.
    pub name: Vec<u8>,
    /// What it is; only a folder that failed has a report.
    pub kind: Kind,
    /// Its size, holes included.
    pub bytes: u64,
    /// From its first byte until it was settled; zero if it did not move.
    pub elapsed: Duration,
    /// Bytes that moved.
    pub moved_bytes: u64,
    /// BLAKE3 of its content, if it was computed.
    pub hash: Option<Hash>,
    /// Bytes that were there from an earlier attempt.
    pub resumed_at_bytes: u64,
    /// Bytes of holes, which did not move.
    pub hole_bytes: u64,
    /// How it ended.
    pub status: Status,
    /// Whether its time or permissions at the receiver were brought up to date without it having to move.
    pub updated: bool,
    /// Why it did not move, or what of it could not be kept.
    pub error: Option<String>,
    /// Whose fault an error is.
    pub blame: Blame,
}

impl FileReport {
    /// A file that did not move.
    pub(crate) fn unmoved(name: &[u8], bytes: u64, status: Status) -> Self {
        Self {
            name: name.to_vec(),
            kind: Kind::File,
            bytes,
            elapsed: Duration::ZERO,
            moved_bytes: 0,
            hash: None,
            resumed_at_bytes: 0,
            hole_bytes: 0,
            status,
            updated: false,
            error: None,
            blame: Blame::Peer,
        }
    }

    /// What it is, if it may be a folder.
    pub(crate) fn of(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Why it did not move, and whose fault that is.
    pub(crate) fn with_error(self, blame: Blame, error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), blame, ..self }
    }

    pub(crate) fn with_hash(self, hash: &Hash) -> Self {
        Self { hash: Some(*hash), ..self }
    }

    /// A file of which `moved` took `elapsed`.
    pub(crate) fn with_time(self, elapsed: Duration, moved: Moved) -> Self {
        let Moved { resumed_at_bytes, moved_bytes, hole_bytes } = moved;
        Self { elapsed, moved_bytes, resumed_at_bytes, hole_bytes, ..self }
    }
}

/// What became of the bytes of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moved {
    /// They were there from an earlier attempt.
    pub(crate) resumed_at_bytes: u64,
    pub(crate) moved_bytes: u64,
    /// They are zeros that neither moved nor take room.
    pub(crate) hole_bytes: u64,
}

/// The result of a transfer.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Whether everything was done.
    pub complete: bool,
    /// Whether the other end ever spoke: if not, nothing is known of what it has.
    pub is_reached: bool,
    /// Files that are at the receiver now: moved or identical.
    pub files: u64,
    /// Folders that are at the receiver now.
    pub folders: u64,
    /// Files that were there already.
    pub identical: u64,
    /// Files and folders that were there and whose time or permissions were brought up to date.
    pub updated: u64,
    /// Files that the receiver did not take.
    pub refused: u64,
    /// Files that failed.
    pub failed: u64,
    /// What was neither a regular file nor a folder.
    pub skipped: u64,
    /// Bytes of the files that are at the receiver now.
    pub bytes: u64,
    /// Bytes of files that moved.
    pub moved_bytes: u64,
    /// Bytes that need not move: of identical files, and of the beginnings of those that were resumed.
    pub unmoved_bytes: u64,
    /// Bytes of holes, which did not move either.
    pub hole_bytes: u64,
    /// From the beginning to the end.
    pub elapsed: Duration,
    /// Packets sent again, as a share of all (sender); packets lost (receiver).
    pub repaired_share: f64,
    /// Parity, as a share of all packets; 0 in modes without a code.
    pub parity_share: f64,
    /// Packets that were lost and computed from parity (receiver).
    pub repaired_packets: u64,
    /// What the mode `auto` knows of the path and chose (sender, if it is that).
    pub auto: Option<AutoStats>,
    /// Breaks after which the transfer went on.
    pub reconnects: u64,
    /// The other end.
    pub peer: String,
    /// The form of the packets: `sealed` if they are encrypted. `None` if there was no connection.
    pub wire: Option<&'static str>,
}

impl Summary {
    /// Speed of what moved.
    #[must_use]
    pub fn bits_per_s(&self) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { self.moved_bytes as f64 * 8.0 / seconds } else { 0.0 }
    }
}

/// Some files failed by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesFailed {
    /// How many failed or were refused.
    pub failed: u64,
    /// Of how many.
    pub of: u64,
    /// Whether folders are counted, because a folder is among what failed.
    pub has_folders: bool,
    /// The worst fault.
    pub blame: Blame,
    /// The first file with that fault, with control characters escaped.
    pub first: String,
}

impl fmt::Display for FilesFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = match self.has_folders {
            true => format!("{} files and folders", self.of),
            false => show_count(self.of, "file"),
        };
        let Self { failed, first, .. } = self;
        match failed {
            1 => write!(f, "1 of {all} failed: {first}"),
            _ => write!(f, "{failed} of {all} failed, first {first}"),
        }
    }
}

impl std::error::Error for FilesFailed {}

impl FilesFailed {
    /// Whether the same call may succeed without anything being changed: where content was damaged on the
    /// way.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.blame == Blame::Data
    }
}

impl Blames for FilesFailed {
    fn fault(&self) -> Fault {
        match self.blame {
            Blame::Peer => Fault::Peer,
            Blame::Local => Fault::Machine,
            Blame::Data => Fault::Data,
        }
    }
}

/// Counts results and passes them on to the observer.
pub(crate) struct Tally<'o> {
    observer: &'o dyn Observer,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    summary: Summary,
    /// The worst that went wrong and its first file.
    worst: Option<(Blame, String)>,
    /// Whether a folder is among what went wrong.
    has_bad_folder: bool,
    /// Names that the next connection may bring again.
    recent: Option<Recent>,
}

/// The names that ended last: as many as may be open at a time. After a break, a sender offers again
/// what it does not know to be settled, which may be any of these and nothing else.
#[derive(Default)]
struct Recent {
    order: VecDeque<u128>,
    names: HashSet<u128>,
}

impl Recent {
    /// Whether this name is new. A hash stands for it, as names may be long.
    fn add(&mut self, name: &[u8]) -> bool {
        let hash = blake3::hash(name);
        let (half, _) = hash.as_bytes().split_at(16);
        let hash = u128::from_be_bytes(half.try_into().expect("half of 32 bytes"));
        if !self.names.insert(hash) {
            return false;
        }
        self.order.push_back(hash);
        if self.order.len() > OFFERS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
        true
    }
}

impl<'o> Tally<'o> {
    pub(crate) fn new(observer: &'o dyn Observer) -> Self {
        Self { observer, state: Mutex::default() }
    }

    /// Counts a name once, though several connections may bring it.
    pub(crate) fn over_connections(observer: &'o dyn Observer) -> Self {
        let state = State { recent: Some(Recent::default()), ..State::default() };
        Self { observer, state: Mutex::new(state) }
    }

    pub(crate) fn observer(&self) -> &'o dyn Observer {
        self.observer
    }

    /// A file has ended.
    pub(crate) fn file(&self, report: &FileReport) {
        let mut state = self.lock();
        if !state.is_new(&report.name) {
            return;
        }
        let summary = &mut state.summary;
        match report.status {
            Status::Complete => summary.files += 1,
            Status::Identical => {
                summary.files += 1;
                summary.identical += 1;
            }
            Status::Refused => summary.refused += 1,
            Status::Failed | Status::WrongHash => summary.failed += 1,
            Status::Skipped => summary.skipped += 1,
        }
        if matches!(report.status, Status::Complete | Status::Identical) {
            summary.bytes += report.bytes;
        }
        summary.updated += u64::from(report.updated);
        summary.hole_bytes = summary.hole_bytes.saturating_add(report.hole_bytes);
        summary.unmoved_bytes += match report.status {
            Status::Identical => report.bytes,
            _ => report.resumed_at_bytes,
        };
        // A file that is there with another time is no failure.
        let is_failure =
            matches!(report.status, Status::Refused | Status::Failed | Status::WrongHash);
        if is_failure && report.error.is_some() {
            state.has_bad_folder |= report.kind == Kind::Folder;
            if state.worst.as_ref().is_none_or(|(worst, _)| *worst < report.blame) {
                state.worst = Some((report.blame, shown(&report.name)));
            }
        }
        drop(state);
        self.observer.on_file(report);
    }

    /// A folder is there; its permissions were brought up to date if `updated`, and could not be for the
    /// reason of a `fault`.
    pub(crate) fn folder(&self, name: &[u8], updated: bool, fault: Option<&str>) {
        let mut state = self.lock();
        if !state.is_new(name) {
            return;
        }
        state.summary.folders += 1;
        state.summary.updated += u64::from(updated);
        drop(state);
        self.observer.on_folder(name, updated, fault);
    }

    /// Files that have ended, skipped ones aside.
    pub(crate) fn files_ended(&self) -> u64 {
        let state = self.lock();
        state.summary.files + state.summary.refused + state.summary.failed
    }

    /// Files, folders and whatever else has ended.
    pub(crate) fn ended(&self) -> u64 {
        let state = self.lock();
        let Summary { files, folders, refused, failed, skipped, .. } = state.summary;
        files + folders + refused + failed + skipped
    }

    /// The sum, with what is not counted by file in `measured`, told to the observer; and which files failed.
    /// `has_ended_early`: something else ended the transfer.
    pub(crate) fn finish(
        &self,
        measured: Summary,
        has_ended_early: bool,
    ) -> (Summary, Option<FilesFailed>) {
        let mut state = self.lock();
        let counted = state.summary.clone();
        let failed = counted.refused + counted.failed;
        let summary = Summary {
            complete: !has_ended_early && failed == 0,
            files: counted.files,
            folders: counted.folders,
            identical: counted.identical,
            updated: counted.updated,
            refused: counted.refused,
            failed: counted.failed,
            skipped: counted.skipped,
            bytes: counted.bytes,
            unmoved_bytes: counted.unmoved_bytes,
            hole_bytes: counted.hole_bytes,
            ..measured
        };
        let has_folders = state.has_bad_folder;
        let folders = if has_folders { summary.folders } else { 0 };
        let of = failed + summary.files + folders;
        let worst = state.worst.take();
        drop(state);
        self.observer.on_summary(&summary);
        let failed =
            worst.map(|(blame, first)| FilesFailed { failed, of, has_folders, blame, first });
        (summary, failed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_new(&mut self, name: &[u8]) -> bool {
        self.recent.as_mut().is_none_or(|recent| recent.add(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_connections_bring_is_counted_once() {
        let tally = Tally::over_connections(&());
        for status in [Status::Complete, Status::Identical] {
            tally.folder(b"d", false, None);
            tally.file(&FileReport::unmoved(b"d/f", 7, status));
        }
        let (summary, failed) = tally.finish(Summary::default(), false);
        assert_eq!((summary.files, summary.folders, summary.identical), (1, 1, 0));
        assert!(failed.is_none());
    }

    #[test]
    fn as_many_names_are_remembered_as_may_come_again() {
        let mut recent = Recent::default();
        for number in 0..OFFERS_MAX as u64 {
            assert!(recent.add(&number.to_be_bytes()));
        }
        assert!(!recent.add(&0u64.to_be_bytes()));
        assert!(recent.add(b"another"));
        assert_eq!((recent.order.len(), recent.names.len()), (OFFERS_MAX, OFFERS_MAX));
        assert!(recent.add(&0u64.to_be_bytes()), "forgotten");
    }

    fn finish(tally: &Tally<'_>) -> Option<FilesFailed> {
        tally.finish(Summary::default(), false).1
    }

    #[test]
    fn the_worst_fault_decides_how_it_ends() {
        let file = |status, blame, error: &str| {
            FileReport::unmoved(b"f", 1, status).with_error(blame, error)
        };
        let tally = Tally::new(&());
        tally.file(&FileReport::unmoved(b"good", 1, Status::Complete));
        tally.file(&file(Status::Refused, Blame::Peer, "exists"));
        assert_eq!(finish(&tally).expect("a failure").fault(), Fault::Peer);
        let tally = Tally::new(&());
        for (name, status, blame) in [
            ("a", Status::Refused, Blame::Peer),
            ("b", Status::Failed, Blame::Local),
            ("c", Status::Failed, Blame::Local),
            ("d", Status::Refused, Blame::Peer),
        ] {
            let report = FileReport::unmoved(name.as_bytes(), 1, status);
            tally.file(&report.with_error(blame, "why"));
        }
        let failed = finish(&tally).expect("a failure");
        assert_eq!(failed.fault(), Fault::Machine);
        assert_eq!(failed.to_string(), "4 of 4 files failed, first b");
        let tally = Tally::new(&());
        tally.folder(b"d", false, None);
        tally.file(&FileReport::unmoved(b"good", 1, Status::Complete));
        tally.file(&file(Status::Failed, Blame::Local, "unreadable").of(Kind::Folder));
        let text = finish(&tally).expect("a failure").to_string();
        assert_eq!(text, "1 of 3 files and folders failed: f");
        let tally = Tally::new(&());
        tally.file(&file(Status::Failed, Blame::Local, "unreadable"));
        tally.file(&file(Status::WrongHash, Blame::Data, "another hash"));
        assert_eq!(finish(&tally).expect("a failure").fault(), Fault::Data);
    }

    #[test]
    fn what_is_there_with_another_time_is_no_failure() {
        let tally = Tally::new(&());
        for status in [Status::Complete, Status::Identical, Status::Skipped] {
            let report = FileReport::unmoved(b"f", 1, status);
            tally.file(&report.with_error(Blame::Local, "its time cannot be set"));
        }
        let (summary, failed) = tally.finish(Summary::default(), false);
        assert!(summary.complete && failed.is_none());
        assert!(!tally.finish(Summary::default(), true).0.complete);
    }
}
