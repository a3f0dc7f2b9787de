//! The Hadamard transform around an operation (OptiNIC 3.2): what a rank contributes is encoded before the operation, and
//! the result is decoded after it. Encoded tensors are summed as they are, because the transform is linear.
//!
//! A lost packet then makes many blocks a little wrong, instead of zeroing a piece of the tensor. The mean squared error is
//! the same; that of the worst block is far smaller.
//!
//! - Each rank's part of a reduce-scatter or an all-gather is encoded by itself, so that it can be decoded without the others.
//! - Encoding takes place in the thread that starts the operation, decoding in the one that waits for it.
//! - A block that holds a NaN or an infinity, or whose coefficients are too large for the type, travels as NaN in all of its
//!   elements: so is the block of the result on every rank, whatever packets it lacks, and [`Decoded::not_finite`] names it. To
//!   send such blocks raw instead, all ranks would have to agree on which they are before anything is summed: a round trip
//!   more for every operation. A mark in the data themselves does not do, since it may be lost while the rest comes.
//! - What is missing counts as zero, which is the least squared error, unless unbiased results are wanted ([`Scaling`]).
//!
//! | module | contents |
//! |---|---|
//! | `parts` | which parts an operation's tensors are encoded in |
//! | `coder` | encode, decode, and the memory for them |

mod coder;
mod parts;

pub(crate) use coder::{Asked, Coder, Work};
use lacuna_code::hadamard::{EngineError, Layout, LayoutError, STRIDE_DEFAULT};
use lacuna_schedule::element::{Element, Op};
use lacuna_schedule::schedule::Collective;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Elements of a block, by default: as many as fit the L1 cache of any processor, so encoding is as fast as memory is.
const BLOCK_DEFAULT: usize = 1024;

/// How the tensors of an operation are encoded; all ranks have to say the same. As text: `hadamard[:STRIDE[:BLOCK]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encode {
    /// Elements of a block: a power of two, 64 to 4096.
    pub block: usize,
    /// Blocks that share packets: a power of two, at most `block`.
    pub stride: usize,
    /// Decides the random signs. `None`: another one for each operation, which the group knows.
    pub seed: Option<u64>,
    /// The lengths of the tensors that the operation's elements consist of, in elements; no block mixes two of them. Empty:
    /// there is one.
    pub tensors: Vec<usize>,
    /// What is done about missing coefficients.
    pub scaling: Scaling,
}

/// What a block is multiplied with of which something is missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scaling {
    /// Nothing: the least squared error.
    #[default]
    Kept,
    /// The inverse of the share that came: the expected value is that of a result without losses. In an average by
    /// contributors, coefficients that have any contribution count as whole.
    Unbiased,
}

/// What became of an encoded operation's result.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Decoded {
    /// Blocks that lack contributions to some coefficients, in order: their elements in the output, and the share of the
    /// contributions that is missing. Every element of such a block is off a little.
    pub incomplete: Vec<(Range<usize>, f64)>,
    /// Blocks that are NaN in all elements, in order, because a rank's contribution was not finite or the sum of encoded
    /// elements was too large for the type.
    pub not_finite: Vec<Range<usize>>,
}

/// Why an operation cannot be encoded: the caller's fault. Retrying does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The operation is none that can be encoded.
    #[error(
        "{collective} cannot be encoded: use all-reduce, reduce-scatter, reduce, all-gather or broadcast, or no encoding"
    )]
    Collective {
        /// Its name.
        collective: &'static str,
    },
    /// The reduction is not linear.
    #[error("{op} cannot be computed of encoded elements: use sum or average, or no encoding")]
    Op {
        /// The reduction.
        op: Op,
    },
    /// The elements are no floats, or too long.
    #[error("elements of type {element} cannot be encoded: use f32, f16 or bf16, or no encoding")]
    Element {
        /// Their type.
        element: Element,
    },
    /// The tensors' lengths do not add up.
    #[error("the tensors to encode have {found} elements in all, and the operation has {expected}")]
    Tensors {
        /// What was given.
        found: usize,
        /// What it has to be.
        expected: usize,
    },
    /// There is no such layout of blocks.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The environment names an instruction set that this processor lacks.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Text that is no encoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no encoding: use hadamard[:STRIDE[:BLOCK]], as in hadamard:64:1024{why}")]
pub struct EncodeNameError {
    text: String,
    why: String,
}

impl Default for Encode {
    fn default() -> Self {
        Self {
            block: BLOCK_DEFAULT,
            stride: STRIDE_DEFAULT,
            seed: None,
            tensors: Vec::new(),
            scaling: Scaling::Kept,
        }
    }
}

impl fmt::Display for Encode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hadamard:{}:{}", self.stride, self.block)
    }
}

impl FromStr for Encode {
    type Err = EncodeNameError;

    fn from_str(text: &str) -> Result<Self, EncodeNameError> {
        let error = |why: &str| EncodeNameError { text: text.to_owned(), why: why.to_owned() };
        let mut words = text.split(':');
        if words.next() != Some("hadamard") {
            return Err(error(""));
        }
        let mut number = |default: usize| match words.next() {
            None => Ok(default),
            Some(word) => word.parse().map_err(|_| error("")),
        };
        let stride = number(STRIDE_DEFAULT)?;
        let block = number(BLOCK_DEFAULT.max(stride))?;
        if words.next().is_some() {
            return Err(error(""));
        }
        Layout::new(block, stride, &[]).map_err(|why| error(&format!(" ({why})")))?;
        Ok(Self { block, stride, ..Self::default() })
    }
}

impl Encode {
    /// What ranks compare: the same text, the same encoding. The seed of the group is no part of it, since the group has the
    /// same everywhere.
    pub(crate) fn label(&self) -> String {
        let seed = self.seed.map_or(String::new(), |seed| format!(", seed {seed:x}"));
        let tensors = match self.tensors.is_empty() {
            true => String::new(),
            false => format!(", tensors {:08x}", hash(&self.tensors)),
        };
        format!("{self}{seed}{tensors}")
    }

    /// Whether an operation of this kind can be encoded.
    ///
    /// # Errors
    /// [`EncodeError::Collective`], [`EncodeError::Op`] or [`EncodeError::Element`], which say what can be.
    pub fn check(
        &self,
        collective: &Collective,
        element: Element,
        op: Op,
    ) -> Result<(), EncodeError> {
        match collective {
            Collective::AllReduce { .. }
            | Collective::ReduceScatter { .. }
            | Collective::Reduce { .. }
            | Collective::AllGather { .. }
            | Collective::Broadcast { .. } => {}
            _ => return Err(EncodeError::Collective { collective: collective.name() }),
        }
        if collective.reduces() && !matches!(op, Op::Sum | Op::Average) {
            return Err(EncodeError::Op { op });
        }
        of_code(element).map(drop).ok_or(EncodeError::Element { element })
    }
}

/// The element type, as the transform calls it.
fn of_code(element: Element) -> Option<lacuna_code::hadamard::Element> {
    use lacuna_code::hadamard::Element as Encoded;
    match element {
        Element::F32 => Some(Encoded::F32),
        Element::F16 => Some(Encoded::F16),
        Element::Bf16 => Some(Encoded::Bf16),
        _ => None,
    }
}

/// FNV-1a of the lengths: enough to tell two programs apart.
fn hash(lengths: &[usize]) -> u32 {
    let bytes = lengths.iter().flat_map(|length| (*length as u64).to_le_bytes());
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_and_others_say_what_to_do() {
        for (text, name) in [
            ("hadamard", "hadamard:64:1024"),
            ("hadamard:16", "hadamard:16:1024"),
            ("hadamard:2048", "hadamard:2048:2048"),
            ("hadamard:1:64", "hadamard:1:64"),
        ] {
            let encode: Encode = text.parse().unwrap();
            assert_eq!(encode.to_string(), name);
            assert_eq!(name.parse(), Ok(encode));
        }
        for text in ["", "haar", "hadamard:", "hadamard:x", "hadamard:64:1024:1", "hadamard:3"] {
            let error = text.parse::<Encode>().unwrap_err().to_string();
            assert!(error.contains("use hadamard[:STRIDE[:BLOCK]]"), "{error}");
        }
        let error = "hadamard:64:100".parse::<Encode>().unwrap_err().to_string();
        assert!(error.contains("power of two"), "{error}");
    }

    #[test]
    fn labels_tell_encodings_apart() {
        let plain = Encode::default();
        let others = [
            Encode { block: 512, ..plain.clone() },
            Encode { stride: 16, ..plain.clone() },
            Encode { seed: Some(1), ..plain.clone() },
            Encode { tensors: vec![3, 4], ..plain.clone() },
            Encode { tensors: vec![4, 3], ..plain.clone() },
        ];
        let mut labels: Vec<String> = others.iter().map(Encode::label).collect();
        labels.push(plain.label());
        let distinct: std::collections::BTreeSet<&String> = labels.iter().collect();
        assert_eq!(distinct.len(), labels.len());
    }
}
