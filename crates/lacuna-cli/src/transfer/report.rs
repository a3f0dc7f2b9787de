//! Results: one object per file and a summary, and the exit code that follows.

use super::name::shown;
use super::printer::Printer;
use super::progress::Progress;
use super::wire::{Hash, Kind};
use crate::capture::Captured;
use crate::failure::{Ending, Failure};
use crate::output::{Output, json};
use crate::units::{show_bytes, show_count, show_rate};
use lacuna::AutoStats;
use serde::Serialize;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Which end speaks. Only the receiver knows what was lost: the sender knows
/// what it sent again, some of it for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

impl Side {
    fn moved(self) -> &'static str {
        match self {
            Self::Sender => "sent",
            Self::Receiver => "received",
        }
    }

    /// What the share of packets is that did not get through at once.
    pub(crate) fn repaired(self) -> &'static str {
        match self {
            Self::Sender => "resent",
            Self::Receiver => "lost",
        }
    }

    /// What it means that nothing is heard.
    pub(crate) fn silence(self) -> &'static str {
        match self {
            Self::Sender => "no answer",
            Self::Receiver => "nothing came",
        }
    }
}

/// Whose fault it is that a file is not there: by it the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blame {
    /// The other end's.
    Peer,
    /// This machine's: a file that cannot be read, written or replaced.
    Local,
    /// What arrived is not what was sent.
    Data,
}

impl Blame {
    fn failure(self, text: String) -> Failure {
        match self {
            Self::Peer => Failure::Network(text),
            Self::Local => Failure::Local(text),
            Self::Data => Failure::Verification(text),
        }
    }
}

/// How a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Status {
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

/// A file's result.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct FileReport {
    /// Name below the receiver's folder.
    pub(crate) file: String,
    /// Its bytes in hexadecimal, if they are no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file_hex: Option<String>,
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) gbit_per_s: f64,
    /// BLAKE3, in hexadecimal.
    pub(crate) hash: Option<String>,
    /// Bytes that were there from an earlier attempt.
    pub(crate) resumed_at_bytes: u64,
    /// Bytes of holes, which did not move.
    pub(crate) hole_bytes: u64,
    pub(crate) status: Status,
    /// Whether its time or permissions at the receiver were brought up to date
    /// without it having to move.
    pub(crate) updated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(skip)]
    blame: Blame,
    #[serde(skip)]
    kind: Kind,
}

impl FileReport {
    /// A file that did not move.
    pub(crate) fn unmoved(name: &[u8], bytes: u64, status: Status) -> Self {
        Self {
            file: String::from_utf8_lossy(name).into_owned(),
            file_hex: hex_unless_text(name),
            bytes,
            seconds: 0.0,
            gbit_per_s: 0.0,
            hash: None,
            resumed_at_bytes: 0,
            hole_bytes: 0,
            status,
            updated: false,
            error: None,
            blame: Blame::Peer,
            kind: Kind::File,
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
        Self { hash: Some(hex(hash)), ..self }
    }

    /// A file of which `moved` took `elapsed`.
    pub(crate) fn with_time(self, elapsed: Duration, moved: Moved) -> Self {
        let seconds = elapsed.as_secs_f64();
        let Moved { resumed_at_bytes, moved_bytes, hole_bytes } = moved;
        let gbit_per_s = gbit_per_s(moved_bytes, seconds);
        Self { seconds, gbit_per_s, resumed_at_bytes, hole_bytes, ..self }
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

/// What tells a name that is no text from others, which look the same.
pub(crate) fn hex_unless_text(name: &[u8]) -> Option<String> {
    str::from_utf8(name).is_err().then(|| hex(name))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The result of a transfer.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Summary {
    /// Whether everything was done.
    pub(crate) complete: bool,
    /// Whether it ended early, files that failed by themselves aside.
    #[serde(flatten)]
    pub(crate) ending: Ending,
    /// Files that are at the receiver now: moved or identical.
    pub(crate) files: u64,
    pub(crate) folders: u64,
    pub(crate) identical: u64,
    /// Files and folders that were there and whose time or permissions were
    /// brought up to date.
    pub(crate) updated: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    /// Bytes of the files that are at the receiver now.
    pub(crate) bytes: u64,
    /// Bytes of files that moved in this run.
    pub(crate) moved_bytes: u64,
    pub(crate) seconds: f64,
    /// Of what moved.
    pub(crate) gbit_per_s: f64,
    /// Packets sent again, as a share of all (sender); packets lost (receiver).
    pub(crate) retransmitted_share: f64,
    /// Parity, as a share of all packets; 0 in modes without a code.
    pub(crate) parity_share: f64,
    /// Packets that were lost and computed from parity (receiver).
    pub(crate) repaired_packets: u64,
    /// What the mode `auto` knows of the path and chose (sender, if it is that).
    pub(crate) auto: Option<AutoStats>,
    /// Breaks after which the transfer went on.
    pub(crate) reconnects: u64,
    /// The other end.
    pub(crate) peer: String,
    /// Bytes that need not move: of identical files, and of the beginnings of
    /// those that were resumed.
    pub(crate) unmoved_bytes: u64,
    /// Bytes of holes, which did not move either.
    pub(crate) hole_bytes: u64,
    /// The packets of this command until now, if they are captured.
    pub(crate) capture: Option<Captured>,
}

/// Collects results and prints them.
pub(crate) struct Reporter {
    output: Output,
    progress: Arc<Progress>,
    printer: Printer,
    /// Where the files are, before their names.
    below: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    summary: Summary,
    /// The worst that went wrong and its first file, for the last line.
    worst: Option<(Blame, String)>,
    /// Whether a folder is among what went wrong.
    has_bad_folder: bool,
    /// Whether it was said that times and permissions are not kept.
    is_unkept_told: bool,
}

impl Reporter {
    pub(crate) fn new(output: Output, progress: Arc<Progress>) -> Result<Self, Failure> {
        let printer = Printer::start(output, progress.clone())?;
        let state = Mutex::new(State::default());
        Ok(Self { output, progress, printer, below: String::new(), state })
    }

    /// Names files with the folder that they are in.
    pub(crate) fn below(self, folder: &Path) -> Self {
        // The folder that one is in needs no name.
        let below = folder.components().filter(|part| *part != Component::CurDir);
        let below = below.collect::<PathBuf>().join("").display().to_string();
        Self { below, ..self }
    }

    /// A file has ended.
    pub(crate) fn file(&self, report: FileReport) {
        let mut state = self.lock();
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
        if let Some(error) = &report.error {
            drop(state);
            let name = format!("{}{}", self.below, shown(report.file.as_bytes()));
            let line = format!("{name}: {error}");
            // A file that is there with another time is no failure.
            if matches!(report.status, Status::Skipped | Status::Identical) {
                self.progress.note(&line);
            } else if report.status == Status::Complete {
                // It is there, with another time than at the sender. What a file system cannot
                // keep of one file it keeps of none: told once.
                if !std::mem::replace(&mut self.lock().is_unkept_told, true) {
                    self.progress.note(&line);
                }
            } else {
                self.progress.error(&line);
                let mut state = self.lock();
                state.has_bad_folder |= report.kind == Kind::Folder;
                if state.worst.as_ref().is_none_or(|(worst, _)| *worst < report.blame) {
                    state.worst = Some((report.blame, name));
                }
            }
        } else {
            drop(state);
            tracing::info!(file = %report.file, bytes = report.bytes, status = ?report.status, "done");
        }
        if self.output.json {
            self.printer.line(json(&report));
        }
    }

    /// A folder is there; its permissions were brought up to date if `updated`, and
    /// could not be for the reason of a `fault`.
    pub(crate) fn folder(&self, name: &[u8], updated: bool, fault: Option<&str>) {
        let mut state = self.lock();
        state.summary.folders += 1;
        state.summary.updated += u64::from(updated);
        drop(state);
        if let Some(fault) = fault {
            self.progress.note(&format!("{}{}: {fault}", self.below, shown(name)));
        }
    }

    /// Bytes that need not move, files that have ended.
    pub(crate) fn so_far(&self) -> Summary {
        self.lock().summary.clone()
    }

    /// Prints the summary. `ended` is why the transfer ended early, if so.
    pub(crate) fn finish(
        &self,
        measured: &Measured,
        ended: Option<Failure>,
    ) -> Result<(), Failure> {
        self.progress.clear();
        let mut state = self.lock();
        let worst = state.worst.take();
        let has_bad_folder = state.has_bad_folder;
        let summary = &mut state.summary;
        summary.seconds = measured.elapsed.as_secs_f64();
        summary.moved_bytes = measured.moved_bytes;
        summary.gbit_per_s = gbit_per_s(measured.moved_bytes, summary.seconds);
        summary.retransmitted_share = measured.repaired_share;
        summary.parity_share = measured.parity_share;
        summary.repaired_packets = measured.repaired_packets;
        summary.auto.clone_from(&measured.auto);
        summary.reconnects = measured.reconnects;
        summary.peer.clone_from(&measured.peer);
        summary.capture.clone_from(&measured.capture);
        let bad = summary.refused + summary.failed;
        summary.complete = ended.is_none() && bad == 0;
        summary.ending = Ending::of(ended.as_ref());
        let is_told = self.output.json || measured.is_reached;
        let line = is_told.then(|| match self.output.json {
            true => json(summary),
            false => Ok(describe(summary, measured.side)),
        });
        let printed = self.printer.finish(line);
        if !self.output.json
            && measured.is_reached
            && let Some(auto) = &summary.auto
        {
            self.output.note(&format!("auto: {}", auto.why));
        }
        if let Some(failure) = ended {
            return Err(failure);
        }
        if let Some((blame, first)) = worst {
            let all = match has_bad_folder {
                true => format!("{} files and folders", bad + summary.files + summary.folders),
                false => show_count(bad + summary.files, "file"),
            };
            // Why is told above.
            let first = if bad > 1 { format!(", first {first}") } else { format!(": {first}") };
            return Err(blame.failure(format!("{bad} of {all} failed{first}")));
        }
        // Nobody may read results, but nothing else is wrong.
        printed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a summary needs beyond the files.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) side: Side,
    /// Whether the other end ever spoke: if not, there is nothing to sum up.
    pub(crate) is_reached: bool,
    pub(crate) elapsed: Duration,
    pub(crate) moved_bytes: u64,
    /// Share of packets sent again (sender) or lost (receiver).
    pub(crate) repaired_share: f64,
    /// Share of packets that were parity.
    pub(crate) parity_share: f64,
    /// Packets that parity repaired (receiver).
    pub(crate) repaired_packets: u64,
    /// Of the newest connection (sender).
    pub(crate) auto: Option<AutoStats>,
    pub(crate) reconnects: u64,
    pub(crate) peer: String,
    pub(crate) capture: Option<Captured>,
}

fn gbit_per_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds / 1e9 } else { 0.0 }
}

fn describe(summary: &Summary, side: Side) -> String {
    let mut coded = String::new();
    if summary.repaired_packets > 0 {
        coded += &format!(" ({} by parity)", show_count(summary.repaired_packets, "repair"));
    }
    if summary.parity_share > 0.0 {
        coded += &format!(", {:.1} % parity", summary.parity_share * 100.0);
    }
    let mut text = format!(
        "{}{} {} in {:.2} s, {}, {:.3} % {}{coded}; at the receiver: {}, {}, {}",
        if summary.complete { "" } else { "incomplete: " },
        side.moved(),
        show_bytes(summary.moved_bytes),
        summary.seconds,
        show_rate(summary.gbit_per_s * 1e9),
        summary.retransmitted_share * 100.0,
        side.repaired(),
        show_count(summary.files, "file"),
        show_count(summary.folders, "folder"),
        show_bytes(summary.bytes),
    );
    if summary.hole_bytes > 0 {
        text += &format!(", {} of holes not {}", show_bytes(summary.hole_bytes), side.moved());
    }
    for (count, what) in [
        (summary.identical, "already there"),
        (summary.updated, "brought up to date in time or permissions"),
        (summary.refused, "refused"),
        (summary.failed, "failed"),
        (summary.skipped, "skipped"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    if summary.reconnects > 0 {
        text += &format!(", {}", show_count(summary.reconnects, "reconnection"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reporter() -> Reporter {
        let output = Output { json: false, quiet: true };
        Reporter::new(output, Arc::new(Progress::new(output, Side::Sender))).unwrap()
    }

    fn measured() -> Measured {
        Measured {
            side: Side::Sender,
            is_reached: false,
            elapsed: Duration::from_secs(1),
            moved_bytes: 0,
            repaired_share: 0.0,
            parity_share: 0.0,
            repaired_packets: 0,
            auto: None,
            reconnects: 0,
            peer: String::new(),
            capture: None,
        }
    }

    #[test]
    fn the_worst_fault_decides_how_it_ends() {
        let file = |status, blame, error: &str| {
            FileReport::unmoved(b"f", 1, status).with_error(blame, error)
        };
        let reporter = reporter();
        reporter.file(FileReport::unmoved(b"good", 1, Status::Complete));
        reporter.file(file(Status::Refused, Blame::Peer, "exists"));
        let result = reporter.finish(&measured(), None);
        assert!(matches!(result, Err(Failure::Network(_))), "{result:?}");
        let reporter = self::reporter();
        for (name, status, blame) in [
            ("a", Status::Refused, Blame::Peer),
            ("b", Status::Failed, Blame::Local),
            ("c", Status::Failed, Blame::Local),
            ("d", Status::Refused, Blame::Peer),
        ] {
            let report = FileReport::unmoved(name.as_bytes(), 1, status);
            reporter.file(report.with_error(blame, "why"));
        }
        let result = reporter.finish(&measured(), None);
        assert!(
            matches!(&result, Err(Failure::Local(text)) if text == "4 of 4 files failed, first b")
        );
        let reporter = self::reporter();
        reporter.folder(b"d", false, None);
        reporter.file(FileReport::unmoved(b"good", 1, Status::Complete));
        reporter.file(file(Status::Failed, Blame::Local, "unreadable").of(Kind::Folder));
        let text = reporter.finish(&measured(), None).unwrap_err().to_string();
        assert_eq!(text, "1 of 3 files and folders failed: f");
        let reporter = self::reporter();
        reporter.file(file(Status::Failed, Blame::Local, "unreadable"));
        reporter.file(file(Status::WrongHash, Blame::Data, "another hash"));
        let result = reporter.finish(&measured(), None);
        assert!(matches!(result, Err(Failure::Verification(_))), "{result:?}");
        let result = self::reporter().finish(&measured(), Some(Failure::Interrupted));
        assert!(matches!(result, Err(Failure::Interrupted)));
    }

    #[test]
    fn what_was_sent_again_is_called_lost_by_the_receiver_only() {
        let summary = Summary { complete: true, retransmitted_share: 0.01, ..Summary::default() };
        let (sent, received) =
            (describe(&summary, Side::Sender), describe(&summary, Side::Receiver));
        assert!(sent.contains("1.000 % resent") && !sent.contains("lost"), "{sent}");
        assert!(received.contains("1.000 % lost") && !received.contains("resent"), "{received}");
        assert!(!sent.contains("parity") && !received.contains("parity"));
        let partial = describe(&Summary { complete: false, ..summary }, Side::Sender);
        assert!(partial.starts_with("incomplete: sent "), "{partial}");
    }

    #[test]
    fn parity_is_told_where_there_is_some() {
        let summary = Summary { complete: true, parity_share: 0.2, ..Summary::default() };
        let sent = describe(&summary, Side::Sender);
        assert!(sent.contains("% resent, 20.0 % parity;"), "{sent}");
        let received = describe(&Summary { repaired_packets: 3, ..summary }, Side::Receiver);
        assert!(received.contains("% lost (3 repairs by parity), 20.0 % parity;"), "{received}");
    }

    #[test]
    fn names_that_are_no_text_are_told_apart() {
        let object = |name: &[u8]| {
            serde_json::to_value(FileReport::unmoved(name, 0, Status::Complete)).unwrap()
        };
        let (one, other) = (object(b"d/\xff\xfe"), object(b"d/\xfe\xff"));
        assert_eq!(one["file"], other["file"]);
        assert_eq!(
            (&one["file_hex"], &other["file_hex"]),
            (&"642ffffe".into(), &"642ffeff".into())
        );
        let text = object("new\nline \u{fffd}".as_bytes());
        assert_eq!(text["file"], "new\nline \u{fffd}", "JSON has escapes of its own");
        assert!(text.get("file_hex").is_none());
    }
}
