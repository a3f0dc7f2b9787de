//! The one clock of a context: nanoseconds since it was made.

use std::time::{Duration, Instant};

/// Copies read the same clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// Now. Starts at one second, so that "a moment ago" never underflows.
    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64 + 1_000_000_000
    }

    /// The time from now until `time_ns`; zero if that is past.
    pub(crate) fn until(self, time_ns: u64) -> Duration {
        Duration::from_nanos(time_ns.saturating_sub(self.now_ns()))
    }
}
