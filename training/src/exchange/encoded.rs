//! Another exchange over the Hadamard transform of the vectors (OptiNIC 3.2).
//!
//! Vectors are encoded, averaged, and decoded. A packet then carries a few coefficients of each of many
//! blocks, so that its loss makes every element of these a little wrong instead of some of them zero. Blocks
//! lie within tensors of the model. The seed of the signs changes with every step, or a coefficient that is
//! lost again and again would always be the same mix of parameters.

use super::{Exchange, Missing, PACKET_ELEMENTS};
use lacuna_code::hadamard::{
    Arrived, Element, EngineError, Layout, LayoutError, RawBlocks, RawBlocksError, Scale,
    Transform, TransformError, bytes_of, bytes_of_mut,
};

/// Elements of a block.
pub const BLOCK: usize = 1024;
/// Blocks that share a packet, if packets are as long as blocks.
pub const STRIDE: usize = 64;

/// The exchange.
#[derive(Debug)]
pub struct Encoded<E> {
    inner: E,
    layout: Layout,
    seed: u64,
    vectors: Vec<Vec<f32>>,
    results: Vec<Vec<f32>>,
}

/// Why vectors cannot be encoded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EncodedError {
    /// There is no such layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An instruction set was asked for that the processor does not have.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The vectors do not fit the layout.
    #[error(transparent)]
    Transform(#[from] TransformError),
    /// Lists of raw blocks that do not fit each other.
    #[error(transparent)]
    Raw(#[from] RawBlocksError),
}

impl<E: Exchange> Encoded<E> {
    /// Encodes tensors of these lengths with signs by a seed.
    ///
    /// # Errors
    /// When there is no layout for them.
    pub fn new(inner: E, tensors: &[usize], seed: u64) -> Result<Self, EncodedError> {
        let layout = Layout::new(BLOCK, STRIDE, tensors)?.with_packet_elements(PACKET_ELEMENTS)?;
        Ok(Self { inner, layout, seed, vectors: Vec::new(), results: Vec::new() })
    }

    fn encode(&mut self, vectors: &[Vec<f32>]) -> Result<(Transform, RawBlocks), EncodedError> {
        let mut transform = Transform::new(Element::F32, self.seed)?;
        let mut raw: Option<RawBlocks> = None;
        self.vectors.resize_with(vectors.len(), || vec![0.0; self.layout.elements()]);
        for (vector, encoded) in vectors.iter().zip(&mut self.vectors) {
            let own = transform.encode(&self.layout, bytes_of(vector), bytes_of_mut(encoded))?;
            match &mut raw {
                None => raw = Some(own),
                Some(raw) => raw.merge(&own)?,
            }
        }
        Ok((transform, raw.unwrap_or_else(|| RawBlocks::none(self.layout.blocks()))))
    }

    fn decode(
        &mut self,
        transform: &mut Transform,
        raw: &RawBlocks,
        results: &mut [Vec<f32>],
    ) -> Result<(), EncodedError> {
        for (encoded, result) in self.results.iter_mut().zip(results) {
            // What did not come is zero already.
            let (arrived, wire, to) = (Arrived::All, bytes_of_mut(encoded), bytes_of_mut(result));
            transform.decode(&self.layout, wire, arrived, raw, Scale::Kept, to)?;
        }
        Ok(())
    }
}

impl<E: Exchange> Exchange for Encoded<E> {
    fn average(
        &mut self,
        vectors: &[Vec<f32>],
        results: &mut [Vec<f32>],
    ) -> anyhow::Result<Missing> {
        super::check(vectors, results);
        let (mut transform, raw) = self.encode(vectors)?;
        self.results.resize_with(results.len(), || vec![0.0; self.layout.elements()]);
        let missing = self.inner.average(&self.vectors, &mut self.results)?;
        self.decode(&mut transform, &raw, results)?;
        self.seed = self.seed.wrapping_add(1);
        Ok(missing)
    }
}
