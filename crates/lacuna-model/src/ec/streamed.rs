//! Erasure coding whose submessages are repaired while later ones are sent: what the transport does.
//!
//! SDR-RDMA 4.1.2 sends all data and parity, and the fallback waits for the end of the message
//! ([`ErasureCoding`](super::ErasureCoding)). A receiver that sees a live bitmap need not wait: the
//! parity of a submessage follows its data, and when the last of it has passed and does not suffice,
//! the chunks that are missing, and they alone, go out again at once. With `U = (k + m) T` for a
//! submessage on the link, submessage `l` is done at
//!
//! ```text
//! X_l = l U + O (Y_l - 1),   O = RTO + c T,   T_EC = max X_l + RTT
//! ```
//!
//! where `Y_l` is 1 if its parity suffices, and otherwise one more than the transmissions that the
//! worst of its missing chunks still takes; `c` is how many those are on average. That is selective
//! repeat with submessages for chunks (4.2.2), so the distribution comes from the same place, with
//!
//! ```text
//! a_1 = P_EC,   1 - a_q = sum_n P(n missing for good) (1 - (1 - p^(q-1))^n)
//! ```
//!
//! Only the last submessages can make a message late by a whole round trip, so this fallback costs
//! less the longer the message is. With [`RepairTiming::wire_time`] repairs take link time as in
//! [`SelectiveRepeat`](crate::SelectiveRepeat). A short submessage at the end is a factor of its own in
//! the distribution.
//!
//! Under bursts neighbours fail together. `a_q` is then that of a submessage among as many as leave in
//! a round, those that one round makes late: exact for a message of one round, and for whether a longer
//! one needs a repair after its end. The chunks of different submessages are repeated independently.

use crate::completion::quantile_between;
use crate::fate::Fate;
use crate::missing::Repair;
use crate::rounds::Rounds;
use crate::sr::{Pace, Slowest};
use crate::{Code, Completion, ModelError, RepairTiming, Transfer};

/// Completion time of a message with erasure coding and repair by submessage, seen by the sender.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamedCoding {
    rtt_s: f64,
    chunks: u64,
    parity_chunks: u64,
    fallback: f64,
    /// Submessages of `k` chunks.
    whole: f64,
    slowest: Slowest,
    tail: Option<Tail>,
}

/// The short submessage at the end.
#[derive(Debug, Clone, PartialEq)]
struct Tail {
    /// When it has left, on average.
    end_s: f64,
    round_s: f64,
    /// Its length as a part of a whole submessage.
    share: f64,
    rounds: Rounds,
}

impl StreamedCoding {
    /// A message with this code; missing chunks are repeated as `timing` says.
    ///
    /// # Errors
    ///
    /// [`ModelError::OutOfRange`] for a repair timeout that is negative or
    /// infinite.
    pub fn new(transfer: &Transfer, code: Code, timing: RepairTiming) -> Result<Self, ModelError> {
        Self::with_fate(transfer, code, timing, &Fate::new(*transfer.loss()))
    }

    /// The same, with the fate of the message's chunks.
    pub(crate) fn with_fate(
        transfer: &Transfer,
        code: Code,
        timing: RepairTiming,
        fate: &Fate,
    ) -> Result<Self, ModelError> {
        debug_assert_eq!(transfer.loss(), fate.loss());
        let timing = timing.checked()?;
        let chunks = transfer.chunks();
        let code = code.shortened_to(chunks);
        let k = u64::from(code.k());
        let (whole, tail_chunks) = (chunks / k, chunks % k);
        let tail_code = (tail_chunks > 0).then(|| code.shortened_to(tail_chunks));
        let repair = fate.repair(code, together(transfer, code, timing));
        let each = pace(transfer, code, timing, &repair);
        let of_short = tail_code.map(|code| (code, fate.repair_after(code, &repair)));
        let slowest = Slowest::paced(each, whole as f64, timing.wire_time, repair.rounds);
        let tail = of_short.map(|(code, repair)| {
            let short = pace(transfer, code, timing, &repair);
            Tail {
                end_s: whole as f64 * slowest.chunk_s() + short.unit_s,
                round_s: short.round_s,
                share: short.unit_s / each.unit_s,
                rounds: repair.rounds,
            }
        });
        Ok(Self {
            rtt_s: transfer.rtt_s(),
            chunks,
            parity_chunks: whole * u64::from(code.m())
                + tail_code.map_or(0, |code| u64::from(code.m())),
            fallback: fate.all(code, whole, tail_code).failure,
            whole: whole as f64,
            slowest,
            tail,
        })
    }

    /// The probability that some submessage cannot be repaired: `1 - P_EC^L`.
    #[must_use]
    pub fn fallback_probability(&self) -> f64 {
        self.fallback
    }

    /// Share of what is sent that is parity.
    #[must_use]
    pub fn parity_share(&self) -> f64 {
        self.parity_chunks as f64 / (self.chunks + self.parity_chunks) as f64
    }

    /// `ln P(done)`, without the final round trip.
    fn ln_cdf(&self, time_s: f64) -> f64 {
        let whole = self.slowest.ln_cdf(self.whole, time_s);
        self.tail.as_ref().map_or(whole, |tail| whole + tail.ln_cdf(time_s))
    }
}

/// Submessages that a round of repair may make late: those that leave in its time, or all.
pub(crate) fn together(transfer: &Transfer, code: Code, timing: RepairTiming) -> u64 {
    let submessage_s = (f64::from(code.k()) + f64::from(code.m())) * transfer.chunk_s();
    let whole = transfer.chunks() / u64::from(code.k());
    ((timing.rto_rtts * transfer.rtt_s() / submessage_s).ceil() as u64).clamp(1, whole.max(1))
}

/// A submessage with what repeats of its chunks cost.
fn pace(transfer: &Transfer, code: Code, timing: RepairTiming, repair: &Repair) -> Pace {
    let (chunk_s, p) = (transfer.chunk_s(), transfer.loss().probability());
    let sent = f64::from(code.k()) + f64::from(code.m());
    Pace {
        unit_s: sent * chunk_s,
        round_s: timing.rto_rtts * transfer.rtt_s() + repair.mean_chunks_if_any * chunk_s,
        transmissions: 1.0 + repair.mean_chunks / (1.0 - p) / sent,
    }
}

impl Tail {
    fn ln_cdf(&self, time_s: f64) -> f64 {
        // A time that was computed by another way as the end of a round is that end.
        let spare_s = time_s * (1.0 + 8.0 * f64::EPSILON) - self.end_s;
        if spare_s < 0.0 {
            return f64::NEG_INFINITY;
        }
        let again = if self.round_s > 0.0 { spare_s / self.round_s } else { f64::INFINITY };
        self.rounds.ln_arrived((again as usize).saturating_add(1))
    }
}

impl Completion for StreamedCoding {
    fn mean_s(&self) -> f64 {
        let whole = self.whole as u64;
        let message_s = match &self.tail {
            None => self.slowest.mean_s(whole),
            Some(Tail { end_s, round_s, share, rounds }) => {
                let exact_s = self.slowest.mean_with_s(whole, *end_s, *round_s, rounds);
                exact_s.unwrap_or_else(|| self.slowest.mean_real_s(self.whole + share))
            }
        };
        self.rtt_s + message_s
    }

    fn cdf(&self, time_s: f64) -> f64 {
        self.ln_cdf(time_s - self.rtt_s).exp()
    }

    fn survival(&self, time_s: f64) -> f64 {
        -self.ln_cdf(time_s - self.rtt_s).exp_m1()
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        let whole_s = self.slowest.quantile_s(self.whole, probability);
        let Some(tail) = &self.tail else { return self.rtt_s + whole_s };
        let least_s = self.rtt_s + tail.end_s.max(whole_s);
        let likely_s = (least_s, least_s + tail.round_s);
        quantile_between(probability, self.rtt_s + tail.end_s, likely_s, |time_s| {
            self.survival(time_s)
        })
    }
}
