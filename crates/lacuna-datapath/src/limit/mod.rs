//! Resource limits of this machine: which limit a failed system call has hit, and how to raise it.
//!
//! The system's text ("Too many open files") names neither the limit nor the setting. Opening a
//! socket is the first step of connecting, so users easily take such an error for one of the network.

#[cfg(unix)]
mod syscall;

use std::{fmt, io};

/// A resource that ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// File descriptors of this process, with their limit if known.
    Descriptors(Option<u64>),
    /// File descriptors of all processes together.
    AllDescriptors,
    /// Memory, or memory for sockets.
    Memory,
}

impl Limit {
    /// The limit behind an error; `None` for other errors.
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

    /// The limit behind an error; other systems report only memory.
    #[cfg(not(unix))]
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        (error.kind() == io::ErrorKind::OutOfMemory).then_some(Self::Memory)
    }

    /// Checks that this process can open `count` more descriptors. Name lookup, for example, needs
    /// some and fails without mentioning them.
    ///
    /// # Errors
    ///
    /// The error of opening them.
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

/// Displays a system error together with the limit behind it, if any.
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

/// Displays the error of starting a thread: at the limit of threads the system returns `EAGAIN`,
/// whose text ("try again") is misleading.
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
