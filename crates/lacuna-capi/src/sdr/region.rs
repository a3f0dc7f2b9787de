//! `sdr_mr.h`: registered memory.
//!
//! There is no card that must know of memory before it can reach it. A
//! registration is a bound: sends and receives may use what lies inside, and it
//! cannot be taken back while they do.

use super::context::sdr_context;
use crate::memory::{Region, Regions};
use crate::outcome::{Failure, object, sdr_code};
use crate::pointer::{self, Out};
use crate::pool::FreeList;
use lacuna::datapath::Process;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// What the peer may do with registered memory.
#[repr(C)]
pub enum sdr_access_flags {
    /// Write to it.
    SDR_ACCESS_REMOTE_WRITE = 0,
}

/// Enumerators of `sdr_access_flags` as C hands them over: any number.
pub type sdr_access_flags_value = c_uint;

/// Registered memory.
pub struct sdr_mr {
    process: Process,
    index: usize,
    free: Arc<FreeList>,
    regions: Arc<Regions>,
    region: Mutex<Option<Arc<Region>>>,
}

impl pointer::Object for sdr_mr {
    fn process(&self) -> Process {
        self.process
    }
}

impl sdr_mr {
    fn key(&self) -> Result<u32, Failure> {
        let region = self.region.lock().unwrap_or_else(PoisonError::into_inner);
        region.as_ref().map(|region| region.key()).ok_or_else(gone)
    }
}

fn gone() -> Failure {
    Failure::usage("this memory is registered no more")
}

/// Registers length bytes at addr for sends and receives. The bytes must stay
/// allocated until sdr_mr_dereg() has succeeded, or the context was destroyed.
///
/// Returns NULL on failure. May be called from any thread.
///
/// # Safety
/// As the text says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_mr_reg(
    ctx: *mut sdr_context,
    addr: *mut c_void,
    length: usize,
    access_flags: sdr_access_flags_value,
) -> *mut sdr_mr {
    object(|| {
        // SAFETY: the caller's promise.
        let context = unsafe { pointer::object(ctx, "ctx") }?;
        if access_flags != sdr_access_flags::SDR_ACCESS_REMOTE_WRITE as c_uint {
            return Err(Failure::usage(format!("access flags {access_flags:#x} are unknown")));
        }
        let region = context.regions.add(addr as u64, length as u64)?;
        let empty = |index, free| sdr_mr {
            process: Process::current(),
            index,
            free,
            regions: context.regions.clone(),
            region: Mutex::new(None),
        };
        let registered = context.registered.take(empty).ok_or_else(gone)?;
        *registered.region.lock().unwrap_or_else(PoisonError::into_inner) = Some(region);
        Ok(std::ptr::from_ref(registered).cast_mut())
    })
}

/// Ends a registration. SDR_RETRY while a posted receive or a send that is not
/// complete uses it. May be called from any thread. In a child process that has
/// inherited it, see sdr_context_destroy().
///
/// # Safety
/// The registration's context was not destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_mr_dereg(mr: *mut sdr_mr) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let Some(registered) = unsafe { pointer::to_free(mr, "mr") }? else { return Ok(()) };
        let mut slot = registered.region.lock().unwrap_or_else(PoisonError::into_inner);
        let region = slot.as_ref().ok_or_else(gone)?;
        if !registered.regions.remove(region) {
            return Err(Failure::retry());
        }
        *slot = None;
        registered.free.put(registered.index);
        Ok(())
    })
}

/// The key that names the memory in work requests. May be called from any thread.
///
/// # Safety
/// The registration's context was not destroyed; lkey points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_mr_lkey_get(mr: *mut sdr_mr, lkey: *mut u32) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let registered = unsafe { pointer::object(mr, "mr") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(lkey, "lkey") }?;
        out.set(registered.key()?);
        Ok(())
    })
}

/// The same key. Peers need none: the n-th send lands in the n-th posted receive.
/// May be called from any thread.
///
/// # Safety
/// The registration's context was not destroyed; rkey points to a uint32_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sdr_mr_rkey_get(mr: *mut sdr_mr, rkey: *mut u32) -> c_int {
    sdr_code(|| {
        // SAFETY: the caller's promise.
        let registered = unsafe { pointer::object(mr, "mr") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(rkey, "rkey") }?;
        out.set(registered.key()?);
        Ok(())
    })
}
