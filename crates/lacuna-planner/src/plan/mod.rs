//! Recommends a reliability mode for a path, with reasons.
//!
//! Compares the transport's default mode, `auto`, with selective repeat and erasure codes as the
//! transport runs them: headers and repairs take link time, parity follows each submessage. `auto`
//! is predicted for a connection that knows the path; a first message over an unknown path gets
//! more parity.
//!
//! For programs that need a reliable connection it also says which LoWAR(r, c) to put below it, and what
//! that costs beside the modes, which place packets in any order.

mod answer;
mod below;
mod draw;
mod words;

pub use answer::{
    AutoAnswer, CandidateAnswer, FlipAnswer, InTimeAnswer, PlanAnswer, Recommended,
    UnrepairedAnswer,
};
pub use below::{ConnectionAnswer, ConnectionSide};

use crate::error::{MeasurementError, PlanError};
use crate::measurement::{read_text, refused};
use crate::{OVERHEAD_BYTES, auto};
use lacuna::ConnectionConfig;
use lacuna_model::plan::{
    self, ConnectionPlan, Expected, InTime, LossKnown, Objective, Plan, Question,
};
use serde::{Deserialize, Deserializer};
use std::path::Path;

/// Speed of light in fibre: vacuum over the refractive index of silica, 1.468 at 1550 nm.
const FIBRE_KM_PER_S: f64 = 299_792.458 / 1.468;

/// Payload bytes of a packet unless something else is known.
const PACKET_BYTES: u32 = 4096;

/// The round-trip time of a fibre of this length: 204 km take a millisecond one way.
#[must_use]
pub fn fibre_rtt_s(km: f64) -> f64 {
    2.0 * km / FIBRE_KM_PER_S
}

/// Properties of a path, as a measurement describes them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct Measured {
    /// Rate of the path.
    pub rate_bits_per_s: Option<f64>,
    /// Round-trip time.
    pub rtt_s: Option<f64>,
    /// Share of packets that are lost, or a range.
    #[serde(default, deserialize_with = "loss")]
    pub loss: Option<LossKnown>,
    /// Mean length of a run of lost packets; `None`: packets are lost one by one.
    pub mean_burst_packets: Option<f64>,
    /// Payload bytes of a packet; 4096 if nothing is known.
    #[serde(default, deserialize_with = "packet_bytes")]
    pub mtu_bytes: Option<u32>,
}

impl Measured {
    /// A path with the three required quantities.
    #[must_use]
    pub fn new(rate_bits_per_s: f64, rtt_s: f64, loss: f64) -> Self {
        Self {
            rate_bits_per_s: Some(rate_bits_per_s),
            rtt_s: Some(rtt_s),
            loss: Some(LossKnown::At(loss)),
            ..Self::default()
        }
    }

    /// Reads a JSON object with any of these fields; the loss is a number or a range.
    ///
    /// # Errors
    /// When the file cannot be read or is something else.
    pub fn read(path: &Path) -> Result<Self, MeasurementError> {
        serde_json::from_str(&read_text(path)?).map_err(|error| refused(path, error))
    }

    /// Fills in missing fields from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            rate_bits_per_s: self.rate_bits_per_s.or(other.rate_bits_per_s),
            rtt_s: self.rtt_s.or(other.rtt_s),
            loss: self.loss.or(other.loss),
            mean_burst_packets: self.mean_burst_packets.or(other.mean_burst_packets),
            mtu_bytes: self.mtu_bytes.or(other.mtu_bytes),
        }
    }
}

/// A valid packet size; `null` where none was measured.
fn packet_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let Some(bytes) = Option::<u64>::deserialize(from)? else { return Ok(None) };
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let geometry = ConnectionConfig::default().geometry(bytes, 1);
    geometry.map(|_| Some(bytes)).map_err(serde::de::Error::custom)
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum MeasuredLoss {
    At(f64),
    Between(f64, f64),
}

fn loss<'de, D: Deserializer<'de>>(from: D) -> Result<Option<LossKnown>, D::Error> {
    let loss = Option::<MeasuredLoss>::deserialize(from)?;
    Ok(loss.map(|loss| match loss {
        MeasuredLoss::At(loss) => LossKnown::At(loss),
        MeasuredLoss::Between(low, high) => LossKnown::Between(low, high),
    }))
}

/// What to recommend a mode for.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanRequest {
    /// Rate, round-trip time and loss must be known.
    pub path: Measured,
    /// Bytes per message; several sizes are equally frequent.
    pub sizes_bytes: Vec<u64>,
    /// The quantity to minimise.
    pub objective: Objective,
}

/// The answer: the modes compared, and the one to take.
#[derive(Debug, Clone)]
pub struct Recommendation {
    /// What the model was asked.
    pub question: Question,
    /// What it answered.
    pub plan: Plan,
    /// The same for a program that needs a reliable connection.
    pub connection: ConnectionPlan,
}

/// Compares the modes on a path.
///
/// # Errors
/// When not all that is necessary is known of the path, or a quantity is out of the model's range.
pub fn recommend(request: &PlanRequest) -> Result<Recommendation, PlanError> {
    let path = &request.path;
    let (Some(rate_bits_per_s), Some(rtt_s), Some(loss)) =
        (path.rate_bits_per_s, path.rtt_s, path.loss)
    else {
        let needed = [
            (path.rate_bits_per_s.is_some(), "rate"),
            (path.rtt_s.is_some(), "rtt"),
            (path.loss.is_some(), "loss"),
        ];
        let missing = needed.into_iter().filter(|(is_known, _)| !is_known).map(|(_, name)| name);
        return Err(PlanError::Unknown { missing: missing.collect() });
    };
    let packet_bytes = path.mtu_bytes.unwrap_or(PACKET_BYTES);
    let question = Question {
        rate_bits_per_s,
        rtt_s,
        loss,
        mean_burst_packets: path.mean_burst_packets,
        sizes_bytes: request.sizes_bytes.clone(),
        objective: request.objective,
        packet_bytes: packet_bytes.into(),
        overhead_bytes: OVERHEAD_BYTES,
        auto: Some(auto::mode(packet_bytes)?),
    };
    let plan = plan::plan(&question)?;
    let connection = plan::connection(&question, below::framing(packet_bytes))?;
    Ok(Recommendation { question, plan, connection })
}

impl Recommendation {
    /// What is there so long after the first byte of a message was sent.
    ///
    /// # Errors
    /// When the deadline is out of the model's range.
    pub fn in_time(&self, deadline_s: f64) -> Result<InTime, PlanError> {
        Ok(plan::in_time(&self.question, &self.plan, deadline_s)?)
    }

    /// Name of the minimised quantity.
    #[must_use]
    pub fn objective_name(&self) -> &'static str {
        match self.question.objective {
            Objective::Mean => "mean",
            Objective::P99 => "p99",
            Objective::P999 => "p99.9",
        }
    }

    /// How much longer one takes than the other, as a fraction.
    fn worse(&self, one: &Expected, other: &Expected) -> f64 {
        one.of(self.question.objective) / other.of(self.question.objective) - 1.0
    }
}
