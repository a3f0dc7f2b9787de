//! Maps of messages that came with gaps: which packets did, or which bytes.
//!
//! A map is plain data of its own: it has no parent and keeps none alive. Packets of connections have one length each,
//! so their map is a bit for each; segments of datagrams have any, so theirs is a list of ranges.

use crate::outcome::{Failure, code};
use crate::pointer::{self, Out};
use lacuna::PacketMap;
use std::ffi::c_int;
use std::ops::Range;

/// What of a message came that came with gaps.
pub struct lacuna_map {
    came: Came,
}

enum Came {
    Packets(PacketMap),
    /// Ranges of bytes, disjoint and in order, of a message of so many.
    Bytes(Vec<Range<u64>>, u64),
}

/// Bytes of a buffer.
#[repr(C)]
pub struct lacuna_range {
    /// The first byte, from the start of the buffer.
    pub offset: u64,
    /// How many.
    pub length: u64,
}

impl lacuna_map {
    /// The map of a message that came with gaps; `None` if all of it came.
    pub(super) fn of(packets: PacketMap, is_complete: bool) -> Option<Box<Self>> {
        (!is_complete).then(|| Box::new(Self { came: Came::Packets(packets) }))
    }

    /// The same of a message of `length` bytes of which these ranges came, disjoint and in order.
    pub(super) fn of_ranges(ranges: Vec<Range<u64>>, length: u64) -> Box<Self> {
        Box::new(Self { came: Came::Bytes(ranges, length) })
    }

    /// The gaps, in order.
    fn gaps(&self) -> Vec<Range<u64>> {
        match &self.came {
            Came::Packets(packets) => {
                packets.gaps().map(|gap| gap.start as u64..gap.end as u64).collect()
            }
            Came::Bytes(ranges, length) => between(ranges, *length),
        }
    }

    /// What came, in order.
    fn ranges(&self) -> Vec<Range<u64>> {
        match &self.came {
            Came::Packets(packets) => {
                packets.ranges().map(|range| range.start as u64..range.end as u64).collect()
            }
            Came::Bytes(ranges, _) => ranges.clone(),
        }
    }

    /// As C has it: NULL if all came.
    pub(super) fn into_raw(map: Option<Box<Self>>) -> *mut Self {
        map.map_or(std::ptr::null_mut(), Box::into_raw)
    }

    /// Gives a map to a program, if it wants one.
    pub(super) fn give(map: Option<Box<Self>>, out: Option<Out<*mut Self>>) {
        if let Some(out) = out {
            out.set(Self::into_raw(map));
        }
    }
}

/// What is between ranges, which are disjoint and in order, from 0 to `end`.
fn between(ranges: &[Range<u64>], end: u64) -> Vec<Range<u64>> {
    let mut next = 0;
    let mut others = Vec::new();
    for range in ranges.iter().cloned().chain(std::iter::once(end..end)) {
        if next < range.start {
            others.push(next..range.start);
        }
        next = range.end;
    }
    others
}

/// Gives ranges to a program, as many as it has room for, and their number.
///
/// # Safety
/// `into` points to `capacity` structs; `count` is NULL or points to a size.
unsafe fn give(
    ranges: &[Range<u64>],
    into: *mut lacuna_range,
    capacity: usize,
    count: *mut usize,
    name: &str,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    let count = unsafe { Out::optional(count, "count") }?;
    // SAFETY: the caller's promise.
    let into = unsafe { pointer::Outs::new(into, capacity, name) }?;
    for (at, range) in ranges.iter().enumerate() {
        into.set(at, lacuna_range { offset: range.start, length: range.end - range.start });
    }
    if let Some(count) = count {
        count.set(ranges.len());
    }
    Ok(())
}

/// The map as bits: packet i is bit i % 8 of byte i / 8, and begins at byte i *
/// packet_bytes of the buffer (of struct lacuna_ended or lacuna_written). Writes as
/// many bytes as fit; num_bytes gets the number of all, and may be NULL. bits may be
/// NULL if capacity is 0. LACUNA_USAGE for the map of a datagram, whose packets have no
/// common length. May be called from any thread.
///
/// # Safety
/// map was not freed; bits points to capacity bytes; num_bytes is NULL or points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_map_packets(
    map: *const lacuna_map,
    bits: *mut u8,
    capacity: usize,
    num_bytes: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let map = unsafe { pointer::shared(map, "map") }?;
        let Came::Packets(packets) = &map.came else {
            return Err(Failure::usage("a datagram's map has no packets: use lacuna_map_ranges()"));
        };
        // SAFETY: the caller's promise.
        let count = unsafe { Out::optional(num_bytes, "num_bytes") }?;
        let all = packets.len().div_ceil(8);
        let byte = |at: usize| {
            (0..8).fold(0, |byte, bit| byte | u8::from(packets.has(8 * at + bit)) << bit)
        };
        let bytes: Vec<u8> = (0..all.min(capacity)).map(byte).collect();
        if capacity > 0 {
            // SAFETY: the caller's promise, and no more than `capacity` bytes.
            unsafe { pointer::copy_out(&bytes, bits, "bits") }?;
        }
        if let Some(count) = count {
            count.set(all);
        }
        Ok(())
    })
}

/// The gaps in order, as bytes of the buffer: up to the end of the message, or of the
/// buffer if the message's end did not come. Writes as many as fit; count gets the
/// number of all, and may be NULL. gaps may be NULL if capacity is 0. May be called
/// from any thread.
///
/// # Safety
/// map was not freed; gaps points to capacity structs; count is NULL or points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_map_gaps(
    map: *const lacuna_map,
    gaps: *mut lacuna_range,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let all = unsafe { pointer::shared(map, "map") }?.gaps();
        // SAFETY: the caller's promise.
        unsafe { give(&all, gaps, capacity, count, "gaps") }
    })
}

/// What came, in order, as bytes of the buffer: the fewest ranges. The rest as
/// lacuna_map_gaps().
///
/// # Safety
/// map was not freed; ranges points to capacity structs; count is NULL or points to a
/// size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_map_ranges(
    map: *const lacuna_map,
    ranges: *mut lacuna_range,
    capacity: usize,
    count: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let all = unsafe { pointer::shared(map, "map") }?.ranges();
        // SAFETY: the caller's promise.
        unsafe { give(&all, ranges, capacity, count, "ranges") }
    })
}

/// Frees a map. NULL is allowed. Must be the last call with it. A map needs nothing
/// else: it may be freed after its connection, and in a child process (fork).
///
/// # Safety
/// If not NULL, map was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_map_free(map: *mut lacuna_map) {
    let _ = code(|| {
        if !map.is_null() {
            // SAFETY: the caller's promise.
            unsafe { pointer::shared(map, "map") }?;
            // SAFETY: made by `into_raw`, and this is the last call with it.
            drop(unsafe { Box::from_raw(map) });
        }
        Ok(())
    });
}
