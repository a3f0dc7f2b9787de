//! Asking for memory ahead of its use: a queue pair among many is in no cache, and each of its
//! lines would be waited for by itself. (Payloads are asked for by the checksum, `lacuna-crc`.)

#![allow(unsafe_code)]

/// Bytes of a cache line, or less: more requests than needed do no harm.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// Asks for all of `value` to be brought into the cache. A hint: it changes nothing that a program
/// can see.
#[inline]
pub(crate) fn prefetch_value<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for at in (0..size_of::<T>()).step_by(LINE_BYTES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let line = std::ptr::from_ref(value).cast::<i8>().wrapping_add(at);
        // SAFETY: prefetching reads nothing and never faults; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
