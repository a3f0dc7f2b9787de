//! What a recommendation says of reliable connections: the shim to put below one, and whether the modes of
//! the core are the better choice.

use super::Recommendation;
use super::words::longer;
use lacuna_model::plan::{ConnectionExpected, ConnectionFraming, TIE};
use lacuna_model::{CodeKind, Shim};
use lacuna_units::show_time_fixed;
use serde::Serialize;

/// Headers and trailer of a packet in the middle of a message, IP and UDP included: base transport header
/// and ICRC.
const OVERHEAD_BYTES: u64 = 12 + 4 + 20 + 8;
/// Payload bytes that a reliable connection can have.
const PACKET_BYTES: (u32, u32) = (256, 4096);

/// Packets of a connection on a path whose packets have this payload.
pub(super) fn framing(packet_bytes: u32) -> ConnectionFraming {
    let packet_bytes = (packet_bytes / 4 * 4).clamp(PACKET_BYTES.0, PACKET_BYTES.1);
    ConnectionFraming { packet_bytes: packet_bytes.into(), overhead_bytes: OVERHEAD_BYTES }
}

/// A reliable connection in numbers.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionAnswer {
    /// `lowar:R:C` or `lowar:mds:R:C`; `None` if go-back-N alone is as good.
    pub shim: Option<String>,
    /// Data packets of a block.
    pub r: Option<u32>,
    /// Repairs of a block.
    pub c: Option<u32>,
    /// Kind of the code: `xor` or `mds`.
    pub code: Option<&'static str>,
    /// With that shim.
    pub with: ConnectionSide,
    /// Go-back-N alone.
    pub without: ConnectionSide,
    /// Packets of a round trip: what one loss costs without a shim.
    pub window_packets: u64,
    /// How much longer than the recommended mode it takes, as a fraction; below zero if it is faster.
    pub worse_than_recommended: f64,
    /// `core` if the recommended mode is better, `connection` if this is, `either` if there is no difference
    /// that matters.
    pub better: &'static str,
}

/// What to expect of a reliable connection.
#[derive(Debug, Clone, Serialize)]
pub struct ConnectionSide {
    /// Mean completion time of a message that is alone on it.
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

impl Recommendation {
    /// The reliable connection in numbers.
    pub(super) fn connection_answer(&self) -> ConnectionAnswer {
        let plan = &self.connection;
        let code = plan.best.shim.map(|shim| shim.code);
        let worse = self.connection_worse();
        ConnectionAnswer {
            shim: plan.best.shim.map(name),
            r: code.map(|code| code.k()),
            c: code.map(|code| code.m()),
            code: code.map(|code| match code.kind() {
                CodeKind::Xor => "xor",
                CodeKind::Mds => "mds",
            }),
            with: side(&plan.best),
            without: side(&plan.without),
            window_packets: plan.window_packets,
            worse_than_recommended: worse,
            better: match worse {
                worse if worse > TIE => "core",
                worse if worse < -TIE => "connection",
                _ => "either",
            },
        }
    }

    /// How much longer than the recommended mode the best connection takes, as a fraction.
    fn connection_worse(&self) -> f64 {
        let objective = self.question.objective;
        self.connection.best.of(objective) / self.plan.choice().of(objective) - 1.0
    }

    /// The reliable connection in sentences.
    pub(super) fn connection_lines(&self) -> Vec<String> {
        let plan = &self.connection;
        let (by, objective) = (self.objective_name(), self.question.objective);
        let time = |expected: &ConnectionExpected| show_time_fixed(expected.of(objective));
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let mut lines = vec![match plan.best.shim {
            Some(shim) => format!(
                "below a reliable connection take {}: {} of its packets are repairs; by {by}, a message takes {}, with \
                 go-back-N alone {}",
                name(shim),
                percent(plan.best.repair_share),
                time(&plan.best),
                time(&plan.without),
            ),
            None => format!(
                "a reliable connection needs no shim: by {by}, a message takes {} with go-back-N alone",
                time(&plan.without)
            ),
        }];
        let kept = match plan.best.shim {
            Some(_) => format!(
                "{} of the path, go-back-N alone {}",
                percent(plan.best.goodput),
                percent(plan.without.goodput)
            ),
            None => format!("{} of the path", percent(plan.without.goodput)),
        };
        let mode = plan_name(self);
        let worse = self.connection_worse();
        let rest = match worse {
            worse if worse > TIE => format!(
                "{mode} on the core is the better choice where a program can have it: by {by}, the connection takes {}",
                longer(worse)
            ),
            worse if worse < -TIE => {
                format!("by {by} it takes {} than {mode} on the core", longer(worse))
            }
            _ => format!("by {by} it is as good as {mode} on the core"),
        };
        lines.push(format!("messages back to back keep {kept}; {rest}"));
        lines
    }
}

fn plan_name(recommendation: &Recommendation) -> String {
    recommendation.plan.choice().candidate.scheme.to_string()
}

/// As it is written on command lines.
fn name(shim: Shim) -> String {
    let kind = match shim.code.kind() {
        CodeKind::Xor => "",
        CodeKind::Mds => "mds:",
    };
    format!("lowar:{kind}{}:{}", shim.code.k(), shim.code.m())
}

fn side(expected: &ConnectionExpected) -> ConnectionSide {
    let ConnectionExpected { mean_s, p50_s, p99_s, p999_s, goodput, repair_share, .. } = *expected;
    ConnectionSide { mean_s, p50_s, p99_s, p999_s, goodput, repair_share }
}
