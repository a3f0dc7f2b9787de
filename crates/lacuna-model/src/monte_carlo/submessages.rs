//! Erasure coding, drawn by submessage: how many chunks fall back comes from its distribution, what
//! their repair takes is drawn. Tens of nanoseconds a time, for collectives of many messages; as a
//! check of the model it is worth less than [`CodedSampler`](super::CodedSampler).

use super::Sample;
use super::repeats::Repeats;
use crate::{EcConfig, ErasureCoding, ModelError, Random, Transfer};

/// Draws what [`ErasureCoding`] computes, without early acknowledgement.
#[derive(Debug, Clone)]
pub struct SubmessageSampler {
    /// Completion without fallback.
    end_s: f64,
    /// Start of the repair.
    repair_s: f64,
    /// Numbers of chunks that fall back, and the probability of these and all before.
    table: Vec<(u64, f64)>,
    repeats: Repeats,
}

impl SubmessageSampler {
    /// A message with this code; [`EcConfig::early_ack`] is ignored.
    ///
    /// # Errors
    ///
    /// As [`ErasureCoding::new`].
    pub fn new(transfer: &Transfer, config: EcConfig) -> Result<Self, ModelError> {
        let model = ErasureCoding::new(transfer, config)?;
        let mut sum = 0.0;
        let table = model
            .fallback_terms()
            .map(|(chunks, weight)| {
                sum += weight;
                (chunks, sum)
            })
            .collect();
        let (end_s, repair_s) = model.ends_s();
        Ok(Self { end_s, repair_s, table, repeats: Repeats::new(transfer, config.fallback) })
    }
}

impl Sample for SubmessageSampler {
    fn sample_s(&self, random: &mut Random) -> f64 {
        let drawn = random.unit();
        let index = self.table.partition_point(|(_, sum)| *sum < drawn);
        // Rounding may leave the last sum a crumb below 1.
        match self.table[index.min(self.table.len() - 1)].0 {
            0 => self.end_s,
            chunks => self.repair_s + self.repeats.slowest_s(chunks, random),
        }
    }
}
