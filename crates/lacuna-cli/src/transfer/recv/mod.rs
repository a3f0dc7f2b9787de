//! `lacuna recv`: waits for senders and serves each on a thread of its own,
//! all into the folder that has the given path when they come.

mod behind;
mod clean;
mod folder;
mod metadata;
mod offers;
mod partial;
mod session;
mod space;
mod tree;

use super::digest::HashThread;
use super::inbound::Inbound;
use super::lane::Lane;
use super::pool::Pool;
use super::progress::{Progress, Snapshot};
use super::report::{Measured, Reporter, Side};
use super::silence::{Signs, Silence};
use super::wire::{Answer, BLOCK_BYTES, FatalKind};
use super::{RecvArgs, blocks_ahead};
use crate::arrivals::Arrival;
use crate::capture::{Capture, Captures};
use crate::failure::Failure;
use crate::output::{Output, start_line};
use crate::purpose::Purpose;
use crate::reception::{self, Reception, Served};
use crate::thread::Over;
use crate::units::show_bytes;
use crate::{interrupt, listening, thread};
use behind::Behind;
use folder::{Folder, Which};
use lacuna::address::show;
use lacuna::{Connection, ConnectionConfig, ConnectionStats, ContextConfig};
use rustix::fs::Mode;
use session::{Ended, Rules, Session, State};
use space::Promises;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tree::Tree;

/// Senders served at a time: each takes up to 200 MiB.
const SENDERS_MAX: usize = 8;
/// Blocks beyond those that wait for messages: with the disk and the hash.
const BLOCKS_BEHIND: usize = 4;
/// How long the last words to a sender may take.
const GOODBYE: Duration = Duration::from_secs(5);
/// How often progress is drawn.
const TICK: Duration = Duration::from_millis(100);

const RESUME: &str = "the same command at the sender resumes";

/// What all senders share.
struct Server {
    args: Settings,
    output: Output,
    capture: Capture,
    reception: Arc<Reception>,
    folder: Folder,
    umask: Mode,
    /// Sessions by the sender's id: one that comes back ends its old one.
    sessions: Mutex<BTreeMap<[u8; 16], Standing>>,
    promises: Promises,
    serving: AtomicUsize,
}

/// The part of the arguments that sessions need.
#[derive(Debug, Clone, Copy)]
struct Settings {
    rules: Rules,
    once: bool,
    buffers: Option<u64>,
}

/// A session that another may replace.
struct Standing {
    /// The number of its part of the room.
    number: u64,
    replaced: Arc<AtomicBool>,
}

/// A sender that is served; it is given back when this is dropped.
struct Seat<'a>(&'a AtomicUsize);

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// See the module's text.
pub(crate) fn run(args: &RecvArgs, output: Output) -> Result<(), Failure> {
    interrupt::install()?;
    if args.clean {
        let older_than = args.older_than.unwrap_or_default();
        let wanted = clean::Wanted { older_than, dry_run: args.dry_run };
        return clean::run(&args.dir, wanted, output);
    }
    let capture = Capture::open(&args.capture, Captures::Transport, output)?;
    let sockets = ContextConfig {
        channels: args.channels,
        wrap: capture.around(None),
        ..ContextConfig::default()
    };
    let context = reception::sockets(args.listen, sockets)?;
    let config = ConnectionConfig::default();
    let reception = Reception::open(&context, args.listen, config, output)?;
    let address = reception.local_addr();
    // Only now: a receiver that cannot listen leaves nothing behind.
    let folder = Folder::open(&args.dir)?;
    let server = Arc::new(Server {
        args: Settings {
            rules: Rules { overwrite: args.overwrite, sync: args.sync },
            once: args.once,
            buffers: args.buffers,
        },
        output,
        capture: capture.clone(),
        reception: reception.clone(),
        folder,
        umask: umask(),
        sessions: Mutex::new(BTreeMap::new()),
        promises: Promises::default(),
        serving: AtomicUsize::new(0),
    });
    let into = format!(", receiving into {}", args.dir.display());
    listening::tell(output, address, "tcp", &into)?;
    // Sessions notice an interrupt by themselves; what has come is written first,
    // however long the disk takes.
    let serve = move |arrival| server.connected(arrival);
    let ended = reception.run(args.once, &interrupt::requested, Duration::MAX, serve);
    drop((reception, context));
    capture.conclude(ended, output)
}

/// Permissions that new files do not get. Asking sets it, so it is asked once,
/// before there are other threads.
fn umask() -> Mode {
    let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(mask);
    mask
}

impl Server {
    /// Serves one control connection to its end.
    fn connected(&self, arrival: Arrival) -> Served {
        let admit = |tag| match Purpose::of(tag) {
            Some((Purpose::Files, _)) => Ok((self.take_seat()?, self.look_at_folder()?)),
            _ => Err(Purpose::Files.refusal(tag)),
        };
        let (guest, (seat, root)) = self.reception.let_in(arrival, admit)?;
        let connection = &guest.connection;
        let progress = Arc::new(Progress::new(self.output, Side::Receiver));
        progress.note(&start_line(connection));
        let result = self.session(connection, root, progress);
        if self.args.once && result.is_some() {
            // Nobody comes after the one.
            std::mem::forget(seat);
        }
        result
    }

    fn take_seat(&self) -> Result<Seat<'_>, String> {
        let limit = if self.args.once { 1 } else { SENDERS_MAX };
        let more = |serving| (serving < limit).then_some(serving + 1);
        match self.serving.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Seat(&self.serving)),
            Err(serving) => Err(reception::busy(serving, self.args.once, "sender")),
        }
    }

    /// The folder for a sender that comes now, or why there is none.
    fn look_at_folder(&self) -> Result<Arc<OwnedFd>, String> {
        let named = self.folder.named().display();
        let (root, found) = self.folder.look().map_err(|error| {
            self.output.note(&format!("cannot open or make the folder {named}: {error}"));
            format!("the folder that it receives into can neither be opened nor made: {error}")
        })?;
        match found {
            Which::Same => {}
            Which::Another => self.output.note(&format!("{named} is another folder than before")),
            Which::Made => self.output.note(&format!("{named} was gone and was made again")),
        }
        Ok(root)
    }

    fn session(
        &self,
        connection: &Connection,
        root: Arc<OwnedFd>,
        progress: Arc<Progress>,
    ) -> Served {
        let reporter = Reporter::new(self.output, progress.clone());
        let threads =
            reporter.and_then(|reporter| Ok((reporter, HashThread::start()?, Behind::start()?)));
        let (reporter, hashes, behind) = match threads {
            Ok((reporter, hashes, behind)) => (reporter.below(self.folder.named()), hashes, behind),
            Err(failure) => return Some(Err(failure)),
        };
        let mut alive = Vec::new();
        Answer::Alive.emit(&mut alive);
        let lane = Lane::new(connection.clone(), alive);
        let replaced = Arc::new(AtomicBool::new(false));
        let stop = || interrupt::requested() || replaced.load(Ordering::Relaxed);
        let gone = || stop() || connection.failure().is_some();
        let keeps_holes = space::keeps_holes(&*root);
        let mut session = Session {
            rules: self.args.rules,
            tree: Tree::new(root, self.umask),
            lane: &lane,
            hashes: &hashes,
            behind: &behind,
            reporter: &reporter,
            stop: &stop,
            gone: &gone,
            keeps_holes,
            promised: self.promises.part(),
            state: State::default(),
        };
        let over = AtomicBool::new(false);
        let drawn = Drawn::default();
        let ended = std::thread::scope(|scope| {
            let at_end = Over(&over);
            let tick = || {
                let mut silence = Silence::new(Instant::now());
                while !over.load(Ordering::Relaxed) {
                    lane.tick();
                    if gone() {
                        hashes.abandon();
                    }
                    drawn.draw(&progress, &reporter, connection, &hashes, &mut silence);
                    std::thread::park_timeout(TICK);
                }
            };
            let ticking = thread::start_in(scope, "lacuna-tick", tick)?;
            let ended = self.receive(connection, &mut session, &replaced, &drawn).err();
            self.say_goodbye(&mut session, ended.as_ref());
            drop(at_end);
            ticking.thread().unpark();
            Ok(ended)
        });
        let ended = match ended {
            Ok(ended) => ended,
            Err(failure) => return Some(Err(failure)),
        };
        if let Some((id, _)) = session.state.hello {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            if sessions.get(&id).is_some_and(|other| other.number == session.promised.number()) {
                sessions.remove(&id);
            }
        } else if let Some(ended) = ended {
            progress.note(&no_sender(connection, &ended));
            return None;
        }
        let failure = ended.map(|ended| self.explain(&session, ended));
        if matches!(failure, Some(Failure::Interrupted))
            && let Some((name, bytes)) = session.interrupted_file()
        {
            let bytes = show_bytes(bytes);
            progress.note(&format!("{bytes} of {name} are kept; {RESUME}"));
        }
        let stats = connection.stats();
        let measured = Measured {
            side: Side::Receiver,
            is_reached: true,
            elapsed: progress.elapsed(),
            moved_bytes: session.state.moved_bytes,
            repaired_share: lost_share(&stats),
            parity_share: parity_share(&stats),
            repaired_packets: stats.channels.iter().map(|c| c.repaired_packets).sum(),
            auto: None,
            reconnects: 0,
            peer: show(connection.peer()).to_string(),
            capture: self.capture.so_far(),
        };
        // Somebody may wait for its room and its files, and nobody read the results.
        drop(session);
        let result = reporter.finish(&measured, failure);
        // An interrupt is told once, at the end.
        if let Err(failure) = &result
            && !self.args.once
            && !matches!(failure, Failure::Interrupted)
        {
            progress.error(&format!("{}: {failure}", show(connection.peer())));
        }
        Some(result)
    }

    /// Takes messages until the sender is done.
    fn receive(
        &self,
        connection: &Connection,
        session: &mut Session<'_>,
        replaced: &Arc<AtomicBool>,
        drawn: &Drawn,
    ) -> Result<(), Ended> {
        let ahead = blocks_ahead(connection.chosen().rtt_us, self.args.buffers);
        let pool = Pool::new(BLOCK_BYTES, ahead + BLOCKS_BEHIND);
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
                let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
                let number = session.promised.number();
                let standing = Standing { number, replaced: replaced.clone() };
                if let Some(old) = sessions.insert(id, standing) {
                    old.replaced.store(true, Ordering::Relaxed);
                    self.promises.end(old.number);
                }
            }
            drawn.set(&session.state);
        }
        Ok(())
    }

    fn say_goodbye(&self, session: &mut Session<'_>, ended: Option<&Ended>) {
        match ended {
            Some(Ended::Lost(_)) => return,
            Some(Ended::Protocol(reason)) => session.say_fatal(FatalKind::Protocol, reason),
            Some(Ended::Unable(reason)) => session.say_fatal(FatalKind::Unable, reason),
            None => {}
        }
        session.lane.drain(GOODBYE);
    }

    fn explain(&self, session: &Session<'_>, ended: Ended) -> Failure {
        if interrupt::requested() {
            return Failure::Interrupted;
        }
        let kept = match session.interrupted_file() {
            Some(_) if session.tree.is_removed() => String::new(),
            Some((name, bytes)) => {
                format!("; {} of {name} are kept", show_bytes(bytes))
            }
            None => String::new(),
        };
        match ended {
            Ended::Lost(reason) => Failure::Network(format!("{reason}{kept}; {RESUME}")),
            Ended::Unable(reason) => Failure::Local(format!("{reason}{kept}; {RESUME}")),
            Ended::Protocol(reason) => {
                Failure::Network(format!("the sender breaks the file protocol: {reason}{kept}"))
            }
        }
    }
}

/// What to say of a peer that never said what it wants.
fn no_sender(connection: &Connection, ended: &Ended) -> String {
    let peer = connection.peer();
    match ended {
        Ended::Lost(reason) => format!("{peer}: {reason}; it had not said anything"),
        Ended::Unable(reason) => format!("{peer}: {reason}"),
        Ended::Protocol(reason) => format!("{peer} is no lacuna send of this version: {reason}"),
    }
}

/// What the progress is drawn from, handed over between threads.
#[derive(Default)]
struct Drawn(Mutex<Shown>);

#[derive(Default, Clone)]
struct Shown {
    moved_bytes: u64,
    done_bytes: u64,
    /// Files and bytes in all, once known.
    total: Option<(u64, u64)>,
    name: Option<String>,
}

impl Drawn {
    fn set(&self, state: &State) {
        let shown = Shown {
            moved_bytes: state.moved_bytes,
            done_bytes: state.done_bytes(),
            total: state.total,
            name: state.current_name(),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shown;
    }

    fn draw(
        &self,
        progress: &Progress,
        reporter: &Reporter,
        connection: &Connection,
        hashes: &HashThread,
        silence: &mut Silence,
    ) {
        let so_far = reporter.so_far();
        let stats = connection.stats();
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let silent = silence.look(Instant::now(), Signs::new(&stats, shown.moved_bytes));
        progress.update(&Snapshot {
            moved_bytes: shown.moved_bytes,
            done_bytes: shown.done_bytes,
            bytes_total: shown.total.map(|(_, bytes)| bytes),
            files: so_far.files + so_far.refused + so_far.failed,
            files_total: shown.total.map(|(files, _)| files),
            repaired_share: lost_share(&stats),
            silent,
            zeros_left_bytes: hashes.zeros_left_bytes(),
            name: shown.name,
        });
    }
}

/// Parity that came, as a share of all packets that came.
fn parity_share(stats: &ConnectionStats) -> f64 {
    let parity: u64 = stats.channels.iter().map(|channel| channel.parity_packets).sum();
    let came: u64 = stats.channels.iter().map(|channel| channel.packets).sum();
    parity as f64 / came.max(1) as f64
}

/// Packets that never came, as a share of those that the peer sent.
fn lost_share(stats: &ConnectionStats) -> f64 {
    let came: u64 = stats.channels.iter().map(|channel| channel.packets + channel.duplicates).sum();
    stats.lost_packets as f64 / (came + stats.lost_packets).max(1) as f64
}
