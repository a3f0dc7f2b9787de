//! Erasure coding with fallback, SDR-RDMA 4.1.2 and 4.2.3.
//!
//! The message goes out once with its parity: `B = (M + ceil(M / R)) T`, `R = k / m`. If all
//! submessages can be repaired, the sender knows after one more round trip. Otherwise the
//! receiver's fallback timeout expires `beta RTT` after the end of injection, its list of failed
//! submessages takes a round trip, and their chunks go through selective repeat:
//!
//! ```text
//! T_EC = B + RTT                                    f = 0 failed submessages
//!        B + (1 + beta) RTT + T_SR(f k)             f > 0,  f ~ Bin(L, 1 - P_EC)
//! ```
//!
//! The mean and the distribution are sums over `f`. The paper instead puts the expected number of
//! failures into `T_SR` ([`ErasureCoding::mean_paper_formula_s`]). It calls that a lower bound,
//! but `T_SR` is concave, so the formula can be too high where fallback is neither rare nor certain:
//! at 10 % loss, a chunk of 4 KiB and MDS (32, 8) by 29 % for 512 KiB and by 47 % for 2 MiB.
//!
//! Decisions where the paper is silent or says two things: the fallback timeout counts the parity
//! (4.2.3; that of 4.1.2 would fire before the parity is in when `M T / R > beta RTT`); the
//! fallback's repair timing is a parameter; a message that is no multiple of `k` ends with a short
//! submessage of the same share of parity, and one of fewer than `k` chunks is one.
//!
//! *Early acknowledgement* (an option): the receiver answers as soon as every submessage can be
//! repaired, which is 4.2.3's first scenario. With all parity behind all data, submessage by
//! submessage, being done after `s` parity chunks of submessage `l` means: those before `l` are
//! repairable with their whole parity, `l` with `s` chunks, those behind with none. The product
//! of these is the distribution, and its mean is a geometric series.
//!
//! Under bursts submessages fail together, which the module `chances` reckons with: whether any falls back is
//! exact, and so is how many do on average. High percentiles are too early where a burst takes as long to
//! send as a round trip.

mod chances;
mod early;
mod failures;
mod prepared;
mod streamed;

use crate::code::Outcome;
use crate::completion::quantile_between;
use crate::error::check;
use crate::fate::Fate;
use crate::sr::Slowest;
use crate::{Code, Completion, ModelError, RepairTiming, Transfer};
use chances::Chances;
use early::Early;
use failures::Failures;

pub use streamed::StreamedCoding;
pub(crate) use streamed::together;

/// Parameters of erasure coding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EcConfig {
    /// The code of a submessage.
    pub code: Code,
    /// Round trips from the end of injection to the fallback timeout.
    pub beta: f64,
    /// Repair of failed submessages.
    pub fallback: RepairTiming,
    /// The receiver answers as soon as it can repair everything, not when all parity is in.
    pub early_ack: bool,
}

impl EcConfig {
    /// The figures' configuration with this code: beta = 1, fallback with timeouts of 3 RTT.
    #[must_use]
    pub fn paper(code: Code) -> Self {
        Self { code, beta: 1.0, fallback: RepairTiming::TIMEOUT, early_ack: false }
    }
}

/// Completion time of a message with erasure coding, seen by the sender.
#[derive(Debug, Clone, PartialEq)]
pub struct ErasureCoding {
    /// `T`.
    chunk_s: f64,
    rtt_s: f64,
    /// `B`.
    injection_s: f64,
    /// `(1 + beta) RTT`.
    penalty_s: f64,
    parity_chunks: u64,
    fallback: f64,
    /// `E[failures] k`.
    expected_chunks: f64,
    failures: Failures,
    repair: Slowest,
    early: Option<Early>,
}

impl ErasureCoding {
    /// A message with this code, or, if it has fewer than `k` chunks, with what that is
    /// [shortened to](Code::shortened_to).
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] for a negative or infinite `beta` or repair timeout.
    pub fn new(transfer: &Transfer, config: EcConfig) -> Result<Self, ModelError> {
        Self::with_fate(transfer, config, &Fate::new(*transfer.loss()))
    }

    /// The same, with the fate of the message's chunks.
    pub(crate) fn with_fate(
        transfer: &Transfer,
        config: EcConfig,
        fate: &Fate,
    ) -> Result<Self, ModelError> {
        debug_assert_eq!(transfer.loss(), fate.loss());
        let EcConfig { code, beta, fallback: timing, early_ack } = config;
        check("beta", beta, (0.0..=1e6).contains(&beta), "0 to 1e6 round trips")?;
        let timing = timing.checked()?;
        let chunks = transfer.chunks();
        let code = code.shortened_to(chunks);
        let k = u64::from(code.k());
        let (whole, tail_chunks) = (chunks / k, chunks % k);
        let tail_code = (tail_chunks > 0).then(|| code.shortened_to(tail_chunks));
        let Chances { each, tail, failing, early } =
            Chances::new(code, whole, tail_code, transfer.loss(), early_ack);
        let all = each.all_of(whole).and(tail.unwrap_or(Outcome::CERTAIN));
        let tail = tail.map(|outcome| (tail_chunks, outcome.failure));
        let parity_chunks =
            whole * u64::from(code.m()) + tail_code.map_or(0, |code| u64::from(code.m()));
        let injection_s = (chunks + parity_chunks) as f64 * transfer.chunk_s();
        let rtt_s = transfer.rtt_s();
        // Under bursts the rounds depend on how many chunks stand together.
        let together = if transfer.loss().chain().is_some() { failing.chunks } else { chunks };
        let rounds = fate.rounds(together);
        let failures = Failures::new(failing.draws, failing.chunks, failing.failure, tail);
        let expected_chunks =
            failing.expected_chunks + tail.map_or(0.0, |(n, failure)| n as f64 * failure);
        Ok(Self {
            chunk_s: transfer.chunk_s(),
            rtt_s,
            injection_s,
            penalty_s: (1.0 + beta) * rtt_s,
            parity_chunks,
            fallback: all.failure,
            expected_chunks,
            failures,
            repair: Slowest::new(transfer, expected_chunks, timing, rounds),
            early,
        })
    }

    /// The probability that some submessage cannot be repaired and the message falls back to
    /// selective repeat: `1 - P_EC^L`.
    #[must_use]
    pub fn fallback_probability(&self) -> f64 {
        self.fallback
    }

    /// Share of what is sent that is parity.
    #[must_use]
    pub fn parity_share(&self) -> f64 {
        self.parity_chunks as f64 * self.chunk_s / self.injection_s
    }

    /// Parity chunks of the message.
    #[must_use]
    pub fn parity_chunks(&self) -> u64 {
        self.parity_chunks
    }

    /// Seconds from the first chunk to the fallback timeout.
    #[must_use]
    pub fn fallback_timeout_s(&self) -> f64 {
        self.injection_s + self.penalty_s - self.rtt_s
    }

    /// The mean as section 4.2.3 gives it, with the expected number of failures inside of `T_SR`.
    /// A fraction of a chunk is what [`SelectiveRepeat`](crate::SelectiveRepeat) says it is.
    #[must_use]
    pub fn mean_paper_formula_s(&self) -> f64 {
        let repair_s = self.rtt_s + self.repair.mean_real_s(self.expected_chunks);
        self.injection_s + self.fallback * self.penalty_s + repair_s
    }

    /// The numbers of chunks that may fall back, 0 among them, with their probabilities.
    pub(crate) fn fallback_terms(&self) -> impl Iterator<Item = (u64, f64)> {
        self.failures.terms()
    }

    /// Completion without fallback; and with it, before what selective repeat takes.
    pub(crate) fn ends_s(&self) -> (f64, f64) {
        let end_s = self.injection_s + self.rtt_s;
        (end_s, end_s + self.penalty_s)
    }

    /// The time at which a message without failures is done, less the final round trip: mean over
    /// these messages, times their probability.
    fn mean_without_fallback_s(&self) -> f64 {
        let all = (1.0 - self.fallback) * self.injection_s;
        match &self.early {
            None => all,
            Some(early) => {
                all - (early.saved_chunks()).min(self.parity_chunks as f64) * self.chunk_s
            }
        }
    }

    /// The probability of being done by a time *without* fallback.
    fn done_without_fallback(&self, time_s: f64) -> f64 {
        // A time computed by another way as the end of injection is that end.
        let spare = time_s * (1.0 + 4.0 * f64::EPSILON) - self.rtt_s - self.injection_s;
        match &self.early {
            _ if spare >= 0.0 => 1.0 - self.fallback,
            None => 0.0,
            Some(early) => {
                let missing = (-spare / self.chunk_s).ceil();
                let sent = self.parity_chunks as f64 - missing;
                if sent < 0.0 { 0.0 } else { early.done_after(sent as u64) }
            }
        }
    }
}

impl Completion for ErasureCoding {
    fn mean_s(&self) -> f64 {
        let again =
            self.failures.mean(self.repair.round_chunks(), |chunks| self.repair.mean_s(chunks));
        self.mean_without_fallback_s()
            + self.rtt_s
            + self.fallback * (self.injection_s + self.penalty_s)
            + again
    }

    fn cdf(&self, time_s: f64) -> f64 {
        1.0 - self.survival(time_s)
    }

    fn survival(&self, time_s: f64) -> f64 {
        let end_s = self.injection_s + self.rtt_s;
        if time_s * (1.0 + 4.0 * f64::EPSILON) >= end_s {
            let spare = time_s - self.injection_s - self.penalty_s - self.rtt_s;
            if spare < 0.0 {
                return self.fallback;
            }
            return self.failures.not_done(&self.repair, spare);
        }
        (1.0 - self.fallback - self.done_without_fallback(time_s)).max(0.0) + self.fallback
    }

    fn prepare(&self) {
        self.failures.prepare();
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        let end_s = self.injection_s + self.rtt_s;
        if self.fallback > 1.0 - probability.max(0.0) {
            // As if all that may fall back did, and as if the least of it did.
            let start_s = end_s + self.penalty_s;
            let (least, most) = self.failures.range();
            let likely_s = (
                start_s + least as f64 * self.repair.chunk_s(),
                start_s + self.repair.quantile_s(most as f64, probability) * (1.0 + 1e-9),
            );
            self.prepare();
            return quantile_between(probability, end_s, likely_s, |time_s| self.survival(time_s));
        }
        match &self.early {
            None => end_s,
            Some(early) => {
                let sent = early.quantile(probability).min(self.parity_chunks);
                end_s - (self.parity_chunks - sent) as f64 * self.chunk_s
            }
        }
    }
}

#[cfg(test)]
mod tests;
