//! Watches the control connections: TCP's only work after the exchange is to
//! tell that the peer lives, and to carry its last words.
//!
//! A peer that closes in good order says goodbye with its final report, so
//! that a sender whose last acknowledgement was lost still learns that its
//! message arrived. A connection that breaks ends all operations at once.
//!
//! Connections say something once in their life, so only those that did are looked
//! at (`mio`: epoll, kqueue, or what else a system has): a thousand others cost
//! nothing.

use crate::clock::Clock;
use crate::shared::{Machine, Shared};
use lacuna_proto::qp::{Failure, Gone};
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Longest last words: one control packet and a length.
const GOODBYE_BYTES_MAX: usize = 16 << 10;
/// Connections whose words are taken in at once.
const EVENTS: usize = 64;
/// No connection's.
const WAKE: Token = Token(usize::MAX);

/// One control connection.
pub(crate) struct Watched {
    token: Token,
    shared: Weak<Shared>,
    control: Mutex<Control>,
}

struct Control {
    stream: mio::net::TcpStream,
    received: Vec<u8>,
}

impl Watched {
    fn new(stream: TcpStream, shared: &Arc<Shared>, token: Token) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        keep_alive(&stream)?;
        let stream = mio::net::TcpStream::from_std(stream);
        let control = Mutex::new(Control { stream, received: Vec::new() });
        Ok(Self { token, shared: Arc::downgrade(shared), control })
    }

    /// Says goodbye with `last_words`, a control packet's body.
    pub(crate) fn say_goodbye(&self, last_words: &[u8]) {
        let mut bytes = (last_words.len() as u32).to_be_bytes().to_vec();
        bytes.extend(last_words);
        // The socket is idle, so its buffer takes this at once; and a peer that
        // is gone needs no goodbye.
        let stream = &mut lock(&self.control).stream;
        if let Err(error) = stream.write_all(&bytes) {
            tracing::debug!(%error, "no goodbye");
        }
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }

    /// Reads what is there; `false` once the connection has ended.
    fn check(&self, clock: Clock) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let mut control = lock(&self.control);
        let Control { stream, received } = &mut *control;
        let mut bytes = [0; 512];
        let mut unfinished = Gone::Broken;
        loop {
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(count) => {
                    received.extend_from_slice(&bytes[..count]);
                    if received.len() > GOODBYE_BYTES_MAX {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    unfinished = gone_by(error.kind());
                    break;
                }
            }
        }
        // However the connection ended: a peer that said goodbye meant it, even
        // if it closed so hard that an error follows.
        let whole = received
            .split_at_checked(4)
            .is_some_and(|(length, words)| length == (words.len() as u32).to_be_bytes());
        let gone = if whole { Gone::Closed } else { unfinished };
        if let Machine::Connected(qp) = &mut shared.lock().machine {
            if gone == Gone::Closed {
                let last_words = &received[4..];
                if let Err(error) = qp.on_control(clock.now_ns(), 0, last_words, last_words.len()) {
                    tracing::debug!(%error, "unreadable last words");
                }
            }
            qp.fail(Failure::PeerGone(gone));
        }
        shared.notify();
        false
    }
}

/// Who is gone, if reading fails so: TCP gives up a host that does not answer by
/// one of the first (RFC 1122, 4.2.3.5 and 4.2.3.9).
fn gone_by(error: io::ErrorKind) -> Gone {
    match error {
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown => Gone::Unreachable,
        _ => Gone::Broken,
    }
}

/// Finds a peer whose host died without a word, within half a minute; a path that
/// is dark for some seconds is no death, so the first question comes after ten.
fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    #[cfg(unix)]
    {
        use rustix::net::sockopt;
        use std::time::Duration;
        sockopt::set_socket_keepalive(stream, true)?;
        #[cfg(target_os = "linux")]
        {
            sockopt::set_tcp_keepidle(stream, Duration::from_secs(10))?;
            sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5))?;
            sockopt::set_tcp_keepcnt(stream, 3)?;
        }
        let _ = Duration::ZERO;
    }
    #[cfg(not(unix))]
    let _ = stream;
    Ok(())
}

/// All control connections of a context.
pub(crate) struct Monitor {
    clock: Clock,
    poll: Mutex<Poll>,
    registry: Registry,
    waker: Waker,
    watched: Mutex<HashMap<Token, Arc<Watched>>>,
    next: AtomicUsize,
    stopped: AtomicBool,
}

impl Monitor {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let poll = Poll::new()?;
        Ok(Self {
            clock,
            registry: poll.registry().try_clone()?,
            waker: Waker::new(poll.registry(), WAKE)?,
            poll: Mutex::new(poll),
            watched: Mutex::new(HashMap::new()),
            next: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
        })
    }

    /// Watches the control connection of a queue pair from now on.
    pub(crate) fn add(&self, stream: TcpStream, shared: &Arc<Shared>) -> io::Result<Arc<Watched>> {
        let token = Token(self.next.fetch_add(1, Ordering::Relaxed));
        let watched = Arc::new(Watched::new(stream, shared, token)?);
        // To be found from the first word on.
        lock(&self.watched).insert(token, watched.clone());
        let stream = &mut lock(&watched.control).stream;
        if let Err(error) = self.registry.register(stream, token, Interest::READABLE) {
            lock(&self.watched).remove(&token);
            return Err(error);
        }
        Ok(watched.clone())
    }

    pub(crate) fn remove(&self, watched: &Watched) {
        if lock(&self.watched).remove(&watched.token).is_some() {
            // An error: it is not looked at any more for another reason.
            let _ = self.registry.deregister(&mut lock(&watched.control).stream);
        }
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        if let Err(error) = self.waker.wake() {
            tracing::error!(%error, "cannot wake the thread that watches connections");
        }
    }

    /// Looks at what connections have said so far, without waiting.
    pub(crate) fn check(&self) {
        while self.look(Some(Duration::ZERO)) {}
    }

    /// Watches until stopped.
    pub(crate) fn run(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            self.look(None);
        }
    }

    /// Looks at those that have something to say, once one has or the time is over;
    /// whether there may be more of them.
    fn look(&self, timeout: Option<Duration>) -> bool {
        let mut events = Events::with_capacity(EVENTS);
        if let Err(error) = lock(&self.poll).poll(&mut events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            tracing::error!(%error, "cannot wait for the peers' last words");
            std::thread::yield_now();
        }
        for event in &events {
            let watched = lock(&self.watched).get(&event.token()).cloned();
            if let Some(watched) = watched
                && !watched.check(self.clock)
            {
                self.remove(&watched);
            }
        }
        events.iter().count() == EVENTS
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConnectionConfig;
    use crate::queue_pair::{Keys, protocol};
    use crate::shared::State;
    use std::net::{Shutdown, TcpListener};

    /// A watched connection and the peer's end of it.
    fn watched() -> (Arc<Shared>, Watched, TcpStream) {
        let (shared, stream, peer) = connection();
        let watched = Watched::new(stream, &shared, Token(0)).unwrap();
        (shared, watched, peer)
    }

    /// A queue pair, its control connection and the peer's end of that.
    fn connection() -> (Arc<Shared>, TcpStream, TcpStream) {
        let config = ConnectionConfig::default();
        let keys = Keys { rkey: 1, qkey: 2, first_psn: 3 };
        let qp = protocol(1, &config, config.geometry(4096, 1).unwrap(), &keys, 0);
        let machine = Machine::Connected(Box::new(qp));
        let shared = Arc::new(Shared::new(1, 2, State { machine, addresses: vec![None] }, vec![]));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (shared, listener.accept().unwrap().0, peer)
    }

    fn failure(shared: &Arc<Shared>, watched: &Watched) -> Option<Failure> {
        while watched.check(Clock::new()) {
            std::thread::yield_now();
        }
        shared.with_qp(|qp| qp.failure())
    }

    const CLOSED: Option<Failure> = Some(Failure::PeerGone(Gone::Closed));
    const BROKEN: Option<Failure> = Some(Failure::PeerGone(Gone::Broken));

    #[test]
    fn a_goodbye_may_come_in_pieces() {
        let (shared, watched, mut peer) = watched();
        for piece in [&[0, 0][..], &[0, 3, 9], &[9, 9]] {
            peer.write_all(piece).unwrap();
            assert!(watched.check(Clock::new()));
            assert_eq!(shared.with_qp(|qp| qp.failure()), None);
        }
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(failure(&shared, &watched), CLOSED);
    }

    #[test]
    fn a_goodbye_counts_even_if_the_connection_breaks_behind_it() {
        let (shared, watched, mut peer) = watched();
        // What the peer leaves unread makes its system reset the connection.
        lock(&watched.control).stream.write_all(b"unread").unwrap();
        peer.peek(&mut [0]).unwrap();
        peer.write_all(&[0; 4]).unwrap();
        while lock(&watched.control).received.len() < 4 {
            assert!(watched.check(Clock::new()));
        }
        drop(peer);
        assert_eq!(failure(&shared, &watched), CLOSED);
    }

    #[test]
    fn anything_but_a_whole_goodbye_is_a_broken_connection() {
        for bytes in [&[][..], &[0, 0], &[0, 0, 0, 5, 1], &[0, 0, 0, 0, 1], &[7; 5000]] {
            let (shared, watched, mut peer) = watched();
            peer.write_all(bytes).unwrap();
            drop(peer);
            assert_eq!(failure(&shared, &watched), BROKEN, "{} bytes", bytes.len());
        }
    }

    #[test]
    fn a_host_that_does_not_answer_is_told_apart_from_a_process_that_ended() {
        assert_eq!(gone_by(io::ErrorKind::TimedOut), Gone::Unreachable);
        assert_eq!(gone_by(io::ErrorKind::HostUnreachable), Gone::Unreachable);
        assert_eq!(gone_by(io::ErrorKind::ConnectionReset), Gone::Broken);
    }

    #[test]
    fn a_peer_that_talks_on_and_on_is_cut_off() {
        let (shared, watched, mut peer) = watched();
        peer.write_all(&[0; GOODBYE_BYTES_MAX + 1]).unwrap();
        assert_eq!(failure(&shared, &watched), BROKEN);
    }

    #[test]
    fn the_monitor_forgets_who_is_gone_and_keeps_the_others() {
        let monitor = Monitor::new(Clock::new()).unwrap();
        let (gone, stream, peer) = connection();
        monitor.add(stream, &gone).unwrap();
        let (here, stream, mut other) = connection();
        let watched = monitor.add(stream, &here).unwrap();
        other.write_all(&[0, 0]).unwrap();
        drop(peer);
        while gone.with_qp(|qp| qp.failure()).is_none()
            || lock(&watched.control).received.is_empty()
        {
            monitor.look(None);
        }
        assert_eq!(here.with_qp(|qp| qp.failure()), None);
        assert_eq!(lock(&monitor.watched).len(), 1);
        monitor.remove(&watched);
        assert_eq!(lock(&monitor.watched).len(), 0);
    }

    #[test]
    fn one_look_finds_all_who_are_gone_however_many() {
        let monitor = Monitor::new(Clock::new()).unwrap();
        let gone: Vec<_> = (0..=EVENTS)
            .map(|_| {
                let (shared, stream, peer) = connection();
                drop(peer);
                // Its end has come, once there is nothing more to read.
                assert_eq!(stream.peek(&mut [0]).unwrap(), 0);
                monitor.add(stream, &shared).unwrap();
                shared
            })
            .collect();
        monitor.check();
        assert!(gone.iter().all(|shared| shared.with_qp(|qp| qp.failure()) == BROKEN));
    }

    #[test]
    fn what_was_said_before_somebody_listened_is_heard() {
        let monitor = Monitor::new(Clock::new()).unwrap();
        let (shared, stream, mut peer) = connection();
        peer.write_all(&[0; 4]).unwrap();
        drop(peer);
        // It has come: to look is enough.
        stream.peek(&mut [0]).unwrap();
        monitor.add(stream, &shared).unwrap();
        while shared.with_qp(|qp| qp.failure()).is_none() {
            monitor.look(None);
        }
    }
}
