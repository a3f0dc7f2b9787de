//! The accepting side of a server: accepts control connections, admits them by their tags, and
//! serves each on a thread of its own.
//!
//! One thread accepts, and waits there for what all peers want ([`Listener::accept_incoming`]), so those who say
//! nothing take no thread. A peer with the tag of another service is refused before it may send a packet. The
//! server decides which peers to admit and what to do for them.

use crate::STOP_POLL;
use crate::thread::{self, ThreadError};
use lacuna::address::show;
use lacuna::datapath::{BindError, ends_listener, families};
use lacuna::{
    ConnectError, Connection, ConnectionConfig, Context, ContextConfig, ContextError, Incoming,
    Listener,
};
use lacuna_units::show_count;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How serving a connection ended; `None` if the connection does not count.
pub type Served<E> = Option<Result<(), E>>;

/// Accepts connections and has them served.
pub struct Acceptor {
    listener: Listener,
    on_event: OnAcceptEvent,
    /// Admitted connections that are still served.
    guests: AtomicUsize,
    is_over: AtomicBool,
}

/// An admitted connection; the acceptor waits until it is dropped.
#[derive(Debug)]
pub struct Guest<'a> {
    /// The connection.
    pub connection: Connection,
    /// Declared after the connection and so dropped after it, as the process may end once no guest
    /// is counted: the goodbye must be sent before.
    _counted: Counted<'a>,
}

/// Counts one guest.
#[derive(Debug)]
struct Counted<'a>(&'a AtomicUsize);

/// Why a connection is not served.
#[derive(Debug)]
#[non_exhaustive]
pub enum AcceptEvent<'a> {
    /// A peer was refused in the handshake.
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// What it was told.
        reason: &'a str,
    },
    /// A handshake failed.
    Failed {
        /// Why.
        error: &'a ConnectError,
    },
    /// Accepting has failed for want of resources. Reported once until it succeeds again.
    Waiting {
        /// Why.
        error: &'a str,
    },
    /// No connection can be accepted any more.
    Ended {
        /// Why.
        source: &'a io::Error,
    },
}

/// Called with each event, from any of the acceptor's threads.
pub type OnAcceptEvent = Arc<dyn Fn(&AcceptEvent<'_>) + Send + Sync>;

/// A server cannot listen. Mostly this machine's fault.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be bound.
    #[error(transparent)]
    Address(BindError),
    /// The sockets cannot be made.
    #[error(transparent)]
    Sockets(ContextError),
    /// The listener cannot be made.
    #[error(transparent)]
    Listener(ConnectError),
}

/// An acceptor ended, not one of its connections.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The caller requested a stop.
    #[error("interrupted")]
    Stopped,
    /// The accepting thread met an error that ends the listener.
    #[error("the listening thread ended")]
    Ended,
    /// The system has no thread.
    #[error(transparent)]
    Thread(#[from] ThreadError),
}

/// Makes the sockets of a server that listens at `address`.
///
/// # Errors
/// When the system refuses them.
pub fn sockets(address: SocketAddr, config: ContextConfig) -> Result<Context, ListenError> {
    Context::new(ContextConfig { bind: address.into(), ..config }).map_err(|error| match error {
        // Reports the address that was asked for; the sockets themselves have any port.
        ContextError::Bind(BindError::NotAvailable(_)) => {
            ListenError::Address(BindError::NotAvailable(address))
        }
        error => ListenError::Sockets(error),
    })
}

impl Acceptor {
    /// Begins to listen.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn open(
        context: &Context,
        address: SocketAddr,
        config: ConnectionConfig,
        on_event: OnAcceptEvent,
    ) -> Result<Arc<Self>, ListenError> {
        let listener = Listener::bind(context, address, config).map_err(ListenError::Listener)?;
        let (guests, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Arc::new(Self { listener, on_event, guests, is_over }))
    }

    /// The address, with its actual port.
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves connections until `stop` returns true, or with `once` until the first one that counts
    /// has ended, and returns its result. After a stop, guests have `goodbye` to end; they check
    /// `stop` themselves.
    ///
    /// # Errors
    /// The error of that one connection; or that accepting was stopped or has failed.
    pub fn run<E>(
        self: &Arc<Self>,
        once: bool,
        stop: &dyn Fn() -> bool,
        goodbye: Duration,
        serve: impl Fn(Incoming) -> Served<E> + Send + Sync + 'static,
    ) -> Result<(), E>
    where
        E: From<AcceptError> + Send + 'static,
    {
        let (results, finished) = channel();
        let (accepting, serve) = (self.clone(), Arc::new(serve));
        let accept = move || accepting.accept(&serve, &results);
        let accept = thread::start("lacuna-accept", accept).map_err(AcceptError::from)?;
        let result = loop {
            if stop() {
                break Err(AcceptError::Stopped.into());
            }
            match finished.recv_timeout(STOP_POLL) {
                Ok(result) if once => break result,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(AcceptError::Ended.into());
                }
            }
        };
        self.is_over.store(true, Ordering::Relaxed);
        // The accepting thread blocks in `accept`, so a connection to the listener wakes it.
        let mut addresses = self.wake_addresses().into_iter();
        if addresses.any(|address| TcpStream::connect_timeout(&address, STOP_POLL).is_ok()) {
            let _ = accept.join();
        }
        let since = Instant::now();
        while self.guests.load(Ordering::Relaxed) > 0 && since.elapsed() < goodbye {
            std::thread::park_timeout(STOP_POLL);
        }
        result
    }

    /// Completes the handshake if `admit` takes the peer's tag; returns the connection and the
    /// value that `admit` made. `None` if there is no connection, which is reported as an event.
    pub fn let_in<T>(
        &self,
        incoming: Incoming,
        admit: impl FnOnce(u64) -> Result<T, String>,
    ) -> Option<(Guest<'_>, T)> {
        let mut admitted = None;
        let agreed = self.listener.agree_if(incoming, |tag| {
            admitted = Some(admit(tag)?);
            Ok(())
        });
        match agreed {
            Ok(connection) => {
                self.guests.fetch_add(1, Ordering::Relaxed);
                let counted = Counted(&self.guests);
                Some((Guest { connection, _counted: counted }, admitted?))
            }
            Err(ConnectError::Unacceptable { peer, reason }) => {
                (self.on_event)(&AcceptEvent::Refused { peer, reason: &reason });
                None
            }
            Err(error) => {
                self.report(&error);
                None
            }
        }
    }

    /// Tells of a connection that came to nothing.
    fn report(&self, error: &ConnectError) {
        // Happy Eyeballs: peers that connect several times at once reset all but one.
        if was_reset(error) {
            tracing::debug!(%error, "reset");
        } else {
            (self.on_event)(&AcceptEvent::Failed { error });
        }
    }

    /// Addresses of this host that reach the listener.
    fn wake_addresses(&self) -> Vec<SocketAddr> {
        let address = self.local_addr();
        if !address.ip().is_unspecified() {
            return vec![address];
        }
        let (takes_v4, takes_v6) = families(address);
        // A host may have IPv6 support without an IPv6 address.
        let v4 = takes_v4.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let v6 = takes_v6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
        v4.into_iter().chain(v6).map(|ip| SocketAddr::new(ip, address.port())).collect()
    }

    fn accept<E: Send + 'static>(
        self: &Arc<Self>,
        serve: &Arc<impl Fn(Incoming) -> Served<E> + Send + Sync + 'static>,
        results: &Sender<Result<(), E>>,
    ) {
        let (mut told, mut is_crowded) = (None, false);
        loop {
            let incoming = self.listener.accept_incoming();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            match incoming {
                Ok(incoming) => {
                    told = None;
                    Self::start(incoming, serve.clone(), results.clone());
                }
                Err(ConnectError::Accept { source, .. }) if ends_listener(&source).is_some() => {
                    (self.on_event)(&AcceptEvent::Ended { source: &source });
                    return;
                }
                Err(error @ ConnectError::Accept { .. }) => {
                    // A passing error. The listener reports it up to ten times a second; report it
                    // once.
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        (self.on_event)(&AcceptEvent::Waiting { error: &error });
                    }
                    told = Some(error);
                    std::thread::sleep(STOP_POLL);
                }
                // Once, as a flood has thousands of them.
                Err(ConnectError::Crowded { limit, .. }) => {
                    if !std::mem::replace(&mut is_crowded, true) {
                        tracing::warn!(
                            "more than {limit} peers say nothing: those with the most are turned away"
                        );
                    }
                }
                Err(error) => self.report(&error),
            }
        }
    }

    fn start<E: Send + 'static>(
        incoming: Incoming,
        serve: Arc<impl Fn(Incoming) -> Served<E> + Send + Sync + 'static>,
        results: Sender<Result<(), E>>,
    ) {
        let started = thread::start("lacuna-session", move || {
            if let Some(result) = serve(incoming) {
                // The receiver is gone once the server ends.
                let _ = results.send(result);
            }
        });
        if let Err(error) = started {
            tracing::warn!("{error}");
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("address", &self.local_addr()).finish_non_exhaustive()
    }
}

impl AcceptEvent<'_> {
    /// Whether the server accepts no more connections.
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Ended { .. })
    }
}

impl fmt::Display for AcceptEvent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { peer, reason } => write!(f, "{} was refused: {reason}", show(*peer)),
            Self::Failed { error } => write!(f, "a connection came to nothing: {error}"),
            Self::Waiting { error } => write!(f, "{error}; who comes has to wait"),
            Self::Ended { source } => write!(f, "cannot accept any more: {source}"),
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether the peer has reset the connection, which needs no report.
fn was_reset(error: &ConnectError) -> bool {
    let (ConnectError::Exchange { source, .. } | ConnectError::Unreachable { source, .. }) = error
    else {
        return false;
    };
    matches!(source.kind(), ErrorKind::ConnectionReset | ErrorKind::NotConnected)
}

/// The refusal for a peer when the server is full; `serving`: connections that it serves.
#[must_use]
pub fn busy(serving: usize, once: bool, what: &str) -> String {
    if once {
        return format!("busy: it serves one {what} only (--once) and has it");
    }
    format!("busy: it serves {} already; try again later", show_count(serving as u64, what))
}
