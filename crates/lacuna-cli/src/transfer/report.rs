//! Results: one object per file and a summary, and the exit code that follows.

use super::name::shown;
use super::progress::Progress;
use super::wire::Hash;
use crate::failure::Failure;
use crate::output::Output;
use crate::units::{show_bytes, show_rate};
use serde::Serialize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) gbit_per_s: f64,
    /// BLAKE3, in hexadecimal.
    pub(crate) hash: Option<String>,
    /// Bytes that were there from an earlier attempt.
    pub(crate) resumed_at_bytes: u64,
    pub(crate) status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl FileReport {
    /// A file that did not move.
    pub(crate) fn unmoved(name: &[u8], bytes: u64, status: Status) -> Self {
        Self {
            file: String::from_utf8_lossy(name).into_owned(),
            bytes,
            seconds: 0.0,
            gbit_per_s: 0.0,
            hash: None,
            resumed_at_bytes: 0,
            status,
            error: None,
        }
    }

    pub(crate) fn with_error(self, error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..self }
    }

    pub(crate) fn with_hash(self, hash: &Hash) -> Self {
        let hash = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        Self { hash: Some(hash), ..self }
    }

    /// A file that took `elapsed` from its `resumed_at_bytes` to its end.
    pub(crate) fn with_time(self, elapsed: Duration, resumed_at_bytes: u64) -> Self {
        let seconds = elapsed.as_secs_f64();
        let moved = self.bytes.saturating_sub(resumed_at_bytes);
        Self { seconds, gbit_per_s: gbit_per_s(moved, seconds), resumed_at_bytes, ..self }
    }
}

/// The result of a transfer.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Summary {
    /// Whether everything was done.
    pub(crate) complete: bool,
    /// Files that are at the receiver now: moved or identical.
    pub(crate) files: u64,
    pub(crate) folders: u64,
    pub(crate) identical: u64,
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
    /// Breaks after which the transfer went on.
    pub(crate) reconnects: u64,
    /// The other end.
    pub(crate) peer: String,
    /// Bytes that need not move: of identical files, and of the beginnings of
    /// those that were resumed.
    pub(crate) unmoved_bytes: u64,
}

/// Collects results and prints them.
pub(crate) struct Reporter {
    output: Output,
    progress: Arc<Progress>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    summary: Summary,
    wrong_hash: u64,
    /// The first thing that went wrong, for the last line.
    first: Option<String>,
    /// Printing failed: nobody may read results, but nothing else is wrong.
    broken: Option<String>,
}

impl Reporter {
    pub(crate) fn new(output: Output, progress: Arc<Progress>) -> Self {
        Self { output, progress, state: Mutex::new(State::default()) }
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
        summary.unmoved_bytes += match report.status {
            Status::Identical => report.bytes,
            _ => report.resumed_at_bytes,
        };
        if let Some(error) = &report.error {
            let line = format!("{}: {error}", shown(report.file.as_bytes()));
            if report.status == Status::Skipped {
                self.progress.note(&line);
            } else {
                self.progress.error(&line);
                state.wrong_hash += u64::from(report.status == Status::WrongHash);
                state.first.get_or_insert(line);
            }
        } else {
            tracing::info!(file = %report.file, bytes = report.bytes, status = ?report.status, "done");
        }
        if self.output.json {
            let printed = self.progress.suspend(|| self.output.object(&report));
            if let Err(error) = printed {
                state.broken.get_or_insert(error.to_string());
            }
        }
    }

    /// A folder is there.
    pub(crate) fn folder(&self) {
        self.lock().summary.folders += 1;
    }

    /// Bytes that need not move, files that have ended.
    pub(crate) fn so_far(&self) -> Summary {
        self.lock().summary.clone()
    }

    /// Prints the summary. `ended` is why the transfer ended early, if so;
    /// `for_files` makes the failure of single files.
    pub(crate) fn finish(
        &self,
        measured: &Measured,
        ended: Option<Failure>,
        for_files: fn(String) -> Failure,
    ) -> Result<(), Failure> {
        self.progress.clear();
        let mut state = self.lock();
        let wrong_hash = state.wrong_hash;
        let broken = state.broken.take();
        let first = state.first.take();
        let summary = &mut state.summary;
        summary.seconds = measured.elapsed.as_secs_f64();
        summary.moved_bytes = measured.moved_bytes;
        summary.gbit_per_s = gbit_per_s(measured.moved_bytes, summary.seconds);
        summary.retransmitted_share = measured.lost_share;
        summary.reconnects = measured.reconnects;
        summary.peer.clone_from(&measured.peer);
        let bad = summary.refused + summary.failed;
        summary.complete = ended.is_none() && bad == 0;
        if self.output.json {
            self.output.object(summary)?;
        } else {
            self.output.line(&describe(summary, measured.verb))?;
        }
        if let Some(failure) = ended {
            return Err(failure);
        }
        if bad > 0 {
            let all = bad + summary.files;
            let text = format!("{bad} of {all} files failed, first {}", first.unwrap_or_default());
            return Err(if wrong_hash > 0 { Failure::Verification(text) } else { for_files(text) });
        }
        broken.map_or(Ok(()), |text| Err(Failure::Local(text)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a summary needs beyond the files.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    /// "sent" or "received".
    pub(crate) verb: &'static str,
    pub(crate) elapsed: Duration,
    pub(crate) moved_bytes: u64,
    pub(crate) lost_share: f64,
    pub(crate) reconnects: u64,
    pub(crate) peer: String,
}

fn gbit_per_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds / 1e9 } else { 0.0 }
}

fn describe(summary: &Summary, verb: &str) -> String {
    let mut text = format!(
        "{verb} {} in {:.2} s, {}, {:.3} % lost; at the receiver: {} files, {} folders, {}",
        show_bytes(summary.moved_bytes),
        summary.seconds,
        show_rate(summary.gbit_per_s * 1e9),
        summary.retransmitted_share * 100.0,
        summary.files,
        summary.folders,
        show_bytes(summary.bytes),
    );
    for (count, what) in [
        (summary.identical, "were there before"),
        (summary.refused, "refused"),
        (summary.failed, "failed"),
        (summary.skipped, "skipped"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    if summary.reconnects > 0 {
        text += &format!(", {} reconnections", summary.reconnects);
    }
    text
}
