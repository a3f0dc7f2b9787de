//! System calls of fork detection: a word that is zero in each child, the identity of a descriptor's
//! file, and closing a descriptor by number.

#![allow(unsafe_code)]

#[cfg(unix)]
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;

/// A word that the kernel zeroes in each child process; `None` where the system has none.
#[cfg(not(target_os = "linux"))]
pub(super) fn wiped_word() -> Option<&'static AtomicU64> {
    None
}

/// As above.
#[cfg(target_os = "linux")]
#[inline]
pub(super) fn wiped_word() -> Option<&'static AtomicU64> {
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, Ordering};

    /// Null until the first call. No lock guards it: a child may inherit a lock that is held by a
    /// thread that does not exist there.
    static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
    /// Marks a system that has no such memory.
    static NONE: AtomicU64 = AtomicU64::new(0);

    #[cold]
    fn make() -> *mut AtomicU64 {
        let bytes = size_of::<AtomicU64>();
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory at an address that the system chooses; no memory of anyone is touched.
        let page = unsafe { libc::mmap(ptr::null_mut(), bytes, access, kind, -1, 0) };
        let none = ptr::from_ref(&NONE).cast_mut();
        // SAFETY: of the page above, which is private and anonymous, as this advice needs.
        let is_wiped = page != libc::MAP_FAILED
            && unsafe { libc::madvise(page, bytes, libc::MADV_WIPEONFORK) } == 0;
        let made = if is_wiped { page.cast() } else { none };
        let first =
            WORD.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        if page != libc::MAP_FAILED && (first.is_err() || !is_wiped) {
            // SAFETY: made above, and nobody has got to know it.
            unsafe { libc::munmap(page, bytes) };
        }
        first.map_or_else(|known| known, |_| made)
    }

    let known = WORD.load(Ordering::Acquire);
    let word = if known.is_null() { make() } else { known };
    // SAFETY: a page of its own that is never unmapped and begins with zeros, or a static; both are
    // aligned, and changed as atomics only.
    (!ptr::eq(word, &raw const NONE)).then(|| unsafe { &*word })
}

/// The file behind a descriptor: file system and inode. `None` if the descriptor is closed.
#[cfg(unix)]
pub(super) fn identity(number: RawFd) -> Option<(u64, u64)> {
    // SAFETY: a stat is integers, for all of which zero is a value.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the stat outlives the call; that the number may be no descriptor's is an error.
    let result = unsafe { libc::fstat(number, &raw mut stat) };
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    (result == 0).then_some((stat.st_dev as u64, stat.st_ino as u64))
}

/// Closes a descriptor.
///
/// # Safety
/// Nothing in this process uses it any more.
#[cfg(unix)]
pub(super) unsafe fn close(number: RawFd) {
    // SAFETY: no memory is touched, and by contract nobody's descriptor.
    unsafe { libc::close(number) };
}
