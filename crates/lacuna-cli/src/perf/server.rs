//! The server: serves several clients at a time, each in a seat.
//!
//! A client takes a seat with its first connection and releases it however it ends. Its second
//! connection finds the seat by the number of the client's run. With all seats taken, a client is
//! refused before it may send a packet.

use super::ServerArgs;
use super::datagram::Placed;
use super::report::Counted;
use super::session::{Session, Taken};
use crate::capture::{Capture, Captured, Captures};
use crate::failure::{Ending, Failure};
use crate::output::{Output, complain};
use crate::units::{show_bytes, show_count, show_time};
use lacuna::address::show;
use lacuna::{Connection, ConnectionConfig, ContextConfig, Incoming, Wrap};
use lacuna_service::{Acceptor, Purpose, Served, busy, sockets};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a client may take from the answer to its second connection: its own connect timeout and
/// a little more.
const PAIRING: Duration = Duration::from_secs(15);
/// How long telling the clients that the server ends may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// How a server behaves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Clients at a time.
    pub(super) clients: usize,
    /// End after one.
    pub(super) once: bool,
    /// How long a client may take to open the measured connection.
    pub(super) pairing: Duration,
    /// How long a client may send nothing.
    pub(super) idle: Duration,
}

/// A perf server.
pub(super) struct Server {
    acceptor: Arc<Acceptor>,
    settings: Settings,
    capture: Capture,
    output: Output,
    stop: Box<dyn Fn() -> bool + Send + Sync>,
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
    /// Where the measured connection is sent, once.
    measured: Option<SyncSender<Connection>>,
    /// Whether there was no other client since the seat was taken.
    is_alone: Arc<AtomicBool>,
}

/// The purpose of an admitted connection.
enum Admitted<'a> {
    Session(SeatGuard<'a>),
    Measured(SyncSender<Connection>),
}

/// What was counted of a client, with `--json`.
#[derive(Debug, Serialize)]
struct ClientResult {
    client: String,
    mode: String,
    size_bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    ending: Ending,
    #[serde(flatten)]
    counted: Counted,
    server_cpu_s: Option<f64>,
    /// What came of datagrams, to the packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    datagrams: Option<Placed>,
    /// Of all clients until now.
    capture: Option<Captured>,
}

impl ClientResult {
    fn new(
        client: String,
        taken: &Taken,
        failure: Option<&Failure>,
        capture: Option<Captured>,
    ) -> Self {
        Self {
            client,
            mode: taken.mode.clone(),
            size_bytes: taken.size_bytes,
            seconds: taken.took.as_secs_f64(),
            ending: Ending::of(failure),
            counted: Counted::new(&taken.counters, taken.size_bytes),
            server_cpu_s: taken.counters.cpu_s,
            datagrams: taken.counters.datagrams,
            capture,
        }
    }
}

/// The same for people.
fn describe(taken: &Taken) -> String {
    let messages = show_count(taken.counters.messages, "message");
    let size = show_bytes(taken.size_bytes);
    format!("{messages} of {size} in {}", show_time(taken.took.as_secs_f64()))
}

/// A taken seat; dropping it releases the seat.
struct SeatGuard<'a> {
    server: &'a Server,
    run: u32,
    measured: Receiver<Connection>,
    is_alone: Arc<AtomicBool>,
}

impl Settings {
    pub(super) fn new(args: &ServerArgs) -> Self {
        let (pairing, idle) = (PAIRING, super::give_up::IDLE);
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
        let capture = Capture::open(&args.end.capture, Captures::Transport, output)?;
        let config = ContextConfig {
            channels: args.end.channels,
            progress: args.end.progress(),
            datapath: args.end.datapath(),
            wrap: capture.around(wrap),
            ..ContextConfig::default()
        };
        let config = args.end.trust.context(config, output)?;
        let context = sockets(args.listen, config)?;
        let config = ConnectionConfig { deadline: Duration::MAX, ..ConnectionConfig::default() };
        let acceptor = Acceptor::open(&context, args.listen, config, output.on_accept())?;
        Ok(Arc::new(Self { acceptor, settings, capture, output, stop, seats: Mutex::default() }))
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        self.acceptor.local_addr()
    }

    pub(super) fn capture(&self) -> &Capture {
        &self.capture
    }

    /// Serves until it is stopped, or with `once` until its client has ended,
    /// with that client's result.
    pub(super) fn run(self: &Arc<Self>) -> Result<(), Failure> {
        let server = self.clone();
        let serve = move |incoming| server.connected(incoming);
        self.acceptor.run(self.settings.once, &self.stop, GOODBYE, serve)
    }

    /// Serves one control connection to its end. It counts if it belongs to a client with a seat.
    fn connected(&self, incoming: Incoming) -> Served<Failure> {
        let (guest, admitted) = self.acceptor.let_in(incoming, |tag| self.admit(tag))?;
        match admitted {
            Admitted::Measured(session) => {
                // If the session has ended meanwhile, this connection ends, too.
                let _ = session.try_send(guest.connection.clone());
                None
            }
            Admitted::Session(seat) => Some(self.session(&guest.connection, &seat)),
        }
    }

    fn session(&self, connection: &Connection, seat: &SeatGuard<'_>) -> Result<(), Failure> {
        self.lock().is_last_taken = self.settings.once;
        let peer = show(connection.peer()).to_string();
        let session = Session {
            connection,
            measured: &seat.measured,
            pairing: self.settings.pairing,
            idle: self.settings.idle,
            is_alone: &|| seat.is_alone.load(Ordering::Relaxed),
            stop: &self.stop,
            output: self.output,
        };
        let mut taken = None;
        let result = session.serve(&mut taken);
        if let Some(taken) = &taken
            && self.output.json
        {
            let capture = self.capture.so_far();
            let told = ClientResult::new(peer.clone(), taken, result.as_ref().err(), capture);
            // A failure to print does not end the server.
            self.output.object(&told).unwrap_or_else(complain);
        }
        let counted = taken.map(|taken| describe(&taken));
        self.output.note(&match (&result, counted) {
            (Ok(()), counted) => format!("{peer}: served, {}", counted.unwrap_or_default()),
            (Err(failure), Some(counted)) => format!("{peer}: {failure}; until then {counted}"),
            // The last line of the process reports it.
            (Err(Failure::Interrupted), None) => return result,
            (Err(_), None) if self.settings.once => return result,
            (Err(failure), None) => format!("{peer}: {failure}"),
        });
        result
    }

    /// Decides by its tag whether to admit a connection.
    fn admit(&self, tag: u64) -> Result<Admitted<'_>, String> {
        let mut seats = self.lock();
        match Purpose::of(tag) {
            Some((Purpose::Session, run)) => {
                seats.take(run, &self.settings).map(|(measured, is_alone)| {
                    Admitted::Session(SeatGuard { server: self, run, measured, is_alone })
                })
            }
            Some((Purpose::Measured, run)) => {
                let seat = seats.taken.get_mut(&run);
                let session = seat.and_then(|seat| seat.measured.take());
                session.map(Admitted::Measured).ok_or_else(|| {
                    "no client waits for this connection: its session has ended".to_owned()
                })
            }
            Some((Purpose::Files | Purpose::Fetch, _)) | None => Err(Purpose::Session.refusal(tag)),
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
            return Err(busy(serving, true, "client"));
        }
        if serving >= settings.clients {
            return Err(busy(serving, false, "client"));
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

impl Drop for SeatGuard<'_> {
    fn drop(&mut self) {
        self.server.lock().taken.remove(&self.run);
    }
}
