//! The sessions of a receiver: admits senders, serves each to its end, and ends the old session of
//! a sender that reconnects.

use super::folder::{Folder, Which};
use super::session::{Ended, Rules, Session, State};
use super::space::{self, Promises};
use super::tree::Tree;
use super::write_behind::WriteBehind;
use super::{ReceiveOptions, ReceiverEvent, Sessions, lock};
use crate::blocks_ahead;
use crate::digest::HashThread;
use crate::error::{Kept, ReceiveError};
use crate::inbound::Inbound;
use crate::observer::{Event, Observer, Progress};
use crate::outbound::Outbound;
use crate::pool::BufferPool;
use crate::rate::Rate;
use crate::report::{Summary, Tally};
use crate::silence::{ActivityCounters, Silence};
use crate::wire::{Answer, BLOCK_BYTES, FatalKind};
use lacuna::address::show;
use lacuna::{Connection, ConnectionStats, Incoming};
use lacuna_service::thread::{self, Over, ThreadError};
use lacuna_service::{Acceptor, Purpose, Served, busy};
use rustix::fs::Mode;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Senders served at a time: each takes up to 200 MiB.
const SENDERS_MAX: usize = 8;
/// Blocks held by the disk and the hash thread, on top of those for incoming messages.
const BLOCKS_BEHIND: usize = 4;
/// How long the final answer to a sender may take.
const GOODBYE: Duration = Duration::from_secs(5);
/// How often progress is reported.
const TICK: Duration = Duration::from_millis(100);

/// What all sessions share.
pub(super) struct Server<S> {
    options: ReceiveOptions,
    once: bool,
    sessions: Arc<S>,
    acceptor: Arc<Acceptor>,
    folder: Folder,
    umask: Mode,
    /// Sessions by the sender's id: a sender that reconnects ends its old session.
    replaceable: Mutex<BTreeMap<[u8; 16], ReplaceableSession>>,
    promises: Promises,
    serving: AtomicUsize,
}

/// A session that a reconnecting sender replaces.
struct ReplaceableSession {
    /// Number of its reservation of disk space.
    number: u64,
    replaced: Arc<AtomicBool>,
}

/// Counts one sender that is served, until it is dropped.
struct ServedSender<'a>(&'a AtomicUsize);

impl Drop for ServedSender<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Sessions> Server<S> {
    /// `once`: serves one sender.
    pub(super) fn new(
        options: ReceiveOptions,
        once: bool,
        sessions: Arc<S>,
        acceptor: Arc<Acceptor>,
        folder: Folder,
        umask: Mode,
    ) -> Self {
        Self {
            options,
            once,
            sessions,
            acceptor,
            folder,
            umask,
            replaceable: Mutex::default(),
            promises: Promises::default(),
            serving: AtomicUsize::new(0),
        }
    }

    /// Serves one control connection to its end.
    pub(super) fn connected(&self, incoming: Incoming) -> Served<ReceiveError> {
        let admit = |tag| match Purpose::of(tag) {
            Some((Purpose::Files, _)) => Ok((self.take_seat()?, self.look_at_folder()?)),
            _ => Err(Purpose::Files.refusal(tag)),
        };
        let (guest, (seat, root)) = self.acceptor.let_in(incoming, admit)?;
        let result = self.observed(&guest.connection, root);
        if self.once && result.is_some() {
            // With `once` nobody follows.
            std::mem::forget(seat);
        }
        result
    }

    fn take_seat(&self) -> Result<ServedSender<'_>, String> {
        let limit = if self.once { 1 } else { SENDERS_MAX };
        let more = |serving| (serving < limit).then_some(serving + 1);
        match self.serving.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(ServedSender(&self.serving)),
            Err(serving) => Err(busy(serving, self.once, "sender")),
        }
    }

    /// The folder for a sender that connects now, or why there is none.
    fn look_at_folder(&self) -> Result<Arc<OwnedFd>, String> {
        let folder = self.folder.named();
        let (root, found) = self.folder.look().map_err(|error| {
            self.sessions.on_event(&ReceiverEvent::FolderUnusable { folder, error: &error });
            format!("the folder that it receives into can neither be opened nor made: {error}")
        })?;
        match found {
            Which::Same => {}
            Which::Another => self.sessions.on_event(&ReceiverEvent::FolderChanged { folder }),
            Which::Made => self.sessions.on_event(&ReceiverEvent::FolderMade { folder }),
        }
        Ok(root)
    }

    /// Serves a session, with an observer.
    fn observed(&self, connection: &Connection, root: Arc<OwnedFd>) -> Served<ReceiveError> {
        let observer = match self.sessions.begin(connection) {
            Ok(observer) => observer,
            Err(error) => return Some(Err(ReceiveError::Observer(error))),
        };
        self.session(connection, root, observer)
    }

    fn session(
        &self,
        connection: &Connection,
        root: Arc<OwnedFd>,
        observer: S::Observer,
    ) -> Served<ReceiveError> {
        let started = Instant::now();
        let tally = Tally::new(&observer);
        let threads = HashThread::start().and_then(|hashes| Ok((hashes, WriteBehind::start()?)));
        let (hashes, behind) = match threads {
            Ok(threads) => threads,
            Err(error) => return Some(Err(error.into())),
        };
        let mut alive = Vec::new();
        Answer::Alive.emit(&mut alive);
        let outbound = Outbound::new(connection.clone(), alive);
        let replaced = Arc::new(AtomicBool::new(false));
        let asked = &self.options.stop;
        let stop = || asked.is_requested() || replaced.load(Ordering::Relaxed);
        let gone = || stop() || connection.failure().is_some();
        let keeps_holes = space::keeps_holes(&*root);
        let mut session = Session {
            rules: Rules { overwrite: self.options.overwrite, sync: self.options.sync },
            tree: Tree::new(root, self.umask),
            outbound: &outbound,
            hashes: &hashes,
            behind: &behind,
            tally: &tally,
            stop: &stop,
            gone: &gone,
            keeps_holes,
            promised: self.promises.part(),
            state: State::default(),
        };
        let over = AtomicBool::new(false);
        let position = Mutex::new(Position::default());
        let ended = std::thread::scope(|scope| {
            let at_end = Over(&over);
            let tick = || {
                let mut silence = Silence::new(Instant::now());
                let mut rate = Rate::default();
                while !over.load(Ordering::Relaxed) {
                    outbound.tick();
                    if gone() {
                        hashes.abandon();
                    }
                    let position = lock(&position).clone();
                    let mut progress = position.progress(connection, &tally, &mut silence);
                    progress.zeros_left_bytes = hashes.zeros_left_bytes();
                    rate.measure(Instant::now(), &mut progress);
                    observer.on_progress(&progress);
                    std::thread::park_timeout(TICK);
                }
            };
            let ticking = thread::start_in(scope, "lacuna-tick", tick)?;
            let ended = self.receive(connection, &mut session, &replaced, &position).err();
            self.say_goodbye(&mut session, ended.as_ref());
            drop(at_end);
            ticking.thread().unpark();
            Ok::<_, ThreadError>(ended)
        });
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return Some(Err(error.into())),
        };
        if let Some((id, _)) = session.state.hello {
            let mut replaceable = lock(&self.replaceable);
            if replaceable.get(&id).is_some_and(|other| other.number == session.promised.number()) {
                replaceable.remove(&id);
            }
        } else if let Some(ended) = ended {
            let reason = no_sender(connection, &ended);
            observer.on_event(&Event::NotASender { reason: &reason });
            return None;
        }
        let error = ended.map(|ended| self.explain(&session, ended));
        if matches!(error, Some(ReceiveError::Interrupted))
            && let Some((name, bytes)) = session.interrupted_file()
        {
            observer.on_event(&Event::Interrupted { kept: Some(Kept { name, bytes }) });
        }
        let stats = connection.stats();
        let measured = Summary {
            is_reached: true,
            elapsed: started.elapsed(),
            moved_bytes: session.state.moved_bytes,
            repaired_share: lost_share(&stats),
            parity_share: parity_share(&stats),
            repaired_packets: stats.channels.iter().map(|c| c.repaired_packets).sum(),
            peer: show(connection.peer()).to_string(),
            wire: Some(connection.chosen().wire),
            ..Summary::default()
        };
        // Released before the results are reported, which may block: another session may wait for
        // its space and its files.
        drop(session);
        let (_, failed) = tally.finish(measured, error.is_some());
        let result = match (error, failed) {
            (Some(error), _) => Err(error),
            (None, Some(failed)) => Err(failed.into()),
            (None, None) => Ok(()),
        };
        drop(tally);
        self.sessions.end(observer, connection.peer(), result.as_ref().copied());
        Some(result)
    }

    /// Handles messages until the sender is done.
    fn receive(
        &self,
        connection: &Connection,
        session: &mut Session<'_>,
        replaced: &Arc<AtomicBool>,
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
                let mut sessions = lock(&self.replaceable);
                let number = session.promised.number();
                let replaceable = ReplaceableSession { number, replaced: replaced.clone() };
                if let Some(old) = sessions.insert(id, replaceable) {
                    old.replaced.store(true, Ordering::Relaxed);
                    self.promises.end(old.number);
                }
            }
            *lock(position) = Position::of(&session.state);
        }
        Ok(())
    }

    fn say_goodbye(&self, session: &mut Session<'_>, ended: Option<&Ended>) {
        match ended {
            Some(Ended::Lost(_)) => return,
            Some(Ended::Protocol(reason)) => session.send_fatal(FatalKind::Protocol, reason),
            Some(Ended::Unable(reason)) => session.send_fatal(FatalKind::Unable, reason),
            None => {}
        }
        session.outbound.drain(GOODBYE);
    }

    fn explain(&self, session: &Session<'_>, ended: Ended) -> ReceiveError {
        if self.options.stop.is_requested() {
            return ReceiveError::Interrupted;
        }
        let kept = session.interrupted_file().filter(|_| !session.tree.is_removed());
        let kept = kept.map(|(name, bytes)| Kept { name, bytes });
        match ended {
            Ended::Lost(reason) => ReceiveError::Lost { reason, kept },
            Ended::Unable(reason) => ReceiveError::Unable { reason, kept },
            Ended::Protocol(reason) => ReceiveError::Protocol { reason, kept },
        }
    }
}

/// The report on a peer that never sent a hello of the file protocol.
fn no_sender(connection: &Connection, ended: &Ended) -> String {
    let peer = connection.peer();
    match ended {
        Ended::Lost(reason) => format!("{peer}: {reason}; it had not said anything"),
        Ended::Unable(reason) => format!("{peer}: {reason}"),
        Ended::Protocol(reason) => format!("{peer} is no lacuna send of this version: {reason}"),
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
        connection: &Connection,
        tally: &Tally<'_>,
        silence: &mut Silence,
    ) -> Progress {
        let stats = connection.stats();
        Progress {
            moved_bytes: self.moved_bytes,
            done_bytes: self.done_bytes,
            bytes_total: self.total.map(|(_, bytes)| bytes),
            files: tally.files_ended(),
            files_total: self.total.map(|(files, _)| files),
            bytes_per_s: None,
            repaired_share: lost_share(&stats),
            silent: silence.look(Instant::now(), ActivityCounters::new(&stats, self.moved_bytes)),
            zeros_left_bytes: 0,
            name: self.name,
        }
    }
}

/// Parity packets as a share of all packets received.
fn parity_share(stats: &ConnectionStats) -> f64 {
    let parity: u64 = stats.channels.iter().map(|channel| channel.parity_packets).sum();
    let came: u64 = stats.channels.iter().map(|channel| channel.packets).sum();
    parity as f64 / came.max(1) as f64
}

/// Lost packets as a share of those that the peer sent.
fn lost_share(stats: &ConnectionStats) -> f64 {
    let came: u64 = stats.channels.iter().map(|channel| channel.packets + channel.duplicates).sum();
    stats.lost_packets as f64 / (came + stats.lost_packets).max(1) as f64
}
