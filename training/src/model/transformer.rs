//! A transformer that predicts the next character (Vaswani et al., 2017, with the norms before the layers).
//!
//! Its softmax and norms are written out of differentiable parts: the fused ones of `candle_nn` have no
//! gradient.

use super::Model;
use crate::parameters::Parameters;
use crate::random::Random;
use candle_core::{D, Device, Result, Tensor};

/// How large a transformer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Different characters.
    pub alphabet: usize,
    /// Characters that it sees.
    pub context: usize,
    /// Values of a character.
    pub width: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Layers.
    pub layers: usize,
}

impl Shape {
    /// About 0.6 million parameters.
    #[must_use]
    pub fn usual(alphabet: usize) -> Self {
        Self { alphabet, context: 64, width: 128, heads: 4, layers: 3 }
    }

    /// About 1.4 million parameters.
    #[must_use]
    pub fn wide(alphabet: usize) -> Self {
        Self { width: 192, ..Self::usual(alphabet) }
    }

    /// How many parameters a transformer of this shape has.
    #[must_use]
    pub fn parameters(self) -> usize {
        let Self { alphabet, context, width, layers, .. } = self;
        (2 * alphabet + context + 1) * width + layers * (12 * width + 2) * width
    }
}

/// The model.
#[derive(Debug)]
pub struct Transformer {
    shape: Shape,
    parameters: Parameters,
    characters: Tensor,
    places: Tensor,
    layers: Vec<Layer>,
    last_norm: Tensor,
    scores: Tensor,
    /// 0 where a character may look, very negative where it may not.
    mask: Tensor,
}

#[derive(Debug)]
struct Layer {
    attention_norm: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    mix: Tensor,
    wide_norm: Tensor,
    widen: Tensor,
    narrow: Tensor,
}

impl Transformer {
    /// A model of a shape.
    ///
    /// # Errors
    /// When a tensor cannot be made.
    pub fn new(shape: Shape, random: &mut Random) -> Result<Self> {
        let Shape { alphabet, context, width, layers, .. } = shape;
        let mut parameters = Parameters::default();
        let characters = parameters.normal(&[alphabet, width], 0.05, random)?;
        let places = parameters.normal(&[context, width], 0.05, random)?;
        // What a layer adds starts smaller the more of them there are (GPT-2).
        let deviation = (width as f64).sqrt().recip();
        let added = deviation / (2.0 * layers as f64).sqrt();
        let layers = (0..layers).map(|_| {
            let square = [width, width];
            Ok(Layer {
                attention_norm: parameters.constant(&[width], 1.0)?,
                queries: parameters.normal(&square, deviation, random)?,
                keys: parameters.normal(&square, deviation, random)?,
                values: parameters.normal(&square, deviation, random)?,
                mix: parameters.normal(&square, added, random)?,
                wide_norm: parameters.constant(&[width], 1.0)?,
                widen: parameters.normal(&[width, 4 * width], deviation, random)?,
                narrow: parameters.normal(&[4 * width, width], added / 2.0, random)?,
            })
        });
        let layers = layers.collect::<Result<_>>()?;
        let last_norm = parameters.constant(&[width], 1.0)?;
        let scores = parameters.normal(&[width, alphabet], deviation, random)?;
        let mask = mask(context)?;
        Ok(Self { shape, parameters, characters, places, layers, last_norm, scores, mask })
    }

    fn attention(&self, layer: &Layer, values: &Tensor, examples: usize) -> Result<Tensor> {
        let Shape { context, width, heads, .. } = self.shape;
        let by_head = |by: &Tensor| {
            let values = values.matmul(by)?;
            values.reshape((examples, context, heads, width / heads))?.transpose(1, 2)?.contiguous()
        };
        let (queries, keys) = (by_head(&layer.queries)?, by_head(&layer.keys)?);
        let scale = ((width / heads) as f64).sqrt().recip();
        let looks = (queries.matmul(&keys.t()?)? * scale)?.broadcast_add(&self.mask)?;
        let seen = softmax(&looks)?.matmul(&by_head(&layer.values)?)?;
        let seen = seen.transpose(1, 2)?.contiguous()?.reshape((examples * context, width))?;
        seen.matmul(&layer.mix)
    }
}

impl Model for Transformer {
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn scores(&self, inputs: &Tensor) -> Result<Tensor> {
        let Shape { context, width, .. } = self.shape;
        let examples = inputs.dim(0)?;
        let values = self.characters.index_select(&inputs.flatten_all()?, 0)?;
        let values = values.reshape((examples, context, width))?.broadcast_add(&self.places)?;
        let mut values = values.reshape((examples * context, width))?;
        for layer in &self.layers {
            let seen = self.attention(layer, &norm(&values, &layer.attention_norm)?, examples)?;
            values = (values + seen)?;
            let wide = norm(&values, &layer.wide_norm)?.matmul(&layer.widen)?.relu()?;
            values = (values + wide.matmul(&layer.narrow)?)?;
        }
        norm(&values, &self.last_norm)?.matmul(&self.scores)
    }
}

/// 0 where a character may look, very negative where it may not: behind itself.
pub(super) fn mask(context: usize) -> Result<Tensor> {
    let mask: Vec<f32> = (0..context * context)
        .map(|at| if at % context > at / context { -1e9 } else { 0.0 })
        .collect();
    Tensor::from_vec(mask, (context, context), &Device::Cpu)
}

pub(super) fn softmax(values: &Tensor) -> Result<Tensor> {
    // The largest is taken off against overflow only: the result does not depend on it.
    let largest = values.max_keepdim(D::Minus1)?.detach();
    let powers = values.broadcast_sub(&largest)?.exp()?;
    powers.broadcast_div(&powers.sum_keepdim(D::Minus1)?)
}

/// By the root of the mean square (Zhang and Sennrich, 2019).
pub(super) fn norm(values: &Tensor, gain: &Tensor) -> Result<Tensor> {
    let square = (values.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?;
    values.broadcast_div(&square.sqrt()?)?.broadcast_mul(gain)
}
