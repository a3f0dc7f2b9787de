//! A two-state chain fitted to the evidence, and how sure it is.
//!
//! Losses of a link that loses nothing in its low state and a share `h` in its high one are a renewal
//! process: each loss shows the state. The distance to the next loss is then of one of two geometric
//! kinds: near ones, within a burst, and far ones, between bursts. So the fit is that of a mixture of two
//! geometric distributions, by expectation and maximisation (EM): a share `w` of the distances has mean
//! `1 / a`, the rest `1 / b`. The chain follows from its eigenvalues:
//!
//! ```text
//! f = w a + (1 - w) b      the packet behind a loss is lost
//! g = w a (1 - b) + (1 - w) b (1 - a)
//! h = g / (1 + f - a - b)
//! up = a b (1 + f - a - b) / g
//! down = w (1 - w) (a - b)^2 / g
//! ```
//!
//! `h = 1` is Gilbert's chain of bursts without a gap, `w = 0` independent losses.
//!
//! **How sure.** The number of bursts seen decides: their rate has a relative deviation of one over its
//! root. Before anything was seen there is a quarter of a burst in 2,000 packets: most long paths lose next to
//! nothing, some one packet in a hundred.

use super::evidence::Slice;
use lacuna_model::{Gilbert, Loss};

/// Prior: bursts, and packets in which they were seen.
const PRIOR_BURSTS: f64 = 0.25;
const PRIOR_PACKETS: f64 = 2_000.0;
/// Prior: losses that follow another one in their burst, and that do not.
const PRIOR_NEAR: f64 = 0.1;
const PRIOR_FAR: f64 = 0.5;
/// Rounds of the fit: the likelihood hardly grows after ten.
const ROUNDS: usize = 12;
/// Bursts that are less than this longer than independent losses make them are none.
const INDEPENDENT: f64 = 1.02;
/// The least rate of bursts: below, nothing is worth protecting anywhere.
const RATE_MIN: f64 = 1e-12;

/// What the path is taken for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossFit {
    /// Share of packets that are lost.
    pub loss: f64,
    /// The same with fewer and with more bursts, by one standard deviation of what was seen.
    pub loss_low: f64,
    /// See `loss_low`.
    pub loss_high: f64,
    /// Mean losses of a burst.
    pub burst_losses: f64,
    /// Bursts that were seen.
    pub bursts: f64,
    /// Packets in which they were seen.
    pub packets: u64,
    rate: f64,
    near: Near,
}

/// Losses within a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Near {
    /// The share of losses that is followed by one in its burst.
    share: f64,
    /// One over the mean distance to that one.
    rate: f64,
}

impl LossFit {
    /// Fits a chain.
    pub(super) fn of(evidence: &Slice) -> Self {
        let losses = evidence.losses() as f64;
        let packets = evidence.packets as f64;
        let mut share = (evidence.close as f64 + PRIOR_NEAR) / (losses + PRIOR_NEAR + PRIOR_FAR);
        let mut near: f64 = 0.7;
        let mut bursts = evidence.apart as f64;
        let mut far: f64 =
            ((bursts + PRIOR_BURSTS) / (packets + PRIOR_PACKETS)).clamp(RATE_MIN, 0.5);
        for _ in 0..ROUNDS {
            let (mut count, mut sum) = (0.0, 0.0);
            let (ln_near, ln_far) = ((1.0 - near).max(1e-300).ln(), (-far).ln_1p());
            for (distance, times) in evidence.distances() {
                let near_here = share * near * ((distance - 1.0) * ln_near).exp();
                let far_here = (1.0 - share) * far * ((distance - 1.0) * ln_far).exp();
                let is_near = times * near_here / (near_here + far_here).max(f64::MIN_POSITIVE);
                count += is_near;
                sum += is_near * distance;
            }
            bursts = (losses - count).max(0.0);
            share = (count + PRIOR_NEAR) / (losses + PRIOR_NEAR + PRIOR_FAR);
            // A prior of one pair with two thirds of its packets lost.
            near = ((count + 1.0) / (sum + 1.5)).clamp(1e-3, 1.0);
            let between = (packets - sum).max(packets / 100.0);
            far = ((bursts + PRIOR_BURSTS) / (between + PRIOR_PACKETS)).clamp(RATE_MIN, 0.5);
        }
        Self::with(evidence.packets, bursts, far, Near { share, rate: near })
    }

    fn with(packets: u64, bursts: f64, rate: f64, near: Near) -> Self {
        let deviation = Self::deviation(bursts);
        let loss = |rate: f64| {
            let chain = chain(rate.clamp(RATE_MIN, 0.5), near);
            chain.map_or(rate, |chain| chain.mean_loss())
        };
        Self {
            loss: loss(rate),
            loss_low: loss(rate / deviation),
            loss_high: loss(rate * deviation),
            burst_losses: 1.0 / (1.0 - near.share).max(1e-6),
            bursts,
            packets,
            rate,
            near,
        }
    }

    /// A factor of one standard deviation.
    fn deviation(bursts: f64) -> f64 {
        (1.0 / (bursts + PRIOR_BURSTS).sqrt()).exp()
    }

    /// Paths that it may be, with their weights: with fewer and shorter bursts, as fitted, with more and
    /// longer ones.
    pub(super) fn paths(&self) -> [(f64, Loss); 3] {
        let deviation = Self::deviation(self.bursts);
        [(0.25, 1.0 / deviation), (0.5, 1.0), (0.25, deviation)].map(|(weight, factor)| {
            // The length of a burst is known as well as the number of bursts.
            let length = 1.0 + (self.burst_losses - 1.0) * factor.min(2.0);
            let near = Near { share: 1.0 - 1.0 / length, ..self.near };
            (weight, loss((self.rate * factor).clamp(RATE_MIN, 0.5), near))
        })
    }

    /// Whether the other one says about the same.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64, tolerance: f64| (a / b).ln().abs() < tolerance;
        near(self.rate, other.rate, 0.05)
            && near(self.burst_losses, other.burst_losses, 0.03)
            && near(self.bursts + 1.0, other.bursts + 1.0, 0.2)
    }
}

fn loss(rate: f64, near: Near) -> Loss {
    let independent = 1.0 / (1.0 - rate);
    let is_independent = 1.0 / (1.0 - near.share) < INDEPENDENT * independent;
    match chain(rate, near) {
        Some(chain) if !is_independent => Loss::Bursts(chain),
        _ => Loss::PerPacket(rate),
    }
}

/// The chain of a mixture of distances; see the module's text.
fn chain(b: f64, Near { share: w, rate: a }: Near) -> Option<Gilbert> {
    let a = a.max(b);
    let f = w * a + (1.0 - w) * b;
    let g = w * a * (1.0 - b) + (1.0 - w) * b * (1.0 - a);
    let both = 1.0 + f - a - b;
    let probability = |value: f64| value.clamp(0.0, 1.0);
    let up = probability(a * b * both / g);
    let down = probability(w * (1.0 - w) * (a - b).powi(2) / g);
    Gilbert::new(0.0, probability(g / both), up, down).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auto::evidence::Evidence;
    use lacuna_link::{Fraction, LossProcess, Prng};

    fn fit(loss: lacuna_link::Loss, packets: u64) -> LossFit {
        let mut evidence = Evidence::default();
        let mut process = LossProcess::new(loss, Prng::new(1, 0));
        for position in 0..packets {
            if process.loses() {
                evidence.on_lost(0, position, 1);
            }
        }
        evidence.on_judged(0, packets);
        LossFit::of(&evidence.sum())
    }

    fn independent(loss: f64) -> lacuna_link::Loss {
        lacuna_link::Loss::Independent(Fraction::from_f64(loss))
    }

    fn chain_of(high: f64, up: f64, burst: f64) -> lacuna_link::Loss {
        let [low, high, low_to_high, high_to_low] =
            [0.0, high, up, 1.0 / burst].map(Fraction::from_f64);
        lacuna_link::Loss::Gilbert { low, high, low_to_high, high_to_low }
    }

    #[test]
    fn independent_losses_are_found_to_be_so() {
        for loss in [1e-4, 1e-3, 1e-2] {
            let fit = fit(independent(loss), 3_000_000);
            assert!((0.85..1.15).contains(&(fit.loss / loss)), "{fit:?}");
            assert!(fit.burst_losses < 1.1, "{fit:?}");
            let deviations = (fit.loss / loss).ln() / (fit.loss_high / fit.loss).ln();
            assert!(deviations.abs() < 3.0, "{fit:?}");
        }
    }

    #[test]
    fn bursts_are_found_with_their_length_and_what_is_lost_in_them() {
        for (high, up, burst) in [(1.0, 1e-4, 8.0), (0.3, 1e-4, 12.0), (0.7, 1e-3, 4.0)] {
            let loss = chain_of(high, up, burst);
            let mean = loss.mean();
            let fit = fit(loss, 4_000_000);
            assert!((0.85..1.15).contains(&(fit.loss / mean)), "{fit:?} of {mean}");
            let (_, path) = fit.paths()[1];
            let Loss::Bursts(found) = path else { panic!("{path:?}") };
            // The chain itself, by the loss of chunks of packets, which it decides.
            let expected = Loss::Bursts(Gilbert::new(0.0, high, up, 1.0 / burst).unwrap());
            for packets in [1, 2, 8, 64, 256] {
                let of = |loss: Loss| loss.of_chunk(packets).unwrap().probability();
                let ratio = of(Loss::Bursts(found)) / of(expected);
                assert!((0.85..1.15).contains(&ratio), "{high} {up} {burst} {packets}: {ratio}");
            }
        }
    }

    #[test]
    fn few_losses_say_little() {
        let nothing = fit(lacuna_link::Loss::None, 100_000);
        assert!(nothing.loss < 1e-5 && nothing.loss_high > 5.0 * nothing.loss, "{nothing:?}");
        let few = fit(independent(1e-4), 50_000);
        assert!(few.loss_high / few.loss_low > 1.5, "{few:?}");
        let many = fit(independent(1e-4), 5_000_000);
        assert!(many.loss_high / many.loss_low < 1.15, "{many:?}");
    }
}
