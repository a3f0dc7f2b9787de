//! Waiting: the one place where a thread sleeps.
//!
//! A [`Waiter`] belongs to one thread and sleeps until one of its datapaths has something to do, a
//! [`Waker`] wakes it, or time is up. Wake-ups are level-triggered in effect: a wake before the
//! wait makes the next wait return at once. A wait may also return for no reason, so callers loop.
//!
//! A wake costs a system call only when the waiter sleeps. Both sides share one word:
//!
//! ```text
//! RUNNING  -- wait --> SLEEPING     the waiter is about to poll, or polls
//! RUNNING  -- wake --> WOKEN        no system call: the next wait returns at once
//! SLEEPING -- wake --> WOKEN        and the waker sets the signal that the waiter polls
//! any      -- the wait ends --> RUNNING
//! ```
//!
//! Every transition is a read-modify-write of that word, so what a thread wrote before `wake` is
//! seen by the waiter after `wait`.

#[cfg_attr(not(unix), path = "condvar.rs")]
mod poller;
#[cfg(unix)]
mod signal;
#[cfg(target_os = "linux")]
mod syscall;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use poller::{Alarm, Poller};
#[cfg(unix)]
pub use signal::Signal;

use crate::Datapath;

const RUNNING: u8 = 0;
const SLEEPING: u8 = 1;
const WOKEN: u8 = 2;

/// Longest sleep when a datapath has no event source, or the system cannot wait for several at once;
/// then the datapaths are polled (a judgement: short against any round trip worth software
/// reliability, long against the cost of a wake-up).
const BLIND_SLEEP_MAX: Duration = Duration::from_millis(1);

/// Wakes the [`Waiter`] that it came with, from any thread.
#[derive(Clone, Debug)]
pub struct Waker {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: AtomicU8,
    alarm: Alarm,
}

impl Waker {
    /// Makes the current wait return, or the next one if there is none. Any number of wakes before
    /// a wait count as one.
    pub fn wake(&self) {
        if self.shared.state.swap(WOKEN, Ordering::AcqRel) == SLEEPING {
            self.shared.alarm.ring();
        }
    }
}

/// Sleeps until there is something to do. One per thread.
#[derive(Debug)]
pub struct Waiter {
    shared: Arc<Shared>,
    poller: Poller,
}

impl Waiter {
    /// A waiter and its first waker.
    ///
    /// # Errors
    ///
    /// When the system has no file descriptor left.
    pub fn new() -> io::Result<(Self, Waker)> {
        let alarm = Alarm::new()?;
        let shared = Arc::new(Shared { state: AtomicU8::new(RUNNING), alarm });
        let waker = Waker { shared: Arc::clone(&shared) };
        Ok((Self { shared, poller: Poller::new() }, waker))
    }

    /// Waits until a datapath of `sources` has packets or, after a send that took less than it was
    /// given, room for more; until a waker wakes; or until `timeout` has passed (`None`: no limit).
    /// It may return early without a reason.
    ///
    /// The caller, which has the clock, must include [`Datapath::next_event_ns`] in `timeout`.
    ///
    /// # Errors
    ///
    /// The system's error of waiting; no well-formed call causes one.
    pub fn wait<'d>(
        &mut self,
        sources: impl IntoIterator<Item = &'d dyn Datapath>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let state = &self.shared.state;
        let went_to_sleep =
            state.compare_exchange(RUNNING, SLEEPING, Ordering::AcqRel, Ordering::Acquire);
        if went_to_sleep.is_err() {
            // Woken since the last wait. The waker saw that this thread did not sleep and made no
            // system call.
            state.swap(RUNNING, Ordering::AcqRel);
            return Ok(());
        }
        let result = self.poller.sleep(&self.shared.alarm, sources, timeout);
        // A waker may be between its swap and `ring` now. Then the alarm is set after this wait, and
        // the next wait clears it and returns early, which is allowed.
        state.swap(RUNNING, Ordering::AcqRel);
        result
    }
}

#[cfg(test)]
mod tests;
