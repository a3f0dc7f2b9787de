//! The system's clock that goes on while it is suspended, which the C library reads without a system
//! call.

// The library that is used for other calls (rustix) reads clocks by itself, and crashes
// under valgrind, which CI counts instructions with.
#![allow(unsafe_code)]

/// Its nanoseconds.
#[inline]
pub(super) fn read_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which outlives it.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    debug_assert_eq!(result, 0, "this clock cannot fail");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
