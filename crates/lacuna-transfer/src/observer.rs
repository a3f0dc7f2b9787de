//! Callbacks of a transfer for the application.
//!
//! An [`Observer`] is called from several threads of one transfer, so its methods take `&self`. All
//! of them have empty defaults. [`Observer::on_file`] may block, and the transfer waits for it;
//! [`Observer::on_progress`] and [`Observer::on_event`] should return soon.

use crate::error::Kept;
use crate::report::{FileReport, Summary};
use lacuna::Connection;
use std::time::Duration;

/// Observes one transfer. `()` ignores everything.
pub trait Observer: Send + Sync {
    /// An event that a person may want to read.
    fn on_event(&self, event: &Event<'_>) {
        let _ = event;
    }

    /// A file has ended, or a folder that could not be made or read.
    fn on_file(&self, report: &FileReport) {
        let _ = report;
    }

    /// A folder is at the receiver. `is_updated`: it existed and has new permissions; `fault` says
    /// why it has not.
    fn on_folder(&self, name: &[u8], is_updated: bool, fault: Option<&str>) {
        let _ = (name, is_updated, fault);
    }

    /// How far the transfer is; about ten times a second.
    fn on_progress(&self, progress: &Progress) {
        let _ = progress;
    }

    /// The transfer has ended, with success or not. Called once, before its result is returned.
    fn on_summary(&self, summary: &Summary) {
        let _ = summary;
    }
}

impl Observer for () {}

/// Something that happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// There is a connection.
    Connected {
        /// The connection: its peer and what was chosen for it.
        connection: &'a Connection,
    },
    /// The connection broke, or there was none; another attempt follows. Not of a receiver that listens.
    Retrying {
        /// Why.
        reason: &'a str,
        /// How long until the next attempt.
        pause: Duration,
    },
    /// The path became too narrow for the packets that were agreed on. Only of a sender, at the end of a
    /// connection.
    Narrower {
        /// Payload bytes that were agreed on.
        packet_bytes: u32,
        /// Payload bytes of the pieces that packets went in.
        payload_bytes_max: u32,
    },
    /// The caller requested a stop in the middle of a file.
    Interrupted {
        /// What the receiver keeps of the file; `None` if no file was under way.
        kept: Option<Kept>,
    },
    /// The peer did not turn out to be a sender of files. Only of a receiver; no summary follows.
    NotASender {
        /// The peer and how that shows, in a sentence.
        reason: &'a str,
    },
}

/// How far a transfer is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Bytes of files that moved, in all connections.
    pub moved_bytes: u64,
    /// Bytes of files that need not move any more: moved, already there, or of files that were
    /// given up.
    pub done_bytes: u64,
    /// Bytes there are in all, once known.
    pub bytes_total: Option<u64>,
    /// Files that have ended.
    pub files: u64,
    /// Files there are in all, once known.
    pub files_total: Option<u64>,
    /// Rate of the last seconds, once known. Leaves out time in which nothing can move: between
    /// connections, and while holes are hashed.
    pub bytes_per_s: Option<f64>,
    /// Share of packets sent again (sender) or lost (receiver).
    pub repaired_share: f64,
    /// Time since anything was received from the other end. Each end sends a keep-alive every two
    /// seconds, so a few seconds of silence point to the path.
    pub silent: Duration,
    /// Zeros of holes that this end has still to hash.
    pub zeros_left_bytes: u64,
    /// The file that is on its way, with control characters escaped.
    pub name: Option<String>,
}

impl Progress {
    /// Whether hashing holes takes a good part of a second, in which nothing moves.
    #[must_use]
    pub fn is_hashing_holes(&self) -> bool {
        /// About a quarter of a second of hashing.
        const ZEROS_BYTES: u64 = 1 << 30;
        self.zeros_left_bytes >= ZEROS_BYTES
    }
}
