//! Datagram queue pairs over plain UDP: one socket reaches any number of peers, without connections.
//!
//! Sends go into receives of the peer, Write-Records into its memory, and READs bring bytes of it. By default
//! nothing is repaired, and what came is told exactly (unreliable datagrams, UD). With [`Settings::reliable`]
//! every message comes once, and in order of each peer (RD). An idle peer takes some hundred bytes.
//!
//! Where the context trusts by a token ([`crate::Security`]), all packets are sealed, those to groups included: the
//! first message to a peer waits for one round trip, in which both ends draw keys. Who has the token, or gets it later,
//! can read them all: there is no forward secrecy, as there is with connections.
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
use crate::completion::{CompletionQueue, DatagramSink};
use crate::context::{Context, Progress, Wrap};
use crate::error::ContextError;
use crate::handles::SLEEP_MAX;
use crate::security::NoToken;
use lacuna_datagram::{Config, Endpoint, ReliableConfig};
use lacuna_datapath::{
    BindError, Datapath, Groups, Offload, Udp, UdpConfig, Waiter, Waker, thread,
};
use lacuna_path::controller::ControllerConfig;
use lacuna_secure::datagram::{Keyring, KeyringConfig, Limits};
use lacuna_secure::{Cipher, SECRET_BYTES, Secret};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};
use worker::Worker;
use zeroize::Zeroizing;

pub use crate::completion::Full;
pub use lacuna_datagram::{
    Arrived, Discards, Done, Ended, Failure, Map, MessageError, OpenLimits, Operation, PeerId,
    PostError as WorkError, RecvWork, SEAL_BYTES, SendWork, Stats, Target, ValidMemory, Verb,
};
pub use lacuna_secure::datagram::KeyringStats;
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
    /// Longest packet, as UDP payload. The path to every peer must pass it; longer ones are lost or refused. Where packets
    /// are sealed, their payload is shorter for it, by [`SEAL_BYTES`].
    pub packet_bytes: usize,
    /// Bits per second to each peer, headers included; `None` leaves it to the controller.
    pub rate_bits_per_s: Option<u64>,
    /// Finds how fast unreliable packets may leave to each peer, which is asked now and then how much has come.
    /// `None` sends as fast as the host can: where a peer or a path cannot take that, the rest is lost.
    pub controller: Option<ControllerConfig>,
    /// Peers that are known at a time; those without a handle go for others.
    pub peers_max: usize,
    /// Messages that may be open at a time.
    pub open: OpenLimits,
    /// Every message comes once and in order (RD); both ends need it. `None`, the default, sends each packet
    /// once (UD).
    pub reliable: Option<Reliable>,
    /// Where work requests complete to, and Write-Records that come; `None` is a list of its own
    /// ([`QueuePair::poll`]). Each work request and each receive takes an entry until its completion was polled, or
    /// it has ended without one. A Write-Record that comes while no entry is free is dropped, and counted as
    /// [`Discards::busy`]; a reliable one comes again.
    pub completions: Option<CompletionQueue>,
    /// Threads that take packets, each from a socket of its own on the same port; a peer's packets are all one's, so
    /// they stay in order. The first one sends, too. With manual progress there is one. Linux only, elsewhere 1.
    pub workers: usize,
    /// How packets to groups leave.
    pub multicast: Multicast,
    /// Receive buffer to request, in bytes.
    pub receive_buffer_bytes: usize,
}

/// How packets to groups leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multicast {
    /// How many routers they pass at most, and one more; 1 stays in the network.
    pub ttl: u8,
    /// Whether they also come to queue pairs of this host.
    pub loops: bool,
    /// Number of the interface that they leave by; 0 is the one of the route.
    pub interface: u32,
    /// Whether what receivers miss is sent again. Without, the bytes of a message are not kept once it has completed.
    pub repairs: bool,
}

impl Default for Multicast {
    fn default() -> Self {
        Self { ttl: 1, loops: true, interface: 0, repairs: true }
    }
}

/// How messages are made to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reliable {
    /// Decides how much is sent to each peer, and how fast; [`Settings::rate_bits_per_s`] is not used.
    pub controller: ControllerConfig,
    /// A peer that says nothing for so long, while something is to be acknowledged, is in error: what was posted to
    /// it ends, and nothing can be posted to it until [`QueuePair::reset`].
    pub silence: Duration,
}

impl Default for Reliable {
    fn default() -> Self {
        let ReliableConfig { controller, silence_ns, .. } = ReliableConfig::default();
        Self { controller, silence: Duration::from_nanos(silence_ns) }
    }
}

impl Default for Settings {
    fn default() -> Self {
        let Config { peers_max, open, .. } = Config::default();
        Self {
            bind: ScopedIp::ANY,
            port: None,
            packet_bytes: PACKET_BYTES,
            rate_bits_per_s: None,
            controller: Some(ControllerConfig::default()),
            peers_max,
            open,
            reliable: None,
            completions: None,
            workers: 1,
            multicast: Multicast::default(),
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
    /// The context encrypts, and whom it trusts has no secret with this end by which datagrams could be. The caller's
    /// fault.
    #[error(
        "datagrams are encrypted by a token that all have, and this context trusts by keys: give it a token (Trust::of_token, LACUNA_TOKEN_FILE)"
    )]
    NoToken,
    /// The socket could not be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The system refuses what was set for groups. The caller's fault, mostly: no such interface.
    #[error("cannot set how packets to groups leave: {0}")]
    Multicast(io::Error),
    /// The system refused something, or the context is of another process.
    #[error(transparent)]
    Context(#[from] ContextError),
}

/// Why work was not posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// It cannot be. The caller's fault, but for a peer that is in error.
    #[error(transparent)]
    Work(#[from] WorkError),
    /// The completion queue has no free entry. Trying again helps once completions were polled.
    #[error(transparent)]
    Full(#[from] Full),
}

/// Shortest packet: headers and some bytes.
pub const PACKET_BYTES_MIN: usize = 128;
/// Longest packet: a datagram of UDP.
pub const PACKET_BYTES_MAX: usize = 65_507;

/// Numbers of datagram queue pairs: above those of all others, which have 24 bits.
static NUMBER: AtomicU32 = AtomicU32::new(1 << 31);

/// A datagram queue pair. Clones are the same one; it closes with the last of them.
#[derive(Clone)]
pub struct QueuePair {
    owner: Arc<Owner>,
}

struct Owner {
    /// Its regions are what peers write and read.
    context: Context,
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    groups: Groups,
    local: SocketAddr,
    number: u32,
}

/// What the application and the worker share.
pub(crate) struct Shared {
    clock: Clock,
    /// Packets are opened before the endpoint gets them.
    is_sealed: bool,
    endpoint: Mutex<Endpoint>,
    sink: Option<DatagramSink>,
    changed: Condvar,
    /// Threads that wait on `changed`; changed only under the lock.
    waiting: AtomicUsize,
    /// The worker of manual progress, held during a step.
    manual: Option<Mutex<Worker>>,
    /// Of the worker that sends.
    waker: Waker,
    /// Of the others.
    others: Vec<Waker>,
    is_over: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Endpoint> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of what is done, after the lock under which something changed was released.
    fn notify(&self) {
        if let Some(sink) = &self.sink {
            sink.deliver(|| self.lock());
        }
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }
}

impl Shared {
    /// Makes progress once, if nothing else does; whether there was something to do.
    pub(crate) fn progress(&self) -> bool {
        let Some(manual) = &self.manual else { return false };
        match manual.try_lock() {
            Ok(mut worker) => worker.step(self),
            Err(_) => false,
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
        self.shared.others.iter().for_each(Waker::wake);
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a worker panicked");
            }
        }
        if self.shared.sink.is_some() {
            // What was posted goes with it, and the completion queue is told.
            let mut endpoint = self.shared.lock();
            // Nobody makes packets any more.
            endpoint.on_emitted();
            endpoint.close();
            drop(endpoint);
            self.shared.notify();
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
        let secret = self.policy().datagram_secret(settings.bind.ip());
        let secret = secret.map_err(|NoToken| Error::NoToken)?.map(|secret| Secret::new(*secret));
        self.check_process()?;
        let packet_bytes = settings.packet_bytes;
        if !(PACKET_BYTES_MIN..=PACKET_BYTES_MAX).contains(&packet_bytes) {
            return Err(Error::PacketBytes { packet_bytes });
        }
        let spin = match self.config().progress {
            Progress::Threads { spin, .. } => Some(spin),
            Progress::Manual => None,
        };
        let count = if spin.is_some() { settings.workers.max(1) } else { 1 };
        let (sockets, groups) = bind(settings, count, self.config().wrap.as_ref())?;
        let local = sockets[0].local_addr();
        let seed = getrandom::u64().map_err(|error| ContextError::System {
            what: "random numbers",
            source: std::io::Error::other(error),
        })?;
        let config = Config {
            packet_bytes_max: packet_bytes,
            rate_bits_per_s: settings.rate_bits_per_s,
            controller: settings.controller,
            peers_max: settings.peers_max,
            group_repairs: settings.multicast.repairs,
            open: settings.open,
            reliable: settings.reliable.map(|reliable| ReliableConfig {
                controller: reliable.controller,
                silence_ns: u64::try_from(reliable.silence.as_nanos()).unwrap_or(u64::MAX),
                ..ReliableConfig::default()
            }),
            ..Config::default()
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let clock = self.clock();
        let is_sealed = secret.is_some();
        let endpoint = match secret {
            None => Endpoint::new(config, self.keys().clone(), seed),
            Some(secret) => {
                let keyring = keyring(secret, settings.peers_max, clock.now_ns())?;
                Endpoint::sealed(config, self.keys().clone(), seed, keyring)
            }
        };
        let mut workers = Vec::new();
        let mut wakers = Vec::new();
        for socket in sockets {
            let (waiter, waker) = Waiter::new()
                .map_err(|source| ContextError::System { what: "a wake-up descriptor", source })?;
            let is_first = wakers.is_empty();
            let spin = spin.unwrap_or_default();
            workers.push(Worker::new(self.clock(), socket, waiter, spin, is_first));
            wakers.push(waker);
        }
        let waker = wakers.remove(0);
        let (manual, threaded) = match spin {
            Some(_) => (None, workers),
            None => (workers.pop().map(Mutex::new), Vec::new()),
        };
        let shared = Arc::new(Shared {
            clock,
            is_sealed,
            endpoint: Mutex::new(endpoint),
            sink: settings.completions.as_ref().map(|queue| DatagramSink::new(queue, number)),
            changed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            manual,
            waker,
            others: wakers,
            is_over: AtomicBool::new(false),
        });
        let is_manual = threaded.is_empty();
        let (context, threads) = (self.clone(), Mutex::default());
        // From here on its end stops those that were started.
        let owner = Owner { context, shared: shared.clone(), threads, groups, local, number };
        if is_manual {
            self.add_datagram(&shared);
        }
        for mut worker in threaded {
            let served = shared.clone();
            let run = move || worker.run(&served);
            let thread = thread::start("lacuna-datagram", run).map_err(ContextError::Thread)?;
            owner.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        }
        Ok(QueuePair { owner: Arc::new(owner) })
    }
}

/// The keys of a new queue pair, which has no peers yet.
fn keyring(secret: Secret, peers_max: usize, now_ns: u64) -> Result<Keyring, Error> {
    let mut seed = Zeroizing::new([0; SECRET_BYTES]);
    getrandom::fill(seed.as_mut()).map_err(|error| ContextError::System {
        what: "random numbers",
        source: io::Error::other(error),
    })?;
    // Not the one that is fastest here: all who have the token must have the same.
    let cipher = Cipher::Aes128Gcm;
    let config = KeyringConfig { cipher, limits: Limits::of(cipher), peers_max };
    Ok(Keyring::new(config, secret, Secret::new(*seed), now_ns))
}

/// Binds as many sockets as there are workers, to one port.
fn bind(
    settings: &Settings,
    count: usize,
    wrap: Option<&Wrap>,
) -> Result<(Vec<Box<dyn Datapath>>, Groups), Error> {
    let mut local = settings.bind.at_port(settings.port.unwrap_or(0));
    let (mut sockets, mut groups) = (Vec::<Box<dyn Datapath>>::new(), None);
    for at in 0..count {
        let socket = Udp::bind(UdpConfig {
            receive_buffer_bytes: settings.receive_buffer_bytes,
            offload: Offload::Auto,
            // Only while there is one peer; the worker allows it.
            connects_peer: false,
            // Nobody answers congestion marks, and round trips are told by peers.
            ecn: false,
            tells_arrival: false,
            // A host with several addresses answers from the one that was asked.
            tells_local: local.ip().is_unspecified(),
            shares_port: count > 1,
            broadcasts: true,
            ..UdpConfig::new(local)
        })?;
        local.set_port(socket.local_addr().port());
        if groups.is_none() {
            groups = Some(socket.groups().map_err(Error::Multicast)?);
        }
        let socket: Box<dyn Datapath> = Box::new(socket);
        sockets.push(match wrap {
            Some(wrap) => wrap(at as u8, socket),
            None => socket,
        });
    }
    let groups = groups.expect("one socket at least");
    let Multicast { ttl, loops, interface, .. } = settings.multicast;
    groups.set_ttl(ttl).map_err(Error::Multicast)?;
    groups.set_loop(loops).map_err(Error::Multicast)?;
    if interface != 0 {
        groups.set_interface(interface).map_err(Error::Multicast)?;
    }
    Ok((sockets, groups))
}

impl QueuePair {
    /// Its context.
    pub fn context(&self) -> &Context {
        &self.owner.context
    }

    /// Its number, as completions tell it. No other queue pair of this process has it.
    pub fn number(&self) -> u32 {
        self.owner.number
    }

    /// Whether its packets are sealed, by the context's token. Peers without the token are not reached then, and are not
    /// heard.
    pub fn is_sealed(&self) -> bool {
        self.owner.shared.is_sealed
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

    /// Several hosts as one peer: a multicast group, or a broadcast address. A Send to it, or a Write-Record to memory
    /// that has a name at each ([`Verb::WriteNamed`]), goes to all, once; those that miss something ask for it
    /// again, as far as that goes. `None` if as many handles are held as may be.
    pub fn group(&self, address: SocketAddr) -> Option<PeerId> {
        self.owner.shared.lock().group(address)
    }

    /// Whether what is posted to a peer goes to a group ([`QueuePair::group`], or a group's address). Its bytes are kept
    /// for a second after it has completed, as its receivers may ask for them again, unless [`Multicast::repairs`]
    /// says otherwise.
    pub fn is_group(&self, peer: PeerId) -> bool {
        self.owner.shared.lock().is_group(peer)
    }

    /// Takes what is sent to a multicast group and this queue pair's port, on an interface by its number, or 0 for that
    /// of the route.
    ///
    /// # Errors
    /// When the address is no group's, it is joined already, or there is no such interface.
    pub fn join(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.owner.groups.join(group, interface)
    }

    /// Leaves a group.
    ///
    /// # Errors
    /// When it was not joined.
    pub fn leave(&self, group: IpAddr, interface: u32) -> io::Result<()> {
        self.owner.groups.leave(group, interface)
    }

    /// Gives a region, or a window of one, a name, under which [`Verb::WriteNamed`] finds it; `None` takes the name
    /// back.
    pub fn name_region(&self, name: u32, key: Option<u32>) {
        self.owner.shared.lock().name_region(name, key);
    }

    /// Tells a peer, or a group, up to where has been sent, once that has left. It knows then which messages were lost
    /// last; of those before, later ones tell it.
    pub fn say_sent(&self, peer: PeerId) {
        self.owner.shared.lock().say_sent(peer);
        self.owner.shared.waker.wake();
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
        let now_ns = shared.clock.now_ns();
        let post =
            |endpoint: &mut Endpoint| endpoint.post_send(now_ns, work).map_err(PostError::from);
        match &shared.sink {
            Some(sink) => sink.post_send(|| shared.lock(), post)?,
            None => post(&mut shared.lock())?,
        }
        shared.waker.wake();
        Ok(())
    }

    /// Ends the error of a peer, so that work can be posted to it again. Only reliable queue pairs have such
    /// errors ([`Reliable::silence`]).
    pub fn reset(&self, peer: PeerId) {
        self.owner.shared.lock().reset(peer);
    }

    /// Posts a receive, for a Send of anybody.
    ///
    /// # Errors
    /// When the queue pair is closed.
    pub fn post_recv(&self, work: RecvWork) -> Result<(), PostError> {
        let shared = &*self.owner.shared;
        let post = || {
            let mut endpoint = shared.lock();
            endpoint.post_recv(shared.clock.now_ns(), work)?;
            Ok::<bool, PostError>(endpoint.has_packets())
        };
        let has_packets = match &shared.sink {
            Some(sink) => {
                let mut has_packets = false;
                sink.post_recv(|| post().map(|has| has_packets = has))?;
                has_packets
            }
            None => post()?,
        };
        if has_packets {
            // A peer waits to hear of it.
            shared.waker.wake();
        }
        Ok(())
    }

    /// The next completion, if there is one. None comes here if the queue pair has a completion queue.
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

    /// Moves up to `max` completions to the end of `into`, waiting for the first at most so long; how many.
    pub fn poll_many(&self, into: &mut Vec<Done>, max: usize, timeout: Duration) -> usize {
        if max == 0 {
            return 0;
        }
        let first = if timeout.is_zero() { self.poll() } else { self.wait(timeout) };
        let Some(first) = first else { return 0 };
        let before = into.len();
        into.push(first);
        let mut endpoint = self.owner.shared.lock();
        into.extend(std::iter::from_fn(|| endpoint.poll_done()).take(max - 1));
        into.len() - before
    }

    /// The next completion that is no Write-Record's, waiting at most so long. What those wrote until then becomes
    /// part of `memory`: for applications that want to know which memory is valid, and not by which messages. Both
    /// ways of polling can be mixed.
    pub fn poll_memory(&self, memory: &mut ValidMemory, timeout: Duration) -> Option<Done> {
        self.wait_for(timeout, |endpoint| endpoint.poll_memory(memory))
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
        let is_inherited = self.owner.context.is_inherited();
        let mut endpoint = shared.lock();
        loop {
            if let Some(found) = poll(&mut endpoint) {
                return Some(found);
            }
            let left = shared.clock.until(deadline_ns);
            if left.is_zero() || is_inherited {
                return None;
            }
            match &shared.manual {
                Some(manual) => {
                    drop(endpoint);
                    // What is waited for may come from another queue pair of the context, which nobody else steps.
                    let context = &self.owner.context;
                    if context.try_progress() != Some(true) {
                        let limit = left.min(context.datagram_sleep_max());
                        let mut worker = manual.lock().unwrap_or_else(PoisonError::into_inner);
                        worker.step_or_wait(shared, Some(limit));
                    }
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

    /// Makes progress once, if nothing else does; whether there was something to do. There is none in a process that has
    /// it from another one by a fork: both would seal packets with the same numbers.
    pub fn progress(&self) -> bool {
        !self.owner.context.is_inherited() && self.owner.shared.progress()
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
