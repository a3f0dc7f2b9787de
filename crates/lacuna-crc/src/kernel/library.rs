//! The kernel of the crate `crc-fast`, for any processor; the copy is a second pass.

#![allow(unsafe_code)]

use crc_fast::{CrcAlgorithm, Digest};

#[inline]
pub(super) fn update(register: u32, bytes: &[u8]) -> u32 {
    if register == u32::MAX {
        // A digest carries a table of folding constants and costs some nanoseconds to set up.
        return !crc_fast::crc32_iscsi(bytes);
    }
    if bytes.is_empty() {
        return register;
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, register.into());
    digest.update(bytes);
    digest.get_state() as u32
}

/// # Safety
/// As for `Crc32c::copy_to`.
#[inline]
pub(super) unsafe fn copy_to(register: u32, before: &[u8], from: &[u8], to: *mut u8) -> u32 {
    let after = update(update(register, before), from);
    // SAFETY: this function's own contract.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    after
}
