//! Attempts to connect that one thread drives, the monitor's: each when one of its sockets, the
//! queue pair that looks for the way to the peer, or its time says so.
//!
//! An attempt belongs to the application's handle on it ([`crate::Connecting`]). It is known here as
//! long as that is there, and dropped with it.

use crate::connecting::Tracked;
use mio::event::Source;
use mio::{Interest, Registry, Token};
use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Where an attempt's sockets are watched.
#[derive(Clone, Copy)]
pub(crate) struct Watch<'r> {
    registry: &'r Registry,
    token: Token,
}

impl<'r> Watch<'r> {
    pub(crate) fn new(registry: &'r Registry, token: Token) -> Self {
        Self { registry, token }
    }

    /// Has the attempt driven when this one has something to read or room to write.
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

    /// Elsewhere nobody watches: whoever connects drives it.
    #[cfg(not(unix))]
    pub(crate) fn add_stream(&self, _stream: &TcpStream) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(unix))]
    pub(crate) fn remove_stream(&self, _stream: &TcpStream) -> io::Result<()> {
        Ok(())
    }
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Driver {
    attempts: Mutex<HashMap<Token, Entry>>,
}

struct Entry {
    attempt: Weak<Tracked>,
    /// When it is to be driven at the latest.
    due: Option<Instant>,
    is_ready: bool,
}

impl Driver {
    /// Drives it from now on; the first time at once.
    pub(crate) fn insert(&self, token: Token, attempt: Weak<Tracked>) {
        self.lock().insert(token, Entry { attempt, due: None, is_ready: true });
    }

    pub(crate) fn remove(&self, token: Token) {
        self.lock().remove(&token);
    }

    /// Drives it next time; whether there is such an attempt.
    pub(crate) fn make_ready(&self, token: Token) -> bool {
        let mut attempts = self.lock();
        let Some(entry) = attempts.get_mut(&token) else { return false };
        entry.is_ready = true;
        true
    }

    /// How long nothing is to be driven but what is made ready.
    pub(crate) fn due_in(&self, now: Instant) -> Option<Duration> {
        let attempts = self.lock();
        let due = attempts.values().filter_map(|entry| match entry.is_ready {
            true => Some(Duration::ZERO),
            false => entry.due.map(|due| due.saturating_duration_since(now)),
        });
        due.min()
    }

    /// Drives those that are ready or due.
    pub(crate) fn drive(&self, registry: &Registry) {
        let now = Instant::now();
        for (token, attempt) in self.take_due(now) {
            // Without the lock: it makes connections, and others ask for what is ready meanwhile.
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

    fn take_due(&self, now: Instant) -> Vec<(Token, Arc<Tracked>)> {
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
