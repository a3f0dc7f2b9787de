//! Software prefetch: asks for the cache lines of a value before they are needed.
//!
//! With a thousand queue pairs the state of none is in a cache when its turn comes, and the processor
//! would wait for each line of it. Whoever walks a list of queue pairs or messages therefore asks for
//! the element one or two ahead. The checksum asks for payloads itself (`lacuna-crc`).
//! Measured: M-place-1.

#![allow(unsafe_code, reason = "the intrinsic takes a pointer, though it reads nothing")]

/// Bytes of a cache line, or fewer: asking twice for a line does no harm.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Asks for all of `value` to be brought into the cache. A hint: it changes nothing that a program
/// can see.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn prefetch_value<T>(value: &T) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    let start = std::ptr::from_ref(value).cast::<i8>();
    // Counted from the line that it begins in: it may end in one more than its size tells.
    let skipped = start.addr() % LINE_BYTES;
    for at in (0..skipped + size_of::<T>()).step_by(LINE_BYTES) {
        let line = start.wrapping_sub(skipped).wrapping_add(at);
        // SAFETY: prefetching reads nothing and never faults; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
}

/// Asks for nothing: there is no way to here.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub fn prefetch_value<T>(_value: &T) {}
