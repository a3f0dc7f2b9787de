//! CRC32C (Castagnoli, RFC 3720 appendix B.4), computed while the bytes are copied.
//!
//! A checksum followed by a copy reads a payload twice. [`Crc32c::copy`] does both in one pass, at the cost
//! of the copy alone. Measured: M-crc-1.
//!
//! | kernel | instructions |
//! |---|---|
//! | `library` | those of the crate `crc-fast`; the copy is a second pass |
//! | `sse` | carry-less products in four registers, any x86-64 since 2010, and three streams of CRC32C instructions beside them |
//! | `avx2` | the same with registers of twice the width |
//! | `avx512` | the same with registers of four times the width |
//!
//! All kernels give the same sums (`kernel/tests.rs`). The fastest that the processor can run is chosen at
//! the first use.

mod kernel;

use kernel::Kernel;

/// A checksum being computed.
///
/// ```
/// let mut sum = lacuna_crc::Crc32c::new();
/// let mut payload = [0; 4];
/// sum.copy(b"12345", b"6789", &mut payload);
/// assert_eq!((sum.value(), &payload), (0xe306_9283, b"6789"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crc32c {
    /// The shift register, reflected, before the final inversion.
    register: u32,
}

impl Crc32c {
    /// The checksum of no bytes.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { register: u32::MAX }
    }

    /// Adds bytes.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.register = Kernel::chosen().update(self.register, bytes);
    }

    /// Adds the few bytes of `before`, a header, and then those of `from`, which it copies to `to`.
    ///
    /// # Panics
    /// If `to` is not as long as `from`.
    #[inline]
    pub fn copy(&mut self, before: &[u8], from: &[u8], to: &mut [u8]) {
        self.register = Kernel::chosen().copy(self.register, before, from, to);
    }

    /// As [`Crc32c::copy`], to memory that cannot be borrowed.
    ///
    /// # Safety
    /// `from.len()` bytes at `to` are valid for writes, nobody else reads or writes them during the
    /// call, and they do not overlap `from`.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn copy_to(&mut self, before: &[u8], from: &[u8], to: *mut u8) {
        // SAFETY: this function's own contract.
        self.register = unsafe { Kernel::chosen().copy_to(self.register, before, from, to) };
    }

    /// The checksum of all bytes added.
    #[inline]
    #[must_use]
    pub const fn value(self) -> u32 {
        !self.register
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

/// The checksum of `bytes`.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = Crc32c::new();
    sum.update(bytes);
    sum.value()
}
