//! The monitor: one thread per context that watches the control connections (TCP) of all queue
//! pairs.
//!
//! After the handshake, a control connection has two uses. It shows that the peer's process and
//! host live, and it carries the goodbye with the peer's final report, so that a sender whose last
//! acknowledgement was lost still learns that its message arrived. When a control connection
//! breaks, all operations of its queue pair fail at once.
//!
//! The monitor reads no byte behind a goodbye: on a reused stream (`reuse.rs`) those bytes are the
//! hello of the next connection.
//!
//! The thread sleeps in `mio` (epoll, kqueue), so connections without events cost nothing. With
//! [`Progress::Manual`](crate::Progress::Manual) there is no thread, and [`Monitor::check`] is
//! called from the application's calls.
//!
//! Lock order: `Said`, then the queue pair's books. `watched` and `closing` are held only to
//! look up or change an entry.

use crate::clock::Clock;
use crate::connecting::SharedAttempt;
use crate::control::{Control, Stream};
use crate::driver::Driver;
use crate::reuse::{LISTENER_IDLE_TIMEOUT, LISTENER_POOL_MAX, Origin, Pooled};
use crate::shared::Shared;
use crate::told::Told;
#[cfg(unix)]
use lacuna_datapath::{process::descriptors, wait::Signal};
use lacuna_engine::Machine;
use lacuna_proto::handshake::goodbye::{self, Goodbye};
use lacuna_proto::qp::{Failure, Gone};
use mio::{Events, Interest, Poll, Registry, Token};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Events handled per call of `poll`.
const EVENTS: usize = 64;
/// The token of the waker; no connection has it.
const WAKE: Token = Token(usize::MAX);

/// One control connection under watch.
pub(crate) struct Watched {
    token: Token,
    shared: Weak<Shared>,
    /// Further queue pairs of the connection, which end with it.
    siblings: OnceLock<Vec<Weak<Shared>>>,
    said: Mutex<Said>,
}

/// The control connection, and what was said on it.
struct Said {
    /// `None` once it was put back.
    control: Option<Control<mio::net::TcpStream>>,
    /// Where the stream goes after both goodbyes; `None` closes it.
    origin: Option<Origin>,
    /// The peer's goodbye as far as it was read.
    goodbye: Goodbye,
    has_said_goodbye: bool,
}

impl Said {
    /// Reads what has arrived of the peer's goodbye. `Some` says how the connection has ended.
    fn read(&mut self) -> Option<Gone> {
        let Some(control) = &mut self.control else { return Some(Gone::Broken) };
        match read_goodbye(&mut self.goodbye, control) {
            Ok(()) => Some(Gone::Closed),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(gone_by(error.kind())),
        }
    }

    /// Sends this end's goodbye, once.
    fn say_goodbye(&mut self, last_words: &[u8]) {
        self.origin.take_if(|origin| !origin.is_open());
        let Some(control) = &mut self.control else { return };
        if std::mem::replace(&mut self.has_said_goodbye, true) {
            return;
        }
        // The socket buffer is empty, so it takes the goodbye at once. An error means that the peer
        // is gone, and then no goodbye is needed.
        if let Err(error) = control.write_all(&goodbye::message(last_words)) {
            tracing::debug!(%error, "no goodbye");
            self.origin = None;
        }
        if self.origin.is_none() {
            let _ = control.stream().shutdown(std::net::Shutdown::Write);
        }
    }
}

impl Watched {
    fn new(
        control: Control,
        origin: Option<Origin>,
        shared: &Arc<Shared>,
        token: Token,
    ) -> io::Result<Self> {
        control.stream().set_nonblocking(true)?;
        keep_alive(control.stream())?;
        let control = Some(control.map(mio::net::TcpStream::from_std));
        let said = Said { control, origin, goodbye: Goodbye::default(), has_said_goodbye: false };
        let (shared, siblings) = (Arc::downgrade(shared), OnceLock::new());
        Ok(Self { token, shared, siblings, said: Mutex::new(said) })
    }

    /// Reads what has arrived; `false` once the connection has ended.
    fn check(&self, clock: Clock) -> bool {
        let mut said = lock(&self.said);
        if said.control.is_none() {
            // Already put back: this event belongs to the next connection.
            return false;
        }
        let Some(gone) = said.read() else { return true };
        match (gone, &said.origin) {
            // Answer at once: the peer's next hello may already be behind its goodbye.
            (Gone::Closed, Some(Origin::Listener(_))) => said.say_goodbye(&[]),
            (Gone::Closed, _) => {}
            _ => said.origin = None,
        }
        let Some(shared) = self.shared.upgrade() else { return false };
        if let Machine::Sdr(qp) = &mut shared.lock().machine {
            if let (Gone::Closed, Some(words)) = (gone, said.goodbye.last_words())
                && let Err(error) = qp.on_control(clock.now_ns(), 0, words, words.len())
            {
                tracing::debug!(%error, "unreadable last words");
            }
            qp.fail(Failure::PeerGone(gone));
        }
        shared.notify();
        if let (Gone::Closed, Some(words)) = (gone, said.goodbye.last_words()) {
            self.tell_siblings(clock, words);
        }
        self.end_siblings(Failure::PeerGone(gone));
        false
    }

    /// Has further queue pairs end with the connection. Called once.
    pub(crate) fn add_siblings<'s>(
        &self,
        clock: Clock,
        siblings: impl Iterator<Item = &'s Arc<Shared>>,
    ) {
        // An error means that they were added before.
        _ = self.siblings.set(siblings.map(Arc::downgrade).collect());
        // The peer may have gone meanwhile.
        if let Some(failure) = self.shared.upgrade().and_then(|shared| shared.failure()) {
            let said = lock(&self.said);
            if let (Failure::PeerGone(Gone::Closed), Some(words)) =
                (failure, said.goodbye.last_words())
            {
                self.tell_siblings(clock, words);
            }
            drop(said);
            self.end_siblings(failure);
        }
    }

    /// Hands further queue pairs what the peer's last words say of them.
    fn tell_siblings(&self, clock: Clock, last_words: &[u8]) {
        for (number, words) in goodbye::relayed(last_words) {
            let Some(sibling) = self.siblings().find(|sibling| sibling.number() == number) else {
                continue;
            };
            let told = sibling.with_qp(|qp| qp.on_control(clock.now_ns(), 0, words, words.len()));
            if let Err(error) = told {
                tracing::debug!(%error, number, "unreadable last words");
            }
        }
    }

    fn siblings(&self) -> impl Iterator<Item = Arc<Shared>> {
        self.siblings.get().into_iter().flatten().filter_map(Weak::upgrade)
    }

    pub(crate) fn end_siblings(&self, failure: Failure) {
        for sibling in self.siblings() {
            sibling.with_qp(|qp| qp.fail(failure));
            sibling.notify();
        }
    }

    /// Stops watching, and puts the stream back or closes it. Holds the lock throughout, because
    /// the application that closes a connection and the monitor that sees the peer close it may
    /// both be here, and a stream must be deregistered before it is put back.
    fn put_back(&self, registry: &Registry) {
        let mut said = lock(&self.said);
        if let Some(control) = &mut said.control {
            // An error means that it was deregistered before.
            let _ = registry.deregister(control.stream_mut());
        }
        if !said.has_said_goodbye {
            return;
        }
        // Without an origin, the stream is closed when `Said` is dropped.
        if let (Some(origin), Some(control)) = (said.origin.take(), said.control.take()) {
            let goodbye = std::mem::take(&mut said.goodbye);
            origin.put_back(Pooled { control: control.map(TcpStream::from), goodbye });
        }
    }
}

/// Reads up to the end of the goodbye and no byte further.
///
/// # Errors
/// `UnexpectedEof` when the stream ends within the goodbye, `InvalidData` when the goodbye is too
/// long, else the stream's error.
fn read_goodbye(goodbye: &mut Goodbye, control: &mut Control<impl Stream>) -> io::Result<()> {
    let mut bytes = [0; 2 << 10];
    while goodbye.wanted() > 0 {
        let wanted = goodbye.wanted().min(bytes.len());
        match control.read(&mut bytes[..wanted]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                let taken = goodbye.take(&bytes[..count]);
                taken.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What an error of reading says of the peer: TCP reports a host that does not answer by one of the
/// first four kinds (RFC 1122, 4.2.3.5 and 4.2.3.9).
fn gone_by(error: io::ErrorKind) -> Gone {
    match error {
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown => Gone::Unreachable,
        _ => Gone::Broken,
    }
}

/// TCP keep-alive that finds a dead host within 25 s. The first probe comes after 10 s, so that an
/// outage of a few seconds on the path does not end a connection.
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

/// The control connections of a context, and its attempts to connect.
pub(crate) struct Monitor {
    clock: Clock,
    poll: Mutex<Poll>,
    registry: Registry,
    waker: Waker,
    watched: Mutex<HashMap<Token, Arc<Watched>>>,
    /// Connections of this end's listeners that have said goodbye and wait for the peer's, with the
    /// time since when. Oldest first.
    closing: Mutex<VecDeque<(Instant, Arc<Watched>)>>,
    /// How long a connection stays in `closing`.
    closing_timeout: Duration,
    /// Attempts to connect, driven by the same thread.
    driver: Driver,
    next: AtomicUsize,
    stopped: AtomicBool,
    told: Told,
}

impl Monitor {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry)?;
        // Nothing below fails, so `drop` runs and forgets both descriptors.
        #[cfg(unix)]
        descriptors::note(poll.registry());
        #[cfg(unix)]
        descriptors::note(&registry);
        Ok(Self {
            clock,
            waker,
            registry,
            poll: Mutex::new(poll),
            watched: Mutex::new(HashMap::new()),
            closing: Mutex::default(),
            closing_timeout: LISTENER_IDLE_TIMEOUT,
            driver: Driver::default(),
            next: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            told: Told::default(),
        })
    }

    /// Drives an attempt to connect from now on, on the monitor's thread.
    pub(crate) fn drive(&self, token: Token, attempt: Weak<SharedAttempt>) {
        self.driver.insert(token, attempt);
        self.wake();
    }

    /// Stops driving an attempt.
    pub(crate) fn forget(&self, token: Token) {
        self.driver.remove(token);
    }

    /// Drives an attempt soon: its prober has an answer, which its sockets do not show.
    pub(crate) fn drive_soon(&self, token: Token) {
        if self.driver.make_ready(token) {
            self.wake();
        }
    }

    /// A new token for a control connection or an attempt.
    pub(crate) fn token(&self) -> Token {
        Token(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Watches the control connection of a queue pair. The stream is put back to `origin` in the
    /// end.
    pub(crate) fn add(
        &self,
        control: Control,
        origin: Option<Origin>,
        shared: &Arc<Shared>,
    ) -> io::Result<Arc<Watched>> {
        let token = self.token();
        let watched = Arc::new(Watched::new(control, origin, shared, token)?);
        // Before `register`, so that the first event finds its entry.
        lock(&self.watched).insert(token, watched.clone());
        let registered = lock(&watched.said).control.as_mut().map_or(Ok(()), |control| {
            self.registry.register(control.stream_mut(), token, Interest::READABLE)
        });
        match registered {
            Ok(()) => {
                // A session may have what the peer said before: of that no event comes.
                if !watched.check(self.clock) {
                    self.remove(&watched);
                }
                Ok(watched)
            }
            Err(error) => {
                lock(&self.watched).remove(&token);
                Err(error)
            }
        }
    }

    /// Says goodbye with `last_words`, a control packet's body, and gives up the connection.
    pub(crate) fn close(&self, watched: &Arc<Watched>, last_words: &[u8]) {
        let is_closing = {
            let mut said = lock(&watched.said);
            said.say_goodbye(last_words);
            // The accepting end may put the stream back only after it has read the peer's goodbye.
            matches!(said.origin, Some(Origin::Listener(_)))
        };
        if is_closing {
            let mut closing = lock(&self.closing);
            closing.push_back((Instant::now(), watched.clone()));
            let is_first = closing.len() == 1;
            drop(closing);
            self.expire_closing();
            if is_first {
                // The thread sleeps without a deadline for the first entry.
                self.wake();
            }
        } else {
            self.remove(watched);
        }
    }

    /// Closes connections whose peer has not said goodbye in time, and the oldest when there are
    /// too many.
    fn expire_closing(&self) {
        let now = Instant::now();
        loop {
            let over = {
                let mut closing = lock(&self.closing);
                let is_crowded = closing.len() > LISTENER_POOL_MAX;
                let is_over = closing.front().is_some_and(|(since, _)| {
                    is_crowded || now.duration_since(*since) >= self.closing_timeout
                });
                if is_over { closing.pop_front() } else { None }
            };
            let Some((_, watched)) = over else { return };
            lock(&watched.said).origin = None;
            self.remove(&watched);
        }
    }

    /// Time until the oldest entry of `closing` expires.
    fn closing_expires_in(&self) -> Option<Duration> {
        let (since, _) = lock(&self.closing).front()?.clone();
        // Rounded up by 1 ms: a sleep that ends too early would repeat at once.
        Some(self.closing_timeout.saturating_sub(since.elapsed()) + Duration::from_millis(1))
    }

    /// Stops watching a connection.
    fn remove(&self, watched: &Watched) {
        lock(&self.watched).remove(&watched.token);
        watched.put_back(&self.registry);
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.waker.wake();
    }

    /// Handles all pending events without waiting, for contexts without threads.
    pub(crate) fn check(&self) {
        while self.poll_events(Some(Duration::ZERO)) {}
    }

    /// The monitor's thread: handles events until [`Monitor::stop`].
    pub(crate) fn run(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            self.poll_events(None);
        }
    }

    /// Waits for events for at most `timeout` and handles them. `true` if more may be pending.
    fn poll_events(&self, timeout: Option<Duration>) -> bool {
        let mut events = Events::with_capacity(EVENTS);
        let due = self.driver.due_in(Instant::now());
        let timeout = timeout.into_iter().chain(self.closing_expires_in()).chain(due).min();
        if let Err(error) = lock(&self.poll).poll(&mut events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            if self.told.is_news(&error) {
                tracing::error!(%error, "cannot wait for the peers' last words");
            }
            std::thread::yield_now();
        }
        for event in &events {
            if event.token() == WAKE {
                self.waker.clear();
            }
            if self.driver.make_ready(event.token()) {
                continue;
            }
            let watched = lock(&self.watched).get(&event.token()).cloned();
            if let Some(watched) = watched
                && !watched.check(self.clock)
            {
                self.remove(&watched);
            }
        }
        self.driver.drive(&self.registry);
        self.expire_closing();
        events.iter().count() == EVENTS
    }
}

#[cfg(unix)]
impl Drop for Monitor {
    fn drop(&mut self) {
        descriptors::forget(lock(&self.poll).registry());
        descriptors::forget(&self.registry);
    }
}

/// Wakes the monitor's thread from `poll`.
#[cfg(unix)]
struct Waker(Signal);

#[cfg(unix)]
impl Waker {
    fn new(registry: &Registry) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let signal = Signal::new()?;
        let number = signal.as_fd().as_raw_fd();
        registry.register(&mut mio::unix::SourceFd(&number), WAKE, Interest::READABLE)?;
        Ok(Self(signal))
    }

    fn wake(&self) {
        self.0.set();
    }

    fn clear(&self) {
        self.0.clear();
    }
}

#[cfg(not(unix))]
struct Waker(mio::Waker);

#[cfg(not(unix))]
impl Waker {
    fn new(registry: &Registry) -> io::Result<Self> {
        mio::Waker::new(registry, WAKE).map(Self)
    }

    fn wake(&self) {
        if let Err(error) = self.0.wake() {
            tracing::error!(%error, "cannot wake the thread that watches connections");
        }
    }

    fn clear(&self) {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ConnectionConfig;
    use crate::queue_pair::{Keys, new_qp};
    use crate::reuse::ListenerPool;
    use lacuna_engine::State;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// A watched connection and the peer's end of it.
    fn watched() -> (Arc<Shared>, Watched, TcpStream) {
        let (shared, stream, peer) = connection();
        let watched = Watched::new(Control::clear(stream), None, &shared, Token(0)).unwrap();
        (shared, watched, peer)
    }

    /// A queue pair, its control connection and the peer's end of that.
    fn connection() -> (Arc<Shared>, TcpStream, TcpStream) {
        let config = ConnectionConfig::default();
        let keys = Keys { rkey: 1, qkey: 2, first_psn: 3 };
        let qp = new_qp(1, &config, config.geometry(4096, 1).unwrap(), &keys, 0);
        let machine = Machine::Sdr(qp);
        let shared = Arc::new(Shared::new(
            1,
            2,
            lacuna_wire::Seal::default(),
            State::new(machine, [None]),
            [].into(),
        ));
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
        for piece in [&[0, 0][..], &[0, 3, 9]] {
            peer.write_all(piece).unwrap();
            assert!(watched.check(Clock::new()));
            assert_eq!(shared.with_qp(|qp| qp.failure()), None);
        }
        peer.write_all(&[9, 9]).unwrap();
        assert_eq!(failure(&shared, &watched), CLOSED);
    }

    #[test]
    fn a_goodbye_counts_even_if_the_connection_breaks_behind_it() {
        let (shared, watched, mut peer) = watched();
        // Unread bytes make the peer's kernel reset the connection.
        lock(&watched.said).control.as_mut().unwrap().write_all(b"unread").unwrap();
        peer.peek(&mut [0]).unwrap();
        peer.write_all(&[0; 4]).unwrap();
        drop(peer);
        assert_eq!(failure(&shared, &watched), CLOSED);
    }

    #[test]
    fn anything_but_a_whole_goodbye_is_a_broken_connection() {
        for bytes in [&[][..], &[0, 0], &[0, 0, 0, 5, 1], &[7; 5000]] {
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
    fn the_monitor_forgets_who_is_gone_and_keeps_the_others() {
        let monitor = Monitor::new(Clock::new()).unwrap();
        let (gone, stream, peer) = connection();
        monitor.add(Control::clear(stream), None, &gone).unwrap();
        let (here, stream, mut other) = connection();
        let watched = monitor.add(Control::clear(stream), None, &here).unwrap();
        other.write_all(&[0, 0]).unwrap();
        drop(peer);
        while gone.with_qp(|qp| qp.failure()).is_none() || lock(&watched.said).goodbye.is_empty() {
            monitor.poll_events(None);
        }
        assert_eq!(here.with_qp(|qp| qp.failure()), None);
        assert_eq!(lock(&monitor.watched).len(), 1);
        monitor.remove(&watched);
        assert_eq!(lock(&monitor.watched).len(), 0);
    }

    #[test]
    fn who_never_says_goodbye_is_closed_in_the_end_though_nothing_else_happens() {
        let mut monitor = Monitor::new(Clock::new()).unwrap();
        monitor.closing_timeout = Duration::from_millis(1);
        let monitor = Arc::new(monitor);
        let thread = std::thread::spawn({
            let monitor = monitor.clone();
            move || monitor.run()
        });
        let pool = Arc::new(ListenerPool::new(1).unwrap());
        // From the second round on the monitor's thread is asleep.
        for _ in 0..3 {
            let (shared, stream, mut peer) = connection();
            let origin = Some(Origin::Listener(Arc::downgrade(&pool)));
            let watched = monitor.add(Control::clear(stream), origin, &shared).unwrap();
            monitor.close(&watched, &[]);
            drop(watched);
            peer.read_exact(&mut [0; 4]).unwrap();
            // Far longer than needed; turns a hang into a failure.
            peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        }
        monitor.stop();
        thread.join().unwrap();
    }

    #[test]
    fn one_look_finds_all_who_are_gone_however_many() {
        let monitor = Monitor::new(Clock::new()).unwrap();
        let gone: Vec<_> = (0..=EVENTS)
            .map(|_| {
                let (shared, stream, peer) = connection();
                drop(peer);
                // The end of the stream has arrived.
                assert_eq!(stream.peek(&mut [0]).unwrap(), 0);
                monitor.add(Control::clear(stream), None, &shared).unwrap();
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
        // It has arrived: one poll must find it.
        stream.peek(&mut [0]).unwrap();
        monitor.add(Control::clear(stream), None, &shared).unwrap();
        while shared.with_qp(|qp| qp.failure()).is_none() {
            monitor.poll_events(None);
        }
    }
}
