//! Happy Eyeballs (RFC 8305, section 5): opens a TCP connection to the first of several addresses
//! that answers.
//!
//! An address that does not answer delays the next one by 250 ms only. A silent address is also
//! tried again, from another port, because TCP repeats a lost SYN or SYN-ACK only after 1 s (RFC
//! 6298, 2.1), then after longer: on a lossy path, one connection in fifty would begin twenty round
//! trips late, and nearly always one of a crowd. The first connection that is made wins; the others
//! are reset before they send a byte.

use crate::driver::Watch;
use mio::net::TcpStream as Socket;
use mio::{Events, Poll, Token};
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Delay before the next attempt, while each address has its first one (RFC 8305, section 8). It
/// doubles with each further round over all addresses, to spare a busy listener.
const PAUSE: Duration = Duration::from_millis(250);
/// Attempts per address: at 0, 250, 750 and 1750 ms if there is one address. TCP itself repeats the
/// SYN of each.
const ATTEMPTS_MAX: u32 = 4;

/// The schedule of attempts.
#[derive(Debug)]
struct Attempts {
    /// Addresses in order, with the number of attempts so far.
    queue: VecDeque<(SocketAddr, u32)>,
    due: Instant,
}

impl Attempts {
    fn new(now: Instant, addresses: &[SocketAddr]) -> Self {
        Self { queue: addresses.iter().map(|address| (*address, 0)).collect(), due: now }
    }

    /// When the next attempt begins; `None` if there is none left.
    fn due(&self) -> Option<Instant> {
        self.queue.front().map(|_| self.due)
    }

    /// The next address, if its time has come.
    fn take(&mut self, now: Instant) -> Option<SocketAddr> {
        if self.due > now {
            return None;
        }
        let (address, tried) = self.queue.pop_front()?;
        if tried + 1 < ATTEMPTS_MAX {
            self.queue.push_back((address, tried + 1));
        }
        let next_tried = self.queue.front().map_or(0, |(_, tried)| *tried);
        self.due = now + PAUSE * (1 << next_tried.saturating_sub(1));
        Some(address)
    }

    /// An address answered with an error: an address without an attempt is tried at once.
    fn give_up(&mut self, now: Instant, failed: SocketAddr) {
        self.queue.retain(|(address, _)| *address != failed);
        if self.queue.front().is_some_and(|(_, tried)| *tried == 0) {
            self.due = now;
        }
    }
}

/// A TCP connection in the making. Dropping it ends all attempts.
#[derive(Debug)]
pub(crate) struct HappyEyeballs {
    attempts: Attempts,
    /// Attempts without an outcome.
    sockets: Vec<(SocketAddr, Socket)>,
    /// For blocking callers ([`HappyEyeballs::wait`]); `None` if the sockets are watched elsewhere.
    poll: Option<Poll>,
    deadline: Instant,
    /// The error of the last address that answered with one.
    last: io::Error,
}

impl HappyEyeballs {
    /// Tries `addresses` in order until `deadline`. `is_watched`: the caller passes a watch to
    /// `drive` and does not call [`HappyEyeballs::wait`].
    pub(crate) fn new(
        addresses: &[SocketAddr],
        now: Instant,
        deadline: Instant,
        is_watched: bool,
    ) -> io::Result<Self> {
        Ok(Self {
            attempts: Attempts::new(now, addresses),
            sockets: Vec::new(),
            poll: if is_watched { None } else { Some(Poll::new()?) },
            deadline,
            last: io::Error::new(io::ErrorKind::NotFound, "the name has no address"),
        })
    }

    /// Starts attempts that are due and checks those in flight, without waiting. The stream is
    /// non-blocking.
    ///
    /// # Errors
    /// When all addresses answered with errors, the last of these; `TimedOut` at the deadline.
    pub(crate) fn drive(
        &mut self,
        now: Instant,
        watch: Option<&Watch<'_>>,
    ) -> Option<io::Result<TcpStream>> {
        self.drive_with(now, watch, Socket::connect)
    }

    fn drive_with(
        &mut self,
        now: Instant,
        watch: Option<&Watch<'_>>,
        mut begin: impl FnMut(SocketAddr) -> io::Result<Socket>,
    ) -> Option<io::Result<TcpStream>> {
        loop {
            if let Some(socket) = self.look(now) {
                return Some(self.finish(socket, watch));
            }
            let Some(address) = self.attempts.take(now) else { break };
            let begun = begin(address).and_then(|mut socket| {
                end_by_reset(&socket, true)?;
                #[cfg(unix)]
                lacuna_datapath::process::descriptors::note(&socket);
                if let Some(watch) = self.watch(watch) {
                    watch.add(&mut socket)?;
                }
                Ok(socket)
            });
            match begun {
                Ok(socket) => self.sockets.push((address, socket)),
                Err(error) => self.give_up(now, address, error),
            }
        }
        if self.sockets.is_empty() && self.attempts.due().is_none() {
            let last = std::mem::replace(&mut self.last, io::ErrorKind::NotFound.into());
            return Some(Err(last));
        }
        if now >= self.deadline {
            return Some(Err(io::Error::new(io::ErrorKind::TimedOut, "connection timed out")));
        }
        None
    }

    /// The first attempt that has connected, if any.
    fn look(&mut self, now: Instant) -> Option<Socket> {
        let mut index = 0;
        while let Some((address, socket)) = self.sockets.get(index) {
            match outcome(socket) {
                None => index += 1,
                Some(Ok(())) => return Some(self.sockets.swap_remove(index).1),
                Some(Err(error)) => {
                    let failed = *address;
                    self.give_up(now, failed, error);
                    index = 0;
                }
            }
        }
        None
    }

    fn give_up(&mut self, now: Instant, failed: SocketAddr, error: io::Error) {
        self.attempts.give_up(now, failed);
        self.sockets.retain(|(address, _)| *address != failed);
        self.last = error;
    }

    /// Where sockets are registered: with the caller's watch or the own poll.
    fn watch<'w>(&'w self, watch: Option<&'w Watch<'w>>) -> Option<Watch<'w>> {
        let own = self.poll.as_ref().map(|poll| Watch::new(poll.registry(), Token(0)));
        own.or(watch.copied())
    }

    /// Turns the winning attempt into a stream.
    fn finish(&self, mut socket: Socket, watch: Option<&Watch<'_>>) -> io::Result<TcpStream> {
        if let Some(watch) = self.watch(watch) {
            watch.remove(&mut socket)?;
        }
        end_by_reset(&socket, false)?;
        Ok(TcpStream::from(socket))
    }

    /// Latest time for the next call of `drive`.
    pub(crate) fn due(&self) -> Instant {
        self.attempts.due().map_or(self.deadline, |due| due.min(self.deadline))
    }

    /// Waits until `drive` can make progress, at most `limit`.
    pub(crate) fn wait(&mut self, now: Instant, limit: Duration) -> io::Result<()> {
        let limit = limit.min(self.due().saturating_duration_since(now));
        let Some(poll) = &mut self.poll else { return Ok(()) };
        let mut events = Events::with_capacity(self.sockets.len().max(1));
        match poll.poll(&mut events, Some(limit)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }
}

/// The outcome of an attempt; `None` while it is in flight.
fn outcome(attempt: &Socket) -> Option<io::Result<()>> {
    match attempt.take_error() {
        Ok(Some(error)) | Err(error) => return Some(Err(error)),
        Ok(None) => {}
    }
    // A wake-up may be spurious: only a connected socket has a peer.
    attempt.peer_addr().is_ok().then_some(Ok(()))
}

/// Sets whether closing resets the connection. Losing attempts end by reset, since one may have
/// connected meanwhile, and the listener must not see it.
fn end_by_reset(attempt: &Socket, does: bool) -> io::Result<()> {
    #[cfg(unix)]
    rustix::net::sockopt::set_socket_linger(attempt, does.then_some(Duration::ZERO))?;
    #[cfg(not(unix))]
    let _ = (attempt, does);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    const LONG: Duration = Duration::from_secs(60);

    fn address(last: u8) -> SocketAddr {
        SocketAddr::new([192, 0, 2, last].into(), 9)
    }

    /// Start of each attempt, in milliseconds, and its address, if none answers.
    fn schedule(addresses: &[SocketAddr]) -> Vec<(u128, SocketAddr)> {
        let start = Instant::now();
        let mut attempts = Attempts::new(start, addresses);
        let mut begun = Vec::new();
        while let Some(due) = attempts.due() {
            assert_eq!(attempts.take(due - Duration::from_nanos(1)), None, "not before its turn");
            begun.push((due.duration_since(start).as_millis(), attempts.take(due).unwrap()));
        }
        begun
    }

    #[test]
    fn who_is_silent_is_asked_again_ever_more_seldom() {
        let a = address(1);
        assert_eq!(schedule(&[a]), [(0, a), (250, a), (750, a), (1750, a)]);
    }

    #[test]
    fn each_address_has_its_turn_before_any_has_a_second() {
        let (a, b) = (address(1), address(2));
        let expected =
            [(0, a), (250, b), (500, a), (750, b), (1250, a), (1750, b), (2750, a), (3750, b)];
        assert_eq!(schedule(&[a, b]), expected);
    }

    #[test]
    fn an_error_brings_up_the_next_address_at_once_but_no_repetition() {
        let (a, b, start) = (address(1), address(2), Instant::now());
        let mut attempts = Attempts::new(start, &[a, b]);
        assert_eq!(attempts.take(start), Some(a));
        attempts.give_up(start, a);
        assert_eq!((attempts.take(start), attempts.take(start)), (Some(b), None));
        attempts.give_up(start, a);
        assert_eq!((attempts.take(start), attempts.due()), (None, Some(start + PAUSE)));
        attempts.give_up(start, b);
        assert_eq!(attempts.due(), None);
    }

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// Drives it until it has an outcome.
    fn run(
        addresses: &[SocketAddr],
        deadline: Instant,
        mut begin: impl FnMut(SocketAddr) -> io::Result<Socket>,
    ) -> io::Result<TcpStream> {
        let mut eyeballs = HappyEyeballs::new(addresses, Instant::now(), deadline, false)?;
        loop {
            let now = Instant::now();
            if let Some(outcome) = eyeballs.drive_with(now, None, &mut begin) {
                return outcome;
            }
            eyeballs.wait(now, LONG)?;
        }
    }

    fn first_of(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
        run(addresses, deadline, Socket::connect)
    }

    /// An address that neither accepts nor refuses connections, because the listener's queue is
    /// full, and what keeps it so.
    #[cfg(target_os = "linux")]
    fn silent() -> (impl Sized, SocketAddr) {
        let (listener, address) = listener();
        rustix::net::listen(&listener, 0).unwrap();
        let filling = (0..4).map(|_| Socket::connect(address).unwrap()).collect::<Vec<_>>();
        ((listener, filling), address)
    }

    #[test]
    fn the_address_that_answers_is_connected_to_whatever_the_others_do() {
        let (_there, answers) = listener();
        let (gone, refuses) = listener();
        drop(gone);
        let deadline = Instant::now() + LONG;
        let stream = first_of(&[refuses, answers], deadline).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), answers);
        assert!(rustix::fs::fcntl_getfl(&stream).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
        #[cfg(target_os = "linux")]
        {
            let (_full, silent) = silent();
            let stream = first_of(&[silent, answers], deadline).unwrap();
            assert_eq!(stream.peer_addr().unwrap(), answers);
        }
        let error = first_of(&[refuses], deadline).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(first_of(&[], deadline).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_attempt_whose_packets_are_lost_is_not_waited_for() {
        let (_full, silent) = silent();
        let (listener, answers) = listener();
        let mut begun = 0;
        let begin = |address| {
            begun += 1;
            Socket::connect(if begun < 3 { silent } else { address })
        };
        let stream = run(&[answers], Instant::now() + LONG, begin).unwrap();
        assert_eq!(rustix::net::sockopt::socket_linger(&stream).unwrap(), None);
        let (_, peer) = listener.accept().unwrap();
        assert_eq!((stream.local_addr().unwrap(), begun), (peer, 3));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn silence_ends_at_the_deadline() {
        let (_full, silent) = silent();
        let error = first_of(&[silent], Instant::now() + Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
