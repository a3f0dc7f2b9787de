//! LoWAR: Zuo et al., "LoWAR: Enhancing RDMA over Lossy WANs with Transparent Error Correction", section VI.
//!
//! The paper's baseline is a card (ConnectX-5), ours is go-back-N as the specification has it
//! ([`lacuna_rc`]). The card loses more with each loss than one window: its 9.21 Gbit/s fall to 2.92 at a loss
//! of 1e-5, which is 4.65 windows a loss. So gains at low loss are smaller here, and the closed form
//! ([`lacuna_model`]) stands beside the measurements.

mod bursts;
mod completion;
mod goodput;
mod latency;
pub mod live;
mod memory;
mod small;

use crate::cells::{Lab, Stopped};
use crate::connections::{OVERHEAD_BYTES, Workload};
use crate::outcome::{Item, Outcome};
use lacuna_link::{Fraction, Loss};
use lacuna_model::{Code, ConnectionPath, GoBackN, Loss as ModelLoss, Shim};
use lacuna_planner::chart::{Axis, power};

use lacuna_rc::{Repair, ShimSettings};
use lacuna_wire::rc::{CodeKind, Strength};

/// The paper's name on command lines.
pub const NAME: &str = "lowar";

/// What can be done again in virtual time, and the table; with what it shows. [`live`] has what is measured
/// on real sockets.
pub const EXPERIMENTS: [(Item, &str); 7] = [
    (Item::Figure(3), "reliable connections over lossy long paths"),
    (Item::Figure(9), "goodput by loss, one connection and 16"),
    (Item::Figure(10), "completion time of messages of 1 MB, one by one"),
    (Item::Figure(11), "goodput by length of bursts"),
    (Item::Figure(12), "small messages"),
    (Item::Figure(13), "what repairs cost: latency"),
    (Item::Table(1), "what the shim takes of memory"),
];

/// The rate of the paper's emulated links.
const RATE_BITS_PER_S: u64 = 10_000_000_000;
const MS_NS: u64 = 1_000_000;

/// Does an experiment again. `None` if there is no such one.
///
/// # Errors
/// When it was told to stop.
pub fn run(item: Item, lab: &Lab<'_>) -> Option<Result<Outcome, Stopped>> {
    Some(match item {
        Item::Figure(3) => goodput::figure_3(lab),
        Item::Figure(9) => goodput::figure_9(lab),
        Item::Figure(10) => completion::figure_10(lab),
        Item::Figure(11) => bursts::figure_11(lab),
        Item::Figure(12) => small::figure_12(lab),
        Item::Figure(13) => latency::figure_13(lab),
        Item::Table(1) => memory::table_1(lab),
        _ => return None,
    })
}

/// What an experiment shows.
fn title(item: Item) -> String {
    let known = EXPERIMENTS.iter().find(|(known, _)| *known == item);
    known.map_or(String::new(), |(_, title)| (*title).to_owned())
}

/// A scheme that is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scheme {
    name: &'static str,
    repair: Repair,
    /// r and c of the shim.
    lowar: Option<(u16, u16)>,
}

impl Scheme {
    const GO_BACK_N: Self = Self { name: "go-back-N", repair: Repair::GoBackN, lowar: None };
    const SELECTIVE: Self =
        Self { name: "selective repeat", repair: Repair::SelectiveRepeat, lowar: None };

    const fn lowar(name: &'static str, block_packets: u16, repairs: u16) -> Self {
        Self { name, repair: Repair::GoBackN, lowar: Some((block_packets, repairs)) }
    }

    fn on(self, workload: Workload) -> Workload {
        let shim = self.lowar.map_or(ShimSettings::Off, |(block_packets, repairs)| {
            let strength = Strength { block_packets, repairs, code: CodeKind::Xor };
            ShimSettings::Protect { strength, caps_short_blocks: false }
        });
        Workload { repair: self.repair, shim, ..workload }
    }

    /// The closed form of its goodput as a share of the link's payload rate, if it has one.
    fn closed_form(self, workload: &Workload, loss: ModelLoss) -> Option<f64> {
        if self.repair != Repair::GoBackN {
            return None;
        }
        let share = workload.rate_bits_per_s as f64 / f64::from(workload.connections);
        let packet_bytes = f64::from(workload.mtu_bytes) + OVERHEAD_BYTES as f64;
        let packet_s = packet_bytes * 8.0 / share;
        let path = ConnectionPath::new(packet_s, workload.rtt_ns as f64 / 1e9, loss);
        let shim = match self.lowar {
            Some((r, c)) => Some(Shim::new(Code::xor(r.into(), c.into()).ok()?)),
            None => None,
        };
        let packets = (workload.message_bytes as u64).div_ceil(workload.mtu_bytes.into());
        Some(GoBackN::new(&path, shim).ok()?.goodput(packets))
    }
}

/// Independent losses.
fn losses(loss: f64) -> Loss {
    match loss {
        0.0 => Loss::None,
        loss => Loss::Independent(Fraction::from_f64(loss)),
    }
}

/// Where "no loss" stands on a logarithmic axis: left of the smallest loss that is measured.
const NO_LOSS_PLACE: f64 = 1e-6;

/// Where a loss stands on [`loss_axis`].
fn loss_place(loss: f64) -> f64 {
    if loss > 0.0 { loss } else { NO_LOSS_PLACE }
}

/// The axis of losses. It begins with no loss at all.
fn loss_axis() -> Axis {
    let label = |loss: f64| match loss / NO_LOSS_PLACE {
        share if share < 1.1 => "0".to_owned(),
        // There is nothing between no loss and the smallest one.
        share if share < 9.0 => String::new(),
        _ => power(loss),
    };
    Axis::log("loss of packets, both ways", label)
}

fn gbit(bits_per_s: f64) -> f64 {
    bits_per_s / 1e9
}
