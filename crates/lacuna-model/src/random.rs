//! Random numbers of the simulations: real-valued draws from the generator of `lacuna-link`.

use lacuna_link::Prng;

/// A stream of random numbers, decided by its seed.
#[derive(Debug, Clone)]
pub struct Random(Prng);

impl Random {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Prng::from_seed(seed))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number above 0 and up to 1, with 53 random bits.
    pub(crate) fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / 9_007_199_254_740_992.0
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        // `unit` is never 0, so a probability of 0 never holds and one of 1 always does.
        self.unit() <= probability
    }

    /// A geometric draw: failures before the first success. `ln_failure` is the logarithm of the failure
    /// probability, -inf for 0; the result is infinite if the probability is 1.
    pub(crate) fn failures(&mut self, ln_failure: f64) -> f64 {
        if ln_failure == 0.0 { f64::INFINITY } else { (self.unit().ln() / ln_failure).floor() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_their_mean() {
        let mut random = Random::new(1);
        for p in [0.5f64, 0.01, 1e-6] {
            let sum: f64 = (0..100_000).map(|_| random.failures((-p).ln_1p())).sum();
            let mean = (1.0 - p) / p;
            assert!((sum / 100_000.0 / mean - 1.0).abs() < 0.02, "{p}");
        }
        assert_eq!(random.failures(0.0), f64::INFINITY);
        assert_eq!(random.failures(f64::NEG_INFINITY), 0.0);
    }
}
