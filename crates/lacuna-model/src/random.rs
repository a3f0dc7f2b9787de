//! The seeded generator of the simulations: xoshiro256++, seeded by SplitMix64 (Blackman and
//! Vigna, "Scrambled linear pseudorandom number generators", 2021).
//!
//! It is here, and not a dependency, so that a seed gives the same samples for ever.

/// A stream of random numbers, decided by its seed.
#[derive(Debug, Clone)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (mix ^ (mix >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
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

    /// Trials that fail before the first that succeeds, where `ln_failure` is the logarithm of the
    /// probability to fail: -inf for none. Infinite if none ever succeeds.
    pub(crate) fn failures(&mut self, ln_failure: f64) -> f64 {
        if ln_failure == 0.0 { f64::INFINITY } else { (self.unit().ln() / ln_failure).floor() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the authors' C code.
    #[test]
    fn the_generator_is_that_of_the_paper() {
        let mut random = Random { state: [1, 2, 3, 4] };
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
        assert_eq!(std::array::from_fn(|_| random.next_u64()), expected);
    }

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
