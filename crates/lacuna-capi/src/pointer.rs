//! All uses of pointers that a C program passes.
//!
//! NULL and misaligned pointers are errors that name the argument. Other bad pointers cannot be
//! detected; this code relies on what the headers demand: a pointer points to a value of its type
//! for the length of the call.

use crate::outcome::Failure;
use lacuna::datapath::Process;
use lacuna::datapath::process::descriptors;
use std::ffi::{CStr, c_char};

/// An object that the program holds by pointer, usable only in the process that made it.
pub(crate) trait Object {
    /// The process that made it.
    fn process(&self) -> Process;
}

/// An object that the program hands back, to be used.
///
/// # Safety
/// As for [`shared`].
#[inline]
pub(crate) unsafe fn object<'a, T: Object>(
    pointer: *const T,
    name: &str,
) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    let object = unsafe { shared(pointer, name) }?;
    if object.process().is_current() { Ok(object) } else { Err(inherited(name)) }
}

#[cold]
fn inherited(name: &str) -> Failure {
    Failure::usage(format!(
        "{name} belongs to the process that this one was forked from: here it can only be freed; make a context here, or call exec"
    ))
}

/// An object that the program hands back, to be freed; `None` in a process that has inherited it.
/// There nothing of it is touched, memory included, as threads that are not there may have been in
/// the middle of changing it, and all descriptors that were inherited are closed.
///
/// # Safety
/// As for [`shared`].
pub(crate) unsafe fn to_free<'a, T: Object>(
    pointer: *const T,
    name: &str,
) -> Result<Option<&'a T>, Failure> {
    // SAFETY: the caller's promise.
    let object = unsafe { shared(pointer, name) }?;
    if object.process().is_current() {
        return Ok(Some(object));
    }
    descriptors::close_inherited();
    Ok(None)
}

/// A struct that the program fills in, or one of [`object`]s.
///
/// # Safety
/// If not NULL and aligned, `pointer` points to a live `T` that is not changed
/// during the call, but for what `T` itself allows to change.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    check(pointer, name)?;
    // SAFETY: not NULL and aligned by the line above, the rest by contract.
    Ok(unsafe { &*pointer })
}

/// An output argument.
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    /// If not NULL and aligned, `pointer` may be written to during the call.
    pub(crate) unsafe fn new(pointer: *mut T, name: &str) -> Result<Self, Failure> {
        check(pointer, name)?;
        Ok(Self(pointer))
    }

    /// The same where the program may not want it and passes NULL.
    ///
    /// # Safety
    /// As for [`Out::new`].
    pub(crate) unsafe fn optional(pointer: *mut T, name: &str) -> Result<Option<Self>, Failure> {
        if pointer.is_null() {
            return Ok(None);
        }
        // SAFETY: the caller's promise.
        unsafe { Self::new(pointer, name) }.map(Some)
    }

    /// Writes the result; the last action of a call.
    pub(crate) fn set(self, value: T) {
        // SAFETY: checked and promised in `new`; what was there before is the
        // program's plain data, which needs no drop.
        unsafe { self.0.write(value) };
    }
}

/// An array for results, of which fewer may be set.
pub(crate) struct Outs<T> {
    start: *mut T,
    capacity: usize,
}

impl<T> Outs<T> {
    /// NULL is allowed where there is no room.
    ///
    /// # Safety
    /// If not NULL and aligned, `start` may be written to over `capacity` elements
    /// during the call.
    pub(crate) unsafe fn new(start: *mut T, capacity: usize, name: &str) -> Result<Self, Failure> {
        if capacity > 0 {
            check(start, name)?;
        }
        Ok(Self { start, capacity })
    }

    /// Writes an element; `false` if there is no room for it.
    pub(crate) fn set(&self, index: usize, value: T) -> bool {
        let has_room = index < self.capacity;
        if has_room {
            // SAFETY: checked and promised in `new`, and in bounds.
            unsafe { self.start.add(index).write(value) };
        }
        has_room
    }
}

/// Copies `bytes` to where the program wants them.
///
/// # Safety
/// If not NULL, `into` may be written to over the length of `bytes`.
pub(crate) unsafe fn copy_out(bytes: &[u8], into: *mut u8, name: &str) -> Result<(), Failure> {
    check(into, name)?;
    // SAFETY: by contract; `bytes` is this library's own memory.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into, bytes.len()) };
    Ok(())
}

/// Bytes of the program's, which may be none at all: then NULL is as good.
///
/// # Safety
/// If not NULL, `from` may be read over `len` bytes, which nobody changes.
pub(crate) unsafe fn bytes<'a>(
    from: *const u8,
    len: usize,
    name: &str,
) -> Result<&'a [u8], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    let start = start(from.cast_mut(), len, name)?;
    // SAFETY: by contract, and no longer than a slice may be.
    Ok(unsafe { std::slice::from_raw_parts(start, len) })
}

/// The start of a buffer of `len` bytes that is used after the call.
pub(crate) fn start(buffer: *mut u8, len: usize, name: &str) -> Result<*mut u8, Failure> {
    check(buffer, name)?;
    if len > isize::MAX as usize || (buffer as usize).checked_add(len).is_none() {
        return Err(Failure::usage(format!("{len} bytes at {name}: more than there can be")));
    }
    Ok(buffer)
}

/// Copies `len` bytes that the program points to.
///
/// # Safety
/// If not NULL, `from` may be read over `len` bytes.
pub(crate) unsafe fn copy_in(from: *const u8, len: usize, name: &str) -> Result<Vec<u8>, Failure> {
    check(from, name)?;
    // SAFETY: by contract; copied before anyone can change it.
    Ok(unsafe { std::slice::from_raw_parts(from, len) }.to_vec())
}

/// Words of the program's that a result is written to.
///
/// # Safety
/// If not NULL and aligned, `pointer` may be written to over `len` words, and
/// nobody else touches them during the call.
pub(crate) unsafe fn words<'a>(
    pointer: *mut u64,
    len: usize,
    name: &str,
) -> Result<&'a mut [u64], Failure> {
    check(pointer, name)?;
    for index in 0..len {
        // SAFETY: in bounds by contract. What the program left there may be
        // uninitialised, and a slice must not be.
        unsafe { pointer.add(index).write(0) };
    }
    // SAFETY: as above, and initialised by the loop.
    Ok(unsafe { std::slice::from_raw_parts_mut(pointer, len) })
}

/// A string of the program's.
///
/// # Safety
/// If not NULL, `text` is terminated and not changed during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    check(text, name)?;
    // SAFETY: by contract.
    let bytes = unsafe { CStr::from_ptr(text) };
    bytes.to_str().map_err(|_| Failure::usage(format!("{name} is no UTF-8 text")))
}

fn check<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::usage(format!("{name} is NULL")));
    }
    if !pointer.is_aligned() {
        let wanted = std::mem::align_of::<T>();
        return Err(Failure::usage(format!("{name} is not aligned to {wanted} bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_misaligned_pointers_are_named() {
        let words = [0u64; 2];
        let odd = words.as_ptr().wrapping_byte_add(1);
        // SAFETY: refused before they are used.
        let errors = unsafe {
            [
                shared(std::ptr::null::<u64>(), "first").map(|_| ()),
                shared(odd, "second").map(|_| ()),
                Out::new(std::ptr::null_mut::<u64>(), "third").map(|_| ()),
                text(std::ptr::null(), "fourth").map(|_| ()),
                copy_in(std::ptr::null(), 3, "fifth").map(|_| ()),
            ]
        };
        for (error, name) in errors.into_iter().zip(["first", "second", "third", "fourth", "fifth"])
        {
            let text = format!("{:?}", error.unwrap_err());
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn a_result_that_nobody_wants_is_no_error() {
        // SAFETY: NULL is allowed here.
        assert!(unsafe { Out::<u32>::optional(std::ptr::null_mut(), "x") }.unwrap().is_none());
        let mut value = 1u32;
        // SAFETY: a local variable.
        unsafe { Out::new(&raw mut value, "value") }.unwrap().set(5);
        assert_eq!(value, 5);
    }

    #[test]
    fn an_array_takes_as_many_results_as_it_has_room_for() {
        let mut values = [0u32; 3];
        // SAFETY: a local variable, of which two elements are lent.
        let outs = unsafe { Outs::new(values.as_mut_ptr(), 2, "values") }.unwrap();
        assert!(outs.set(0, 4) && outs.set(1, 5) && !outs.set(2, 6));
        assert_eq!(values, [4, 5, 0]);
        // SAFETY: NULL is refused, or not used.
        unsafe {
            assert!(Outs::<u32>::new(std::ptr::null_mut(), 1, "x").is_err());
            assert!(!Outs::<u32>::new(std::ptr::null_mut(), 0, "x").unwrap().set(0, 1));
        }
    }
}
