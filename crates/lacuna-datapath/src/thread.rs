//! Threads of a library: signals are for the program's own threads.
//!
//! A signal to a process goes to any thread that does not block it. A program that blocks one to
//! wait for it (`sigwait`, `signalfd`, the mask of `ppoll`) counts on there being no other; a
//! handler counts on a thread that may take a while. So threads that a library starts block them
//! all, from their first instruction on: a new thread has the mask of the one that makes it.
//! (`libfabric` and `librdkafka` do the same.) Left as they are: signals that an instruction of the
//! thread itself raises, since a handler of those makes a report, and SIGPROF, which profilers send
//! to every thread.

use std::io;
use std::thread::{Builder, JoinHandle};

#[cfg(unix)]
mod syscall;

/// Starts a thread that takes no signals of the program's.
///
/// # Errors
/// When the system has no thread to give.
pub fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.to_owned());
    #[cfg(unix)]
    let _blocked = syscall::Blocked::new()?;
    builder.spawn(run)
}
