//! Where the engine's time comes from.

/// The owner's clock: nanoseconds that do not run backwards. A step reads it several times, because
/// a step may take long, or its thread may lose its core in the middle; in virtual time all readings
/// of a step are the same.
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
