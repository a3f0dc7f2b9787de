//! The random generator: xoshiro256++, seeded by SplitMix64.
//!
//! Both by David Blackman and Sebastiano Vigna ("Scrambled linear pseudorandom number generators",
//! 2021; prng.di.unimi.it). They are implemented here, without a dependency, so that a seed gives the
//! same packets for ever. Each fault draws from a stream of its own, so that turning one on does not
//! change the others.

use crate::SplitMix64;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    /// Stream number `stream` of `seed`.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        // Two rounds, so that neighbouring seeds and streams have nothing in common.
        Self::from_seed(SplitMix64::new(seed).next_u64() ^ stream)
    }

    /// The only stream of `seed`, seeded as the authors recommend.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let mut mix = SplitMix64::new(seed);
        Self { state: std::array::from_fn(|_| mix.next_u64()) }
    }

    /// The next 64 random bits.
    #[inline]
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

    /// A number from 0 to `max` inclusive. The bias is at most 2^-64 per value, which no test can see.
    pub fn up_to(&mut self, max: u64) -> u64 {
        let values = u128::from(max) + 1;
        ((u128::from(self.next_u64()) * values) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the authors' C code.
    #[test]
    fn the_generator_is_that_of_the_paper() {
        let mut prng = Prng { state: [1, 2, 3, 4] };
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
        assert_eq!(std::array::from_fn(|_| prng.next_u64()), expected);
    }

    #[test]
    fn a_bounded_draw_reaches_both_ends_and_no_further() {
        let mut prng = Prng::new(3, 1);
        let mut seen = [0u32; 4];
        for _ in 0..4000 {
            seen[usize::try_from(prng.up_to(3)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|count| (900..1100).contains(count)), "{seen:?}");
        assert_eq!(prng.up_to(0), 0);
        assert!((0..100).any(|_| prng.up_to(u64::MAX) > u64::MAX / 2));
    }

    #[test]
    fn streams_and_seeds_differ() {
        let first = |seed, stream| Prng::new(seed, stream).next_u64();
        let mut firsts: Vec<u64> = (0..8).flat_map(|s| (0..8).map(move |t| first(s, t))).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), 64);
    }
}
