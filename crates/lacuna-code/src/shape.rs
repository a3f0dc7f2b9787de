//! Checks the numbers and lengths of an operation's chunks against the code.

use crate::chunks::Chunks;

/// Chunks that do not fit the code or each other. The caller's fault; nothing
/// was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// No data chunk, or more than the code has.
    #[error("{have} data chunks: this code takes 1 to {max} per block")]
    DataChunks {
        /// How many were given.
        have: usize,
        /// k minus the first index.
        max: usize,
    },
    /// No parity chunk, or more than the code has.
    #[error("{have} parity chunks: this code takes 1 to {max} per block")]
    ParityChunks {
        /// How many were given.
        have: usize,
        /// m.
        max: usize,
    },
    /// A chunk is not as long as the others. Only the last data chunk of a
    /// block may be shorter.
    #[error(
        "chunk {chunk} has {have} bytes: the block's chunks have {want}, its last data chunk at most that"
    )]
    Length {
        /// Index in the block: data 0 to k - 1, parity k to k + m - 1.
        chunk: usize,
        /// Bytes it has.
        have: usize,
        /// Bytes of the others.
        want: usize,
    },
    /// An index of no chunk of this block, or one given twice.
    #[error("chunk {chunk} is not in this block of {data_chunks} data chunks, or was given twice")]
    Index {
        /// The index.
        chunk: usize,
        /// Data chunks of this block.
        data_chunks: usize,
    },
    /// A piece of a chunk that reaches past its end.
    #[error("{len} bytes at {offset} reach past the end of a chunk of {chunk_bytes} bytes")]
    Piece {
        /// Where the piece starts in its chunk.
        offset: usize,
        /// Bytes of the piece.
        len: usize,
        /// Bytes of the chunk.
        chunk_bytes: usize,
    },
}

/// Checks data chunks that stand for `first` and following of `k`.
pub(crate) fn check_data<D: Chunks + ?Sized>(
    data: &D,
    first: usize,
    k: usize,
    chunk_bytes: usize,
) -> Result<(), ShapeError> {
    let (count, max) = (data.count(), k.saturating_sub(first));
    if count == 0 || count > max {
        return Err(ShapeError::DataChunks { have: count, max });
    }
    for index in 0..count {
        check_length(first + index, data.chunk(index).len(), chunk_bytes, index == count - 1)?;
    }
    Ok(())
}

/// Checks parity chunks and returns how long they all are.
pub(crate) fn check_parity<P: Chunks + ?Sized>(
    parity: &P,
    k: usize,
    m: usize,
) -> Result<usize, ShapeError> {
    let count = parity.count();
    if count == 0 || count > m {
        return Err(ShapeError::ParityChunks { have: count, max: m });
    }
    let chunk_bytes = parity.chunk(0).len();
    for index in 1..count {
        check_length(k + index, parity.chunk(index).len(), chunk_bytes, false)?;
    }
    Ok(chunk_bytes)
}

/// Checks one length; that of the block's last data chunk may be less.
pub(crate) fn check_length(
    chunk: usize,
    have: usize,
    want: usize,
    may_be_short: bool,
) -> Result<(), ShapeError> {
    if have == want || (may_be_short && have < want) {
        return Ok(());
    }
    Err(ShapeError::Length { chunk, have, want })
}
