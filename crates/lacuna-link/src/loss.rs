//! Loss models: independent, in bursts, or from a trace.
//!
//! The burst model is the two-state Markov chain of Gilbert and Elliott, as in figure 11 of LoWAR (loss
//! 0 in the low state, 0.3 or 0.7 in the high one, 0.01 % from low to high).

use std::sync::Arc;

use crate::{Fraction, Prng};

/// A loss model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Each packet is lost with this probability, independently of the others.
    Independent(Fraction),
    /// Two states (Gilbert-Elliott), starting in the low one. Each packet first draws whether the state
    /// changes, and is then lost with the probability of the current state.
    Gilbert {
        /// Loss in the low state.
        low: Fraction,
        /// Loss in the high state.
        high: Fraction,
        /// Per packet in the low state: the probability of going to the high state.
        low_to_high: Fraction,
        /// Per packet in the high state: the probability of going to the low state.
        high_to_low: Fraction,
    },
    /// The n-th packet is lost if the n-th entry is true. The trace repeats.
    Trace(Arc<[bool]>),
}

impl Loss {
    /// Burst losses: a fraction `mean_loss` of all packets is lost, in bursts of `mean_burst_packets` on
    /// average, whose lengths are geometrically distributed.
    ///
    /// # Errors
    ///
    /// [`LossError::ImpossibleBursts`] when no such chain exists: `mean_loss` not in `0..1`, bursts
    /// shorter than a packet, or so much loss in so short bursts that the gaps between them would be
    /// shorter than a packet.
    pub fn bursts(mean_loss: f64, mean_burst_packets: f64) -> Result<Self, LossError> {
        // The high state loses all packets and lasts 1 / high_to_low packets; the fraction of packets in
        // it is low_to_high / (low_to_high + high_to_low).
        let high_to_low = Fraction::checked_from_f64(1.0 / mean_burst_packets);
        let low_to_high =
            Fraction::checked_from_f64(mean_loss / (1.0 - mean_loss) / mean_burst_packets);
        match (high_to_low, low_to_high) {
            (Some(high_to_low), Some(low_to_high)) if mean_burst_packets.is_finite() => {
                Ok(Self::Gilbert {
                    low: Fraction::never(),
                    high: Fraction::always(),
                    low_to_high,
                    high_to_low,
                })
            }
            _ => Err(LossError::ImpossibleBursts { mean_loss, mean_burst_packets }),
        }
    }

    /// The fraction of packets lost in the long run.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Independent(loss) => loss.to_f64(),
            Self::Gilbert { low, .. } if self.never_high() => low.to_f64(),
            Self::Gilbert { low, high, low_to_high, high_to_low } => {
                let (up, down) = (low_to_high.to_f64(), high_to_low.to_f64());
                (low.to_f64() * down + high.to_f64() * up) / (up + down)
            }
            Self::Trace(trace) if trace.is_empty() => 0.0,
            Self::Trace(trace) => {
                trace.iter().filter(|lost| **lost).count() as f64 / trace.len() as f64
            }
        }
    }

    fn never_high(&self) -> bool {
        matches!(self, Self::Gilbert { low_to_high, .. } if low_to_high.is_never())
    }

    /// Whether no packet is ever lost.
    #[must_use]
    pub fn is_none(&self) -> bool {
        match self {
            Self::None => true,
            Self::Independent(loss) => loss.is_never(),
            Self::Gilbert { low, high, .. } => {
                low.is_never() && (high.is_never() || self.never_high())
            }
            Self::Trace(trace) => !trace.contains(&true),
        }
    }
}

/// Why a [`Loss`] is impossible. The caller's choice of numbers is at fault.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum LossError {
    /// No two-state chain loses this much in bursts of this length.
    #[error(
        "no link loses {mean_loss} of its packets in bursts of {mean_burst_packets} on average"
    )]
    ImpossibleBursts {
        /// The mean loss asked for.
        mean_loss: f64,
        /// The mean length asked for.
        mean_burst_packets: f64,
    },
}

/// A running [`Loss`] model.
#[derive(Clone, Debug)]
pub struct LossProcess {
    loss: Loss,
    prng: Prng,
    /// Gilbert: in the high state.
    is_high: bool,
    /// Trace: the next entry.
    next: usize,
}

impl LossProcess {
    /// A process in its initial state that draws from `prng`.
    #[must_use]
    pub fn new(loss: Loss, prng: Prng) -> Self {
        Self { loss, prng, is_high: false, next: 0 }
    }

    /// Replaces the model by `loss`, in its initial state; the random numbers continue.
    pub fn change(&mut self, loss: Loss) {
        (self.loss, self.is_high, self.next) = (loss, false, 0);
    }

    /// Puts a Gilbert link into its low state. The state changes per packet, not with time, so a caller
    /// can call this after a pause that is longer than a burst.
    pub fn end_burst(&mut self) {
        self.is_high = false;
    }

    /// Whether the next packet is lost.
    pub fn loses(&mut self) -> bool {
        match &self.loss {
            Loss::None => false,
            Loss::Independent(loss) => loss.draw(&mut self.prng),
            Loss::Gilbert { low, high, low_to_high, high_to_low } => {
                let change = if self.is_high { high_to_low } else { low_to_high };
                self.is_high ^= change.draw(&mut self.prng);
                if self.is_high { high } else { low }.draw(&mut self.prng)
            }
            Loss::Trace(trace) => {
                let lost = trace.get(self.next).copied().unwrap_or(false);
                self.next = (self.next + 1) % trace.len().max(1);
                lost
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKETS: usize = 1_000_000;

    fn run(loss: Loss, seed: u64) -> Vec<bool> {
        let mut process = LossProcess::new(loss, Prng::new(seed, 0));
        (0..PACKETS).map(|_| process.loses()).collect()
    }

    fn mean(losses: &[bool]) -> f64 {
        losses.iter().filter(|lost| **lost).count() as f64 / losses.len() as f64
    }

    /// Mean length of the runs of lost packets.
    fn mean_burst(losses: &[bool]) -> f64 {
        let lost = losses.iter().filter(|lost| **lost).count();
        let bursts = losses.windows(2).filter(|pair| !pair[0] && pair[1]).count();
        lost as f64 / bursts as f64
    }

    fn assert_near(actual: f64, expected: f64, tolerance: f64) {
        assert!(
            (actual - expected).abs() <= tolerance * expected,
            "{actual} is not near {expected}"
        );
    }

    #[test]
    fn independent_losses_have_their_mean_and_no_bursts() {
        for loss in [0.5, 0.1, 0.01, 0.001] {
            let losses = run(Loss::Independent(Fraction::from_f64(loss)), 11);
            assert_near(mean(&losses), loss, 0.1);
            assert_near(mean_burst(&losses), 1.0 / (1.0 - loss), 0.05);
        }
    }

    #[test]
    fn bursts_have_the_mean_and_the_length_asked_for() {
        for (loss, packets) in [(0.01, 8.0), (0.1, 3.0), (0.02, 20.0), (0.3, 1.5)] {
            let model = Loss::bursts(loss, packets).unwrap();
            assert_near(model.mean(), loss, 1e-9);
            let losses = run(model, 5);
            assert_near(mean(&losses), loss, 0.15);
            assert_near(mean_burst(&losses), packets, 0.15);
        }
    }

    #[test]
    fn the_chain_of_lowar_figure_11_has_its_mean() {
        let model = Loss::Gilbert {
            low: Fraction::never(),
            high: Fraction::from_f64(0.3),
            low_to_high: Fraction::from_ppm(100),
            high_to_low: Fraction::from_f64(1.0 / 8.0),
        };
        assert_near(model.mean(), 0.3 * 0.0001 / (0.0001 + 0.125), 1e-9);
        assert_near(mean(&run(model.clone(), 2)), model.mean(), 0.3);
    }

    #[test]
    fn impossible_bursts_are_refused() {
        for (loss, packets) in
            [(1.0, 2.0), (-0.1, 2.0), (0.1, 0.5), (0.9, 1.0), (f64::NAN, 2.0), (0.1, f64::INFINITY)]
        {
            let error = Loss::bursts(loss, packets).unwrap_err();
            assert!(matches!(error, LossError::ImpossibleBursts { .. }));
        }
        assert!(Loss::bursts(0.0, 1.0).unwrap().is_none());
    }

    #[test]
    fn a_trace_repeats() {
        let trace: Arc<[bool]> = [true, false, false].into();
        let losses = run(Loss::Trace(trace), 0);
        assert!(losses.iter().enumerate().all(|(i, lost)| *lost == (i % 3 == 0)));
        assert_near(Loss::Trace([true, false].into()).mean(), 0.5, 0.0);
    }

    #[test]
    fn the_seed_decides() {
        let model = Loss::Independent(Fraction::from_f64(0.3));
        assert_eq!(run(model.clone(), 1), run(model.clone(), 1));
        assert_ne!(run(model.clone(), 1), run(model, 2));
    }
}
