//! How a command ends when it does not succeed: one line that says what to do,
//! and an exit code by kind.
//!
//! Nobody reading the results any more (`| head -1`) is no failure.

use crate::interrupt;
use lacuna::datapath::limit::{Limit, Said};
use lacuna::{ConnectError, ContextError, QueuePairError, RecvError, WriteError};
use serde::Serialize;
use std::process::ExitCode;

/// What the help says of them, for all commands.
pub(crate) const EXIT_CODES: &str = "\
Exit codes of every command:
  0    success; also when nobody reads the results any more, as in ... | head -1
  2    usage: the command line makes no sense
  3    network or peer: nobody there, lost, busy, or something else than expected
  4    wrong data: something arrived that was not sent
  5    this machine: files, memory, descriptors, threads, a port in use
  130  interrupted (Ctrl-C, SIGTERM, SIGHUP), after what was finished so far has
       been printed; a server ends so too. model, plan and figures end at once, by
       the signal, and print nothing of what they were at

A measurement that ends early, whatever ends it, prints what it has: with --json
\"interrupted\": true, and \"why\".";

/// See the module's text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// The network or the peer.
    #[error("{0}")]
    Network(String),
    /// Wrong data.
    #[error("{0}")]
    Verification(String),
    /// This machine.
    #[error("{0}")]
    Local(String),
    /// Ctrl-C, or another signal that asks for an end.
    #[error("interrupted")]
    Interrupted,
}

/// Whether a result is all that was asked for, and if it is not, why: two fields of every
/// measurement.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Ending {
    pub(crate) interrupted: bool,
    pub(crate) why: Option<String>,
}

impl Ending {
    /// Of a measurement that this ended early, or nothing.
    pub(crate) fn of(failure: Option<&Failure>) -> Self {
        let why = failure.map(|failure| match failure {
            Failure::Interrupted => interrupt::by_what().to_owned(),
            failure => failure.to_string(),
        });
        Self { interrupted: why.is_some(), why }
    }
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Usage(_) => 2,
            Self::Network(_) => 3,
            Self::Verification(_) => 4,
            Self::Local(_) => 5,
            Self::Interrupted => 130,
        })
    }

    /// A failure of the file system, with the path.
    pub(crate) fn file(what: &str, path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Local(format!("cannot {what} {}: {}", path.display(), Said(error)))
    }

    /// A server cannot have the address that it was to listen at; another helps, unless
    /// it is a limit that was met there, as `source` says if there is one.
    pub(crate) fn listen(error: &impl std::fmt::Display, source: Option<&std::io::Error>) -> Self {
        match source.and_then(Limit::of) {
            Some(_) => Self::Local(error.to_string()),
            None => Self::Local(format!("{error}: choose another with --listen")),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::QueuePair(error) => error.into(),
            ConnectError::Context(error) => error.into(),
            ConnectError::Listen { .. } | ConnectError::Accept { .. } => {
                Self::Local(error.to_string())
            }
            error => Self::Network(error.to_string()),
        }
    }
}

impl From<QueuePairError> for Failure {
    fn from(error: QueuePairError) -> Self {
        match error {
            QueuePairError::Geometry(error) => Self::Usage(error.to_string()),
            QueuePairError::Engine(error) => Self::Usage(error.to_string()),
            QueuePairError::Context(error) => error.into(),
            QueuePairError::NoRate | QueuePairError::Zero { .. } => Self::Usage(error.to_string()),
            QueuePairError::TooMany { .. } | QueuePairError::System { .. } => {
                Self::Local(error.to_string())
            }
            error => Self::Network(error.to_string()),
        }
    }
}

impl From<ContextError> for Failure {
    fn from(error: ContextError) -> Self {
        match error {
            ContextError::Channels { .. } => Self::Usage(error.to_string()),
            error => Self::Local(error.to_string()),
        }
    }
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        Self::Network(error.to_string())
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Self {
        Self::Network(error.to_string())
    }
}
