//! Asking for memory ahead of its use: a queue pair among many is in no cache, nor are its messages,
//! and each of their lines would be waited for by itself. (Payloads are asked for by the checksum,
//! `lacuna-crc`.) Messages are asked for one or two ahead where they are walked in order: when they
//! are placed, acknowledged, taken back by the application, sent.
//!
//! With a thousand queue pairs and messages of 256 KiB this takes 22 ns off a packet, of 110 that it
//! costs more than with one. Tried without effect beyond 5 ns: to ask for the reference count in front
//! and for who is next before sockets are read; writers, key and geometry of the table beside the
//! worker's own record of the queue pair; huge pages for the heap; turns of two or three bundles; the
//! queue pair at the application's calls; a list of where each queue pair lies, which stays in the
//! caches (the stall where it is asked for, 2 us a message, goes, and comes back elsewhere); whose the
//! packets of the next coalesced piece are, while those of one are placed. What is left is spread
//! over some 150 lines of both ends, 90 of them the queue pair's own, and a fifth is a kernel piece
//! more per message. To fill that piece with the first packets of who is next makes it worse, 1.09 to
//! 1.12: those are two visits more.
//!
//! With 16 messages of 64 KiB on each, asking for messages takes 27 ns off a packet, of 165 (both:
//! `lacuna-bench scale`, old and new in turns).

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
