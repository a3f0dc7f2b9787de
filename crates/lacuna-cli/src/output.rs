//! Output: results on standard output, everything else on standard error, so that `--json` can be
//! piped.

use crate::failure::Failure;
use lacuna::Connection;
use lacuna::address::show;
use lacuna_service::{AcceptEvent, OnAcceptEvent};
use serde::Serialize;
use std::fmt::Display;
use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Standard output was closed by its reader.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Output options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// One JSON object per result.
    pub(crate) json: bool,
    /// No progress, no notes.
    pub(crate) quiet: bool,
}

impl Output {
    /// A result: one JSON line.
    pub(crate) fn object(&self, object: &impl Serialize) -> Result<(), Failure> {
        self.line(&json(object)?)
    }

    /// A line of the result for people.
    pub(crate) fn line(&self, line: &str) -> Result<(), Failure> {
        match writeln!(std::io::stdout().lock(), "{line}") {
            // The command decides whether its work goes on.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                CLOSED.store(true, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(Failure::Local(format!("cannot write the result: {error}"))),
            Ok(()) => Ok(()),
        }
    }

    /// Whether standard output is closed: work that only produces more results may end, quietly and
    /// with success.
    pub(crate) fn is_closed(&self) -> bool {
        CLOSED.load(Ordering::Relaxed)
    }

    /// Prints a note.
    pub(crate) fn note(&self, note: &str) {
        if !self.quiet {
            tell(note);
        }
    }

    /// Prints notes on connections that a server does not serve.
    pub(crate) fn on_accept(self) -> OnAcceptEvent {
        Arc::new(move |event: &AcceptEvent<'_>| match event.is_end() {
            true => complain(event),
            false => self.note(&event.to_string()),
        })
    }

    /// Whether to draw progress.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }
}

/// The result of a command whose measurement `ended` early, if so, and whose results were printed
/// with `told`. A failure to print does not hide why the measurement ended.
pub(crate) fn conclude(ended: Option<Failure>, told: Result<(), Failure>) -> Result<(), Failure> {
    match (ended, told) {
        (Some(failure), told) => {
            told.unwrap_or_else(complain);
            Err(failure)
        }
        (None, told) => told,
    }
}

/// A result in one line.
pub(crate) fn json(object: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(object)
        .map_err(|error| Failure::Local(format!("cannot write JSON: {error}")))
}

/// The note at a connection's end on a path that has become too narrow for the agreed packet size.
pub(crate) fn narrower(mtu_bytes: u32, payload_bytes_max: u32) -> Option<String> {
    (payload_bytes_max < mtu_bytes).then(|| {
        format!(
            "the path became too narrow for packets of {mtu_bytes} B: they went in pieces of \
             {payload_bytes_max} B"
        )
    })
}

/// A connection's parameters, for a note at its start.
pub(crate) fn start_line(connection: &Connection) -> String {
    format!("{}: {:#}", show(connection.peer()), connection.chosen())
}

/// Prints an error, also with --quiet.
pub(crate) fn complain(what: impl Display) {
    tell(format_args!("lacuna: {what}"));
}

/// Prints a line to standard error. Not with `eprintln!`, which panics if standard error is closed.
fn tell(line: impl Display) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
