//! The receiving side: accepts senders and serves each on a thread of its own ([`Receiver`]), or
//! connects to one ([`Fetcher`]). All write into the folder that has the given path when they connect.

mod clean;
mod fetch;
mod folder;
mod metadata;
mod offers;
mod partial;
mod receiving;
mod server;
mod session;
mod space;
mod tree;
mod write_behind;

pub use clean::{CleanEvent, CleanOptions, CleanSummary, PartialFile, clean};
pub use fetch::{FetchOptions, Fetcher};

use crate::error::{BindError, ReceiveError};
use crate::observer::Observer;
use crate::report::Summary;
use folder::Folder;
use lacuna::{Connection, ConnectionConfig, Context, ContextConfig};
use lacuna_service::{AcceptEvent, Acceptor, OnAcceptEvent, Stop, sockets};
use receiving::Receiving;
use server::Server;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use std::{fmt, io};

/// How to receive.
#[derive(Clone, Default)]
pub struct ReceiveOptions {
    /// Replace existing files whose content differs.
    pub overwrite: bool,
    /// Sync each file to the disk before it is renamed to its final name.
    pub sync: bool,
    /// Memory for data in flight, per sender; `None` chooses 32 to 160 MiB by the round-trip time.
    /// See [`BUFFERS_BYTES`](crate::BUFFERS_BYTES).
    pub buffers_bytes: Option<u64>,
    /// Socket options. `bind` is ignored: the receiver uses the address that it listens at.
    pub sockets: ContextConfig,
    /// Ends the receiver. Received data is still written, however long the disk takes.
    pub stop: Stop,
}

/// Observes a receiver and makes an observer for each session. `()` ignores everything.
pub trait Sessions: Send + Sync + 'static {
    /// The observer of one session.
    type Observer: Observer;

    /// A sender has connected.
    ///
    /// # Errors
    /// When there is no observer for it; the session ends then.
    fn begin(
        &self,
        connection: &Connection,
    ) -> Result<Self::Observer, Box<dyn Error + Send + Sync>>;

    /// A session has ended, and its observer was given the summary. Not called for sessions without
    /// an observer: of a peer that is not a sender, or when the system gave no threads.
    fn end(&self, observer: Self::Observer, peer: SocketAddr, result: Result<(), &ReceiveError>) {
        let _ = (observer, peer, result);
    }

    /// Something happened that belongs to no session.
    fn on_event(&self, event: &ReceiverEvent<'_>) {
        let _ = event;
    }
}

impl Sessions for () {
    type Observer = ();

    fn begin(&self, _: &Connection) -> Result<(), Box<dyn Error + Send + Sync>> {
        Ok(())
    }
}

/// Something that belongs to no session.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiverEvent<'a> {
    /// A connection was not served, or none can be accepted.
    Accept(&'a AcceptEvent<'a>),
    /// The folder can be neither opened nor created; a sender was refused.
    FolderUnusable {
        /// As given.
        folder: &'a Path,
        /// What the system says.
        error: &'a io::Error,
    },
    /// The path leads to a different folder now.
    FolderChanged {
        /// As given.
        folder: &'a Path,
    },
    /// The folder was missing and was created again.
    FolderMade {
        /// As given.
        folder: &'a Path,
    },
}

impl ReceiverEvent<'_> {
    /// Whether the receiver accepts no more senders.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Accept(event) if event.is_end())
    }
}

impl fmt::Display for ReceiverEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept(event) => event.fmt(f),
            Self::FolderUnusable { folder, error } => {
                write!(f, "cannot open or make the folder {}: {error}", folder.display())
            }
            Self::FolderChanged { folder } => {
                write!(f, "{} is another folder than before", folder.display())
            }
            Self::FolderMade { folder } => {
                write!(f, "{} was gone and was made again", folder.display())
            }
        }
    }
}

/// Receives files and folders.
///
/// ```no_run
/// use lacuna_transfer::{ReceiveOptions, Receiver};
///
/// let receiver = Receiver::bind("[::]:7400".parse()?, "inbox", ReceiveOptions::default())?;
/// let summary = receiver.recv()?;
/// println!("{} files, {} bytes moved", summary.files, summary.moved_bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Receiver {
    options: ReceiveOptions,
    // Declared before the context, so dropped before it.
    acceptor: Arc<Acceptor>,
    _context: Context,
    folder: Folder,
    /// Where the acceptor's events go, once a caller has given a callback.
    on_accept: Arc<OnceLock<OnAcceptEvent>>,
}

impl Receiver {
    /// Listens at `address`, then opens the folder, creating it if needed.
    ///
    /// # Errors
    /// When the address cannot be bound, or the folder neither opened nor created.
    pub fn bind(
        address: SocketAddr,
        folder: impl AsRef<Path>,
        options: ReceiveOptions,
    ) -> Result<Self, BindError> {
        let context = sockets(address, options.sockets.clone())?;
        let on_accept: Arc<OnceLock<OnAcceptEvent>> = Arc::default();
        let relay = on_accept.clone();
        let hear = move |event: &AcceptEvent<'_>| {
            if let Some(on_event) = relay.get() {
                on_event(event);
            }
        };
        let config = ConnectionConfig::default();
        let acceptor = Acceptor::open(&context, address, config, Arc::new(hear))?;
        // After listening: a receiver that cannot listen leaves no folder behind.
        let folder = Folder::open(folder.as_ref())?;
        Ok(Self { options, acceptor, _context: context, folder, on_accept })
    }

    /// The address it listens at, with its actual port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.acceptor.local_addr()
    }

    /// Receives from one sender; returns the summary.
    ///
    /// # Errors
    /// When not everything was received, or [`ReceiveOptions::stop`] was requested before.
    pub fn recv(self) -> Result<Summary, ReceiveError> {
        let one = Arc::new(One::default());
        self.serve_one(one.clone())?;
        Ok(std::mem::take(&mut *lock(&one.summary)))
    }

    /// Receives from one sender.
    ///
    /// # Errors
    /// When not everything was received, or [`ReceiveOptions::stop`] was requested before.
    pub fn serve_one(self, sessions: Arc<impl Sessions>) -> Result<(), ReceiveError> {
        self.run(sessions, true)
    }

    /// Receives from any number of senders, several at a time, until [`ReceiveOptions::stop`] is
    /// requested. `sessions` gets the result of each.
    ///
    /// # Errors
    /// [`ReceiveError::Interrupted`], or why it cannot go on.
    pub fn serve(self, sessions: Arc<impl Sessions>) -> Result<(), ReceiveError> {
        self.run(sessions, false)
    }

    fn run(self, sessions: Arc<impl Sessions>, once: bool) -> Result<(), ReceiveError> {
        let Self { options, acceptor, _context: context, folder, on_accept } = self;
        let hearing = sessions.clone();
        let on_event: OnAcceptEvent =
            Arc::new(move |event| hearing.on_event(&ReceiverEvent::Accept(event)));
        // Set only here: this method consumes the receiver.
        let _ = on_accept.set(on_event);
        let stop = options.stop.clone();
        let receiving = Receiving::new(options, "start recv with --overwrite to replace files");
        let server = Server::new(receiving, once, sessions, acceptor.clone(), folder);
        // Sessions check the token themselves.
        let serve = move |incoming| server.connected(incoming);
        let result = acceptor.run(once, &|| stop.is_requested(), Duration::MAX, serve);
        drop((acceptor, context));
        result
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("address", &self.local_addr())
            .field("folder", &self.folder.named())
            .finish_non_exhaustive()
    }
}

/// Keeps the summary of the one session of [`Receiver::recv`].
#[derive(Default)]
struct One {
    summary: Arc<Mutex<Summary>>,
}

/// The observer of that session.
struct Keep(Arc<Mutex<Summary>>);

impl Observer for Keep {
    fn on_summary(&self, summary: &Summary) {
        lock(&self.0).clone_from(summary);
    }
}

impl Sessions for One {
    type Observer = Keep;

    fn begin(&self, _: &Connection) -> Result<Keep, Box<dyn Error + Send + Sync>> {
        Ok(Keep(self.summary.clone()))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
