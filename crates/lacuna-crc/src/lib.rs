//! CRC32C (Castagnoli, RFC 3720 appendix B.4), as the trailer of a packet needs it: over bytes that
//! are read anyway, because they are copied to where they belong.
//!
//! Who sums a payload and copies it afterwards reads it twice. [`Crc32c::copy`] does both in one
//! pass, which costs what the copy costs: on a processor with AVX2 and carry-less products of 256 bits
//! (Zen 3) 13 GB/s out of the second-level cache into memory, as a receiver does it, where a checksum
//! and a copy one after the other make 7; and 15 GB/s out of memory into the cache, as a sender does.
//!
//! | engine | what it is |
//! |---|---|
//! | `library` | `crc-fast`'s, whatever the processor has; the copy is a second pass |
//! | `sse` | carry-less products of four registers, any x86-64 since 2010, and three streams of words beside them |
//! | `avx2` | the same, of twice the width |
//! | `avx512` | of four times the width |
//!
//! All engines give the same sums (`engine/tests.rs`). The fastest that the processor can run is
//! chosen at the first use.

mod engine;

use engine::Engine;

/// A checksum under way.
///
/// ```
/// let mut sum = lacuna_crc::Crc32c::new();
/// let mut payload = [0; 4];
/// sum.copy(b"12345", b"6789", &mut payload);
/// assert_eq!((sum.value(), &payload), (0xe306_9283, b"6789"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Crc32c {
    /// The shift register: reflected, as it is before the last inversion.
    register: u32,
}

impl Crc32c {
    /// Of no bytes yet.
    #[inline]
    #[must_use]
    pub const fn new() -> Self {
        Self { register: u32::MAX }
    }

    /// Takes bytes in.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.register = Engine::chosen().update(self.register, bytes);
    }

    /// Takes in the few bytes of `before`, a header, and then those of `from`, which it copies.
    ///
    /// # Panics
    /// If `to` is not as long as `from`.
    #[inline]
    pub fn copy(&mut self, before: &[u8], from: &[u8], to: &mut [u8]) {
        self.register = Engine::chosen().copy(self.register, before, from, to);
    }

    /// The same to memory that cannot be borrowed.
    ///
    /// # Safety
    /// `from.len()` bytes at `to` are valid for writes, nobody else reads or writes them during the
    /// call, and they do not overlap `from`.
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn copy_to(&mut self, before: &[u8], from: &[u8], to: *mut u8) {
        // SAFETY: this function's own contract.
        self.register = unsafe { Engine::chosen().copy_to(self.register, before, from, to) };
    }

    /// The checksum of all that was taken in.
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

/// The checksum of these bytes.
#[inline]
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let mut sum = Crc32c::new();
    sum.update(bytes);
    sum.value()
}
