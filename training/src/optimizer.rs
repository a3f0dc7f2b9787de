//! How parameters follow gradients: momentum, or Adam.
//!
//! In plain loops over flat vectors, so that every rank can have an optimizer of its own.

/// Which rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Gradient descent with a momentum of 0.9.
    Momentum,
    /// Adam (Kingma and Ba, 2015) with 0.9 and 0.99.
    Adam,
}

const MOMENTUM: f32 = 0.9;
/// Faster than the paper's 0.999, as is usual for runs of some hundred steps.
const SQUARES: f32 = 0.99;
const TINY: f32 = 1e-8;

/// The state of a rule.
#[derive(Debug, Clone)]
pub struct Optimizer {
    rule: Rule,
    moments: Vec<f32>,
    squares: Vec<f32>,
    steps: i32,
}

impl Optimizer {
    /// For so many parameters.
    #[must_use]
    pub fn new(rule: Rule, parameters: usize) -> Self {
        let squares = if rule == Rule::Adam { vec![0.0; parameters] } else { Vec::new() };
        Self { rule, moments: vec![0.0; parameters], squares, steps: 0 }
    }

    /// Takes a step.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn step(&mut self, parameters: &mut [f32], gradient: &[f32], rate: f32) {
        assert_eq!(parameters.len(), gradient.len(), "a gradient for each parameter");
        assert_eq!(parameters.len(), self.moments.len(), "a moment for each parameter");
        self.steps += 1;
        let of_all = parameters.iter_mut().zip(gradient).zip(&mut self.moments);
        match self.rule {
            Rule::Momentum => {
                for ((parameter, gradient), moment) in of_all {
                    *moment = MOMENTUM * *moment + gradient;
                    *parameter -= rate * *moment;
                }
            }
            Rule::Adam => {
                // The first steps' means are taken over fewer gradients.
                let first = 1.0 / (1.0 - MOMENTUM.powi(self.steps));
                let second = 1.0 / (1.0 - SQUARES.powi(self.steps));
                for (((parameter, gradient), moment), square) in of_all.zip(&mut self.squares) {
                    *moment = MOMENTUM * *moment + (1.0 - MOMENTUM) * gradient;
                    *square = SQUARES * *square + (1.0 - SQUARES) * gradient * gradient;
                    *parameter -= rate * first * *moment / ((second * *square).sqrt() + TINY);
                }
            }
        }
    }
}

/// The share of the highest rate at a step: rises over the first twentieth, then falls to 0 as a cosine does.
#[must_use]
pub fn share_of_rate(step: usize, steps: usize) -> f32 {
    let rising = (steps / 20).max(1);
    if step < rising {
        return (step + 1) as f32 / rising as f32;
    }
    let along = (step - rising) as f32 / (steps - rising).max(1) as f32;
    0.5 + 0.5 * (std::f32::consts::PI * along).cos()
}
