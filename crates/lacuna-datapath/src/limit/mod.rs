//! Limits of this machine: which of them a system call has met, and what to do about it.
//!
//! The system's own words ("Too many open files") name neither the limit nor who sets it, and what
//! is this machine's is easily taken for the network's: opening a socket is the first step of
//! reaching anyone.

#[cfg(unix)]
mod syscall;

use std::{fmt, io};

/// What there is no more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Descriptors of this process, of which it may have so many if that is known.
    Descriptors(Option<u64>),
    /// Descriptors of all processes together.
    AllDescriptors,
    /// Memory, or the part of it that is for sockets.
    Memory,
}

impl Limit {
    /// The limit that an error is about, if it is about one.
    #[cfg(unix)]
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        match error.raw_os_error()? {
            libc::EMFILE => Some(Self::Descriptors(syscall::descriptors_max())),
            libc::ENFILE => Some(Self::AllDescriptors),
            libc::ENOMEM | libc::ENOBUFS => Some(Self::Memory),
            _ => None,
        }
    }

    /// Other systems have words of their own for it.
    #[cfg(not(unix))]
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        (error.kind() == io::ErrorKind::OutOfMemory).then_some(Self::Memory)
    }

    /// Whether this process could not open `count` more descriptors: what needs some on the way, such
    /// as looking up a name, fails with errors that say nothing of them.
    ///
    /// # Errors
    ///
    /// The one of opening them.
    pub fn check_descriptors(count: usize) -> io::Result<()> {
        #[cfg(unix)]
        (0..count)
            .map(|_| std::os::unix::net::UnixDatagram::unbound())
            .collect::<io::Result<Vec<_>>>()?;
        #[cfg(not(unix))]
        let _ = count;
        Ok(())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Descriptors(Some(most)) => write!(
                f,
                "this process may have {most} descriptors open; raise that limit (ulimit -n)"
            ),
            Self::Descriptors(None) => {
                f.write_str("raise this process's limit of open descriptors (ulimit -n)")
            }
            Self::AllDescriptors => f.write_str(
                "all descriptors of this machine are in use; raise that limit (sysctl fs.file-max)",
            ),
            Self::Memory => {
                f.write_str("this machine lacks memory for it; end other programs, or ask for less")
            }
        }
    }
}

/// An error as the system says it, with the limit that it is about.
#[derive(Clone, Copy, Debug)]
pub struct Said<'e>(pub &'e io::Error);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Limit::of(self.0) {
            Some(limit) => write!(f, "{}: {limit}", self.0),
            None => self.0.fmt(f),
        }
    }
}

/// Why there was no thread to be had. The system's word for it is the one for "try again".
#[derive(Clone, Copy, Debug)]
pub struct NoThread<'e>(pub &'e io::Error);

impl fmt::Display for NoThread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind() {
            io::ErrorKind::WouldBlock => write!(
                f,
                "{}: raise the limit of processes and threads (ulimit -u, or the container's), or ask for fewer",
                self.0
            ),
            _ => Said(self.0).fmt(f),
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named_with_what_to_do() {
        for (number, part) in [
            (libc::EMFILE, "descriptors open; raise that limit (ulimit -n)"),
            (libc::ENFILE, "fs.file-max"),
            (libc::ENOMEM, "memory"),
            (libc::ENOBUFS, "memory"),
        ] {
            let error = io::Error::from_raw_os_error(number);
            let said = Said(&error).to_string();
            assert!(said.contains(part) && said.starts_with(&error.to_string()), "{said}");
        }
        let error = io::Error::from_raw_os_error(libc::ECONNREFUSED);
        assert_eq!((Limit::of(&error), Said(&error).to_string()), (None, error.to_string()));
        let error = io::Error::from_raw_os_error(libc::EAGAIN);
        assert!(NoThread(&error).to_string().contains("ulimit -u"));
        assert_eq!(Said(&error).to_string(), error.to_string());
        assert!(Limit::check_descriptors(3).is_ok());
    }
}
