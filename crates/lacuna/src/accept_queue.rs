//! The accept queue of a listener: peers whose control connection (TCP) was accepted and whose
//! hello has not arrived.
//!
//! The thread that accepts reads all of them at once, so a peer that sends nothing, or a byte now
//! and then, blocks nobody: peers are served in the order in which their hellos are complete. At
//! most [`PEERS_MAX`] wait here. Before this queue stands the kernel's own, [`BACKLOG`] long.
//!
//! Who floods the listener from a few addresses keeps out nobody else (`fairness.rs`): when the queue is
//! full, peers make room whose addresses have the most in it, those first that have been silent longest;
//! they are told that the listener is busy. Of peers that have said something, each address's first goes
//! first, and where there are many a pass is bounded ([`READ_PER_PASS`]), as a peer that begins a session of TLS costs some hundred
//! microseconds before it has proved anything.
//!
//! Idle control connections that may be reused (`reuse.rs`) wait here for their next hello, too.
//! They owe none, so they are closed without a message when they are idle too long or too many.
//!
//! When accepting fails for want of descriptors or memory, the peers that are already here are
//! served first, and accepting is tried again every [`REFUSED_PAUSE`].

use crate::clock::Clock;
use crate::control::Control;
use crate::error::ConnectError;
use crate::fairness::{self, Source};
use crate::handshake::{Incoming, turn_away};
use crate::readiness::{self, For, source};
use crate::reuse::{LISTENER_IDLE_TIMEOUT, LISTENER_POOL_MAX, ListenerPool, has_ended};
use lacuna_datapath::ends_listener;
use lacuna_trust::Trust;
use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Peers that may wait. Each takes a file descriptor and up to 17 KiB for the part of its hello
/// that has arrived.
pub(crate) const PEERS_MAX: usize = 900;
/// Length of the kernel's queue. The kernel takes the smaller of this and its own limit (Linux:
/// `net.core.somaxconn`, 4096).
pub(crate) const BACKLOG: i32 = 4096;

/// Connections that are accepted between two looks at those that are here (a judgement: some ms).
const ACCEPTED_PER_PASS: usize = 64;

/// Peers that are read between two looks at the listener while two thirds of all places are taken (a
/// judgement: some ms, if all of them begin sessions).
const READ_PER_PASS: usize = 32;

/// Connections in a row that may fail in `accept` before the caller gets the error, so that a
/// persistent failure does not hold the thread for ever (a judgement).
const LOST_PER_CALL_MAX: u32 = 16;

/// Pause before accepting is tried again when descriptors or memory ran out, so that the listener
/// does not spin (a judgement).
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// The accept queue of one listener.
#[derive(Debug)]
pub(crate) struct AcceptQueue {
    clock: Clock,
    /// Whom to believe; `None`: nobody by keys.
    trust: Option<Trust>,
    peers_max: usize,
    /// How long a peer has for its hello.
    timeout: Duration,
    /// Peers without a complete hello, in order of incoming, which is the order of their deadlines.
    silent: VecDeque<Incoming>,
    /// Peers whose hello is complete, or whose connection has failed; the caller takes them.
    done: VecDeque<Result<Incoming, ConnectError>>,
    /// Streams that were given back and not fetched yet.
    pool: Arc<ListenerPool>,
    /// Idle streams from `pool`, with the time since when. Oldest first.
    idle: VecDeque<(Instant, Control)>,
}

impl AcceptQueue {
    pub(crate) fn new(
        clock: Clock,
        trust: Option<Trust>,
        peers_max: usize,
        timeout: Duration,
    ) -> io::Result<Self> {
        Ok(Self {
            clock,
            trust,
            peers_max,
            timeout,
            silent: VecDeque::new(),
            done: VecDeque::new(),
            pool: Arc::new(ListenerPool::new(LISTENER_POOL_MAX)?),
            idle: VecDeque::new(),
        })
    }

    /// The pool that ended connections give their streams back to.
    pub(crate) fn pool(&self) -> &Arc<ListenerPool> {
        &self.pool
    }

    /// Waits for the next peer whose hello is complete, or whose connection has failed.
    ///
    /// # Errors
    /// When accepting fails for this listener as a whole.
    pub(crate) fn next(&mut self, tcp: &TcpListener) -> io::Result<Result<Incoming, ConnectError>> {
        let mut was_refused = false;
        loop {
            // Peers that are ready come before others are accepted, so no more wait than are read, and before an
            // error of accepting.
            if let Some(done) = self.done.pop_front() {
                return Ok(done);
            }
            let taken = self.accept_some(tcp);
            self.wait_after(tcp, taken, &mut was_refused)?;
        }
    }

    /// The same without waiting; `None` if no peer is ready.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) fn try_next(
        &mut self,
        tcp: &TcpListener,
    ) -> io::Result<Option<Result<Incoming, ConnectError>>> {
        if let Some(done) = self.done.pop_front() {
            return Ok(Some(done));
        }
        let taken = self.accept_some(tcp);
        self.poll(None, Some(Duration::ZERO))?;
        match (self.done.pop_front(), taken) {
            (Some(done), _) => Ok(Some(done)),
            (None, Ok(())) => Ok(None),
            // Linux allocates the descriptor before it looks whether a peer waits.
            (None, Err(error)) if is_exhausted(&error) && !has_backlog(tcp)? => Ok(None),
            (None, Err(error)) => Err(error),
        }
    }

    /// Waits for the next event, after accepting has ended with `taken`.
    ///
    /// # Errors
    /// When descriptors or memory are still missing after one pause, or the listener is closed.
    fn wait_after(
        &mut self,
        tcp: &TcpListener,
        taken: io::Result<()>,
        was_refused: &mut bool,
    ) -> io::Result<()> {
        match taken {
            // Linux allocates the descriptor before it looks whether a peer waits.
            Err(error) if is_exhausted(&error) && has_backlog(tcp)? => {
                if std::mem::replace(was_refused, true) {
                    return Err(error);
                }
                self.wait(None)
            }
            Err(error) if !is_exhausted(&error) => Err(error),
            _ => self.wait(Some(tcp)),
        }
    }

    /// Accepts connections that the kernel holds, and makes room for them.
    fn accept_some(&mut self, tcp: &TcpListener) -> io::Result<()> {
        let mut accepted = || {
            for _ in 0..ACCEPTED_PER_PASS {
                let Some(control) = self.accept(tcp)? else { break };
                let incoming = self.begin(control);
                self.silent.extend(incoming);
            }
            Ok(())
        };
        let accepted = accepted();
        self.make_room();
        accepted
    }

    /// Accepts one connection; `None` if the kernel holds none. A connection that failed in the
    /// kernel's queue is skipped.
    fn accept(&mut self, tcp: &TcpListener) -> io::Result<Option<Control>> {
        let mut lost = 0;
        loop {
            let error = match tcp.accept() {
                // The peer reset it while it was queued; Linux reports that only here.
                Ok((stream, _)) if is_reset(&stream) => continue,
                Ok((stream, _)) => {
                    return Ok(Some(Control::accepting(stream, self.trust.as_ref())));
                }
                Err(error) => error,
            };
            match AcceptFailure::of(&error) {
                AcceptFailure::WouldBlock => return Ok(None),
                AcceptFailure::Retry => {}
                // Idle streams hold descriptors that new peers need.
                AcceptFailure::Exhausted if self.close_idle() => {}
                AcceptFailure::ConnectionLost if lost < LOST_PER_CALL_MAX => {
                    tracing::debug!(%error, "a connection was lost before it was accepted");
                    lost += 1;
                }
                AcceptFailure::Exhausted
                | AcceptFailure::ConnectionLost
                | AcceptFailure::ListenerClosed => return Err(error),
            }
        }
    }

    /// Closes all idle streams; `true` if there were any.
    fn close_idle(&mut self) -> bool {
        self.idle.extend(self.pool.take());
        let had_some = !self.idle.is_empty();
        self.idle.clear();
        had_some
    }

    /// Begins to wait for the hello on a stream; `None` if that cannot be.
    fn begin(&mut self, control: Control) -> Option<Incoming> {
        match Incoming::new(self.clock, control, self.timeout) {
            Ok(incoming) => return Some(incoming),
            // Reset since it was accepted.
            Err(ConnectError::Unreachable { source, .. })
                if source.kind() == io::ErrorKind::NotConnected =>
            {
                tracing::debug!("reset without a word");
            }
            Err(error) => self.done.push_back(Err(error)),
        }
        None
    }

    /// Reads the next hello on an idle stream, of which bytes have come.
    fn begin_again(&mut self, control: Control) {
        if let Some(incoming) = self.begin(control) {
            self.read_hello(incoming);
        }
    }

    /// Reads what has arrived from a peer and files it under `silent` or `done`.
    fn read_hello(&mut self, mut incoming: Incoming) {
        if !incoming.read_hello(self.clock.now_ns()) {
            self.silent.push_back(incoming);
        } else if incoming.was_abandoned() {
            // One of several attempts of the peer (Happy Eyeballs), slower than another of them.
            tracing::debug!(peer = %incoming.peer(), "reset without a word");
        } else {
            self.done.push_back(incoming.into_result());
        }
    }

    /// Turns away as many as are too many. The caller is told of the first one alone, as under a
    /// flood there is nothing to say of each.
    fn make_room(&mut self) {
        let surplus = self.silent.len().saturating_sub(self.peers_max);
        if surplus == 0 {
            return;
        }
        let sources: Vec<_> = self.silent.iter().map(|peer| Source::of(peer.peer().ip())).collect();
        let goes = fairness::who_makes_room(&sources, surplus);
        let limit = self.peers_max;
        let mut told = None;
        for (incoming, goes) in std::mem::take(&mut self.silent).into_iter().zip(goes) {
            if goes {
                let reason = format!("{limit} peers are connecting at once; try again");
                turn_away(incoming.stream(), reason);
                told.get_or_insert(incoming.peer());
            } else {
                self.silent.push_back(incoming);
            }
        }
        self.done.extend(told.map(|peer| Err(ConnectError::Crowded { peer, limit })));
    }

    /// Waits until a peer connects, bytes arrive, or a deadline passes. Without the listener, for
    /// at most [`REFUSED_PAUSE`].
    fn wait(&mut self, tcp: Option<&TcpListener>) -> io::Result<()> {
        self.poll(tcp, tcp.is_none().then_some(REFUSED_PAUSE))
    }

    /// Waits as [`Self::wait`], for at most `limit`.
    fn poll(&mut self, tcp: Option<&TcpListener>, limit: Option<Duration>) -> io::Result<()> {
        for (since, mut control) in self.pool.take() {
            // A session may have the next hello already: of that no event comes.
            match control.look() {
                Ok(1..) => self.begin_again(control),
                _ => self.idle.push_back((since, control)),
            }
        }
        let surplus = self.idle.len().saturating_sub(LISTENER_POOL_MAX);
        self.idle.drain(..surplus);
        // Within each queue all have the same timeout, so the front expires first.
        let over = self.silent.front().map(|first| self.clock.until(first.deadline_ns()));
        let idle_over = self.idle.front().map(|(since, _)| {
            (*since + LISTENER_IDLE_TIMEOUT).saturating_duration_since(Instant::now())
        });
        // Rounded up by 1 ms: a wait that ends too early would repeat at once.
        let over = over.into_iter().chain(idle_over).min();
        let over = over.map(|over| over + Duration::from_millis(1));
        let limit = if !self.done.is_empty() { Some(Duration::ZERO) } else { limit };
        let left = over.into_iter().chain(limit).min();
        let mut ready = self.ready(tcp, left)?;
        let idle_ready = ready.split_off(self.silent.len());
        self.read_some(ready);
        let now = Instant::now();
        for ((since, mut control), is_ready) in
            std::mem::take(&mut self.idle).into_iter().zip(idle_ready)
        {
            if is_ready {
                if !has_ended(&mut control) {
                    self.begin_again(control);
                }
            } else if since + LISTENER_IDLE_TIMEOUT > now {
                self.idle.push_back((since, control));
            }
        }
        Ok(())
    }

    /// Reads from some of the peers that have said something, and gives up those that are too late.
    fn read_some(&mut self, ready: Vec<bool>) {
        let sources = self
            .silent
            .iter()
            .zip(ready)
            .map(|(peer, is_ready)| is_ready.then(|| Source::of(peer.peer().ip())));
        // A crowd of peers that all say what they want at once is read at once, and none waits for places.
        let is_crowded = self.silent.len() > self.peers_max * 2 / 3;
        let reads =
            fairness::whose_turn(sources, if is_crowded { READ_PER_PASS } else { usize::MAX });
        let now_ns = self.clock.now_ns();
        for (incoming, reads) in std::mem::take(&mut self.silent).into_iter().zip(reads) {
            if reads || incoming.deadline_ns() <= now_ns {
                self.read_hello(incoming);
            } else {
                self.silent.push_back(incoming);
            }
        }
    }

    /// Polls all streams, the listener and the pool for at most `limit`. Returns for each of
    /// `silent`, then of `idle`, whether it is readable.
    fn ready(&self, tcp: Option<&TcpListener>, limit: Option<Duration>) -> io::Result<Vec<bool>> {
        let silent = self.silent.iter().map(Incoming::stream);
        let streams =
            silent.chain(self.idle.iter().map(|(_, control)| control.stream())).map(source);
        let count = self.silent.len() + self.idle.len();
        let others = tcp.map(source).into_iter().chain(self.pool.source());
        let all = streams.chain(others).map(|source| (source, For::Reading));
        let mut ready = readiness::wait(all, limit)?;
        ready.truncate(count);
        Ok(ready)
    }
}

/// Whether the peer has already reset the connection.
fn is_reset(stream: &TcpStream) -> bool {
    stream.peer_addr().is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
}

/// What a failure of `accept` means for the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AcceptFailure {
    WouldBlock,
    Retry,
    /// A descriptor or memory is missing.
    Exhausted,
    /// One connection failed: refused by a firewall, or by a network error (`accept(2)`).
    ConnectionLost,
    /// The socket does not listen any more.
    ListenerClosed,
}

impl AcceptFailure {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::WouldBlock,
            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => Self::Retry,
            _ if ends_listener(error).is_some() => Self::ListenerClosed,
            _ if is_exhausted(error) => Self::Exhausted,
            _ => Self::ConnectionLost,
        }
    }
}

/// Whether a descriptor or memory is missing.
#[cfg(unix)]
fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|error| {
        [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&error)
    })
}

/// Other systems use error codes of their own. To close idle streams needlessly costs round trips,
/// nothing else.
#[cfg(not(unix))]
fn is_exhausted(_error: &io::Error) -> bool {
    true
}

/// Whether the kernel holds a connection to accept.
fn has_backlog(tcp: &TcpListener) -> io::Result<bool> {
    Ok(readiness::wait([(source(tcp), For::Reading)], Some(Duration::ZERO))? == [true])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const TIMEOUT: Duration = Duration::from_secs(3600);

    #[cfg(unix)]
    #[test]
    fn what_happens_to_one_connection_does_not_end_the_listener() {
        use rustix::io::Errno;
        for (error, meaning) in [
            (Errno::MFILE, AcceptFailure::Exhausted),
            (Errno::NOMEM, AcceptFailure::Exhausted),
            // A firewall refused this one.
            (Errno::PERM, AcceptFailure::ConnectionLost),
            (Errno::PROTO, AcceptFailure::ConnectionLost),
            (Errno::HOSTUNREACH, AcceptFailure::ConnectionLost),
            (Errno::OPNOTSUPP, AcceptFailure::ConnectionLost),
            (Errno::CONNABORTED, AcceptFailure::Retry),
            (Errno::AGAIN, AcceptFailure::WouldBlock),
            // The listener is no listener any more.
            (Errno::INVAL, AcceptFailure::ListenerClosed),
            (Errno::BADF, AcceptFailure::ListenerClosed),
        ] {
            assert_eq!(AcceptFailure::of(&error.into()), meaning, "{error}");
        }
    }

    /// A peer that connects twice at once (`happy_eyeballs.rs`) resets the slower attempt.
    #[cfg(unix)]
    #[test]
    fn connections_that_are_reset_without_a_word_are_no_peers() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let connect = || TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let reset = |stream: TcpStream| {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        };
        let mut queue = AcceptQueue::new(Clock::new(), None, 9, TIMEOUT).unwrap();
        let waiting = connect();
        queue.accept_some(&tcp).unwrap();
        assert_eq!(queue.silent.len(), 1);
        reset(waiting);
        reset(connect());
        // Reset after it was accepted and before its address is read.
        let accepting = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = TcpStream::connect(accepting.local_addr().unwrap()).unwrap();
        let (accepted, _) = accepting.accept().unwrap();
        reset(between);
        let accepted = queue.begin(Control::clear(accepted));
        queue.silent.extend(accepted);
        let closing = connect();
        let address = closing.local_addr().unwrap();
        drop(closing);
        let Err(error) = queue.next(&tcp).unwrap() else { panic!("nobody has spoken") };
        assert!(matches!(error, ConnectError::Exchange { peer, .. } if peer == address), "{error}");
        assert!(queue.silent.is_empty() && queue.done.is_empty());
    }

    #[test]
    fn a_full_queue_refuses_the_peer_that_is_silent_longest() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let mut peers: Vec<_> =
            (0..3).map(|_| TcpStream::connect(tcp.local_addr().unwrap()).unwrap()).collect();
        let mut queue = AcceptQueue::new(Clock::new(), None, 2, TIMEOUT).unwrap();
        let Err(error) = queue.next(&tcp).unwrap() else { panic!("nobody has spoken") };
        let oldest = peers.remove(0);
        let ConnectError::Crowded { peer, limit: 2 } = error else { panic!("{error}") };
        assert_eq!(peer, oldest.local_addr().unwrap());
        let mut told = String::new();
        (&oldest).read_to_string(&mut told).unwrap();
        assert!(told.contains("2 peers are connecting at once; try again"), "{told}");
        assert_eq!(queue.silent.len(), 2, "the others stay");
    }
}
