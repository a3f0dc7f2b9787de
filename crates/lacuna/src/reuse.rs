//! Control connections that are used again: TCP's handshake and a lost SYN cost nothing the
//! next time.
//!
//! A connection that ended in good order leaves its control connection in good order too:
//! both ends have said goodbye, each exactly once, and nothing else is on the way. So
//! the connecting end puts it into a pool for a while ([`Pool`]) and opens its next connection to the
//! same listener there, at one round trip instead of two; the accepting end puts it back
//! to the listener ([`ListenerPool`]), which waits for a hello as on a new one. Both ends say
//! in the handshake that they do so; the control connection of a peer that does not is closed.
//!
//! ```text
//! connecting end                                 accepting end
//!   goodbye; the stream goes to Pool     ─────▶
//!   hello of the next connection         ─────▶  monitor: goodbye heard
//!                                        ◀─────  goodbye, if not said yet; stream to ListenerPool
//!                                        ◀─────  listener: welcome
//! ```
//!
//! A pooled connection may be dead without a word (address translation forgets, hosts
//! restart). That shows by an error, or as nobody acknowledges the hello, and a new one is
//! made then. Only a middle box that acknowledges for a peer that is gone is not found out.

use crate::readiness::Source;
#[cfg(unix)]
use lacuna_datapath::wait::Signal;
use lacuna_proto::handshake::goodbye::Goodbye;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long the connecting end keeps one: less than home routers' address
/// translation and the accepting end remember it, so that it is hardly ever about to be
/// closed. Older ones go with the next connection that comes or ends, or with the context.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections in the connecting end's pool; a file descriptor each, and at the peer too.
const POOL_MAX: usize = 64;
/// How long the accepting end waits for the next hello.
pub(crate) const LISTENER_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections in the accepting end's pool: few of the file descriptors that a process
/// has, which those who come need.
pub(crate) const LISTENER_POOL_MAX: usize = 128;

/// A control connection that its last user has left in good order.
#[derive(Debug)]
pub(crate) struct Pooled {
    /// It does not block.
    pub(crate) stream: TcpStream,
    /// The peer's, as far as it was read: the rest of it comes next.
    pub(crate) goodbye: Goodbye,
}

/// The connecting end's, the oldest in front.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<VecDeque<(Instant, SocketAddr, Pooled)>>);

impl Pool {
    pub(crate) fn put_back(&self, peer: SocketAddr, pooled: Pooled) {
        let now = Instant::now();
        let mut pool = lock(&self.0);
        pool.retain(|(since, ..)| now.duration_since(*since) < IDLE_TIMEOUT);
        if pool.len() >= POOL_MAX {
            pool.pop_front();
        }
        pool.push_back((now, peer, pooled));
    }

    /// One to `peer` that does not look dead.
    pub(crate) fn checkout(&self, peer: SocketAddr) -> Option<Pooled> {
        let now = Instant::now();
        let mut pool = lock(&self.0);
        pool.retain(|(since, ..)| now.duration_since(*since) < IDLE_TIMEOUT);
        loop {
            // The youngest: the least likely to have been forgotten on the way.
            let at = pool.iter().rposition(|(_, of, _)| *of == peer)?;
            let (.., pooled) = pool.remove(at)?;
            if !has_ended(&pooled.stream) {
                return Some(pooled);
            }
        }
    }

    /// Closes all to `peer`, as one of them was dead.
    pub(crate) fn evict(&self, peer: SocketAddr) {
        lock(&self.0).retain(|(_, of, _)| *of != peer);
    }
}

/// The accepting end's that its listener has not taken yet, the oldest in front.
#[derive(Debug)]
pub(crate) struct ListenerPool {
    streams_max: usize,
    streams: Mutex<VecDeque<(Instant, TcpStream)>>,
    /// Set while there are any: the listener waits for it.
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

    fn put_back(&self, stream: TcpStream) {
        let mut streams = lock(&self.streams);
        if streams.len() >= self.streams_max {
            streams.pop_front();
        }
        streams.push_back((Instant::now(), stream));
        drop(streams);
        #[cfg(unix)]
        self.signal.set();
    }

    /// All that were put back since it was last asked; none of them blocks.
    pub(crate) fn take(&self) -> VecDeque<(Instant, TcpStream)> {
        #[cfg(unix)]
        self.signal.clear();
        std::mem::take(&mut lock(&self.streams))
    }

    /// What is ready to be read while there are any; nothing where connections are looked at now and
    /// then anyway.
    pub(crate) fn source(&self) -> Option<Source<'_>> {
        #[cfg(unix)]
        return Some(self.signal.as_fd());
        #[cfg(not(unix))]
        None
    }
}

/// Where a control connection is put back to when both ends have said goodbye.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// The pool of who connected, for this peer.
    Pool(Arc<Pool>, SocketAddr),
    /// The listener that accepted it.
    Listener(Weak<ListenerPool>),
}

impl Origin {
    /// Whether anything can be put back: a listener may be gone.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::Pool(..) => true,
            Self::Listener(pool) => pool.strong_count() > 0,
        }
    }

    pub(crate) fn put_back(&self, pooled: Pooled) {
        match self {
            Self::Pool(pool, peer) => pool.put_back(*peer, pooled),
            // A listener that is gone waits for nobody.
            Self::Listener(pool) => {
                if let Some(pool) = pool.upgrade() {
                    pool.put_back(pooled.stream);
                }
            }
        }
    }
}

/// Whether the peer has closed it, without waiting. The stream does not block.
pub(crate) fn has_ended(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
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
    use std::net::{Shutdown, TcpListener};

    /// A connection's two ends.
    fn stream() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        here.set_nonblocking(true).unwrap();
        (here, listener.accept().unwrap().0)
    }

    fn pooled(stream: TcpStream) -> Pooled {
        Pooled { stream, goodbye: Goodbye::default() }
    }

    fn peer(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn a_pooled_connection_is_checked_out_once_by_who_goes_there() {
        let (pool, (here, _there)) = (Pool::default(), stream());
        let port = here.local_addr().unwrap();
        pool.put_back(peer(1), pooled(here));
        assert!(pool.checkout(peer(2)).is_none());
        assert_eq!(pool.checkout(peer(1)).unwrap().stream.local_addr().unwrap(), port);
        assert!(pool.checkout(peer(1)).is_none());
    }

    #[test]
    fn one_that_the_peer_has_closed_is_passed_over() {
        let (pool, (alive, _there), (dead, gone)) = (Pool::default(), stream(), stream());
        let port = alive.local_addr().unwrap();
        pool.put_back(peer(1), pooled(alive));
        gone.shutdown(Shutdown::Write).unwrap();
        while !has_ended(&dead) {
            std::thread::yield_now();
        }
        pool.put_back(peer(1), pooled(dead));
        assert_eq!(pool.checkout(peer(1)).unwrap().stream.local_addr().unwrap(), port);
    }

    #[test]
    fn no_more_are_pooled_than_there_is_room_for() {
        let (pool, listener) = (Pool::default(), ListenerPool::new(3).unwrap());
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
            listener.put_back(here);
        }
        assert_eq!(listener.take().len(), 3);
        assert_eq!(listener.take().len(), 0);
    }
}
