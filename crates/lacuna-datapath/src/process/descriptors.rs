//! A table of the library's open file descriptors, so that a child process can close those that it
//! inherits: their owners may be threads that do not exist in the child.
//!
//! The system reuses the numbers of closed descriptors. So each entry records the file behind the
//! number, and a child closes the number only if it still refers to that file. The inode of a socket
//! is unique. Descriptors of `anon_inode` (eventfd, epoll) all share one inode, so their owners must
//! call [`forget`] before they close them; sockets need not. There is no lock, because another thread
//! might hold it at the moment of the fork.
//!
//! Invariant: an entry of another process is closed once, by the first thread that takes it.

#![allow(unsafe_code)]

use super::{Process, syscall};
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Length of the table (a judgement: each entry takes 24 bytes of zeroed memory). Descriptors with
/// larger numbers stay open in a child until it ends or calls `exec`.
const ENTRIES: usize = 1 << 16;

struct Entry {
    /// 0: the entry is free.
    process: AtomicU64,
    file_system: AtomicU64,
    inode: AtomicU64,
}

static TABLE: [Entry; ENTRIES] = [const {
    Entry { process: AtomicU64::new(0), file_system: AtomicU64::new(0), inode: AtomicU64::new(0) }
}; ENTRIES];

/// All entries from here on were never used.
static END: AtomicUsize = AtomicUsize::new(0);

/// Records a descriptor that the library has opened.
#[cfg(unix)]
pub fn note(descriptor: &impl AsFd) {
    let number = descriptor.as_fd().as_raw_fd();
    let Some((index, entry)) = entry(number) else { return };
    let Some((file_system, inode)) = syscall::identity(number) else { return };
    entry.file_system.store(file_system, Ordering::Relaxed);
    entry.inode.store(inode, Ordering::Relaxed);
    entry.process.store(Process::current().0, Ordering::Release);
    END.fetch_max(index + 1, Ordering::Release);
}

/// Removes a descriptor that is about to be closed or handed to another owner.
#[cfg(unix)]
pub fn forget(descriptor: &impl AsFd) {
    if let Some((_, entry)) = entry(descriptor.as_fd().as_raw_fd()) {
        entry.process.store(0, Ordering::Release);
    }
}

#[cfg(unix)]
fn entry(number: RawFd) -> Option<(usize, &'static Entry)> {
    let index = usize::try_from(number).ok()?;
    TABLE.get(index).map(|entry| (index, entry))
}

/// Closes the descriptors that this process has inherited, and none that it opened itself.
pub fn close_inherited() {
    let here = Process::current().0;
    for (number, entry) in TABLE[..END.load(Ordering::Acquire)].iter().enumerate() {
        let process = entry.process.load(Ordering::Acquire);
        if process == 0 || process == here {
            continue;
        }
        let was = (entry.file_system.load(Ordering::Relaxed), entry.inode.load(Ordering::Relaxed));
        let taken = entry.process.compare_exchange(process, 0, Ordering::AcqRel, Ordering::Relaxed);
        #[cfg(unix)]
        if taken.is_ok() && syscall::identity(number as RawFd) == Some(was) {
            // SAFETY: another process opened the descriptor, and no object here uses it any more:
            // each checks first which process made it.
            unsafe { syscall::close(number as RawFd) };
        }
        #[cfg(not(unix))]
        let _ = (was, taken, number);
    }
}
