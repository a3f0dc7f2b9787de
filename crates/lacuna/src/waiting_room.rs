//! Peers whose control connections were taken and that have not said their
//! hello yet.
//!
//! A listener looks after all of them at once, so that one that says nothing, or
//! a byte now and then, holds up nobody: it stays here until its time is over,
//! while others are served in the order in which they have spoken. There is room
//! for [`PEERS_MAX`]. Peers that mean it speak at once and hardly stay, so when it
//! is full the one that has been silent longest is told that the listener is
//! busy, and goes. Behind this stands the system's own queue, [`BACKLOG`] long.
//!
//! Control connections that are reused (`reuse.rs`) wait beside them for
//! their next hello. They owe none, so they are closed without a word when their
//! time is over or there are too many.
//!
//! Where this machine lacks a descriptor or memory for a peer that has come, those who
//! are here are served first, and that peer is tried again a few times a second.

use crate::clock::Clock;
use crate::error::ConnectError;
use crate::handshake::{Arrival, turn_away};
use crate::readiness::{self, For, source};
use crate::reuse::{LISTENER_IDLE_TIMEOUT, LISTENER_POOL_MAX, ListenerPool, has_ended};
use lacuna_datapath::ends_listener;
use std::collections::VecDeque;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Peers that may be here. Each takes a file descriptor and, of memory, what it
/// has said, which is less than 17 KiB.
pub(crate) const PEERS_MAX: usize = 1024;
/// Connections that the system may hold for the listener; it takes the smaller
/// one of this and its own limit (Linux: `net.core.somaxconn`, 4096).
pub(crate) const BACKLOG: i32 = 4096;

/// Connections in a row that may be lost before they are accepted, until the caller is told: what
/// keeps failing must not keep a thread for ever (a judgement).
const LOST_PER_CALL_MAX: u32 = 16;

/// How long a peer that cannot be taken waits at least until it is tried again: a
/// listener that lacks descriptors must not spin (a judgement).
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct WaitingRoom {
    clock: Clock,
    peers_max: usize,
    /// In the order in which they came.
    silent: VecDeque<Arrival>,
    /// They have said their hello, or what else came of them.
    done: VecDeque<Result<Arrival, ConnectError>>,
    /// Control connections that were put back and not taken from there yet.
    pool: Arc<ListenerPool>,
    /// Those that were, and are silent; the longest here in front.
    idle: VecDeque<(Instant, TcpStream)>,
    /// Those of them that have begun to speak again.
    reused: VecDeque<TcpStream>,
}

impl WaitingRoom {
    pub(crate) fn new(clock: Clock, peers_max: usize) -> io::Result<Self> {
        Ok(Self {
            clock,
            peers_max,
            silent: VecDeque::new(),
            done: VecDeque::new(),
            pool: Arc::new(ListenerPool::new(LISTENER_POOL_MAX)?),
            idle: VecDeque::new(),
            reused: VecDeque::new(),
        })
    }

    /// Where control connections are put back to.
    pub(crate) fn pool(&self) -> &Arc<ListenerPool> {
        &self.pool
    }

    /// The next peer that has spoken, or was lost; waits for it.
    ///
    /// # Errors
    /// When no connection can be taken.
    pub(crate) fn next(
        &mut self,
        tcp: &TcpListener,
        patience: Duration,
    ) -> io::Result<Result<Arrival, ConnectError>> {
        let mut was_refused = false;
        loop {
            while let Some(stream) = self.reused.pop_front() {
                self.receive(stream, patience);
            }
            let taken = self.take_in(tcp, patience);
            if let Some(done) = self.done.pop_front() {
                // What is here already is served first.
                return Ok(done);
            }
            self.wait_after(tcp, taken, &mut was_refused)?;
        }
    }

    /// The next peer that has spoken, or was lost, if there is one now.
    ///
    /// # Errors
    /// When no connection can be taken.
    pub(crate) fn try_next(
        &mut self,
        tcp: &TcpListener,
        patience: Duration,
    ) -> io::Result<Option<Result<Arrival, ConnectError>>> {
        self.look(None, Some(Duration::ZERO))?;
        while let Some(stream) = self.reused.pop_front() {
            self.receive(stream, patience);
        }
        let taken = self.take_in(tcp, patience);
        match (self.done.pop_front(), taken) {
            (Some(done), _) => Ok(Some(done)),
            (None, Ok(())) => Ok(None),
            // Linux looks for a descriptor before it looks whether anybody is there.
            (None, Err(error)) if is_exhausted(&error) && !somebody_waits(tcp)? => Ok(None),
            (None, Err(error)) => Err(error),
        }
    }

    /// Waits for what comes next, after all that could be taken was taken.
    ///
    /// # Errors
    /// When it was `taken` in vain twice.
    fn wait_after(
        &mut self,
        tcp: &TcpListener,
        taken: io::Result<()>,
        was_refused: &mut bool,
    ) -> io::Result<()> {
        match taken {
            // Linux looks for a descriptor before it looks whether anybody is there.
            Err(error) if is_exhausted(&error) && somebody_waits(tcp)? => {
                if std::mem::replace(was_refused, true) {
                    return Err(error);
                }
                self.wait(None)
            }
            Err(error) if !is_exhausted(&error) => Err(error),
            _ => self.wait(Some(tcp)),
        }
    }

    /// The next control connection, new or one that speaks again, blocking.
    pub(crate) fn next_stream(&mut self, tcp: &TcpListener) -> io::Result<TcpStream> {
        let mut was_refused = false;
        loop {
            let stream = match self.reused.pop_front() {
                None => self.accept(tcp),
                again => Ok(again),
            };
            if let Ok(Some(stream)) = stream {
                // Some systems hand the listener's way down.
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            self.wait_after(tcp, stream.map(drop), &mut was_refused)?;
        }
    }

    /// Takes all connections that the system has. Those that are done count too:
    /// they are the caller's to take.
    fn take_in(&mut self, tcp: &TcpListener, patience: Duration) -> io::Result<()> {
        while self.done.len() < self.peers_max
            && let Some(stream) = self.accept(tcp)?
        {
            self.receive(stream, patience);
        }
        Ok(())
    }

    /// Takes a connection that the system has, if it has one. What happened to one before it was
    /// taken concerns nobody else.
    fn accept(&mut self, tcp: &TcpListener) -> io::Result<Option<TcpStream>> {
        let mut lost = 0;
        loop {
            let error = match tcp.accept() {
                // Reset in the queue: Linux tells of it only here.
                Ok((stream, _)) if is_gone(&stream) => continue,
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error) => error,
            };
            match Meaning::of(&error) {
                Meaning::NobodyCame => return Ok(None),
                Meaning::AskAgain => {}
                // Those who come need what those who are silent hold.
                Meaning::Exhausted if self.close_idle() => {}
                Meaning::OneLost if lost < LOST_PER_CALL_MAX => {
                    tracing::debug!(%error, "a connection was lost before it was accepted");
                    lost += 1;
                }
                Meaning::Exhausted | Meaning::OneLost | Meaning::Over => return Err(error),
            }
        }
    }

    /// Closes those that have served before and are silent; whether there were any.
    fn close_idle(&mut self) -> bool {
        self.idle.extend(self.pool.take());
        let had_some = !self.idle.is_empty();
        self.idle.clear();
        had_some
    }

    /// Takes in a connection that is to say its hello now.
    fn receive(&mut self, stream: TcpStream, patience: Duration) {
        match Arrival::new(self.clock, stream, patience) {
            Ok(arrival) => self.look_at(arrival),
            // Reset since it was accepted.
            Err(ConnectError::Unreachable { source, .. })
                if source.kind() == io::ErrorKind::NotConnected =>
            {
                tracing::debug!("reset without a word");
            }
            Err(error) => self.done.push_back(Err(error)),
        }
        if self.silent.len() > self.peers_max {
            self.make_room();
        }
    }

    /// Reads what has come of a peer, and puts it where it belongs.
    fn look_at(&mut self, mut arrival: Arrival) {
        if !arrival.hear(self.clock.now_ns()) {
            self.silent.push_back(arrival);
        } else if arrival.was_forgotten() {
            // One of several attempts of a peer (`reach.rs`) that another was faster than.
            tracing::debug!(peer = %arrival.peer(), "reset without a word");
        } else {
            self.done.push_back(arrival.into_spoken());
        }
    }

    fn make_room(&mut self) {
        let Some(oldest) = self.silent.pop_front() else { return };
        let (peer, limit) = (oldest.peer(), self.peers_max);
        turn_away(oldest.stream(), format!("{limit} peers are connecting at once; try again"));
        self.done.push_back(Err(ConnectError::Crowded { peer, limit }));
    }

    /// Waits until a peer comes, some say something, or the time of one is over; without
    /// the listener, [`REFUSED_PAUSE`] at most.
    fn wait(&mut self, tcp: Option<&TcpListener>) -> io::Result<()> {
        self.look(tcp, tcp.is_none().then_some(REFUSED_PAUSE))
    }

    /// The same for `limit` at most. Those that have served before and speak again are left to the
    /// caller.
    fn look(&mut self, tcp: Option<&TcpListener>, limit: Option<Duration>) -> io::Result<()> {
        self.idle.extend(self.pool.take());
        let surplus = self.idle.len().saturating_sub(LISTENER_POOL_MAX);
        self.idle.drain(..surplus);
        // Each kind has the same patience: the first to come is the first to go.
        let over = self.silent.front().map(|first| self.clock.until(first.deadline_ns()));
        let idle_over = self.idle.front().map(|(since, _)| {
            (*since + LISTENER_IDLE_TIMEOUT).saturating_duration_since(Instant::now())
        });
        // Rounded up: a wait that ends too early would be repeated at once.
        let over = over.into_iter().chain(idle_over).min();
        let over = over.map(|over| over + Duration::from_millis(1));
        let left = over.into_iter().chain(limit).min();
        let mut ready = self.ready(tcp, left)?.into_iter();
        let (now, now_ns) = (Instant::now(), self.clock.now_ns());
        for arrival in std::mem::take(&mut self.silent) {
            if ready.next() == Some(true) || arrival.deadline_ns() <= now_ns {
                self.look_at(arrival);
            } else {
                self.silent.push_back(arrival);
            }
        }
        for (since, stream) in std::mem::take(&mut self.idle) {
            if ready.next() == Some(true) {
                if !has_ended(&stream) {
                    self.reused.push_back(stream);
                }
            } else if since + LISTENER_IDLE_TIMEOUT > now {
                self.idle.push_back((since, stream));
            }
        }
        Ok(())
    }

    /// Waits until one of those who are silent speaks, somebody comes or is given back, at most
    /// `limit`; for each who is silent, and each that has served before, whether it has spoken.
    fn ready(&self, tcp: Option<&TcpListener>, limit: Option<Duration>) -> io::Result<Vec<bool>> {
        let silent = self.silent.iter().map(Arrival::stream);
        let streams = silent.chain(self.idle.iter().map(|(_, stream)| stream)).map(source);
        let count = self.silent.len() + self.idle.len();
        let others = tcp.map(source).into_iter().chain(self.pool.source());
        let all = streams.chain(others).map(|source| (source, For::Reading));
        let mut ready = readiness::wait(all, limit)?;
        ready.truncate(count);
        Ok(ready)
    }
}

/// Whether nobody is at the other end any more.
fn is_gone(stream: &TcpStream) -> bool {
    stream.peer_addr().is_err_and(|error| error.kind() == io::ErrorKind::NotConnected)
}

/// What it means that nothing was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    NobodyCame,
    AskAgain,
    /// The system lacks what a connection takes.
    Exhausted,
    /// It is about one connection: a firewall refused it, the network failed it (`accept(2)`).
    OneLost,
    /// The listener is none any more.
    Over,
}

impl Meaning {
    fn of(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock => Self::NobodyCame,
            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => Self::AskAgain,
            _ if ends_listener(error).is_some() => Self::Over,
            _ if is_exhausted(error) => Self::Exhausted,
            _ => Self::OneLost,
        }
    }
}

/// Whether the system lacks what a connection takes: a descriptor or memory.
#[cfg(unix)]
fn is_exhausted(error: &io::Error) -> bool {
    use rustix::io::Errno;
    Errno::from_io_error(error).is_some_and(|error| {
        [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&error)
    })
}

/// Other systems say it in ways of their own: to close some too often costs round trips.
#[cfg(not(unix))]
fn is_exhausted(_error: &io::Error) -> bool {
    true
}

/// Whether a peer waits to be taken.
fn somebody_waits(tcp: &TcpListener) -> io::Result<bool> {
    Ok(readiness::wait([(source(tcp), For::Reading)], Some(Duration::ZERO))? == [true])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    const PATIENCE: Duration = Duration::from_secs(3600);

    #[cfg(unix)]
    #[test]
    fn what_happens_to_one_connection_does_not_end_the_listener() {
        use rustix::io::Errno;
        for (error, meaning) in [
            (Errno::MFILE, Meaning::Exhausted),
            (Errno::NOMEM, Meaning::Exhausted),
            // A firewall refused this one.
            (Errno::PERM, Meaning::OneLost),
            (Errno::PROTO, Meaning::OneLost),
            (Errno::HOSTUNREACH, Meaning::OneLost),
            (Errno::OPNOTSUPP, Meaning::OneLost),
            (Errno::CONNABORTED, Meaning::AskAgain),
            (Errno::AGAIN, Meaning::NobodyCame),
            // The listener is no listener any more.
            (Errno::INVAL, Meaning::Over),
            (Errno::BADF, Meaning::Over),
        ] {
            assert_eq!(Meaning::of(&error.into()), meaning, "{error}");
        }
    }

    /// Who connects twice at once (`reach.rs`) forgets the slower attempt.
    #[cfg(unix)]
    #[test]
    fn connections_that_are_reset_without_a_word_are_no_peers() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let connect = || TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let reset = |stream: TcpStream| {
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
        };
        let mut room = WaitingRoom::new(Clock::new(), 9).unwrap();
        let waiting = connect();
        room.take_in(&tcp, PATIENCE).unwrap();
        assert_eq!(room.silent.len(), 1);
        reset(waiting);
        reset(connect());
        // One that is reset once it was accepted, and before anything is asked of it.
        let accepting = TcpListener::bind("127.0.0.1:0").unwrap();
        let between = TcpStream::connect(accepting.local_addr().unwrap()).unwrap();
        let (accepted, _) = accepting.accept().unwrap();
        reset(between);
        room.receive(accepted, PATIENCE);
        let closing = connect();
        let address = closing.local_addr().unwrap();
        drop(closing);
        let Err(error) = room.next(&tcp, PATIENCE).unwrap() else { panic!("nobody has spoken") };
        assert!(matches!(error, ConnectError::Exchange { peer, .. } if peer == address), "{error}");
        room.wait(Some(&tcp)).unwrap();
        assert!(room.silent.is_empty() && room.done.is_empty());
    }

    #[test]
    fn who_is_silent_longest_makes_room_and_is_told() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp.set_nonblocking(true).unwrap();
        let mut peers: Vec<_> =
            (0..3).map(|_| TcpStream::connect(tcp.local_addr().unwrap()).unwrap()).collect();
        let mut room = WaitingRoom::new(Clock::new(), 2).unwrap();
        let Err(error) = room.next(&tcp, PATIENCE).unwrap() else { panic!("nobody has spoken") };
        let oldest = peers.remove(0);
        let ConnectError::Crowded { peer, limit: 2 } = error else { panic!("{error}") };
        assert_eq!(peer, oldest.local_addr().unwrap());
        let mut told = String::new();
        (&oldest).read_to_string(&mut told).unwrap();
        assert!(told.contains("2 peers are connecting at once; try again"), "{told}");
        assert_eq!(room.silent.len(), 2, "the others stay");
    }
}
