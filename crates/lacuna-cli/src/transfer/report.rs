//! Results: one object per file and a summary, and the exit code.

use super::printer::Printer;
use super::progress::Progress;
use super::recv;
use crate::capture::{Capture, Captured};
use crate::failure::{Ending, Failure};
use crate::output::{Output, json, narrower, start_line};
use crate::units::{show_bytes, show_count, show_rate};
use lacuna::AutoStats;
use lacuna_transfer::{
    Event, FileReport, FilesFailed, Kept, Observer, Progress as Snapshot, Status, Summary, shown,
};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The end that reports. Only the receiver knows what was lost; the sender knows what it
/// retransmitted, in part needlessly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Sender,
    Receiver,
    /// A receiver that has connected, and can do so again.
    Fetcher,
}

impl Side {
    fn moved(self) -> &'static str {
        match self {
            Self::Sender => "sent",
            Self::Receiver | Self::Fetcher => "received",
        }
    }

    /// Meaning of the repaired share at this end.
    pub(super) fn repaired(self) -> &'static str {
        match self {
            Self::Sender => "resent",
            Self::Receiver | Self::Fetcher => "lost",
        }
    }

    /// Meaning of silence at this end.
    pub(super) fn silence(self) -> &'static str {
        match self {
            Self::Sender => "no answer",
            Self::Receiver | Self::Fetcher => "nothing came",
        }
    }
}

/// A file's result, as `--json` has it.
#[derive(Debug, Clone, Serialize)]
struct FileLine {
    /// Name below the receiver's folder.
    file: String,
    /// Its bytes in hexadecimal, if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    file_hex: Option<String>,
    bytes: u64,
    seconds: f64,
    gbit_per_s: f64,
    /// BLAKE3, in hexadecimal.
    hash: Option<String>,
    /// Bytes that were there from an earlier attempt.
    resumed_at_bytes: u64,
    /// Bytes of holes, which did not move.
    hole_bytes: u64,
    status: &'static str,
    /// Whether its time or permissions at the receiver were brought up to date
    /// without it having to move.
    updated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl FileLine {
    fn new(report: &FileReport) -> Self {
        let seconds = report.elapsed.as_secs_f64();
        Self {
            file: String::from_utf8_lossy(&report.name).into_owned(),
            file_hex: hex_unless_text(&report.name),
            bytes: report.bytes,
            seconds,
            gbit_per_s: gbit_per_s(report.moved_bytes, seconds),
            hash: report.hash.as_ref().map(|hash| hex(hash)),
            resumed_at_bytes: report.resumed_at_bytes,
            hole_bytes: report.hole_bytes,
            status: match report.status {
                Status::Complete => "complete",
                Status::Identical => "identical",
                Status::Refused => "refused",
                Status::Failed => "failed",
                Status::WrongHash => "wrong-hash",
                Status::Skipped => "skipped",
            },
            updated: report.updated,
            error: report.error.clone(),
        }
    }
}

/// The name in hexadecimal if it is not UTF-8, since such names may look alike.
pub(super) fn hex_unless_text(name: &[u8]) -> Option<String> {
    str::from_utf8(name).is_err().then(|| hex(name))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The result of a transfer, as `--json` has it.
#[derive(Debug, Clone, Serialize)]
struct SummaryLine {
    /// Whether everything was done.
    complete: bool,
    /// Whether it ended early, files that failed by themselves aside.
    #[serde(flatten)]
    ending: Ending,
    /// Files that are at the receiver now: moved or identical.
    files: u64,
    folders: u64,
    identical: u64,
    /// Files and folders that were there and whose time or permissions were
    /// brought up to date.
    updated: u64,
    refused: u64,
    failed: u64,
    skipped: u64,
    /// Bytes of the files that are at the receiver now.
    bytes: u64,
    /// Bytes of files that moved in this run.
    moved_bytes: u64,
    seconds: f64,
    /// Of what moved.
    gbit_per_s: f64,
    /// Packets sent again, as a share of all (sender); packets lost (receiver).
    retransmitted_share: f64,
    /// Parity, as a share of all packets; 0 in modes without a code.
    parity_share: f64,
    /// Packets that were lost and computed from parity (receiver).
    repaired_packets: u64,
    /// What the mode `auto` knows of the path and chose (sender, if it is that).
    auto: Option<AutoStats>,
    /// Breaks after which the transfer went on.
    reconnects: u64,
    /// The other end.
    peer: String,
    wire: Option<&'static str>,
    /// Bytes that need not move: of identical files, and of the beginnings of
    /// those that were resumed.
    unmoved_bytes: u64,
    /// Bytes of holes, which did not move either.
    hole_bytes: u64,
    /// The packets of this command until now, if they are captured.
    capture: Option<Captured>,
}

impl SummaryLine {
    fn new(summary: &Summary, ending: Ending, capture: Option<Captured>) -> Self {
        let seconds = summary.elapsed.as_secs_f64();
        Self {
            complete: summary.complete,
            ending,
            files: summary.files,
            folders: summary.folders,
            identical: summary.identical,
            updated: summary.updated,
            refused: summary.refused,
            failed: summary.failed,
            skipped: summary.skipped,
            bytes: summary.bytes,
            moved_bytes: summary.moved_bytes,
            seconds,
            gbit_per_s: gbit_per_s(summary.moved_bytes, seconds),
            retransmitted_share: summary.repaired_share,
            parity_share: summary.parity_share,
            repaired_packets: summary.repaired_packets,
            auto: summary.auto.clone(),
            reconnects: summary.reconnects,
            peer: summary.peer.clone(),
            wire: summary.wire,
            unmoved_bytes: summary.unmoved_bytes,
            hole_bytes: summary.hole_bytes,
            capture,
        }
    }
}

/// Observes a transfer and prints.
pub(super) struct Reporter {
    output: Output,
    progress: Arc<Progress>,
    printer: Printer,
    capture: Capture,
    /// Prefix for file names: the folder.
    below: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Once the transfer has ended.
    summary: Option<Summary>,
    /// Whether the note that times and permissions are not kept was printed.
    is_unkept_told: bool,
}

impl Reporter {
    pub(super) fn new(
        output: Output,
        progress: Arc<Progress>,
        capture: Capture,
    ) -> Result<Self, Failure> {
        let printer = Printer::start(output, progress.clone())?;
        let state = Mutex::new(State::default());
        Ok(Self { output, progress, printer, capture, below: String::new(), state })
    }

    /// Prefixes file names with their folder.
    pub(super) fn below(self, below: String) -> Self {
        Self { below, ..self }
    }

    /// Prints an error, also with --quiet.
    pub(super) fn error(&self, error: &str) {
        self.progress.error(error);
    }

    /// Prints the summary and returns how the command ends. `ended`: why the transfer ended early,
    /// if so; `files`: files that failed.
    pub(super) fn finish(
        &self,
        ended: Option<Failure>,
        files: Option<FilesFailed>,
    ) -> Result<(), Failure> {
        self.progress.clear();
        let printed = match self.lock().summary.take() {
            Some(summary) => self.tell(&summary, Ending::of(ended.as_ref())),
            None => Ok(()),
        };
        if let Some(failure) = ended {
            return Err(failure);
        }
        if let Some(files) = files {
            // The reason is printed above.
            let first = format!("{}{}", self.below, files.first);
            return Err(Failure::of(&FilesFailed { first, ..files }));
        }
        // A closed standard output is not a failure.
        printed
    }

    fn tell(&self, summary: &Summary, ending: Ending) -> Result<(), Failure> {
        let line = match self.output.json {
            true => Some(json(&SummaryLine::new(summary, ending, self.capture.so_far()))),
            false => summary.is_reached.then(|| Ok(describe(summary, self.progress.side()))),
        };
        let printed = self.printer.finish(line);
        if !self.output.json
            && summary.is_reached
            && let Some(auto) = &summary.auto
        {
            self.output.note(&format!("auto: {}", auto.why));
        }
        printed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Reporter {
    fn on_event(&self, event: &Event<'_>) {
        let note = match event {
            Event::Connected { connection } => start_line(connection),
            Event::Retrying { reason, pause } => {
                format!("{reason}; trying again in {:.1} s", pause.as_secs_f64())
            }
            Event::Narrower { packet_bytes, payload_bytes_max } => {
                let Some(note) = narrower(*packet_bytes, *payload_bytes_max) else { return };
                note
            }
            Event::Interrupted { kept } => what_is_kept(kept.as_ref(), self.progress.side()),
            Event::NotASender { reason } => (*reason).to_owned(),
            _ => return,
        };
        self.progress.note(&note);
        if matches!(event, Event::Retrying { .. }) {
            self.progress.reconnecting();
        }
    }

    fn on_file(&self, report: &FileReport) {
        if let Some(error) = &report.error {
            let line = format!("{}{}: {error}", self.below, shown(&report.name));
            match report.status {
                // A file that is there with another time is no failure.
                Status::Skipped | Status::Identical => self.progress.note(&line),
                // The file is there, with another time than at the sender. A file system that
                // cannot keep times keeps none: print one note.
                Status::Complete => {
                    if !std::mem::replace(&mut self.lock().is_unkept_told, true) {
                        self.progress.note(&line);
                    }
                }
                Status::Refused | Status::Failed | Status::WrongHash => self.progress.error(&line),
            }
        } else {
            let file = String::from_utf8_lossy(&report.name);
            tracing::info!(%file, bytes = report.bytes, status = ?report.status, "done");
        }
        if self.output.json {
            self.printer.line(json(&FileLine::new(report)));
        }
    }

    fn on_folder(&self, name: &[u8], _: bool, fault: Option<&str>) {
        if let Some(fault) = fault {
            self.progress.note(&format!("{}{}: {fault}", self.below, shown(name)));
        }
    }

    fn on_progress(&self, progress: &Snapshot) {
        self.progress.update(progress);
    }

    fn on_summary(&self, summary: &Summary) {
        self.lock().summary = Some(summary.clone());
    }
}

/// The part that an interrupt leaves at the receiver.
fn what_is_kept(kept: Option<&Kept>, side: Side) -> String {
    match (kept, side) {
        (Some(Kept { name, bytes }), Side::Sender) => {
            let bytes = show_bytes(*bytes);
            format!("the receiver keeps {bytes} of {name}; the same command resumes")
        }
        (Some(Kept { name, bytes }), Side::Receiver) => {
            format!("{} of {name} are kept; {}", show_bytes(*bytes), recv::RESUME)
        }
        (Some(Kept { name, bytes }), Side::Fetcher) => {
            format!("{} of {name} are kept; the same command resumes", show_bytes(*bytes))
        }
        (None, _) => "what has arrived is kept; the same command resumes".to_owned(),
    }
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
        summary.elapsed.as_secs_f64(),
        show_rate(summary.bits_per_s()),
        summary.repaired_share * 100.0,
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
    use lacuna_transfer::{Blame, Kind};
    use std::time::Duration;

    fn report(name: &[u8]) -> FileReport {
        FileReport {
            name: name.to_vec(),
            kind: Kind::File,
            bytes: 0,
            elapsed: Duration::ZERO,
            moved_bytes: 0,
            hash: None,
            resumed_at_bytes: 0,
            hole_bytes: 0,
            status: Status::Complete,
            updated: false,
            error: None,
            blame: Blame::Peer,
        }
    }

    #[test]
    fn an_early_end_comes_before_files_that_failed() {
        let output = Output { json: false, quiet: true };
        let progress = Arc::new(Progress::new(output, Side::Sender));
        let reporter = Reporter::new(output, progress, Capture::default()).unwrap();
        let reporter = reporter.below("in/".to_owned());
        let files = FilesFailed {
            failed: 1,
            of: 2,
            has_folders: false,
            blame: Blame::Local,
            first: "f".to_owned(),
        };
        let result = reporter.finish(Some(Failure::Interrupted), Some(files.clone()));
        assert!(matches!(result, Err(Failure::Interrupted)));
        let result = reporter.finish(None, Some(files));
        assert!(
            matches!(&result, Err(Failure::Local(text)) if text == "1 of 2 files failed: in/f"),
            "{result:?}"
        );
    }

    #[test]
    fn what_was_sent_again_is_called_lost_by_the_receiver_only() {
        let summary = Summary { complete: true, repaired_share: 0.01, ..Summary::default() };
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
        let object = |name: &[u8]| serde_json::to_value(FileLine::new(&report(name))).unwrap();
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
