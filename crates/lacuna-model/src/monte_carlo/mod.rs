//! Monte Carlo simulation: draws the completion times that the models compute.
//!
//! A trial touches lost chunks only. Between them it jumps by geometric gaps, so a message of 2^24
//! chunks at a loss of 1e-5 costs some hundred draws, and selective repeat with independent losses
//! costs one or two per round whatever the message ([`RepeatSampler`]).
//!
//! | file | what it draws |
//! |---|---|
//! | `losses` | which chunks of a run are lost, independently or in bursts |
//! | `repeats` | selective repeat, as the model has it |
//! | `coded` | erasure coding, from the losses of single chunks |
//! | `submessages` | erasure coding, from the number of submessages that fail |
//! | `serialized` | selective repeat on a link that carries one chunk at a time |
//! | `streamed` | erasure coding with repair by submessage, on such a link |

mod coded;
mod losses;
mod repeats;
mod serialized;
mod streamed;
mod submessages;

pub use coded::CodedSampler;
pub use repeats::RepeatSampler;
pub use serialized::SerializedSampler;
pub use streamed::StreamedSampler;
pub use submessages::SubmessageSampler;

use crate::{Completion, Random};

/// Something whose completion time can be drawn.
pub trait Sample {
    /// One completion time in seconds.
    fn sample_s(&self, random: &mut Random) -> f64;
}

/// Completion times that were drawn, in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    sorted_s: Vec<f64>,
    mean_s: f64,
    deviation_s: f64,
}

impl Samples {
    /// So many times of this model; at least one.
    #[must_use]
    pub fn draw(model: &impl Sample, trials: usize, random: &mut Random) -> Self {
        Self::from_times((0..trials.max(1)).map(|_| model.sample_s(random)).collect())
    }

    pub(crate) fn from_times(mut times_s: Vec<f64>) -> Self {
        times_s.sort_by(f64::total_cmp);
        let count = times_s.len().max(1) as f64;
        let mean_s = times_s.iter().sum::<f64>() / count;
        let squares: f64 = times_s.iter().map(|time| (time - mean_s).powi(2)).sum();
        let deviation_s = (squares / (count - 1.0).max(1.0)).sqrt();
        Self { sorted_s: times_s, mean_s, deviation_s }
    }

    pub(crate) fn into_times(self) -> Vec<f64> {
        self.sorted_s
    }

    /// Number of times.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sorted_s.len()
    }

    /// The interval around the mean that holds the true one with the probability that a normal
    /// variable has within `z` standard deviations (1.96: 95 %, 3.29: 99.9 %).
    #[must_use]
    pub fn mean_interval_s(&self, z: f64) -> (f64, f64) {
        let half = z * self.deviation_s / (self.count() as f64).sqrt();
        (self.mean_s - half, self.mean_s + half)
    }

    /// The interval around a quantile that holds the true one: how many samples lie below it is a
    /// binomial number, within `z` of its standard deviations. Where that may be all of them there are too
    /// few to bound it from above, and where it may be none, from below: infinity, and zero.
    #[must_use]
    pub fn quantile_interval_s(&self, probability: f64, z: f64) -> (f64, f64) {
        let count = self.count() as f64;
        let half = z * (count * probability * (1.0 - probability)).sqrt() + 1.0;
        let (first, last) =
            ((count * probability - half).floor(), (count * probability + half).ceil());
        let low_s = if first < 0.0 { 0.0 } else { self.sorted_s[first as usize] };
        let high_s = self.sorted_s.get(last as usize).copied().unwrap_or(f64::INFINITY);
        (low_s, high_s)
    }
}

impl Completion for Samples {
    fn mean_s(&self) -> f64 {
        self.mean_s
    }

    fn cdf(&self, time_s: f64) -> f64 {
        self.sorted_s.partition_point(|time| *time <= time_s) as f64 / self.count() as f64
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        let rank = (self.count() as f64 * probability).ceil().max(1.0) as usize;
        self.sorted_s[rank.min(self.count()) - 1]
    }
}

#[cfg(test)]
mod tests;
