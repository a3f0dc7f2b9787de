//! A sender's clock: a warm-up, then the time that counts.

use std::time::{Duration, Instant};

/// See the module's text.
pub(crate) struct Meter {
    begun: Instant,
    warm_up: Duration,
    duration: Duration,
    /// When the warm-up was over, and bytes received until then.
    measured: Option<(Duration, u64)>,
}

impl Meter {
    /// Begins: a fifth of `duration` to warm up, then all of it.
    pub(crate) fn start(duration: Duration) -> Self {
        Self { begun: Instant::now(), warm_up: duration / 5, duration, measured: None }
    }

    /// Whether to go on, with `received` bytes so far.
    pub(crate) fn goes_on(&mut self, received: u64) -> bool {
        let elapsed = self.begun.elapsed();
        if self.measured.is_none() && elapsed > self.warm_up {
            self.measured = Some((elapsed, received));
        }
        elapsed < self.warm_up + self.duration
    }

    /// Gbit/s since the warm-up, with `received` bytes in all.
    pub(crate) fn gbit_per_s(&self, received: u64) -> f64 {
        let (from, already) = self.measured.unwrap_or_default();
        let seconds = (self.begun.elapsed() - from).as_secs_f64();
        (received - already) as f64 * 8.0 / seconds / 1e9
    }
}
