//! `lacuna send`: walks the given paths, offers, sends what is asked for, and
//! goes on after a break.
//!
//! Three threads serve a connection: this one reads and packs (`produce`), one
//! hears the answers (`answers`), one keeps the connection alive and draws the
//! progress. A fourth hashes.

mod answers;
mod board;
mod packer;
mod patience;
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
use super::{SendArgs, blocks_ahead, target};
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::output::{Output, narrower, start_line};
use crate::purpose::{self, Purpose};
use crate::units::show_bytes;
use crate::{interrupt, reach, thread};
use board::{Board, Ended};
use lacuna::address::show;
use lacuna::{AutoStats, ConnectError, Connection, ConnectionConfig, ContextConfig};
use packer::Packer;
use patience::{Life, Patience};
use produce::Producer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use walk::{Entry, Walker};

/// Answers that may be on their way.
const ANSWERS_AHEAD: usize = 16;
/// How often progress is drawn.
const TICK: Duration = Duration::from_millis(100);

/// What lasts from one attempt to the next.
struct Transfer<'a> {
    args: &'a SendArgs,
    /// Of all attempts.
    capture: Capture,
    target: String,
    session: [u8; 16],
    walker: Walker,
    board: Board,
    reporter: Reporter,
    progress: Arc<Progress>,
    total: Arc<OnceLock<(u64, u64)>>,
    /// Of the connections before.
    moved_bytes: u64,
    packets: u64,
    retransmitted: u64,
    parity: u64,
    /// What the newest connection that sent anything chose, in mode `auto`.
    auto: Option<AutoStats>,
    reconnects: u64,
    peer: String,
    /// The file that was on its way when the last connection ended, and how
    /// much of it the receiver has.
    current: Option<(Vec<u8>, u64)>,
}

/// An attempt that did not bring everything over.
struct Attempt {
    why: Ended,
    /// Of the connection, if there was one.
    life: Option<Life>,
}

/// See the module's text.
pub(crate) fn run(args: &SendArgs, output: Output) -> Result<(), Failure> {
    args.pace.check()?;
    let (paths, target) = target::split(&args.words)?;
    let roots = walk::roots(&paths)?;
    interrupt::install()?;
    let capture = Capture::open(&args.capture, Captures::Transport, output)?;
    let progress = Arc::new(Progress::new(output, Side::Sender));
    let total = Arc::new(OnceLock::new());
    count(Walker::new(roots.clone()), total.clone());
    let mut transfer = Transfer {
        args,
        capture: capture.clone(),
        peer: target.clone(),
        target,
        session: random_id(),
        walker: Walker::new(roots),
        board: Board::new(),
        reporter: Reporter::new(output, progress.clone())?,
        progress,
        total,
        moved_bytes: 0,
        packets: 0,
        retransmitted: 0,
        parity: 0,
        auto: None,
        reconnects: 0,
        current: None,
    };
    capture.conclude(transfer.run(), output)
}

impl Transfer<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        let mut patience = Patience::new(self.args.retry);
        let mut connected = false;
        let ended = loop {
            let before = (self.moved_bytes, self.board.settled());
            let ended = match self.attempt(&patience, connected) {
                Ok(()) => break None,
                Err(failed) => failed,
            };
            connected |= ended.life.is_some();
            if interrupt::requested() {
                break Some(Failure::Interrupted);
            }
            let reason = match ended.why {
                Ended::Failed(failure) => break Some(failure),
                Ended::Lost(reason) => reason,
            };
            let has_progressed = (self.moved_bytes, self.board.settled()) != before;
            let life = ended.life.map(|life| Life { has_progressed, ..life });
            let Some(pause) = patience.failed(Instant::now(), life) else {
                break Some(Failure::Network(self.given_up(reason)));
            };
            let note = format!("{reason}; trying again in {:.1} s", pause.as_secs_f64());
            self.progress.note(&note);
            self.progress.reconnecting();
            interrupt::sleep(pause);
            if interrupt::requested() {
                break Some(Failure::Interrupted);
            }
        };
        if matches!(ended, Some(Failure::Interrupted)) && self.board.was_welcome() {
            self.progress.note(&self.what_is_kept());
        }
        let measured = Measured {
            side: Side::Sender,
            is_reached: self.board.was_welcome(),
            elapsed: self.progress.elapsed(),
            moved_bytes: self.moved_bytes,
            repaired_share: share(self.retransmitted, self.packets),
            parity_share: share(self.parity, self.packets),
            repaired_packets: 0,
            auto: self.auto.clone(),
            reconnects: self.reconnects,
            peer: self.peer.clone(),
            capture: self.capture.so_far(),
        };
        self.reporter.finish(&measured, ended)
    }

    /// What an interrupt leaves at the receiver.
    fn what_is_kept(&self) -> String {
        let resume = "the same command resumes";
        match &self.current {
            Some((name, bytes)) if *bytes > 0 => {
                format!("the receiver keeps {} of {}; {resume}", show_bytes(*bytes), shown(name))
            }
            _ => format!("what has arrived is kept; {resume}"),
        }
    }

    fn given_up(&self, reason: String) -> String {
        if self.args.retry.is_zero() {
            return format!("{reason}; run the same command again to resume");
        }
        format!(
            "{reason}; gave up after {} s without progress, run the same command again to resume",
            self.args.retry.as_secs_f64()
        )
    }

    /// One connection; `again` if there was one before.
    fn attempt(&mut self, patience: &Patience, again: bool) -> Result<(), Attempt> {
        let within = patience.connect_within(Instant::now());
        let failed = |failure| Attempt { why: Ended::Failed(failure), life: None };
        let connection = self.connect(within).map_err(failed)?.map_err(|error| match error {
            // It was there before: it may come back.
            error if again && error.is_retryable() => {
                Attempt { why: Ended::Lost(error.to_string()), life: None }
            }
            error => failed(reach::failure(error, Purpose::Files)),
        })?;
        self.reconnects += u64::from(again);
        self.peer = show(connection.peer()).to_string();
        self.progress.note(&start_line(&connection));
        self.board.begin();
        let mut alive = Vec::new();
        Record::Alive.emit(&mut alive);
        let lane = Lane::new(connection.clone(), alive);
        let began = Instant::now();
        let silence = Mutex::new(Silence::new(began));
        let result = self.serve(&connection, &lane, &silence);
        lane.tick();
        self.moved_bytes += lane.delivered_bytes();
        self.current = self.board.position(lane.delivered_bytes()).current;
        let stats = connection.stats();
        if let Some(narrower) = narrower(connection.chosen().mtu_bytes, stats.payload_bytes_max) {
            self.progress.note(&narrower);
        }
        let sent = stats.sent;
        self.auto = stats.auto.filter(|auto| auto.messages > 0).or(self.auto.take());
        self.packets += sent.packets;
        self.retransmitted += sent.retransmitted_packets;
        self.parity += sent.parity_packets;
        let heard = silence.into_inner().unwrap_or_else(PoisonError::into_inner).heard();
        let life = Some(Life { began, heard, has_progressed: false });
        result.map_err(|why| Attempt { why, life })
    }

    fn serve(
        &mut self,
        connection: &Connection,
        lane: &Lane,
        silence: &Mutex<Silence>,
    ) -> Result<(), Ended> {
        let ahead = blocks_ahead(connection.chosen().rtt_us, self.args.buffers);
        let pool = Pool::new(BLOCK_BYTES, ahead + 2);
        let answers_pool = Pool::new(ANSWER_BYTES, ANSWERS_AHEAD + 1);
        let mut inbound = Inbound::new(connection.clone(), answers_pool, ANSWERS_AHEAD);
        let (board, reporter) = (&self.board, &self.reporter);
        let hashes = HashThread::start().map_err(Ended::Failed)?;
        let over = AtomicBool::new(false);
        let moved_before = self.moved_bytes;
        let view = View {
            connection,
            hashes: &hashes,
            lane,
            board,
            reporter,
            progress: &self.progress,
            silence,
            moved_before,
        };
        self.progress.restart();
        let total = &self.total;
        let result = std::thread::scope(|scope| {
            let ends = thread::Over(&over);
            let is_over = || over.load(Ordering::Relaxed) || interrupt::requested();
            let hearing = thread::start_in(scope, "answers", move || {
                answers::hear(&mut inbound, board, reporter, &is_over);
            });
            let hearing = hearing.map_err(Ended::Failed)?;
            let ticking = thread::start_in(scope, "progress", || {
                while !over.load(Ordering::Relaxed) {
                    lane.tick();
                    if interrupt::requested() || board.has_ended() {
                        hashes.abandon();
                    }
                    view.draw(total.get().copied());
                    std::thread::park_timeout(TICK);
                }
            });
            let ticking = ticking.map_err(Ended::Failed)?;
            let stop = || interrupt::requested() || board.has_ended();
            let mut producer = Producer {
                board,
                walker: &mut self.walker,
                packer: Packer::new(lane, pool, &hashes, &stop),
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
            drop(ends);
            ticking.thread().unpark();
            let _ = (hearing.join(), ticking.join());
            result
        });
        result.map_err(|ended| match (ended, self.board.take_ended()) {
            (Ended::Lost(_), Some(why)) => why,
            (ended, _) => ended,
        })
    }

    fn connect(&self, within: Duration) -> Result<Result<Connection, ConnectError>, Failure> {
        let sockets = self.args.pace.context(ContextConfig {
            channels: self.args.channels,
            wrap: self.capture.around(None),
            ..ContextConfig::default()
        });
        let [a, b, c, d, ..] = self.session;
        let plain = ConnectionConfig::default();
        let config = self.args.pace.connection(ConnectionConfig {
            mode: self.args.mode,
            chunk_bytes: self.args.chunk.unwrap_or(plain.chunk_bytes),
            mtu_bytes: self.args.mtu,
            silence: patience::silence(self.args.retry),
            connect_timeout: within,
            tag: Purpose::Files.tag(u32::from_be_bytes([a, b, c, d])),
            ..plain
        });
        let stop = &interrupt::requested;
        let connected = reach::connect(&self.target, &sockets, config, stop)?;
        Ok(connected.map(|(_, connection)| connection))
    }
}

/// What the progress is drawn from.
struct View<'a> {
    connection: &'a Connection,
    hashes: &'a HashThread,
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
            zeros_left_bytes: self.hashes.zeros_left_bytes(),
            name: position.current.map(|(name, _)| shown(&name)),
        });
    }
}

/// Counts files and the data in them beside the transfer, for the time left.
fn count(walker: Walker, total: Arc<OnceLock<(u64, u64)>>) {
    let counting = move || {
        let (mut files, mut bytes) = (0, 0);
        for entry in walker {
            if let Entry::Item(item) = entry
                && item.meta.kind == super::wire::Kind::File
            {
                files += 1;
                bytes += item.meta.data_bytes;
            }
        }
        let _ = total.set((files, bytes));
    };
    // Without it only the time left is missing.
    let _ = thread::start("lacuna-count", counting);
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn random_id() -> [u8; 16] {
    let mut id = [0; 16];
    for half in id.chunks_mut(8) {
        half.copy_from_slice(&purpose::random().to_be_bytes());
    }
    id
}
