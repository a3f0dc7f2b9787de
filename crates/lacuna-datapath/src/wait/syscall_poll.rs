//! `poll`, for Unix systems without `ppoll`: timeouts in milliseconds.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// Waits until an entry has an event or the timeout is over. The timeout is rounded up to
/// milliseconds: if it were rounded down, the caller would return too early and spin.
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
