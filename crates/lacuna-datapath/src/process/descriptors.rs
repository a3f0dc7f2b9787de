//! The library's open descriptors, by number, so that a child process can close what it has inherited
//! of them: their owners may be threads that it does not have.
//!
//! A number may be reused after it was closed, by anybody. So each is noted with what it was, and
//! closed only if it is that still: for sockets by the inode, which no other has had. What is made
//! of `anon_inode` (eventfd, epoll) is all of one inode, so its owner says when it is closed
//! ([`forget`]); sockets need not. No lock: it may have been held as the process was forked.
//!
//! Invariant: what is noted for another process is closed once, by the first that asks here.

#![allow(unsafe_code)]

use super::{Process, syscall};
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Descriptors that are noted have smaller numbers (a judgement: each takes 24 bytes of zeroed
/// memory). Those beyond stay open in a child until it ends or calls `exec`.
const NUMBERS: usize = 1 << 16;

struct Noted {
    /// 0: nobody's.
    process: AtomicU64,
    file_system: AtomicU64,
    inode: AtomicU64,
}

static NOTED: [Noted; NUMBERS] = [const {
    Noted { process: AtomicU64::new(0), file_system: AtomicU64::new(0), inode: AtomicU64::new(0) }
}; NUMBERS];

/// No number that was ever noted is as large.
static END: AtomicUsize = AtomicUsize::new(0);

/// The library has opened this descriptor.
#[cfg(unix)]
pub fn note(descriptor: &impl AsFd) {
    let number = descriptor.as_fd().as_raw_fd();
    let Some((index, noted)) = entry(number) else { return };
    let Some((file_system, inode)) = syscall::identity(number) else { return };
    noted.file_system.store(file_system, Ordering::Relaxed);
    noted.inode.store(inode, Ordering::Relaxed);
    noted.process.store(Process::current().0, Ordering::Release);
    END.fetch_max(index + 1, Ordering::Release);
}

/// It is about to be closed, or is somebody else's from now on.
#[cfg(unix)]
pub fn forget(descriptor: &impl AsFd) {
    if let Some((_, noted)) = entry(descriptor.as_fd().as_raw_fd()) {
        noted.process.store(0, Ordering::Release);
    }
}

#[cfg(unix)]
fn entry(number: RawFd) -> Option<(usize, &'static Noted)> {
    let index = usize::try_from(number).ok()?;
    NOTED.get(index).map(|noted| (index, noted))
}

/// Closes what this process has inherited; in the process that opened it, nothing.
pub fn close_inherited() {
    let here = Process::current().0;
    for (number, noted) in NOTED[..END.load(Ordering::Acquire)].iter().enumerate() {
        let process = noted.process.load(Ordering::Acquire);
        if process == 0 || process == here {
            continue;
        }
        let was = (noted.file_system.load(Ordering::Relaxed), noted.inode.load(Ordering::Relaxed));
        let taken = noted.process.compare_exchange(process, 0, Ordering::AcqRel, Ordering::Relaxed);
        #[cfg(unix)]
        if taken.is_ok() && syscall::identity(number as RawFd) == Some(was) {
            // SAFETY: what another process has opened, of which no object here makes use any more:
            // each asks first who made it.
            unsafe { syscall::close(number as RawFd) };
        }
        #[cfg(not(unix))]
        let _ = (was, taken, number);
    }
}
