//! A flag that can be polled: a file descriptor that is readable while the flag is set.
//!
//! An eventfd on Linux, a pair of connected sockets on other Unix systems. Setting a flag that is
//! set and clearing one that is clear are harmless. Neither can fail in a way that matters: the
//! descriptor is non-blocking, and the only refusal is "already so".

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
    /// A flag that is clear.
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
        // Fails only when the counter is about to overflow: then it is set.
        let _ = (&self.event).write(&1u64.to_ne_bytes());
    }

    /// Clears it.
    pub fn clear(&self) {
        // One read takes the whole counter; it fails only when the counter is 0.
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
        // Fails only when the buffer is full: then it is set.
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
