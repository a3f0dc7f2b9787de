//! Software prefetch: loads the cache lines of a value before they are needed.
//!
//! With a thousand queue pairs, the state of a queue pair has left the cache when its turn comes, and
//! the processor would wait for each of its lines. So code that walks a list of queue pairs or messages
//! prefetches the element one or two ahead. The checksum prefetches payloads itself (`lacuna-crc`);
//! encryption does not, so who encrypts and decrypts prefetches for it. Measured: M-place-1, M-secure-1.

#![allow(unsafe_code, reason = "the intrinsic takes a pointer, though it reads nothing")]

/// Bytes of a cache line or fewer: prefetching a line twice does no harm.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Prefetches all of `value` into the cache. This is a hint without visible effect.
#[inline]
pub fn prefetch_value<T>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).cast(), size_of::<T>());
}

/// Prefetches `bytes` bytes at an address into the cache, whatever is there: the address need not be valid. This is a
/// hint without visible effect.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch_at(start: *const u8, bytes: usize) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // From the start of its first line: what is not aligned may touch one line more than its size.
    let skipped = start.addr() % LINE_BYTES;
    for at in (0..skipped + bytes).step_by(LINE_BYTES) {
        let line = start.wrapping_sub(skipped).wrapping_add(at);
        // SAFETY: prefetching reads nothing and never faults; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) };
    }
}

/// Does nothing on this processor.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn prefetch_at(_start: *const u8, _bytes: usize) {}
