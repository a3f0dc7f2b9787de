//! Calls the policy for each message, with hysteresis: the last choice stays unless another one is
//! clearly better. Keeps the last question and choice for the statistics.

use super::{Choice, Estimate, Policy, Question, cost};
use std::fmt;

/// Two questions count as the same if no number differs by more than this part (a judgement):
/// planning costs some microseconds, and short messages come often.
const SAME_PART: f64 = 0.1;
/// The last choice stays while it costs no more than the best one and this part of the message's
/// time (a judgement).
const KEPT_PART: f64 = 0.02;

/// Chooses the parity of a queue pair's messages.
#[derive(Debug, Clone)]
pub(crate) struct Chooser {
    policy: Policy,
    last: Option<(Question, Choice)>,
    /// The newest question that the policy was asked.
    pub(super) asked: Option<Question>,
    changes: u64,
    messages: u64,
    coded_messages: u64,
    unreported: Option<Chosen>,
}

/// A choice, and the question that it answers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Chosen {
    /// It differs from the one before it.
    pub is_new: bool,
    /// The question.
    pub question: Question,
    /// The answer.
    pub choice: Choice,
}

/// Statistics of a connection's choices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AutoStats {
    /// The current estimate of the path.
    pub estimate: Estimate,
    /// The newest choice.
    pub last: Option<Chosen>,
    /// Choices that differed from the one before them.
    pub changes: u64,
    /// Messages for which a choice was made; a message of several slots counts as several.
    pub messages: u64,
    /// Of those, the messages with parity.
    pub coded_messages: u64,
}

impl Chooser {
    pub(crate) fn new(policy: Policy) -> Self {
        Self {
            policy,
            last: None,
            asked: None,
            changes: 0,
            messages: 0,
            coded_messages: 0,
            unreported: None,
        }
    }

    /// The choice for a message.
    pub(crate) fn choose(&mut self, question: Question) -> Choice {
        let is_same = self.asked.is_some_and(|asked| is_same(&asked, &question));
        let choice = match self.last {
            Some((_, last)) if is_same => last,
            _ => self.ask(&question),
        };
        self.messages += 1;
        self.coded_messages += u64::from(choice.parity > 0);
        let before = self.last.replace((question, choice));
        let is_new = before.is_none_or(|(_, before)| before != choice);
        self.changes += u64::from(is_new && before.is_some());
        // The owner reads one of several choices: keep a change rather than a repetition.
        if is_new || !self.unreported.is_some_and(|unreported| unreported.is_new) {
            self.unreported = Some(Chosen { is_new, question, choice });
        }
        choice
    }

    fn ask(&mut self, question: &Question) -> Choice {
        self.asked = Some(*question);
        let best = (self.policy)(question);
        match self.last {
            // One copy and several are for different kinds of path; do not mix them.
            Some((_, last)) if (last.repair_copies > 1) == (best.repair_copies > 1) => Choice {
                parity: self.kept(question, last.parity, best.parity),
                // One copy more than needed is not worth a change.
                repair_copies: match last.repair_copies.checked_sub(best.repair_copies) {
                    Some(1) => last.repair_copies,
                    _ => best.repair_copies,
                },
            },
            _ => best,
        }
    }

    fn kept(&self, question: &Question, last: u8, best: u8) -> u8 {
        let packet_ns = match question.estimate.rate_bits_per_s {
            0 => 0.0,
            rate => question.packet_bytes as f64 * 8e9 / rate as f64,
        };
        let took_ns =
            question.estimate.rtt_ns as f64 + packet_ns * f64::from(question.message_packets);
        let gain_ns = cost(question, last) - cost(question, best);
        // Do not keep parity of no use just because it is cheap.
        if gain_ns > KEPT_PART * took_ns || best == 0 { best } else { last }
    }

    /// The newest choice, once.
    pub(crate) fn take_chosen(&mut self) -> Option<Chosen> {
        self.unreported.take()
    }

    pub(crate) fn stats(&self, estimate: Estimate) -> AutoStats {
        AutoStats {
            estimate,
            last: self.last.map(|(question, choice)| Chosen { is_new: false, question, choice }),
            changes: self.changes,
            messages: self.messages,
            coded_messages: self.coded_messages,
        }
    }
}

/// Whether two questions are alike enough for the same answer.
fn is_same(a: &Question, b: &Question) -> bool {
    let close = |a: f64, b: f64| (a - b).abs() <= SAME_PART * a.abs().min(b.abs());
    let (x, y) = (&a.estimate, &b.estimate);
    a.is_followed == b.is_followed
        && a.rows == b.rows
        && a.packet_bytes == b.packet_bytes
        && close(a.message_packets.into(), b.message_packets.into())
        && close(a.tail_packets.into(), b.tail_packets.into())
        && close(x.evidence_packets, y.evidence_packets)
        && close(x.seen_packets, y.seen_packets)
        && close(x.lost_packets, y.lost_packets)
        && close(x.burst_packets, y.burst_packets)
        && close(x.rtt_ns as f64, y.rtt_ns as f64)
        && close(x.rate_bits_per_s as f64, y.rate_bits_per_s as f64)
}

/// One sentence: the choice and its reason.
impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { question, choice, .. } = self;
        let estimate = &question.estimate;
        match choice.parity {
            0 => write!(f, "selective repeat")?,
            parity => write!(f, "{parity} parity per 32 chunks for the end of a message")?,
        }
        if choice.repair_copies > 1 {
            write!(f, ", its repairs sent {} times", choice.repair_copies)?;
        }
        if question.is_followed {
            return write!(f, ": other data follow");
        }
        if choice.parity == 0 && estimate.rtt_ns < lacuna_path::controller::SHORT_PATH_NS {
            return write!(f, ": the path is short");
        }
        write!(
            f,
            ": loss {:.2e} in bursts of {:.1}, {} packets in the last {:.1} ms",
            estimate.loss(),
            estimate.burst_packets,
            question.tail_packets,
            estimate.rtt_ns as f64 / 1e6,
        )
    }
}
