//! Loss models of a path, and the loss of a chunk of several packets.
//!
//! The paper's model takes one number, the probability that a chunk is lost, and draws it for
//! every transmission anew (4.2.1). Its evaluation speaks of packets (2.1, 5.4.2), and a chunk of
//! `N` packets is lost when any of them is: `1 - (1-P)^N` if they are lost independently, `P` if
//! they are lost together. Real paths lie between, and lose in bursts. The four cases:
//!
//! | [`Loss`] | chunk of `N` packets is lost with |
//! |---|---|
//! | `PerChunk` | `P` |
//! | `PerPacket` | `1 - (1-P)^N` |
//! | `Correlated`, `c` | `1 - prod_{i<N} (1 - P / (1 + i t))`, `t = c / (1 - c)` |
//! | `Bursts` | `1 - pi ok^N 1`, see [`Gilbert`] |
//!
//! `Correlated` is the beta-binomial law: any two packets of a chunk have correlation `c`, chunks
//! are independent. `c = 0` is `PerPacket`, `c -> 1` is `PerChunk`.

use crate::ModelError;
use crate::error::check;
use crate::gilbert::{ChunkChain, Gilbert};

/// Largest loss of a chunk that the models accept. Beyond it any message needs thousands of rounds, and
/// the sums over rounds would be as long.
pub const CHUNK_LOSS_MAX: f64 = 0.999;

/// The loss model of a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Each transmission of a chunk, whatever its length: 4.2.1.
    PerChunk(f64),
    /// Each packet, independently: 5.4.2.
    PerPacket(f64),
    /// Each packet, with this correlation between the packets of a chunk.
    Correlated {
        /// Loss of a packet.
        loss: f64,
        /// Correlation of two packets of a chunk, at least 0 and below 1.
        correlation: f64,
    },
    /// Packets in bursts.
    Bursts(Gilbert),
}

impl Loss {
    /// Losses that are a fraction `loss` of all packets, in runs of `mean_burst_packets`.
    ///
    /// # Errors
    ///
    /// See [`Gilbert::bursts`].
    pub fn bursts(loss: f64, mean_burst_packets: f64) -> Result<Self, ModelError> {
        Gilbert::bursts(loss, mean_burst_packets).map(Self::Bursts)
    }

    /// The fraction of packets (or, for [`Loss::PerChunk`], chunks) that is lost.
    #[must_use]
    pub fn mean(&self) -> f64 {
        match self {
            Self::PerChunk(loss) | Self::PerPacket(loss) | Self::Correlated { loss, .. } => *loss,
            Self::Bursts(chain) => chain.mean_loss(),
        }
    }

    /// The loss of a chunk of `packets` packets.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] when a probability is not at least 0 and below 1, or when hardly
    /// any chunk would come through.
    pub fn of_chunk(&self, packets: u64) -> Result<ChunkLoss, ModelError> {
        let probability = |value: f64| {
            check("loss", value, (0.0..1.0).contains(&value), "at least 0 and below 1")
        };
        let n = packets.max(1);
        let (loss, chain) = match *self {
            Self::PerChunk(loss) => (probability(loss)?, None),
            Self::PerPacket(loss) => (-(n as f64 * (-probability(loss)?).ln_1p()).exp_m1(), None),
            Self::Correlated { loss, correlation } => {
                let accepted = "at least 0 and below 1";
                check("correlation", correlation, (0.0..1.0).contains(&correlation), accepted)?;
                let loss = probability(loss)?;
                let t = correlation / (1.0 - correlation);
                let ln_ok: f64 = (0..n).map(|i| (-loss / (1.0 + i as f64 * t)).ln_1p()).sum();
                (-ln_ok.exp_m1(), None)
            }
            Self::Bursts(chain) => {
                let chain = ChunkChain::new(&chain, n);
                (chain.loss(), Some(chain))
            }
        };
        ChunkLoss::checked(loss, chain)
    }
}

/// The loss of chunks: the probability that one is lost and, if losses come in bursts, its dependence on
/// the chunk before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkLoss {
    probability: f64,
    chain: Option<ChunkChain>,
}

impl ChunkLoss {
    /// Chunks that are lost independently of each other.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] when the probability is not at least 0 and at most
    /// [`CHUNK_LOSS_MAX`].
    pub fn independent(probability: f64) -> Result<Self, ModelError> {
        Self::checked(probability, None)
    }

    fn checked(probability: f64, chain: Option<ChunkChain>) -> Result<Self, ModelError> {
        let holds = (0.0..=CHUNK_LOSS_MAX).contains(&probability);
        let accepted = "at least 0 and at most 0.999 for a chunk (smaller chunks lose less)";
        check("loss", probability, holds, accepted)?;
        Ok(Self { probability, chain })
    }

    /// The probability that one transmission of a chunk is lost.
    #[must_use]
    pub fn probability(&self) -> f64 {
        self.probability
    }

    pub(crate) fn chain(&self) -> Option<&ChunkChain> {
        self.chain.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(loss: Loss, packets: u64) -> f64 {
        loss.of_chunk(packets).unwrap().probability()
    }

    #[test]
    fn a_chunk_of_several_packets_loses_as_section_5_4_2_says() {
        // Fact 0.58: at 1e-5 a chunk of 16 packets loses 1.6e-4, one of 64 loses 6.4e-4.
        for (packets, expected) in [(1, 1e-5), (16, 1.6e-4), (64, 6.4e-4)] {
            let actual = of(Loss::PerPacket(1e-5), packets);
            assert!((actual / expected - 1.0).abs() < 1e-3, "{packets}: {actual}");
        }
    }

    #[test]
    fn correlation_leads_from_independent_packets_to_packets_lost_together() {
        let between: Vec<f64> = [0.0, 0.1, 0.5, 0.9, 0.999_999]
            .map(|correlation| of(Loss::Correlated { loss: 1e-3, correlation }, 16))
            .to_vec();
        assert!((between[0] - of(Loss::PerPacket(1e-3), 16)).abs() < 1e-15);
        assert!(between.windows(2).all(|pair| pair[0] > pair[1]), "{between:?}");
        assert!((between[4] / 1e-3 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn small_losses_keep_their_digits() {
        let loss = of(Loss::PerPacket(1e-18), 16);
        assert!((loss / 1.6e-17 - 1.0).abs() < 1e-12, "{loss}");
    }

    #[test]
    fn what_is_no_probability_is_refused_by_name() {
        for loss in [1.0, 1.5, -0.1, f64::NAN] {
            for loss in [Loss::PerChunk(loss), Loss::PerPacket(loss)] {
                let error = loss.of_chunk(4).unwrap_err();
                assert!(error.to_string().starts_with("loss is"), "{error}");
            }
        }
        let error = Loss::Correlated { loss: 0.1, correlation: 1.0 }.of_chunk(4).unwrap_err();
        assert!(error.to_string().starts_with("correlation is 1"), "{error}");
        assert!(Loss::PerPacket(0.9).of_chunk(64).is_err(), "no chunk would ever come through");
    }
}
