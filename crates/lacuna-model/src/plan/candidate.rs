//! A candidate: a scheme with its parameters, and its expected completion times.

use super::{Fates, Objective, Question};
use crate::fate::Fate;
use crate::{
    Code, CodeKind, Completion, Framing, Mixture, ModelError, RepairTiming, SelectiveRepeat,
    StreamedCoding, TailCoding, TailMode, TailParity, TailQuestion, Transfer,
};

/// Packets per chunk that are tried: 4 to 64 KiB with the usual packets. A chunk is the unit of
/// losses here; those of less than 4 KiB the transport lays in turn in a code, which is better
/// against bursts than what is reckoned.
const CHUNK_PACKETS: [u64; 3] = [1, 4, 16];

/// Codes that are tried: shares of parity from 3 % to 33 % of the wire. `k = 32` is the paper's.
const CODES: [(CodeKind, u32, u32); 8] = [
    (CodeKind::Xor, 32, 4),
    (CodeKind::Xor, 32, 8),
    (CodeKind::Xor, 32, 16),
    (CodeKind::Mds, 32, 1),
    (CodeKind::Mds, 32, 2),
    (CodeKind::Mds, 32, 4),
    (CodeKind::Mds, 32, 8),
    (CodeKind::Mds, 32, 16),
];

/// A reliability scheme with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scheme {
    /// Selective repeat.
    Repeat {
        /// Round trips until a lost chunk goes out again: 1 for the mode `sr`, 3 for `sr:rto`.
        rto_rtts: f64,
    },
    /// Erasure coding, where it fails with repair after one round trip.
    Code(Code),
    /// The mode that chooses for each message what its end gets.
    Auto(TailMode),
}

impl Scheme {
    /// Whether it sends parity for all of a message.
    #[must_use]
    pub fn is_coded(&self) -> bool {
        matches!(self, Self::Code(_))
    }

    /// Whether it does the same for every message: it repeats, or it codes.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        !matches!(self, Self::Auto(_))
    }
}

impl std::fmt::Display for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Repeat { rto_rtts } if *rto_rtts <= 1.0 => f.write_str("sr"),
            Self::Repeat { .. } => f.write_str("sr:rto"),
            Self::Auto(_) => f.write_str("auto"),
            Self::Code(code) => {
                let kind = match code.kind() {
                    CodeKind::Mds => "mds",
                    CodeKind::Xor => "xor",
                };
                write!(f, "ec:{kind}:{}:{}", code.k(), code.m())
            }
        }
    }
}

/// A scheme and the chunk it works on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// The scheme.
    pub scheme: Scheme,
    /// Packets per chunk.
    pub chunk_packets: u64,
}

/// What to expect of a candidate.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// The candidate.
    pub candidate: Candidate,
    /// Payload bytes of its chunk.
    pub chunk_bytes: u64,
    /// Mean completion time.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// 99.9th percentile.
    pub p999_s: f64,
    /// The probability of fallback, for a code.
    pub fallback: Option<f64>,
    /// Share of the wire that is parity.
    pub parity_share: f64,
    /// The repair timeout (RTO), or the time from the first byte after which no submessage of the
    /// longest message can still fall back (FTO).
    pub timeout_s: f64,
    /// Of a mode that chooses: what it was asked and what it said, for each size and loss of the question,
    /// the largest loss last.
    pub tails: Vec<(TailQuestion, TailParity)>,
}

impl Expected {
    /// The time that this objective looks at.
    #[must_use]
    pub fn of(&self, objective: Objective) -> f64 {
        match objective {
            Objective::Mean => self.mean_s,
            Objective::P99 => self.p99_s,
            Objective::P999 => self.p999_s,
        }
    }
}

/// All that a question is answered with.
pub(super) fn all(question: &Question) -> impl Iterator<Item = Candidate> {
    let longest = question.sizes_bytes.iter().copied().max().unwrap_or(1);
    let packets = longest.div_ceil(question.packet_bytes.max(1));
    let repeats = [1.0, 3.0].into_iter().map(|rto_rtts| Scheme::Repeat { rto_rtts });
    let codes = CODES.into_iter().filter_map(|(kind, k, m)| Code::new(kind, k, m).ok());
    let schemes: Vec<Scheme> = repeats.chain(codes.map(Scheme::Code)).collect();
    CHUNK_PACKETS
        .into_iter()
        .filter(move |chunk_packets| *chunk_packets == 1 || *chunk_packets <= packets)
        .flat_map(move |chunk_packets| {
            schemes.clone().into_iter().map(move |scheme| Candidate { scheme, chunk_packets })
        })
        .chain(question.auto.map(|mode| Candidate { scheme: Scheme::Auto(mode), chunk_packets: 1 }))
}

/// A message under some scheme.
#[derive(Debug, Clone)]
pub(super) enum Model {
    Repeat(SelectiveRepeat),
    Code(StreamedCoding),
    Tail(TailCoding),
}

impl Completion for Model {
    fn mean_s(&self) -> f64 {
        match self {
            Self::Repeat(model) => model.mean_s(),
            Self::Code(model) => model.mean_s(),
            Self::Tail(model) => model.mean_s(),
        }
    }

    fn cdf(&self, time_s: f64) -> f64 {
        match self {
            Self::Repeat(model) => model.cdf(time_s),
            Self::Code(model) => model.cdf(time_s),
            Self::Tail(model) => model.cdf(time_s),
        }
    }

    fn survival(&self, time_s: f64) -> f64 {
        match self {
            Self::Repeat(model) => model.survival(time_s),
            Self::Code(model) => model.survival(time_s),
            Self::Tail(model) => model.survival(time_s),
        }
    }

    fn quantile_s(&self, probability: f64) -> f64 {
        match self {
            Self::Repeat(model) => model.quantile_s(probability),
            Self::Code(model) => model.quantile_s(probability),
            Self::Tail(model) => model.quantile_s(probability),
        }
    }
}

impl Candidate {
    /// What it costs to use, smallest first: the mode that chooses by itself, no code before XOR before
    /// MDS, less parity, the earlier repair, the smaller chunk.
    #[must_use]
    pub fn effort(&self) -> (u32, u32, u64) {
        let (kind, parity) = match self.scheme {
            Scheme::Repeat { rto_rtts } => (0, rto_rtts as u32),
            Scheme::Auto(_) => (0, 0),
            Scheme::Code(code) => (1 + u32::from(code.kind() == CodeKind::Mds), code.m()),
        };
        (kind, parity, self.chunk_packets)
    }

    pub(super) fn framing(&self, question: &Question, size_bytes: u64) -> Framing {
        // A chunk longer than the message is as long as the message.
        let packets = size_bytes.div_ceil(question.packet_bytes.max(1)).max(1);
        Framing {
            chunk_bytes: self.chunk_packets.min(packets) * question.packet_bytes,
            packet_bytes: question.packet_bytes,
            overhead_bytes: question.overhead_bytes,
        }
    }

    /// The distribution of its completion times over all sizes and losses of the question.
    pub(super) fn model(
        &self,
        question: &Question,
        fates: &Fates,
    ) -> Result<Mixture<Model>, ModelError> {
        let mut parts = Vec::new();
        self.each(question, fates, |transfer, fate| {
            parts.push((1.0, self.of(transfer, fate)?));
            Ok(())
        })?;
        Mixture::new(parts)
    }

    /// Goes through the sizes and losses of the question, the largest loss last.
    pub(super) fn each(
        &self,
        question: &Question,
        fates: &Fates,
        mut on: impl FnMut(&Transfer, &Fate) -> Result<(), ModelError>,
    ) -> Result<(), ModelError> {
        let (rate, rtt_s) = (question.rate_bits_per_s, question.rtt_s);
        for loss in question.losses()? {
            for size in &question.sizes_bytes {
                let framing = self.framing(question, *size);
                let fate = fates.of(question, loss, framing.packets_per_chunk())?;
                let transfer =
                    Transfer::with_loss(rate, rtt_s, &framing, *size, |_| Ok(*fate.loss()))?;
                on(&transfer, &fate)?;
            }
        }
        Ok(())
    }

    /// Under one size and loss.
    fn of(&self, transfer: &Transfer, fate: &Fate) -> Result<Model, ModelError> {
        let timing = |rto_rtts| RepairTiming { rto_rtts, wire_time: true };
        Ok(match self.scheme {
            Scheme::Repeat { rto_rtts } => {
                Model::Repeat(SelectiveRepeat::with_fate(transfer, timing(rto_rtts), fate)?)
            }
            Scheme::Code(code) => {
                Model::Code(StreamedCoding::with_fate(transfer, code, timing(1.0), fate)?)
            }
            Scheme::Auto(mode) => Model::Tail(TailCoding::with_fate(transfer, &mode, fate)?),
        })
    }

    /// `None` for chunks of several packets that hardly ever come through: smaller ones do.
    pub(super) fn if_it_comes<T>(
        &self,
        answer: Result<T, ModelError>,
    ) -> Result<Option<T>, ModelError> {
        match answer {
            Err(ModelError::OutOfRange { argument: "loss", .. }) if self.chunk_packets > 1 => {
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// What to expect of it on this question's path.
    ///
    /// # Errors
    ///
    /// [`ModelError`] names the first argument that makes no sense.
    pub fn expected(&self, question: &Question) -> Result<Expected, ModelError> {
        self.expected_of(question, &Fates::default())
    }

    pub(super) fn expected_of(
        &self,
        question: &Question,
        fates: &Fates,
    ) -> Result<Expected, ModelError> {
        let model = self.model(question, fates)?;
        let longest = question.sizes_bytes.iter().copied().max().unwrap_or(1);
        let (mut fallback, mut parity_share) = (None, 0.0);
        let mut timeout_s = match self.scheme {
            Scheme::Repeat { rto_rtts } => rto_rtts * question.rtt_s,
            Scheme::Code(_) => 0.0,
            Scheme::Auto(_) => question.rtt_s,
        };
        let mut tails = Vec::new();
        for (weight, part) in model.parts() {
            match part {
                Model::Repeat(_) => {}
                Model::Code(code) => {
                    *fallback.get_or_insert(0.0) += weight * code.fallback_probability();
                    parity_share += weight * code.parity_share();
                    timeout_s = f64::max(timeout_s, code.quantile_s(0.0));
                }
                Model::Tail(tail) => {
                    if let Some(probability) = tail.fallback_probability() {
                        *fallback.get_or_insert(0.0) += weight * probability;
                    }
                    parity_share += weight * tail.parity_share();
                    tails.push((*tail.question(), tail.choice()));
                }
            }
        }
        Ok(Expected {
            candidate: *self,
            chunk_bytes: self.framing(question, longest).chunk_bytes,
            mean_s: model.mean_s(),
            p50_s: model.quantile_s(0.5),
            p99_s: model.quantile_s(0.99),
            p999_s: model.quantile_s(0.999),
            fallback,
            parity_share,
            timeout_s,
            tails,
        })
    }
}
