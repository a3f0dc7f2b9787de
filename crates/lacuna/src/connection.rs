//! A connection: a connected queue pair with a control connection that watches its peer.
//!
//! Messages of any length, in order, each into the buffer that the peer posted for it. Every
//! operation has a deadline, and when the peer dies all operations fail with an error that says so.

use crate::accept_queue::{self, AcceptQueue};
use crate::attempt;
use crate::clock::after;
use crate::completed::RecvOptions;
use crate::config::{Chosen, Class, ConnectionConfig};
use crate::context::Context;
use crate::error::{
    ConnectError, ContextError, PostReceiveError, PostSendError, RecvError, SendError,
};
use crate::handles::{RecvHandle, SendHandle, wait_for};
use crate::handshake::{self, Agreed, Answer, Siblings};
use crate::monitor::Watched;
use crate::offered::{OfferedPool, OfferedSend};
use crate::place::RecvPlace;
use crate::queue_pair::QueuePair;
use crate::reuse::{ListenerPool, Origin};
use crate::stats::ConnectionStats;
use lacuna_datapath::process::Own;
#[cfg(unix)]
use lacuna_datapath::process::descriptors;
use lacuna_place::buffer::SendBuffer;
use lacuna_proto::handshake::Role;
use lacuna_proto::handshake::goodbye;
use lacuna_proto::qp::Failure;
use lacuna_wire::ControlWriter;
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Longest final report. It travels over TCP, so no packet size bounds it, and must hold all
/// frames.
const LAST_WORDS_BYTES_MAX: usize = 8 << 10;
/// The same of a sibling: all together fit the goodbye.
const SIBLING_WORDS_BYTES_MAX: usize = 2 << 10;

/// A queue pair whose peer was found, agreed with, and is watched: messages of any length, in
/// order, each into the receive that the peer posted for it.
///
/// [`Connection::connect`] makes one at one end, a [`Listener`] at the other. Every operation has a
/// deadline, and when the peer dies all operations fail with an error that says so. Whether losses
/// are repaired depends on the mode that the connecting end chooses ([`ConnectionConfig::mode`]).
///
/// Clones are the same connection. It ends when the last one is dropped, and sends and receives in
/// flight end with it: their handles do not keep it open. Wait for them, or call
/// [`Connection::flush`], first.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Own<Arc<Inner>>,
}

struct Inner {
    queue_pair: QueuePair,
    /// Further queue pairs that both ends have.
    siblings: Siblings,
    config: ConnectionConfig,
    chosen: Chosen,
    peer: SocketAddr,
    watched: Arc<Watched>,
    started: Instant,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.peer)
            .field("chosen", &self.chosen)
            .finish_non_exhaustive()
    }
}

/// A message received into a borrowed buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes of the message.
    pub len: usize,
    /// Its immediate, if it carries one.
    pub immediate: Option<u32>,
}

/// Accepts connections from peers.
#[derive(Debug)]
pub struct Listener {
    context: Context,
    config: ConnectionConfig,
    tcp: Own<TcpListener>,
    queue: Own<Mutex<AcceptQueue>>,
    /// Answers of [`Listener::try_accept`] that are not sent completely, because a socket was full.
    answers: Own<Mutex<VecDeque<Answer>>>,
    /// Where idle control connections are put back to.
    pool: Own<Arc<ListenerPool>>,
}

/// A peer that asks a [`Listener`] for a connection and has not been answered, for [`Listener::agree`].
#[derive(Debug)]
pub struct Incoming(handshake::Incoming);

impl Incoming {
    /// The peer's address on the control connection.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.0.peer()
    }
}

impl Listener {
    /// Listens for control connections (TCP) at `address`; packets use the context's own ports.
    /// `[::]` accepts IPv6 and IPv4, whatever the system's default, and is `0.0.0.0` on a host
    /// without IPv6; `0.0.0.0` accepts IPv4 alone. [`address::parse`](crate::address::parse) reads
    /// addresses with a zone.
    ///
    /// Mode, chunk, split, generations, longest message and tag come from the connecting end;
    /// `config`'s are ignored. The controller, rate, retransmission timeout, deadline, silence and
    /// connect timeout in `config` are this end's own. If both ends give an MTU, the smaller one
    /// holds.
    ///
    /// # Errors
    /// When the configuration makes no sense for any connection, or `address` cannot be bound.
    pub fn bind(
        context: &Context,
        address: SocketAddr,
        config: ConnectionConfig,
    ) -> Result<Self, ConnectError> {
        config.check()?;
        context.check_process()?;
        let listen = || {
            let tcp = lacuna_datapath::listen(address, accept_queue::BACKLOG)?;
            // `AcceptQueue` polls this socket together with the peers that have not sent their
            // hello.
            tcp.set_nonblocking(true)?;
            #[cfg(unix)]
            descriptors::note(&tcp);
            Ok(Own::new(tcp))
        };
        let tcp = listen().map_err(|source| ConnectError::Listen { address, source })?;
        context.policy().prepare_sessions();
        let trust = context.policy().trust.clone();
        let timeout = handshake::timeout_of(&config);
        let queue = AcceptQueue::new(context.clock(), trust, accept_queue::PEERS_MAX, timeout)
            .map_err(|source| ConnectError::Listen { address, source })?;
        let pool = Own::new(queue.pool().clone());
        let queue = Own::new(Mutex::new(queue));
        let answers = Own::new(Mutex::default());
        Ok(Self { context: context.clone(), config, tcp, queue, answers, pool })
    }

    /// The address it listens at, with the actual port if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.tcp.local_addr().expect("a listening socket has an address")
    }

    /// Waits for the next peer and completes the handshake with it. An error concerns that peer
    /// only; the listener continues. The exception is [`ConnectError::Accept`], a lack of
    /// resources: connections that are already accepted are served before it, it is returned ten
    /// times a second at most, and the listener continues after it, too.
    ///
    /// Peers are served in the order in which their hellos are complete. Thousands may connect at
    /// once: they wait in the kernel's queue, and one that sends nothing blocks no other. The
    /// connection can be used at once, but whether packets reach the peer is known later: if they
    /// do not, it fails with [`Failure::NoUdp`].
    pub fn accept(&self) -> Result<Connection, ConnectError> {
        self.accept_if(|_| Ok(()))
    }

    /// As [`Listener::accept`], unless `takes` refuses the peer's tag; see [`Listener::agree_if`].
    pub fn accept_if(
        &self,
        takes: impl FnOnce(u64) -> Result<(), String>,
    ) -> Result<Connection, ConnectError> {
        self.agree_if(self.accept_incoming()?, takes)
    }

    /// As [`Listener::accept`] without waiting: `None` if no hello is complete, or another thread
    /// is accepting. With [`Progress::Manual`](crate::Progress::Manual) it makes progress.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn try_accept(&self) -> Result<Option<Connection>, ConnectError> {
        self.try_accept_if(|_| Ok(()))
    }

    /// As [`Listener::try_accept`], unless `takes` refuses the peer's tag; see
    /// [`Listener::agree_if`].
    pub fn try_accept_if(
        &self,
        takes: impl FnOnce(u64) -> Result<(), String>,
    ) -> Result<Option<Connection>, ConnectError> {
        self.context.check_process()?;
        self.context.progress();
        if let Some(connection) = self.finish_answers() {
            return connection.map(Some);
        }
        let mut queue = match self.queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let address = self.local_addr();
        let next = queue.try_next(&self.tcp);
        drop(queue);
        let next = next.map_err(|source| ConnectError::Accept { address, source })?;
        let Some(incoming) = next.transpose()? else { return Ok(None) };
        let answer = incoming.answer(&self.context, &self.config, self.origin(), takes)?;
        match answer.drive(&self.context) {
            ControlFlow::Break(agreed) => Connection::new(*agreed?).map(Some),
            ControlFlow::Continue(answer) => {
                lock(&self.answers).push_back(answer);
                Ok(None)
            }
        }
    }

    /// Continues answers that were not sent completely; returns the next one that is.
    fn finish_answers(&self) -> Option<Result<Connection, ConnectError>> {
        let mut answers = lock(&self.answers);
        for _ in 0..answers.len() {
            match answers.pop_front()?.drive(&self.context) {
                ControlFlow::Break(agreed) => {
                    return Some(agreed.and_then(|agreed| Connection::new(*agreed)));
                }
                ControlFlow::Continue(answer) => answers.push_back(answer),
            }
        }
        None
    }

    /// Waits for the next peer that asks for a connection, without answering it, so that a server may run
    /// [`Listener::agree`] on a thread per peer. Peers that have not asked yet take no thread.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn accept_incoming(&self) -> Result<Incoming, ConnectError> {
        self.context.check_process()?;
        let address = self.local_addr();
        let next = lock(&self.queue).next(&self.tcp);
        next.map_err(|source| ConnectError::Accept { address, source })?.map(Incoming)
    }

    /// Where the control connections of this listener are put back to.
    fn origin(&self) -> Origin {
        Origin::Listener(Arc::downgrade(&self.pool))
    }

    /// Completes the handshake with a peer that has asked.
    ///
    /// # Errors
    /// When the peer cannot be agreed with, is gone, or is not answered in time.
    pub fn agree(&self, incoming: Incoming) -> Result<Connection, ConnectError> {
        self.agree_if(incoming, |_| Ok(()))
    }

    /// Completes the handshake unless `takes` refuses the peer's [`ConnectionConfig::tag`]. A
    /// refused peer gets the reason in [`ConnectError::Refused`], before any packet is sent.
    ///
    /// # Errors
    /// As [`Listener::agree`], and [`ConnectError::Unacceptable`] when it was refused.
    pub fn agree_if(
        &self,
        Incoming(incoming): Incoming,
        takes: impl FnOnce(u64) -> Result<(), String>,
    ) -> Result<Connection, ConnectError> {
        self.context.check_process()?;
        let answer = incoming.answer(&self.context, &self.config, self.origin(), takes)?;
        Connection::new(*answer.finish(&self.context)?)
    }
}

impl Connection {
    /// Connects to a listener over `context`. `peer` is HOST:PORT or an address; a link-local IPv6
    /// address names its interface, as in `[fe80::1%eth0]:7400`. `connect_timeout` bounds all of it
    /// but the name lookup. Within that time, a busy peer is retried, and for one second a peer
    /// that refuses, since it may be about to start. After 250 ms of silence, the same address is
    /// tried again, as packets may be lost, and so is the next of a name's addresses (RFC 8305).
    ///
    /// Connecting takes two round trips. It takes one if a connection of this context to the same
    /// listener was closed in good order within the last 30 s: its control connection is reused.
    ///
    /// # Errors
    /// When the peer cannot be reached, does not speak Lacuna, refuses, or does not answer over
    /// UDP. [`ConnectError::is_retryable`] tells whether a later attempt can help.
    pub fn connect(
        context: &Context,
        peer: impl ToSocketAddrs + std::fmt::Display,
        config: ConnectionConfig,
    ) -> Result<Self, ConnectError> {
        context.check_process()?;
        Self::new(*attempt::connect(context, &peer, config)?)
    }

    pub(crate) fn new(agreed: Agreed) -> Result<Self, ConnectError> {
        let Agreed { queue_pair, siblings, config, chosen, peer, control, origin } = agreed;
        let context = &queue_pair.owner.context;
        let watched = context.monitor().add(control, origin, &queue_pair.owner.shared);
        let watched = watched.map_err(|source| ContextError::System {
            what: "to watch the control connection",
            source,
        })?;
        let shared = siblings.all().map(|sibling| &sibling.owner.shared);
        watched.add_siblings(context.clock(), shared);
        tracing::info!(%peer, %chosen, "connected");
        let started = Instant::now();
        let inner = Inner { queue_pair, siblings, config, chosen, peer, watched, started };
        Ok(Self { inner: Own::new(Arc::new(inner)) })
    }

    /// The peer's address on the control connection.
    pub fn peer(&self) -> SocketAddr {
        self.inner.peer
    }

    /// The connecting end's [`ConnectionConfig::tag`]; the same at both ends.
    pub fn tag(&self) -> u64 {
        self.inner.config.tag
    }

    /// The parameters in use.
    pub fn chosen(&self) -> &Chosen {
        &self.inner.chosen
    }

    /// The underlying queue pair, for bitmaps and streams.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.inner.queue_pair
    }

    /// The queue pair of a class of messages, if both ends have it ([`ConnectionConfig::classes`]): its sends
    /// land in its own receives. Messages of different classes keep no order.
    pub fn class(&self, class: Class) -> Option<&QueuePair> {
        self.inner.siblings.get(class.role())
    }

    /// The queue pair of the one-sided operations.
    pub(crate) fn one_sided(&self) -> Option<&QueuePair> {
        self.inner.siblings.get(Role::OneSided)
    }

    /// Time limit of operations without one of their own.
    pub(crate) fn deadline(&self) -> Duration {
        self.inner.config.deadline
    }

    /// Why the connection has failed, if so.
    pub fn failure(&self) -> Option<Failure> {
        self.inner.queue_pair.failure()
    }

    /// Posts a receive; wait for its message on the handle.
    ///
    /// # Errors
    /// When no slot is free, the buffer is longer than all slots together, or the connection has
    /// ended. The buffer is dropped.
    pub fn post_recv(&self, place: impl Into<RecvPlace>) -> Result<RecvHandle, PostReceiveError> {
        self.inner.queue_pair.post_recv(place)
    }

    /// As [`Connection::post_recv`], with a deadline, a grace, or zeros for what is missing. In a
    /// bounded mode a receive without a deadline ends, too, when the sender has said that it sent
    /// everything.
    ///
    /// # Errors
    /// As [`Connection::post_recv`].
    pub fn post_recv_with(
        &self,
        place: impl Into<RecvPlace>,
        options: RecvOptions,
    ) -> Result<RecvHandle, PostReceiveError> {
        self.inner.queue_pair.post_recv_with(place, options)
    }

    /// Starts a send of any length. Wait for it on the handle; it fails after the connection's
    /// deadline.
    ///
    /// The memory is dropped by whichever thread uses it last, possibly a worker in the middle of a
    /// step. So the `drop` of an application's own [`crate::Memory`] must not call into the
    /// connection or its handles.
    ///
    /// # Errors
    /// When too many sends are queued, the split has no room for the immediate, or the connection
    /// has ended.
    pub fn start_send(
        &self,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
    ) -> Result<SendHandle, PostSendError> {
        let deadline = Some(self.inner.config.deadline);
        self.inner.queue_pair.send_within(data.into(), immediate, deadline)
    }

    /// Starts a send of `len` bytes that are written part by part, each of which leaves as soon as it is
    /// written. It fails after the connection's deadline.
    ///
    /// # Errors
    /// As [`Connection::start_send`].
    pub fn send_offered(
        &self,
        len: usize,
        immediate: Option<u32>,
    ) -> Result<OfferedSend, PostSendError> {
        let deadline = Some(self.inner.config.deadline);
        self.inner.queue_pair.send_offered_within(len, immediate, deadline)
    }

    /// As [`Connection::send_offered`], with the memory of sends that have ended.
    ///
    /// # Errors
    /// As [`Connection::start_send`].
    pub fn send_offered_from(
        &self,
        pool: &OfferedPool,
        len: usize,
        immediate: Option<u32>,
    ) -> Result<OfferedSend, PostSendError> {
        let deadline = Some(self.inner.config.deadline);
        self.inner.queue_pair.send_offered_from_within(pool, len, immediate, deadline)
    }

    /// As [`Connection::start_send`], with a deadline of its own.
    pub fn start_send_within(
        &self,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<SendHandle, PostSendError> {
        self.inner.queue_pair.send_within(data.into(), immediate, Some(deadline))
    }

    /// Waits until the peer has posted the receive for the next message, as far as this end knows:
    /// a send that is started then leaves at once.
    pub fn wait_clear_to_send(&self, timeout: Duration) -> Result<(), SendError> {
        self.inner.queue_pair.wait_clear_to_send(timeout)
    }

    /// Waits until the connection has ended, mostly because the peer closed it, for at most
    /// `timeout`. Returns why, or `None` while it continues. For an end that leaves closing to its
    /// peer.
    pub fn wait_closed(&self, timeout: Duration) -> Option<Failure> {
        let owner = &self.inner.queue_pair.owner;
        let deadline_ns = after(owner.context.clock().now_ns(), timeout);
        wait_for(owner, deadline_ns, |qp| qp.failure())
    }

    /// Sends a message and waits until the peer has all of it (mode `raw`: until all of it is on
    /// the wire), at most until the connection's deadline.
    pub fn send(&self, data: &[u8]) -> Result<(), SendError> {
        self.send_with(data, None, self.inner.config.deadline)
    }

    /// As [`Connection::send`], with an immediate and a deadline of its own.
    pub fn send_with(
        &self,
        data: &[u8],
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<(), SendError> {
        self.inner.queue_pair.send_and_wait(data, immediate, deadline)
    }

    /// Receives the next message into `buffer`, within the connection's deadline.
    ///
    /// # Errors
    /// As [`Connection::recv_within`].
    pub fn recv(&self, buffer: &mut [u8]) -> Result<Received, RecvError> {
        self.recv_within(buffer, self.inner.config.deadline)
    }

    /// Receives the next message into `buffer` within `timeout`. On an error the receive is closed,
    /// and the buffer holds the part of the message that arrived.
    ///
    /// # Errors
    /// When the receive cannot be posted, `timeout` passes, the sender gives the
    /// message up, or the connection has ended.
    pub fn recv_within(&self, buffer: &mut [u8], timeout: Duration) -> Result<Received, RecvError> {
        let handle = crate::borrowed::post_recv(&self.inner.queue_pair, buffer)?;
        handle.wait(timeout)?;
        let done = handle.complete();
        Ok(Received { len: done.len.unwrap_or(0), immediate: done.immediate })
    }

    /// Waits until all sends have ended and the peer has finished their receives, for at most
    /// `timeout`; `false` if some have not.
    pub fn flush(&self, timeout: Duration) -> bool {
        let owner = &self.inner.queue_pair.owner;
        let deadline_ns = after(owner.context.clock().now_ns(), timeout);
        let is_idle =
            |owner| wait_for(owner, deadline_ns, |qp| qp.is_idle().then_some(())).is_some();
        is_idle(owner) && self.inner.siblings.all().all(|sibling| is_idle(&sibling.owner))
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> ConnectionStats {
        let context = self.inner.queue_pair.owner.context.stats();
        ConnectionStats::new(&self.inner.queue_pair.stats(), context, self.elapsed())
    }

    /// Time since it was made.
    pub(crate) fn elapsed(&self) -> Duration {
        self.inner.started.elapsed()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let owner = &self.queue_pair.owner;
        let now_ns = owner.context.clock().now_ns();
        let mut writer = ControlWriter::new(LAST_WORDS_BYTES_MAX);
        let last_words = owner.shared.with_qp(|qp| qp.last_words(now_ns, &mut writer));
        let mut last_words = last_words.unwrap_or_default();
        let mut writer = ControlWriter::new(SIBLING_WORDS_BYTES_MAX);
        for sibling in self.siblings.all() {
            if last_words.is_empty() {
                break;
            }
            let said = sibling
                .owner
                .shared
                .with_qp(|qp| Some((qp.peer_number()?, qp.last_words(now_ns, &mut writer)?)));
            if let Some((number, words)) = said {
                goodbye::relay(&mut last_words, number, &words);
            }
        }
        // Before the peer can answer, so that its goodbye does not count as the cause.
        owner.shared.with_qp(|qp| qp.fail(Failure::Closed));
        owner.shared.notify();
        self.watched.end_siblings(Failure::Closed);
        owner.context.monitor().close(&self.watched, &last_words);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
