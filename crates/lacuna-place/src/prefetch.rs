//! Asking for memory ahead of its use: a queue pair among many is in no cache, nor are its messages,
//! and each of their lines would be waited for by itself. (Payloads are asked for by the checksum,
//! `lacuna-crc`.) Messages are asked for one or two ahead where they are walked in order: when they
//! are placed, acknowledged, taken back by the application, sent.
//!
//! With a thousand queue pairs of one message of 256 KiB each this takes 22 ns off a packet, with 16
//! messages of 64 KiB on each 27 ns (`lacuna-bench scale`, "slots spread" and "queue pairs, short", old
//! and new in turns). Tried without effect beyond 5 ns: to ask for the reference count in front and for
//! who is next before sockets are read; writers, key and geometry of the table beside the worker's own
//! record of the queue pair; a list of where each queue pair lies, which stays in the caches; huge pages
//! for the heap, but for the 16 messages; turns of two or three bundles; the queue pair at the
//! application's calls, or once more where its turn or its report comes; whose the packets of the next
//! coalesced piece are, while those of one are placed. To ask for another queue pair's lines besides,
//! twice as many in all, costs less than 1 %, so it is hardly their number. To fill the last kernel
//! piece of a message with the first packets of who is next makes it worse: those are two visits more.

#![allow(unsafe_code, reason = "the intrinsic takes a pointer, though it reads nothing")]

/// Bytes of a cache line, or less: more requests than needed do no harm.
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
