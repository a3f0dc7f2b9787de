//! Losses in bursts: the two-state Markov chain of Gilbert (1960) and Elliott (1963), as LoWAR
//! uses it in its figure 11 and the emulated path of this project does.
//!
//! For each packet the link first changes its state, or does not, and then loses the packet with
//! the probability of the state it is in. A chunk of `N` packets is then a step of a chain of its
//! own, given by two matrices over (state before, state after): `ok`, all packets came, and
//! `lost`, at least one did not. They compose, so a chunk of any length costs `log N` products:
//! `ok12 = ok1 ok2`, `lost12 = lost1 (ok2 + lost2) + ok1 lost2`. Nothing is subtracted, so small
//! losses keep their digits.

use crate::ModelError;
use crate::error::check;

/// A matrix over the states low (0) and high (1).
pub(crate) type Matrix = [[f64; 2]; 2];

/// The two-state chain, per packet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Gilbert {
    /// Loss in the low state.
    low: f64,
    /// Loss in the high state.
    high: f64,
    /// Per packet in the low state: the probability of going to the high state.
    low_to_high: f64,
    /// Per packet in the high state: the probability of going to the low state.
    high_to_low: f64,
}

impl Gilbert {
    /// A chain of these four probabilities.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] when one is not within 0 to 1, or when no state is ever left.
    pub fn new(
        low: f64,
        high: f64,
        low_to_high: f64,
        high_to_low: f64,
    ) -> Result<Self, ModelError> {
        for (argument, value) in [
            ("loss in the low state", low),
            ("loss in the high state", high),
            ("low to high", low_to_high),
            ("high to low", high_to_low),
        ] {
            check(argument, value, (0.0..=1.0).contains(&value), "0 to 1")?;
        }
        let change = low_to_high + high_to_low;
        check("low to high plus high to low", change, change > 0.0, "more than 0")?;
        Ok(Self { low, high, low_to_high, high_to_low })
    }

    /// Losses that are a fraction `loss` of all packets, in runs whose lengths are geometrically
    /// distributed with mean `mean_burst_packets`.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] for a loss that is not at least 0 and below 1;
    /// [`ModelError::ImpossibleBursts`] for bursts shorter than a packet, or so much loss in so
    /// short bursts that the gaps between them would have to be shorter than a packet.
    pub fn bursts(loss: f64, mean_burst_packets: f64) -> Result<Self, ModelError> {
        check("loss", loss, (0.0..1.0).contains(&loss), "at least 0 and below 1")?;
        // The high state loses everything and lasts 1 / high_to_low packets; the share of packets
        // in it is low_to_high / (low_to_high + high_to_low).
        let low_to_high = loss / (1.0 - loss) / mean_burst_packets;
        if !(mean_burst_packets >= 1.0 && mean_burst_packets.is_finite() && low_to_high <= 1.0) {
            return Err(ModelError::ImpossibleBursts { loss, mean_burst_packets });
        }
        Self::new(0.0, 1.0, low_to_high, 1.0 / mean_burst_packets)
    }

    /// The fraction of packets lost in the long run.
    #[must_use]
    pub fn mean_loss(&self) -> f64 {
        let [low, high] = self.stationary();
        low * self.low + high * self.high
    }

    /// The share of packets that find the link in each state.
    pub(crate) fn stationary(&self) -> [f64; 2] {
        let change = self.low_to_high + self.high_to_low;
        [self.high_to_low / change, self.low_to_high / change]
    }
}

/// One step of the chain: a packet, a chunk, or several chunks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Step {
    /// Everything came: by state before and state after.
    pub(crate) ok: Matrix,
    /// Something was lost.
    pub(crate) lost: Matrix,
}

impl Step {
    fn packet(chain: &Gilbert) -> Self {
        let change = [
            [1.0 - chain.low_to_high, chain.low_to_high],
            [chain.high_to_low, 1.0 - chain.high_to_low],
        ];
        let with = |share: [f64; 2]| change.map(|row| [row[0] * share[0], row[1] * share[1]]);
        Self { ok: with([1.0 - chain.low, 1.0 - chain.high]), lost: with([chain.low, chain.high]) }
    }

    pub(crate) fn nothing() -> Self {
        Self { ok: [[1.0, 0.0], [0.0, 1.0]], lost: [[0.0; 2]; 2] }
    }

    pub(crate) fn then(&self, next: &Self) -> Self {
        Self {
            ok: product(&self.ok, &next.ok),
            lost: sum(&product(&self.lost, &next.all()), &product(&self.ok, &next.lost)),
        }
    }

    /// This step so many times.
    pub(crate) fn repeated(self, mut count: u64) -> Self {
        let (mut result, mut square) = (Self::nothing(), self);
        while count > 0 {
            if count & 1 == 1 {
                result = result.then(&square);
            }
            square = square.then(&square);
            count >>= 1;
        }
        result
    }

    /// Whatever became of the packets.
    pub(crate) fn all(&self) -> Matrix {
        sum(&self.ok, &self.lost)
    }
}

/// The chain seen by a message: one step per chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ChunkChain {
    pub(crate) step: Step,
    /// The share of chunks that find the link in each state.
    pub(crate) stationary: [f64; 2],
}

impl ChunkChain {
    pub(crate) fn new(chain: &Gilbert, packets: u64) -> Self {
        Self { step: Step::packet(chain).repeated(packets), stationary: chain.stationary() }
    }

    /// The probability that a chunk is lost.
    pub(crate) fn loss(&self) -> f64 {
        self.lost_from(self.stationary)
    }

    /// The probability that a chunk is lost that follows a lost one.
    pub(crate) fn loss_after_loss(&self) -> f64 {
        let loss = self.loss();
        if loss == 0.0 {
            return 0.0;
        }
        let after = row_times(self.stationary, &self.step.lost);
        (self.lost_from(after) / loss).min(1.0)
    }

    /// How many times larger than if they were independent the variance of the number of lost
    /// chunks is: `1 + 2 sum_k rho_k`. The correlation of losses falls by the chain's second
    /// eigenvalue with each further chunk between them.
    pub(crate) fn variance_factor(&self) -> f64 {
        let (loss, all) = (self.loss(), self.step.all());
        let neighbours = (self.loss_after_loss() - loss) / (1.0 - loss);
        let remembered = all[0][0] + all[1][1] - 1.0;
        (1.0 + 2.0 * neighbours / (1.0 - remembered)).max(1.0)
    }

    fn lost_from(&self, states: [f64; 2]) -> f64 {
        row_times(states, &self.step.lost).iter().sum()
    }
}

pub(crate) fn product(a: &Matrix, b: &Matrix) -> Matrix {
    a.map(|row| row_times(row, b))
}

pub(crate) fn sum(a: &Matrix, b: &Matrix) -> Matrix {
    [0, 1].map(|i| [0, 1].map(|j| a[i][j] + b[i][j]))
}

pub(crate) fn row_times(row: [f64; 2], matrix: &Matrix) -> [f64; 2] {
    [0, 1].map(|j| row[0] * matrix[0][j] + row[1] * matrix[1][j])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_have_the_mean_asked_for_and_follow_each_other() {
        for (loss, packets) in [(0.01, 8.0), (0.3, 1.5), (1e-6, 20.0)] {
            let chain = Gilbert::bursts(loss, packets).unwrap();
            assert!((chain.mean_loss() / loss - 1.0).abs() < 1e-12);
            let chunk = ChunkChain::new(&chain, 1);
            assert!((chunk.loss() / loss - 1.0).abs() < 1e-12);
            assert!((chunk.loss_after_loss() - (1.0 - 1.0 / packets)).abs() < 1e-12);
        }
    }

    #[test]
    fn bursts_of_the_independent_length_are_independent() {
        let loss: f64 = 0.2;
        let chain = Gilbert::bursts(loss, 1.0 / (1.0 - loss)).unwrap();
        let chunk = ChunkChain::new(&chain, 16);
        assert!((chunk.loss() - (1.0 - 0.8f64.powi(16))).abs() < 1e-12);
        assert!((chunk.loss_after_loss() - chunk.loss()).abs() < 1e-12);
    }

    #[test]
    fn a_burst_of_a_chunks_length_costs_few_chunks() {
        // Bursts much longer than a chunk lose whole chunks: the loss of a chunk nears that of a
        // packet. Bursts of one packet lose up to one chunk each.
        let long = ChunkChain::new(&Gilbert::bursts(1e-3, 4096.0).unwrap(), 16).loss();
        let short = ChunkChain::new(&Gilbert::bursts(1e-3, 1.0).unwrap(), 16).loss();
        assert!((1e-3..1.01e-3).contains(&long), "{long}");
        assert!((0.0158..0.016).contains(&short), "{short}");
    }

    #[test]
    fn impossible_bursts_are_refused() {
        for (loss, burst) in [(0.1, 0.5), (0.9, 1.0), (0.1, f64::INFINITY), (0.1, f64::NAN)] {
            let error = Gilbert::bursts(loss, burst).unwrap_err();
            assert!(matches!(error, ModelError::ImpossibleBursts { .. }));
        }
        assert!(Gilbert::bursts(1.0, 2.0).is_err());
        assert!(Gilbert::new(0.0, 1.0, 0.0, 0.0).is_err(), "a state that is never left");
    }
}
