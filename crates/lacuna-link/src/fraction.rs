//! Probabilities as exact integers.
//!
//! A draw compares 64 random bits with a threshold out of 2^64, so it gives the same result on every
//! machine. Floating point is used only once, to compute the threshold.

use std::fmt;

use crate::Prng;

/// 2^64: the threshold of probability 1.
const ONE: u128 = 1 << 64;

/// A probability in units of 2^-64, from 0 to 1 inclusive.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fraction {
    /// At most [`ONE`].
    threshold: u128,
}

impl Fraction {
    /// Probability 0.
    #[must_use]
    pub const fn never() -> Self {
        Self { threshold: 0 }
    }

    /// Probability 1.
    #[must_use]
    pub const fn always() -> Self {
        Self { threshold: ONE }
    }

    /// A probability in parts per million.
    ///
    /// # Panics
    ///
    /// When there are more than a million.
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Self {
        assert!(ppm <= 1_000_000, "a probability is at most 1,000,000 ppm");
        Self { threshold: ONE * ppm as u128 / 1_000_000 }
    }

    /// A probability as a number.
    ///
    /// # Panics
    ///
    /// When it is not within 0 to 1; [`Fraction::checked_from_f64`] returns `None` instead.
    #[must_use]
    pub fn from_f64(probability: f64) -> Self {
        Self::checked_from_f64(probability)
            .unwrap_or_else(|| panic!("a probability is within 0 to 1, not {probability}"))
    }

    /// A probability as a number; `None` when it is not within 0 to 1.
    #[must_use]
    pub fn checked_from_f64(probability: f64) -> Option<Self> {
        // Scaling by a power of two is exact; bits below 2^-64 are cut off.
        let whole = ONE as f64;
        let is_probability = (0.0..=1.0).contains(&probability);
        is_probability.then_some(Self { threshold: (probability * whole) as u128 })
    }

    /// The probability as a number, for reports.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.threshold as f64 / ONE as f64
    }

    /// Whether this is probability 0.
    #[must_use]
    pub fn is_never(self) -> bool {
        self.threshold == 0
    }

    /// Draws: true with this probability.
    pub fn draw(self, prng: &mut Prng) -> bool {
        u128::from(prng.next_u64()) < self.threshold
    }
}

impl fmt::Debug for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fraction({})", self.to_f64())
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_f64().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_exact() {
        let mut prng = Prng::new(1, 0);
        assert!((0..1000).all(|_| Fraction::always().draw(&mut prng)));
        assert!(!(0..1000).any(|_| Fraction::never().draw(&mut prng)));
        assert_eq!(Fraction::from_f64(1.0), Fraction::always());
        assert_eq!(Fraction::from_ppm(1_000_000), Fraction::always());
        assert_eq!(Fraction::from_f64(0.0), Fraction::never());
        assert_eq!(Fraction::from_f64(0.5), Fraction::from_ppm(500_000));
    }

    #[test]
    fn what_is_no_probability_is_refused() {
        for number in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            assert_eq!(Fraction::checked_from_f64(number), None);
        }
    }

    #[test]
    fn draws_come_out_as_often_as_asked() {
        let mut prng = Prng::new(7, 0);
        let hits = (0..1_000_000).filter(|_| Fraction::from_ppm(10_000).draw(&mut prng)).count();
        assert!((9_700..10_300).contains(&hits), "{hits}");
    }
}
