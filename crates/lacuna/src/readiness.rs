//! Waits until one of some sockets can be read or written: for calls that block, of one thread each.
//!
//! Many sockets that one thread looks after for a long time are the monitor's, which has a queue of
//! events for them (`monitor.rs`).

use std::io;
use std::time::Duration;

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Something to read, or a connection to accept.
    Reading,
    /// Room to write, or an attempt to connect that has an outcome.
    Writing,
}

/// A socket to wait for.
#[cfg(unix)]
pub(crate) type Source<'s> = std::os::fd::BorrowedFd<'s>;

/// The socket of something that has one.
#[cfg(unix)]
pub(crate) fn source(socket: &impl std::os::fd::AsFd) -> Source<'_> {
    socket.as_fd()
}

/// Waits for any of `sources`, at most `timeout`; which of them are ready. Broken ones are.
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
    // A wait of years is none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(&mut polled, timeout.as_ref()) {
        Ok(_) => Ok(polled.iter().map(|polled| !polled.revents().is_empty()).collect()),
        Err(rustix::io::Errno::INTR) => Ok(vec![false; polled.len()]),
        Err(error) => Err(error.into()),
    }
}

/// Without `poll`, sockets are looked at now and then.
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
