//! Memory of the program that peers write and read by a key.
//!
//! A region belongs to no connection and keeps its context's keys alive, so it is freed by its own
//! function, which must be the last call with it. The memory is used in place: nothing is copied.

use super::context::lacuna_context;
use crate::outcome::{self, Failure, code};
use crate::pointer::{self, Out};
use lacuna::datapath::Process;
use lacuna::{Granules, Region, RegionError, RegionOptions, Rights, Window};
use std::ffi::{c_int, c_void};
use std::ops::Range;

/// Bytes of a bit of the map of what was written.
const GRANULE_BYTES: u64 = 64;

/// Memory that peers write or read by its key.
pub struct lacuna_region {
    process: Process,
    region: Region,
}

impl pointer::Object for lacuna_region {
    fn process(&self) -> Process {
        self.process
    }
}

/// A part of a region under a key of its own.
pub struct lacuna_window {
    process: Process,
    window: Window,
}

impl pointer::Object for lacuna_window {
    fn process(&self) -> Process {
        self.process
    }
}

/// What may be done with a key: a sum of these.
#[repr(C)]
pub enum lacuna_right {
    /// This program may read into the region; peers may do nothing.
    LACUNA_RIGHT_LOCAL = 1,
    /// Peers may write.
    LACUNA_RIGHT_REMOTE_WRITE = 2,
    /// Peers may read.
    LACUNA_RIGHT_REMOTE_READ = 4,
}

/// What a region keeps and allows. All zeros are the defaults.
#[repr(C)]
pub struct lacuna_region_options {
    /// A sum of enum lacuna_right; 0 is LACUNA_RIGHT_REMOTE_WRITE.
    pub rights: u32,
    /// Whether a map is kept of what peers have written. It takes 1/512 of the memory.
    pub has_validity: u8,
    /// Whether packets are refused that touch bytes which the map says are valid: each
    /// byte is written once until it was taken. The map is kept then.
    pub is_exclusive: u8,
    /// Must be 0.
    pub reserved: [u8; 2],
    /// Must be 0.
    pub more: [u64; 2],
}

pub(super) fn region_failure(error: &RegionError) -> Failure {
    let code = match error {
        RegionError::Full | RegionError::Draw => outcome::SYSTEM,
        RegionError::Range { .. } | RegionError::Unknown { .. } | RegionError::Right { .. } => {
            outcome::USAGE
        }
    };
    Failure::new(code, error.to_string())
}

fn rights_of(sum: u32) -> Result<Rights, Failure> {
    let all = [
        (lacuna_right::LACUNA_RIGHT_LOCAL, Rights::LOCAL),
        (lacuna_right::LACUNA_RIGHT_REMOTE_WRITE, Rights::REMOTE_WRITE),
        (lacuna_right::LACUNA_RIGHT_REMOTE_READ, Rights::REMOTE_READ),
    ];
    let (mut rights, mut left) = (Rights::NONE, sum);
    for (right, meant) in all {
        let right = right as u32;
        if left & right != 0 {
            rights = rights | meant;
            left &= !right;
        }
    }
    match (sum, left) {
        (0, _) => Ok(Rights::REMOTE_WRITE),
        (_, 0) => Ok(rights),
        _ => Err(Failure::usage(format!("rights {sum:#x}: must be a sum of enum lacuna_right"))),
    }
}

/// # Safety
/// If not NULL, `options` points to its struct.
unsafe fn options_of(options: *const lacuna_region_options) -> Result<RegionOptions, Failure> {
    if options.is_null() {
        return Ok(RegionOptions::default());
    }
    // SAFETY: the caller's promise.
    let options = unsafe { pointer::shared(options, "options") }?;
    if options.reserved != [0; 2] || options.more != [0; 2] {
        return Err(Failure::usage("options has reserved bytes that are not 0: zero the struct"));
    }
    Ok(RegionOptions {
        rights: rights_of(options.rights)?,
        has_validity: options.has_validity != 0,
        is_exclusive: options.is_exclusive != 0,
    })
}

impl lacuna_region {
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// A range of the region.
    pub(super) fn range(&self, offset: u64, length: u64) -> Result<Range<u64>, Failure> {
        let len = self.region.len();
        match offset.checked_add(length) {
            Some(end) if end <= len => Ok(offset..end),
            _ => Err(Failure::usage(format!("{length} bytes at {offset} of a region of {len}"))),
        }
    }

    /// Writes marks of the map as bits.
    ///
    /// # Safety
    /// `bits` points to `capacity` bytes.
    unsafe fn marks(
        &self,
        offset: u64,
        length: u64,
        bits: *mut u8,
        capacity: usize,
        read: impl FnOnce(Range<u64>) -> Option<Granules>,
    ) -> Result<(), Failure> {
        let range = self.range(offset, length)?;
        if !offset.is_multiple_of(GRANULE_BYTES) {
            return Err(Failure::usage(format!(
                "offset {offset}: must be a multiple of {GRANULE_BYTES}"
            )));
        }
        let granules = length.div_ceil(GRANULE_BYTES);
        let wanted = granules.div_ceil(8) as usize;
        if capacity < wanted {
            return Err(Failure::usage(format!(
                "{capacity} bytes at bits: {length} bytes of a region need {wanted}"
            )));
        }
        // Before marks are taken, which would be lost.
        // SAFETY: the caller's promise.
        unsafe { pointer::copy_out(&[], bits, "bits") }?;
        let marks = read(range).ok_or_else(|| {
            Failure::usage("the region keeps no map: set has_validity in its options")
        })?;
        let mut bytes = vec![0u8; wanted];
        for granule in 0..granules {
            let is_marked = marks.contains(offset + granule * GRANULE_BYTES);
            bytes[(granule / 8) as usize] |= u8::from(is_marked) << (granule % 8);
        }
        // SAFETY: the caller's promise, and no more than `capacity` bytes.
        unsafe { pointer::copy_out(&bytes, bits, "bits") }
    }
}

/// Registers length bytes of the program's memory, so that peers with the key of the
/// region may write or read them over any connection of the context that was made with
/// the setting one_sided. options may be NULL. The memory is used in place, and must be
/// there until lacuna_region_free() or lacuna_region_revoke() has returned. The program
/// may use it meanwhile, but bytes that a peer is writing only after it was told that
/// they are there: by the map (lacuna_region_take_valid()), by lacuna_wait_written(), by
/// the return of lacuna_region_revoke(), or by the peer in a message that it sent after
/// its write had ended. May be called from any thread.
///
/// # Safety
/// context was not freed; memory points to length bytes that are there and used as the
/// text says until then; options is NULL or points to its struct; region points to a
/// pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_region_new(
    context: *mut lacuna_context,
    memory: *mut c_void,
    length: usize,
    options: *const lacuna_region_options,
    region: *mut *mut lacuna_region,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { pointer::object(context, "context") }?;
        // SAFETY: the caller's promise.
        let options = unsafe { options_of(options) }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(region, "region") }?;
        let memory = pointer::start(memory.cast::<u8>(), length, "memory")?;
        // SAFETY: the caller's promise; `region` is never read or written through its
        // methods, so after a revoke nobody touches the memory.
        let made = unsafe { context.context().register_raw(memory, length, options) };
        let region = made.map_err(|error| region_failure(&error))?;
        out.set(Box::into_raw(Box::new(lacuna_region { process: Process::current(), region })));
        Ok(())
    })
}

/// The key, to be told to peers: 32 random bits. May be called from any thread.
///
/// # Safety
/// region was not freed; key points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_region_key(region: *mut lacuna_region, key: *mut u32) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { pointer::object(region, "region") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(key, "key") }?;
        out.set(region.region.key());
        Ok(())
    })
}

/// What peers have written of length bytes from offset on since it was last taken: bit
/// i % 8 of byte i / 8 of bits says that the 64 bytes at offset + 64 * i were written
/// whole; the last may be fewer at the end of the region. offset must be a multiple of
/// 64, and bits has room for a bit per 64 bytes, rounded up; else LACUNA_USAGE, as for a
/// region without has_validity. May be called from any thread.
///
/// # Safety
/// region was not freed; bits points to capacity bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_region_valid(
    region: *mut lacuna_region,
    offset: u64,
    length: u64,
    bits: *mut u8,
    capacity: usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { pointer::object(region, "region") }?;
        let read = |range| region.region.valid(range);
        // SAFETY: the caller's promise.
        unsafe { region.marks(offset, length, bits, capacity, read) }
    })
}

/// As lacuna_region_valid(), and marks all that as not written: of two threads that take
/// one gets each mark, and in an exclusive region peers may write there again.
///
/// # Safety
/// As for lacuna_region_valid().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_region_take_valid(
    region: *mut lacuna_region,
    offset: u64,
    length: u64,
    bits: *mut u8,
    capacity: usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { pointer::object(region, "region") }?;
        let read = |range| region.region.take_valid(range);
        // SAFETY: the caller's promise.
        unsafe { region.marks(offset, length, bits, capacity, read) }
    })
}

/// Revokes the key and those of all windows: when it returns, no peer writes or reads
/// the memory any more. Again it is no error. The region remains, without use, until it
/// is freed. May be called from any thread.
///
/// # Safety
/// region was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_region_revoke(region: *mut lacuna_region) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { pointer::object(region, "region") }?;
        region.region.revoke();
        Ok(())
    })
}

/// Frees a region. NULL is allowed. Its key and those of its windows are revoked: when
/// it returns, nobody but the program touches the memory. Regions are freed by this
/// call alone, before or after their context and their windows. Must be the last call
/// with the region. In a child process that has inherited it, see lacuna_context_free().
///
/// # Safety
/// If not NULL, region was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_region_free(region: *mut lacuna_region) {
    let _ = code(|| {
        // SAFETY: the caller's promise.
        if !region.is_null() && unsafe { pointer::to_free(region, "region") }?.is_some() {
            // SAFETY: made by `lacuna_region_new`, and this is the last call with it.
            let region = unsafe { Box::from_raw(region) };
            // Windows may hold the registration.
            region.region.revoke();
        }
        Ok(())
    });
}

/// Gives length bytes of a region from offset on a key of their own, with rights of its
/// own: a sum of enum lacuna_right, where 0 is LACUNA_RIGHT_REMOTE_WRITE. Addresses
/// under the key count from offset. It ends with the window, or with the region's key.
/// May be called from any thread.
///
/// # Safety
/// region was not freed; window points to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_region_window(
    region: *mut lacuna_region,
    offset: u64,
    length: u64,
    rights: u32,
    window: *mut *mut lacuna_window,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let region = unsafe { pointer::object(region, "region") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(window, "window") }?;
        let rights = rights_of(rights)?;
        let made = region.region.window(region.range(offset, length)?, rights);
        let window = made.map_err(|error| region_failure(&error))?;
        out.set(Box::into_raw(Box::new(lacuna_window { process: Process::current(), window })));
        Ok(())
    })
}

/// The window's key, to be told to peers. May be called from any thread.
///
/// # Safety
/// window was not freed; key points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_window_key(window: *mut lacuna_window, key: *mut u32) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let window = unsafe { pointer::object(window, "window") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(key, "key") }?;
        out.set(window.window.key());
        Ok(())
    })
}

/// Frees a window. NULL is allowed. Its key is revoked: when it returns, no peer writes
/// or reads under it any more. Must be the last call with the window. In a child process
/// that has inherited it, see lacuna_context_free().
///
/// # Safety
/// If not NULL, window was not freed before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_window_free(window: *mut lacuna_window) {
    let _ = code(|| {
        // SAFETY: the caller's promise.
        if !window.is_null() && unsafe { pointer::to_free(window, "window") }?.is_some() {
            // SAFETY: made by `lacuna_region_window`, and this is the last call with it.
            drop(unsafe { Box::from_raw(window) });
        }
        Ok(())
    });
}
