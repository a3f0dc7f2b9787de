//! The sending side: walks the given paths, offers, sends what the receiver requests, and goes on
//! after a break.
//!
//! It connects to a receiver ([`Sender`]) or is connected to by one ([`SendListener`]): the file
//! protocol and all below it is the same (`route.rs`).
//!
//! Four threads serve a connection: the caller's reads files and packs blocks (`produce.rs`), one
//! reads the receiver's answers (`answers.rs`), one sends keep-alives and reports progress, one
//! hashes.

mod answers;
mod item_queue;
mod listen;
mod packer;
mod produce;
mod route;
mod walk;

pub use listen::SendListener;

use crate::blocks_ahead;
use crate::digest::HashThread;
use crate::error::{Kept, PathError, SendError};
use crate::inbound::Inbound;
use crate::name::shown;
use crate::observer::{Event, Observer, Progress};
use crate::outbound::Outbound;
use crate::pool::BufferPool;
use crate::rate::Rate;
use crate::report::{Summary, Tally};
use crate::retry::{Attempt, GivenUp, Life, Retry, attempts};
use crate::silence::{ActivityCounters, Silence};
use crate::wire::{ANSWER_BYTES, BLOCK_BYTES, Kind, Record};
use item_queue::{Ended, ItemQueue};
use lacuna::address::show;
use lacuna::{AutoStats, Connection, ConnectionConfig, ContextConfig};
use lacuna_service::thread::{self, ThreadError};
use lacuna_service::{Purpose, STOP_POLL, Stop, random};
use packer::Packer;
use produce::Producer;
use route::Route;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use walk::{Entry, Root, Walker};

/// Receives posted for answers.
const ANSWERS_AHEAD: usize = 16;
/// How often progress is reported.
const TICK: Duration = Duration::from_millis(100);

/// How to send.
#[derive(Clone)]
pub struct SendOptions {
    /// How long to retry without any progress; zero gives up at the first break. A connection
    /// counts as broken after half of this without an answer, but not before 5 s and not later than
    /// 30 s.
    pub retry: Duration,
    /// Treat files with equal size and time at the receiver as identical, without reading them.
    pub quick: bool,
    /// Memory for data in flight; `None` chooses 32 to 160 MiB by the round-trip time. See
    /// [`BUFFERS_BYTES`](crate::BUFFERS_BYTES).
    pub buffers_bytes: Option<u64>,
    /// The transport: mode, packet size, controller. The sender overrides `tag`, `silence` and
    /// `connect_timeout`.
    pub connection: ConnectionConfig,
    /// Socket options. `bind` is ignored: the sender chooses it by the receiver's address.
    pub sockets: ContextConfig,
    /// How long the first connection may take, at most, and then the receiver has to be heard, or nothing is tried again;
    /// `None` leaves that to the sender.
    pub connect_within: Option<Duration>,
    /// Ends the transfer early.
    pub stop: Stop,
}

impl Default for SendOptions {
    fn default() -> Self {
        Self {
            retry: Duration::from_secs(60),
            quick: false,
            buffers_bytes: None,
            connection: ConnectionConfig::default(),
            sockets: ContextConfig::default(),
            connect_within: None,
            stop: Stop::new(),
        }
    }
}

/// Files and folders that were checked: they exist and have names that a receiver accepts.
#[derive(Debug, Clone)]
pub struct Sources(Vec<Root>);

impl Sources {
    /// Checks paths. A path that is a link is followed; links found below are not.
    ///
    /// # Errors
    /// When a path does not exist, is neither file nor folder, has no name, or has the name of
    /// another.
    pub fn check(paths: &[impl AsRef<Path>]) -> Result<Self, PathError> {
        walk::roots(paths).map(Self)
    }

    /// The names that they have at the receiver, in the order of the paths.
    #[must_use]
    pub fn names(&self) -> Vec<Vec<u8>> {
        self.0.iter().map(|root| root.name().to_vec()).collect()
    }
}

/// Sends files and folders.
///
/// ```no_run
/// use lacuna_transfer::{SendOptions, Sender};
///
/// let sender = Sender::new(SendOptions::default());
/// let summary = sender.send(&["photos", "notes.txt"], "receiver:7400", &())?;
/// println!("{} files, {} bytes moved", summary.files, summary.moved_bytes);
/// # Ok::<(), lacuna_transfer::SendError>(())
/// ```
#[derive(Clone, Default)]
pub struct Sender {
    options: SendOptions,
}

impl Sender {
    /// A sender with these options.
    #[must_use]
    pub fn new(options: SendOptions) -> Self {
        Self { options }
    }

    /// Sends files and folders under their last names to `receiver` (HOST:PORT). Blocks until
    /// everything is at the receiver.
    ///
    /// # Errors
    /// When anything is not at the receiver. [`Observer::on_summary`] was given what is.
    pub fn send(
        &self,
        paths: &[impl AsRef<Path>],
        receiver: &str,
        observer: &dyn Observer,
    ) -> Result<Summary, SendError> {
        self.send_sources(Sources::check(paths)?, receiver, observer)
    }

    /// [`send`](Self::send) with paths that were checked before.
    ///
    /// # Errors
    /// As there.
    pub fn send_sources(
        &self,
        sources: Sources,
        receiver: &str,
        observer: &dyn Observer,
    ) -> Result<Summary, SendError> {
        Transfer::new(&self.options, sources, Route::Connect(receiver), observer).run()
    }
}

/// State of a transfer across connections.
struct Transfer<'a> {
    options: &'a SendOptions,
    started: Instant,
    route: Route<'a>,
    session: [u8; 16],
    walker: Walker,
    items: ItemQueue,
    tally: Tally<'a>,
    rate: Mutex<Rate>,
    /// Files there are in all and the data in them, once counted.
    total: Arc<OnceLock<(u64, u64)>>,
    /// Bytes moved in earlier connections.
    moved_bytes: u64,
    packets: u64,
    retransmitted: u64,
    parity: u64,
    /// The choice of mode `auto` in the newest connection that sent anything.
    auto: Option<AutoStats>,
    reconnects: u64,
    peer: String,
    wire: Option<&'static str>,
    /// The file in flight when the last connection ended, and how much of it the receiver has.
    current: Option<(Vec<u8>, u64)>,
}

impl<'a> Transfer<'a> {
    fn new(
        options: &'a SendOptions,
        Sources(roots): Sources,
        route: Route<'a>,
        observer: &'a dyn Observer,
    ) -> Self {
        let total = Arc::new(OnceLock::new());
        count(Walker::new(roots.clone()), total.clone());
        Self {
            options,
            started: Instant::now(),
            peer: route.peer(),
            route,
            session: random_id(),
            walker: Walker::new(roots),
            items: ItemQueue::new(),
            tally: Tally::new(observer),
            rate: Mutex::default(),
            total,
            moved_bytes: 0,
            packets: 0,
            retransmitted: 0,
            parity: 0,
            auto: None,
            reconnects: 0,
            wire: None,
            current: None,
        }
    }

    fn run(mut self) -> Result<Summary, SendError> {
        let (limit, stop) = (self.options.retry, self.options.stop.clone());
        let observer = self.tally.observer();
        let ended = attempts(limit, &stop, observer, |retry, again| self.attempt(retry, again));
        let ended = ended.err().map(|given_up| match given_up {
            GivenUp::Interrupted => SendError::Interrupted,
            GivenUp::Lost(reason) => SendError::Lost { reason, retry: limit },
            GivenUp::Failed(error) => error,
        });
        if matches!(ended, Some(SendError::Interrupted)) && self.items.was_welcome() {
            let kept = self.current.as_ref().filter(|(_, bytes)| *bytes > 0);
            let kept = kept.map(|(name, bytes)| Kept { name: shown(name), bytes: *bytes });
            self.tally.observer().on_event(&Event::Interrupted { kept });
        }
        let measured = Summary {
            is_reached: self.items.was_welcome(),
            elapsed: self.started.elapsed(),
            moved_bytes: self.moved_bytes,
            repaired_share: share(self.retransmitted, self.packets),
            parity_share: share(self.parity, self.packets),
            auto: self.auto.clone(),
            reconnects: self.reconnects,
            peer: self.peer.clone(),
            wire: self.wire,
            ..Summary::default()
        };
        let (summary, failed) = self.tally.finish(measured, ended.is_some());
        match (ended, failed) {
            (Some(error), _) => Err(error),
            (None, Some(failed)) => Err(failed.into()),
            (None, None) => Ok(summary),
        }
    }

    /// One connection; `again` if there was one before.
    fn attempt(&mut self, retry: &Retry, again: bool) -> Result<(), Attempt<SendError>> {
        let before = (self.moved_bytes, self.items.settled());
        let connection = self.route.next(self.options, self.tag(), retry, again);
        let connection = connection.map_err(|why| Attempt { why, life: None })?;
        self.reconnects += u64::from(again);
        self.peer = show(connection.peer()).to_string();
        self.wire = Some(connection.chosen().wire);
        let observer = self.tally.observer();
        observer.on_event(&Event::Connected { connection: &connection });
        self.items.begin();
        let mut alive = Vec::new();
        Record::Alive.emit(&mut alive);
        let outbound = Outbound::new(connection.clone(), alive);
        let began = Instant::now();
        let silence = Mutex::new(Silence::new(began));
        let result = self.serve(&connection, &outbound, &silence);
        outbound.tick();
        self.moved_bytes += outbound.delivered_bytes();
        self.current = self.items.position(outbound.delivered_bytes()).current;
        let stats = connection.stats();
        let (packet_bytes, payload_bytes_max) =
            (connection.chosen().mtu_bytes, stats.payload_bytes_max);
        if payload_bytes_max < packet_bytes {
            observer.on_event(&Event::Narrower { packet_bytes, payload_bytes_max });
        }
        let sent = stats.sent;
        self.auto = stats.auto.filter(|auto| auto.messages > 0).or(self.auto.take());
        self.packets += sent.packets;
        self.retransmitted += sent.retransmitted_packets;
        self.parity += sent.parity_packets;
        let heard = silence.into_inner().unwrap_or_else(PoisonError::into_inner).heard();
        let has_progressed = (self.moved_bytes, self.items.settled()) != before;
        let life = Some(Life { began, heard, has_progressed });
        let is_unheard = self.options.connect_within.is_some() && !self.items.was_welcome();
        result.map_err(|why| match why {
            Ended::Lost(reason) if is_unheard => {
                let error = SendError::Lost { reason, retry: Duration::ZERO };
                Attempt { why: Ended::Failed(error), life }
            }
            why => Attempt { why, life },
        })
    }

    fn serve(
        &mut self,
        connection: &Connection,
        outbound: &Outbound,
        silence: &Mutex<Silence>,
    ) -> Result<(), Ended> {
        let ahead = blocks_ahead(connection.chosen().rtt_us, self.options.buffers_bytes);
        let pool = BufferPool::new(BLOCK_BYTES, ahead + 2);
        let answers_pool = BufferPool::new(ANSWER_BYTES, ANSWERS_AHEAD + 1);
        let mut inbound = Inbound::new(connection.clone(), answers_pool, ANSWERS_AHEAD);
        let (items, tally, asked) = (&self.items, &self.tally, &self.options.stop);
        let route = &self.route;
        let hashes = HashThread::start().map_err(failed)?;
        let over = AtomicBool::new(false);
        let moved_before = self.moved_bytes;
        let view = View {
            connection,
            hashes: &hashes,
            outbound,
            items,
            tally,
            rate: &self.rate,
            silence,
            moved_before,
        };
        // The time before this connection does not count for the rate.
        lock(&self.rate).restart();
        let total = &self.total;
        let result = std::thread::scope(|scope| {
            let ends = thread::Over(&over);
            let is_over = || over.load(Ordering::Relaxed) || asked.is_requested();
            let hearing = thread::start_in(scope, "answers", move || {
                answers::read_answers(&mut inbound, items, tally, &is_over);
            });
            let hearing = hearing.map_err(failed)?;
            let ticking = thread::start_in(scope, "progress", || {
                while !over.load(Ordering::Relaxed) {
                    outbound.tick();
                    if route.has_newer() {
                        items.end(Ended::Lost("the receiver connected again".to_owned()));
                    }
                    if asked.is_requested() || items.has_ended() {
                        hashes.abandon();
                    }
                    view.report(total.get().copied());
                    std::thread::park_timeout(TICK);
                }
            });
            let ticking = ticking.map_err(failed)?;
            let stop = || asked.is_requested() || items.has_ended();
            let mut producer = Producer {
                items,
                walker: &mut self.walker,
                packer: Packer::new(outbound, pool, &hashes, &stop),
                tally,
                stop: &stop,
                total: &|| total.get().copied(),
                is_total_told: false,
                tells_unsent: route.tells_unsent(),
            };
            let result = producer.run(self.session, self.options.quick);
            drop(producer);
            if matches!(result, Err(Ended::Lost(_))) && !asked.is_requested() {
                // The receiver's final answer says more than a failed write: wait for it.
                let since = Instant::now();
                while !items.has_ended() && since.elapsed() < Duration::from_secs(2) {
                    items.wait(STOP_POLL);
                    if hearing.is_finished() {
                        break;
                    }
                }
            }
            drop(ends);
            ticking.thread().unpark();
            let _ = (hearing.join(), ticking.join());
            result
        });
        result.map_err(|ended| match (ended, self.items.take_ended()) {
            (Ended::Lost(_), Some(why)) => why,
            (ended, _) => ended,
        })
    }

    /// What the connection is for, and which transfer.
    fn tag(&self) -> u64 {
        let [a, b, c, d, ..] = self.session;
        Purpose::Files.tag(u32::from_be_bytes([a, b, c, d]))
    }
}

fn failed(error: ThreadError) -> Ended {
    Ended::Failed(error.into())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the progress is computed from.
struct View<'a> {
    connection: &'a Connection,
    hashes: &'a HashThread,
    outbound: &'a Outbound,
    items: &'a ItemQueue,
    tally: &'a Tally<'a>,
    rate: &'a Mutex<Rate>,
    silence: &'a Mutex<Silence>,
    moved_before: u64,
}

impl View<'_> {
    fn report(&self, total: Option<(u64, u64)>) {
        let stats = self.connection.stats();
        let delivered_bytes = self.outbound.delivered_bytes();
        let position = self.items.position(delivered_bytes);
        let now = Instant::now();
        let silent = lock(self.silence).look(now, ActivityCounters::new(&stats, delivered_bytes));
        let mut progress = Progress {
            moved_bytes: self.moved_before + delivered_bytes,
            done_bytes: position.done_bytes,
            bytes_total: total.map(|(_, bytes)| bytes),
            files: self.tally.files_ended(),
            files_total: total.map(|(files, _)| files),
            bytes_per_s: None,
            repaired_share: stats.sent.retransmission_share,
            silent,
            zeros_left_bytes: self.hashes.zeros_left_bytes(),
            name: position.current.map(|(name, _)| shown(&name)),
        };
        lock(self.rate).measure(now, &mut progress);
        self.tally.observer().on_progress(&progress);
    }
}

/// Counts files and their data beside the transfer, for the estimate of the time left.
fn count(walker: Walker, total: Arc<OnceLock<(u64, u64)>>) {
    let counting = move || {
        let (mut files, mut bytes) = (0, 0);
        for entry in walker {
            if let Entry::Item(item) = entry
                && item.meta.kind == Kind::File
            {
                files += 1;
                bytes += item.meta.data_bytes;
            }
        }
        let _ = total.set((files, bytes));
    };
    // Without the count only the time left is missing.
    let _ = thread::start("lacuna-count", counting);
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    for half in id.chunks_mut(8) {
        half.copy_from_slice(&random().to_be_bytes());
    }
    id
}
