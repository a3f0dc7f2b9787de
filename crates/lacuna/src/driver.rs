//! Drives attempts to connect on the monitor's thread: an attempt continues when one of its sockets
//! is ready, when its prober has an answer, or when its timer expires.
//!
//! An attempt belongs to the application's handle on it ([`crate::Connecting`]); the driver holds a
//! weak reference.

use crate::connecting::SharedAttempt;
use mio::event::Source;
use mio::{Interest, Registry, Token};
use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Registers the sockets of one attempt with the monitor's event queue.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'r> {
    registry: &'r Registry,
    token: Token,
}

impl<'r> Watch<'r> {
    pub(crate) fn new(registry: &'r Registry, token: Token) -> Self {
        Self { registry, token }
    }

    /// Drives the attempt when `socket` becomes readable or writable.
    pub(crate) fn add(&self, socket: &mut impl Source) -> io::Result<()> {
        self.registry.register(socket, self.token, Interest::READABLE | Interest::WRITABLE)
    }

    pub(crate) fn remove(&self, socket: &mut impl Source) -> io::Result<()> {
        self.registry.deregister(socket)
    }

    /// The same for a stream of the standard library.
    #[cfg(unix)]
    pub(crate) fn add_stream(&self, stream: &TcpStream) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        self.add(&mut mio::unix::SourceFd(&stream.as_raw_fd()))
    }

    #[cfg(unix)]
    pub(crate) fn remove_stream(&self, stream: &TcpStream) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        self.remove(&mut mio::unix::SourceFd(&stream.as_raw_fd()))
    }

    /// No event queue here: the connecting thread polls by time.
    #[cfg(not(unix))]
    pub(crate) fn add_stream(&self, _stream: &TcpStream) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(unix))]
    pub(crate) fn remove_stream(&self, _stream: &TcpStream) -> io::Result<()> {
        Ok(())
    }
}

/// The attempts of a context, by token.
#[derive(Default)]
pub(crate) struct Driver {
    attempts: Mutex<HashMap<Token, Entry>>,
}

struct Entry {
    attempt: Weak<SharedAttempt>,
    /// Latest time for the next call of `drive`.
    due: Option<Instant>,
    is_ready: bool,
}

impl Driver {
    /// Drives an attempt from now on, for the first time in the next round.
    pub(crate) fn insert(&self, token: Token, attempt: Weak<SharedAttempt>) {
        self.lock().insert(token, Entry { attempt, due: None, is_ready: true });
    }

    pub(crate) fn remove(&self, token: Token) {
        self.lock().remove(&token);
    }

    /// Has an attempt driven in the next round. `false` if there is no such attempt.
    pub(crate) fn make_ready(&self, token: Token) -> bool {
        let mut attempts = self.lock();
        let Some(entry) = attempts.get_mut(&token) else { return false };
        entry.is_ready = true;
        true
    }

    /// Time until the next attempt is due; zero if one is ready.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        let attempts = self.lock();
        let due = attempts.values().filter_map(|entry| match entry.is_ready {
            true => Some(Duration::ZERO),
            false => entry.due.map(|due| due.saturating_duration_since(now)),
        });
        due.min()
    }

    /// Drives the attempts that are ready or due.
    pub(crate) fn drive(&self, registry: &Registry) {
        let now = Instant::now();
        for (token, attempt) in self.take_due(now) {
            // Without the lock: driving makes system calls, and other threads call `make_ready`
            // meanwhile.
            let due = attempt.drive(&Watch::new(registry, token));
            drop(attempt);
            let mut attempts = self.lock();
            match due {
                None => drop(attempts.remove(&token)),
                Some(due) => {
                    if let Some(entry) = attempts.get_mut(&token) {
                        entry.due = Some(due);
                    }
                }
            }
        }
    }

    fn take_due(&self, now: Instant) -> Vec<(Token, Arc<SharedAttempt>)> {
        let mut attempts = self.lock();
        let due = attempts.iter_mut().filter_map(|(token, entry)| {
            if !entry.is_ready && entry.due.is_none_or(|due| due > now) {
                return None;
            }
            entry.is_ready = false;
            entry.due = None;
            Some((*token, entry.attempt.upgrade()?))
        });
        due.collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Entry>> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
