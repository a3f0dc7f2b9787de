//! The codec: computes parity, of whole blocks or incrementally, and verifies data against parity.

use crate::chunk_set::ChunkSet;
use crate::chunks::{Chunks, ChunksMut};
use crate::code::{CHUNKS_MAX, Code, CodeKind};
use crate::engine::{Engine, EngineError, Matrix, Plan, ROW_GROUP};
use crate::shape::{ShapeError, check_data, check_parity};
use crate::slice_array::{SliceArray, SliceArrayMut};
use crate::spread::Spread;

/// Blocks of up to this shape use small lists of chunks on the stack: clearing lists for 255 chunks costs
/// as much as an update with a small packet.
const SMALL_DATA: usize = 64;
const SMALL_PARITY: usize = 16;

/// Bytes of each parity chunk that [`Codec::verify`] computes at a time: with eight rows, a sixth of an L1
/// cache of 48 KiB.
const VERIFY_BYTES: usize = 1024;

/// A code with its coefficients in an engine's layout.
///
/// A codec does not change and allocates nothing once it is made; threads may share it. Repairs need a
/// [`Workspace`](crate::Workspace) per thread.
///
/// A block may be short: an operation takes 1 to k data chunks (the absent ones are zeros) and 1 to m
/// parity chunks (the absent ones are not sent). All chunks have the length of the parity chunks, any
/// number of bytes; only the block's last data chunk may be shorter.
///
/// Chunks need no alignment. Those aligned to 64 bytes are a little faster from cache, and almost twice as
/// fast to update.
#[derive(Debug, Clone)]
pub struct Codec {
    pub(crate) code: Code,
    pub(crate) engine: Engine,
    /// m rows of k coefficients; `None` for XOR, which needs no products.
    generator: Option<Plan>,
}

/// Parity that does not match its data, or chunks that cannot be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The chunks do not fit the code.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A parity chunk, or data that it covers, is wrong; it is unknown which.
    #[error("parity chunk {parity} does not match the data at byte {offset_bytes}")]
    Mismatch {
        /// The first parity chunk that does not match, from 0.
        parity: usize,
        /// The first byte in it.
        offset_bytes: usize,
    },
}

impl Codec {
    /// A codec on the engine of [`Engine::chosen`]: the fastest, or the one that the environment names.
    pub fn new(code: Code) -> Result<Self, EngineError> {
        Ok(Self::with_engine(code, Engine::chosen()?))
    }

    /// A codec on a given engine.
    pub fn with_engine(code: Code, engine: Engine) -> Self {
        let (k, m) = (code.data_chunks(), code.parity_chunks());
        let generator = (code.kind() == CodeKind::Mds).then(|| {
            let coefficients: Vec<u8> = (0..m)
                .flat_map(|row| (0..k).map(move |column| code.coefficient(row, column)))
                .collect();
            let mut plan = Plan::with_capacity(engine, m, k);
            plan.set(&Matrix { coefficients: &coefficients, columns: k });
            plan
        });
        Self { code, engine, generator }
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The engine that does the work.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Computes the parity of a block and overwrites the parity chunks.
    pub fn encode<D, P>(&self, data: &D, parity: &mut P) -> Result<(), ShapeError>
    where
        D: Chunks + ?Sized,
        P: ChunksMut + ?Sized,
    {
        self.fold(data, 0, parity, false, Spread::Caller)
    }

    /// As [`Codec::encode`], on the threads of the caller's rayon pool: each thread takes a range of every
    /// chunk's bytes. It pays from about 1 MB; for many small blocks, give each thread whole blocks instead.
    #[cfg(feature = "rayon")]
    pub fn encode_parallel<D, P>(&self, data: &D, parity: &mut P) -> Result<(), ShapeError>
    where
        D: Chunks + ?Sized,
        P: ChunksMut + ?Sized,
    {
        self.fold(data, 0, parity, false, Spread::Pool)
    }

    /// Adds a part of data chunk `index`, from byte `offset_bytes` on, to all parity chunks: so parity can
    /// be computed while the data is in the cache.
    ///
    /// The parity chunks must be zero before the first part. Once all parts of all chunks were added, each
    /// once and in any order, they hold the result of [`Codec::encode`]; adding a part twice removes it
    /// again.
    ///
    /// Each call reads and writes m times as many bytes of parity, so it is fast while they stay in the L1
    /// cache; [`Codec::update_many`] does so only once for several chunks.
    pub fn update<P>(
        &self,
        parity: &mut P,
        index: usize,
        offset_bytes: usize,
        piece: &[u8],
    ) -> Result<(), ShapeError>
    where
        P: ChunksMut + ?Sized,
    {
        let (k, m) = (self.code.data_chunks(), self.code.parity_chunks());
        let chunk_bytes = check_parity(parity, k, m)?;
        if index >= k {
            return Err(ShapeError::Index { chunk: index, data_chunks: k });
        }
        if offset_bytes > chunk_bytes || piece.len() > chunk_bytes - offset_bytes {
            let len = piece.len();
            return Err(ShapeError::Piece { offset: offset_bytes, len, chunk_bytes });
        }
        let range = offset_bytes..offset_bytes + piece.len();
        match &self.generator {
            None => {
                let group = parity.chunks_mut().nth(index % m);
                if let Some(parity) = group {
                    self.engine.xor(&[piece], &mut parity[range], true);
                }
            }
            // In groups of rows, to keep the list short.
            Some(plan) => {
                let mut parities = parity.chunks_mut();
                for first_row in (0..m).step_by(ROW_GROUP) {
                    let mut outputs = SliceArrayMut::<ROW_GROUP>::new();
                    for parity in parities.by_ref().take(ROW_GROUP) {
                        outputs.push(&mut parity[range.clone()]);
                    }
                    self.engine.mul(plan, (first_row, index), &[piece], outputs.slices(), true);
                }
            }
        }
        Ok(())
    }

    /// Adds whole data chunks, `first_index` and following, to all parity chunks: as [`Codec::update`] for
    /// each, but reads and writes the parity only once. The last chunk may be shorter.
    pub fn update_many<D, P>(
        &self,
        parity: &mut P,
        first_index: usize,
        data: &D,
    ) -> Result<(), ShapeError>
    where
        D: Chunks + ?Sized,
        P: ChunksMut + ?Sized,
    {
        self.fold(data, first_index, parity, true, Spread::Caller)
    }

    /// Checks that the parity matches the data. Nothing is written.
    pub fn verify<D, P>(&self, data: &D, parity: &P) -> Result<(), VerifyError>
    where
        D: Chunks + ?Sized,
        P: Chunks + ?Sized,
    {
        let (k, m) = (self.code.data_chunks(), self.code.parity_chunks());
        let chunk_bytes = check_parity(parity, k, m)?;
        check_data(data, 0, k, chunk_bytes)?;
        let rows = (0..parity.count()).collect();
        self.verify_rows(data, parity, &rows, chunk_bytes)
    }

    /// Compares the parity chunks in `rows` with the data.
    pub(crate) fn verify_rows<D, P>(
        &self,
        data: &D,
        parity: &P,
        rows: &ChunkSet,
        chunk_bytes: usize,
    ) -> Result<(), VerifyError>
    where
        D: Chunks + ?Sized,
        P: Chunks + ?Sized,
    {
        let mut expected = [[0; VERIFY_BYTES]; ROW_GROUP];
        for start in (0..chunk_bytes).step_by(VERIFY_BYTES) {
            let end = chunk_bytes.min(start + VERIFY_BYTES);
            let mut inputs = SliceArray::<CHUNKS_MAX>::new();
            for index in 0..data.count() {
                let chunk = data.chunk(index);
                inputs.push(&chunk[start.min(chunk.len())..end.min(chunk.len())]);
            }
            for first_row in (0..parity.count()).step_by(ROW_GROUP) {
                let group = first_row..parity.count().min(first_row + ROW_GROUP);
                if rows.count_in(group.clone()) == 0 {
                    continue;
                }
                let mut outputs = SliceArrayMut::<ROW_GROUP>::new();
                for buffer in &mut expected[..group.len()] {
                    outputs.push(&mut buffer[..end - start]);
                }
                self.apply(inputs.slices(), (first_row, 0), outputs.slices(), false);
                for row in group.filter(|row| rows.contains(*row)) {
                    let (want, have) = (&expected[row - first_row], &parity.chunk(row)[start..end]);
                    if want[..end - start] != *have {
                        let differs = |(want, have): (&u8, &u8)| want != have;
                        let at = want.iter().zip(have).position(differs).unwrap_or(0);
                        let offset_bytes = start + at;
                        return Err(VerifyError::Mismatch { parity: row, offset_bytes });
                    }
                }
            }
        }
        Ok(())
    }

    /// Computes the parity of data chunks `first` and following; adds it to the parity chunks if
    /// `accumulate`, else overwrites them.
    fn fold<D, P>(
        &self,
        data: &D,
        first: usize,
        parity: &mut P,
        accumulate: bool,
        spread: Spread,
    ) -> Result<(), ShapeError>
    where
        D: Chunks + ?Sized,
        P: ChunksMut + ?Sized,
    {
        let (k, m) = (self.code.data_chunks(), self.code.parity_chunks());
        let chunk_bytes = check_parity(parity, k, m)?;
        check_data(data, first, k, chunk_bytes)?;
        if data.count() <= SMALL_DATA && parity.count() <= SMALL_PARITY {
            self.fold_listed::<D, P, SMALL_DATA, SMALL_PARITY>(
                data, first, parity, accumulate, spread,
            );
        } else {
            self.fold_listed::<D, P, CHUNKS_MAX, CHUNKS_MAX>(
                data, first, parity, accumulate, spread,
            );
        }
        Ok(())
    }

    fn fold_listed<D, P, const K: usize, const M: usize>(
        &self,
        data: &D,
        first: usize,
        parity: &mut P,
        accumulate: bool,
        spread: Spread,
    ) where
        D: Chunks + ?Sized,
        P: ChunksMut + ?Sized,
    {
        let mut inputs = SliceArray::<K>::new();
        (0..data.count()).for_each(|index| inputs.push(data.chunk(index)));
        let mut outputs = SliceArrayMut::<M>::new();
        parity.chunks_mut().for_each(|chunk| outputs.push(chunk));
        spread.columns(inputs.slices(), outputs.slices(), &|inputs, outputs| {
            self.apply(inputs, (0, first), outputs, accumulate);
        });
    }

    /// Computes parity rows `first_row` and following from data chunks `first_column` and following.
    fn apply(
        &self,
        inputs: &[&[u8]],
        (first_row, first_column): (usize, usize),
        outputs: &mut [&mut [u8]],
        accumulate: bool,
    ) {
        if let Some(plan) = &self.generator {
            self.engine.mul(plan, (first_row, first_column), inputs, outputs, accumulate);
            return;
        }
        let m = self.code.parity_chunks();
        let mut group = SliceArray::<CHUNKS_MAX>::new();
        for (row, output) in outputs.iter_mut().enumerate() {
            // The first input whose column is the row's, modulo m.
            let start = (first_row + row + m - first_column % m) % m;
            group.clear();
            inputs.iter().skip(start).step_by(m).for_each(|input| group.push(input));
            self.engine.xor(group.slices(), output, accumulate);
        }
    }
}
