//! A context: sockets, workers, and the queue pairs that use them.
//!
//! A channel is one UDP socket, so it has a 4-tuple of its own known each peer. A worker serves
//! one or more channels. With [`Progress::Threads`] each worker has a thread; with
//! [`Progress::Manual`] the application's calls step the one worker. The code and its results are
//! the same.

use crate::address::ScopedIp;
use crate::clock::Clock;
use crate::completion::{self, CompletionQueue};
use crate::datagram;
use crate::error::{CompletionQueueError, ContextError};
use crate::inbox::{Command, Inbox};
use crate::monitor::Monitor;
use crate::paths::{Paths, Remembered};
use crate::reuse;
use crate::roster::Roster;
use crate::security::{Policy, Security};
use crate::worker::Worker;
use lacuna_datapath::process::Own;
use lacuna_datapath::{
    Capabilities, Datapath, MemNetwork, Offload, Udp, UdpConfig, Waiter, thread,
};
use lacuna_engine::Counters;
use lacuna_path::shared_credit::{Senders, SharedCredit};
use lacuna_place::region::KeyTable;
use lacuna_secure::{SECRET_BYTES, Secret};
use lacuna_wire::{CHANNELS_MAX, RejectKind};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a worker polls before it sleeps, by default (a judgement: about the cost of one
/// wake-up).
const SPIN: Duration = Duration::from_micros(20);
/// How long a sleep is at most while datagram queue pairs may have something to do.
const DATAGRAM_NAP: Duration = Duration::from_micros(200);
/// How often manual progress polls the control connections.
const WATCH_EVERY: Duration = Duration::from_millis(10);

/// Which datapath carries the packets.
#[derive(Debug, Clone, Default)]
pub enum DatapathKind {
    /// UDP with segmentation offload and coalescing where the kernel has them.
    #[default]
    Udp,
    /// UDP through the standard library alone, one packet per call: for systems without the
    /// offloads, and for comparison.
    UdpPlain,
    /// A network inside this process.
    Mem(MemNetwork),
}

/// How the workers are driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The application's calls: right for one core and for simulations.
    Manual,
    /// Threads of the context.
    Threads {
        /// Number of workers, at most one per channel. 0 means one per channel, but no more than
        /// the machine has cores.
        workers: usize,
        /// How long a worker polls before it sleeps. A wake-up costs tens of microseconds on a
        /// virtual machine.
        spin: Duration,
    },
}

impl Default for Progress {
    fn default() -> Self {
        Self::Threads { workers: 0, spin: SPIN }
    }
}

/// Wraps each channel's datapath: impairment, packet capture.
pub type Wrap = Arc<dyn Fn(u8, Box<dyn Datapath>) -> Box<dyn Datapath> + Send + Sync>;

/// Parameters of a context.
#[derive(Clone)]
pub struct ContextConfig {
    /// Local address of the channels' sockets; each gets a port of its own. [`ScopedIp::ANY`], the
    /// default, reaches IPv6 and IPv4 peers. A link-local IPv6 address needs its interface, as in
    /// `"fe80::1%eth0".parse()`.
    pub bind: ScopedIp,
    /// UDP port of the first channel; the others have those after it. `None`: any that are free. RoCE's is
    /// [`ROCE_PORT`](crate::rc::ROCE_PORT).
    pub port: Option<u16>,
    /// Number of channels: UDP sockets.
    pub channels: u8,
    /// The datapath that carries the packets.
    pub datapath: DatapathKind,
    /// How the workers are driven.
    pub progress: Progress,
    /// Receive buffer to request per socket, in bytes; the kernel grants at most
    /// `net.core.rmem_max`.
    pub receive_buffer_bytes: usize,
    /// Wraps each channel's datapath.
    pub wrap: Option<Wrap>,
    /// Whether packets are marked as ECN-capable. The controller `Fixed` ignores congestion marks
    /// in any case.
    pub ecn: bool,
    /// File that keeps what is known of paths for the next process; without one it is kept as long
    /// as the context. The file need not exist yet. One that is not a regular file with such
    /// records is refused.
    pub path_memory: Option<PathBuf>,
    /// Which connections are encrypted, and with whom.
    pub security: Security,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            bind: ScopedIp::ANY,
            port: None,
            channels: 1,
            datapath: DatapathKind::Udp,
            progress: Progress::default(),
            receive_buffer_bytes: UdpConfig::RECEIVE_BUFFER_BYTES,
            wrap: None,
            ecn: true,
            path_memory: None,
            security: Security::default(),
        }
    }
}

impl fmt::Debug for ContextConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContextConfig")
            .field("bind", &self.bind)
            .field("channels", &self.channels)
            .field("datapath", &self.datapath)
            .field("progress", &self.progress)
            .field("wrapped", &self.wrap.is_some())
            .finish_non_exhaustive()
    }
}

/// Packets that reached no queue pair.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct ContextStats {
    /// Refused for layout or trailer, by reason; only reasons that occurred. A data packet without
    /// a RETH has its key in the trailer, so a damaged one counts as a wrong key:
    /// `discarded["key"]` of its channel.
    pub rejected: BTreeMap<&'static str, u64>,
    /// For an unknown queue pair, or with a wrong key.
    pub unknown: u64,
    /// Dropped by the kernel because a socket buffer of this end was full.
    pub receive_drops: u64,
    /// Dropped by this end's own datapath.
    pub refused_by_datapath: u64,
    /// How often a peer's address changed and the peer proved that it is there: once per channel.
    pub paths_moved: u64,
    /// How often a peer seemed to be elsewhere, and was where it had been: somebody copies packets, or
    /// two paths are in use.
    pub paths_kept: u64,
    /// How often a peer seemed to be elsewhere, and nobody answered there.
    pub paths_unproved: u64,
}

impl ContextStats {
    /// Sum of [`ContextStats::rejected`].
    pub fn rejected_packets(&self) -> u64 {
        self.rejected.values().sum()
    }
}

/// Sockets and the threads that serve them, shared by the queue pairs, connections and listeners of
/// a program. One context is enough for any number of them.
///
/// A context has [`ContextConfig::channels`] sockets, each with a port of its own. With
/// [`Progress::Threads`] it makes progress by itself; with [`Progress::Manual`] only during calls
/// that wait, and in [`Context::progress`] and its variants.
///
/// Clones are the same context. Queue pairs and listeners hold one, too; the sockets are closed and
/// the threads end with the last of them.
///
/// After `fork`, the child has none of the threads and shares the sockets with its parent, so it
/// must make a context of its own. It may drop the inherited one, which closes the child's
/// descriptors and does nothing else: the parent's connections continue. In the child, making
/// connections or queue pairs with it is an error, [`Context::progress`] and its variants do
/// nothing, and other operations on inherited queue pairs panic, since they might block for ever.
#[derive(Clone)]
pub struct Context {
    inner: Own<Arc<Inner>>,
}

struct Inner {
    clock: Clock,
    config: ContextConfig,
    policy: Policy,
    capabilities: Capabilities,
    addresses: Vec<SocketAddr>,
    inboxes: Vec<Arc<Inbox>>,
    counters: Vec<Arc<Counters>>,
    /// The worker of manual progress.
    manual: Option<Mutex<Worker>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    monitor: Arc<Monitor>,
    /// Idle control connections to listeners.
    control_pool: Arc<reuse::ControlPool>,
    paths: Paths,
    /// Credit for each remote socket, shared by the queue pairs that send to it.
    credit_pools: Mutex<HashMap<SocketAddr, Weak<SharedCredit>>>,
    senders: Arc<Senders>,
    roster: Arc<Roster>,
    /// Keys of the regions that peers write.
    keys: Arc<KeyTable>,
    /// Datagram queue pairs that make progress in the application's calls.
    datagrams: Mutex<Vec<Weak<datagram::Shared>>>,
    /// Those to close at the end.
    completion_queues: Mutex<Vec<Weak<completion::Inner>>>,
    /// When manual progress polls the control connections next.
    watch_due_ns: AtomicU64,
    /// References that keep it for a call only.
    visits: AtomicUsize,
}

impl Context {
    /// Binds the sockets and starts the workers.
    pub fn new(config: ContextConfig) -> Result<Self, ContextError> {
        let channels = config.channels;
        if channels == 0 || usize::from(channels) > CHANNELS_MAX {
            return Err(ContextError::Channels { channels });
        }
        let policy = Policy::of(&config.security)?;
        let paths = Paths::open(config.path_memory.clone())?;
        let datapaths = bind(&config)?;
        let addresses = datapaths.iter().map(Datapath::local_addr).collect();
        let capabilities = datapaths[0].capabilities();
        let workers = worker_count(&config);
        let mut shares: Vec<Vec<(u8, Box<dyn Datapath>)>> = Vec::new();
        shares.resize_with(workers, Vec::new);
        for (channel, datapath) in datapaths.into_iter().enumerate() {
            shares[channel % workers].push((channel as u8, datapath));
        }
        let clock = Clock::new();
        let monitor = Monitor::new(clock)
            .map_err(|source| ContextError::System { what: "an event queue", source })?;
        let monitor = Arc::new(monitor);
        let spin = match config.progress {
            Progress::Threads { spin, .. } => spin,
            Progress::Manual => SPIN,
        };
        let mut inboxes = Vec::new();
        let mut made = Vec::new();
        for (index, share) in shares.into_iter().enumerate() {
            let (waiter, waker) = Waiter::new()
                .map_err(|source| ContextError::System { what: "a wake-up descriptor", source })?;
            let inbox = Arc::new(Inbox::new(waker));
            inboxes.push(inbox.clone());
            made.push(Worker::new(index, clock, share, inbox, waiter, spin, secret()?));
        }
        let counters = made.iter().map(Worker::counters).collect();
        let socket_bytes = capabilities.receive_buffer_bytes;
        let roster = Arc::new(Roster::new(clock, channels, socket_bytes, inboxes.clone().into()));
        let mut threads = Vec::new();
        let mut manual = None;
        match config.progress {
            Progress::Manual => manual = made.pop().map(Mutex::new),
            Progress::Threads { .. } => {
                let watching = monitor.clone();
                let thread = thread::start("lacuna-monitor", move || watching.run());
                threads.push(thread.map_err(ContextError::Thread)?);
                for (index, mut worker) in made.into_iter().enumerate() {
                    let served = roster.clone();
                    let thread = thread::start(&format!("lacuna-{index}"), move || {
                        let run = AssertUnwindSafe(|| worker.run());
                        if let Err(panic) = catch_unwind(run) {
                            served.fail_all();
                            resume_unwind(panic);
                        }
                    });
                    match thread {
                        Ok(thread) => threads.push(thread),
                        Err(source) => {
                            stop(&inboxes, &monitor, threads);
                            return Err(ContextError::Thread(source));
                        }
                    }
                }
            }
        }
        let seed = getrandom::u64().map_err(no_random_numbers)?;
        let keys = Arc::new(KeyTable::new(seed));
        keys.yield_by(std::thread::yield_now);
        let inner = Inner {
            clock,
            config,
            policy,
            capabilities,
            addresses,
            inboxes,
            counters,
            manual,
            threads: Mutex::new(threads),
            monitor,
            control_pool: Arc::default(),
            paths,
            credit_pools: Mutex::default(),
            senders: Arc::default(),
            roster,
            keys,
            datagrams: Mutex::default(),
            completion_queues: Mutex::default(),
            watch_due_ns: AtomicU64::new(0),
            visits: AtomicUsize::new(0),
        };
        Ok(Self { inner: Own::new(Arc::new(inner)) })
    }

    /// Whether this process was forked from the one that made the context.
    pub fn is_inherited(&self) -> bool {
        self.inner.is_inherited()
    }

    /// The keys of regions.
    pub(crate) fn keys(&self) -> &Arc<KeyTable> {
        &self.inner.keys
    }

    /// An error in a forked child.
    pub(crate) fn check_process(&self) -> Result<(), ContextError> {
        if self.is_inherited() { Err(ContextError::Inherited) } else { Ok(()) }
    }

    /// The worker of manual progress. `None` in a forked child, where it would take packets from
    /// the parent's.
    fn manual(&self) -> Option<&Mutex<Worker>> {
        self.inner.manual.as_ref().filter(|_| !self.is_inherited())
    }

    /// The parameters it was made with.
    pub fn config(&self) -> &ContextConfig {
        &self.inner.config
    }

    /// Capabilities of its datapath.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.capabilities
    }

    /// Local addresses of the channels.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.inner.addresses
    }

    /// Packets that reached no queue pair.
    pub fn stats(&self) -> ContextStats {
        let mut stats = ContextStats::default();
        for counters in &self.inner.counters {
            for kind in RejectKind::ALL {
                let count = counters.rejected[kind.as_index()].load(Ordering::Relaxed);
                if count > 0 {
                    *stats.rejected.entry(kind.name()).or_default() += count;
                }
            }
            stats.unknown += counters.unknown.load(Ordering::Relaxed);
            stats.receive_drops += counters.receive_drops.load(Ordering::Relaxed);
            stats.refused_by_datapath += counters.refused_by_datapath.load(Ordering::Relaxed);
            stats.paths_moved += counters.paths_moved.load(Ordering::Relaxed);
            stats.paths_kept += counters.paths_kept.load(Ordering::Relaxed);
            stats.paths_unproved += counters.paths_unproved.load(Ordering::Relaxed);
        }
        stats
    }

    /// Makes a queue of `entries` for completions of this context's operations.
    ///
    /// # Errors
    /// When `entries` is 0 or more than 16,777,216, when the system has no file descriptor left, or
    /// in a forked child.
    pub fn completion_queue(&self, entries: u32) -> Result<CompletionQueue, CompletionQueueError> {
        self.check_process()?;
        let manual = self.is_manual().then(|| WeakContext(Arc::downgrade(&self.inner)));
        let queue = CompletionQueue::new(entries, self.inner.clock, manual)?;
        let mut queues = lock(&self.inner.completion_queues);
        // Those that are gone are removed before the list would grow.
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.strong_count() > 0);
        }
        queues.push(queue.downgrade());
        Ok(queue)
    }

    /// Steps the worker once without waiting, for [`Progress::Manual`]; `false` if there was
    /// nothing to do. With threads it does nothing.
    pub fn progress(&self) -> bool {
        let Some(worker) = self.manual() else { return false };
        let mut worker = lock(worker);
        let worked = worker.step();
        let now_ns = worker.stepped_ns();
        drop(worker);
        self.watch(now_ns);
        self.step_datagrams() || worked
    }

    /// A datagram queue pair makes progress in the application's calls from now on.
    pub(crate) fn add_datagram(&self, shared: &Arc<datagram::Shared>) {
        let mut all = lock(&self.inner.datagrams);
        all.retain(|shared| shared.strong_count() > 0);
        all.push(Arc::downgrade(shared));
    }

    /// How long one datagram queue pair may sleep on its own socket, with manual progress: others have something to do
    /// meanwhile, perhaps.
    pub(crate) fn datagram_sleep_max(&self) -> Duration {
        let all = lock(&self.inner.datagrams);
        let is_alone = all.iter().filter(|shared| shared.strong_count() > 0).count() < 2;
        if is_alone { WATCH_EVERY } else { DATAGRAM_NAP }
    }

    /// Steps datagram queue pairs once; whether there was anything to do.
    fn step_datagrams(&self) -> bool {
        if self.is_inherited() {
            // Of the process that was forked, which goes on with the same numbers.
            return false;
        }
        let all: Vec<_> = lock(&self.inner.datagrams).iter().filter_map(Weak::upgrade).collect();
        let mut worked = false;
        for shared in all {
            worked |= shared.progress();
        }
        worked
    }

    /// As [`Context::progress`], but `None` at once if another thread is making progress, and
    /// always with threads.
    pub fn try_progress(&self) -> Option<bool> {
        let mut worker = match self.manual()?.try_lock() {
            Ok(worker) => worker,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let worked = worker.step();
        let now_ns = worker.stepped_ns();
        drop(worker);
        self.watch(now_ns);
        Some(self.step_datagrams() || worked)
    }

    /// Ends the sleep of a thread in [`Context::progress_within`], or the next one. A sleeping
    /// thread holds the worker, so this lets another thread make progress itself.
    pub fn interrupt(&self) {
        if self.is_inherited() {
            return;
        }
        for inbox in &self.inner.inboxes {
            inbox.wake();
        }
    }

    /// Makes progress; without work it polls for a while, then sleeps, for at most `limit`. It may
    /// return early.
    pub fn progress_within(&self, limit: Duration) {
        let Some(worker) = self.manual() else { return };
        self.watch(self.inner.clock.now_ns());
        let has_datagrams = !lock(&self.inner.datagrams).is_empty();
        if has_datagrams && self.step_datagrams() {
            return;
        }
        // Their sockets are not among those that are waited for.
        let nap = if has_datagrams { DATAGRAM_NAP } else { WATCH_EVERY };
        lock(worker).step_or_wait(Some(limit.min(nap)));
    }

    /// Polls the control connections if that is due: with manual progress no thread does.
    fn watch(&self, now_ns: u64) {
        let due_ns = self.inner.watch_due_ns.load(Ordering::Relaxed);
        if now_ns >= due_ns {
            let next_ns = now_ns + WATCH_EVERY.as_nanos() as u64;
            self.inner.watch_due_ns.store(next_ns, Ordering::Relaxed);
            self.inner.monitor.check();
        }
    }

    pub(crate) fn monitor(&self) -> &Arc<Monitor> {
        &self.inner.monitor
    }

    /// Which connections are encrypted.
    pub(crate) fn policy(&self) -> &Policy {
        &self.inner.policy
    }

    pub(crate) fn control_pool(&self) -> &Arc<reuse::ControlPool> {
        &self.inner.control_pool
    }

    pub(crate) fn is_manual(&self) -> bool {
        self.inner.manual.is_some()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.inner.clock
    }

    pub(crate) fn roster(&self) -> &Roster {
        &self.inner.roster
    }

    pub(crate) fn paths(&self) -> &Paths {
        &self.inner.paths
    }

    /// What a new queue pair to `peer` begins with: a rate, of which the queue pairs that are
    /// sending there get equal parts, and loss statistics.
    pub(crate) fn remembered(&self, peer: ScopedIp, rtt_ns: (u64, u64)) -> Remembered {
        let known = self.inner.roster.path_to(peer);
        if let Some(record) = known.found {
            self.inner.paths.note(peer, record, known.is_shared);
        }
        self.inner.paths.remembered(peer, rtt_ns, known.sending + 1)
    }

    /// The queue pairs of this context that have packets in flight.
    pub(crate) fn senders(&self) -> Arc<Senders> {
        self.inner.senders.clone()
    }

    /// The credit for a remote socket.
    pub(crate) fn credit_pool(&self, peer: SocketAddr) -> Arc<SharedCredit> {
        let mut credit_pools = lock(&self.inner.credit_pools);
        if let Some(pool) = credit_pools.get(&peer).and_then(Weak::upgrade) {
            return pool;
        }
        // Peers without queue pairs are removed before the map would grow.
        if credit_pools.len() == credit_pools.capacity() {
            credit_pools.retain(|_, pool| pool.strong_count() > 0);
        }
        let pool = Arc::new(SharedCredit::new());
        credit_pools.insert(peer, Arc::downgrade(&pool));
        pool
    }
}

/// A context that somebody else keeps.
pub(crate) struct WeakContext(Weak<Inner>);

impl WeakContext {
    /// The context for the time of a call, unless it is gone or only such calls keep it: threads that call
    /// again and again would keep it for each other for ever. Call it in the process that made it.
    pub(crate) fn visit(&self) -> Option<Visit> {
        let context = self.0.upgrade().map(|inner| Context { inner: Own::new(inner) })?;
        context.inner.visits.fetch_add(1, Ordering::SeqCst);
        let visit = Visit { context };
        let inner = &visit.context.inner;
        // A visit is counted while its reference exists, so there are never fewer references than visits.
        let is_kept = Arc::strong_count(inner) > inner.visits.load(Ordering::SeqCst);
        is_kept.then_some(visit)
    }
}

/// A context that is kept for the time of a call.
pub(crate) struct Visit {
    context: Context,
}

impl Deref for Visit {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.context.inner.visits.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("addresses", &self.inner.addresses)
            .field("capabilities", &self.inner.capabilities)
            .finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        stop(&self.inboxes, &self.monitor, threads);
        if self.manual.is_some() {
            // Commands hold queue pairs, which hold the inboxes. A manual worker takes no more
            // commands, so this breaks the cycle. Threads take all of theirs; `Stop` is the last.
            for inbox in &self.inboxes {
                inbox.take(&mut Vec::new());
            }
        }
        for queue in lock(&self.completion_queues).iter().filter_map(Weak::upgrade) {
            queue.close();
        }
    }
}

fn stop(inboxes: &[Arc<Inbox>], monitor: &Monitor, threads: Vec<JoinHandle<()>>) {
    for inbox in inboxes {
        inbox.push(Command::Stop);
    }
    monitor.stop();
    let here = std::thread::current().id();
    for thread in threads {
        // A worker may drop the last handle itself, with a buffer of the application. It cannot
        // join itself; its thread ends after the present step.
        if thread.thread().id() != here && thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A secret of a worker.
fn secret() -> Result<Secret, ContextError> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes).map_err(no_random_numbers)?;
    Ok(Secret::new(bytes))
}

fn no_random_numbers(error: getrandom::Error) -> ContextError {
    ContextError::System { what: "random numbers", source: std::io::Error::other(error) }
}

fn bind(config: &ContextConfig) -> Result<Vec<Box<dyn Datapath>>, ContextError> {
    let mut datapaths: Vec<Box<dyn Datapath>> = Vec::new();
    for channel in 0..config.channels {
        let port = config.port.map_or(0, |first| first.saturating_add(channel.into()));
        let local = config.bind.at_port(port);
        let udp = |offload| UdpConfig {
            receive_buffer_bytes: config.receive_buffer_bytes,
            offload,
            ecn: config.ecn,
            ..UdpConfig::new(local)
        };
        let datapath: Box<dyn Datapath> = match &config.datapath {
            DatapathKind::Udp => Udp::bind_boxed(udp(Offload::Auto))?,
            DatapathKind::UdpPlain => Udp::bind_boxed(udp(Offload::Plain))?,
            DatapathKind::Mem(network) => {
                Box::new(network.bind(local, config.receive_buffer_bytes)?)
            }
        };
        datapaths.push(match &config.wrap {
            Some(wrap) => wrap(channel, datapath),
            None => datapath,
        });
    }
    Ok(datapaths)
}

fn worker_count(config: &ContextConfig) -> usize {
    let channels = usize::from(config.channels);
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    match config.progress {
        Progress::Manual => 1,
        Progress::Threads { workers: 0, .. } => channels.min(cores()),
        Progress::Threads { workers, .. } => workers.min(channels),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConnectionConfig;
    use std::net::Ipv4Addr;

    #[test]
    fn queue_pairs_that_no_step_has_seen_go_with_their_context() {
        for progress in [Progress::Manual, Progress::default()] {
            let bind = Ipv4Addr::LOCALHOST.into();
            let config = ContextConfig { bind, progress, ..ContextConfig::default() };
            let context = Context::new(config).unwrap();
            let queue_pair = context.queue_pair(&ConnectionConfig::default()).unwrap();
            let shared = Arc::downgrade(&queue_pair.owner.shared);
            drop((queue_pair, context));
            assert!(shared.upgrade().is_none(), "{progress:?}");
        }
    }
}
