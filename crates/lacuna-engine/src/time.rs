//! The clock of an engine, and its timers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Timers of queue pairs: expiry in nanoseconds and number, the earliest first. An entry may be
/// stale.
pub(crate) type Timers = BinaryHeap<Reverse<(u64, u32)>>;

/// The caller's clock: monotonic nanoseconds. A step reads it several times, because it may take
/// long, or its thread may lose its core. In virtual time it stands still within a step.
pub trait Time {
    /// Now.
    fn now_ns(&self) -> u64;
}

impl<T: Time> Time for &T {
    #[inline]
    fn now_ns(&self) -> u64 {
        (**self).now_ns()
    }
}
