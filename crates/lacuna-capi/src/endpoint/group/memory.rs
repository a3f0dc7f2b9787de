//! The program's memory as an operation of a group uses it: in place, without a copy.
//!
//! The rule: from the call that starts the operation until the one that says it is over (or that frees or forms
//! again the group) the input does not change and the output is not touched by the program. When
//! [`lacuna_collective::Operation`] has given its outcome, or the group was dropped, nothing of the library uses them.

use crate::outcome::Failure;
use crate::pointer;
use lacuna_collective::Buffers;
use std::ffi::c_void;
use std::marker::PhantomData;

/// Memory of the program for one operation.
pub(super) struct Lent {
    input: Bytes,
    output: Bytes,
}

/// Some bytes; none, where nothing is needed.
#[derive(Clone, Copy)]
struct Bytes {
    start: *mut u8,
    length: usize,
    /// They are the program's: no other type owns them.
    _program: PhantomData<*mut u8>,
}

impl Bytes {
    const NONE: Self =
        Self { start: std::ptr::NonNull::dangling().as_ptr(), length: 0, _program: PhantomData };

    fn new(start: *mut c_void, length: usize, name: &str) -> Result<Self, Failure> {
        if length == 0 {
            return Ok(Self::NONE);
        }
        let start = pointer::start(start.cast(), length, name)?;
        Ok(Self { start, length, _program: PhantomData })
    }

    fn overlaps(self, other: Self) -> bool {
        let (start, other_start) = (self.start as usize, other.start as usize);
        let is_any = self.length > 0 && other.length > 0;
        is_any && start < other_start + other.length && other_start < start + self.length
    }
}

// SAFETY: bytes that nobody else changes while they are lent, by `Lent::new`'s contract.
unsafe impl Send for Lent {}

impl Lent {
    /// Lends `input_bytes` at `input` and `output_bytes` at `output`; where there are none the pointer does not count.
    ///
    /// # Safety
    /// Until this is dropped the input may be read and nobody changes it, and the output may be read and written and
    /// nobody else touches it.
    pub(super) unsafe fn new(
        (input, input_bytes): (*const c_void, usize),
        (output, output_bytes): (*mut c_void, usize),
    ) -> Result<Self, Failure> {
        let input = Bytes::new(input.cast_mut(), input_bytes, "input")?;
        let output = Bytes::new(output, output_bytes, "output")?;
        if input.overlaps(output) {
            return Err(Failure::usage(
                "input and output overlap: pass NULL as input for an operation in place",
            ));
        }
        Ok(Self { input, output })
    }
}

impl Buffers for Lent {
    fn input(&self) -> &[u8] {
        // SAFETY: readable and unchanged while this lives, by `new`'s contract.
        unsafe { std::slice::from_raw_parts(self.input.start, self.input.length) }
    }

    fn output(&self) -> &[u8] {
        // SAFETY: readable while this lives, and written by nobody but through `split`, which borrows this mutably.
        // What the program left there came over the language border, so it counts as initialised.
        unsafe { std::slice::from_raw_parts(self.output.start, self.output.length) }
    }

    fn split(&mut self) -> (&[u8], &mut [u8]) {
        // SAFETY: as above; the two do not overlap, by `new`.
        unsafe {
            (
                std::slice::from_raw_parts(self.input.start, self.input.length),
                std::slice::from_raw_parts_mut(self.output.start, self.output.length),
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_where_it_lies_and_must_not_overlap() {
        let (input, mut output) = ([1u8, 2, 3], [0u8; 4]);
        // SAFETY: both outlive what uses them.
        let mut lent =
            unsafe { Lent::new((input.as_ptr().cast(), 3), (output.as_mut_ptr().cast(), 4)) }
                .unwrap();
        let (from, to) = lent.split();
        to[..3].copy_from_slice(from);
        assert_eq!((lent.input(), lent.output()), (&[1, 2, 3][..], &[1, 2, 3, 0][..]));
        assert_eq!(output, [1, 2, 3, 0]);
        let start = output.as_mut_ptr();
        for (at, fits) in [(0, false), (1, false), (2, true)] {
            let from = start.wrapping_add(at).cast_const().cast();
            // SAFETY: refused, or not used.
            let lent = unsafe { Lent::new((from, 2), (start.cast(), 2)) };
            assert_eq!(lent.is_ok(), fits, "{at}");
        }
        // SAFETY: nothing is used, or refused.
        unsafe {
            assert!(Lent::new((std::ptr::null(), 0), (std::ptr::null_mut(), 0)).is_ok());
            assert!(Lent::new((std::ptr::null(), 1), (std::ptr::null_mut(), 0)).is_err());
        }
    }
}
