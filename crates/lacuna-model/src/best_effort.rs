//! Best effort with a deadline (OptiNIC 3.1.2, Celeris): every chunk is sent once, and the receive ends
//! when it is complete or at its deadline, whichever is first. The model gives the fraction that is missing
//! then.
//!
//! Chunk `i` is with the receiver at `i T + RTT / 2`. Of `M` chunks the first
//! `n = floor((deadline - RTT / 2) / T)` can be in time, and each of these is missing with
//! probability `p`; the others are late. So the missing chunks number `M - n + Bin(n, p)`.
//!
//! In bursts their number has the same mean and a variance `v` times as large,
//! `v = 1 + 2 sum_k rho_k`, the autocorrelation of losses `k` chunks apart. The tail is then that
//! of `n / v` losses of `v` chunks each: right in mean and variance, not exact.

use crate::error::check;
use crate::gilbert::ChunkChain;
use crate::rounds::Rounds;
use crate::{Completion, ModelError, Transfer, binomial};

/// A receive that ends by its deadline, seen by the receiver.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BestEffort {
    chunks: u64,
    in_time: u64,
    loss: f64,
    /// `v`.
    cluster: f64,
    /// When the last chunk is there, if none is lost.
    complete_s: f64,
    deadline_s: f64,
    /// The probability that no chunk is lost.
    all_came: f64,
}

impl BestEffort {
    /// A message whose receive ends `deadline_s` after its first chunk left.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] for a deadline that is negative or not finite.
    pub fn new(transfer: &Transfer, deadline_s: f64) -> Result<Self, ModelError> {
        let holds = deadline_s >= 0.0 && deadline_s.is_finite();
        check("deadline", deadline_s, holds, "at least 0 s")?;
        let complete_s = transfer.injection_s() + transfer.rtt_s() / 2.0;
        let (chunks, loss) = (transfer.chunks(), transfer.loss());
        // A deadline computed by another way as the arrival of a chunk is that arrival.
        let spare = (deadline_s - transfer.rtt_s() / 2.0) / transfer.chunk_s();
        let in_time = (spare * (1.0 + 4.0 * f64::EPSILON)).floor().clamp(0.0, chunks as f64) as u64;
        let ln_all_came = chunks as f64 * Rounds::new(loss, chunks).ln_arrived(1);
        Ok(Self {
            chunks,
            in_time,
            loss: loss.probability(),
            cluster: loss.chain().map_or(1.0, ChunkChain::variance_factor),
            complete_s,
            deadline_s,
            all_came: ln_all_came.exp(),
        })
    }

    /// The expected fraction of the message that is missing at the end.
    #[must_use]
    pub fn missing_mean(&self) -> f64 {
        self.late() + (1.0 - self.late()) * self.loss
    }

    /// The fraction that is missing in the worst of messages: exceeded with at most
    /// `1 - probability`.
    #[must_use]
    pub fn missing_quantile(&self, probability: f64) -> f64 {
        let clusters = (self.in_time as f64 / self.cluster).round().max(1.0) as u64;
        let lost = if self.in_time == 0 {
            0.0
        } else {
            let share = self.in_time as f64 / clusters as f64;
            binomial::quantile(clusters, self.loss, probability) as f64 * share
        };
        self.late() + lost / self.chunks as f64
    }

    /// The probability that nothing is missing.
    #[must_use]
    pub fn complete_probability(&self) -> f64 {
        if self.in_time == self.chunks { self.all_came } else { 0.0 }
    }

    fn late(&self) -> f64 {
        (self.chunks - self.in_time) as f64 / self.chunks as f64
    }
}

impl Completion for BestEffort {
    fn mean_s(&self) -> f64 {
        let complete = self.complete_probability();
        complete * self.complete_s + (1.0 - complete) * self.deadline_s
    }

    fn cdf(&self, time_s: f64) -> f64 {
        if time_s >= self.deadline_s {
            1.0
        } else if time_s >= self.complete_s {
            self.complete_probability()
        } else {
            0.0
        }
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        if self.complete_probability() >= probability && self.complete_s <= self.deadline_s {
            self.complete_s
        } else {
            self.deadline_s
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ChunkLoss, Loss, Random};

    fn transfer(chunks: u64, loss: f64) -> Transfer {
        Transfer::from_chunks(chunks, 1e-6, 0.01, ChunkLoss::independent(loss).unwrap()).unwrap()
    }

    #[test]
    fn with_time_enough_only_losses_are_missing() {
        let end = BestEffort::new(&transfer(1000, 1e-3), 0.1).unwrap();
        assert!((end.missing_mean() - 1e-3).abs() < 1e-15);
        assert!((end.complete_probability() - 0.999f64.powi(1000)).abs() < 1e-12);
        // Bin(1000, 1e-3): P(X <= 5) = 0.99942, P(X <= 4) = 0.99636.
        assert!((end.missing_quantile(0.999) - 5e-3).abs() < 1e-15);
        let mean_s = 0.006 * end.complete_probability() + 0.1 * (1.0 - end.complete_probability());
        assert!((end.mean_s() - mean_s).abs() < 1e-12);
        assert_eq!(end.quantile_s(0.3), 0.006);
        assert_eq!(end.quantile_s(0.99), 0.1);
        assert_eq!(end.cdf(0.1), 1.0);
    }

    #[test]
    fn what_comes_after_the_deadline_is_missing() {
        // 5 ms one way, then 600 of 1000 chunks.
        let end = BestEffort::new(&transfer(1000, 0.0), 0.0056).unwrap();
        assert!((end.missing_mean() - 0.4).abs() < 1e-12);
        assert!((end.missing_quantile(0.999) - 0.4).abs() < 1e-12);
        assert_eq!(end.complete_probability(), 0.0);
        assert_eq!(end.quantile_s(0.5), 0.0056);
        let nothing = BestEffort::new(&transfer(1000, 0.0), 0.001).unwrap();
        assert_eq!(nothing.missing_mean(), 1.0);
    }

    #[test]
    fn bursts_leave_more_missing_in_the_tail_and_the_same_on_average() {
        let loss = Loss::bursts(0.01, 10.0).unwrap().of_chunk(1).unwrap();
        let transfer = Transfer::from_chunks(20_000, 1e-6, 0.01, loss).unwrap();
        let end = BestEffort::new(&transfer, 1.0).unwrap();
        assert!((end.missing_mean() - 0.01).abs() < 1e-12);
        // Drawn: the chain, chunk by chunk.
        let mut random = Random::new(2);
        let mut missing: Vec<u32> = (0..2000)
            .map(|_| {
                let (mut high, mut lost) = (random.chance(0.01), 0);
                for _ in 0..20_000 {
                    high = random.chance(if high { 0.9 } else { 0.1 * 0.01 / 0.99 });
                    lost += u32::from(high);
                }
                lost
            })
            .collect();
        missing.sort_unstable();
        let drawn = f64::from(missing[1980]) / 20_000.0;
        let quantile = end.missing_quantile(0.99);
        assert!((quantile / drawn - 1.0).abs() < 0.08, "{quantile} {drawn}");
        assert!(
            quantile
                > 1.2
                    * BestEffort::new(&self::transfer(20_000, 0.01), 1.0)
                        .unwrap()
                        .missing_quantile(0.99)
        );
    }

    #[test]
    fn a_deadline_that_is_none_is_refused() {
        assert!(BestEffort::new(&transfer(1, 0.1), -1.0).is_err());
        assert!(BestEffort::new(&transfer(1, 0.1), f64::NAN).is_err());
    }
}
