//! Watches the control connections: TCP's only work after the exchange is to
//! tell that the peer lives, and to carry its last words.
//!
//! A peer that closes in good order says goodbye with its final report, so
//! that a sender whose last acknowledgement was lost still learns that its
//! message arrived. A connection that breaks ends all operations at once.

use crate::clock::Clock;
use crate::shared::{Machine, Shared};
use lacuna_proto::qp::{Failure, Gone};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Longest last words: one control packet and a length.
const GOODBYE_BYTES_MAX: usize = 16 << 10;

/// One control connection.
pub(crate) struct Watched {
    stream: TcpStream,
    shared: Weak<Shared>,
    received: Mutex<Vec<u8>>,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream, shared: &Arc<Shared>) -> io::Result<Arc<Self>> {
        stream.set_nonblocking(true)?;
        keep_alive(&stream)?;
        let shared = Arc::downgrade(shared);
        Ok(Arc::new(Self { stream, shared, received: Mutex::new(Vec::new()) }))
    }

    /// Says goodbye with `last_words`, a control packet's body.
    pub(crate) fn say_goodbye(&self, last_words: &[u8]) {
        let mut bytes = (last_words.len() as u32).to_be_bytes().to_vec();
        bytes.extend(last_words);
        // The socket is idle, so its buffer takes this at once; and a peer that
        // is gone needs no goodbye.
        if let Err(error) = (&self.stream).write_all(&bytes) {
            tracing::debug!(%error, "no goodbye");
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// Reads what is there; `false` once the connection has ended.
    fn check(&self, clock: Clock) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let mut received = lock(&self.received);
        let mut bytes = [0; 512];
        let mut unfinished = Gone::Broken;
        loop {
            match (&self.stream).read(&mut bytes) {
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
    watched: Mutex<Vec<Arc<Watched>>>,
    #[cfg(unix)]
    alarm: (std::os::unix::net::UnixStream, std::os::unix::net::UnixStream),
    stopped: std::sync::atomic::AtomicBool,
}

impl Monitor {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        #[cfg(unix)]
        let alarm = {
            let alarm = std::os::unix::net::UnixStream::pair()?;
            alarm.0.set_nonblocking(true)?;
            alarm.1.set_nonblocking(true)?;
            alarm
        };
        Ok(Self {
            clock,
            watched: Mutex::new(Vec::new()),
            #[cfg(unix)]
            alarm,
            stopped: std::sync::atomic::AtomicBool::new(false),
        })
    }

    pub(crate) fn add(&self, watched: Arc<Watched>) {
        lock(&self.watched).push(watched);
        self.wake();
    }

    pub(crate) fn remove(&self, watched: &Arc<Watched>) {
        lock(&self.watched).retain(|other| !Arc::ptr_eq(other, watched));
        self.wake();
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, std::sync::atomic::Ordering::Release);
        self.wake();
    }

    /// Looks at all connections once, without waiting.
    pub(crate) fn check(&self) {
        let all = lock(&self.watched).clone();
        for watched in all {
            if !watched.check(self.clock) {
                self.remove(&watched);
            }
        }
    }

    /// Watches until stopped.
    pub(crate) fn run(&self) {
        while !self.stopped.load(std::sync::atomic::Ordering::Acquire) {
            self.wait();
            self.check();
        }
    }

    #[cfg(unix)]
    fn wake(&self) {
        // A full pipe wakes as well as one more byte.
        let _ = (&self.alarm.1).write(&[0]);
    }

    #[cfg(unix)]
    fn wait(&self) {
        use rustix::event::{PollFd, PollFlags, poll};
        let all = lock(&self.watched).clone();
        let mut polled: Vec<PollFd<'_>> =
            all.iter().map(|watched| PollFd::new(&watched.stream, PollFlags::IN)).collect();
        polled.push(PollFd::new(&self.alarm.0, PollFlags::IN));
        if poll(&mut polled, None).is_err() {
            std::thread::yield_now();
        }
        let mut drained = [0; 64];
        while matches!((&self.alarm.0).read(&mut drained), Ok(count) if count > 0) {}
    }

    #[cfg(not(unix))]
    fn wake(&self) {}

    /// Without `poll`, connections are looked at now and then.
    #[cfg(not(unix))]
    fn wait(&self) {
        std::thread::sleep(std::time::Duration::from_millis(50));
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
    fn watched() -> (Arc<Shared>, Arc<Watched>, TcpStream) {
        let config = ConnectionConfig::default();
        let keys = Keys { rkey: 1, qkey: 2, first_psn: 3 };
        let qp = protocol(1, &config, config.geometry(4096, 1).unwrap(), &keys, 0);
        let machine = Machine::Connected(Box::new(qp));
        let shared = Arc::new(Shared::new(1, 2, State { machine, addresses: vec![None] }, vec![]));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let watched = Watched::new(listener.accept().unwrap().0, &shared).unwrap();
        (shared, watched, peer)
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
        (&watched.stream).write_all(b"unread").unwrap();
        peer.peek(&mut [0]).unwrap();
        peer.write_all(&[0; 4]).unwrap();
        while lock(&watched.received).len() < 4 {
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
}
