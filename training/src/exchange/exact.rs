//! The average of all contributions.

use super::{Exchange, Missing, check};

/// Loses nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exact;

impl Exchange for Exact {
    fn average(
        &mut self,
        vectors: &[Vec<f32>],
        results: &mut [Vec<f32>],
    ) -> anyhow::Result<Missing> {
        check(vectors, results);
        let Some((first, others)) = results.split_first_mut() else {
            return Ok(Missing::default());
        };
        first.copy_from_slice(&vectors[0]);
        for vector in &vectors[1..] {
            first.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value);
        }
        let ranks = vectors.len() as f32;
        first.iter_mut().for_each(|sum| *sum /= ranks);
        for other in others {
            other.copy_from_slice(first);
        }
        Ok(Missing::default())
    }
}
