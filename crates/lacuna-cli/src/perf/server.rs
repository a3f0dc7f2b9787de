//! The server: accepts control connections, finds out by their tags what they
//! are for, and serves several clients at once, each on a thread of its own.
//!
//! One thread accepts and nothing else. The exchange with a peer, which may say
//! nothing for as long as it likes to, is on a thread per connection, of which
//! there are so many at most. A client takes a seat with its first connection
//! and gives it back however it ends; a client too many, and a peer that is for
//! something else, is told so before it may send a packet.

use super::ServerArgs;
use super::protocol::Role;
use super::session::Session;
use crate::failure::Failure;
use crate::interrupt::LOOK;
use crate::output::Output;
use crate::units::show_count;
use lacuna::{ConnectError, Connection, ConnectionConfig, Context, ContextConfig, Listener, Wrap};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Control connections at a time, those included that have not said what they
/// want; more are closed at once.
const STREAMS_MAX: usize = 64;
/// How long a client may take from the answer to its second connection: its
/// own limit for connecting, and a little.
const PAIRING: Duration = Duration::from_secs(15);
/// How long clients may take to be told that the server ends.
const GOODBYE: Duration = Duration::from_secs(5);

/// How a server behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Clients at a time.
    pub(super) clients: usize,
    /// End after one.
    pub(super) once: bool,
    /// How long a client may take to connect what is to be measured.
    pub(super) pairing: Duration,
    /// How long a client may send nothing.
    pub(super) idle: Duration,
}

/// See the module's text.
pub(super) struct Server {
    listener: Listener,
    settings: Settings,
    output: Output,
    stop: Box<dyn Fn() -> bool + Send + Sync>,
    is_over: AtomicBool,
    streams: AtomicUsize,
    seats: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    /// By the number of the client's run.
    taken: BTreeMap<u32, Seat>,
    /// With `once`: the client has come.
    is_last_taken: bool,
}

struct Seat {
    /// Where the connection to measure goes, once.
    measured: Option<SyncSender<Connection>>,
    /// Whether there was no other client since it was taken.
    is_alone: Arc<AtomicBool>,
}

/// What an admitted connection is.
enum Admitted<'a> {
    Session(Ticket<'a>),
    Measured(SyncSender<Connection>),
}

/// A seat that is taken; it is given back when this is dropped.
struct Ticket<'a> {
    server: &'a Server,
    run: u32,
    measured: Receiver<Connection>,
    is_alone: Arc<AtomicBool>,
}

impl Settings {
    pub(super) fn new(args: &ServerArgs) -> Self {
        let (pairing, idle) = (PAIRING, super::patience::IDLE);
        Self { clients: usize::from(args.clients), once: args.once, pairing, idle }
    }
}

impl Server {
    /// Listens. `wrap` goes around the datapath of each channel.
    pub(super) fn open(
        args: &ServerArgs,
        settings: Settings,
        wrap: Option<Wrap>,
        output: Output,
        stop: Box<dyn Fn() -> bool + Send + Sync>,
    ) -> Result<Arc<Self>, Failure> {
        let context = Context::new(ContextConfig {
            bind: args.listen.ip(),
            channels: args.end.channels,
            progress: args.end.progress(),
            datapath: args.end.datapath(),
            wrap,
            ..ContextConfig::default()
        })?;
        let config = ConnectionConfig { deadline: Duration::MAX, ..ConnectionConfig::default() };
        let listener = Listener::bind(&context, args.listen, config)?;
        Ok(Arc::new(Self {
            listener,
            settings,
            output,
            stop,
            is_over: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            seats: Mutex::default(),
        }))
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves until it is stopped, or with `once` until its client has ended,
    /// with that client's result.
    pub(super) fn run(self: &Arc<Self>) -> Result<(), Failure> {
        let (results, finished) = channel();
        let accepting = self.clone();
        let accept = start_thread("lacuna-accept", move || accepting.accept(&results))
            .map_err(|error| Failure::Local(format!("the system refused a thread: {error}")))?;
        let result = loop {
            if (self.stop)() {
                break Err(Failure::Interrupted);
            }
            match finished.recv_timeout(LOOK) {
                Ok(result) if self.settings.once => break result,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    break Err(Failure::Local("the listening thread ended".to_owned()));
                }
            }
        };
        self.is_over.store(true, Ordering::Relaxed);
        // The accepting thread waits in the system: a connection wakes it.
        if TcpStream::connect_timeout(&self.wake_addr(), LOOK).is_ok() {
            let _ = accept.join();
        }
        // Sessions notice the end by themselves and say goodbye.
        let since = Instant::now();
        while !self.lock().taken.is_empty() && since.elapsed() < GOODBYE {
            std::thread::park_timeout(LOOK);
        }
        result
    }

    fn wake_addr(&self) -> SocketAddr {
        let mut address = self.local_addr();
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        address
    }

    fn accept(self: &Arc<Self>, results: &Sender<Result<(), Failure>>) {
        loop {
            let accepted = self.listener.accept_stream();
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            match accepted {
                Ok(stream) => self.start(stream, results),
                Err(error) => {
                    // Out of file descriptors, for instance: it may pass.
                    tracing::warn!(%error, "cannot accept");
                    std::thread::park_timeout(LOOK);
                }
            }
        }
    }

    fn start(self: &Arc<Self>, stream: TcpStream, results: &Sender<Result<(), Failure>>) {
        if self.streams.fetch_add(1, Ordering::Relaxed) >= STREAMS_MAX {
            self.streams.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("more than {STREAMS_MAX} connections at a time: one was closed");
            return;
        }
        let (server, results) = (self.clone(), results.clone());
        let started = start_thread("lacuna-client", move || {
            let result = server.connected(stream);
            server.streams.fetch_sub(1, Ordering::Relaxed);
            if let Some(result) = result {
                // Nobody listens once the server ends.
                let _ = results.send(result);
            }
        });
        if let Err(error) = started {
            self.streams.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%error, "the system refused a thread");
        }
    }

    /// Serves one control connection to its end; `None` if no client's seat
    /// depended on it.
    fn connected(&self, stream: TcpStream) -> Option<Result<(), Failure>> {
        let mut admitted = None;
        let agreed = self.listener.agree_if(stream, |tag| {
            admitted = Some(self.admit(tag)?);
            Ok(())
        });
        let connection = match agreed {
            Ok(connection) => connection,
            Err(ConnectError::Unacceptable { peer, reason }) => {
                self.output.note(&format!("{peer} was refused: {reason}"));
                return None;
            }
            Err(error) => {
                self.output.note(&format!("a connection came to nothing: {error}"));
                return None;
            }
        };
        match admitted? {
            Admitted::Measured(session) => {
                // The session may have ended meanwhile: then this one ends too.
                let _ = session.try_send(connection);
                None
            }
            Admitted::Session(ticket) => Some(self.session(&connection, &ticket)),
        }
    }

    fn session(&self, connection: &Connection, ticket: &Ticket<'_>) -> Result<(), Failure> {
        self.lock().is_last_taken = self.settings.once;
        let peer = connection.peer();
        let session = Session {
            connection,
            measured: &ticket.measured,
            pairing: self.settings.pairing,
            idle: self.settings.idle,
            is_alone: &|| ticket.is_alone.load(Ordering::Relaxed),
            stop: &self.stop,
            output: self.output,
        };
        let result = session.serve();
        match &result {
            Ok(()) => self.output.note(&format!("{peer}: served")),
            Err(Failure::Interrupted) => {}
            Err(failure) if self.settings.once => tracing::debug!(%peer, %failure, "ended"),
            Err(failure) => self.output.note(&format!("{peer}: {failure}")),
        }
        result
    }

    /// Decides by its tag whether a connection may come in.
    fn admit(&self, tag: u64) -> Result<Admitted<'_>, String> {
        let Some((role, run)) = Role::of(tag) else {
            return Err("this is lacuna perf server: files go to lacuna recv".to_owned());
        };
        let mut seats = self.lock();
        match role {
            Role::Session => seats.take(run, &self.settings).map(|(measured, is_alone)| {
                Admitted::Session(Ticket { server: self, run, measured, is_alone })
            }),
            Role::Measured => {
                let seat = seats.taken.get_mut(&run);
                let session = seat.and_then(|seat| seat.measured.take());
                session.map(Admitted::Measured).ok_or_else(|| {
                    "no client waits for this connection: its session has ended".to_owned()
                })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    fn take(
        &mut self,
        run: u32,
        settings: &Settings,
    ) -> Result<(Receiver<Connection>, Arc<AtomicBool>), String> {
        let serving = self.taken.len();
        if settings.once && (self.is_last_taken || serving > 0) {
            return Err("busy: it serves one client only (--once) and has it".to_owned());
        }
        if serving >= settings.clients {
            let clients = show_count(serving as u64, "client");
            return Err(format!("busy: it serves {clients} already; try again later"));
        }
        if self.taken.contains_key(&run) {
            return Err("busy: a client of the same number is there; try again".to_owned());
        }
        for seat in self.taken.values() {
            seat.is_alone.store(false, Ordering::Relaxed);
        }
        let is_alone = Arc::new(AtomicBool::new(self.taken.is_empty()));
        let (measured, connected) = sync_channel(1);
        let seat = Seat { measured: Some(measured), is_alone: is_alone.clone() };
        self.taken.insert(run, seat);
        Ok((connected, is_alone))
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.server.lock().taken.remove(&self.run);
    }
}

fn start_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}
