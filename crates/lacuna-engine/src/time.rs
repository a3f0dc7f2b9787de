//! The clock of an engine.

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
