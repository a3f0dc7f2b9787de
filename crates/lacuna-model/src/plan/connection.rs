//! The same question for a program that needs a reliable connection: which LoWAR(r, c) below it, and what
//! that comes to beside go-back-N alone.
//!
//! The candidates are XOR and MDS codes of several lengths and shares; each is judged by the same
//! objective as the modes. A block with its repairs must come within a quarter of a round trip, for so
//! long a receiver holds what is behind a gap. As with the modes, of all within [`TIE`] of the best the one
//! with the fewest repairs is taken that is as good as the others at twice the loss, too.

use super::{Axis, MARGIN, Objective, Question, TIE};
use crate::{
    Code, CodeKind, Completion, ConnectionMessage, ConnectionPath, GoBackN, Mixture, ModelError,
    Shim,
};

/// Packets of blocks that are tried.
const BLOCKS: [u32; 6] = [8, 16, 32, 64, 128, 256];
/// Repairs that are tried.
const REPAIRS: [u32; 8] = [1, 2, 4, 8, 12, 16, 24, 32];
/// Most packets and repairs of an MDS block: the repair header's field has 256 elements, one of them zero.
const MDS_MAX: u32 = 255;
/// Share of a quarter of a round trip that a block may take.
const HOLD_SHARE: f64 = 7.0 / 8.0;

/// How a reliable connection's packets are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionFraming {
    /// Payload bytes of a packet.
    pub packet_bytes: u64,
    /// Bytes of a packet on the link that are not payload.
    pub overhead_bytes: u64,
}

/// What to expect of a reliable connection.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConnectionExpected {
    /// The shim below it; `None` is go-back-N alone.
    pub shim: Option<Shim>,
    /// Mean completion time of a message that is alone on the connection.
    pub mean_s: f64,
    /// Median.
    pub p50_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
    /// 99.9th percentile.
    pub p999_s: f64,
    /// Useful packets as a share of what the path carries, with messages back to back.
    pub goodput: f64,
    /// Repairs as a share of all packets.
    pub repair_share: f64,
}

impl ConnectionExpected {
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

/// The answer for a reliable connection.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionPlan {
    /// The one to take; its shim is `None` if go-back-N alone is as good.
    pub best: ConnectionExpected,
    /// Go-back-N alone.
    pub without: ConnectionExpected,
    /// Bytes in flight that fill the path.
    pub window_packets: u64,
}

/// Answers a question for a reliable connection.
///
/// # Errors
///
/// [`ModelError`] names the first argument that makes no sense.
pub fn connection(
    question: &Question,
    framing: ConnectionFraming,
) -> Result<ConnectionPlan, ModelError> {
    let here = Asked::new(question, framing)?;
    let worse = match Axis::Loss.of(question) {
        loss if loss > 0.0 && loss * MARGIN <= Axis::Loss.range().1 => {
            Some(Asked::new(&Axis::Loss.at(question, loss * MARGIN), framing)?)
        }
        _ => None,
    };
    let objective = question.objective;
    // The least repairs first; what cannot be as good even without a loss is not looked at.
    let mut best_s = judged_s(&here.model(None)?, objective);
    let mut good = vec![(None, best_s)];
    for shim in here.shims() {
        if here.least_s(Some(shim))? > best_s * (1.0 + TIE) {
            continue;
        }
        let judged_s = judged_s(&here.model(Some(shim))?, objective);
        best_s = best_s.min(judged_s);
        good.push((Some(shim), judged_s));
    }
    good.retain(|(_, judged_s)| *judged_s <= best_s * (1.0 + TIE));
    let shim = match worse {
        None => good[0].0,
        Some(worse) => {
            let mut then = Vec::with_capacity(good.len());
            for (shim, _) in &good {
                then.push(judged_s(&worse.model(*shim)?, objective));
            }
            let best_s = then.iter().copied().fold(f64::INFINITY, f64::min);
            let first = then.iter().position(|judged_s| *judged_s <= best_s * (1.0 + TIE));
            good[first.unwrap_or(0)].0
        }
    };
    Ok(ConnectionPlan {
        best: here.expected(shim)?,
        without: here.expected(None)?,
        window_packets: here.window_packets().round() as u64,
    })
}

fn judged_s(model: &impl Completion, objective: Objective) -> f64 {
    objective
        .probability()
        .map_or_else(|| model.mean_s(), |probability| model.quantile_s(probability))
}

/// A question in a connection's terms.
struct Asked {
    paths: Vec<ConnectionPath>,
    /// Packets of each size.
    messages: Vec<u64>,
}

impl Asked {
    fn new(question: &Question, framing: ConnectionFraming) -> Result<Self, ModelError> {
        let bytes = framing.packet_bytes + framing.overhead_bytes;
        let packet_s = bytes as f64 * 8.0 / question.rate_bits_per_s;
        let mut paths = Vec::new();
        for loss in question.losses()? {
            paths.push(ConnectionPath::new(packet_s, question.rtt_s, question.loss_model(loss)?));
        }
        let packets = |size: &u64| size.div_ceil(framing.packet_bytes.max(1)).max(1);
        Ok(Self { paths, messages: question.sizes_bytes.iter().map(packets).collect() })
    }

    fn window_packets(&self) -> f64 {
        self.paths.first().map_or(0.0, |path| path.rtt_s / path.packet_s)
    }

    /// All that can be had, with the least repairs first, XOR before MDS.
    fn shims(&self) -> Vec<Shim> {
        let packets_max = self.window_packets() / 4.0 * HOLD_SHARE;
        let mut shims = Vec::new();
        for kind in [CodeKind::Xor, CodeKind::Mds] {
            for c in REPAIRS.into_iter().filter(|c| kind == CodeKind::Xor || *c > 1) {
                for r in BLOCKS {
                    let r = if kind == CodeKind::Mds { r.min(MDS_MAX - c) } else { r };
                    if c <= r / 2 && f64::from(r + c) <= packets_max {
                        shims.extend(Code::new(kind, r, c).map(Shim::new));
                    }
                }
            }
        }
        let share = |shim: &Shim| f64::from(shim.code.m()) / f64::from(shim.code.k());
        shims.sort_by(|a, b| share(a).total_cmp(&share(b)));
        shims
    }

    /// The distribution of the times of messages of all sizes under all losses.
    fn model(&self, shim: Option<Shim>) -> Result<Mixture<ConnectionMessage>, ModelError> {
        let mut parts = Vec::new();
        for path in &self.paths {
            let connection = GoBackN::new(path, shim)?;
            let messages = self.messages.iter();
            parts.extend(
                messages.map(|packets| (1.0, ConnectionMessage::new(&connection, *packets))),
            );
        }
        Mixture::new(parts)
    }

    /// Without a loss: no objective is below.
    fn least_s(&self, shim: Option<Shim>) -> Result<f64, ModelError> {
        let Some(path) = self.paths.first() else { return Ok(0.0) };
        let lossless = ConnectionPath { loss: crate::Loss::PerPacket(0.0), ..*path };
        let connection = GoBackN::new(&lossless, shim)?;
        let messages = self.messages.iter();
        let least_s =
            messages.map(|packets| ConnectionMessage::new(&connection, *packets).least_s());
        Ok(least_s.sum::<f64>() / self.messages.len().max(1) as f64)
    }

    fn expected(&self, shim: Option<Shim>) -> Result<ConnectionExpected, ModelError> {
        let model = self.model(shim)?;
        let (mut goodput, mut repairs) = (0.0, 0.0);
        for path in &self.paths {
            let connection = GoBackN::new(path, shim)?;
            let share = 1.0 / (self.paths.len() * self.messages.len().max(1)) as f64;
            for packets in &self.messages {
                goodput += share * connection.goodput(*packets);
                repairs += share * connection.repair_share(*packets);
            }
        }
        Ok(ConnectionExpected {
            shim,
            mean_s: model.mean_s(),
            p50_s: model.quantile_s(0.5),
            p99_s: model.quantile_s(0.99),
            p999_s: model.quantile_s(0.999),
            goodput,
            repair_share: repairs,
        })
    }
}
