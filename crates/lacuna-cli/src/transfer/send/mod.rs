//! `lacuna send`: walks the given paths, offers, sends what is asked for, and
//! goes on after a break.
//!
//! Three threads serve a connection: this one reads and packs (`produce`), one
//! hears the answers (`answers`), one keeps the connection alive and draws the
//! progress. A fourth hashes.

mod answers;
mod board;
mod packer;
mod produce;
mod walk;

use super::digest::HashThread;
use super::inbound::Inbound;
use super::lane::Lane;
use super::name::shown;
use super::pool::Pool;
use super::progress::{Progress, Snapshot};
use super::report::{Measured, Reporter, Side};
use super::silence::{Signs, Silence};
use super::wire::{ANSWER_BYTES, BLOCK_BYTES, Record};
use super::{SendArgs, blocks_ahead, interrupt, target};
use crate::failure::Failure;
use crate::output::Output;
use board::{Board, Ended};
use lacuna::{ConnectError, Connection, ConnectionConfig, Context, ContextConfig};
use packer::Packer;
use produce::Producer;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use walk::{Entry, Walker};

/// Answers that may be on their way.
const ANSWERS_AHEAD: usize = 16;
/// Shortest and longest pause before another attempt.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));
/// How often progress is drawn.
const TICK: Duration = Duration::from_millis(100);

/// What lasts from one attempt to the next.
struct Transfer<'a> {
    args: &'a SendArgs,
    target: String,
    session: [u8; 16],
    walker: Walker,
    board: Board,
    reporter: Reporter,
    progress: Arc<Progress>,
    hashes: HashThread,
    total: Arc<OnceLock<(u64, u64)>>,
    /// Of the connections before.
    moved_bytes: u64,
    packets: u64,
    retransmitted: u64,
    reconnects: u64,
    peer: String,
}

/// See the module's text.
pub(crate) fn run(args: &SendArgs, output: Output) -> Result<(), Failure> {
    if !args.mode.is_reliable() {
        return Err(Failure::Usage(format!("mode {} does not repair losses: use sr", args.mode)));
    }
    let (paths, target) = target::split(&args.words)?;
    let roots = walk::roots(&paths)?;
    interrupt::install()?;
    let progress = Arc::new(Progress::new(output, Side::Sender));
    let total = Arc::new(OnceLock::new());
    count(Walker::new(roots.clone()), total.clone());
    let hashes = HashThread::start()
        .map_err(|error| Failure::Local(format!("the system refused a thread: {error}")))?;
    let mut transfer = Transfer {
        args,
        peer: target.clone(),
        target,
        session: random_id(),
        walker: Walker::new(roots),
        board: Board::new(),
        reporter: Reporter::new(output, progress.clone()),
        progress,
        hashes,
        total,
        moved_bytes: 0,
        packets: 0,
        retransmitted: 0,
        reconnects: 0,
    };
    transfer.run()
}

impl Transfer<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let mut connected = false;
        let mut since = Instant::now();
        let mut back_off = BACK_OFF.0;
        let ended = loop {
            let before = (self.moved_bytes, self.board.settled());
            let was_connected = connected;
            let ended = match self.attempt(&mut connected, was_connected) {
                Ok(()) => break None,
                Err(_) if interrupt::requested() => break Some(Failure::Interrupted),
                Err(Ended::Failed(failure)) => break Some(failure),
                Err(Ended::Lost(reason)) => reason,
            };
            if (self.moved_bytes, self.board.settled()) != before {
                (since, back_off) = (Instant::now(), BACK_OFF.0);
            }
            if !connected || since.elapsed() + back_off >= self.args.retry {
                break Some(Failure::Network(self.given_up(ended, connected)));
            }
            let note = format!("{ended}; trying again in {:.1} s", back_off.as_secs_f64());
            self.progress.note(&note);
            interrupt::sleep(back_off);
            back_off = (back_off * 2).min(BACK_OFF.1);
        };
        if matches!(ended, Some(Failure::Interrupted)) {
            self.progress.note("interrupted: run the same command again to resume");
        }
        let measured = Measured {
            side: Side::Sender,
            is_reached: connected,
            elapsed: self.progress.elapsed(),
            moved_bytes: self.moved_bytes,
            repaired_share: share(self.retransmitted, self.packets),
            reconnects: self.reconnects,
            peer: self.peer.clone(),
        };
        self.reporter.finish(&measured, ended)
    }

    fn given_up(&self, reason: String, connected: bool) -> String {
        if !connected {
            return reason;
        }
        if self.args.retry.is_zero() {
            return format!("{reason}; run the same command again to resume");
        }
        format!(
            "{reason}; gave up after trying for {} s, run the same command again to resume",
            self.args.retry.as_secs()
        )
    }

    /// One connection. `connected` tells whether there was one.
    fn attempt(&mut self, connected: &mut bool, again: bool) -> Result<(), Ended> {
        let connection = self.connect().map_err(|error| match error {
            // It was there before: it may come back.
            error if again && error.is_retryable() => Ended::Lost(error.to_string()),
            error => Ended::Failed(error.into()),
        })?;
        *connected = true;
        self.reconnects += u64::from(again);
        self.peer = connection.peer().to_string();
        self.progress.note(&format!("sending to {}: {}", self.peer, connection.chosen()));
        self.board.begin();
        let mut alive = Vec::new();
        Record::Alive.emit(&mut alive);
        let lane = Lane::new(connection.clone(), alive);
        let result = self.serve(&connection, &lane);
        lane.tick();
        self.moved_bytes += lane.delivered_bytes();
        let sent = connection.stats().sent;
        self.packets += sent.packets;
        self.retransmitted += sent.retransmitted_packets;
        result
    }

    fn serve(&mut self, connection: &Connection, lane: &Lane) -> Result<(), Ended> {
        let ahead = blocks_ahead(connection.chosen().rtt_us, self.args.buffers);
        let pool = Pool::new(BLOCK_BYTES, ahead + 2);
        let answers_pool = Pool::new(ANSWER_BYTES, ANSWERS_AHEAD + 1);
        let mut inbound = Inbound::new(connection.clone(), answers_pool, ANSWERS_AHEAD);
        let (board, reporter) = (&self.board, &self.reporter);
        let over = AtomicBool::new(false);
        let moved_before = self.moved_bytes;
        let silence = Mutex::new(Silence::new(Instant::now()));
        let view = View {
            connection,
            lane,
            board,
            reporter,
            progress: &self.progress,
            silence: &silence,
            moved_before,
        };
        self.progress.restart();
        let total = &self.total;
        let result = std::thread::scope(|scope| {
            let is_over = || over.load(Ordering::Relaxed) || interrupt::requested();
            let hearing =
                scope.spawn(move || answers::hear(&mut inbound, board, reporter, &is_over));
            let ticking = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    lane.tick();
                    view.draw(total.get().copied());
                    std::thread::park_timeout(TICK);
                }
            });
            let stop = || interrupt::requested() || board.has_ended();
            let mut producer = Producer {
                board,
                walker: &mut self.walker,
                packer: Packer::new(lane, pool, &self.hashes, &stop),
                reporter,
                stop: &stop,
                total: &|| total.get().copied(),
                is_total_told: false,
            };
            let result = producer.run(self.session, self.args.quick);
            drop(producer);
            if matches!(result, Err(Ended::Lost(_))) && !interrupt::requested() {
                // The receiver's last words say more than a failed write.
                let since = Instant::now();
                while !board.has_ended() && since.elapsed() < Duration::from_secs(2) {
                    board.wait(interrupt::LOOK);
                    if hearing.is_finished() {
                        break;
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
            ticking.thread().unpark();
            let _ = (hearing.join(), ticking.join());
            result
        });
        result.map_err(|ended| match (ended, self.board.take_ended()) {
            (Ended::Lost(_), Some(why)) => why,
            (ended, _) => ended,
        })
    }

    /// Connects to the first of the target's addresses that answers, from
    /// sockets of the same family.
    fn connect(&self) -> Result<Connection, ConnectError> {
        let unreachable = |source| ConnectError::Unreachable { peer: self.target.clone(), source };
        let addresses: Vec<SocketAddr> =
            self.target.to_socket_addrs().map_err(unreachable)?.collect();
        let mut last = None;
        for address in addresses {
            match self.connect_to(address) {
                Err(error @ ConnectError::Unreachable { .. }) => last = Some(error),
                result => return result,
            }
        }
        Err(last.unwrap_or_else(|| {
            unreachable(std::io::Error::new(
                std::io::ErrorKind::NotFound,
                "the name has no address",
            ))
        }))
    }

    fn connect_to(&self, address: SocketAddr) -> Result<Connection, ConnectError> {
        let bind: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let context = Context::new(ContextConfig {
            bind,
            channels: self.args.channels,
            ..ContextConfig::default()
        })?;
        let config = ConnectionConfig {
            mode: self.args.mode,
            chunk_bytes: self.args.chunk,
            mtu_bytes: self.args.mtu,
            rate_bits_per_s: self.args.rate,
            ..ConnectionConfig::default()
        };
        Connection::connect(&context, address, config)
    }
}

/// What the progress is drawn from.
struct View<'a> {
    connection: &'a Connection,
    lane: &'a Lane,
    board: &'a Board,
    reporter: &'a Reporter,
    progress: &'a Progress,
    silence: &'a Mutex<Silence>,
    moved_before: u64,
}

impl View<'_> {
    fn draw(&self, total: Option<(u64, u64)>) {
        let so_far = self.reporter.so_far();
        let stats = self.connection.stats();
        let delivered_bytes = self.lane.delivered_bytes();
        let position = self.board.position(delivered_bytes);
        let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = silence.look(Instant::now(), Signs::new(&stats, delivered_bytes));
        self.progress.update(&Snapshot {
            moved_bytes: self.moved_before + delivered_bytes,
            done_bytes: position.done_bytes,
            bytes_total: total.map(|(_, bytes)| bytes),
            files: so_far.files + so_far.refused + so_far.failed,
            files_total: total.map(|(files, _)| files),
            repaired_share: stats.sent.retransmission_share,
            silent,
            name: position.current.map(|(name, _)| shown(&name)),
        });
    }
}

/// Counts files and bytes beside the transfer, for the time left.
fn count(walker: Walker, total: Arc<OnceLock<(u64, u64)>>) {
    let counting = move || {
        let (mut files, mut bytes) = (0, 0);
        for entry in walker {
            if let Entry::Item(item) = entry
                && item.meta.kind == super::wire::Kind::File
            {
                files += 1;
                bytes += item.meta.size_bytes;
            }
        }
        let _ = total.set((files, bytes));
    };
    // Without it only the time left is missing.
    let _ = std::thread::Builder::new().name("lacuna-count".to_owned()).spawn(counting);
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    for half in id.chunks_mut(8) {
        // Keyed with the system's randomness.
        half.copy_from_slice(&RandomState::new().hash_one(std::process::id()).to_be_bytes());
    }
    id
}
