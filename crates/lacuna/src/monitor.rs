//! Watches the control connections: TCP's only work after the exchange is to
//! tell that the peer lives, and to carry its last words.
//!
//! A peer that closes in good order says goodbye with its final report, so
//! that a sender whose last acknowledgement was lost still learns that its
//! message arrived. A connection that breaks ends all operations at once.
//! Nothing behind a goodbye is read here: the control connection may be reused
//! (`reuse.rs`), and what follows is for its next connection.
//!
//! Connections say something once in their life, so only those that did are looked
//! at (`mio`: epoll, kqueue, or what else a system has): a thousand others cost
//! nothing.

use crate::clock::Clock;
use crate::connecting::Tracked;
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
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

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
    /// Gone once it was put back.
    stream: Option<mio::net::TcpStream>,
    /// Where it is put back to when both ends have said goodbye; nowhere: it is closed.
    origin: Option<Origin>,
    /// The peer's.
    goodbye: Goodbye,
    has_said_goodbye: bool,
}

impl Control {
    /// Reads what is there of the peer's goodbye; how the connection ended, if it has.
    fn read(&mut self) -> Option<Gone> {
        let Some(stream) = &mut self.stream else { return Some(Gone::Broken) };
        match read_goodbye(&mut self.goodbye, stream) {
            Ok(()) => Some(Gone::Closed),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => Some(gone_by(error.kind())),
        }
    }

    /// Says this end's goodbye, if it has not.
    fn say_goodbye(&mut self, last_words: &[u8]) {
        self.origin.take_if(|origin| !origin.is_open());
        let Some(stream) = &mut self.stream else { return };
        if std::mem::replace(&mut self.has_said_goodbye, true) {
            return;
        }
        // The socket is idle, so its buffer takes this at once; and a peer that
        // is gone needs no goodbye.
        if let Err(error) = stream.write_all(&goodbye::message(last_words)) {
            tracing::debug!(%error, "no goodbye");
            self.origin = None;
        }
        if self.origin.is_none() {
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
    }
}

impl Watched {
    fn new(
        stream: TcpStream,
        origin: Option<Origin>,
        shared: &Arc<Shared>,
        token: Token,
    ) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        keep_alive(&stream)?;
        let stream = Some(mio::net::TcpStream::from_std(stream));
        let control =
            Control { stream, origin, goodbye: Goodbye::default(), has_said_goodbye: false };
        Ok(Self { token, shared: Arc::downgrade(shared), control: Mutex::new(control) })
    }

    /// Reads what is there; `false` once the connection has ended.
    fn check(&self, clock: Clock) -> bool {
        let mut control = lock(&self.control);
        if control.stream.is_none() {
            // It was put back, and this is no news of it.
            return false;
        }
        let Some(gone) = control.read() else { return true };
        match (gone, &control.origin) {
            // Put back at once: the next hello may be there already.
            (Gone::Closed, Some(Origin::Listener(_))) => control.say_goodbye(&[]),
            (Gone::Closed, _) => {}
            _ => control.origin = None,
        }
        let Some(shared) = self.shared.upgrade() else { return false };
        if let Machine::Sdr(qp) = &mut shared.lock().machine {
            if let (Gone::Closed, Some(words)) = (gone, control.goodbye.last_words())
                && let Err(error) = qp.on_control(clock.now_ns(), 0, words, words.len())
            {
                tracing::debug!(%error, "unreadable last words");
            }
            qp.fail(Failure::PeerGone(gone));
        }
        shared.notify();
        false
    }

    /// Puts the control connection back, or closes it; nobody looks at it here any more. In one piece:
    /// the application that ends a connection and the thread that sees the peer end it
    /// may be here at once, and nothing is put back that is still looked at.
    fn put_back(&self, registry: &Registry) {
        let mut control = lock(&self.control);
        if let Some(stream) = &mut control.stream {
            // An error: it is not looked at any more for another reason.
            let _ = registry.deregister(stream);
        }
        if !control.has_said_goodbye {
            return;
        }
        // What came from nowhere is closed here.
        if let (Some(origin), Some(stream)) = (control.origin.take(), control.stream.take()) {
            let goodbye = std::mem::take(&mut control.goodbye);
            origin.put_back(Pooled { stream: stream.into(), goodbye });
        }
    }
}

/// Reads until the goodbye is whole, and no byte behind it.
///
/// # Errors
/// Of the stream; `UnexpectedEof` if that ends before, `InvalidData` if it is too
/// long to be one.
fn read_goodbye(goodbye: &mut Goodbye, stream: &mut impl Read) -> io::Result<()> {
    let mut bytes = [0; 2 << 10];
    while goodbye.wanted() > 0 {
        let wanted = goodbye.wanted().min(bytes.len());
        match stream.read(&mut bytes[..wanted]) {
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
    alarm: Alarm,
    watched: Mutex<HashMap<Token, Arc<Watched>>>,
    /// Those that have said goodbye and wait for the peer's, the longest in front.
    closing: Mutex<VecDeque<(Instant, Arc<Watched>)>>,
    /// For so long at most.
    closing_timeout: Duration,
    /// Attempts to connect, on the same thread.
    driver: Driver,
    next: AtomicUsize,
    stopped: AtomicBool,
    told: Told,
}

impl Monitor {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let alarm = Alarm::new(&registry)?;
        // Nothing fails from here on, so they are forgotten when they are closed.
        #[cfg(unix)]
        descriptors::note(poll.registry());
        #[cfg(unix)]
        descriptors::note(&registry);
        Ok(Self {
            clock,
            alarm,
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

    /// Drives an attempt to connect from now on.
    pub(crate) fn drive(&self, token: Token, attempt: Weak<Tracked>) {
        self.driver.insert(token, attempt);
        self.wake();
    }

    /// Looks no more after an attempt.
    pub(crate) fn forget(&self, token: Token) {
        self.driver.remove(token);
    }

    /// Has an attempt driven, as something has happened that its sockets do not show.
    pub(crate) fn drive_soon(&self, token: Token) {
        if self.driver.make_ready(token) {
            self.wake();
        }
    }

    /// A name for a control connection or an attempt to make one.
    pub(crate) fn token(&self) -> Token {
        Token(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Watches the control connection of a queue pair from now on; it is put back to
    /// `origin` afterwards.
    pub(crate) fn add(
        &self,
        stream: TcpStream,
        origin: Option<Origin>,
        shared: &Arc<Shared>,
    ) -> io::Result<Arc<Watched>> {
        let token = self.token();
        let watched = Arc::new(Watched::new(stream, origin, shared, token)?);
        // To be found from the first word on.
        lock(&self.watched).insert(token, watched.clone());
        let registered = lock(&watched.control)
            .stream
            .as_mut()
            .map_or(Ok(()), |stream| self.registry.register(stream, token, Interest::READABLE));
        match registered {
            Ok(()) => Ok(watched),
            Err(error) => {
                lock(&self.watched).remove(&token);
                Err(error)
            }
        }
    }

    /// Ends this end's part in good order, with `last_words`, a control packet's body.
    pub(crate) fn close(&self, watched: &Arc<Watched>, last_words: &[u8]) {
        let is_closing = {
            let mut control = lock(&watched.control);
            control.say_goodbye(last_words);
            // The accepting end waits for the peer's goodbye before it puts anything back.
            matches!(control.origin, Some(Origin::Listener(_)))
        };
        if is_closing {
            let mut closing = lock(&self.closing);
            closing.push_back((Instant::now(), watched.clone()));
            let is_first = closing.len() == 1;
            drop(closing);
            self.expire_closing();
            if is_first {
                // Who sleeps does not know when its time is over.
                self.wake();
            }
        } else {
            self.remove(watched);
        }
    }

    /// Closes what waits for the peer's goodbye too long, or with too many others: a
    /// peer may never say it.
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
            lock(&watched.control).origin = None;
            self.remove(&watched);
        }
    }

    /// When the first of them has waited too long.
    fn closing_expires_in(&self) -> Option<Duration> {
        let (since, _) = lock(&self.closing).front()?.clone();
        // Rounded up: a wait that ends too early would be repeated at once.
        Some(self.closing_timeout.saturating_sub(since.elapsed()) + Duration::from_millis(1))
    }

    /// Looks no more after it.
    fn remove(&self, watched: &Watched) {
        lock(&self.watched).remove(&watched.token);
        watched.put_back(&self.registry);
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.alarm.wake();
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
                self.alarm.clear();
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

/// Wakes the thread that watches.
#[cfg(unix)]
struct Alarm(Signal);

#[cfg(unix)]
impl Alarm {
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
struct Alarm(mio::Waker);

#[cfg(not(unix))]
impl Alarm {
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
    use crate::queue_pair::{Keys, protocol};
    use crate::reuse::ListenerPool;
    use lacuna_engine::State;
    use std::io::Read;
    use std::net::TcpListener;

    /// A watched connection and the peer's end of it.
    fn watched() -> (Arc<Shared>, Watched, TcpStream) {
        let (shared, stream, peer) = connection();
        let watched = Watched::new(stream, None, &shared, Token(0)).unwrap();
        (shared, watched, peer)
    }

    /// A queue pair, its control connection and the peer's end of that.
    fn connection() -> (Arc<Shared>, TcpStream, TcpStream) {
        let config = ConnectionConfig::default();
        let keys = Keys { rkey: 1, qkey: 2, first_psn: 3 };
        let qp = protocol(1, &config, config.geometry(4096, 1).unwrap(), &keys, 0);
        let machine = Machine::Sdr(qp);
        let shared = Arc::new(Shared::new(
            1,
            2,
            State { machine, addresses: [None].into_iter().collect() },
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
        // What the peer leaves unread makes its system reset the connection.
        lock(&watched.control).stream.as_mut().unwrap().write_all(b"unread").unwrap();
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
        monitor.add(stream, None, &gone).unwrap();
        let (here, stream, mut other) = connection();
        let watched = monitor.add(stream, None, &here).unwrap();
        other.write_all(&[0, 0]).unwrap();
        drop(peer);
        while gone.with_qp(|qp| qp.failure()).is_none() || lock(&watched.control).goodbye.is_empty()
        {
            monitor.look(None);
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
        // From the second on its thread sleeps.
        for _ in 0..3 {
            let (shared, stream, mut peer) = connection();
            let origin = Some(Origin::Listener(Arc::downgrade(&pool)));
            let watched = monitor.add(stream, origin, &shared).unwrap();
            monitor.close(&watched, &[]);
            drop(watched);
            peer.read_exact(&mut [0; 4]).unwrap();
            // Far longer than it takes; without an end this fails and does not hang.
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
                // Its end has come, once there is nothing more to read.
                assert_eq!(stream.peek(&mut [0]).unwrap(), 0);
                monitor.add(stream, None, &shared).unwrap();
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
        monitor.add(stream, None, &shared).unwrap();
        while shared.with_qp(|qp| qp.failure()).is_none() {
            monitor.look(None);
        }
    }
}
