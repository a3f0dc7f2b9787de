//! A token by which a caller ends an operation early.
//!
//! The caller keeps one clone and passes another with the options of an operation. Operations check
//! the token at least every [`STOP_POLL`], clean up, and return an error that says so. A stop
//! cannot be undone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How often a wait checks the token: soon enough after Ctrl-C (a judgement).
pub const STOP_POLL: Duration = Duration::from_millis(50);

/// A request to end; clones are the same request.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// A token without a request.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a stop of every operation that has this token.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Sleeps for `duration`, or until a stop is requested.
    pub fn sleep(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while !self.is_requested() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(STOP_POLL));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reaches_every_clone_and_ends_a_sleep() {
        let stop = Stop::new();
        let other = stop.clone();
        assert!(!other.is_requested());
        stop.request();
        assert!(other.is_requested());
        other.sleep(Duration::from_secs(3600));
    }
}
