//! The kernels, one per instruction set, all with the same functions: they take a CRC register and bytes,
//! and return the register after them; `copy_to` copies the bytes, too.

#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod fold;
mod library;
#[cfg(target_arch = "x86_64")]
mod sse;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU8, Ordering};

/// A kernel that this processor can run.
///
/// Only [`Kernel::available`] makes values, so a value proves that the processor has the instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kernel(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Library = 1,
    #[cfg(target_arch = "x86_64")]
    Sse = 2,
    #[cfg(target_arch = "x86_64")]
    Avx2 = 3,
    #[cfg(target_arch = "x86_64")]
    Avx512 = 4,
}

impl Kernel {
    /// All kernels that this processor can run, the fastest last.
    pub(crate) fn available() -> impl Iterator<Item = Self> {
        let kinds = [
            Some(Kind::Library),
            #[cfg(target_arch = "x86_64")]
            sse::is_available().then_some(Kind::Sse),
            #[cfg(target_arch = "x86_64")]
            avx2::is_available().then_some(Kind::Avx2),
            #[cfg(target_arch = "x86_64")]
            avx512::is_available().then_some(Kind::Avx512),
        ];
        kinds.into_iter().flatten().map(Self)
    }

    /// The fastest kernel. The processor's features are queried once.
    #[inline]
    pub(crate) fn chosen() -> Self {
        /// A [`Kind`], or 0 before the first use.
        static CHOSEN: AtomicU8 = AtomicU8::new(0);
        match CHOSEN.load(Ordering::Relaxed) {
            #[cfg(target_arch = "x86_64")]
            4 => Self(Kind::Avx512),
            #[cfg(target_arch = "x86_64")]
            3 => Self(Kind::Avx2),
            #[cfg(target_arch = "x86_64")]
            2 => Self(Kind::Sse),
            1 => Self(Kind::Library),
            _ => {
                let fastest = Self::available().last().unwrap_or(Self(Kind::Library));
                CHOSEN.store(fastest.0 as u8, Ordering::Relaxed);
                fastest
            }
        }
    }

    /// The register after these bytes.
    #[inline]
    pub(crate) fn update(self, register: u32, bytes: &[u8]) -> u32 {
        match self.0 {
            Kind::Library => library::update(register, bytes),
            // SAFETY: the kernel proves the instructions.
            #[cfg(target_arch = "x86_64")]
            Kind::Sse => unsafe { sse::update(register, bytes) },
            // SAFETY: the kernel proves the instructions.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { avx2::update(register, bytes) },
            // SAFETY: the kernel proves the instructions.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { avx512::update(register, bytes) },
        }
    }

    /// The register after `before` and `from`, which is copied.
    #[inline]
    pub(crate) fn copy(self, register: u32, before: &[u8], from: &[u8], to: &mut [u8]) -> u32 {
        assert_eq!(from.len(), to.len(), "what is copied has room");
        // SAFETY: `to` is borrowed for writing alone, and as long as `from`.
        unsafe { self.copy_to(register, before, from, to.as_mut_ptr()) }
    }

    /// # Safety
    /// As for `Crc32c::copy_to`.
    #[inline]
    pub(crate) unsafe fn copy_to(
        self,
        register: u32,
        before: &[u8],
        from: &[u8],
        to: *mut u8,
    ) -> u32 {
        match self.0 {
            // SAFETY: this function's own contract.
            Kind::Library => unsafe { library::copy_to(register, before, from, to) },
            // SAFETY: the kernel proves the instructions; else this function's own contract.
            #[cfg(target_arch = "x86_64")]
            Kind::Sse => unsafe { sse::copy_to(register, before, from, to) },
            // SAFETY: the kernel proves the instructions; else this function's own contract.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { avx2::copy_to(register, before, from, to) },
            // SAFETY: the kernel proves the instructions; else this function's own contract.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { avx512::copy_to(register, before, from, to) },
        }
    }
}
