//! Reads `CLOCK_BOOTTIME`, which runs on during suspension, through the C library (vDSO, no system
//! call).

// rustix, used for other system calls, reads clocks through its own vDSO parser, which crashes
// under valgrind; CI counts instructions with valgrind.
#![allow(unsafe_code)]

/// The clock's value in nanoseconds.
#[inline]
pub(super) fn read_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, which outlives it.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    debug_assert_eq!(result, 0, "this clock cannot fail");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
