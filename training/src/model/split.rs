//! A rank's part of a transformer, for decoding (tensor parallelism as in Megatron-LM: Shoeybi et al., 2019).
//!
//! Each rank has some heads of attention and some of the hidden units: columns of the products that lead there, and the
//! rows of those that lead back. What it computes of a layer is a part of a sum over all ranks, and two sums a layer are
//! all that ranks need of each other: after attention, and after the hidden units. Characters, norms and scores are
//! on every rank.
//!
//! Keys and values of characters that were seen are kept. So the sums of a step have one vector for each text, and
//! those of the beginning one for each character of it.
//!
//! Invariant: with exact sums, all ranks have the scores of the whole model, within rounding.

use super::Shape;
use super::transformer::{mask, norm, softmax};
use candle_core::{Device, Result, Tensor};

/// A rank's part.
#[derive(Debug)]
pub struct Split {
    shape: Shape,
    ranks: usize,
    characters: Tensor,
    places: Tensor,
    layers: Vec<Layer>,
    last_norm: Tensor,
    scores: Tensor,
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

/// Texts that are being continued: what this rank remembers of their characters.
#[derive(Debug)]
pub struct Seen {
    texts: usize,
    length: usize,
    /// Keys and values of each layer, by text, head and place.
    layers: Vec<Option<(Tensor, Tensor)>>,
}

/// Why a model cannot be split.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// The caller's fault.
    #[error("{heads} heads cannot be shared equally by {ranks} ranks")]
    Heads {
        /// Heads of the model.
        heads: usize,
        /// Ranks.
        ranks: usize,
    },
    /// The caller's fault.
    #[error("{found} parameters, and the shape has {expected}")]
    Parameters {
        /// What was given.
        found: usize,
        /// What the shape has.
        expected: usize,
    },
    /// A tensor cannot be made.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
}

/// Takes tensors from a model's parameters, in the order in which [`super::Transformer`] has them.
struct Reader<'p> {
    rest: &'p [f32],
    part: (usize, usize),
}

impl Reader<'_> {
    fn whole(&mut self, shape: &[usize]) -> Result<Tensor> {
        let (head, rest) = self.rest.split_at(shape.iter().product());
        self.rest = rest;
        Tensor::from_slice(head, shape, &Device::Cpu)
    }

    /// This rank's part of the columns (1) or rows (0).
    fn part(&mut self, shape: [usize; 2], of: usize) -> Result<Tensor> {
        let (rank, ranks) = self.part;
        let length = shape[of] / ranks;
        self.whole(&shape)?.narrow(of, rank * length, length)?.contiguous()
    }
}

impl Split {
    /// The part of a rank, of a transformer with these parameters.
    ///
    /// # Errors
    /// When heads cannot be shared equally, or there are not as many parameters as the shape has.
    pub fn new(
        shape: Shape,
        parameters: &[f32],
        (rank, ranks): (usize, usize),
    ) -> std::result::Result<Self, SplitError> {
        let Shape { alphabet, context, width, heads, layers } = shape;
        if ranks == 0 || !heads.is_multiple_of(ranks) {
            return Err(SplitError::Heads { heads, ranks });
        }
        let expected = shape.parameters();
        if parameters.len() != expected {
            return Err(SplitError::Parameters { found: parameters.len(), expected });
        }
        let mut read = Reader { rest: parameters, part: (rank, ranks) };
        let characters = read.whole(&[alphabet, width])?;
        let places = read.whole(&[context, width])?;
        let square = [width, width];
        let layers = (0..layers).map(|_| {
            Ok(Layer {
                attention_norm: read.whole(&[width])?,
                queries: read.part(square, 1)?,
                keys: read.part(square, 1)?,
                values: read.part(square, 1)?,
                mix: read.part(square, 0)?,
                wide_norm: read.whole(&[width])?,
                widen: read.part([width, 4 * width], 1)?,
                narrow: read.part([4 * width, width], 0)?,
            })
        });
        let layers = layers.collect::<Result<_>>()?;
        let last_norm = read.whole(&[width])?;
        let scores = read.whole(&[width, alphabet])?;
        let mask = mask(context)?;
        Ok(Self { shape, ranks, characters, places, layers, last_norm, scores, mask })
    }

    /// So many texts, of which nothing was seen.
    #[must_use]
    pub fn begin(&self, texts: usize) -> Seen {
        Seen { texts, length: 0, layers: self.layers.iter().map(|_| None).collect() }
    }

    /// Sees the next characters of all texts, as many of each, text by text; the scores of what comes behind the last
    /// one, a row per text. `sum` adds up a vector over all ranks, who call it equally often.
    ///
    /// # Errors
    /// When a tensor cannot be computed, the texts are longer than the model can see, or the sum fails.
    pub fn see(
        &self,
        seen: &mut Seen,
        characters: &[u32],
        sum: &mut dyn FnMut(Vec<f32>) -> anyhow::Result<Vec<f32>>,
    ) -> anyhow::Result<Tensor> {
        let Shape { context, width, .. } = self.shape;
        let (texts, count) = (seen.texts, characters.len() / seen.texts.max(1));
        anyhow::ensure!(
            count > 0 && characters.len() == texts * count && seen.length + count <= context,
            "{} characters behind {} of each of {texts} texts, and the model sees {context}",
            characters.len(),
            seen.length
        );
        let mut sum = |part: Tensor| -> anyhow::Result<Tensor> {
            let all = sum(part.flatten_all()?.to_vec1::<f32>()?)?;
            Ok(Tensor::from_vec(all, (texts * count, width), &Device::Cpu)?)
        };
        let numbers = Tensor::from_slice(characters, characters.len(), &Device::Cpu)?;
        let values = self.characters.index_select(&numbers, 0)?.reshape((texts, count, width))?;
        let places = self.places.narrow(0, seen.length, count)?;
        let mut values = values.broadcast_add(&places)?.reshape((texts * count, width))?;
        for (number, layer) in self.layers.iter().enumerate() {
            let looking = norm(&values, &layer.attention_norm)?;
            let part = self.attention(layer, &looking, seen, number, count)?;
            values = (values + sum(part)?)?;
            let wide = norm(&values, &layer.wide_norm)?.matmul(&layer.widen)?.relu()?;
            values = (values + sum(wide.matmul(&layer.narrow)?)?)?;
        }
        seen.length += count;
        let last = values.reshape((texts, count, width))?.narrow(1, count - 1, 1)?;
        let last = last.contiguous()?.reshape((texts, width))?;
        Ok(norm(&last, &self.last_norm)?.matmul(&self.scores)?)
    }

    /// This rank's part of what attention adds.
    fn attention(
        &self,
        layer: &Layer,
        values: &Tensor,
        seen: &mut Seen,
        number: usize,
        count: usize,
    ) -> Result<Tensor> {
        let Shape { width, heads, .. } = self.shape;
        let (texts, head, own) = (seen.texts, width / heads, heads / self.ranks);
        let by_head = |by: &Tensor| {
            let values = values.matmul(by)?;
            values.reshape((texts, count, own, head))?.transpose(1, 2)?.contiguous()
        };
        let (mut keys, mut contents) = (by_head(&layer.keys)?, by_head(&layer.values)?);
        if let Some((before, contents_before)) = seen.layers[number].take() {
            keys = Tensor::cat(&[&before, &keys], 2)?;
            contents = Tensor::cat(&[&contents_before, &contents], 2)?;
        }
        let mask = self.mask.narrow(0, seen.length, count)?.narrow(1, 0, seen.length + count)?;
        let scale = (head as f64).sqrt().recip();
        let looks = (by_head(&layer.queries)?.matmul(&keys.t()?)? * scale)?.broadcast_add(&mask)?;
        let found = softmax(&looks)?.matmul(&contents)?;
        seen.layers[number] = Some((keys, contents));
        let found = found.transpose(1, 2)?.contiguous()?.reshape((texts * count, own * head))?;
        found.matmul(&layer.mix)
    }
}
