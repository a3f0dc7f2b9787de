//! The small generator: SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
//! generators", 2014).
//!
//! Its state is one word, the seed: the same seed gives the same numbers for ever. It is used for
//! decisions that must differ between flows and replay exactly, such as when a controller probes; for
//! the data and choices of tests; and to seed [`Prng`](crate::Prng). Not for keys.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator for a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if `bound` is 0. It is a remainder, so small numbers are more frequent
    /// when `bound` is near 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }

    /// True with a probability of `per_million` in a million.
    #[inline]
    pub fn chance(&mut self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next_u64().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let mut random = SplitMix64::new(1_234_567);
        let numbers = [0; 3].map(|_| random.next_u64());
        let expected =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(numbers, expected);

        // From the authors' C code.
        let mut random = SplitMix64::new(1_477_776_061_723_855_037);
        let expected = [1_985_237_415_132_408_290, 2_979_275_885_539_914_483];
        assert_eq!([0; 2].map(|_| random.next_u64()), expected);
    }

    #[test]
    fn bytes_are_those_of_the_numbers() {
        let numbers = [0; 2].map({
            let mut random = SplitMix64::new(3);
            move |_| random.next_u64().to_le_bytes()
        });
        assert_eq!(SplitMix64::new(3).bytes(11), numbers.concat()[..11]);
        assert_eq!(SplitMix64::new(3).bytes(0), []);
    }
}
