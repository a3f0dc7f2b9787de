//! The planner: computes the completion time of every candidate scheme on a path, recommends one, gives the
//! reason, and finds where the choice flips.
//!
//! The candidates are this project's modes with the parameters that make a difference: selective
//! repeat with repairs after one round trip and after a timeout, and erasure coding with MDS and
//! XOR codes of several shares of parity, all with chunks of one, four and sixteen packets. They
//! are judged as the transport works: headers and repairs take link time, the parity of a submessage
//! follows its data at once, so that a message is answered when all of it has passed the link, and a
//! submessage that its parity does not repair is sent again one round trip later, between later ones
//! ([`StreamedCoding`](crate::StreamedCoding)).
//!
//! Beside these fixed modes stands, if the question brings it, the one that chooses for each message
//! ([`TailCoding`](crate::TailCoding)). Which family is the better one, why, and where that flips, is said of
//! the fixed ones; the mode that chooses is recommended wherever none of them beats it, because there is
//! nothing to set.
//!
//! Of all candidates within [`TIE`] of the best the simplest is recommended: less parity to
//! compute and to send is worth more than a percent that no measurement would show. A code must in
//! addition hold at twice the loss. Chunks that hardly ever come through ([`CHUNK_LOSS_MAX`]) are no
//! candidates.
//!
//! A program that needs a reliable connection has a question of its own: [`connection`].
//!
//! [`CHUNK_LOSS_MAX`]: crate::CHUNK_LOSS_MAX

mod candidate;
mod connection;
mod contest;
mod deadline;
mod flips;
mod reason;

pub use candidate::{Candidate, Expected, Scheme};
pub use connection::{ConnectionExpected, ConnectionFraming, ConnectionPlan, connection};
pub use deadline::{InTime, in_time};
pub use flips::{Axis, Flip};

use crate::error::check;
use crate::fate::Fate;
use crate::mixture::loss_range;
use crate::{Loss, ModelError, Path, TailMode, Transfer};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Candidates within this fraction of the best count as equally good.
pub const TIE: f64 = 0.02;

/// A code is recommended only if it is as good as others at this times the loss, too: a path's loss
/// is never known better.
const MARGIN: f64 = 2.0;

/// If the best of the other family is within this, the choice does not matter.
pub const DOES_NOT_MATTER: f64 = 0.05;

/// Losses that stand for a range of them.
const RANGE_LOSSES: usize = 8;

/// The quantity that a plan minimises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// The mean completion time.
    Mean,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
}

impl Objective {
    /// Of the quantile; `None` for the mean.
    #[must_use]
    pub fn probability(&self) -> Option<f64> {
        match self {
            Self::Mean => None,
            Self::P99 => Some(0.99),
            Self::P999 => Some(0.999),
        }
    }
}

/// What is known of the path's loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossKnown {
    /// The share of packets that are lost.
    At(f64),
    /// Only that it lies between these two.
    Between(f64, f64),
}

/// What is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Rate of the link in bits per second.
    pub rate_bits_per_s: f64,
    /// Round-trip time in seconds.
    pub rtt_s: f64,
    /// Loss of packets.
    pub loss: LossKnown,
    /// Mean length of a run of lost packets; `None`: packets are lost independently.
    pub mean_burst_packets: Option<f64>,
    /// Message sizes in bytes, equally frequent.
    pub sizes_bytes: Vec<u64>,
    /// What to make small.
    pub objective: Objective,
    /// Payload bytes of a packet.
    pub packet_bytes: u64,
    /// Bytes of a packet on the link that are not payload.
    pub overhead_bytes: u64,
    /// The mode that chooses for each message, to stand beside the fixed ones.
    pub auto: Option<TailMode>,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The one to take: an index of `candidates`.
    pub recommended: usize,
    /// Of the fixed ones, the one to take.
    pub fixed: usize,
    /// All candidates, best first.
    pub candidates: Vec<Expected>,
    /// No transport is faster: mean over the sizes.
    pub ideal_s: f64,
    /// How much worse than the best fixed one that of the other family (repeating or coding) is, as a
    /// fraction.
    pub other_family_worse: f64,
    /// Whether that is more than [`DOES_NOT_MATTER`].
    pub matters: bool,
    /// Where the choice of the family changes, of the fixed ones.
    pub flips: Vec<Flip>,
    /// Bytes in flight that fill the path.
    pub window_bytes: u64,
    /// Why the fixed one, in one sentence.
    pub reason: String,
}

impl Plan {
    /// The candidate to take.
    #[must_use]
    pub fn choice(&self) -> &Expected {
        &self.candidates[self.recommended]
    }

    /// The fixed one to take.
    #[must_use]
    pub fn fixed_choice(&self) -> &Expected {
        &self.candidates[self.fixed]
    }

    /// The mode that chooses, if the question has one.
    #[must_use]
    pub fn auto(&self) -> Option<&Expected> {
        self.candidates.iter().find(|expected| !expected.candidate.scheme.is_fixed())
    }
}

/// Answers a question.
///
/// # Errors
///
/// [`ModelError`] names the first argument that makes no sense.
pub fn plan(question: &Question) -> Result<Plan, ModelError> {
    check("sizes", 0.0, !question.sizes_bytes.is_empty(), "at least one message size")?;
    let fates = Fates::default();
    let mut candidates = Vec::new();
    for candidate in candidate::all(question) {
        candidates.extend(candidate.if_it_comes(candidate.expected_of(question, &fates))?);
    }
    let judged = |expected: &Expected| expected.of(question.objective);
    let sort = |candidates: &mut Vec<Expected>| {
        candidates.sort_by(|a, b| {
            judged(a).total_cmp(&judged(b)).then(a.candidate.effort().cmp(&b.candidate.effort()))
        });
    };
    let (mut fixed, auto): (Vec<Expected>, Vec<Expected>) =
        candidates.into_iter().partition(|expected| expected.candidate.scheme.is_fixed());
    sort(&mut fixed);
    let index = simplest_within_tie(question, &fates, &fixed)?;
    let choice = &fixed[index];
    let other = fixed
        .iter()
        .find(|expected| expected.candidate.scheme.is_coded() != choice.candidate.scheme.is_coded())
        .map_or(f64::INFINITY, judged);
    let other_family_worse = other / judged(choice) - 1.0;
    let matters = other_family_worse > DOES_NOT_MATTER;
    let ideal_s = question.ideal_s()?;
    let flips = flips::find(question, &fates, &fixed)?;
    let reason = reason::sentence(question, &fixed, index, other_family_worse)?;
    let (choice, best_s) = (choice.candidate, judged(&fixed[0]));
    let mut candidates = [fixed, auto].concat();
    sort(&mut candidates);
    let place = |wanted: Candidate| candidates.iter().position(|e| e.candidate == wanted);
    let fixed = place(choice).unwrap_or(0);
    let auto = candidates.iter().position(|expected| !expected.candidate.scheme.is_fixed());
    let is_as_good = |index: &usize| judged(&candidates[*index]) <= best_s * (1.0 + TIE);
    Ok(Plan {
        recommended: auto.filter(is_as_good).unwrap_or(fixed),
        fixed,
        ideal_s,
        other_family_worse,
        matters,
        flips,
        window_bytes: (question.rate_bits_per_s * question.rtt_s / 8.0).ceil() as u64,
        reason,
        candidates,
    })
}

/// The simplest candidate within a tie of the best: a repeater if one is among them, else the
/// simplest code that is still as good as the others at [`MARGIN`] times the loss. A code may stand
/// at the edge of its strength, where a little more loss costs a round trip.
fn simplest_within_tie(
    question: &Question,
    fates: &Fates,
    sorted: &[Expected],
) -> Result<usize, ModelError> {
    let judged = |expected: &Expected| expected.of(question.objective);
    let best_s = sorted.first().map_or(0.0, judged);
    let mut tied: Vec<usize> =
        (0..sorted.len()).take_while(|i| judged(&sorted[*i]) <= best_s * (1.0 + TIE)).collect();
    tied.sort_by_key(|i| sorted[*i].candidate.effort());
    let Some(simplest) = tied.first().copied() else { return Ok(0) };
    let loss = Axis::Loss.of(question);
    let more = loss * MARGIN;
    if !sorted[simplest].candidate.scheme.is_coded() || loss == 0.0 || more > Axis::Loss.range().1 {
        return Ok(simplest);
    }
    let worse = Axis::Loss.at(question, more);
    let mut then = Vec::new();
    for i in &tied {
        // A chunk that hardly ever comes through then has no model, and is out.
        let model = sorted[*i].candidate.model(&worse, fates);
        then.push(model.map_or(f64::INFINITY, |model| model.judged_s(worse.objective)));
    }
    let best_s = then.iter().copied().fold(f64::INFINITY, f64::min);
    let first = then.iter().position(|time_s| *time_s <= best_s * (1.0 + TIE));
    Ok(first.map_or(simplest, |i| tied[i]))
}

impl Question {
    /// The mean over the sizes of what no transport can beat: injection and one round trip.
    ///
    /// # Errors
    ///
    /// [`ModelError`] names the first argument that makes no sense.
    pub fn ideal_s(&self) -> Result<f64, ModelError> {
        let plain = Candidate { scheme: Scheme::Repeat { rto_rtts: 1.0 }, chunk_packets: 1 };
        let mut sum_s = 0.0;
        for size in &self.sizes_bytes {
            sum_s += plain.transfer(self, *size, 0.0)?.ideal_s();
        }
        Ok(sum_s / self.sizes_bytes.len().max(1) as f64)
    }

    /// The losses that stand for what is known.
    fn losses(&self) -> Result<Vec<f64>, ModelError> {
        match self.loss {
            LossKnown::At(loss) => Ok(vec![loss]),
            LossKnown::Between(low, high) => loss_range(low, high, RANGE_LOSSES),
        }
    }

    /// Of packets.
    fn loss_model(&self, loss: f64) -> Result<Loss, ModelError> {
        match self.mean_burst_packets {
            Some(packets) if loss > 0.0 => Loss::bursts(loss, packets),
            _ => Ok(Loss::PerPacket(loss)),
        }
    }

    fn path(&self, loss: f64) -> Result<Path, ModelError> {
        let loss = self.loss_model(loss)?;
        Ok(Path { rate_bits_per_s: self.rate_bits_per_s, rtt_s: self.rtt_s, loss })
    }
}

/// The fates of chunks on this question's path and those beside it, by loss and packets per chunk.
#[derive(Debug, Default)]
struct Fates(RefCell<BTreeMap<(u64, u64), Rc<Fate>>>);

impl Fates {
    fn of(&self, question: &Question, loss: f64, packets: u64) -> Result<Rc<Fate>, ModelError> {
        let key = (loss.to_bits(), packets);
        if let Some(known) = self.0.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let chunk = question.loss_model(loss)?.of_chunk(packets)?;
        let fate = Rc::new(Fate::new(chunk));
        self.0.borrow_mut().insert(key, Rc::clone(&fate));
        Ok(fate)
    }
}

impl Candidate {
    fn transfer(
        &self,
        question: &Question,
        size_bytes: u64,
        loss: f64,
    ) -> Result<Transfer, ModelError> {
        Transfer::new(&question.path(loss)?, &self.framing(question, size_bytes), size_bytes)
    }
}

#[cfg(test)]
mod tests;
