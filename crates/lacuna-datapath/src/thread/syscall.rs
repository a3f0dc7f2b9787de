//! The signal mask of the calling thread (`pthread_sigmask`).

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::{io, ptr};

/// Signals that are not blocked; the module above says why.
const NOT_BLOCKED: [libc::c_int; 8] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGPROF,
    libc::SIGSEGV,
    libc::SIGSYS,
    libc::SIGTRAP,
];

/// A guard: the calling thread blocks signals until it is dropped.
pub(super) struct SignalsBlocked {
    before: libc::sigset_t,
    /// The mask belongs to one thread, so the guard must not move to another (`!Send`).
    _thread: PhantomData<*const ()>,
}

impl SignalsBlocked {
    pub(super) fn new() -> io::Result<Self> {
        let mut blocked = MaybeUninit::uninit();
        // SAFETY: the call writes a whole set.
        let blocked = unsafe {
            libc::sigfillset(blocked.as_mut_ptr());
            blocked.assume_init_mut()
        };
        for signal in NOT_BLOCKED {
            // SAFETY: the set was written above, and outlives the call.
            unsafe { libc::sigdelset(blocked, signal) };
        }
        let mut before = MaybeUninit::uninit();
        // SAFETY: one set is read and the other written, both outlive the call.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, blocked, before.as_mut_ptr()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: the call has succeeded, so it has written the set.
        Ok(Self { before: unsafe { before.assume_init() }, _thread: PhantomData })
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set was written by the system and outlives the call; null asks for nothing.
        let error = unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
        debug_assert_eq!(error, 0, "a mask that was there can be set again");
    }
}
