//! Where things are printed: results on standard output, everything else on
//! standard error, so that `--json` can be piped.

use crate::failure::Failure;
use serde::Serialize;
use std::io::{IsTerminal, Write};

/// How the user wants to be told.
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
        let line = serde_json::to_string(object)
            .map_err(|error| Failure::Local(format!("cannot write JSON: {error}")))?;
        self.line(&line)
    }

    /// A line of the result for people.
    pub(crate) fn line(&self, line: &str) -> Result<(), Failure> {
        match writeln!(std::io::stdout().lock(), "{line}") {
            // The reader has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Failure::Local(format!("cannot write the result: {error}"))),
            Ok(()) => Ok(()),
        }
    }

    /// Something to know on the way.
    pub(crate) fn note(&self, note: &str) {
        if !self.quiet {
            // Not `eprintln`: nobody reading must not end the command.
            let _ = writeln!(std::io::stderr().lock(), "{note}");
        }
    }

    /// Whether to draw progress.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && std::io::stderr().is_terminal()
    }
}
