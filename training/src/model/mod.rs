//! Models, with gradients by automatic differentiation.

mod perceptron;
mod split;
mod transformer;

pub use perceptron::Perceptron;
pub use split::{Seen, Split, SplitError};
pub use transformer::{Shape, Transformer};

use crate::parameters::Parameters;
use candle_core::{Result, Tensor};

/// A model that scores classes.
pub trait Model: Send + Sync {
    /// What is learned.
    fn parameters(&self) -> &Parameters;

    /// Scores of each class, one row per prediction.
    ///
    /// # Errors
    /// When a tensor cannot be computed.
    fn scores(&self, inputs: &Tensor) -> Result<Tensor>;
}
