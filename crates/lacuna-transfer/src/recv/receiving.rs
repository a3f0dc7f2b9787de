//! Receives over one connection, whichever end made it: a session with its threads.
//!
//! The session is over when the sender is done, when the connection breaks, or when a stop is
//! requested. What the caller reports of it comes back in [`Received`].

use super::session::{Ended, Rules, Session, State};
use super::space::{self, Promises};
use super::tree::Tree;
use super::write_behind::WriteBehind;
use super::{ReceiveOptions, lock};
use crate::blocks_ahead;
use crate::digest::HashThread;
use crate::error::{Kept, ReceiveError};
use crate::inbound::Inbound;
use crate::observer::Progress;
use crate::outbound::Outbound;
use crate::pool::BufferPool;
use crate::rate::Rate;
use crate::report::{Summary, Tally};
use crate::silence::{ActivityCounters, Silence};
use crate::wire::{Answer, BLOCK_BYTES, FatalKind};
use lacuna::{Connection, ConnectionStats};
use lacuna_service::thread::{self, Over, ThreadError};
use rustix::fs::Mode;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Blocks held by the disk and the hash thread, on top of those for incoming messages.
const BLOCKS_BEHIND: usize = 4;
/// How long the final answer to a sender may take.
const GOODBYE: Duration = Duration::from_secs(5);
/// How often progress is reported.
const TICK: Duration = Duration::from_millis(100);

/// What all sessions of a receiver have in common.
pub(super) struct Receiving {
    pub(super) options: ReceiveOptions,
    pub(super) umask: Mode,
    pub(super) promises: Promises,
    /// The names that may come, with what is below them; `None`: any.
    pub(super) only: Option<BTreeSet<Vec<u8>>>,
    /// How to have existing files replaced, for whoever reads why one was not.
    pub(super) overwrite_hint: &'static str,
}

/// One session, as it is begun.
pub(super) struct Begun<'a> {
    pub(super) connection: &'a Connection,
    /// The folder.
    pub(super) root: Arc<OwnedFd>,
    pub(super) tally: &'a Tally<'a>,
    /// What earlier connections of the same transfer have brought.
    pub(super) before: Brought,
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
    /// Called with the sender's id and the session's number once it has said hello.
    pub(super) on_hello: &'a dyn Fn([u8; 16], u64),
}

/// How a session ended.
pub(super) struct Received {
    /// Why it ended early, if it did.
    pub(super) ended: Option<Ended>,
    /// The sender's id, if it has said hello.
    pub(super) hello: Option<[u8; 16]>,
    pub(super) number: u64,
    /// The file that was on its way.
    pub(super) kept: Option<Kept>,
    /// With what earlier connections have brought.
    pub(super) brought: Brought,
    /// When the sender was last heard.
    pub(super) heard: Instant,
}

/// What a transfer has brought so far.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Brought {
    pub(super) moved_bytes: u64,
    /// Data of files that have ended, moved or not.
    ended_bytes: u64,
    /// Files and bytes in all, once known.
    total: Option<(u64, u64)>,
}

/// Packets of all connections of a transfer.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Packets {
    came: u64,
    copies: u64,
    lost: u64,
    parity: u64,
    repaired: u64,
}

impl Receiving {
    pub(super) fn new(options: ReceiveOptions, overwrite_hint: &'static str) -> Self {
        let (umask, promises) = (umask(), Promises::default());
        Self { options, umask, promises, only: None, overwrite_hint }
    }

    /// Receives until the sender is done or the session ends.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub(super) fn session(&self, begun: Begun<'_>) -> Result<Received, ThreadError> {
        let Begun { connection, root, tally, before, stop, on_hello } = begun;
        let (hashes, behind) = (HashThread::start()?, WriteBehind::start()?);
        let mut alive = Vec::new();
        Answer::Alive.emit(&mut alive);
        let outbound = Outbound::new(connection.clone(), alive);
        let gone = || stop() || connection.failure().is_some();
        let keeps_holes = space::keeps_holes(&*root);
        let mut session = Session {
            rules: Rules {
                overwrite: self.options.overwrite,
                sync: self.options.sync,
                only: self.only.as_ref(),
                overwrite_hint: self.overwrite_hint,
            },
            tree: Tree::new(root, self.umask),
            outbound: &outbound,
            hashes: &hashes,
            behind: &behind,
            tally,
            stop: &stop,
            gone: &gone,
            keeps_holes,
            promised: self.promises.part(),
            state: State::default(),
        };
        let number = session.promised.number();
        let over = AtomicBool::new(false);
        let position = Mutex::new(Position::default());
        let silence = Mutex::new(Silence::new(Instant::now()));
        let ended = std::thread::scope(|scope| {
            let at_end = Over(&over);
            let tick = || {
                let mut rate = Rate::default();
                while !over.load(Ordering::Relaxed) {
                    outbound.tick();
                    if gone() {
                        hashes.abandon();
                    }
                    let position = lock(&position).clone();
                    let mut progress = position.progress(before, connection, tally, &silence);
                    progress.zeros_left_bytes = hashes.zeros_left_bytes();
                    rate.measure(Instant::now(), &mut progress);
                    tally.observer().on_progress(&progress);
                    std::thread::park_timeout(TICK);
                }
            };
            let ticking = thread::start_in(scope, "lacuna-tick", tick)?;
            let on_hello = |id| on_hello(id, number);
            let ended = self.receive(connection, &mut session, &on_hello, &position).err();
            say_goodbye(&mut session, ended.as_ref());
            drop(at_end);
            ticking.thread().unpark();
            Ok::<_, ThreadError>(ended)
        })?;
        let kept = session.interrupted_file().filter(|_| !session.tree.is_removed());
        let state = &session.state;
        let brought = Brought {
            moved_bytes: before.moved_bytes + state.moved_bytes,
            ended_bytes: before.ended_bytes.saturating_add(state.ended_bytes),
            total: before.total.or(state.total),
        };
        Ok(Received {
            ended,
            hello: state.hello.map(|(id, _)| id),
            number,
            kept: kept.map(|(name, bytes)| Kept { name, bytes }),
            brought,
            heard: silence.into_inner().unwrap_or_else(PoisonError::into_inner).heard(),
        })
    }

    /// Handles messages until the sender is done.
    fn receive(
        &self,
        connection: &Connection,
        session: &mut Session<'_>,
        on_hello: &dyn Fn([u8; 16]),
        position: &Mutex<Position>,
    ) -> Result<(), Ended> {
        let ahead = blocks_ahead(connection.chosen().rtt_us, self.options.buffers_bytes);
        let pool = BufferPool::new(BLOCK_BYTES, ahead + BLOCKS_BEHIND);
        let mut inbound = Inbound::new(connection.clone(), pool, ahead);
        while !session.state.is_finished {
            let (block, len) = inbound.next(session.stop).map_err(|error| {
                Ended::Lost(if error.is_closed() {
                    "the sender ended before everything was sent".to_owned()
                } else {
                    format!("lost the sender: {error}")
                })
            })?;
            let is_new = session.state.hello.is_none();
            session.on_message(block, len)?;
            if is_new && let Some((id, _)) = session.state.hello {
                on_hello(id);
            }
            *lock(position) = Position::of(&session.state);
        }
        Ok(())
    }
}

fn say_goodbye(session: &mut Session<'_>, ended: Option<&Ended>) {
    match ended {
        Some(Ended::Lost(_)) => return,
        Some(Ended::Protocol(reason)) => session.send_fatal(FatalKind::Protocol, reason),
        Some(Ended::Unable(reason)) => session.send_fatal(FatalKind::Unable, reason),
        None => {}
    }
    session.outbound.drain(GOODBYE);
}

impl Ended {
    /// As an error of the receiver, which keeps `kept`.
    pub(super) fn into_error(self, kept: Option<Kept>) -> ReceiveError {
        match self {
            Self::Lost(reason) => ReceiveError::Lost { reason, kept },
            Self::Unable(reason) => ReceiveError::Unable { reason, kept },
            Self::Protocol(reason) => ReceiveError::Protocol { reason, kept },
        }
    }
}

impl Packets {
    /// Adds those of a connection.
    pub(super) fn add(&mut self, stats: &ConnectionStats) {
        for channel in &stats.channels {
            self.came += channel.packets;
            self.copies += channel.duplicates;
            self.parity += channel.parity_packets;
            self.repaired += channel.repaired_packets;
        }
        self.lost += stats.lost_packets;
    }

    /// What a summary has of them.
    pub(super) fn summary(&self) -> Summary {
        Summary {
            repaired_share: self.lost_share(),
            parity_share: self.parity as f64 / self.came.max(1) as f64,
            repaired_packets: self.repaired,
            ..Summary::default()
        }
    }

    /// Lost packets as a share of those that the peer sent.
    fn lost_share(&self) -> f64 {
        self.lost as f64 / (self.came + self.copies + self.lost).max(1) as f64
    }
}

/// Progress of a session, shared between threads.
#[derive(Default, Clone)]
struct Position {
    moved_bytes: u64,
    done_bytes: u64,
    /// Files and bytes in all, once known.
    total: Option<(u64, u64)>,
    name: Option<String>,
}

impl Position {
    fn of(state: &State) -> Self {
        Self {
            moved_bytes: state.moved_bytes,
            done_bytes: state.done_bytes(),
            total: state.total,
            name: state.current_name(),
        }
    }

    fn progress(
        self,
        before: Brought,
        connection: &Connection,
        tally: &Tally<'_>,
        silence: &Mutex<Silence>,
    ) -> Progress {
        let stats = connection.stats();
        let mut packets = Packets::default();
        packets.add(&stats);
        // Of a transfer that goes on, the sender tells only what is left.
        let total = before.total.or(self.total);
        let counters = ActivityCounters::new(&stats, self.moved_bytes);
        Progress {
            moved_bytes: before.moved_bytes + self.moved_bytes,
            done_bytes: before.ended_bytes.saturating_add(self.done_bytes),
            bytes_total: total.map(|(_, bytes)| bytes),
            files: tally.files_ended(),
            files_total: total.map(|(files, _)| files),
            bytes_per_s: None,
            repaired_share: packets.lost_share(),
            silent: lock(silence).look(Instant::now(), counters),
            zeros_left_bytes: 0,
            name: self.name,
        }
    }
}

/// The process's umask. Where the system cannot report it, reading sets it for a moment, so it is
/// read once.
fn umask() -> Mode {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    if let Some(Ok(mask)) = told.map(|mask| rustix::fs::RawMode::from_str_radix(mask.trim(), 8)) {
        return Mode::from_raw_mode(mask);
    }
    let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(mask);
    mask
}
