//! The system's clocks, which the C library reads without a system call.

// The library that is used for other calls (rustix) reads these clocks by itself, and crashes
// under valgrind, which CI counts instructions with.
#![allow(unsafe_code)]

/// Nanoseconds on a clock that every system has.
#[inline]
pub(super) fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which outlives it.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(result, 0, "these clocks cannot fail");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
