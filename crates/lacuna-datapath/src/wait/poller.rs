//! Sleeping on file descriptors: `ppoll` with nanoseconds on Linux, `poll` with milliseconds
//! elsewhere.

use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::{BLIND_SLEEP_MAX, Signal};
use crate::{Datapath, EventSource};

#[cfg(not(target_os = "linux"))]
#[path = "syscall_poll.rs"]
mod syscall;
#[cfg(target_os = "linux")]
use super::syscall;

/// The flag that a waker sets to end a sleep.
#[derive(Debug)]
pub(super) struct Alarm {
    signal: Signal,
}

impl Alarm {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { signal: Signal::new()? })
    }

    pub(super) fn ring(&self) {
        self.signal.set();
    }

    #[cfg(test)]
    pub(super) fn is_ringing(&self) -> bool {
        let mut entries = [entry(self.signal.as_fd(), libc::POLLIN)];
        syscall::poll(&mut entries, Some(Duration::ZERO)).unwrap();
        entries[0].revents != 0
    }
}

/// The poll set, kept from call to call so that a wait allocates nothing.
#[derive(Debug)]
pub(super) struct Poller {
    entries: Vec<libc::pollfd>,
}

impl Poller {
    pub(super) fn new() -> Self {
        Self { entries: Vec::with_capacity(8) }
    }

    pub(super) fn sleep<'d>(
        &mut self,
        alarm: &Alarm,
        sources: impl IntoIterator<Item = &'d dyn Datapath>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let mut timeout = timeout;
        self.entries.clear();
        self.entries.push(entry(alarm.signal.as_fd(), libc::POLLIN));
        for source in sources {
            let sources = source.event_sources();
            if sources.is_empty() {
                timeout = Some(timeout.map_or(BLIND_SLEEP_MAX, |t| t.min(BLIND_SLEEP_MAX)));
            }
            for EventSource { descriptor, wants_room } in sources.iter() {
                let out = if wants_room { libc::POLLOUT } else { 0 };
                self.entries.push(entry(descriptor, libc::POLLIN | out));
            }
        }
        match syscall::poll(&mut self.entries, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        if self.entries[0].revents != 0 {
            alarm.signal.clear();
        }
        Ok(())
    }
}

fn entry(fd: std::os::fd::BorrowedFd<'_>, events: libc::c_short) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 }
}
