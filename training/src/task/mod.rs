//! What is learned: data that are made from a seed, and a model for them.
//!
//! | module | task | model |
//! |---|---|---|
//! | `glyphs` | noisy glyphs of ten classes | [`crate::model::Perceptron`] |
//! | `text` | the next character of a made-up language | [`crate::model::Transformer`] |
//!
//! The data have a seed of their own, which stays the same when the seed of a run (the model's start and the
//! batches) changes.

mod glyphs;
mod text;

pub use glyphs::{CLASSES, Glyphs, PIXELS, SIDE};
pub use text::Text;

use crate::model::{Model, Perceptron, Shape, Transformer};
use crate::random::{Random, Stream};
use candle_core::{Device, Result, Tensor};

/// Examples that are evaluated at once.
const EVALUATED_AT_ONCE: usize = 500;

/// Which data and model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskKind {
    /// Noisy glyphs of ten classes, and a perceptron with two hidden layers.
    Glyphs,
    /// A made-up language, and a transformer that predicts its characters.
    Text,
}

/// How much data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataSize {
    /// Examples to learn from. Of text, each is as many characters as the model's context.
    pub training: usize,
    /// Examples to evaluate with.
    pub test: usize,
}

impl TaskKind {
    /// As much as the figures are made with.
    #[must_use]
    pub fn usual_size(self) -> DataSize {
        match self {
            Self::Glyphs => DataSize { training: 30_000, test: 10_000 },
            // 1.2 million characters, and 64,000 to evaluate with.
            Self::Text => DataSize { training: 20_000, test: 1_000 },
        }
    }
}

/// How good a model is.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Quality {
    /// Mean loss in nats.
    pub loss: f64,
    /// Fraction of predictions that are right.
    pub accuracy: f64,
}

/// Data and a model.
pub struct Task {
    model: Box<dyn Model>,
    inputs: Tensor,
    targets: Tensor,
    test_inputs: Tensor,
    test_targets: Tensor,
    examples: usize,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("examples", &self.examples).finish_non_exhaustive()
    }
}

impl Task {
    /// Makes the data from one seed and the model's start from another.
    ///
    /// # Errors
    /// When a tensor cannot be made.
    pub fn new(kind: TaskKind, size: DataSize, data_seed: u64, seed: u64) -> Result<Self> {
        let mut random = Random::new(seed, Stream::Parameters);
        match kind {
            TaskKind::Glyphs => {
                let glyphs = Glyphs::new(data_seed);
                let set = |stream, count| -> Result<(Tensor, Tensor)> {
                    let (pixels, classes) = glyphs.examples(data_seed, stream, count);
                    let pixels = Tensor::from_vec(pixels, (count, PIXELS), &Device::Cpu)?;
                    Ok((pixels, Tensor::from_vec(classes, (count, 1), &Device::Cpu)?))
                };
                let model = Perceptron::new(&[PIXELS, 1024, 768, CLASSES], &mut random)?;
                let training = set(Stream::Training, size.training)?;
                let test = set(Stream::Test, size.test)?;
                Ok(Self::with(Box::new(model), training, test, size.training))
            }
            TaskKind::Text => {
                let text = Text::new(data_seed);
                let shape = Shape::usual(text.alphabet());
                let set = |stream, count: usize| -> Result<(Tensor, Tensor)> {
                    let length = shape.context;
                    let characters = text.characters(data_seed, stream, count * length + 1);
                    let of = |from: usize| {
                        let part = characters[from..from + count * length].to_vec();
                        Tensor::from_vec(part, (count, length), &Device::Cpu)
                    };
                    Ok((of(0)?, of(1)?))
                };
                let training = set(Stream::Training, size.training)?;
                let test = set(Stream::Test, size.test)?;
                let model = Transformer::new(shape, &mut random)?;
                Ok(Self::with(Box::new(model), training, test, size.training))
            }
        }
    }

    fn with(
        model: Box<dyn Model>,
        (inputs, targets): (Tensor, Tensor),
        (test_inputs, test_targets): (Tensor, Tensor),
        examples: usize,
    ) -> Self {
        Self { model, inputs, targets, test_inputs, test_targets, examples }
    }

    /// Examples to learn from.
    #[must_use]
    pub fn examples(&self) -> usize {
        self.examples
    }

    /// The parameters that the model starts with.
    #[must_use]
    pub fn initial(&self) -> &[f32] {
        self.model.parameters().initial()
    }

    /// Elements of each tensor of the parameters.
    #[must_use]
    pub fn tensors(&self) -> Vec<usize> {
        self.model.parameters().tensors()
    }

    /// Gives the model other parameters.
    ///
    /// # Errors
    /// When a tensor cannot be set.
    pub fn set_parameters(&self, values: &[f32]) -> Result<()> {
        self.model.parameters().set(values)
    }

    /// The gradient of the mean loss over some examples, and that loss.
    ///
    /// # Errors
    /// When a tensor cannot be computed.
    pub fn gradient(&self, examples: &[u32], gradient: &mut [f32]) -> Result<f64> {
        let examples = Tensor::from_slice(examples, examples.len(), &Device::Cpu)?;
        let inputs = self.inputs.index_select(&examples, 0)?;
        let targets = self.targets.index_select(&examples, 0)?.flatten_all()?;
        let scores = self.model.scores(&inputs)?;
        let loss = candle_nn::loss::cross_entropy(&scores, &targets)?;
        self.model.parameters().gradient(&loss.backward()?, gradient)?;
        Ok(f64::from(loss.to_scalar::<f32>()?))
    }

    /// How good the model is on the test set.
    ///
    /// # Errors
    /// When a tensor cannot be computed.
    pub fn evaluate(&self) -> Result<Quality> {
        let count = self.test_inputs.dim(0)?;
        let (mut loss, mut right) = (0.0, 0.0);
        for start in (0..count).step_by(EVALUATED_AT_ONCE) {
            let length = EVALUATED_AT_ONCE.min(count - start);
            let targets = self.test_targets.narrow(0, start, length)?.flatten_all()?;
            let scores = self.model.scores(&self.test_inputs.narrow(0, start, length)?)?.detach();
            let mean = candle_nn::loss::cross_entropy(&scores, &targets)?.to_scalar::<f32>()?;
            let equal = scores.argmax(candle_core::D::Minus1)?.eq(&targets)?;
            let equal = equal.to_dtype(candle_core::DType::F32)?.mean_all()?.to_scalar::<f32>()?;
            loss += f64::from(mean) * length as f64;
            right += f64::from(equal) * length as f64;
        }
        Ok(Quality { loss: loss / count as f64, accuracy: right / count as f64 })
    }
}
