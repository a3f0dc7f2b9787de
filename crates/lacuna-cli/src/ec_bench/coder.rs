//! The interface of the compared coders, and Lacuna's own codes behind it.

use super::Op;
use crate::failure::Failure;
use lacuna_code::{ChunkSet, Chunked, ChunkedMut, Codec, Workspace};

/// Bytes per call of `update`: a packet, as in a sender.
const PACKET_BYTES: usize = 4096;

/// Dimensions of the blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) k: usize,
    pub(super) m: usize,
    pub(super) chunk_bytes: usize,
    pub(super) blocks: usize,
    /// Data chunks that a decode repairs: the first ones.
    pub(super) lost: usize,
}

/// One thread's coder. A block is k contiguous data chunks; its parity is contiguous, too.
pub(super) trait Coder: Send {
    /// Whether it supports an operation.
    fn can(&self, op: Op) -> bool;
    /// Computes the parity of the data.
    fn encode(&mut self, data: &[u8], parity: &mut [u8]) -> Result<(), Failure>;
    /// Folds the data into the parity, packet by packet.
    fn update(&mut self, data: &[u8], parity: &mut [u8]) -> Result<(), Failure>;
    /// Reconstructs the lost data chunks in place.
    fn decode(&mut self, data: &mut [u8], parity: &[u8]) -> Result<(), Failure>;
}

impl Shape {
    pub(super) fn block_bytes(&self) -> usize {
        self.k * self.chunk_bytes
    }

    pub(super) fn parity_bytes(&self) -> usize {
        self.m * self.chunk_bytes
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.blocks * self.block_bytes()
    }

    /// Packets of a block as `update` takes them: chunk, offset in it, bytes.
    pub(super) fn packets<'d>(
        &self,
        data: &'d [u8],
    ) -> impl Iterator<Item = (usize, usize, &'d [u8])> + use<'d> {
        data.chunks(self.chunk_bytes).enumerate().flat_map(|(index, chunk)| {
            let packets = chunk.chunks(PACKET_BYTES).enumerate();
            packets.map(move |(number, packet)| (index, number * PACKET_BYTES, packet))
        })
    }
}

/// Lacuna's own codes.
pub(super) struct Own {
    shape: Shape,
    codec: Codec,
    workspace: Workspace,
    lost: ChunkSet,
}

impl Own {
    pub(super) fn new(shape: Shape, codec: &Codec) -> Self {
        let workspace = Workspace::new(codec);
        Self { shape, codec: codec.clone(), workspace, lost: ChunkSet::all_below(shape.lost) }
    }
}

impl Coder for Own {
    fn can(&self, _op: Op) -> bool {
        true
    }

    fn encode(&mut self, data: &[u8], parity: &mut [u8]) -> Result<(), Failure> {
        let data = Chunked::new(data, self.shape.chunk_bytes).map_err(failed)?;
        let mut parity = ChunkedMut::new(parity, self.shape.chunk_bytes).map_err(failed)?;
        self.codec.encode(&data, &mut parity).map_err(failed)
    }

    fn update(&mut self, data: &[u8], parity: &mut [u8]) -> Result<(), Failure> {
        let mut parity = ChunkedMut::new(parity, self.shape.chunk_bytes).map_err(failed)?;
        for (index, offset, packet) in self.shape.packets(data) {
            self.codec.update(&mut parity, index, offset, packet).map_err(failed)?;
        }
        Ok(())
    }

    fn decode(&mut self, data: &mut [u8], parity: &[u8]) -> Result<(), Failure> {
        let mut data = ChunkedMut::new(data, self.shape.chunk_bytes).map_err(failed)?;
        let parity = Chunked::new(parity, self.shape.chunk_bytes).map_err(failed)?;
        self.codec
            .reconstruct_data(&mut self.workspace, &mut data, &parity, &self.lost)
            .map_err(failed)
    }
}

/// A copy into a buffer of the parity's size: a lower bound for reading the data and writing the
/// parity.
pub(super) struct Copying;

impl Coder for Copying {
    fn can(&self, op: Op) -> bool {
        op == Op::Encode
    }

    fn encode(&mut self, data: &[u8], parity: &mut [u8]) -> Result<(), Failure> {
        for part in data.chunks(parity.len()) {
            parity[..part.len()].copy_from_slice(part);
        }
        Ok(())
    }

    fn update(&mut self, _data: &[u8], _parity: &mut [u8]) -> Result<(), Failure> {
        Ok(())
    }

    fn decode(&mut self, _data: &mut [u8], _parity: &[u8]) -> Result<(), Failure> {
        Ok(())
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Local(error.to_string())
}
