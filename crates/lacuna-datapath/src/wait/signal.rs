//! A flag with a file descriptor that is readable while the flag is set, for `poll` and `epoll`.
//!
//! It is an eventfd on Linux and a pair of connected sockets on other Unix systems. Setting a set flag
//! and clearing a clear one do nothing. Both calls ignore errors: the descriptor is non-blocking, and
//! its only error means that the flag already has the wanted state.

use crate::process::descriptors;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

/// See the module's text.
#[derive(Debug)]
pub struct Signal {
    #[cfg(target_os = "linux")]
    event: std::fs::File,
    #[cfg(not(target_os = "linux"))]
    ends: (std::os::unix::net::UnixStream, std::os::unix::net::UnixStream),
}

#[cfg(target_os = "linux")]
impl Signal {
    /// A cleared flag.
    ///
    /// # Errors
    ///
    /// When the system has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let event = super::syscall::eventfd()?;
        descriptors::note(&event);
        Ok(Self { event: event.into() })
    }

    /// Sets it.
    pub fn set(&self) {
        // Fails only when the counter is about to overflow, and then the flag is set.
        let _ = (&self.event).write(&1u64.to_ne_bytes());
    }

    /// Clears it.
    pub fn clear(&self) {
        // One read resets the counter; it fails only when the counter is 0.
        let _ = (&self.event).read(&mut [0; 8]);
    }

    /// What is readable while it is set.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

#[cfg(not(target_os = "linux"))]
impl Signal {
    /// A flag that is clear.
    ///
    /// # Errors
    ///
    /// When the system has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let ends = std::os::unix::net::UnixStream::pair()?;
        ends.0.set_nonblocking(true)?;
        ends.1.set_nonblocking(true)?;
        descriptors::note(&ends.0);
        descriptors::note(&ends.1);
        Ok(Self { ends })
    }

    /// Sets it.
    pub fn set(&self) {
        // Fails only when the buffer is full, and then the flag is set.
        let _ = (&self.ends.0).write(&[1]);
    }

    /// Clears it.
    pub fn clear(&self) {
        while matches!((&self.ends.1).read(&mut [0; 64]), Ok(1..)) {}
    }

    /// What is readable while it is set.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.ends.1.as_fd()
    }
}

#[cfg(target_os = "linux")]
impl Drop for Signal {
    fn drop(&mut self) {
        descriptors::forget(&self.event);
    }
}
