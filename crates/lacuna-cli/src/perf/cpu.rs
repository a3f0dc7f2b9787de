//! Processor time of this process.

/// Seconds of processor time used by all threads so far; 0 where the system
/// cannot say.
pub(super) fn process_s() -> f64 {
    #[cfg(unix)]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }
    #[cfg(not(unix))]
    0.0
}
