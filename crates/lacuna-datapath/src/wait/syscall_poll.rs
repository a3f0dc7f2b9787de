//! The call behind waiting on Unix systems without `ppoll` in nanoseconds.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// Waits until an entry has an event, or the timeout is over: rounded up to milliseconds, so that
/// the caller does not come back before its time and spin.
pub(super) fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    let timeout_ms = timeout.map_or(-1, |timeout| {
        libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
    });
    // SAFETY: the entries are exclusively borrowed for the call and their number is passed with
    // them.
    let ready =
        unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms) };
    if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
