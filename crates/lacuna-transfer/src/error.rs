//! Errors: one enum per operation. Each variant says whose fault it is, and `is_retryable` whether
//! the same call may succeed later.

use crate::name::{NameError, shown};
use crate::report::FilesFailed;
use lacuna::ConnectError;
use lacuna::datapath::limit::Said;
use lacuna_service::thread::ThreadError;
use lacuna_service::{AcceptError, Blames, Fault, ListenError};
use lacuna_units::show_bytes;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

/// The file system refuses a path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {}", path.display(), Said(source))]
pub struct FileError {
    /// What was to be done with it.
    pub what: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the system says.
    pub source: io::Error,
}

impl FileError {
    pub(crate) fn new(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self { what, path: path.to_owned(), source }
    }
}

/// A path cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// This machine's fault.
    #[error(transparent)]
    File(#[from] FileError),
    /// The caller's fault.
    #[error("{} is neither a file nor a folder", path.display())]
    Kind {
        /// As given.
        path: PathBuf,
    },
    /// The caller's fault: `/`, for example.
    #[error("{} has no name: send what is in it", path.display())]
    NoName {
        /// As given.
        path: PathBuf,
    },
    /// The caller's fault: no receiver takes such a name.
    #[error("cannot send {}: {source}", path.display())]
    Name {
        /// As given.
        path: PathBuf,
        /// What is wrong with the name.
        source: NameError,
    },
    /// The caller's fault.
    #[error(
        "two of the paths end in \"{}\": they would be the same file at the receiver",
        shown(name)
    )]
    SameName {
        /// The name.
        name: Vec<u8>,
    },
}

impl Blames for PathError {
    fn fault(&self) -> Fault {
        match self {
            Self::File(_) => Fault::Machine,
            _ => Fault::Caller,
        }
    }
}

/// Not everything was sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A path cannot be sent; nothing was.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Nobody was reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection broke, and there was no progress for as long as
    /// [`SendOptions::retry`](crate::SendOptions) says. What has arrived is kept by the receiver.
    #[error("{reason}; gave up after {} s without progress", retry.as_secs_f64())]
    Lost {
        /// Why the last connection broke or there was none.
        reason: String,
        /// How long this end tried to go on.
        retry: Duration,
    },
    /// The peer does not receive files.
    #[error("what listens there is no lacuna recv: {reason}")]
    NotAReceiver {
        /// How that shows.
        reason: String,
    },
    /// The peer did not answer in time.
    #[error("{what}")]
    NoAnswer {
        /// What it should have said.
        what: &'static str,
    },
    /// The receiver has another version of the file protocol.
    #[error("the receiver: {reason}")]
    Version {
        /// Both versions.
        reason: String,
    },
    /// The receiver broke the file protocol.
    #[error("the receiver breaks the file protocol: {reason}")]
    Protocol {
        /// How.
        reason: String,
    },
    /// The receiver says that this end broke the file protocol.
    #[error("the receiver does not understand this end: {reason}")]
    Misunderstood {
        /// Its words.
        reason: String,
    },
    /// The receiver cannot go on. What has arrived is kept.
    #[error("the receiver gave up: {reason}")]
    GaveUp {
        /// Its words.
        reason: String,
    },
    /// Everything was handled, and some files failed by themselves.
    #[error(transparent)]
    Files(#[from] FilesFailed),
    /// The accepting side of a [`SendListener`](crate::SendListener) ended.
    #[error(transparent)]
    Accept(AcceptError),
    /// The system has no thread.
    #[error(transparent)]
    Thread(ThreadError),
    /// The caller said stop. What has arrived is kept by the receiver.
    #[error("interrupted")]
    Interrupted,
}

impl SendError {
    /// Whether the same call may succeed without anything being changed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Lost { .. } | Self::NoAnswer { .. } | Self::GaveUp { .. } => true,
            Self::Thread(_) | Self::Interrupted => true,
            Self::Files(files) => files.is_retryable(),
            Self::Path(_)
            | Self::NotAReceiver { .. }
            | Self::Version { .. }
            | Self::Protocol { .. }
            | Self::Misunderstood { .. }
            | Self::Accept(_) => false,
        }
    }
}

impl Blames for SendError {
    fn fault(&self) -> Fault {
        match self {
            Self::Path(error) => error.fault(),
            Self::Connect(error) => error.fault(),
            Self::Lost { .. }
            | Self::NotAReceiver { .. }
            | Self::NoAnswer { .. }
            | Self::Version { .. }
            | Self::Protocol { .. }
            | Self::Misunderstood { .. }
            | Self::GaveUp { .. } => Fault::Peer,
            Self::Files(files) => files.fault(),
            Self::Accept(error) => error.fault(),
            Self::Thread(error) => error.fault(),
            Self::Interrupted => Fault::Stopped,
        }
    }
}

impl From<AcceptError> for SendError {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Stopped => Self::Interrupted,
            AcceptError::Thread(error) => error.into(),
            error => Self::Accept(error),
        }
    }
}

impl From<ThreadError> for SendError {
    fn from(error: ThreadError) -> Self {
        match error {
            ThreadError::Stopped => Self::Interrupted,
            error => Self::Thread(error),
        }
    }
}

/// A receiver cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// It cannot listen.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Its folder cannot be opened or made. This machine's fault.
    #[error(transparent)]
    Folder(#[from] FileError),
}

impl BindError {
    /// Whether the same call may succeed without anything being changed here: another program may give a port
    /// back.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Listen(error) if error.is_of_address())
    }
}

impl Blames for BindError {
    fn fault(&self) -> Fault {
        match self {
            Self::Listen(error) => error.fault(),
            Self::Folder(_) => Fault::Machine,
        }
    }
}

/// The file that was being received when a session ended: it is kept as far as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its name, with control characters escaped.
    pub name: String,
    /// Bytes of data that are kept.
    pub bytes: u64,
}

/// For the end of a sentence: `; 3 MiB of big.iso are kept`, or nothing.
struct AndKept<'a>(&'a Option<Kept>);

impl fmt::Display for AndKept<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(Kept { name, bytes }) => write!(f, "; {} of {name} are kept", show_bytes(*bytes)),
            None => Ok(()),
        }
    }
}

/// Not everything was received. A sender that sends the same again resumes what is kept.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// A [`Fetcher`](crate::Fetcher) reached nobody.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The folder of a [`Fetcher`](crate::Fetcher) cannot be opened or made. This machine's fault.
    #[error(transparent)]
    Folder(#[from] FileError),
    /// The sender was lost.
    #[error("{reason}{}", AndKept(kept))]
    Lost {
        /// How.
        reason: String,
        /// What came of the file under way.
        kept: Option<Kept>,
    },
    /// This end cannot go on: the disk is full or read-only, or the folder was removed.
    #[error("{reason}{}", AndKept(kept))]
    Unable {
        /// What the system says.
        reason: String,
        /// What came of the file under way.
        kept: Option<Kept>,
    },
    /// The sender broke the file protocol.
    #[error("the sender breaks the file protocol: {reason}{}", AndKept(kept))]
    Protocol {
        /// How.
        reason: String,
        /// What came of the file under way.
        kept: Option<Kept>,
    },
    /// Everything was handled, and some files failed by themselves.
    #[error(transparent)]
    Files(#[from] FilesFailed),
    /// The accepting side ended.
    #[error(transparent)]
    Accept(AcceptError),
    /// The system has no thread.
    #[error(transparent)]
    Thread(ThreadError),
    /// The application has no observer for a session.
    #[error(transparent)]
    Observer(Box<dyn Error + Send + Sync>),
    /// The caller said stop.
    #[error("interrupted")]
    Interrupted,
}

impl ReceiveError {
    /// Whether the same may succeed when the sender tries again, without anything being changed here.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Connect(error) => error.is_retryable(),
            Self::Lost { .. } | Self::Thread(_) | Self::Interrupted => true,
            Self::Files(files) => files.is_retryable(),
            Self::Folder(_)
            | Self::Unable { .. }
            | Self::Protocol { .. }
            | Self::Accept(_)
            | Self::Observer(_) => false,
        }
    }
}

impl Blames for ReceiveError {
    fn fault(&self) -> Fault {
        match self {
            Self::Connect(error) => error.fault(),
            Self::Lost { .. } | Self::Protocol { .. } => Fault::Peer,
            Self::Folder(_) | Self::Unable { .. } | Self::Observer(_) => Fault::Machine,
            Self::Files(files) => files.fault(),
            Self::Accept(error) => error.fault(),
            Self::Thread(error) => error.fault(),
            Self::Interrupted => Fault::Stopped,
        }
    }
}

impl From<ThreadError> for ReceiveError {
    fn from(error: ThreadError) -> Self {
        match error {
            ThreadError::Stopped => Self::Interrupted,
            error => Self::Thread(error),
        }
    }
}

impl From<AcceptError> for ReceiveError {
    fn from(error: AcceptError) -> Self {
        match error {
            AcceptError::Stopped => Self::Interrupted,
            AcceptError::Thread(error) => error.into(),
            error => Self::Accept(error),
        }
    }
}

/// A folder was not cleaned.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// It cannot be opened. This machine's fault.
    #[error(transparent)]
    Folder(#[from] FileError),
    /// The caller said stop.
    #[error("interrupted")]
    Interrupted,
}

impl Blames for CleanError {
    fn fault(&self) -> Fault {
        match self {
            Self::Folder(_) => Fault::Machine,
            Self::Interrupted => Fault::Stopped,
        }
    }
}
