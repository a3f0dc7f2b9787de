//! The Linux calls behind waiting: `eventfd`, `ppoll`, and the timer slack that makes `ppoll`
//! precise.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;
use std::{io, ptr};

pub(super) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointer is passed.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until an entry has an event, or the timeout is over.
pub(super) fn poll(entries: &mut [libc::pollfd], timeout: Option<Duration>) -> io::Result<()> {
    tighten_timer_slack();
    let timeout = timeout.map(|timeout| libc::timespec {
        // A wait of more than 68 years may end early.
        tv_sec: i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX).into(),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let timeout = timeout.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the entries are exclusively borrowed for the call and their number is passed with
    // them; the timeout is null or points to a timespec that outlives the call; a null mask is
    // allowed.
    let ready = unsafe {
        libc::ppoll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout, ptr::null())
    };
    if ready < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The kernel may end a sleep 50 us late (its default timer slack) to batch wake-ups. A paced sender
/// sleeps for less than that, so each waiting thread sets its slack to 1 ns, once.
fn tighten_timer_slack() {
    thread_local! {
        static TIGHT: Cell<bool> = const { Cell::new(false) };
    }
    if !TIGHT.replace(true) {
        let slack_ns: libc::c_ulong = 1;
        // SAFETY: the call takes a number and changes a setting of the calling thread. If it fails,
        // sleeps are less precise.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) };
    }
}
