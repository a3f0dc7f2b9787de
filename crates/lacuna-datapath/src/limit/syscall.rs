//! The system call for a process's resource limits (`getrlimit`).

#![allow(unsafe_code)]

/// How many file descriptors this process may have open.
pub(super) fn descriptors_max() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit outlives the call, which writes to nothing else.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    #[allow(clippy::unnecessary_cast, reason = "the type differs between systems")]
    (result == 0).then_some(limit.rlim_cur as u64)
}
