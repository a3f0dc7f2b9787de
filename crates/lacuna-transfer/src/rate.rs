//! The transfer rate of the last seconds, from which an observer computes the time left.
//!
//! Bytes and seconds are summed separately and both sums decay, so the rate is right from the first
//! sample on, and soon forgets an earlier state of path or disk. (An exponential average that starts
//! at zero is too low until it has forgotten the zero.)

use crate::observer::Progress;
use std::time::{Duration, Instant};

/// Time constant of the decay: short enough to follow a path that changes, long enough that the
/// time left does not jump with every message.
const FADE: Duration = Duration::from_secs(5);
/// Shorter samples are added to the next.
const SPAN_MIN: Duration = Duration::from_millis(50);
/// The rate is known once this much time went into it.
const KNOWN: Duration = Duration::from_millis(300);

/// The two sums.
#[derive(Debug, Default)]
pub(crate) struct Rate {
    /// When the last sample was taken, and the bytes moved until then.
    last: Option<(Instant, u64)>,
    bytes: f64,
    seconds: f64,
}

impl Rate {
    /// `moved_bytes` have moved in all until `now`. The first call only sets the starting point.
    fn add(&mut self, now: Instant, moved_bytes: u64) {
        let Some((at, before)) = self.last else {
            self.last = Some((now, moved_bytes));
            return;
        };
        let span = now.saturating_duration_since(at);
        if span < SPAN_MIN {
            return;
        }
        let fade = (-span.as_secs_f64() / FADE.as_secs_f64()).exp();
        self.bytes = self.bytes * fade + moved_bytes.saturating_sub(before) as f64;
        self.seconds = self.seconds * fade + span.as_secs_f64();
        self.last = Some((now, moved_bytes));
    }

    /// Adds the bytes moved until `now`, and fills in the rate. Leaves out time in which nothing
    /// can move: while files are compared before the first one moves, and while long holes are
    /// hashed.
    pub(crate) fn measure(&mut self, now: Instant, progress: &mut Progress) {
        let is_comparing = progress.name.is_none() && !self.has_moved();
        if is_comparing || progress.is_hashing_holes() {
            self.restart();
        }
        self.add(now, progress.moved_bytes);
        progress.bytes_per_s = self.bytes_per_s();
    }

    /// Starts a new sample: the time until the next call does not count.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Whether anything moved since counting started.
    fn has_moved(&self) -> bool {
        self.bytes > 0.0
    }

    fn bytes_per_s(&self) -> Option<f64> {
        (self.seconds >= KNOWN.as_secs_f64()).then(|| self.bytes / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rate to which samples of `step_ms` come, `bytes_per_s` for so long.
    fn run(rate: &mut Rate, from: (Instant, u64), phases: &[(u64, u64)]) -> (Instant, u64) {
        const STEP_MS: u64 = 100;
        let (mut now, mut moved) = from;
        for (duration_ms, bytes_per_s) in phases {
            for _ in 0..duration_ms / STEP_MS {
                now += Duration::from_millis(STEP_MS);
                moved += bytes_per_s * STEP_MS / 1000;
                rate.add(now, moved);
            }
        }
        (now, moved)
    }

    #[test]
    fn it_is_right_from_the_start() {
        let mut rate = Rate::default();
        let start = (Instant::now(), 7_000_000_000);
        // What was there before, an hour's worth of it, is no speed.
        rate.add(start.0, start.1);
        assert_eq!(rate.bytes_per_s(), None);
        run(&mut rate, start, &[(400, 1_000_000)]);
        let speed = rate.bytes_per_s().unwrap();
        assert!((speed - 1e6).abs() < 1.0, "{speed}");
    }

    #[test]
    fn it_forgets_what_was_some_seconds_ago() {
        let mut rate = Rate::default();
        let start = (Instant::now(), 0);
        rate.add(start.0, start.1);
        // An hour at full speed, then a tenth of it: the average is no guide.
        let at = run(&mut rate, start, &[(3_600_000, 10_000_000), (20_000, 1_000_000)]);
        let speed = rate.bytes_per_s().unwrap();
        assert!((speed - 1e6).abs() < 0.25e6, "{speed}");
        run(&mut rate, at, &[(20_000, 0)]);
        assert!(rate.bytes_per_s().unwrap() < 0.03e6);
    }

    #[test]
    fn a_pause_before_a_new_start_does_not_count() {
        let mut rate = Rate::default();
        let start = (Instant::now(), 0);
        rate.add(start.0, start.1);
        let (now, moved) = run(&mut rate, start, &[(5_000, 1_000_000)]);
        rate.restart();
        let later = now + Duration::from_secs(600);
        rate.add(later, moved);
        run(&mut rate, (later, moved), &[(1_000, 2_000_000)]);
        let speed = rate.bytes_per_s().unwrap();
        assert!((speed - 2e6).abs() < 1.0, "{speed}");
    }
}
