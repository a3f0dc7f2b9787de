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
use std::sync::Arc;

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

type NewModel = dyn Fn(u64) -> Result<Box<dyn Model>> + Send + Sync;

/// Data and a model.
pub struct Task {
    model: Box<dyn Model>,
    /// Makes another model from a seed.
    new_model: Arc<NewModel>,
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
        let start = |seed| Random::new(seed, Stream::Parameters);
        match kind {
            TaskKind::Glyphs => {
                let glyphs = Glyphs::new(data_seed);
                let set = |stream, count| -> Result<(Tensor, Tensor)> {
                    let (pixels, classes) = glyphs.examples(data_seed, stream, count);
                    let pixels = Tensor::from_vec(pixels, (count, PIXELS), &Device::Cpu)?;
                    Ok((pixels, Tensor::from_vec(classes, (count, 1), &Device::Cpu)?))
                };
                let new_model = move |seed| {
                    let widths = [PIXELS, 1024, 768, CLASSES];
                    Ok(Box::new(Perceptron::new(&widths, &mut start(seed))?) as Box<dyn Model>)
                };
                let training = set(Stream::Training, size.training)?;
                let test = set(Stream::Test, size.test)?;
                Self::with((Arc::new(new_model), seed), training, test, size.training)
            }
            TaskKind::Text => {
                let text = Text::new(data_seed);
                Self::of_text(&text, Shape::usual(text.alphabet()), size, (data_seed, seed))
            }
        }
    }

    /// The next character of a language, by a transformer of a shape; the data's seed, and that of its start.
    ///
    /// # Errors
    /// When a tensor cannot be made.
    pub fn of_text(
        text: &Text,
        shape: Shape,
        size: DataSize,
        (data_seed, seed): (u64, u64),
    ) -> Result<Self> {
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
        let new_model = move |seed| {
            let random = &mut Random::new(seed, Stream::Parameters);
            Ok(Box::new(Transformer::new(shape, random)?) as Box<dyn Model>)
        };
        Self::with((Arc::new(new_model), seed), training, test, size.training)
    }

    fn with(
        (new_model, seed): (Arc<NewModel>, u64),
        (inputs, targets): (Tensor, Tensor),
        (test_inputs, test_targets): (Tensor, Tensor),
        examples: usize,
    ) -> Result<Self> {
        let model = new_model(seed)?;
        Ok(Self { model, new_model, inputs, targets, test_inputs, test_targets, examples })
    }

    /// The same data, which are shared, with a model of its own that starts as another seed says.
    ///
    /// # Errors
    /// When a tensor cannot be made.
    pub fn with_model(&self, seed: u64) -> Result<Self> {
        Ok(Self {
            model: (self.new_model)(seed)?,
            new_model: self.new_model.clone(),
            inputs: self.inputs.clone(),
            targets: self.targets.clone(),
            test_inputs: self.test_inputs.clone(),
            test_targets: self.test_targets.clone(),
            examples: self.examples,
        })
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

    /// The parameters that the model has.
    ///
    /// # Errors
    /// When a tensor cannot be read.
    pub fn parameters(&self) -> Result<Vec<f32>> {
        self.model.parameters().values()
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
