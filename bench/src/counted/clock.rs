//! The clock of what is counted: every reading is a fixed time after the last.
//!
//! It stands in for the C library's, so both Lacuna and the standard library read it. How many
//! readings a message takes is then a matter of the program alone, and what is due by time comes
//! after the same number of steps on every host.

#![allow(unsafe_code, reason = "a symbol of the C library is replaced")]

use std::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds between two readings: about what a turn of progress takes that finds nothing.
const STEP_NS: u64 = 250;

static NOW_NS: AtomicU64 = AtomicU64::new(1_000_000_000);

/// The C library's call, of every clock.
// SAFETY: the symbol is the C library's, and this has its signature and does what callers rely on:
// it writes a time that never goes back, with nanoseconds below a second, and returns 0. Nothing
// else of this program has the name.
#[unsafe(no_mangle)]
extern "C" fn clock_gettime(_clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    let now_ns = NOW_NS.fetch_add(STEP_NS, Ordering::Relaxed);
    let now = libc::timespec {
        tv_sec: (now_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (now_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: callers pass a place for one timespec, as the C library's call asks.
    unsafe { time.write(now) };
    0
}
