//! The matrix that computes lost chunks from present ones, for the MDS code.
//!
//! Let L be the e lost data chunks, P the e parity chunks used in their place, S the present data chunks,
//! and C the coefficients. Each parity chunk is a sum over all data, so
//!
//! ```text
//! C[P,L] x(L) = y(P) + C[P,S] x(S)
//! ```
//!
//! and C[P,L], a square submatrix of a Cauchy matrix, has an inverse: e by e, not k by k. Lost parity is
//! then computed from the data.

use crate::chunk_set::ChunkSet;
use crate::code::Code;
use crate::gf;

/// An erasure pattern: lost data, the parity used in its place, and the chunks to compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// Lost data chunks, indices below k.
    pub(crate) lost_data: ChunkSet,
    /// As many present parity chunks, indices from k on.
    pub(crate) used_parity: ChunkSet,
    /// Chunks to compute: some of the lost data, any parity.
    pub(crate) wanted: ChunkSet,
}

/// Memory for the computation, allocated once.
#[derive(Debug)]
pub(crate) struct RepairMatrix {
    code: Code,
    /// C[P,L], turned into its inverse; e by e.
    inverse: Vec<u8>,
    /// Rows of the lost data in terms of `P` and `S`; e by k.
    lost_rows: Vec<u8>,
    /// The result; wanted by k.
    wanted_rows: Vec<u8>,
}

impl RepairMatrix {
    pub(crate) fn new(code: Code) -> Self {
        let (k, m) = (code.data_chunks(), code.parity_chunks());
        let lost_max = k.min(m);
        Self {
            code,
            inverse: Vec::with_capacity(2 * lost_max * lost_max),
            lost_rows: Vec::with_capacity(lost_max * k),
            wanted_rows: Vec::with_capacity(m * k),
        }
    }

    /// The repair matrix, row by row. Rows: the wanted chunks, parity first, then data, each ascending.
    /// Columns, k of them: the used parity, then the present data, each ascending.
    pub(crate) fn compute(&mut self, pattern: &Pattern) -> &[u8] {
        let (code, k) = (self.code, self.code.data_chunks());
        let lost_count = pattern.lost_data.len();
        self.invert(pattern);
        self.lost_rows.clear();
        for row in 0..lost_count {
            let inverse = &self.inverse[row * lost_count..][..lost_count];
            self.lost_rows.extend_from_slice(inverse);
            for column in there(pattern, k) {
                let terms = pattern.used_parity.iter().zip(inverse);
                self.lost_rows.push(sum(terms.map(|(parity, factor)| {
                    gf::mul(*factor, code.coefficient(parity - k, column))
                })));
            }
        }
        self.wanted_rows.clear();
        for parity in pattern.wanted.iter().filter(|index| *index >= k) {
            let row = parity - k;
            let own = std::iter::repeat_n(0, lost_count)
                .chain(there(pattern, k).map(|column| code.coefficient(row, column)));
            for (position, own) in own.enumerate() {
                let lost = pattern.lost_data.iter().zip(self.lost_rows.chunks_exact(k));
                self.wanted_rows.push(
                    own ^ sum(lost.map(|(lost, lost_row)| {
                        gf::mul(code.coefficient(row, lost), lost_row[position])
                    })),
                );
            }
        }
        for (lost, row) in pattern.lost_data.iter().zip(self.lost_rows.chunks_exact(k)) {
            if pattern.wanted.contains(lost) {
                self.wanted_rows.extend_from_slice(row);
            }
        }
        &self.wanted_rows
    }

    /// Inverts C[P,L] by Gauss-Jordan elimination beside the unit matrix.
    fn invert(&mut self, pattern: &Pattern) {
        let (code, k) = (self.code, self.code.data_chunks());
        let count = pattern.lost_data.len();
        let width = 2 * count;
        let work = &mut self.inverse;
        work.clear();
        for (row, parity) in pattern.used_parity.iter().enumerate() {
            work.extend(pattern.lost_data.iter().map(|lost| code.coefficient(parity - k, lost)));
            work.extend((0..count).map(|column| u8::from(column == row)));
        }
        for pivot in 0..count {
            // Every leading submatrix of a Cauchy matrix is invertible, so the pivot is never zero.
            let scale = gf::inverse(work[pivot * width + pivot]);
            for value in &mut work[pivot * width..][..width] {
                *value = gf::mul(*value, scale);
            }
            let (before, rest) = work.split_at_mut(pivot * width);
            let (pivot_row, after) = rest.split_at_mut(width);
            for row in before.chunks_exact_mut(width).chain(after.chunks_exact_mut(width)) {
                let factor = row[pivot];
                if factor != 0 {
                    for (value, pivot_value) in row.iter_mut().zip(&*pivot_row) {
                        *value ^= gf::mul(factor, *pivot_value);
                    }
                }
            }
        }
        for row in 0..count {
            work.copy_within(row * width + count..(row + 1) * width, row * count);
        }
        work.truncate(count * count);
    }
}

/// The present data chunks, ascending.
fn there(pattern: &Pattern, k: usize) -> impl Iterator<Item = usize> {
    let lost = pattern.lost_data;
    (0..k).filter(move |index| !lost.contains(*index))
}

fn sum(terms: impl Iterator<Item = u8>) -> u8 {
    terms.fold(0, |sum, term| sum ^ term)
}
