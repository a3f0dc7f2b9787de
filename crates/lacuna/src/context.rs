//! A context: the sockets, the workers, and the queue pairs that share them.
//!
//! One channel is one socket with a 4-tuple of its own towards each peer; a
//! worker owns one or more channels. With [`Progress::Threads`] workers run by
//! themselves, with [`Progress::Manual`] the application's calls are the
//! worker. Same code, same results.

use crate::address::ScopedIp;
use crate::clock::Clock;
use crate::error::ContextError;
use crate::inbox::{Command, Inbox};
use crate::monitor::Monitor;
use crate::paths::{Paths, Remembered};
use crate::reuse;
use crate::roster::Roster;
use crate::worker::Worker;
use lacuna_datapath::process::Own;
use lacuna_datapath::{
    Capabilities, Datapath, MemNetwork, Offload, Udp, UdpConfig, Waiter, thread,
};
use lacuna_engine::Counters;
use lacuna_path::pool::{Pool, Senders};
use lacuna_wire::{CHANNELS_MAX, RejectKind};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a worker looks for work before it sleeps, unless told otherwise.
const SPIN: Duration = Duration::from_micros(20);
/// How often manual progress looks at the control connections.
const WATCH_EVERY: Duration = Duration::from_millis(10);

/// Which datapath carries the packets.
#[derive(Debug, Clone, Default)]
pub enum DatapathKind {
    /// UDP with segmentation offload and coalescing where the kernel has them.
    #[default]
    Udp,
    /// UDP through the standard library alone: one packet a call. For systems
    /// without the offloads, and to compare.
    UdpPlain,
    /// A network inside this process.
    Mem(MemNetwork),
}

/// Who makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The application's calls: right for one core and for simulations.
    Manual,
    /// Threads of the context.
    Threads {
        /// How many, one per channel at most; 0 means one per channel, but no
        /// more than the machine has cores.
        workers: usize,
        /// How long a thread looks for work before it sleeps. A wake-up costs
        /// tens of microseconds on a virtual machine.
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

/// What a context is made with.
#[derive(Clone)]
pub struct ContextConfig {
    /// Address that the channels' sockets are bound to, any port. [`ScopedIp::ANY`], the
    /// default, reaches peers of IPv6 and of IPv4; a link-local one of IPv6 has the number of
    /// its interface, as in `"fe80::1%eth0".parse()`.
    pub bind: ScopedIp,
    /// Channels: sockets.
    pub channels: u8,
    /// What carries the packets.
    pub datapath: DatapathKind,
    /// Who makes progress.
    pub progress: Progress,
    /// Receive buffer to ask the kernel for, per socket; it gives what
    /// `net.core.rmem_max` allows.
    pub receive_buffer_bytes: usize,
    /// Wraps each channel's datapath.
    pub wrap: Option<Wrap>,
    /// Whether packets say that their sender answers to marks of congestion (ECN).
    /// A rate given with the controller `Fixed` does not, whatever they say.
    pub ecn: bool,
    /// File that keeps what paths are like, for the next process. Without one it
    /// is kept as long as the context is there. Nothing need be there yet; what is
    /// not a regular file with such records is refused.
    pub path_memory: Option<PathBuf>,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self {
            bind: ScopedIp::ANY,
            channels: 1,
            datapath: DatapathKind::Udp,
            progress: Progress::default(),
            receive_buffer_bytes: UdpConfig::RECEIVE_BUFFER_BYTES,
            wrap: None,
            ecn: true,
            path_memory: None,
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
    /// Refused for their layout or trailer, by reason; only reasons that occurred. A data packet
    /// without an address has its key in the trailer: damaged, it counts as one with a wrong key,
    /// `discarded["key"]` of its channel.
    pub rejected: BTreeMap<&'static str, u64>,
    /// For no known queue pair, or with a wrong key.
    pub unknown: u64,
    /// Dropped by this end's own socket buffers.
    pub receive_drops: u64,
    /// Refused by this end's own datapath.
    pub refused_by_datapath: u64,
}

impl ContextStats {
    /// All packets refused for their layout or trailer, as [`ContextStats::rejected`] counts them.
    pub fn rejected_packets(&self) -> u64 {
        self.rejected.values().sum()
    }
}

/// The sockets, and the threads that serve them: what queue pairs, connections and
/// listeners of a program share. One is enough for any number of them.
///
/// It has [`ContextConfig::channels`] sockets, each with a port of its own. With
/// [`Progress::Threads`] it works by itself; with [`Progress::Manual`] only while
/// the application is in a call that waits, or in [`Context::progress`] and its like.
///
/// Clones are the same context. Queue pairs and listeners keep it, too; its sockets
/// are closed and its threads end with the last of them.
///
/// A child process (`fork`) has none of the threads, and shares the sockets with its
/// parent: it makes a context of its own. It may drop what it has inherited, which
/// closes the descriptors that it has inherited and does nothing else: the parent's
/// connections go on. To make connections or queue pairs with it is an error there,
/// [`Context::progress`] and its like do nothing, and all else that concerns an
/// inherited queue pair panics, since it might wait for ever.
#[derive(Clone)]
pub struct Context {
    inner: Own<Arc<Inner>>,
}

struct Inner {
    clock: Clock,
    config: ContextConfig,
    capabilities: Capabilities,
    addresses: Vec<SocketAddr>,
    inboxes: Vec<Arc<Inbox>>,
    counters: Vec<Arc<Counters>>,
    /// The one worker of manual progress.
    manual: Option<Mutex<Worker>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    monitor: Arc<Monitor>,
    /// Control connections for the next connections.
    control_pool: Arc<reuse::Pool>,
    paths: Paths,
    /// Room in the peers' sockets: what queue pairs to one socket share.
    pools: Mutex<HashMap<SocketAddr, Weak<Pool>>>,
    senders: Arc<Senders>,
    roster: Arc<Roster>,
    /// When manual progress looks at the control connections again.
    watch_due_ns: AtomicU64,
}

impl Context {
    /// Binds the sockets and starts the workers.
    pub fn new(config: ContextConfig) -> Result<Self, ContextError> {
        let channels = config.channels;
        if channels == 0 || usize::from(channels) > CHANNELS_MAX {
            return Err(ContextError::Channels { channels });
        }
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
            made.push(Worker::new(index, clock, share, inbox, waiter, spin));
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
        let inner = Inner {
            clock,
            config,
            capabilities,
            addresses,
            inboxes,
            counters,
            manual,
            threads: Mutex::new(threads),
            monitor,
            control_pool: Arc::default(),
            paths,
            pools: Mutex::default(),
            senders: Arc::default(),
            roster,
            watch_due_ns: AtomicU64::new(0),
        };
        Ok(Self { inner: Own::new(Arc::new(inner)) })
    }

    /// Whether another process has made it, from which this one was forked.
    pub fn is_inherited(&self) -> bool {
        self.inner.is_inherited()
    }

    /// An error in a process that has inherited it.
    pub(crate) fn check_process(&self) -> Result<(), ContextError> {
        if self.is_inherited() { Err(ContextError::Inherited) } else { Ok(()) }
    }

    /// The one worker of manual progress, in its process: another would take the packets
    /// that are that one's.
    fn manual(&self) -> Option<&Mutex<Worker>> {
        self.inner.manual.as_ref().filter(|_| !self.is_inherited())
    }

    /// What it was made with.
    pub fn config(&self) -> &ContextConfig {
        &self.inner.config
    }

    /// What its datapath can do.
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
        }
        stats
    }

    /// Makes progress once, without waiting, for [`Progress::Manual`]; `false` if there was
    /// nothing to do. With threads it does nothing.
    pub fn progress(&self) -> bool {
        let Some(worker) = self.manual() else { return false };
        let mut worker = lock(worker);
        let worked = worker.step();
        let now_ns = worker.stepped_ns();
        drop(worker);
        self.watch(now_ns);
        worked
    }

    /// As [`Context::progress`], but leaves at once if another thread is making
    /// progress just now: `None` then, and always with threads.
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
        Some(worked)
    }

    /// Makes a thread that sleeps in [`Context::progress_within`] return, or the
    /// next one that wants to sleep there. It holds the worker while it sleeps, so
    /// this is how another thread gets to make progress itself.
    pub fn interrupt(&self) {
        if self.is_inherited() {
            return;
        }
        for inbox in &self.inner.inboxes {
            inbox.wake();
        }
    }

    /// Makes progress; if there is nothing to do, looks again for a while, then
    /// sleeps, at most `limit`. It may return early without a reason.
    pub fn progress_within(&self, limit: Duration) {
        let Some(worker) = self.manual() else { return };
        self.watch(self.inner.clock.now_ns());
        lock(worker).step_or_wait(Some(limit.min(WATCH_EVERY)));
    }

    /// Without threads the control connections are looked at now and then.
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

    pub(crate) fn control_pool(&self) -> &Arc<reuse::Pool> {
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

    /// The rate at which one more queue pair may begin to send to `peer`, if one is
    /// known, and how the path loses. The other queue pairs that are sending there
    /// share the rate.
    pub(crate) fn remembered(&self, peer: ScopedIp, rtt_ns: (u64, u64)) -> Remembered {
        let towards = self.inner.roster.towards(peer);
        if let Some(record) = towards.found {
            self.inner.paths.note(peer, record, towards.is_shared);
        }
        self.inner.paths.remembered(peer, rtt_ns, towards.sending + 1)
    }

    /// Who has anything in flight.
    pub(crate) fn senders(&self) -> Arc<Senders> {
        self.inner.senders.clone()
    }

    /// What those that send to this socket share.
    pub(crate) fn pool(&self, peer: SocketAddr) -> Arc<Pool> {
        let mut pools = lock(&self.inner.pools);
        if let Some(pool) = pools.get(&peer).and_then(Weak::upgrade) {
            return pool;
        }
        // Peers that are gone are forgotten when the map would grow.
        if pools.len() == pools.capacity() {
            pools.retain(|_, pool| pool.strong_count() > 0);
        }
        let pool = Arc::new(Pool::new());
        pools.insert(peer, Arc::downgrade(&pool));
        pool
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
            // Requests hold queue pairs, which hold the inboxes: what no step takes
            // any more would keep all of them for ever. Threads take all of theirs,
            // the last being the request to end.
            for inbox in &self.inboxes {
                inbox.take(&mut Vec::new());
            }
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
        // The last handle may go with a buffer that a worker lets go of: that
        // worker ends by itself, after its step.
        if thread.thread().id() != here && thread.join().is_err() {
            tracing::error!("a worker panicked");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn bind(config: &ContextConfig) -> Result<Vec<Box<dyn Datapath>>, ContextError> {
    let local = config.bind.at_port(0);
    let mut datapaths: Vec<Box<dyn Datapath>> = Vec::new();
    for channel in 0..config.channels {
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
