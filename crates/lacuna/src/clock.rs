//! The one clock of a context: nanoseconds since it was made.
//!
//! Every step of a worker reads it, and a small message on its way some times more. On Linux it is
//! read from the system itself: to subtract an `Instant` and make a number of it takes some 50
//! instructions more.

#[cfg(target_os = "linux")]
mod syscall;

use std::time::Duration;
#[cfg(not(target_os = "linux"))]
use std::time::Instant;
#[cfg(target_os = "linux")]
use syscall::read_ns;

/// Copies read the same clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    #[cfg(target_os = "linux")]
    made_ns: u64,
    #[cfg(not(target_os = "linux"))]
    made: Instant,
}

/// When a clock begins: so that "a moment ago" never underflows.
const START_NS: u64 = 1_000_000_000;

/// What a rough reading may be behind: a tick of the system, of which there are 100 a second at
/// least.
#[cfg(target_os = "linux")]
const TICK: Duration = Duration::from_millis(10);

/// Of longer times a tick is less than a hundredth.
#[cfg(any(target_os = "linux", test))]
const ROUGH_MIN: Duration = Duration::from_secs(1);

impl Clock {
    /// Now.
    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        self.since_made_ns() + START_NS
    }

    /// The time from now until `time_ns`; zero if that is past.
    pub(crate) fn until(self, time_ns: u64) -> Duration {
        Duration::from_nanos(time_ns.saturating_sub(self.now_ns()))
    }
}

#[cfg(target_os = "linux")]
impl Clock {
    pub(crate) fn new() -> Self {
        Self { made_ns: read_ns(libc::CLOCK_MONOTONIC) }
    }

    #[inline]
    fn since_made_ns(self) -> u64 {
        read_ns(libc::CLOCK_MONOTONIC).wrapping_sub(self.made_ns)
    }

    /// When `limit` will have passed, for who gives up then: a hundredth later at most, and no earlier
    /// unless a host stands still and does not tick. That takes no exact reading where the limit is
    /// long.
    #[inline]
    pub(crate) fn end_of(self, limit: Duration) -> u64 {
        let (now_ns, limit) = match limit >= ROUGH_MIN {
            true => {
                // It may lie before the clock was made.
                let now_ns = read_ns(libc::CLOCK_MONOTONIC_COARSE) + START_NS;
                (now_ns.saturating_sub(self.made_ns), limit.saturating_add(TICK))
            }
            false => (self.now_ns(), limit),
        };
        after(now_ns, limit)
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

    /// When `limit` will have passed.
    pub(crate) fn end_of(self, limit: Duration) -> u64 {
        after(self.now_ns(), limit)
    }
}

/// `time_ns` plus a duration; "never" stays never.
pub(crate) fn after(time_ns: u64, duration: Duration) -> u64 {
    time_ns.saturating_add(duration.as_nanos().min(u128::from(u64::MAX)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_ends_when_it_should_and_a_long_one_about_then() {
        let clock = Clock::new();
        for limit in [0, 1, 999, 1000, 60_000].map(Duration::from_millis) {
            let before_ns = clock.now_ns();
            let end_ns = clock.end_of(limit);
            // A host that stands still does not tick.
            let slack = if limit < ROUGH_MIN { Duration::ZERO } else { limit / 10 };
            let earliest_ns = after(before_ns, limit - slack);
            let latest_ns = after(clock.now_ns(), limit + slack);
            assert!((earliest_ns..=latest_ns).contains(&end_ns), "{limit:?}");
        }
        assert_eq!(clock.end_of(Duration::MAX), u64::MAX);
    }
}
