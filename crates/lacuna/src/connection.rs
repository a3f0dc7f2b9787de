//! A connection: a queue pair with its peer found, agreed with and watched.
//!
//! Messages of any length, in order, each landing in the buffer that the peer
//! posted for it; deadlines on everything; a peer that dies ends all
//! operations with an error that says so.

use crate::attempt;
use crate::borrowed::Borrowed;
use crate::clock::after;
use crate::config::{Chosen, ConnectionConfig};
use crate::context::Context;
use crate::error::{
    ConnectError, ContextError, PostReceiveError, PostSendError, RecvError, SendError,
};
use crate::handles::{RecvHandle, SendHandle, wait_for};
use crate::handshake::{self, Agreed, Answer, Arrival};
use crate::monitor::Watched;
use crate::queue_pair::QueuePair;
use crate::reuse::{ListenerPool, Origin};
use crate::stats::ConnectionStats;
use crate::waiting_room::{self, WaitingRoom};
use lacuna_datapath::process::Own;
#[cfg(unix)]
use lacuna_datapath::process::descriptors;
use lacuna_proto::buffer::SendBuffer;
use lacuna_proto::qp::Failure;
use lacuna_wire::{ControlWriter, Packet};
use std::collections::VecDeque;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The final report goes over TCP, so no path bounds it; everything must fit.
const LAST_WORDS_BYTES_MAX: usize = 8 << 10;

/// A queue pair with its peer found, agreed with and watched: messages of any
/// length, each landing in the receive that the peer posted for it, in order.
///
/// [`Connection::connect`] makes one at one end, a [`Listener`] at the other. Each
/// operation has a deadline, and a peer that dies ends all of them with an error
/// that says so. Whether losses are repaired is a matter of the mode that the
/// connecting end chooses ([`ConnectionConfig::mode`]).
///
/// Clones are the same connection; it ends with the last of them, and so do sends
/// and receives that are still under way: their handles do not keep it. Wait for
/// them, or [`Connection::flush`], first.
#[derive(Clone, Debug)]
pub struct Connection {
    inner: Own<Arc<Inner>>,
}

struct Inner {
    queue_pair: QueuePair,
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

/// Waits for peers to connect.
#[derive(Debug)]
pub struct Listener {
    context: Context,
    config: ConnectionConfig,
    tcp: Own<TcpListener>,
    room: Own<Mutex<WaitingRoom>>,
    /// Peers that were answered by [`Listener::try_accept`], and have not got all of it.
    answers: Own<Mutex<VecDeque<Answer>>>,
    /// Control connections that are reused.
    pool: Own<Arc<ListenerPool>>,
}

impl Listener {
    /// Listens for control connections at `address`; packets use the
    /// context's own ports. `[::]` takes peers of IPv6 and of IPv4, whatever the system's
    /// default for that is, and is `0.0.0.0` on a host without IPv6; `0.0.0.0` takes IPv4
    /// alone. [`address::parse`](crate::address::parse) reads addresses with a zone.
    ///
    /// Mode, chunk, split, generations, longest message and tag are what the
    /// connecting end says, whatever `config` has for them. Of `config` are this
    /// end's controller and rate, retransmission timeout, deadline, silence and
    /// time to connect, and an MTU if one is given: of two that are given the
    /// smaller holds.
    ///
    /// # Errors
    /// When the configuration makes no sense for any connection, or the address
    /// cannot be had.
    pub fn bind(
        context: &Context,
        address: SocketAddr,
        config: ConnectionConfig,
    ) -> Result<Self, ConnectError> {
        config.check()?;
        context.check_process()?;
        let listen = || {
            let tcp = lacuna_datapath::listen(address, waiting_room::BACKLOG)?;
            // Accepting waits in `readable`, for those who have not spoken too.
            tcp.set_nonblocking(true)?;
            #[cfg(unix)]
            descriptors::note(&tcp);
            Ok(Own::new(tcp))
        };
        let tcp = listen().map_err(|source| ConnectError::Listen { address, source })?;
        let room = WaitingRoom::new(context.clock(), waiting_room::PEERS_MAX)
            .map_err(|source| ConnectError::Listen { address, source })?;
        let pool = Own::new(room.pool().clone());
        let room = Own::new(Mutex::new(room));
        let answers = Own::new(Mutex::default());
        Ok(Self { context: context.clone(), config, tcp, room, answers, pool })
    }

    /// Where it listens, with the port that was chosen if 0 was asked for.
    pub fn local_addr(&self) -> SocketAddr {
        self.tcp.local_addr().expect("a listening socket has an address")
    }

    /// Waits for the next peer and agrees with it. An error concerns that peer
    /// only, unless it is [`ConnectError::Accept`]; the listener goes on, also after
    /// that: connections that there are, are served before it is said, and it is said
    /// ten times a second at most.
    ///
    /// Peers are served in the order in which they say what they want, and any
    /// number may come at once: some thousands wait in the system's queue, and one
    /// that connects and says nothing holds up nobody. The connection may be used
    /// at once, but whether packets pass to the peer shows later: if they do not,
    /// it ends with [`Failure::NoUdp`].
    pub fn accept(&self) -> Result<Connection, ConnectError> {
        self.accept_if(|_| Ok(()))
    }

    /// As [`Listener::accept`], if `takes` has nothing against the peer's tag; see
    /// [`Listener::agree_if`].
    pub fn accept_if(
        &self,
        takes: impl FnOnce(u64) -> Result<(), String>,
    ) -> Result<Connection, ConnectError> {
        self.context.check_process()?;
        let address = self.local_addr();
        let next = lock(&self.room).next(&self.tcp, handshake::patience_of(&self.config));
        let arrival = next.map_err(|source| ConnectError::Accept { address, source })??;
        self.answer(arrival, takes)
    }

    fn answer(
        &self,
        arrival: Arrival,
        takes: impl FnOnce(u64) -> Result<(), String>,
    ) -> Result<Connection, ConnectError> {
        let answer = arrival.answer(&self.context, &self.config, self.origin(), takes)?;
        Connection::new(*answer.finish(&self.context)?)
    }

    /// As [`Listener::accept`], without waiting: `None` if no peer has said what it wants, or another
    /// thread accepts just now. With [`Progress::Manual`](crate::Progress::Manual) it makes progress.
    ///
    /// # Errors
    /// As [`Listener::accept`].
    pub fn try_accept(&self) -> Result<Option<Connection>, ConnectError> {
        self.try_accept_if(|_| Ok(()))
    }

    /// As [`Listener::try_accept`], if `takes` has nothing against the peer's tag; see
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
        let mut room = match self.room.try_lock() {
            Ok(room) => room,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let address = self.local_addr();
        let next = room.try_next(&self.tcp, handshake::patience_of(&self.config));
        drop(room);
        let next = next.map_err(|source| ConnectError::Accept { address, source })?;
        let Some(arrival) = next.transpose()? else { return Ok(None) };
        let answer = arrival.answer(&self.context, &self.config, self.origin(), takes)?;
        match answer.drive(&self.context) {
            ControlFlow::Break(agreed) => Connection::new(*agreed?).map(Some),
            ControlFlow::Continue(answer) => {
                lock(&self.answers).push_back(answer);
                Ok(None)
            }
        }
    }

    /// Sends what could not be sent at once; the next peer that has got all of it.
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

    /// Waits for the next control connection, without the exchange: so that a
    /// server may do that on a thread per peer, with [`Listener::agree`]. It may be
    /// one that has served before; see [`Connection::connect`].
    pub fn accept_stream(&self) -> Result<TcpStream, ConnectError> {
        self.context.check_process()?;
        let address = self.local_addr();
        let next = lock(&self.room).next_stream(&self.tcp);
        // What becomes of it in a child process is the caller's matter.
        #[cfg(unix)]
        let next = next.inspect(descriptors::forget);
        next.map_err(|source| ConnectError::Accept { address, source })
    }

    /// Where the control connections of connections that have ended are put back to.
    fn origin(&self) -> Origin {
        Origin::Listener(Arc::downgrade(&self.pool))
    }

    /// Agrees with a peer whose control connection was accepted.
    pub fn agree(&self, stream: TcpStream) -> Result<Connection, ConnectError> {
        self.agree_if(stream, |_| Ok(()))
    }

    /// Agrees with a peer if `takes` has nothing against its
    /// [`ConnectionConfig::tag`]; otherwise the peer is told the reason, before
    /// any packet was sent, and gets [`ConnectError::Refused`].
    pub fn agree_if(
        &self,
        stream: TcpStream,
        takes: impl FnOnce(u64) -> Result<(), String>,
    ) -> Result<Connection, ConnectError> {
        self.context.check_process()?;
        let clock = self.context.clock();
        let mut arrival = Arrival::new(clock, stream, handshake::patience_of(&self.config))?;
        arrival.listen(clock)?;
        self.answer(arrival, takes)
    }

    /// Ends a control connection that was accepted and whose peer has said nothing yet,
    /// to make room for others: it gets [`ConnectError::Busy`] with the reason, which
    /// [`Connection::connect`] takes as "later". May be called with a clone of the stream
    /// while [`Listener::agree`] waits with the other: that ends with an error.
    pub fn turn_away(&self, stream: &TcpStream, reason: &str) {
        handshake::turn_away(stream, reason.to_owned());
        let _ = stream.shutdown(Shutdown::Both);
    }
}

impl Connection {
    /// Connects to a listener over `context`. The peer is HOST:PORT or an address; a
    /// link-local one of IPv6 names its interface, as in `[fe80::1%eth0]:7400`.
    /// `connect_timeout` holds for the
    /// whole, but for looking up a name. Within it, a peer that is too busy for
    /// the moment is tried again; one that refuses for a second, since it may be
    /// about to start. An address that is silent for 250 ms is asked again, as
    /// packets may be lost, and so is the next of a name's addresses (RFC 8305).
    ///
    /// It takes two round trips, and one where a connection of this context to the
    /// same listener has ended in good order within the last half minute: its
    /// control connection serves again then.
    ///
    /// # Errors
    /// When the peer cannot be reached, is no listener of this kind, refuses, or
    /// does not answer over UDP; [`ConnectError::is_retryable`] tells which of
    /// them may pass.
    pub fn connect(
        context: &Context,
        peer: impl ToSocketAddrs + std::fmt::Display,
        config: ConnectionConfig,
    ) -> Result<Self, ConnectError> {
        context.check_process()?;
        Self::new(*attempt::connect(context, &peer, config)?)
    }

    pub(crate) fn new(agreed: Agreed) -> Result<Self, ConnectError> {
        let Agreed { queue_pair, config, chosen, peer, control, origin } = agreed;
        let context = &queue_pair.owner.context;
        let watched = context.monitor().add(control, origin, &queue_pair.owner.shared);
        let watched = watched.map_err(|source| ContextError::System {
            what: "to watch the control connection",
            source,
        })?;
        tracing::info!(%peer, %chosen, "connected");
        let started = Instant::now();
        let inner = Inner { queue_pair, config, chosen, peer, watched, started };
        Ok(Self { inner: Own::new(Arc::new(inner)) })
    }

    /// The peer's control address.
    pub fn peer(&self) -> SocketAddr {
        self.inner.peer
    }

    /// The connecting end's [`ConnectionConfig::tag`], at both ends.
    pub fn tag(&self) -> u64 {
        self.inner.config.tag
    }

    /// What the connection uses.
    pub fn chosen(&self) -> &Chosen {
        &self.inner.chosen
    }

    /// The queue pair, for its bitmaps and streams.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.inner.queue_pair
    }

    /// Why it cannot go on, if so.
    pub fn failure(&self) -> Option<Failure> {
        self.inner.queue_pair.failure()
    }

    /// Posts a receive; the message that lands in it is awaited on the handle.
    ///
    /// # Errors
    /// When no slot is free, the buffer is longer than all slots together, or
    /// the connection has ended. The buffer is dropped then.
    pub fn post_recv(&self, buffer: Vec<u8>) -> Result<RecvHandle, PostReceiveError> {
        self.inner.queue_pair.post_recv(buffer)
    }

    /// Starts a send of any length; it is awaited on the handle, and fails
    /// after the connection's deadline.
    ///
    /// The memory is let go by whichever thread needs it last, possibly in the
    /// middle of its work on this connection: a [`crate::Memory`] of one's own
    /// must not call into the connection or its handles when it is dropped.
    ///
    /// # Errors
    /// When too many sends wait, the immediate cannot be carried, or the
    /// connection has ended.
    pub fn start_send(
        &self,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
    ) -> Result<SendHandle, PostSendError> {
        let deadline = Some(self.inner.config.deadline);
        self.inner.queue_pair.send_within(data.into(), immediate, deadline)
    }

    /// Starts a send with a deadline of its own.
    pub fn start_send_within(
        &self,
        data: impl Into<SendBuffer>,
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<SendHandle, PostSendError> {
        self.inner.queue_pair.send_within(data.into(), immediate, Some(deadline))
    }

    /// Waits until the peer's receive for the next message is posted, as far
    /// as this end knows: a send started now goes out at once.
    pub fn wait_clear_to_send(&self, timeout: Duration) -> Result<(), SendError> {
        let owner = &self.inner.queue_pair.owner;
        let deadline_ns = after(owner.context.clock().now_ns(), timeout);
        if !owner.shared.with_qp(lacuna_proto::qp::QueuePair::is_clear_to_send) {
            // Not clear: the workers ask the peer from now on.
            owner.shared.kick();
        }
        let clear = wait_for(owner, deadline_ns, |qp| match qp.failure() {
            Some(failure) => Some(Err(PostSendError::Failed(failure))),
            None => qp.is_clear_to_send().then_some(Ok(())),
        });
        let not_yet = || Err(owner.shared.with_qp(|qp| qp.unposted()));
        Ok(clear.unwrap_or_else(not_yet)?)
    }

    /// Waits until the connection has ended, mostly as the peer has closed it, at most
    /// `timeout`; why it has, or `None` while it goes on. For an end that has nothing left
    /// to do itself and leaves the end to the other.
    pub fn wait_closed(&self, timeout: Duration) -> Option<Failure> {
        let owner = &self.inner.queue_pair.owner;
        let deadline_ns = after(owner.context.clock().now_ns(), timeout);
        wait_for(owner, deadline_ns, |qp| qp.failure())
    }

    /// Sends a message and waits until the peer has it, in mode `raw` until all of
    /// it is on the wire; up to the connection's deadline.
    pub fn send(&self, data: &[u8]) -> Result<(), SendError> {
        self.send_with(data, None, self.inner.config.deadline)
    }

    /// Sends a message, with an immediate if wanted, and waits until the peer
    /// has it (in mode `raw`: until all of it is on the wire) or the deadline comes.
    pub fn send_with(
        &self,
        data: &[u8],
        immediate: Option<u32>,
        deadline: Duration,
    ) -> Result<(), SendError> {
        let owner = &self.inner.queue_pair.owner;
        Borrowed::lend(
            data,
            |memory| {
                let handle =
                    self.inner.queue_pair.send_within(memory, immediate, Some(deadline))?;
                let result = handle.wait();
                handle.cancel();
                result
            },
            || {
                // What a worker holds for the moment goes out or is dropped in its
                // next step.
                owner.shared.kick();
                if !owner.context.progress() {
                    std::thread::yield_now();
                }
            },
        )
    }

    /// Receives the next message into `buffer`; waits up to the connection's
    /// deadline.
    ///
    /// # Errors
    /// As [`Connection::recv_within`].
    pub fn recv(&self, buffer: &mut [u8]) -> Result<Received, RecvError> {
        self.recv_within(buffer, self.inner.config.deadline)
    }

    /// Receives the next message into `buffer`, waiting up to `timeout`. On an
    /// error the receive is closed; what came of the message is in the buffer.
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

    /// Waits until all sends have ended and the peer is done with their
    /// receives, at most `timeout`; `false` if some still go on.
    pub fn flush(&self, timeout: Duration) -> bool {
        let owner = &self.inner.queue_pair.owner;
        let deadline_ns = after(owner.context.clock().now_ns(), timeout);
        wait_for(owner, deadline_ns, |qp| qp.is_idle().then_some(())).is_some()
    }

    /// Counters of now.
    pub fn stats(&self) -> ConnectionStats {
        let elapsed = self.inner.started.elapsed();
        let context = self.inner.queue_pair.owner.context.stats();
        ConnectionStats::new(&self.inner.queue_pair.stats(), context, elapsed)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let owner = &self.queue_pair.owner;
        let now_ns = owner.context.clock().now_ns();
        let mut writer = ControlWriter::new(LAST_WORDS_BYTES_MAX);
        let last_words = owner.shared.with_qp(|qp| {
            qp.request_report(now_ns);
            let seal = qp.config().geometry.seal();
            let packet = qp.poll_control(now_ns, 0, &mut writer)?;
            match seal.parse(packet) {
                Ok(Packet::Control(_, body)) => Some(body.to_vec()),
                _ => None,
            }
        });
        // Before the peer can answer: it is this end that closes.
        owner.shared.with_qp(|qp| qp.fail(Failure::Closed));
        owner.shared.notify();
        owner.context.monitor().close(&self.watched, &last_words.unwrap_or_default());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
