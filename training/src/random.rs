//! Random numbers of the shapes that data and initial parameters need, from a seed.

use lacuna_link::Prng;

/// What a stream of a seed is for, so that no two uses share their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Templates of the glyphs.
    Templates,
    /// The training set.
    Training,
    /// The test set.
    Test,
    /// The start of a model.
    Parameters,
    /// Which examples are in which batch.
    Batches,
    /// What a network loses: one stream per link.
    Losses,
}

/// A generator with uniform and normal numbers.
#[derive(Debug, Clone)]
pub struct Random {
    prng: Prng,
    /// The second number of the last pair of normal ones.
    spare: Option<f64>,
}

impl Random {
    /// The stream of a seed for one use.
    #[must_use]
    pub fn new(seed: u64, stream: Stream) -> Self {
        Self { prng: Prng::new(seed, stream as u64), spare: None }
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        (self.prng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from `low` to `high`, without `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// An index below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "there is no index below 0");
        self.prng.up_to(bound as u64 - 1) as usize
    }

    /// A normal number of mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        // From above 0, of which there is a logarithm.
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        let angle = std::f64::consts::TAU * self.unit();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    /// Puts values into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for end in (1..values.len()).rev() {
            values.swap(end, self.below(end + 1));
        }
    }
}
