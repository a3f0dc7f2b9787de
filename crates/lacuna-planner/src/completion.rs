//! The completion time of one message under one reliability mode.
//!
//! A question is a path, a message and a mode. The answer has the exact mean and percentiles as the
//! sender sees them, and on request samples for comparison. The defaults are the model of SDR-RDMA
//! 4.2 unchanged: payload only, losses per chunk, repairs take no link time.

use crate::error::CompletionError;
use crate::{OVERHEAD_BYTES, Z_99, auto};
use lacuna_model::monte_carlo::{
    CodedSampler, RepeatSampler, Sample, Samples, SerializedSampler, StreamedSampler,
};
use lacuna_model::{
    BestEffort, Code, CodeKind, Completion, EcConfig, ErasureCoding, Framing, Loss, ModelError,
    Path, Random, RepairTiming, SelectiveRepeat, StreamedCoding, TailCoding, Transfer,
};
use serde::Serialize;

/// What a loss rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossPer {
    /// Chunks, whatever their length (SDR-RDMA 4.2.1).
    Chunk,
    /// Packets (SDR-RDMA 5.4.2).
    Packet,
}

/// The reliability mode that is asked about.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reliability {
    /// Selective repeat.
    Repeat,
    /// Erasure code, with selective repeat as the fallback.
    Code(CodeQuestion),
    /// The transport's default mode, on a known path.
    Auto,
    /// No repairs: the receive ends after this time.
    BestEffort {
        /// From the first byte sent.
        deadline_s: f64,
    },
}

/// An erasure code and how it runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodeQuestion {
    /// Its kind.
    pub kind: CodeKind,
    /// Data chunks of a submessage.
    pub k: u32,
    /// Parity chunks of a submessage.
    pub m: u32,
    /// Round trips from the end of sending to the fallback timeout.
    pub beta: f64,
    /// The receiver answers as soon as all can be repaired, not when all parity is in.
    pub early_ack: bool,
    /// Parity follows its submessage, and one that fails is repaired while later ones are sent, as the
    /// transport does; otherwise the fallback waits for the end of the message (4.1.2).
    pub streamed: bool,
}

/// Samples for comparison with the exact values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws {
    /// How many.
    pub trials: u32,
    /// Seed of the generator.
    pub seed: u64,
}

/// A question: a message on a path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompletionQuestion {
    /// The mode.
    pub reliability: Reliability,
    /// Rate of the path.
    pub rate_bits_per_s: f64,
    /// Round-trip time of the path.
    pub rtt_s: f64,
    /// Probability that a chunk or a packet is lost; see `loss_per`.
    pub loss: f64,
    /// What `loss` counts.
    pub loss_per: LossPer,
    /// Bytes of the message.
    pub size_bytes: u64,
    /// Bytes per chunk, the unit of repair; in mode `auto` a packet.
    pub chunk_bytes: u64,
    /// Payload bytes of a packet.
    pub packet_bytes: u32,
    /// Round trips until a lost chunk is sent again: 3 is the paper's timeout, 1 its NACK.
    pub rto_rtts: f64,
    /// Mean length of loss bursts in packets; `None` for independent losses.
    pub burst_packets: Option<f64>,
    /// Correlation of the losses of two packets of a chunk, 0 to 1.
    pub correlation: Option<f64>,
    /// Count the headers and trailer of each packet.
    pub has_headers: bool,
    /// Repairs take link time away from first transmissions.
    pub wire_time: bool,
    /// Also say what the receiver has so long after the first byte was sent. Best effort has a deadline
    /// already.
    pub deadline_s: Option<f64>,
    /// Also draw samples of the completion time.
    pub draws: Option<Draws>,
}

/// The answer; values that a mode does not have are `None`.
#[derive(Debug, Clone, Serialize)]
pub struct CompletionAnswer {
    /// Chunks of the message.
    pub chunks: u64,
    /// Lower bound for any transport.
    pub ideal_s: f64,
    /// Mean completion time.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// 99.9th percentile.
    pub p999_s: f64,
    /// Probability that a coded message falls back to retransmission.
    pub p_fallback: Option<f64>,
    /// Of a code: the mean by the formula of SDR-RDMA 4.2.3.
    pub mean_paper_formula_s: Option<f64>,
    /// Of a code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<UsedCode>,
    /// Of the mode `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<UsedTail>,
    /// Of best effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Missing>,
    /// If there is a deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_deadline: Option<ByDeadline>,
    /// The samples, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monte_carlo: Option<Drawn>,
}

/// What the receiver has by a deadline.
#[derive(Debug, Clone, Serialize)]
pub struct ByDeadline {
    /// From the first byte sent.
    pub deadline_s: f64,
    /// Probability that it has the whole message.
    pub p_complete: f64,
    /// Of best effort: the expected share of the message that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrived_share: Option<f64>,
    /// What is assumed.
    pub assumed: &'static str,
}

/// What a probability of being in time assumes.
macro_rules! assumed {
    ($there:literal) => {
        concat!(
            "the time counts from the first byte sent until the receiver has ",
            $there,
            "; the receive is posted by then; rate, round trip and loss stay as given, nothing else is on ",
            "the path, and acknowledgements are not lost"
        )
    };
}

const ASSUMED: &str = assumed!("it");
/// Of codes whose receiver answers when all parity is in.
const ASSUMED_OF_CODES: &str =
    assumed!("it and all of its parity, so some messages are there earlier");
/// Of modes of both kinds.
pub(crate) const ASSUMED_OF_MODES: &str =
    assumed!("it, and under a code all of its parity, so some messages are there earlier");

/// The code of each submessage, except a shorter last one.
#[derive(Debug, Clone, Serialize)]
pub struct UsedCode {
    /// Data chunks.
    pub k: u32,
    /// Parity chunks.
    pub m: u32,
    /// Whether the message has fewer chunks than the requested code.
    pub is_shortened: bool,
}

/// How the mode `auto` protects the end of the message.
#[derive(Debug, Clone, Serialize)]
pub struct UsedTail {
    /// Packets at the end of the message that are covered by parity.
    pub packets: u64,
    /// Parity chunks per submessage of 32.
    pub parity: u32,
    /// Copies of each repair.
    pub repair_copies: u32,
    /// The same in words.
    #[serde(skip)]
    pub what: String,
}

/// What best effort leaves missing, as fractions of the message.
#[derive(Debug, Clone, Serialize)]
pub struct Missing {
    /// Mean.
    pub mean: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Probability that nothing is missing.
    pub p_complete: f64,
}

/// The samples, with 99 % confidence intervals.
#[derive(Debug, Clone, Serialize)]
pub struct Drawn {
    /// How many.
    pub trials: usize,
    /// Their mean.
    pub mean_s: f64,
    /// Its interval.
    pub mean_interval_s: (f64, f64),
    /// Their 99th percentile.
    pub p99_s: f64,
    /// Its interval.
    pub p99_interval_s: (f64, f64),
    /// Their 99.9th percentile.
    pub p999_s: f64,
    /// Its interval.
    pub p999_interval_s: (f64, f64),
}

/// Computes how long a message takes.
///
/// # Errors
/// When samples are requested for something that is not sampled, or a quantity is out of the
/// model's range.
pub fn completion(question: &CompletionQuestion) -> Result<CompletionAnswer, CompletionError> {
    if let Some(deadline_s) = question.deadline_s
        && !(deadline_s >= 0.0 && deadline_s.is_finite())
    {
        let (argument, value, accepted) = ("deadline", deadline_s, "at least 0 s");
        return Err(ModelError::OutOfRange { argument, value, accepted }.into());
    }
    if question.draws.is_some() && question.reliability == Reliability::Auto {
        return Err(CompletionError::AutoIsNotDrawn);
    }
    if question.draws.is_some() && question.wire_time && question.burst_packets.is_some() {
        return Err(CompletionError::BurstsAreNotDrawn);
    }
    let transfer = transfer(question)?;
    let timing = RepairTiming { rto_rtts: question.rto_rtts, wire_time: question.wire_time };
    let draws = question.draws;
    match question.reliability {
        Reliability::Repeat => {
            let model = SelectiveRepeat::new(&transfer, timing)?;
            let drawn = if question.wire_time {
                draw(draws, &SerializedSampler::new(&transfer, timing)?)
            } else {
                draw(draws, &RepeatSampler::new(&transfer, timing)?)
            };
            Ok(CompletionAnswer { monte_carlo: drawn, ..of(question, &transfer, &model) })
        }
        Reliability::Code(asked) => coded(asked, question, &transfer, timing),
        Reliability::Auto => {
            let model = TailCoding::new(&transfer, &auto::mode(question.packet_bytes)?)?;
            let (asked, choice) = (*model.question(), model.choice());
            let tail = UsedTail {
                packets: asked.tail_packets,
                parity: choice.parity,
                repair_copies: choice.repair_copies,
                what: auto::describe(&[(asked, choice)]),
            };
            let p_fallback = model.fallback_probability();
            Ok(CompletionAnswer { tail: Some(tail), p_fallback, ..of(question, &transfer, &model) })
        }
        Reliability::BestEffort { deadline_s } => {
            let model = BestEffort::new(&transfer, deadline_s)?;
            let missing = Missing {
                mean: model.missing_mean(),
                p99: model.missing_quantile(0.99),
                p999: model.missing_quantile(0.999),
                p_complete: model.complete_probability(),
            };
            // The model is of the receiver already.
            let by_deadline = ByDeadline {
                deadline_s,
                p_complete: missing.p_complete,
                arrived_share: Some(1.0 - missing.mean),
                assumed: ASSUMED,
            };
            Ok(CompletionAnswer {
                missing: Some(missing),
                by_deadline: Some(by_deadline),
                ..of(question, &transfer, &model)
            })
        }
    }
}

fn coded(
    asked: CodeQuestion,
    question: &CompletionQuestion,
    transfer: &Transfer,
    timing: RepairTiming,
) -> Result<CompletionAnswer, CompletionError> {
    let draws = question.draws;
    let code = Code::new(asked.kind, asked.k, asked.m)?;
    let short = code.shortened_to(transfer.chunks());
    let used = UsedCode { k: short.k(), m: short.m(), is_shortened: short != code };
    let config = EcConfig { code, beta: asked.beta, fallback: timing, early_ack: asked.early_ack };
    let model = ErasureCoding::new(transfer, config)?;
    if asked.streamed {
        let streamed = StreamedCoding::new(transfer, code, timing)?;
        return Ok(CompletionAnswer {
            code: Some(used),
            p_fallback: Some(streamed.fallback_probability()),
            mean_paper_formula_s: Some(model.mean_paper_formula_s()),
            monte_carlo: draw(draws, &StreamedSampler::new(transfer, code, timing)?),
            ..of(question, transfer, &streamed)
        });
    }
    Ok(CompletionAnswer {
        code: Some(used),
        p_fallback: Some(model.fallback_probability()),
        mean_paper_formula_s: Some(model.mean_paper_formula_s()),
        monte_carlo: draw(draws, &CodedSampler::new(transfer, config)?),
        ..of(question, transfer, &model)
    })
}

fn transfer(question: &CompletionQuestion) -> Result<Transfer, CompletionError> {
    let lost = question.loss;
    let loss = match (question.burst_packets, question.correlation, question.loss_per) {
        (Some(_), _, _) if lost == 0.0 => Loss::PerPacket(0.0),
        (Some(packets), _, _) => Loss::bursts(lost, packets)?,
        (None, Some(correlation), _) => Loss::Correlated { loss: lost, correlation },
        (None, None, LossPer::Chunk) => Loss::PerChunk(lost),
        (None, None, LossPer::Packet) => Loss::PerPacket(lost),
    };
    let (rate_bits_per_s, rtt_s) = (question.rate_bits_per_s, question.rtt_s);
    let path = Path { rate_bits_per_s, rtt_s, loss };
    let framing = Framing {
        chunk_bytes: match question.reliability {
            Reliability::Auto => question.packet_bytes.into(),
            _ => question.chunk_bytes,
        },
        packet_bytes: question.packet_bytes.into(),
        overhead_bytes: if question.has_headers { OVERHEAD_BYTES } else { 0 },
    };
    Ok(Transfer::new(&path, &framing, question.size_bytes)?)
}

fn of(
    question: &CompletionQuestion,
    transfer: &Transfer,
    model: &impl Completion,
) -> CompletionAnswer {
    let waits_for_parity =
        matches!(question.reliability, Reliability::Code(code) if !code.early_ack);
    let by_deadline = question.deadline_s.map(|deadline_s| ByDeadline {
        deadline_s,
        // The model's times are the sender's, who learns of the end half a round trip later.
        p_complete: model.cdf(deadline_s + question.rtt_s / 2.0),
        arrived_share: None,
        assumed: if waits_for_parity { ASSUMED_OF_CODES } else { ASSUMED },
    });
    CompletionAnswer {
        chunks: transfer.chunks(),
        ideal_s: transfer.ideal_s(),
        mean_s: model.mean_s(),
        p50_s: model.quantile_s(0.5),
        p99_s: model.quantile_s(0.99),
        p999_s: model.quantile_s(0.999),
        p_fallback: None,
        mean_paper_formula_s: None,
        code: None,
        tail: None,
        missing: None,
        by_deadline,
        monte_carlo: None,
    }
}

fn draw(draws: Option<Draws>, sampler: &impl Sample) -> Option<Drawn> {
    let Draws { trials, seed } = draws?;
    let samples = Samples::draw(sampler, trials as usize, &mut Random::new(seed));
    Some(Drawn {
        trials: samples.count(),
        mean_s: samples.mean_s(),
        mean_interval_s: samples.mean_interval_s(Z_99),
        p99_s: samples.quantile_s(0.99),
        p99_interval_s: samples.quantile_interval_s(0.99, Z_99),
        p999_s: samples.quantile_s(0.999),
        p999_interval_s: samples.quantile_interval_s(0.999, Z_99),
    })
}

#[cfg(test)]
mod tests {
    use lacuna::Layout;
    use lacuna_model::{Code, CodeKind};

    #[test]
    fn a_short_submessage_has_the_transports_parity() {
        for (kind, k, m) in [
            (CodeKind::Mds, 32, 8),
            (CodeKind::Mds, 32, 1),
            (CodeKind::Xor, 32, 12),
            (CodeKind::Xor, 7, 3),
        ] {
            let transports = match kind {
                CodeKind::Mds => lacuna_code::Code::mds(k as usize, m as usize),
                CodeKind::Xor => lacuna_code::Code::xor(k as usize, m as usize),
            };
            let layout = Layout::new(transports.expect("a code"), 1, 1 << 16).expect("a layout");
            let code = Code::new(kind, k, m).expect("a code");
            for chunks in 1..=k {
                let short = code.shortened_to(chunks.into());
                assert_eq!(
                    (short.k(), short.m()),
                    (chunks, layout.parity_chunks(chunks)),
                    "{code:?}"
                );
            }
        }
    }
}
