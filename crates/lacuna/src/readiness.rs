//! Waits until one of a few sockets is readable or writable (`poll(2)`), for calls that block one
//! thread.
//!
//! The monitor has an event queue for the many sockets that it watches for long (`monitor.rs`).

use std::io;
use std::time::Duration;

/// The event to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Something to read, or a connection to accept.
    Reading,
    /// Room to write, or an attempt to connect that has an outcome.
    Writing,
}

/// A descriptor to poll.
#[cfg(unix)]
pub(crate) type Source<'s> = std::os::fd::BorrowedFd<'s>;

/// The descriptor of a socket.
#[cfg(unix)]
pub(crate) fn source(socket: &impl std::os::fd::AsFd) -> Source<'_> {
    socket.as_fd()
}

/// Polls `sources` for at most `timeout`. Returns for each whether it is ready; one with an error
/// counts as ready.
#[cfg(unix)]
pub(crate) fn wait<'s>(
    sources: impl IntoIterator<Item = (Source<'s>, For)>,
    timeout: Option<Duration>,
) -> io::Result<Vec<bool>> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let flags = |what| match what {
        For::Reading => PollFlags::IN,
        For::Writing => PollFlags::OUT,
    };
    let mut polled: Vec<_> = sources
        .into_iter()
        .map(|(source, what)| PollFd::from_borrowed_fd(source, flags(what)))
        .collect();
    // A timeout that `timespec` cannot hold waits without limit.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.iter().map(|polled| !polled.revents().is_empty()).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![false; polled.len()]),
        Err(error) => Err(error.into()),
    }
}

/// Without `poll`, callers try their sockets every 5 ms.
#[cfg(not(unix))]
pub(crate) struct Source<'s>(std::marker::PhantomData<&'s ()>);

#[cfg(not(unix))]
pub(crate) fn source<T>(_socket: &T) -> Source<'_> {
    Source(std::marker::PhantomData)
}

#[cfg(not(unix))]
pub(crate) fn wait<'s>(
    sources: impl IntoIterator<Item = (Source<'s>, For)>,
    timeout: Option<Duration>,
) -> io::Result<Vec<bool>> {
    const LOOK: Duration = Duration::from_millis(5);
    std::thread::sleep(timeout.map_or(LOOK, |timeout| timeout.min(LOOK)));
    Ok(sources.into_iter().map(|_| true).collect())
}
