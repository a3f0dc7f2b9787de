//! Selective repeat, SDR-RDMA 4.1.1 and 4.2.2.
//!
//! Chunk `i` of `M` leaves at `i T`; each of its losses costs `O = RTO + T`. With `Y_i`
//! transmissions it is done at `X_i = i T + O (Y_i - 1)`, and the sender knows one round trip after
//! the last of them: `T_SR = max X_i + RTT`. The timeout is a number of round trips: 3 is the
//! paper's baseline ("SR RTO"), 1 its best case of a negative acknowledgement ("SR NACK", 5.1.1),
//! which is what this project's mode `sr` does.
//!
//! The distribution is exact, see [`Slowest`]. The paper calls it a lower bound once `M T > RTO`,
//! because repairs then leave while first transmissions still do, and the formula gives both the
//! link at once. [`RepairTiming::wire_time`] gives the repairs their share: with a busy link, and
//! from one timeout on, a fraction `p` of what leaves is a repair of what left one timeout
//! earlier, so first transmissions proceed at `1 - p` of the rate, and the `M T` of the formula
//! becomes `O + (M T - O) / (1 - p)`. Checked against a simulation of the link in
//! [`monte_carlo`](crate::monte_carlo).

mod slowest;
mod walk;

pub(crate) use slowest::{Lengths, Line, Pace, Slowest, lost};

use crate::error::check;
use crate::fate::Fate;
use crate::{Completion, ModelError, Transfer};

/// When a lost chunk goes out again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RepairTiming {
    /// Round trips from the end of a transmission to its repetition: RTO / RTT = 1 + alpha.
    pub rto_rtts: f64,
    /// Whether repairs take link time from first transmissions.
    pub wire_time: bool,
}

impl RepairTiming {
    /// The paper's "SR RTO".
    pub const TIMEOUT: Self = Self { rto_rtts: 3.0, wire_time: false };
    /// The paper's "SR NACK".
    pub const NACK: Self = Self { rto_rtts: 1.0, wire_time: false };

    pub(crate) fn checked(self) -> Result<Self, ModelError> {
        let rtts = self.rto_rtts;
        check("rto-rtts", rtts, (0.0..=1e6).contains(&rtts), "0 to 1e6 round trips")?;
        Ok(self)
    }
}

/// Completion time of a message with selective repeat, seen by the sender.
#[derive(Debug, Clone, PartialEq)]
pub struct SelectiveRepeat {
    chunks: u64,
    rtt_s: f64,
    slowest: Slowest,
}

impl SelectiveRepeat {
    /// A message with repair as `timing` says.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] for a timeout that is negative or not finite.
    pub fn new(transfer: &Transfer, timing: RepairTiming) -> Result<Self, ModelError> {
        Self::with_fate(transfer, timing, &Fate::new(*transfer.loss()))
    }

    /// The same, with the fate of the message's chunks.
    pub(crate) fn with_fate(
        transfer: &Transfer,
        timing: RepairTiming,
        fate: &Fate,
    ) -> Result<Self, ModelError> {
        debug_assert_eq!(transfer.loss(), fate.loss());
        let timing = timing.checked()?;
        let rounds = fate.rounds(transfer.chunks());
        let slowest = Slowest::new(transfer, transfer.chunks() as f64, timing, rounds);
        Ok(Self { chunks: transfer.chunks(), rtt_s: transfer.rtt_s(), slowest })
    }

    /// `E[T_SR]` for a number of chunks that need not be whole, as the paper's formula for erasure
    /// coding asks for (4.2.3): the closed form of the mean, taken at a real `M`; between no chunk,
    /// which takes the final round trip only, and one chunk it is a straight line.
    #[must_use]
    pub fn mean_of_chunks_s(&self, chunks: f64) -> f64 {
        self.rtt_s + self.slowest.mean_real_s(chunks)
    }
}

impl Completion for SelectiveRepeat {
    fn mean_s(&self) -> f64 {
        self.rtt_s + self.slowest.mean_s(self.chunks)
    }

    fn cdf(&self, time_s: f64) -> f64 {
        self.slowest.ln_cdf(self.chunks as f64, time_s - self.rtt_s).exp()
    }

    fn survival(&self, time_s: f64) -> f64 {
        -self.slowest.ln_cdf(self.chunks as f64, time_s - self.rtt_s).exp_m1()
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        self.rtt_s + self.slowest.quantile_s(self.chunks as f64, probability)
    }
}

#[cfg(test)]
mod tests;
