//! Lists of memory for the messages of datagram queue pairs: scatter and gather.

use crate::memory::Lending;
use crate::outcome::Failure;
use crate::pointer;
use lacuna::{Region, SendBuffer, Slices};
use std::ffi::c_void;

/// Parts of a list, at most: as many as an iovec of the system has.
const SLICES_MAX: usize = 1024;

/// Memory of the program, as a part of a message.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct lacuna_slice {
    /// Where it is; NULL is allowed if length is 0. Of a message that is sent it is only
    /// read.
    pub memory: *mut c_void,
    /// Bytes.
    pub length: usize,
}

/// A list that a program gives: starts and lengths.
pub(super) struct List(Vec<(*mut u8, usize)>);

impl List {
    /// Parts without bytes are left out.
    ///
    /// # Safety
    /// If not NULL, `slices` points to `count` structs.
    pub(super) unsafe fn given(slices: *const lacuna_slice, count: usize) -> Result<Self, Failure> {
        let mut parts = Vec::new();
        if count > SLICES_MAX {
            return Err(Failure::usage(format!("{count} slices: at most {SLICES_MAX}")));
        }
        if count > 0 {
            // SAFETY: the caller's promise: the first of `count`.
            unsafe { pointer::shared(slices, "slices") }?;
        }
        let mut bytes = 0usize;
        for at in 0..count {
            // SAFETY: in bounds by the caller's promise, aligned as the first.
            let lacuna_slice { memory, length } = unsafe { slices.add(at).read() };
            if length == 0 {
                continue;
            }
            parts.push((pointer::start(memory.cast(), length, "memory of a slice")?, length));
            bytes = bytes.saturating_add(length);
        }
        if bytes > u32::MAX as usize {
            return Err(Failure::usage(format!(
                "{bytes} bytes are more than a message may have, {}",
                u32::MAX
            )));
        }
        Ok(Self(parts))
    }

    /// A copy of the bytes.
    ///
    /// # Safety
    /// The parts can be read.
    pub(super) unsafe fn copied(&self) -> Result<SendBuffer, Failure> {
        let mut all = Vec::with_capacity(self.0.iter().map(|(_, length)| length).sum());
        for &(start, length) in &self.0 {
            // SAFETY: the caller's promise.
            all.extend_from_slice(unsafe { pointer::bytes(start, length, "memory of a slice") }?);
        }
        Ok(all.into())
    }

    /// Lends the bytes.
    ///
    /// # Safety
    /// The parts are readable and nobody writes to them until the lending is over.
    pub(super) unsafe fn lent(&self, lending: &Lending) -> SendBuffer {
        match self.0[..] {
            // SAFETY: the caller's promise.
            [(start, length)] => unsafe { lending.lend(start, length, None) },
            // SAFETY: the caller's promise.
            _ => unsafe { lending.lend_list(&self.0) },
        }
    }

    /// The list as memory that is written to.
    ///
    /// # Safety
    /// The parts are the library's until what the list is posted to has completed.
    pub(super) unsafe fn into_slices(self) -> Result<Slices, Failure> {
        // SAFETY: the caller's promise.
        let made = unsafe { Region::list_raw(self.0) };
        made.map_err(|error| Failure::usage(error.to_string()))
    }
}
