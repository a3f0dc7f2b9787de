//! A perceptron with hidden layers: products and rectifiers. That of the glyphs has 1,058,058 parameters.

use super::Model;
use crate::parameters::Parameters;
use crate::random::Random;
use candle_core::{Result, Tensor};

/// The model.
#[derive(Debug)]
pub struct Perceptron {
    parameters: Parameters,
    layers: Vec<(Tensor, Tensor)>,
}

impl Perceptron {
    /// A model with so many values between its layers, the inputs and classes included.
    ///
    /// # Errors
    /// When a tensor cannot be made.
    pub fn new(widths: &[usize], random: &mut Random) -> Result<Self> {
        let mut parameters = Parameters::default();
        let mut layers = Vec::with_capacity(widths.len());
        for width in widths.windows(2) {
            // Of He et al., "Delving deep into rectifiers", 2015.
            let deviation = (2.0 / width[0] as f64).sqrt();
            let weights = parameters.normal(width, deviation, random)?;
            layers.push((weights, parameters.constant(&width[1..], 0.0)?));
        }
        Ok(Self { parameters, layers })
    }
}

impl Model for Perceptron {
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn scores(&self, inputs: &Tensor) -> Result<Tensor> {
        let mut values = inputs.clone();
        for (layer, (weights, bias)) in self.layers.iter().enumerate() {
            values = values.matmul(weights)?.broadcast_add(bias)?;
            if layer + 1 < self.layers.len() {
                values = values.relu()?;
            }
        }
        Ok(values)
    }
}
