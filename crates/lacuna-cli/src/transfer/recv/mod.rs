//! `lacuna recv`: waits for senders and serves each on a thread of its own,
//! all into one folder.

mod behind;
mod clean;
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
use super::purpose::Purpose;
use super::report::{Measured, Reporter, Side};
use super::silence::{Signs, Silence};
use super::wire::{Answer, BLOCK_BYTES, FatalKind};
use super::{RecvArgs, blocks_ahead, start};
use crate::failure::Failure;
use crate::interrupt::{self, LOOK};
use crate::output::Output;
use behind::Behind;
use lacuna::{Connection, ConnectionConfig, ConnectionStats, Context, ContextConfig, Listener};
use rustix::fs::Mode;
use session::{Ended, Rules, Session, State};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tree::Tree;

/// Senders served at a time: each takes up to 200 MiB.
const SENDERS_MAX: usize = 8;
/// Connections at a time, those included that have not said what they want.
const STREAMS_MAX: usize = 64;
/// Blocks beyond those that wait for messages: with the disk and the hash.
const BLOCKS_BEHIND: usize = 4;
/// How long the last words to a sender may take.
const GOODBYE: Duration = Duration::from_secs(5);
/// Longest first word of a peer that is refused: far above that of any.
const FIRST_WORD_BYTES_MAX: usize = 64 << 10;
/// How often progress is drawn.
const TICK: Duration = Duration::from_millis(100);

const RESUME: &str = "the same command at the sender resumes";

/// What all senders share.
struct Server {
    args: Settings,
    output: Output,
    listener: Listener,
    /// The folder as the user named it, and a handle on it.
    dir: PathBuf,
    root: Arc<OwnedFd>,
    umask: Mode,
    /// Sessions by the sender's id: one that comes back ends its old one.
    sessions: Mutex<BTreeMap<[u8; 16], Arc<AtomicBool>>>,
    serving: AtomicUsize,
    streams: AtomicUsize,
}

/// The part of the arguments that sessions need.
#[derive(Debug, Clone, Copy)]
struct Settings {
    rules: Rules,
    once: bool,
    channels: u8,
    buffers: Option<u64>,
}

/// How a connection ended; `None` if it was no sender.
type SessionResult = Option<Result<(), Failure>>;

/// See the module's text.
pub(crate) fn run(args: &RecvArgs, output: Output) -> Result<(), Failure> {
    interrupt::install()?;
    if args.clean {
        let older_than = args.older_than.unwrap_or_default();
        let wanted = clean::Wanted { older_than, dry_run: args.dry_run };
        return clean::run(&args.dir, wanted, output);
    }
    let context = Context::new(ContextConfig {
        bind: args.listen.ip(),
        channels: args.channels,
        ..ContextConfig::default()
    })?;
    let listener = Listener::bind(&context, args.listen, ConnectionConfig::default())
        .map_err(|error| Failure::Local(format!("{error}: choose another with --listen")))?;
    let address = listener.local_addr();
    // Only now: a receiver that cannot listen leaves nothing behind.
    std::fs::create_dir_all(&args.dir)
        .map_err(|error| Failure::file("make the folder", &args.dir, &error))?;
    let root = Tree::open(&args.dir).map_err(|error| Failure::file("open", &args.dir, &error))?;
    let server = Arc::new(Server {
        args: Settings {
            rules: Rules { overwrite: args.overwrite, sync: args.sync },
            once: args.once,
            channels: args.channels,
            buffers: args.buffers,
        },
        output,
        listener,
        dir: args.dir.clone(),
        root,
        umask: umask(),
        sessions: Mutex::new(BTreeMap::new()),
        serving: AtomicUsize::new(0),
        streams: AtomicUsize::new(0),
    });
    output.note(&format!("listening on {address}, receiving into {}", args.dir.display()));
    serve(&server)
}

/// Permissions that new files do not get. Asking sets it, so it is asked once,
/// before there are other threads.
fn umask() -> Mode {
    let mask = rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::umask(mask);
    mask
}

fn serve(server: &Arc<Server>) -> Result<(), Failure> {
    let (streams, arriving) = sync_channel(1);
    let accepting = server.clone();
    // Blocks in the system until the process ends.
    start_thread("lacuna-accept", move || accept(&accepting, &streams))?;
    let (results, finished): (SyncSender<SessionResult>, Receiver<SessionResult>) =
        sync_channel(STREAMS_MAX);
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    let result = loop {
        if interrupt::requested() {
            break Err(Failure::Interrupted);
        }
        if let Some(result) = finished.try_iter().flatten().next()
            && server.args.once
        {
            break result;
        }
        match arriving.recv_timeout(LOOK) {
            Ok(stream) => {
                threads.retain(|thread| !thread.is_finished());
                let (server, results) = (server.clone(), results.clone());
                threads.push(start_thread("lacuna-session", move || {
                    let result = server.connected(stream);
                    server.streams.fetch_sub(1, Ordering::Relaxed);
                    let _ = results.send(result);
                })?);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                break Err(Failure::Local("the listening thread ended".to_owned()));
            }
        }
    };
    // Sessions notice an interrupt by themselves and end in good order.
    while let Some(thread) = threads.pop() {
        if interrupt::requested() || thread.is_finished() {
            let _ = thread.join();
        }
    }
    result
}

fn start_thread(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> Result<JoinHandle<()>, Failure> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| Failure::Local(format!("the system refused a thread: {error}")))
}

fn accept(server: &Server, streams: &SyncSender<TcpStream>) {
    loop {
        match server.listener.accept_stream() {
            Ok(stream) => {
                if server.streams.fetch_add(1, Ordering::Relaxed) >= STREAMS_MAX {
                    server.streams.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                if streams.send(stream).is_err() {
                    return;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept");
                std::thread::sleep(LOOK);
            }
        }
    }
}

impl Server {
    /// Serves one control connection to its end.
    fn connected(&self, stream: TcpStream) -> SessionResult {
        let connection = match self.listener.agree(stream) {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(%error, "a connection came to nothing");
                return None;
            }
        };
        let purpose = Purpose::of(connection.tag());
        if let Some(reason) = purpose.refusal() {
            self.output.note(&format!("refused {}: {reason}", connection.peer()));
            refuse(&connection, purpose);
            return None;
        }
        let progress = Arc::new(Progress::new(self.output, Side::Receiver));
        progress.note(&start::describe(
            Side::Receiver,
            connection.peer(),
            connection.chosen(),
            self.args.channels,
        ));
        let limit = if self.args.once { 1 } else { SENDERS_MAX };
        let serving = self.serving.fetch_add(1, Ordering::Relaxed);
        let result = if serving < limit {
            self.session(&connection, progress)
        } else {
            turn_away(&connection, serving);
            None
        };
        self.serving.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn session(&self, connection: &Connection, progress: Arc<Progress>) -> SessionResult {
        let threads = HashThread::start().and_then(|hashes| Ok((hashes, Behind::start()?)));
        let (hashes, behind) = match threads {
            Ok(threads) => threads,
            Err(error) => {
                return Some(Err(Failure::Local(format!("the system refused a thread: {error}"))));
            }
        };
        let reporter = Reporter::new(self.output, progress.clone()).below(&self.dir);
        let mut alive = Vec::new();
        Answer::Alive.emit(&mut alive);
        let lane = Lane::new(connection.clone(), alive);
        let replaced = Arc::new(AtomicBool::new(false));
        let stop = || interrupt::requested() || replaced.load(Ordering::Relaxed);
        let mut session = Session {
            rules: self.args.rules,
            tree: Tree::new(self.root.clone(), self.umask),
            lane: &lane,
            hashes: &hashes,
            behind: &behind,
            reporter: &reporter,
            stop: &stop,
            state: State::default(),
        };
        let over = AtomicBool::new(false);
        let drawn = Drawn::default();
        let ended = std::thread::scope(|scope| {
            let ticking = scope.spawn(|| {
                let mut silence = Silence::new(Instant::now());
                while !over.load(Ordering::Relaxed) {
                    lane.tick();
                    drawn.draw(&progress, &reporter, connection, &mut silence);
                    std::thread::park_timeout(TICK);
                }
            });
            let ended = self.receive(connection, &mut session, &replaced, &drawn).err();
            self.say_goodbye(&mut session, ended.as_ref());
            over.store(true, Ordering::Relaxed);
            ticking.thread().unpark();
            ended
        });
        if let Some((id, _)) = session.state.hello {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            if sessions.get(&id).is_some_and(|other| Arc::ptr_eq(other, &replaced)) {
                sessions.remove(&id);
            }
        } else if ended.is_some() {
            // It never said what it wanted.
            tracing::warn!(?ended, peer = %connection.peer(), "no sender of files");
            return None;
        }
        let failure = ended.map(|ended| self.explain(&session, ended));
        if matches!(failure, Some(Failure::Interrupted))
            && let Some((name, bytes)) = session.interrupted_file()
        {
            let bytes = crate::units::show_bytes(bytes);
            progress.note(&format!("{bytes} of {name} are kept; {RESUME}"));
        }
        let measured = Measured {
            side: Side::Receiver,
            is_reached: true,
            elapsed: progress.elapsed(),
            moved_bytes: session.state.moved_bytes,
            repaired_share: lost_share(&connection.stats()),
            reconnects: 0,
            peer: connection.peer().to_string(),
        };
        let result = reporter.finish(&measured, failure);
        // An interrupt is told once, at the end.
        if let Err(failure) = &result
            && !self.args.once
            && !matches!(failure, Failure::Interrupted)
        {
            progress.error(&format!("{}: {failure}", connection.peer()));
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
                if let Some(old) = sessions.insert(id, replaced.clone()) {
                    old.store(true, Ordering::Relaxed);
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
            Some((name, bytes)) => {
                format!("; {} of {name} are kept", crate::units::show_bytes(bytes))
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

/// A peer that wants something else is told so, once it has said its first word.
fn refuse(connection: &Connection, purpose: Purpose) {
    if let Ok(first_word) = connection.post_recv(vec![0; FIRST_WORD_BYTES_MAX])
        && first_word.wait(GOODBYE).is_ok()
    {
        let _ = connection.write_with(&purpose.refusal_message(), None, GOODBYE);
    }
}

/// A sender too many is told so.
fn turn_away(connection: &Connection, serving: usize) {
    let mut message = Vec::new();
    let reason = format!("it serves {serving} senders already");
    Answer::Fatal { kind: FatalKind::Unable, reason: &reason }.emit(&mut message);
    let _ = connection.write_with(&message, None, GOODBYE);
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
            name: shown.name,
        });
    }
}

/// Packets that never came, as a share of those that the peer sent.
fn lost_share(stats: &ConnectionStats) -> f64 {
    let came: u64 = stats.channels.iter().map(|channel| channel.packets + channel.duplicates).sum();
    stats.lost_packets as f64 / (came + stats.lost_packets).max(1) as f64
}
