//! The crate reed-solomon-simd, the fastest Rust encoder besides this one. Its code is a Fourier
//! transform over GF(2^16), made for thousands of chunks rather than tens.

use super::Op;
use super::coder::{Coder, Shape};
use crate::failure::Failure;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

pub(super) struct ReedSolomonSimd {
    shape: Shape,
    encoder: ReedSolomonEncoder,
    decoder: ReedSolomonDecoder,
}

impl ReedSolomonSimd {
    /// Whether it has a code of this shape, or why not.
    pub(super) fn supports(shape: &Shape) -> Result<(), String> {
        if !shape.chunk_bytes.is_multiple_of(2) {
            return Err(format!("--chunk {}: it takes even lengths only", shape.chunk_bytes));
        }
        if !ReedSolomonEncoder::supports(shape.k, shape.m) {
            return Err(format!("it has no code of {} and {} chunks", shape.k, shape.m));
        }
        Ok(())
    }

    pub(super) fn new(shape: Shape) -> Result<Self, Failure> {
        let Shape { k, m, chunk_bytes, .. } = shape;
        let encoder = ReedSolomonEncoder::new(k, m, chunk_bytes).map_err(failed)?;
        let decoder = ReedSolomonDecoder::new(k, m, chunk_bytes).map_err(failed)?;
        Ok(Self { shape, encoder, decoder })
    }
}

impl Coder for ReedSolomonSimd {
    fn can(&self, op: Op) -> bool {
        op != Op::Update
    }

    fn encode(&mut self, data: &[u8], parity: &mut [u8]) -> Result<(), Failure> {
        for chunk in data.chunks_exact(self.shape.chunk_bytes) {
            self.encoder.add_original_shard(chunk).map_err(failed)?;
        }
        let result = self.encoder.encode().map_err(failed)?;
        let outputs = parity.chunks_exact_mut(self.shape.chunk_bytes);
        outputs.zip(result.recovery_iter()).for_each(|(to, from)| to.copy_from_slice(from));
        Ok(())
    }

    fn update(&mut self, _data: &[u8], _parity: &mut [u8]) -> Result<(), Failure> {
        Err(Failure::Usage("reed-solomon-simd cannot fold data in".to_owned()))
    }

    fn decode(&mut self, data: &mut [u8], parity: &[u8]) -> Result<(), Failure> {
        let Shape { lost, chunk_bytes, .. } = self.shape;
        for (index, chunk) in data.chunks_exact(chunk_bytes).enumerate().skip(lost) {
            self.decoder.add_original_shard(index, chunk).map_err(failed)?;
        }
        for (index, chunk) in parity.chunks_exact(chunk_bytes).enumerate().take(lost) {
            self.decoder.add_recovery_shard(index, chunk).map_err(failed)?;
        }
        let result = self.decoder.decode().map_err(failed)?;
        for (index, chunk) in data.chunks_exact_mut(chunk_bytes).enumerate().take(lost) {
            match result.restored_original(index) {
                Some(restored) => chunk.copy_from_slice(restored),
                None => return Err(Failure::Local(format!("chunk {index} was not restored"))),
            }
        }
        Ok(())
    }
}

fn failed(error: reed_solomon_simd::Error) -> Failure {
    Failure::Local(format!("reed-solomon-simd: {error}"))
}
