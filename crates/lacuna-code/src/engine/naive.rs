//! The reference engine: a product per byte and coefficient, by logarithm
//! tables. Every other engine is compared with this one.

use super::Kernel;
use super::plan::{Matrix, Task};
use crate::gf;
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Naive;

impl Kernel for Naive {
    fn plan_words(self, rows: usize, columns: usize) -> usize {
        rows * columns
    }

    fn write_plan(self, matrix: &Matrix<'_>, words: &mut [u64]) {
        for (word, coefficient) in words.iter_mut().zip(matrix.coefficients) {
            *word = u64::from(*coefficient);
        }
    }

    fn mul(
        self,
        task: &Task<'_>,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        columns: Range<usize>,
        accumulate: bool,
    ) {
        for (row, output) in outputs.iter_mut().enumerate() {
            let first = (task.first_row + row) * task.columns + task.first_column;
            let factors = &task.words[first..][..inputs.len()];
            for at in columns.clone() {
                let products = factors
                    .iter()
                    .zip(inputs)
                    .map(|(factor, input)| gf::mul(*factor as u8, input[at]));
                let start = if accumulate { output[at] } else { 0 };
                output[at] = products.fold(start, |sum, product| sum ^ product);
            }
        }
    }

    fn xor(self, inputs: &[&[u8]], output: &mut [u8], columns: Range<usize>, accumulate: bool) {
        for at in columns {
            let start = if accumulate { output[at] } else { 0 };
            output[at] = inputs.iter().fold(start, |sum, input| sum ^ input[at]);
        }
    }
}
