//! Reuse of control connections, which saves the TCP handshake and the wait for a lost SYN.
//!
//! A connection that is closed in good order leaves its control connection (TCP) clean: each end
//! has said goodbye exactly once, and nothing else is in flight. The connecting end keeps the
//! stream in a pool ([`ControlPool`]) and opens its next connection to the same listener over it,
//! in one round trip instead of two. The accepting end gives the stream back to its listener
//! ([`ListenerPool`]), which waits there for the next hello. Both ends announce in the handshake
//! that they reuse; the control connection of a peer that does not is closed.
//!
//! ```text
//! connecting end                                 accepting end
//!   goodbye; stream to ControlPool       ─────▶
//!   hello of the next connection         ─────▶  monitor: goodbye read
//!                                        ◀─────  goodbye, if not said yet; stream to ListenerPool
//!                                        ◀─────  listener: welcome
//! ```
//!
//! A pooled stream may be dead without notice, because a NAT dropped its mapping or the peer's host
//! restarted. Then a read or write fails, or the peer's TCP does not acknowledge the hello, and the
//! connecting end opens a new stream. Only a middlebox that acknowledges on behalf of a dead peer
//! goes unnoticed.

use crate::control::Control;
use crate::readiness::Source;
#[cfg(unix)]
use lacuna_datapath::wait::Signal;
use lacuna_proto::handshake::goodbye::Goodbye;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long the connecting end keeps an idle stream. Home routers' NAT and the accepting end
/// ([`LISTENER_IDLE_TIMEOUT`]) keep it longer, so the peer hardly ever closes it first. Expired
/// streams are dropped at the next `put_back` or `checkout`, or with the context.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Streams in the connecting end's pool. Each holds a file descriptor at both ends.
const POOL_MAX: usize = 64;
/// How long a listener keeps an idle stream and waits for the next hello on it.
pub(crate) const LISTENER_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Idle streams of a listener. Small, because they use the file descriptors that new peers need.
pub(crate) const LISTENER_POOL_MAX: usize = 128;

/// An idle control connection: both users have closed in good order.
#[derive(Debug)]
pub(crate) struct Pooled {
    /// Non-blocking.
    pub(crate) control: Control,
    /// The peer's goodbye as far as it was read; the rest of it comes first on the stream.
    pub(crate) goodbye: Goodbye,
}

/// The pool of the connecting end: the time since when a stream is idle, and its peer. Oldest
/// first.
#[derive(Debug, Default)]
pub(crate) struct ControlPool(Mutex<VecDeque<(Instant, SocketAddr, Pooled)>>);

impl ControlPool {
    pub(crate) fn put_back(&self, peer: SocketAddr, pooled: Pooled) {
        let now = Instant::now();
        let mut pool = lock(&self.0);
        pool.retain(|(since, ..)| now.duration_since(*since) < IDLE_TIMEOUT);
        if pool.len() >= POOL_MAX {
            pool.pop_front();
        }
        pool.push_back((now, peer, pooled));
    }

    /// An idle stream to `peer` that the peer has not closed.
    pub(crate) fn checkout(&self, peer: SocketAddr) -> Option<Pooled> {
        let now = Instant::now();
        let mut pool = lock(&self.0);
        pool.retain(|(since, ..)| now.duration_since(*since) < IDLE_TIMEOUT);
        loop {
            // The youngest one: its NAT mapping is the least likely to have expired.
            let at = pool.iter().rposition(|(_, of, _)| *of == peer)?;
            let (.., mut pooled) = pool.remove(at)?;
            if !has_ended(&mut pooled.control) {
                return Some(pooled);
            }
        }
    }

    /// Closes all idle streams to `peer`; called when one of them turned out to be dead.
    pub(crate) fn evict(&self, peer: SocketAddr) {
        lock(&self.0).retain(|(_, of, _)| *of != peer);
    }
}

/// Streams that were given back to a listener and that it has not fetched yet. Oldest first. The
/// monitor's thread puts them in, the thread that accepts takes them out.
#[derive(Debug)]
pub(crate) struct ListenerPool {
    streams_max: usize,
    streams: Mutex<VecDeque<(Instant, Control)>>,
    /// Set while `streams` is not empty, so that the listener can poll for it.
    #[cfg(unix)]
    signal: Signal,
}

impl ListenerPool {
    pub(crate) fn new(streams_max: usize) -> io::Result<Self> {
        Ok(Self {
            streams_max,
            streams: Mutex::default(),
            #[cfg(unix)]
            signal: Signal::new()?,
        })
    }

    fn put_back(&self, control: Control) {
        let mut streams = lock(&self.streams);
        if streams.len() >= self.streams_max {
            streams.pop_front();
        }
        streams.push_back((Instant::now(), control));
        drop(streams);
        #[cfg(unix)]
        self.signal.set();
    }

    /// All streams that were put back since the last call. They are non-blocking.
    pub(crate) fn take(&self) -> VecDeque<(Instant, Control)> {
        #[cfg(unix)]
        self.signal.clear();
        std::mem::take(&mut lock(&self.streams))
    }

    /// A descriptor that is readable while the pool is not empty. `None` where the listener polls
    /// by time (systems other than Unix).
    pub(crate) fn source(&self) -> Option<Source<'_>> {
        #[cfg(unix)]
        return Some(self.signal.as_fd());
        #[cfg(not(unix))]
        None
    }
}

/// Where a control connection goes when both ends have said goodbye.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// The pool of the connecting end, under this peer.
    Pool(Arc<ControlPool>, SocketAddr),
    /// The listener that accepted it.
    Listener(Weak<ListenerPool>),
}

impl Origin {
    /// Whether a stream can still be put back: the listener may have been dropped.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Pool(..) => true,
            Self::Listener(pool) => pool.strong_count() > 0,
        }
    }

    pub(crate) fn put_back(&self, pooled: Pooled) {
        match self {
            Self::Pool(pool, peer) => pool.put_back(*peer, pooled),
            // The listener was dropped: close the stream.
            Self::Listener(pool) => {
                if let Some(pool) = pool.upgrade() {
                    pool.put_back(pooled.control);
                }
            }
        }
    }
}

/// Whether the peer has closed the stream. Does not wait; `stream` is non-blocking. A stream that
/// the peer has reset has no peer any more, though what came before the reset can still be read.
pub(crate) fn has_ended(control: &mut Control) -> bool {
    if control.stream().peer_addr().is_err() {
        return true;
    }
    match control.look() {
        Ok(count) => count == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(unix)]
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    /// A connection's two ends.
    fn stream() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        here.set_nonblocking(true).unwrap();
        (here, listener.accept().unwrap().0)
    }

    fn pooled(stream: TcpStream) -> Pooled {
        Pooled { control: Control::clear(stream), goodbye: Goodbye::default() }
    }

    fn peer(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn a_pooled_connection_is_checked_out_once_by_who_goes_there() {
        let (pool, (here, _there)) = (ControlPool::default(), stream());
        let port = here.local_addr().unwrap();
        pool.put_back(peer(1), pooled(here));
        assert!(pool.checkout(peer(2)).is_none());
        assert_eq!(pool.checkout(peer(1)).unwrap().control.stream().local_addr().unwrap(), port);
        assert!(pool.checkout(peer(1)).is_none());
    }

    #[test]
    fn one_that_the_peer_has_closed_is_passed_over() {
        let (pool, (alive, _there), (dead, gone)) = (ControlPool::default(), stream(), stream());
        let port = alive.local_addr().unwrap();
        pool.put_back(peer(1), pooled(alive));
        gone.shutdown(Shutdown::Write).unwrap();
        let mut dead = pooled(dead);
        while !has_ended(&mut dead.control) {
            std::thread::yield_now();
        }
        pool.put_back(peer(1), dead);
        assert_eq!(pool.checkout(peer(1)).unwrap().control.stream().local_addr().unwrap(), port);
    }

    #[cfg(unix)]
    #[test]
    fn one_that_the_peer_has_reset_is_passed_over_though_a_goodbye_is_unread() {
        let (pool, (dead, mut gone)) = (ControlPool::default(), stream());
        gone.write_all(b"goodbye").unwrap();
        rustix::net::sockopt::set_socket_linger(&gone, Some(Duration::ZERO)).unwrap();
        drop(gone);
        while dead.peer_addr().is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(dead.peek(&mut [0]).unwrap(), 1, "which is still there to be read");
        pool.put_back(peer(1), pooled(dead));
        assert!(pool.checkout(peer(1)).is_none());
    }

    #[test]
    fn no_more_are_pooled_than_there_is_room_for() {
        let (pool, listener) = (ControlPool::default(), ListenerPool::new(3).unwrap());
        let mut peers = Vec::new();
        for port in 0..=POOL_MAX as u16 {
            let (here, there) = stream();
            pool.put_back(peer(port), pooled(here));
            peers.push(there);
        }
        assert!(pool.checkout(peer(0)).is_none(), "the oldest made room");
        assert!(pool.checkout(peer(1)).is_some());
        for _ in 0..4 {
            let (here, _there) = stream();
            listener.put_back(Control::clear(here));
        }
        assert_eq!(listener.take().len(), 3);
        assert_eq!(listener.take().len(), 0);
    }
}
