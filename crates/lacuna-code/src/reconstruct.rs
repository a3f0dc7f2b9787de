//! Repair: computes lost chunks from the others, in place.
//!
//! The application's receive buffer is the block: present chunks are read from it, missing ones are
//! written to it, and nothing is copied.

use crate::chunk_set::ChunkSet;
use crate::chunks::{Chunks, ChunksMut};
use crate::code::{CHUNKS_MAX, CodeKind};
use crate::codec::{Codec, VerifyError};
use crate::repair_matrix::Pattern;
use crate::shape::{ShapeError, check_length};
use crate::slice_array::{SliceArray, SliceArrayMut};
use crate::spread::Spread;
use crate::workspace::Workspace;

/// Blocks of up to this many chunks use small lists on the stack: clearing lists for 255 chunks takes as
/// long as the repair of a packet.
const SMALL_BLOCK: usize = 64;

/// Why nothing was repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReconstructError {
    /// The chunks do not fit. The caller's fault.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// More data chunks are lost than parity chunks are present. More chunks have to arrive.
    #[error("{lost} data chunks are lost and {parity} parity chunks are there: {} more are needed", lost - parity)]
    TooManyLost {
        /// Lost data chunks.
        lost: usize,
        /// Present parity chunks.
        parity: usize,
    },
    /// An XOR group has lost more than one chunk. One of them has to arrive.
    #[error("XOR group {group} has lost chunk {chunk} and chunk {other}: it can repair one")]
    GroupLost {
        /// The group: index modulo m.
        group: usize,
        /// The chunk that was to be repaired.
        chunk: usize,
        /// Another lost one.
        other: usize,
    },
    /// Verification was requested, but the repair needs all present parity. Nothing was written.
    #[error("no parity is left to verify with: all that is there goes into {lost} lost chunks")]
    Unverifiable {
        /// Lost data chunks.
        lost: usize,
    },
    /// The present chunks contradict each other: one of them is wrong. The lost chunks were zeroed.
    #[error(
        "the chunks contradict each other: parity chunk {parity} differs at byte {offset_bytes}"
    )]
    Inconsistent {
        /// The parity chunk that does not match, from 0.
        parity: usize,
        /// The first byte in it.
        offset_bytes: usize,
    },
    /// The workspace was made for another code or engine. The caller's fault.
    #[error("the workspace was made for another codec: make one with Workspace::new(&codec)")]
    Workspace,
}

/// The chunks of one block: each is present, missing (to be computed) or neither.
struct Block<'p, 'o, const N: usize> {
    data_chunks: usize,
    present: [&'p [u8]; N],
    present_set: ChunkSet,
    missing: [&'o mut [u8]; N],
    missing_set: ChunkSet,
}

impl Codec {
    /// Computes the lost data chunks of a block in place.
    ///
    /// `lost` has their indices, and those of lost parity chunks, from k on. The contents of lost chunks
    /// are not read. Parity is not repaired.
    pub fn reconstruct_data<D, P>(
        &self,
        workspace: &mut Workspace,
        data: &mut D,
        parity: &P,
        lost: &ChunkSet,
    ) -> Result<(), ReconstructError>
    where
        D: ChunksMut + ?Sized,
        P: Chunks + ?Sized,
    {
        self.repair_data(workspace, data, parity, lost, Spread::Caller)
    }

    /// As [`Codec::reconstruct_data`], on the threads of the caller's rayon pool; see
    /// [`Codec::encode_parallel`].
    #[cfg(feature = "rayon")]
    pub fn reconstruct_data_parallel<D, P>(
        &self,
        workspace: &mut Workspace,
        data: &mut D,
        parity: &P,
        lost: &ChunkSet,
    ) -> Result<(), ReconstructError>
    where
        D: ChunksMut + ?Sized,
        P: Chunks + ?Sized,
    {
        self.repair_data(workspace, data, parity, lost, Spread::Pool)
    }

    /// As [`Codec::reconstruct_data`], but verifies the result.
    ///
    /// The spare parity, which the repair does not need, is compared with the result. With s spare chunks,
    /// errors in up to s chunks are always detected. Without spare parity, as always when an XOR code
    /// repairs, the error is [`ReconstructError::Unverifiable`].
    pub fn reconstruct_data_verified<D, P>(
        &self,
        workspace: &mut Workspace,
        data: &mut D,
        parity: &P,
        lost: &ChunkSet,
    ) -> Result<(), ReconstructError>
    where
        D: ChunksMut + ?Sized,
        P: Chunks + ?Sized,
    {
        let k = self.code.data_chunks();
        let lost_count = lost.count_in(0..data.count());
        let parity_there: ChunkSet =
            (0..parity.count()).filter(|index| !lost.contains(k + index)).collect();
        let spare = match self.code.kind() {
            CodeKind::Mds => parity_there.iter().skip(lost_count).collect::<ChunkSet>(),
            CodeKind::Xor if lost_count == 0 => parity_there,
            CodeKind::Xor => ChunkSet::new(),
        };
        if spare.is_empty() && parity_there.len() >= lost_count {
            return Err(ReconstructError::Unverifiable { lost: lost_count });
        }
        self.repair_data(workspace, data, parity, lost, Spread::Caller)?;
        let chunk_bytes = spare.iter().next().map_or(0, |row| parity.chunk(row).len());
        match self.verify_rows(data, parity, &spare, chunk_bytes) {
            Ok(()) => Ok(()),
            Err(VerifyError::Shape(error)) => Err(error.into()),
            Err(VerifyError::Mismatch { parity, offset_bytes }) => {
                for (index, chunk) in data.chunks_mut().enumerate() {
                    if lost.contains(index) {
                        chunk.fill(0);
                    }
                }
                Err(ReconstructError::Inconsistent { parity, offset_bytes })
            }
        }
    }

    /// Computes all lost chunks of a block, data and parity, in place.
    pub fn reconstruct<D, P>(
        &self,
        workspace: &mut Workspace,
        data: &mut D,
        parity: &mut P,
        lost: &ChunkSet,
    ) -> Result<(), ReconstructError>
    where
        D: ChunksMut + ?Sized,
        P: ChunksMut + ?Sized,
    {
        if self.code.chunks() <= SMALL_BLOCK {
            self.repair_all::<D, P, SMALL_BLOCK>(workspace, data, parity, lost)
        } else {
            self.repair_all::<D, P, CHUNKS_MAX>(workspace, data, parity, lost)
        }
    }

    /// Computes the chunks `missing` of a block from the chunks `present`; both
    /// are pairs of index (data from 0, parity from k) and bytes. Chunks in
    /// neither list are lost as well, and not repaired.
    ///
    /// For memory that other threads use at the same time: only the chunks that are read or written are
    /// borrowed. `data_chunks` is the number of the block's data chunks, at most k.
    pub fn reconstruct_listed<'p, 'o>(
        &self,
        workspace: &mut Workspace,
        data_chunks: usize,
        present: impl IntoIterator<Item = (usize, &'p [u8])>,
        missing: impl IntoIterator<Item = (usize, &'o mut [u8])>,
    ) -> Result<(), ReconstructError> {
        if self.code.chunks() <= SMALL_BLOCK {
            self.repair_listed::<SMALL_BLOCK>(workspace, data_chunks, present, missing)
        } else {
            self.repair_listed::<CHUNKS_MAX>(workspace, data_chunks, present, missing)
        }
    }

    fn repair_listed<'p, 'o, const N: usize>(
        &self,
        workspace: &mut Workspace,
        data_chunks: usize,
        present: impl IntoIterator<Item = (usize, &'p [u8])>,
        missing: impl IntoIterator<Item = (usize, &'o mut [u8])>,
    ) -> Result<(), ReconstructError> {
        let mut block = Block::<N>::new(self, data_chunks, self.code.parity_chunks())?;
        for (index, chunk) in present {
            block.add_present(self, index, chunk)?;
        }
        for (index, chunk) in missing {
            block.add_missing(self, index, chunk)?;
        }
        self.repair(workspace, &mut block, Spread::Caller)
    }

    fn repair_all<D, P, const N: usize>(
        &self,
        workspace: &mut Workspace,
        data: &mut D,
        parity: &mut P,
        lost: &ChunkSet,
    ) -> Result<(), ReconstructError>
    where
        D: ChunksMut + ?Sized,
        P: ChunksMut + ?Sized,
    {
        let mut block = Block::<N>::new(self, data.count(), parity.count())?;
        for (index, chunk) in data.chunks_mut().enumerate() {
            block.add(self, index, chunk, lost)?;
        }
        let k = self.code.data_chunks();
        for (index, chunk) in parity.chunks_mut().enumerate() {
            block.add(self, k + index, chunk, lost)?;
        }
        self.repair(workspace, &mut block, Spread::Caller)
    }

    fn repair_data<D, P>(
        &self,
        workspace: &mut Workspace,
        data: &mut D,
        parity: &P,
        lost: &ChunkSet,
        spread: Spread,
    ) -> Result<(), ReconstructError>
    where
        D: ChunksMut + ?Sized,
        P: Chunks + ?Sized,
    {
        if self.code.chunks() <= SMALL_BLOCK {
            self.repair_data_listed::<D, P, SMALL_BLOCK>(workspace, data, parity, lost, spread)
        } else {
            self.repair_data_listed::<D, P, CHUNKS_MAX>(workspace, data, parity, lost, spread)
        }
    }

    fn repair_data_listed<D, P, const N: usize>(
        &self,
        workspace: &mut Workspace,
        data: &mut D,
        parity: &P,
        lost: &ChunkSet,
        spread: Spread,
    ) -> Result<(), ReconstructError>
    where
        D: ChunksMut + ?Sized,
        P: Chunks + ?Sized,
    {
        let mut block = Block::<N>::new(self, data.count(), parity.count())?;
        for (index, chunk) in data.chunks_mut().enumerate() {
            block.add(self, index, chunk, lost)?;
        }
        let k = self.code.data_chunks();
        for index in (0..parity.count()).filter(|index| !lost.contains(k + index)) {
            block.add_present(self, k + index, parity.chunk(index))?;
        }
        self.repair(workspace, &mut block, spread)
    }

    fn repair<const N: usize>(
        &self,
        workspace: &mut Workspace,
        block: &mut Block<'_, '_, N>,
        spread: Spread,
    ) -> Result<(), ReconstructError> {
        if (workspace.code, workspace.engine) != (self.code, self.engine) {
            return Err(ReconstructError::Workspace);
        }
        block.check_lengths()?;
        if block.missing_set.is_empty() {
            return Ok(());
        }
        match self.code.kind() {
            CodeKind::Mds => self.repair_mds(workspace, block, spread),
            CodeKind::Xor => self.repair_xor(block, spread),
        }
    }

    fn repair_mds<const N: usize>(
        &self,
        workspace: &mut Workspace,
        block: &mut Block<'_, '_, N>,
        spread: Spread,
    ) -> Result<(), ReconstructError> {
        let (k, m) = (self.code.data_chunks(), self.code.parity_chunks());
        let lost_data = ChunkSet::all_below(block.data_chunks).without(&block.present_set);
        let lost = lost_data.len();
        let parity = block.present_set.count_in(k..k + m);
        if lost > parity {
            return Err(ReconstructError::TooManyLost { lost, parity });
        }
        let used_parity = block.present_set.iter().filter(|index| *index >= k).take(lost).collect();
        let pattern = Pattern { lost_data, used_parity, wanted: block.missing_set };
        let plan = workspace.plan(&pattern);
        // The order of `RepairMatrix`. The last data chunk, the only one that may be shorter, is last.
        let mut inputs = SliceArray::<N>::new();
        for index in pattern.used_parity.iter() {
            inputs.push(block.present[index]);
        }
        for index in block.present_set.iter().take_while(|index| *index < k) {
            inputs.push(block.present[index]);
        }
        let mut outputs = SliceArrayMut::<N>::new();
        let wanted = block.missing_set;
        for index in wanted.iter().filter(|index| *index >= k) {
            outputs.push(std::mem::take(&mut block.missing[index]));
        }
        for index in wanted.iter().take_while(|index| *index < k) {
            outputs.push(std::mem::take(&mut block.missing[index]));
        }
        spread.columns(inputs.slices(), outputs.slices(), &|inputs, outputs| {
            self.engine.mul(plan, (0, 0), inputs, outputs, false);
        });
        Ok(())
    }

    fn repair_xor<const N: usize>(
        &self,
        block: &mut Block<'_, '_, N>,
        spread: Spread,
    ) -> Result<(), ReconstructError> {
        let (k, m) = (self.code.data_chunks(), self.code.parity_chunks());
        let wanted = block.missing_set;
        let group_of = |index: usize| if index < k { index % m } else { index - k };
        // Parity first, so that the last data chunk, which may be shorter, is last.
        let members =
            |group: usize| std::iter::once(k + group).chain((group..block.data_chunks).step_by(m));
        for chunk in wanted.iter() {
            let group = group_of(chunk);
            let lost = |other: &usize| *other != chunk && !block.present_set.contains(*other);
            if let Some(other) = members(group).find(lost) {
                return Err(ReconstructError::GroupLost { group, chunk, other });
            }
        }
        for chunk in wanted.iter() {
            let output = std::mem::take(&mut block.missing[chunk]);
            let mut inputs = SliceArray::<N>::new();
            for member in members(group_of(chunk)).filter(|member| *member != chunk) {
                let input = block.present[member];
                inputs.push(&input[..input.len().min(output.len())]);
            }
            spread.columns(inputs.slices(), &mut [output], &|inputs, outputs| {
                self.engine.xor(inputs, outputs[0], false);
            });
        }
        Ok(())
    }
}

impl<'p, 'o, const N: usize> Block<'p, 'o, N> {
    fn new(codec: &Codec, data_chunks: usize, parity_chunks: usize) -> Result<Self, ShapeError> {
        let (k, m) = (codec.code.data_chunks(), codec.code.parity_chunks());
        if data_chunks == 0 || data_chunks > k {
            return Err(ShapeError::DataChunks { have: data_chunks, max: k });
        }
        if parity_chunks > m {
            return Err(ShapeError::ParityChunks { have: parity_chunks, max: m });
        }
        Ok(Self {
            data_chunks,
            present: [&[]; N],
            present_set: ChunkSet::new(),
            missing: std::array::from_fn(|_| Default::default()),
            missing_set: ChunkSet::new(),
        })
    }

    fn add<'c: 'p + 'o>(
        &mut self,
        codec: &Codec,
        index: usize,
        chunk: &'c mut [u8],
        lost: &ChunkSet,
    ) -> Result<(), ShapeError> {
        if lost.contains(index) {
            self.add_missing(codec, index, chunk)
        } else {
            self.add_present(codec, index, chunk)
        }
    }

    fn add_present(
        &mut self,
        codec: &Codec,
        index: usize,
        chunk: &'p [u8],
    ) -> Result<(), ShapeError> {
        self.check_index(codec, index)?;
        self.present[index] = chunk;
        self.present_set.insert(index);
        Ok(())
    }

    fn add_missing(
        &mut self,
        codec: &Codec,
        index: usize,
        chunk: &'o mut [u8],
    ) -> Result<(), ShapeError> {
        self.check_index(codec, index)?;
        self.missing[index] = chunk;
        self.missing_set.insert(index);
        Ok(())
    }

    fn check_index(&self, codec: &Codec, index: usize) -> Result<(), ShapeError> {
        let parity = codec.code.data_chunks()..codec.code.chunks();
        let exists = index < self.data_chunks || parity.contains(&index);
        if exists && !self.present_set.contains(index) && !self.missing_set.contains(index) {
            return Ok(());
        }
        Err(ShapeError::Index { chunk: index, data_chunks: self.data_chunks })
    }

    fn check_lengths(&self) -> Result<(), ShapeError> {
        let lengths = || {
            let present = self.present_set.iter().map(|index| (index, self.present[index].len()));
            let missing = self.missing_set.iter().map(|index| (index, self.missing[index].len()));
            present.chain(missing)
        };
        let want = lengths().map(|(_, len)| len).max().unwrap_or(0);
        for (index, have) in lengths() {
            check_length(index, have, want, index == self.data_chunks - 1)?;
        }
        Ok(())
    }
}
