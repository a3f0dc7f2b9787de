//! The front of a server: takes control connections, finds out by their tags
//! what they are for, and has each served on a thread of its own.
//!
//! One thread accepts and nothing else. The exchange with a peer, which may say
//! nothing for as long as it likes to, is on a thread per connection; of those
//! that say nothing there are so many at most (`arrivals.rs`). A peer that is for
//! something else is told so before it may send a packet. Who is served when, and what that means, is the
//! server's own matter.

use crate::arrivals::{Arrival, Arrivals};
use crate::failure::Failure;
use crate::interrupt::{self, LOOK};
use crate::output::{Output, complain};
use crate::thread;
use crate::units::show_count;
use lacuna::address::show;
use lacuna::datapath::{BindError, ends_listener, families};
use lacuna::{
    ConnectError, Connection, ConnectionConfig, Context, ContextConfig, ContextError, Listener,
};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Peers at a time that have not said what they want: each takes a thread.
const SILENT_MAX: usize = 64;

/// How serving a connection ended; `None` if it was none that counts.
pub(crate) type Served = Option<Result<(), Failure>>;

/// See the module's text.
pub(crate) struct Reception {
    listener: Listener,
    output: Output,
    arrivals: Arc<Arrivals>,
    /// Connections that were let in and are still served.
    guests: AtomicUsize,
    is_over: AtomicBool,
}

/// A connection that was let in; it counts until this is dropped.
pub(crate) struct Guest<'a> {
    pub(crate) connection: Connection,
    /// Behind the connection, which says goodbye before it is not counted any
    /// more: the process may end then.
    _counted: Counted<'a>,
}

/// One of the guests.
struct Counted<'a>(&'a AtomicUsize);

/// Sockets for a server that listens at `address`.
pub(crate) fn sockets(address: SocketAddr, config: ContextConfig) -> Result<Context, Failure> {
    Context::new(ContextConfig { bind: address.into(), ..config }).map_err(|error| match error {
        // Said of the address that was asked for: these sockets have any port.
        ContextError::Bind(BindError::NotAvailable(_)) => {
            let error = BindError::NotAvailable(address);
            Failure::Local(format!("{error}: choose another with --listen"))
        }
        error => error.into(),
    })
}

impl Reception {
    /// Listens.
    pub(crate) fn open(
        context: &Context,
        address: SocketAddr,
        config: ConnectionConfig,
        output: Output,
    ) -> Result<Arc<Self>, Failure> {
        let listener = Listener::bind(context, address, config).map_err(|error| match &error {
            ConnectError::Listen { source, .. } => Failure::listen(&error, Some(source)),
            _ => error.into(),
        })?;
        let (arrivals, guests) = (Arrivals::new(SILENT_MAX), AtomicUsize::new(0));
        let is_over = AtomicBool::new(false);
        Ok(Arc::new(Self { listener, output, arrivals, guests, is_over }))
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Has connections served until `stop` says so, or with `once` until one
    /// has ended, with that one's result. Then guests may take `goodbye` to end;
    /// they have to notice by themselves that it is time to.
    pub(crate) fn run(
        self: &Arc<Self>,
        once: bool,
        stop: &dyn Fn() -> bool,
        goodbye: Duration,
        serve: impl Fn(Arrival) -> Served + Send + Sync + 'static,
    ) -> Result<(), Failure> {
        let (results, finished) = channel();
        let (accepting, serve) = (self.clone(), Arc::new(serve));
        let accept = thread::start("lacuna-accept", move || accepting.accept(&serve, &results))?;
        let result = loop {
            if stop() {
                break Err(Failure::Interrupted);
            }
            match finished.recv_timeout(LOOK) {
                Ok(result) if once => break result,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(Failure::Local("the listening thread ended".to_owned()));
                }
            }
        };
        self.is_over.store(true, Ordering::Relaxed);
        // The accepting thread waits in the system: a connection wakes it.
        let mut addresses = self.wake_addresses().into_iter();
        if addresses.any(|address| TcpStream::connect_timeout(&address, LOOK).is_ok()) {
            let _ = accept.join();
        }
        let since = Instant::now();
        while self.guests.load(Ordering::Relaxed) > 0 && since.elapsed() < goodbye {
            std::thread::park_timeout(LOOK);
        }
        result
    }

    /// Agrees with a peer if `admit` takes its tag, and gives what that made;
    /// `None` if it came to nothing.
    pub(crate) fn let_in<T>(
        &self,
        arrival: Arrival,
        admit: impl FnOnce(u64) -> Result<T, String>,
    ) -> Option<(Guest<'_>, T)> {
        let Arrival { stream, place } = arrival;
        let mut admitted = None;
        let agreed = self.listener.agree_if(stream, |tag| {
            place.give_back();
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
                self.output.note(&format!("{} was refused: {reason}", show(peer)));
                None
            }
            // Peers that connect several times at once reset all but one.
            Err(error) if was_reset(&error) => {
                tracing::debug!(%error, "reset");
                None
            }
            Err(error) if place.was_lost() => {
                tracing::debug!(%error, "turned away");
                None
            }
            Err(error) => {
                self.output.note(&format!("a connection came to nothing: {error}"));
                None
            }
        }
    }

    /// Where the listener is reached from this host.
    fn wake_addresses(&self) -> Vec<SocketAddr> {
        let address = self.local_addr();
        if !address.ip().is_unspecified() {
            return vec![address];
        }
        let (takes_v4, takes_v6) = families(address);
        // A host may have IPv6 and no address of it.
        let v4 = takes_v4.then_some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let v6 = takes_v6.then_some(IpAddr::V6(Ipv6Addr::LOCALHOST));
        v4.into_iter().chain(v6).map(|ip| SocketAddr::new(ip, address.port())).collect()
    }

    fn accept(
        self: &Arc<Self>,
        serve: &Arc<impl Fn(Arrival) -> Served + Send + Sync + 'static>,
        results: &Sender<Result<(), Failure>>,
    ) {
        let mut told = None;
        loop {
            let accepted = self.listener.accept_stream();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            match accepted {
                Ok(stream) => {
                    told = None;
                    self.start(stream, serve.clone(), results.clone());
                }
                Err(ConnectError::Listen { source, .. }) if ends_listener(&source).is_some() => {
                    complain(format_args!("cannot accept any more: {source}"));
                    return;
                }
                Err(error) => {
                    // It may pass; the listener does not say it more than ten times a second, and
                    // once is enough.
                    let error = error.to_string();
                    if told.as_ref() != Some(&error) {
                        self.output.note(&format!("{error}; who comes has to wait"));
                    }
                    told = Some(error);
                    interrupt::sleep(LOOK);
                }
            }
        }
    }

    fn start(
        self: &Arc<Self>,
        stream: TcpStream,
        serve: Arc<impl Fn(Arrival) -> Served + Send + Sync + 'static>,
        results: Sender<Result<(), Failure>>,
    ) {
        let arrival = self.arrivals.take_in(stream, |silent, reason| {
            self.listener.turn_away(silent, reason);
        });
        let started = thread::start("lacuna-session", move || {
            if let Some(result) = serve(arrival) {
                // Nobody listens once the server ends.
                let _ = results.send(result);
            }
        });
        if let Err(failure) = started {
            tracing::warn!("{failure}");
        }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether the peer has thrown the connection away: it knows why.
fn was_reset(error: &ConnectError) -> bool {
    let (ConnectError::Exchange { source, .. } | ConnectError::Unreachable { source, .. }) = error
    else {
        return false;
    };
    matches!(source.kind(), ErrorKind::ConnectionReset | ErrorKind::NotConnected)
}

/// Why a server takes nobody more than `serving` of those that it serves.
pub(crate) fn busy(serving: usize, once: bool, what: &str) -> String {
    if once {
        return format!("busy: it serves one {what} only (--once) and has it");
    }
    format!("busy: it serves {} already; try again later", show_count(serving as u64, what))
}
