//! Datagram queue pairs over plain UDP: one socket reaches any number of peers, without connections.
//!
//! Sends go into receives of the peer, Write-Records into its memory, and READs bring bytes of it; nothing is
//! repaired, and what came is told exactly. An idle peer takes some hundred bytes. Where every byte must
//! come, [`crate::Connection`] is the better choice.
//!
//! ```no_run
//! use lacuna::datagram::{Operation, SendWork, Settings, Verb};
//! use lacuna::{Context, ContextConfig};
//! use std::time::Duration;
//!
//! # fn example(host: std::net::SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::new(ContextConfig::default())?;
//! let queue_pair = context.datagram_queue_pair(&Settings::default())?;
//! let peer = queue_pair.peer(host).ok_or("too many peers")?;
//! let verb = Verb::Send { data: vec![1; 4096].into() };
//! queue_pair.post_send(SendWork::new(7, peer, verb))?;
//! let done = queue_pair.wait(Duration::from_secs(1)).ok_or("nothing has ended yet")?;
//! assert_eq!((done.id, done.operation), (7, Operation::Send));
//! # Ok(())
//! # }
//! ```

mod worker;

use crate::address::ScopedIp;
use crate::clock::{Clock, after};
use crate::context::{Context, Progress};
use crate::error::ContextError;
use crate::handles::SLEEP_MAX;
use lacuna_datagram::{Config, Endpoint};
use lacuna_datapath::{BindError, Datapath, Offload, Udp, UdpConfig, Waiter, Waker, thread};
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::Worker;

pub use lacuna_datagram::{
    Arrived, Discards, Done, Ended, Failure, Map, MessageError, OpenLimits, Operation, PeerId,
    PostError, RecvWork, SendWork, Stats, Target, Verb,
};
pub use lacuna_wire::ddp::{About, ControlReason, Space};

/// UDP payload of Ethernet's 1,500 bytes, over IPv6.
const PACKET_BYTES: usize = 1452;

/// What a datagram queue pair is made with.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Local address. [`ScopedIp::ANY`], the default, reaches IPv6 and IPv4 peers.
    pub bind: ScopedIp,
    /// UDP port; `None` is any that is free.
    pub port: Option<u16>,
    /// Longest packet, as UDP payload. The path to every peer must pass it; longer ones are lost or refused.
    pub packet_bytes: usize,
    /// Bits per second to each peer, headers included; `None` is as fast as the host can. Nothing tells how the
    /// path fares, so where others share it a rate should be given.
    pub rate_bits_per_s: Option<u64>,
    /// Peers that are known at a time; those without a handle go for others.
    pub peers_max: usize,
    /// Messages that may be open at a time.
    pub open: OpenLimits,
    /// Receive buffer to request, in bytes.
    pub receive_buffer_bytes: usize,
}

impl Default for Settings {
    fn default() -> Self {
        let Config { peers_max, open, .. } = Config::default();
        Self {
            bind: ScopedIp::ANY,
            port: None,
            packet_bytes: PACKET_BYTES,
            rate_bits_per_s: None,
            peers_max,
            open,
            receive_buffer_bytes: UdpConfig::RECEIVE_BUFFER_BYTES,
        }
    }
}

/// Why a datagram queue pair could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The packets cannot have this length. The caller's fault.
    #[error("packets of {packet_bytes} bytes: must be {PACKET_BYTES_MIN} to {PACKET_BYTES_MAX}")]
    PacketBytes {
        /// What was asked for.
        packet_bytes: usize,
    },
    /// The socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refused something, or the context is of another process.
    #[error(transparent)]
    Context(#[from] ContextError),
}

/// Shortest packet: headers and some bytes.
pub const PACKET_BYTES_MIN: usize = 128;
/// Longest packet: a datagram of UDP.
pub const PACKET_BYTES_MAX: usize = 65_507;

/// A datagram queue pair. Clones are the same one; it closes with the last of them.
#[derive(Clone)]
pub struct QueuePair {
    owner: Arc<Owner>,
}

struct Owner {
    /// Its regions are what peers write and read.
    context: Context,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    local: SocketAddr,
}

/// What the application and the worker share.
struct Shared {
    clock: Clock,
    endpoint: Mutex<Endpoint>,
    changed: Condvar,
    /// Threads that wait on `changed`; changed only under the lock.
    waiting: AtomicUsize,
    /// The worker of manual progress, held during a step.
    manual: Option<Mutex<Worker>>,
    waker: Waker,
    is_over: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Endpoint> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes threads that wait, after the lock under which something changed was released.
    fn notify(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.context.is_inherited() {
            return;
        }
        self.shared.is_over.store(true, Ordering::Release);
        self.shared.waker.wake();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("a worker panicked");
        }
    }
}

impl Context {
    /// Makes a datagram queue pair with a socket of its own, ready to send. It has a thread of its own, unless the
    /// context makes progress in the application's calls. Peers write and read the context's regions.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn datagram_queue_pair(&self, settings: &Settings) -> Result<QueuePair, Error> {
        self.check_process()?;
        let packet_bytes = settings.packet_bytes;
        if !(PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&packet_bytes) {
            return Err(Error::PacketBytes { packet_bytes });
        }
        let local = settings.bind.at_port(settings.port.unwrap_or(0));
        let datapath = Udp::bind_boxed(UdpConfig {
            receive_buffer_bytes: settings.receive_buffer_bytes,
            offload: Offload::Auto,
            // Only while there is one peer; the worker allows it.
            connects_peer: false,
            // Nobody answers congestion marks, or measures round trips.
            ecn: false,
            tells_arrival: false,
            ..UdpConfig::new(local)
        })?;
        let local = datapath.local_addr();
        let seed = getrandom::u64().map_err(|error| ContextError::System {
            what: "random numbers",
            source: std::io::Error::other(error),
        })?;
        let config = Config {
            packet_bytes_max: packet_bytes,
            rate_bits_per_s: settings.rate_bits_per_s,
            peers_max: settings.peers_max,
            open: settings.open,
            ..Config::default()
        };
        let endpoint = Endpoint::new(config, self.keys().clone(), seed);
        let (waiter, waker) = Waiter::new()
            .map_err(|source| ContextError::System { what: "a wake-up descriptor", source })?;
        let spin = match self.config().progress {
            Progress::Threads { spin, .. } => Some(spin),
            Progress::Manual => None,
        };
        let worker = Worker::new(self.clock(), datapath, waiter, spin.unwrap_or_default());
        let (manual, threaded) = match spin {
            Some(_) => (None, Some(worker)),
            None => (Some(Mutex::new(worker)), None),
        };
        let shared = Arc::new(Shared {
            clock: self.clock(),
            endpoint: Mutex::new(endpoint),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            manual,
            waker,
            is_over: AtomicBool::new(false),
        });
        let thread = match threaded {
            Some(mut worker) => {
                let served = shared.clone();
                let run = move || worker.run(&served);
                Some(thread::start("lacuna-datagram", run).map_err(ContextError::Thread)?)
            }
            None => None,
        };
        let owner = Owner { context: self.clone(), shared, thread: Mutex::new(thread), local };
        Ok(QueuePair { owner: Arc::new(owner) })
    }
}

impl QueuePair {
    /// Its context.
    pub fn context(&self) -> &Context {
        &self.owner.context
    }

    /// Its socket's address.
    pub fn local_addr(&self) -> SocketAddr {
        self.owner.local
    }

    /// The peer with this address: an address handle. Equal addresses are one handle, and it stays until it is
    /// given back ([`QueuePair::forget`]). `None` if as many handles are held as may be.
    pub fn peer(&self, address: SocketAddr) -> Option<PeerId> {
        self.owner.shared.lock().peer(address)
    }

    /// Gives a handle back.
    pub fn forget(&self, peer: PeerId) {
        self.owner.shared.lock().forget(peer);
    }

    /// The address of a peer, if it is known.
    pub fn address(&self, peer: PeerId) -> Option<SocketAddr> {
        self.owner.shared.lock().address(peer)
    }

    /// Now, on the clock of the deadlines of work requests.
    pub fn now_ns(&self) -> u64 {
        self.owner.shared.clock.now_ns()
    }

    /// Posts a work request. Those to one peer are done in order.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was posted then.
    pub fn post_send(&self, work: SendWork) -> Result<(), PostError> {
        let shared = &*self.owner.shared;
        shared.lock().post_send(shared.clock.now_ns(), work)?;
        shared.waker.wake();
        Ok(())
    }

    /// Posts a receive, for a Send of anybody.
    ///
    /// # Errors
    /// When the queue pair is closed.
    pub fn post_recv(&self, work: RecvWork) -> Result<(), PostError> {
        self.owner.shared.lock().post_recv(work)
    }

    /// The next completion, if there is one.
    pub fn poll(&self) -> Option<Done> {
        let done = self.owner.shared.lock().poll_done();
        if done.is_none() && self.progress() {
            return self.owner.shared.lock().poll_done();
        }
        done
    }

    /// The next error, if there is one: what the queue pair refused, and what peers said of messages from here.
    /// Errors end nothing.
    pub fn poll_error(&self) -> Option<MessageError> {
        self.owner.shared.lock().poll_error()
    }

    /// Waits for the next completion, at most so long.
    pub fn wait(&self, timeout: Duration) -> Option<Done> {
        self.wait_for(timeout, Endpoint::poll_done)
    }

    /// Waits for the next error, at most so long.
    pub fn wait_error(&self, timeout: Duration) -> Option<MessageError> {
        self.wait_for(timeout, Endpoint::poll_error)
    }

    fn wait_for<T>(
        &self,
        timeout: Duration,
        mut poll: impl FnMut(&mut Endpoint) -> Option<T>,
    ) -> Option<T> {
        let shared = &*self.owner.shared;
        let deadline_ns = after(shared.clock.now_ns(), timeout);
        let mut endpoint = shared.lock();
        loop {
            if let Some(found) = poll(&mut endpoint) {
                return Some(found);
            }
            let left = shared.clock.until(deadline_ns);
            if left.is_zero() {
                return None;
            }
            match &shared.manual {
                Some(manual) => {
                    drop(endpoint);
                    let mut worker = manual.lock().unwrap_or_else(PoisonError::into_inner);
                    worker.step_or_wait(shared, Some(left.min(SLEEP_MAX)));
                    drop(worker);
                    endpoint = shared.lock();
                }
                None => {
                    shared.waiting.fetch_add(1, Ordering::Relaxed);
                    let waited = shared.changed.wait_timeout(endpoint, left.min(SLEEP_MAX));
                    endpoint = waited.unwrap_or_else(PoisonError::into_inner).0;
                    shared.waiting.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Makes progress once, if nothing else does; whether there was something to do.
    pub fn progress(&self) -> bool {
        let shared = &*self.owner.shared;
        let Some(manual) = &shared.manual else { return false };
        match manual.try_lock() {
            Ok(mut worker) => worker.step(shared),
            Err(_) => false,
        }
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> Stats {
        self.owner.shared.lock().stats()
    }

    /// Closes it: everything that was posted completes, flushed.
    pub fn close(&self) {
        self.owner.shared.lock().close();
        self.owner.shared.notify();
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("datagram::QueuePair")
            .field("local", &self.owner.local)
            .finish_non_exhaustive()
    }
}
