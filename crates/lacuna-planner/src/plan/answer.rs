//! A recommendation as data: the object of `lacuna plan --json`. Its keys are an interface.

use super::Recommendation;
use super::below::ConnectionAnswer;
use crate::auto;
use crate::completion::ASSUMED_OF_MODES;
use lacuna_model::CodeKind;
use lacuna_model::plan::{Axis, Expected, Flip, InTime, Scheme};
use serde::Serialize;

/// A recommendation in numbers.
#[derive(Debug, Clone, Serialize)]
pub struct PlanAnswer {
    /// The mode to take.
    pub recommended: Recommended,
    /// The best mode that does the same for every message; `matters`, `reason` and `flips` are of these.
    pub fixed: Recommended,
    /// What the default mode does.
    pub auto: Option<AutoAnswer>,
    /// The quantity that was minimised.
    pub objective: &'static str,
    /// Lower bound for any transport: mean over the sizes.
    pub ideal_s: f64,
    /// Whether retransmission or coding makes a difference.
    pub matters: bool,
    /// How much longer the best of the other family takes, as a fraction; `None` if it never
    /// completes.
    pub other_family_worse: Option<f64>,
    /// Why the fixed mode, in one sentence.
    pub reason: String,
    /// Where the choice between the families changes.
    pub flips: Vec<FlipAnswer>,
    /// What is there by a deadline, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_deadline: Option<InTimeAnswer>,
    /// All modes compared, best first.
    pub candidates: Vec<CandidateAnswer>,
    /// What a program can have that needs a reliable connection.
    pub connection: ConnectionAnswer,
}

/// What is there by a deadline.
#[derive(Debug, Clone, Serialize)]
pub struct InTimeAnswer {
    /// From the first byte sent.
    pub deadline_s: f64,
    /// The same without repairs.
    pub bounded: UnrepairedAnswer,
    /// What is assumed.
    pub assumed: &'static str,
}

/// What mode `bounded` has by the deadline.
#[derive(Debug, Clone, Serialize)]
pub struct UnrepairedAnswer {
    /// Expected share of a message's bytes.
    pub arrived_share: f64,
    /// Probability that all of them are there.
    pub p_complete: f64,
}

/// A mode with its settings.
#[derive(Debug, Clone, Serialize)]
pub struct Recommended {
    /// As `--mode` takes it.
    pub mode: String,
    /// Kind of the code, if there is one.
    pub code: Option<&'static str>,
    /// Data chunks of a submessage.
    pub k: Option<u32>,
    /// Parity chunks of a submessage.
    pub m: Option<u32>,
    /// Bytes per chunk.
    pub chunk_bytes: u64,
    /// Time until a lost chunk is sent again.
    pub rto_s: f64,
    /// Time until a coded message falls back to retransmission.
    pub fto_s: Option<f64>,
    /// Bytes in flight that fill the path (bandwidth-delay product).
    pub window_bytes: u64,
}

/// What `auto` does: the least and the most over the requested sizes and losses.
#[derive(Debug, Clone, Serialize)]
pub struct AutoAnswer {
    /// Parity chunks per 32 chunks at the end of a message.
    pub parity: (u32, u32),
    /// How often a repair is sent.
    pub repair_copies: (u32, u32),
    /// Packets at the end of the longest message that get the parity.
    pub tail_packets: u64,
    /// How much longer than the best fixed mode it takes, as a fraction.
    pub worse_than_fixed: f64,
}

/// Where the choice between retransmission and coding changes.
#[derive(Debug, Clone, Serialize)]
pub struct FlipAnswer {
    /// `size_bytes`, `loss` or `rtt_s`.
    pub axis: &'static str,
    /// At which value.
    pub value: f64,
    /// The better family beyond this value: `ec` or `sr`.
    pub to: &'static str,
}

/// What to expect of a mode.
#[derive(Debug, Clone, Serialize)]
pub struct CandidateAnswer {
    /// As `--mode` takes it.
    pub mode: String,
    /// Bytes per chunk.
    pub chunk_bytes: u64,
    /// Mean completion time.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// 99.9th percentile.
    pub p999_s: f64,
    /// Probability of fallback, of a code.
    pub p_fallback: Option<f64>,
    /// Parity as a share of the bytes on the wire.
    pub parity_share: f64,
    /// The repair timeout, or the fallback timeout of a code.
    pub timeout_s: f64,
    /// Probability that a message is complete by the deadline, if one was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p_in_time: Option<f64>,
}

impl Recommendation {
    /// The recommendation in numbers.
    #[must_use]
    pub fn answer(&self) -> PlanAnswer {
        let plan = &self.plan;
        PlanAnswer {
            recommended: self.recommended(plan.choice()),
            fixed: self.recommended(plan.fixed_choice()),
            auto: plan.auto().map(|expected| AutoAnswer {
                parity: auto::range(&expected.tails, |choice| choice.parity),
                repair_copies: auto::range(&expected.tails, |choice| choice.repair_copies),
                tail_packets: expected
                    .tails
                    .iter()
                    .map(|tail| tail.0.tail_packets)
                    .max()
                    .unwrap_or(0),
                worse_than_fixed: self.worse(expected, plan.fixed_choice()),
            }),
            objective: self.objective_name(),
            ideal_s: plan.ideal_s,
            matters: plan.matters,
            other_family_worse: Some(plan.other_family_worse).filter(|worse| worse.is_finite()),
            reason: plan.reason.clone(),
            flips: plan.flips.iter().map(flip).collect(),
            by_deadline: None,
            candidates: plan.candidates.iter().map(candidate).collect(),
            connection: self.connection_answer(),
        }
    }

    /// As [`Recommendation::answer`], with what is there by a deadline.
    #[must_use]
    pub fn answer_by(&self, deadline_s: f64, in_time: &InTime) -> PlanAnswer {
        let mut answer = self.answer();
        for (candidate, probability) in answer.candidates.iter_mut().zip(&in_time.candidates) {
            candidate.p_in_time = Some(*probability);
        }
        let bounded = UnrepairedAnswer {
            arrived_share: in_time.unrepaired_share,
            p_complete: in_time.unrepaired_complete,
        };
        let assumed = ASSUMED_OF_MODES;
        answer.by_deadline = Some(InTimeAnswer { deadline_s, bounded, assumed });
        answer
    }

    fn recommended(&self, choice: &Expected) -> Recommended {
        let (code, rto_s, fto_s) = match choice.candidate.scheme {
            Scheme::Repeat { .. } | Scheme::Auto(_) => (None, choice.timeout_s, None),
            Scheme::Code(code) => (Some(code), self.question.rtt_s, Some(choice.timeout_s)),
        };
        Recommended {
            mode: choice.candidate.scheme.to_string(),
            code: code.map(|code| match code.kind() {
                CodeKind::Mds => "mds",
                CodeKind::Xor => "xor",
            }),
            k: code.map(|code| code.k()),
            m: code.map(|code| code.m()),
            chunk_bytes: choice.chunk_bytes,
            rto_s,
            fto_s,
            window_bytes: self.plan.window_bytes,
        }
    }
}

fn flip(flip: &Flip) -> FlipAnswer {
    FlipAnswer {
        axis: match flip.axis {
            Axis::Size => "size_bytes",
            Axis::Loss => "loss",
            Axis::Rtt => "rtt_s",
        },
        value: flip.value,
        to: if flip.to_coding { "ec" } else { "sr" },
    }
}

fn candidate(expected: &Expected) -> CandidateAnswer {
    CandidateAnswer {
        mode: expected.candidate.scheme.to_string(),
        chunk_bytes: expected.chunk_bytes,
        mean_s: expected.mean_s,
        p50_s: expected.p50_s,
        p99_s: expected.p99_s,
        p999_s: expected.p999_s,
        p_fallback: expected.fallback,
        parity_share: expected.parity_share,
        timeout_s: expected.timeout_s,
        p_in_time: None,
    }
}
