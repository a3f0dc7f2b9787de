//! The clock of a context: nanoseconds since the context was made.
//!
//! Workers read it in every step, and a small message on its way several times more. On Linux it is
//! `CLOCK_BOOTTIME`, read directly: subtracting an `Instant` and converting it takes about 50
//! instructions more. The clock runs on while the host is suspended, so a deadline of one minute
//! has passed after ten minutes with the lid closed. (The protocol does not count a suspension as
//! silence of the peer.)

#[cfg(target_os = "linux")]
mod syscall;

use std::time::Duration;
#[cfg(not(target_os = "linux"))]
use std::time::Instant;
#[cfg(target_os = "linux")]
use syscall::read_ns;

/// A copy reads the same clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    #[cfg(target_os = "linux")]
    made_ns: u64,
    #[cfg(not(target_os = "linux"))]
    made: Instant,
}

/// First value of a clock, 1 s: subtracting a short time from `now_ns` never underflows.
const START_NS: u64 = 1_000_000_000;

impl Clock {
    /// Now.
    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        self.since_made_ns() + START_NS
    }

    /// The time at which `limit` will have passed.
    #[inline]
    pub(crate) fn end_of(self, limit: Duration) -> u64 {
        after(self.now_ns(), limit)
    }

    /// The time from now until `time_ns`; zero if that is past.
    pub(crate) fn until(self, time_ns: u64) -> Duration {
        Duration::from_nanos(time_ns.saturating_sub(self.now_ns()))
    }
}

#[cfg(target_os = "linux")]
impl Clock {
    pub(crate) fn new() -> Self {
        Self { made_ns: read_ns() }
    }

    #[inline]
    fn since_made_ns(self) -> u64 {
        read_ns().wrapping_sub(self.made_ns)
    }
}

#[cfg(not(target_os = "linux"))]
impl Clock {
    pub(crate) fn new() -> Self {
        Self { made: Instant::now() }
    }

    #[inline]
    fn since_made_ns(self) -> u64 {
        self.made.elapsed().as_nanos() as u64
    }
}

/// `time_ns` plus `duration`; saturates, so that `u64::MAX` ("never") stays "never".
pub(crate) fn after(time_ns: u64, duration: Duration) -> u64 {
    time_ns.saturating_add(duration.as_nanos().min(u128::from(u64::MAX)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_ends_when_it_should() {
        let clock = Clock::new();
        for limit in [0, 1, 999, 1000, 60_000].map(Duration::from_millis) {
            let before_ns = clock.now_ns();
            let end_ns = clock.end_of(limit);
            let (earliest_ns, latest_ns) = (after(before_ns, limit), after(clock.now_ns(), limit));
            assert!((earliest_ns..=latest_ns).contains(&end_ns), "{limit:?}");
        }
        assert_eq!(clock.end_of(Duration::MAX), u64::MAX);
    }
}
