//! SIMD back ends ("engines"): the arithmetic over chunks, with ever wider instructions; one is chosen once
//! at run time.
//!
//! | engine | idea |
//! |---|---|
//! | `naive` | one table lookup per byte and coefficient: the reference |
//! | `portable` | Horner's rule over the coefficients' bits, plain code that compilers vectorise |
//! | `ssse3`, `avx2` | products by two 16-entry tables in registers (`pshufb`), ISA-L's way |
//! | `avx2-gfni`, `avx512-gfni` | a product is one instruction (`gf2p8affineqb`) |
//!
//! The operations are `mul`, outputs = matrix times inputs, and `xor`, output = sum of inputs; both can
//! add to the outputs instead of overwriting them. This file chooses the engine, makes the checks that
//! the engines rely on, and handles chunks of unequal length for them.
//!
//! Unsafe code is in the files of the vector engines and in `vector.rs`. A value of an engine's type
//! proves that this processor has its instructions.

/// Calls an engine's kernel. Defined before the modules that use it.
macro_rules! each {
    ($engine:expr, $kernel:ident => $call:expr) => {
        match $engine.0 {
            Inner::Naive($kernel) => $call,
            Inner::Portable($kernel) => $call,
            #[cfg(target_arch = "x86_64")]
            Inner::Ssse3($kernel) => $call,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx2($kernel) => $call,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx2Gfni($kernel) => $call,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx512Gfni($kernel) => $call,
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod affine;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_gfni;
#[cfg(target_arch = "x86_64")]
mod avx512_gfni;
mod naive;
#[cfg(target_arch = "x86_64")]
mod nibbles;
mod plan;
mod portable;
#[cfg(target_arch = "x86_64")]
mod ssse3;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vector;

use plan::Task;
pub(crate) use plan::{Matrix, Plan};
use std::fmt;
use std::ops::Range;
use std::sync::OnceLock;

/// The environment variable that forces an engine.
pub const ENGINE_VARIABLE: &str = "LACUNA_EC_ENGINE";

/// Largest number of rows that an engine keeps in registers; multiplications start at a multiple of it.
pub(crate) const ROW_GROUP: usize = 8;

/// An engine that this processor can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Engine(Inner);

/// The engines by name, slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EngineKind {
    /// Tables, byte by byte: the reference for tests.
    Naive,
    /// Plain code for any processor.
    Portable,
    /// Shuffles of 16 bytes.
    Ssse3,
    /// Shuffles of 32 bytes.
    Avx2,
    /// Affine products of 32 bytes.
    Avx2Gfni,
    /// Affine products of 64 bytes.
    Avx512Gfni,
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

/// The operations of an engine. `columns` must be within every slice, and the task's rows and columns
/// within its matrix; otherwise an engine panics.
trait Kernel: Copy {
    /// Words that a matrix of this shape takes in the engine's own layout.
    fn plan_words(self, rows: usize, columns: usize) -> usize;

    /// Writes the matrix in the engine's layout: all of `words`, which has `plan_words` words.
    fn write_plan(self, matrix: &Matrix<'_>, words: &mut [u64]);

    /// For the bytes in `columns`: output r = sum over i of matrix(first_row + r, first_column + i) times
    /// input i, added to the output if `accumulate`.
    fn mul(
        self,
        task: &Task<'_>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        columns: Range<usize>,
        accumulate: bool,
    );

    /// For the bytes in `columns`: output = sum of the inputs, added to the output if `accumulate`.
    fn xor(self, inputs: &[&[u8]], output: &mut [u8], columns: Range<usize>, accumulate: bool);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inner {
    Naive(naive::Naive),
    Portable(portable::Portable),
    #[cfg(target_arch = "x86_64")]
    Ssse3(ssse3::Ssse3),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx2Gfni(avx2_gfni::Avx2Gfni),
    #[cfg(target_arch = "x86_64")]
    Avx512Gfni(avx512_gfni::Avx512Gfni),
}

impl Engine {
    /// The engine; `None` if this processor lacks its instructions.
    pub fn new(kind: EngineKind) -> Option<Self> {
        let inner = match kind {
            EngineKind::Naive => Some(Inner::Naive(naive::Naive)),
            EngineKind::Portable => Some(Inner::Portable(portable::Portable)),
            #[cfg(target_arch = "x86_64")]
            EngineKind::Ssse3 => ssse3::Ssse3::new().map(Inner::Ssse3),
            #[cfg(target_arch = "x86_64")]
            EngineKind::Avx2 => avx2::Avx2::new().map(Inner::Avx2),
            #[cfg(target_arch = "x86_64")]
            EngineKind::Avx2Gfni => avx2_gfni::Avx2Gfni::new().map(Inner::Avx2Gfni),
            #[cfg(target_arch = "x86_64")]
            EngineKind::Avx512Gfni => avx512_gfni::Avx512Gfni::new().map(Inner::Avx512Gfni),
            #[cfg(not(target_arch = "x86_64"))]
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
        Self::available().last().unwrap_or(Self(Inner::Portable(portable::Portable)))
    }

    /// All that this processor can run, slowest first.
    pub fn available() -> impl Iterator<Item = Self> {
        EngineKind::ALL.iter().copied().filter_map(Self::new)
    }

    /// The engine's kind.
    pub fn kind(&self) -> EngineKind {
        match self.0 {
            Inner::Naive(_) => EngineKind::Naive,
            Inner::Portable(_) => EngineKind::Portable,
            #[cfg(target_arch = "x86_64")]
            Inner::Ssse3(_) => EngineKind::Ssse3,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx2(_) => EngineKind::Avx2,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx2Gfni(_) => EngineKind::Avx2Gfni,
            #[cfg(target_arch = "x86_64")]
            Inner::Avx512Gfni(_) => EngineKind::Avx512Gfni,
        }
    }

    fn named(name: &str) -> Result<Self, EngineError> {
        let kind = (EngineKind::ALL.iter().copied())
            .find(|kind| kind.name() == name)
            .ok_or_else(|| EngineError::Unknown { name: name.to_owned() })?;
        Self::new(kind).ok_or(EngineError::Unsupported { kind })
    }

    /// Output r = sum over i of plan(first_row + r, first_column + i) times input i, added to the output if
    /// `accumulate`.
    ///
    /// All slices have the same length except the last input and the last output, which may be shorter:
    /// the input counts as padded with zeros, and the output's missing bytes are not computed.
    ///
    /// # Panics
    /// If the slices' lengths or numbers do not fit the plan, or `first_row` is
    /// no multiple of [`ROW_GROUP`].
    pub(crate) fn mul(
        self,
        plan: &Plan,
        (first_row, first_column): (usize, usize),
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        accumulate: bool,
    ) {
        let task = plan.task(self, first_row, first_column, outputs.len(), inputs.len());
        let Some(first) = outputs.first() else { return };
        let len = first.len().max(inputs.first().map_or(0, |input| input.len()));
        let (mut input_count, mut output_count) = (inputs.len(), outputs.len());
        let ends = [
            inputs.last().map_or(len, |last| last.len()),
            outputs.last().map_or(len, |last| last.len()),
        ];
        debug_assert_lengths(inputs.iter().map(|input| input.len()), len);
        debug_assert_lengths(outputs.iter().map(|output| output.len()), len);
        let mut at = 0;
        let (first_end, second_end) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        for end in [first_end, second_end, len] {
            if at < end {
                let inputs = &inputs[..input_count];
                let outputs = &mut outputs[..output_count];
                each!(self, kernel => kernel.mul(&task, inputs, outputs, at..end, accumulate));
                at = end;
            }
            input_count = inputs.len() - usize::from(ends[0] <= at);
            output_count = outputs.len() - usize::from(ends[1] <= at);
        }
    }

    /// Output = sum of the inputs, added to the output if `accumulate`. All are as long as the output,
    /// except the last input, which may be shorter and counts as padded with zeros.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub(crate) fn xor(self, inputs: &[&[u8]], output: &mut [u8], accumulate: bool) {
        let len = output.len();
        let end = inputs.last().map_or(len, |last| last.len());
        debug_assert_lengths(inputs.iter().map(|input| input.len()), len);
        each!(self, kernel => kernel.xor(inputs, output, 0..end, accumulate));
        if end < len {
            let inputs = &inputs[..inputs.len() - 1];
            each!(self, kernel => kernel.xor(inputs, output, end..len, accumulate));
        }
    }
}

/// Every slice has `len` bytes, except the last, which has at most that. The callers return errors for
/// anything else; each kernel checks bounds itself.
fn debug_assert_lengths(lengths: impl ExactSizeIterator<Item = usize>, len: usize) {
    if cfg!(debug_assertions) {
        let last = lengths.len().wrapping_sub(1);
        for (index, have) in lengths.enumerate() {
            assert!(have == len || (index == last && have < len), "slice {index}: {have} of {len}");
        }
    }
}

impl EngineKind {
    /// All, slowest first.
    pub const ALL: &[Self] =
        &[Self::Naive, Self::Portable, Self::Ssse3, Self::Avx2, Self::Avx2Gfni, Self::Avx512Gfni];

    /// The name that [`ENGINE_VARIABLE`] takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Naive => "naive",
            Self::Portable => "portable",
            Self::Ssse3 => "ssse3",
            Self::Avx2 => "avx2",
            Self::Avx2Gfni => "avx2-gfni",
            Self::Avx512Gfni => "avx512-gfni",
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
