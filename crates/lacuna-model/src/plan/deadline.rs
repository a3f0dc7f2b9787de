//! What is there by a deadline: of each candidate the probability that the receiver has the whole message,
//! and without repairs the share of it that the receiver has.
//!
//! The deadline counts from the first byte sent, and is the receiver's. The candidates' times are the
//! sender's, who learns of the end half a round trip later; so a message is in time if its sender's time is
//! not after the deadline and half a round trip.

use super::{Candidate, Fates, Plan, Question, Scheme};
use crate::error::check;
use crate::{BestEffort, Completion, ModelError};

/// What is there by a deadline.
#[derive(Debug, Clone, PartialEq)]
pub struct InTime {
    /// For each candidate of the plan, the probability that a message is complete.
    pub candidates: Vec<f64>,
    /// Without repairs: the expected share of a message's bytes that came.
    pub unrepaired_share: f64,
    /// Without repairs: the probability that all of them came.
    pub unrepaired_complete: f64,
}

/// What is there of a question's messages by this time after their first byte was sent.
///
/// # Errors
///
/// [`ModelError`] names the first argument that makes no sense.
pub fn in_time(question: &Question, plan: &Plan, deadline_s: f64) -> Result<InTime, ModelError> {
    let holds = deadline_s >= 0.0 && deadline_s.is_finite();
    check("deadline", deadline_s, holds, "at least 0 s")?;
    let fates = Fates::default();
    let told_s = deadline_s + question.rtt_s / 2.0;
    let candidates = plan.candidates.iter();
    let complete =
        candidates.map(|expected| Ok(expected.candidate.model(question, &fates)?.cdf(told_s)));
    let candidates = complete.collect::<Result<_, ModelError>>()?;
    let packets = Candidate { scheme: Scheme::Repeat { rto_rtts: 1.0 }, chunk_packets: 1 };
    let (mut count, mut share, mut complete) = (0.0, 0.0, 0.0);
    packets.each(question, &fates, |transfer, _| {
        let unrepaired = BestEffort::new(transfer, deadline_s)?;
        count += 1.0;
        share += 1.0 - unrepaired.missing_mean();
        complete += unrepaired.complete_probability();
        Ok(())
    })?;
    Ok(InTime {
        candidates,
        unrepaired_share: share / f64::max(count, 1.0),
        unrepaired_complete: complete / f64::max(count, 1.0),
    })
}
