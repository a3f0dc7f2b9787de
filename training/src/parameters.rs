//! A model's parameters as one vector, beside the tensors that automatic differentiation works on.
//!
//! Exchanges and optimizers see flat vectors of f32, in the order in which the tensors were added.

use crate::random::Random;
use candle_core::backprop::GradStore;
use candle_core::{Device, Result, Tensor, Var};

/// The tensors of a model that are learned.
#[derive(Debug, Default)]
pub struct Parameters {
    vars: Vec<Var>,
    initial: Vec<f32>,
}

impl Parameters {
    /// Adds a tensor of normal numbers with a deviation, and returns a handle on it.
    ///
    /// # Errors
    /// When the tensor cannot be made.
    pub fn normal(
        &mut self,
        shape: &[usize],
        deviation: f64,
        random: &mut Random,
    ) -> Result<Tensor> {
        let count = shape.iter().product();
        self.add(shape, (0..count).map(|_| (deviation * random.normal()) as f32).collect())
    }

    /// Adds a tensor of one value, and returns a handle on it.
    ///
    /// # Errors
    /// When the tensor cannot be made.
    pub fn constant(&mut self, shape: &[usize], value: f32) -> Result<Tensor> {
        self.add(shape, vec![value; shape.iter().product()])
    }

    fn add(&mut self, shape: &[usize], values: Vec<f32>) -> Result<Tensor> {
        self.initial.extend_from_slice(&values);
        let var = Var::from_vec(values, shape, &Device::Cpu)?;
        let tensor = var.as_tensor().clone();
        self.vars.push(var);
        Ok(tensor)
    }

    /// The values that the tensors were added with.
    #[must_use]
    pub fn initial(&self) -> &[f32] {
        &self.initial
    }

    /// Elements of each tensor.
    #[must_use]
    pub fn tensors(&self) -> Vec<usize> {
        self.vars.iter().map(|var| var.elem_count()).collect()
    }

    /// The values that the tensors have.
    ///
    /// # Errors
    /// When a tensor cannot be read.
    pub fn values(&self) -> Result<Vec<f32>> {
        let mut values = Vec::with_capacity(self.initial.len());
        for var in &self.vars {
            values.extend(var.flatten_all()?.to_vec1::<f32>()?);
        }
        Ok(values)
    }

    /// Sets all tensors.
    ///
    /// # Errors
    /// When a tensor cannot be set.
    ///
    /// # Panics
    /// If there are not as many values as parameters.
    pub fn set(&self, values: &[f32]) -> Result<()> {
        assert_eq!(values.len(), self.initial.len(), "values for all parameters");
        let mut rest = values;
        for var in &self.vars {
            let (head, tail) = rest.split_at(var.elem_count());
            var.set(&Tensor::from_slice(head, var.shape(), &Device::Cpu)?)?;
            rest = tail;
        }
        Ok(())
    }

    /// Copies the gradients of all tensors; zero where a tensor has none.
    ///
    /// # Errors
    /// When a gradient cannot be read.
    ///
    /// # Panics
    /// If `into` is not as long as the parameters.
    pub fn gradient(&self, store: &GradStore, into: &mut [f32]) -> Result<()> {
        assert_eq!(into.len(), self.initial.len(), "a gradient of all parameters");
        let mut rest = into;
        for var in &self.vars {
            let (head, tail) = rest.split_at_mut(var.elem_count());
            match store.get(var) {
                Some(gradient) => {
                    head.copy_from_slice(&gradient.flatten_all()?.to_vec1::<f32>()?);
                }
                None => head.fill(0.0),
            }
            rest = tail;
        }
        Ok(())
    }
}
