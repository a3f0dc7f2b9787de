//! Control connections that serve again: TCP's handshake and a lost SYN cost nothing the
//! next time.
//!
//! A connection that ended in good order leaves its control connection in good order too:
//! both ends have said goodbye, each exactly once, and nothing else is on the way. So
//! whoever connected keeps it for a while ([`Idle`]) and opens its next connection to the
//! same listener there, at one round trip instead of two; the accepting end gives it back
//! to the listener ([`Returned`]), which waits for a hello as on a new one. Both ends say
//! in the exchange that they do so; a peer that does not closes as ever.
//!
//! ```text
//! connecting end                                 accepting end
//!   goodbye; the stream goes to Idle     ─────▶
//!   hello of the next connection         ─────▶  monitor: goodbye heard
//!                                        ◀─────  goodbye, if not said yet; stream Returned
//!                                        ◀─────  listener: welcome
//! ```
//!
//! A kept connection may be dead without a word (address translation forgets, hosts
//! restart). That shows by an error, or as nobody acknowledges the hello, and a new one is
//! made then. Only a middle box that acknowledges for a peer that is gone is not found out.

use lacuna_proto::handshake::goodbye::Goodbye;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How old one may be that the connecting end takes: less than home routers' address
/// translation and the accepting end remember it, so that it is hardly ever about to be
/// closed. Older ones go with the next connection that comes or ends, or with the context.
const IDLE_FOR: Duration = Duration::from_secs(30);
/// Connections that the connecting end keeps; a file descriptor each, and at the peer too.
const IDLE_MAX: usize = 64;
/// How long the accepting end waits for the next hello.
pub(crate) const RETURNED_FOR: Duration = Duration::from_secs(60);
/// Connections that the accepting end keeps: few of the file descriptors that a process
/// has, which those who come need.
pub(crate) const RETURNED_MAX: usize = 128;

/// A control connection that its last user has left in good order.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) stream: TcpStream,
    /// The peer's, as far as it was read: the rest of it comes next.
    pub(crate) goodbye: Goodbye,
}

/// The connecting end's, the longest kept in front.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<VecDeque<(Instant, SocketAddr, Kept)>>);

impl Idle {
    pub(crate) fn keep(&self, peer: SocketAddr, kept: Kept) {
        let now = Instant::now();
        let mut idle = lock(&self.0);
        idle.retain(|(since, ..)| now.duration_since(*since) < IDLE_FOR);
        if idle.len() >= IDLE_MAX {
            idle.pop_front();
        }
        idle.push_back((now, peer, kept));
    }

    /// One to `peer` that does not look dead.
    pub(crate) fn take(&self, peer: SocketAddr) -> Option<Kept> {
        let now = Instant::now();
        let mut idle = lock(&self.0);
        idle.retain(|(since, ..)| now.duration_since(*since) < IDLE_FOR);
        loop {
            // The youngest: the least likely to have been forgotten on the way.
            let at = idle.iter().rposition(|(_, of, _)| *of == peer)?;
            let (.., kept) = idle.remove(at)?;
            if !has_ended(&kept.stream) {
                return Some(kept);
            }
        }
    }

    /// Forgets all to `peer`, as one of them was dead.
    pub(crate) fn forget(&self, peer: SocketAddr) {
        lock(&self.0).retain(|(_, of, _)| *of != peer);
    }
}

/// The accepting end's, the longest kept in front.
#[derive(Debug)]
pub(crate) struct Returned {
    streams_max: usize,
    streams: Mutex<VecDeque<(Instant, TcpStream)>>,
    bell: Bell,
}

impl Returned {
    pub(crate) fn new(streams_max: usize) -> io::Result<Self> {
        Ok(Self { streams_max, streams: Mutex::default(), bell: Bell::new()? })
    }

    fn give(&self, stream: TcpStream) {
        let mut streams = lock(&self.streams);
        if streams.len() >= self.streams_max {
            streams.pop_front();
        }
        streams.push_back((Instant::now(), stream));
        drop(streams);
        self.bell.ring();
    }

    /// All that were given back since it was last asked; none of them blocks.
    pub(crate) fn take(&self) -> VecDeque<(Instant, TcpStream)> {
        self.bell.hush();
        std::mem::take(&mut lock(&self.streams))
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }
}

/// Who gets a control connection whose ends have parted in good order.
#[derive(Debug, Clone)]
pub(crate) enum Heir {
    Connecting(Arc<Idle>, SocketAddr),
    Accepting(Weak<Returned>),
}

impl Heir {
    /// Whether there is anybody to inherit: a listener may be gone.
    pub(crate) fn is_there(&self) -> bool {
        match self {
            Self::Connecting(..) => true,
            Self::Accepting(returned) => returned.strong_count() > 0,
        }
    }

    pub(crate) fn inherit(&self, kept: Kept) {
        match self {
            Self::Connecting(idle, peer) => idle.keep(*peer, kept),
            // A listener that is gone waits for nobody.
            Self::Accepting(returned) => {
                if let Some(returned) = returned.upgrade() {
                    returned.give(kept.stream);
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

/// Wakes a thread that waits in `poll`.
#[cfg(unix)]
#[derive(Debug)]
pub(crate) struct Bell {
    rope: std::os::unix::net::UnixStream,
    clapper: std::os::unix::net::UnixStream,
}

#[cfg(unix)]
impl Bell {
    fn new() -> io::Result<Self> {
        let (rope, clapper) = std::os::unix::net::UnixStream::pair()?;
        rope.set_nonblocking(true)?;
        clapper.set_nonblocking(true)?;
        lacuna_datapath::process::descriptors::note(&rope);
        lacuna_datapath::process::descriptors::note(&clapper);
        Ok(Self { rope, clapper })
    }

    /// What is ready to be read when it rings.
    pub(crate) fn source(&self) -> Option<crate::readiness::Source<'_>> {
        Some(crate::readiness::source(&self.clapper))
    }

    fn ring(&self) {
        // Full: it rings already.
        let _ = io::Write::write(&mut &self.rope, &[0]);
    }

    fn hush(&self) {
        while matches!(io::Read::read(&mut &self.clapper, &mut [0; 64]), Ok(64)) {}
    }
}

/// Without `poll`, connections are looked at now and then anyway.
#[cfg(not(unix))]
#[derive(Debug)]
pub(crate) struct Bell;

#[cfg(not(unix))]
impl Bell {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn source(&self) -> Option<crate::readiness::Source<'_>> {
        None
    }

    fn ring(&self) {}

    fn hush(&self) {}
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

    fn kept(stream: TcpStream) -> Kept {
        Kept { stream, goodbye: Goodbye::default() }
    }

    fn peer(port: u16) -> SocketAddr {
        ([192, 0, 2, 1], port).into()
    }

    #[test]
    fn a_kept_connection_is_taken_once_by_who_goes_there() {
        let (idle, (here, _there)) = (Idle::default(), stream());
        let port = here.local_addr().unwrap();
        idle.keep(peer(1), kept(here));
        assert!(idle.take(peer(2)).is_none());
        assert_eq!(idle.take(peer(1)).unwrap().stream.local_addr().unwrap(), port);
        assert!(idle.take(peer(1)).is_none());
    }

    #[test]
    fn one_that_the_peer_has_closed_is_passed_over() {
        let (idle, (alive, _there), (dead, gone)) = (Idle::default(), stream(), stream());
        let port = alive.local_addr().unwrap();
        idle.keep(peer(1), kept(alive));
        gone.shutdown(Shutdown::Write).unwrap();
        while !has_ended(&dead) {
            std::thread::yield_now();
        }
        idle.keep(peer(1), kept(dead));
        assert_eq!(idle.take(peer(1)).unwrap().stream.local_addr().unwrap(), port);
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for() {
        let (idle, returned) = (Idle::default(), Returned::new(3).unwrap());
        let mut peers = Vec::new();
        for port in 0..=IDLE_MAX as u16 {
            let (here, there) = stream();
            idle.keep(peer(port), kept(here));
            peers.push(there);
        }
        assert!(idle.take(peer(0)).is_none(), "the longest kept made room");
        assert!(idle.take(peer(1)).is_some());
        for _ in 0..4 {
            let (here, _there) = stream();
            returned.give(here);
        }
        assert_eq!(returned.take().len(), 3);
        assert_eq!(returned.take().len(), 0);
    }
}
