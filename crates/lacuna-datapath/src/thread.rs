//! Starts the library's threads with all signals blocked, so that signals reach the program's own
//! threads.
//!
//! The kernel delivers a process's signal to any thread that does not block it. A program that blocks
//! a signal to wait for it (`sigwait`, `signalfd`, the mask of `ppoll`) relies on all threads blocking
//! it, and a slow handler must not delay a thread of the library. A new thread inherits the mask of
//! the thread that makes it, so signals are blocked from its first instruction on. (`libfabric` and
//! `librdkafka` do the same.) Not blocked are the signals that an instruction of the thread itself
//! raises, because their handlers write crash reports, and SIGPROF, which profilers send to every
//! thread.

use std::io;
use std::thread::{Builder, JoinHandle};

#[cfg(unix)]
mod syscall;

/// Starts a thread that blocks all signals of the program.
///
/// # Errors
/// When the system refuses the thread.
pub fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = Builder::new().name(name.to_owned());
    #[cfg(unix)]
    let _blocked = syscall::SignalsBlocked::new()?;
    builder.spawn(run)
}
