//! The codes: XOR or MDS, with k data and m parity chunks (SDR-RDMA 5.1.1).
//!
//! A block is k data chunks and m parity chunks of equal length.
//!
//! - XOR: parity i is the XOR of the data chunks j with j mod m = i. It repairs
//!   one lost chunk in each of these m groups.
//! - MDS (maximum distance separable): parity i is the sum over j of c(i, j)
//!   times data chunk j in GF(2^8). It repairs any m lost chunks.
//!
//! The coefficients are the Cauchy matrix c(i, j) = 1 / ((k + i) XOR j) of ISA-L's
//! `gf_gen_cauchy1_matrix`: every square submatrix is invertible, for every k + m up to 256, which does
//! not hold for a Vandermonde matrix. Submatrices have that property too, so a block may be short: absent
//! data chunks count as known zeros, and absent parity chunks count as lost.

use crate::chunk_set::ChunkSet;
use crate::gf;
use std::fmt;
use std::str::FromStr;

/// Most chunks that a block can have, data and parity together.
pub const CHUNKS_MAX: usize = 255;

// A chunk's index has to fit a set of chunks.
const _: () = assert!(CHUNKS_MAX <= ChunkSet::CAPACITY);

/// An erasure code and its shape.
///
/// Written and parsed as `xor:32:8` or `mds:32:8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code {
    kind: CodeKind,
    data_chunks: u8,
    parity_chunks: u8,
}

/// The kind of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CodeKind {
    /// Parity i is the XOR of the data chunks j with j mod m = i.
    Xor,
    /// Any m of the k + m chunks may be lost.
    Mds,
}

/// Why there is no such code. The caller's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// k = 0 or m = 0.
    #[error("a code needs data and parity: k = {k}, m = {m}; use at least 1 of each")]
    Empty {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
    /// k + m is more than a byte can number.
    #[error("k + m = {k} + {m} is more than {CHUNKS_MAX} chunks; use smaller blocks")]
    TooLarge {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
    /// An XOR code whose last parities would cover no data.
    #[error("an XOR code has at most one parity per data chunk: m = {m} is more than k = {k}")]
    EmptyGroup {
        /// Data chunks.
        k: usize,
        /// Parity chunks.
        m: usize,
    },
    /// A text that names no code.
    #[error("not a code: use KIND:K:M such as mds:32:8 or xor:32:8")]
    Syntax,
}

impl Code {
    /// MDS(32, 8): the code of the paper's evaluation (figures 9 to 13).
    pub const MDS_32_8: Self = Self { kind: CodeKind::Mds, data_chunks: 32, parity_chunks: 8 };

    /// MDS(32, 16): for a sender that chooses how many of the parities it sends.
    pub const MDS_32_16: Self = Self { kind: CodeKind::Mds, data_chunks: 32, parity_chunks: 16 };

    /// The XOR code of SDR-RDMA 5.1.1: 1 <= m <= k, k + m <= 255.
    pub fn xor(k: usize, m: usize) -> Result<Self, CodeError> {
        if m > k && k > 0 {
            return Err(CodeError::EmptyGroup { k, m });
        }
        Self::new(CodeKind::Xor, k, m)
    }

    /// The MDS code: 1 <= k, 1 <= m, k + m <= 255.
    pub fn mds(k: usize, m: usize) -> Result<Self, CodeError> {
        Self::new(CodeKind::Mds, k, m)
    }

    fn new(kind: CodeKind, k: usize, m: usize) -> Result<Self, CodeError> {
        if k == 0 || m == 0 {
            return Err(CodeError::Empty { k, m });
        }
        match (u8::try_from(k), u8::try_from(m)) {
            (Ok(data_chunks), Ok(parity_chunks)) if k + m <= CHUNKS_MAX => {
                Ok(Self { kind, data_chunks, parity_chunks })
            }
            _ => Err(CodeError::TooLarge { k, m }),
        }
    }

    /// XOR or MDS.
    pub fn kind(&self) -> CodeKind {
        self.kind
    }

    /// k.
    #[inline]
    pub fn data_chunks(&self) -> usize {
        usize::from(self.data_chunks)
    }

    /// m.
    #[inline]
    pub fn parity_chunks(&self) -> usize {
        usize::from(self.parity_chunks)
    }

    /// k + m.
    #[inline]
    pub fn chunks(&self) -> usize {
        self.data_chunks() + self.parity_chunks()
    }

    /// Whether the data of a block can be repaired without the chunks in `lost`. Absent data chunks of a
    /// short block do not count as lost; absent parity does.
    pub fn can_recover(&self, lost: &ChunkSet) -> bool {
        let (k, m) = (self.data_chunks(), self.parity_chunks());
        match self.kind {
            CodeKind::Mds => {
                let data_lost = lost.count_in(0..k);
                data_lost == 0 || data_lost + lost.count_in(k..k + m) <= m
            }
            CodeKind::Xor => {
                let mut spent = ChunkSet::new();
                lost.iter().take_while(|index| *index < k).all(|index| {
                    let group = index % m;
                    let free = !spent.contains(group) && !lost.contains(k + group);
                    spent.insert(group);
                    free
                })
            }
        }
    }

    /// The coefficient of data chunk `column` in parity chunk `row`.
    pub(crate) fn coefficient(&self, row: usize, column: usize) -> u8 {
        debug_assert!(row < self.parity_chunks() && column < self.data_chunks());
        match self.kind {
            CodeKind::Xor => u8::from(column % self.parity_chunks() == row),
            // Never zero: k + row is more than any column.
            CodeKind::Mds => gf::inverse(((self.data_chunks() + row) ^ column) as u8),
        }
    }
}

impl CodeKind {
    /// `xor` or `mds`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xor => "xor",
            Self::Mds => "mds",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.kind.name(), self.data_chunks, self.parity_chunks)
    }
}

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Self, CodeError> {
        let mut parts = text.split(':');
        let (Some(kind), Some(k), Some(m), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(CodeError::Syntax);
        };
        let k = k.parse().map_err(|_| CodeError::Syntax)?;
        let m = m.parse().map_err(|_| CodeError::Syntax)?;
        match kind {
            "xor" => Self::xor(k, m),
            "mds" => Self::mds(k, m),
            _ => Err(CodeError::Syntax),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_outside_of_the_range_are_refused_with_their_numbers() {
        assert!(Code::mds(1, 1).is_ok());
        assert!(Code::mds(1, 254).is_ok());
        assert!(Code::mds(254, 1).is_ok());
        assert_eq!(Code::mds(32, 8), Ok(Code::MDS_32_8));
        assert_eq!(Code::mds(32, 16), Ok(Code::MDS_32_16));
        assert_eq!(Code::mds(0, 8), Err(CodeError::Empty { k: 0, m: 8 }));
        assert_eq!(Code::xor(0, 8), Err(CodeError::Empty { k: 0, m: 8 }));
        assert_eq!(Code::mds(32, 0), Err(CodeError::Empty { k: 32, m: 0 }));
        assert_eq!(Code::mds(200, 56), Err(CodeError::TooLarge { k: 200, m: 56 }));
        let huge = usize::MAX;
        assert_eq!(Code::mds(huge, huge), Err(CodeError::TooLarge { k: huge, m: huge }));
        assert_eq!(Code::xor(4, 5), Err(CodeError::EmptyGroup { k: 4, m: 5 }));
        assert!(Code::xor(4, 4).is_ok());
    }

    #[test]
    fn a_code_is_written_as_it_is_parsed() {
        for text in ["mds:32:8", "xor:32:8", "mds:1:254"] {
            assert_eq!(text.parse::<Code>().map(|code| code.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "mds", "mds:32", "mds:32:8:1", "rs:32:8", "mds:a:8", "mds:-1:8"] {
            assert_eq!(text.parse::<Code>(), Err(CodeError::Syntax), "{text}");
        }
        assert_eq!("mds:0:8".parse::<Code>(), Err(CodeError::Empty { k: 0, m: 8 }));
    }

    #[test]
    fn xor_recovers_one_chunk_per_group_and_mds_any_m() {
        let lost = |indices: &[usize]| indices.iter().copied().collect::<ChunkSet>();
        let xor = Code::xor(6, 2).unwrap();
        assert!(xor.can_recover(&lost(&[])));
        assert!(xor.can_recover(&lost(&[0, 3])));
        assert!(!xor.can_recover(&lost(&[0, 2])), "two of one group");
        assert!(!xor.can_recover(&lost(&[0, 6])), "one of a group and its parity");
        assert!(xor.can_recover(&lost(&[0, 7])), "the parity of the other group");
        assert!(xor.can_recover(&lost(&[6, 7])), "no data lost");
        let mds = Code::mds(6, 2).unwrap();
        assert!(mds.can_recover(&lost(&[0, 2])));
        assert!(mds.can_recover(&lost(&[0, 6])));
        assert!(mds.can_recover(&lost(&[6, 7])));
        assert!(!mds.can_recover(&lost(&[0, 6, 7])));
        assert!(!mds.can_recover(&lost(&[0, 1, 2])));
    }
}
