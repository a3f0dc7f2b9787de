//! The transform of one block, by instruction set.
//!
//! | engine | idea |
//! |---|---|
//! | `scalar` | radix 2, stage by stage: the reference |
//! | `avx2` | 8 elements a register, up to radix 8 in registers |
//! | `avx512` | 16 elements a register, up to radix 16 in registers |
//! | `neon` | 4 elements a register, up to radix 16 in registers |
//!
//! The stages' order is fixed: elements 1 apart are added and subtracted first, then those 2 apart, and so
//! on; the scale is applied last. So all engines compute the same bits (NaN payloads excepted), and ranks
//! on different processors agree.
//!
//! Unsafe code is in the files of the vector engines and in `vector.rs`. A value of an engine's type
//! proves that this processor has its instructions.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod scalar;
#[cfg(test)]
mod tests;
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little")))]
mod vector;

use super::layout::{BLOCK_MAX, Runs};
use std::fmt;
use std::sync::OnceLock;

/// The environment variable that forces an engine of the transform.
pub const ENGINE_VARIABLE: &str = "LACUNA_HADAMARD_ENGINE";

/// Words that hold a sign for each element of the largest block.
pub(super) const SIGN_WORDS: usize = BLOCK_MAX / 64;

/// An engine that this processor can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engine(Inner);

/// The engines by name, slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// Plain code for any processor: the reference.
    Scalar,
    /// 8 elements a register, with FMA.
    Avx2,
    /// 16 elements a register.
    Avx512,
    /// 4 elements a register.
    Neon,
}

/// Why an engine is not available. Retrying does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// [`ENGINE_VARIABLE`] holds no engine's name.
    #[error("{ENGINE_VARIABLE}=\"{name}\" is no engine: unset it or use {}", names())]
    Unknown {
        /// What the variable holds.
        name: String,
    },
    /// [`ENGINE_VARIABLE`] names an engine that this processor cannot run.
    #[error(
        "{ENGINE_VARIABLE}={kind} needs instructions that this processor lacks: \
         unset it to have the best one chosen"
    )]
    Unsupported {
        /// The engine.
        kind: EngineKind,
    },
}

/// When the signs are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Signs, then the transform.
    Encode,
    /// The transform, then signs.
    Decode,
}

/// A transform of one block of f32, in the processor's byte order and with any alignment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Task<'a> {
    /// Elements are 2 to the power of this, at most [`BLOCK_MAX`].
    pub(super) log2: u32,
    pub(super) way: Way,
    /// Where the input's elements lie.
    pub(super) from: Runs,
    /// Where the output's elements lie.
    pub(super) to: Runs,
    /// Bit e negates element e.
    pub(super) signs: &'a [u64; SIGN_WORDS],
    /// Factor of all outputs, not 0.
    pub(super) scale: f32,
}

/// Memory for what is between two passes over a block.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Scratch(pub(super) [f32; BLOCK_MAX]);

impl Scratch {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self([0.0; BLOCK_MAX]))
    }
}

/// The operations of an engine. The task's elements are within the slices.
trait Kernel: Copy {
    /// Transforms a block. Encoding, returns whether all outputs are finite.
    fn transform(self, task: &Task<'_>, from: &[u8], to: &mut [u8], scratch: &mut Scratch) -> bool;

    /// Transforms all of the data, whose length is a power of two, and scales it.
    fn transform_in_place(self, data: &mut [f32], scale: f32);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    Scalar(scalar::Scalar),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    Neon(neon::Neon),
}

/// Calls an engine's kernel.
macro_rules! each {
    ($engine:expr, $kernel:ident => $call:expr) => {
        match $engine.0 {
            Inner::Scalar($kernel) => $call,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx2($kernel) => $call,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx512($kernel) => $call,
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Inner::Neon($kernel) => $call,
        }
    };
}

impl Engine {
    /// The engine; `None` if this processor lacks its instructions.
    pub fn new(kind: EngineKind) -> Option<Self> {
        let inner = match kind {
            EngineKind::Scalar => Some(Inner::Scalar(scalar::Scalar)),
            #[cfg(target_arch = "x86_64")]
            EngineKind::Avx2 => avx2::Avx2::new().map(Inner::Avx2),
            #[cfg(target_arch = "x86_64")]
            EngineKind::Avx512 => avx512::Avx512::new().map(Inner::Avx512),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            EngineKind::Neon => neon::Neon::new().map(Inner::Neon),
            #[allow(unreachable_patterns, reason = "where all kinds are built, nothing is left")]
            _ => None,
        };
        inner.map(Self)
    }

    /// The engine that [`ENGINE_VARIABLE`] names, else the fastest that this processor can run. The choice
    /// is made once per process.
    pub fn chosen() -> Result<Self, EngineError> {
        static CHOICE: OnceLock<Result<Engine, EngineError>> = OnceLock::new();
        CHOICE
            .get_or_init(|| match std::env::var_os(ENGINE_VARIABLE) {
                None => Ok(Self::fastest()),
                Some(name) => Self::named(&name.to_string_lossy()),
            })
            .clone()
    }

    /// The fastest that this processor can run, regardless of the environment.
    pub fn fastest() -> Self {
        Self::available().last().unwrap_or(Self(Inner::Scalar(scalar::Scalar)))
    }

    /// All that this processor can run, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        EngineKind::ALL.iter().copied().filter_map(Self::new)
    }

    /// The engine's kind.
    pub fn kind(&self) -> EngineKind {
        match self.0 {
            Inner::Scalar(_) => EngineKind::Scalar,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx2(_) => EngineKind::Avx2,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx512(_) => EngineKind::Avx512,
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Inner::Neon(_) => EngineKind::Neon,
        }
    }

    /// Transforms all of the data as one block, and multiplies it with the scale (1/sqrt(n) makes the
    /// transform orthonormal and its own inverse). The block may be as large as memory.
    ///
    /// # Panics
    /// If the length is no power of two.
    pub fn transform_in_place(&self, data: &mut [f32], scale: f32) {
        assert!(data.len().is_power_of_two(), "{} elements are no power of two", data.len());
        each!(self, kernel => kernel.transform_in_place(data, scale));
    }

    /// Transforms a block. Encoding, returns whether all outputs are finite.
    ///
    /// # Panics
    /// If an element is outside of the slices, or a block of several elements has runs of none.
    pub(super) fn transform(
        self,
        task: &Task<'_>,
        from: &[u8],
        to: &mut [u8],
        scratch: &mut Scratch,
    ) -> bool {
        assert!(task.log2 <= BLOCK_MAX.ilog2());
        let last = (1 << task.log2) - 1;
        assert!(task.from.place(last) < from.len() / 4 && task.to.place(last) < to.len() / 4);
        each!(self, kernel => kernel.transform(task, from, to, scratch))
    }

    /// Elements of a register: blocks may be loaded from and stored to runs of as many.
    pub(super) fn lanes(self) -> usize {
        match self.kind() {
            EngineKind::Scalar => 1,
            EngineKind::Neon => 4,
            EngineKind::Avx2 => 8,
            EngineKind::Avx512 => 16,
        }
    }

    fn named(name: &str) -> Result<Self, EngineError> {
        let kind = (EngineKind::ALL.iter().copied())
            .find(|kind| kind.name() == name)
            .ok_or_else(|| EngineError::Unknown { name: name.to_owned() })?;
        Self::new(kind).ok_or(EngineError::Unsupported { kind })
    }
}

impl EngineKind {
    /// All, slowest first.
    pub const ALL: &[Self] = &[Self::Scalar, Self::Avx2, Self::Avx512, Self::Neon];

    /// The name that [`ENGINE_VARIABLE`] takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

fn names() -> String {
    EngineKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
}
