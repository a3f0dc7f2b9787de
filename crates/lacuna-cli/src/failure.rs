//! How a command fails: one line that says what to do, and an exit code by kind.
//!
//! A closed standard output (`| head -1`) is not a failure.

use crate::interrupt;
use lacuna::datapath::limit::{Limit, Said};
use lacuna::{ConnectError, ContextError, QueuePairError, RecvError, SecretError, SendError};
use lacuna_service::thread::ThreadError;
use lacuna_service::{AcceptError, Blames, Fault, ListenError, LookUpError, Purpose, ReachError};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// The exit codes, for the help of all commands.
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

/// Why a command fails.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Failure {
    /// The command line makes no sense.
    #[error("{0}")]
    Usage(String),
    /// A fault of the network or the peer.
    #[error("{0}")]
    Network(String),
    /// Wrong data.
    #[error("{0}")]
    Verification(String),
    /// A fault of this host.
    #[error("{0}")]
    Local(String),
    /// Ctrl-C or another terminating signal.
    #[error("interrupted")]
    Interrupted,
}

/// Whether a measurement is complete, and if not, why: two fields of every result.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Ending {
    pub(crate) interrupted: bool,
    pub(crate) why: Option<String>,
}

impl Ending {
    /// For a measurement that `failure` ended early, if any.
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

    /// A server cannot listen at its address. Another address helps, unless `source` is a resource
    /// limit.
    pub(crate) fn listen(error: &impl Display, source: Option<&io::Error>) -> Self {
        match source.and_then(Limit::of) {
            Some(_) => Self::Local(error.to_string()),
            None => Self::Local(format!("{error}: choose another with --listen")),
        }
    }

    /// A failure by whose fault it is.
    pub(crate) fn by(fault: Fault, text: String) -> Self {
        match fault {
            Fault::Caller => Self::Usage(text),
            Fault::Peer => Self::Network(text),
            Fault::Data => Self::Verification(text),
            Fault::Machine => Self::Local(text),
            Fault::Stopped => Self::Interrupted,
        }
    }

    /// A failure from an error that knows whose fault it is.
    pub(crate) fn of(error: &(impl Blames + Display)) -> Self {
        Self::by(error.fault(), error.to_string())
    }

    /// A failure to connect, with the command that should run at the other end if nobody listens.
    pub(crate) fn unreached(error: &ConnectError, purpose: Purpose) -> Self {
        match error {
            ConnectError::Unreachable { source, .. }
                if source.kind() == ErrorKind::ConnectionRefused =>
            {
                let server = purpose.server();
                Self::Network(format!("{error}: is {server} running there, on that port?"))
            }
            error => Self::of(error),
        }
    }
}

impl From<ConnectError> for Failure {
    fn from(error: ConnectError) -> Self {
        Self::of(&error)
    }
}

impl From<QueuePairError> for Failure {
    fn from(error: QueuePairError) -> Self {
        Self::of(&error)
    }
}

impl From<ContextError> for Failure {
    fn from(error: ContextError) -> Self {
        Self::of(&error)
    }
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Context(error) => error.into(),
            SecretError::NoToken | SecretError::NobodyTrusted { .. } => {
                Self::Usage(error.to_string())
            }
        }
    }
}

impl From<ThreadError> for Failure {
    fn from(error: ThreadError) -> Self {
        Self::of(&error)
    }
}

impl From<ReachError> for Failure {
    fn from(error: ReachError) -> Self {
        Self::of(&error)
    }
}

impl From<LookUpError> for Failure {
    fn from(error: LookUpError) -> Self {
        Self::of(&error)
    }
}

impl From<AcceptError> for Failure {
    fn from(error: AcceptError) -> Self {
        Self::of(&error)
    }
}

impl From<ListenError> for Failure {
    fn from(error: ListenError) -> Self {
        match error.is_of_address() {
            true => Self::listen(&error, None),
            false => Self::of(&error),
        }
    }
}

impl From<SendError> for Failure {
    fn from(error: SendError) -> Self {
        Self::Network(error.to_string())
    }
}

impl From<RecvError> for Failure {
    fn from(error: RecvError) -> Self {
        Self::Network(error.to_string())
    }
}
