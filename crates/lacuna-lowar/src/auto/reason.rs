//! Why a strength was chosen: the numbers, and one sentence with them.

use super::fit::LossFit;
use lacuna_wire::rc::{CodeKind, Strength};
use std::fmt;

/// Why a strength was chosen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reason {
    /// The strength; `None` is no protection.
    pub strength: Option<Strength>,
    /// What is lost, and how sure that is.
    pub loss: LossFit,
    /// Useful packets as a share of what the path carries, expected with this strength.
    pub goodput: f64,
    /// With none: go-back-N alone.
    pub goodput_without: f64,
    /// Packets that the path carries in a round trip: what one loss costs without a shim.
    pub window_packets: u64,
    /// Packets of a message.
    pub message_packets: u64,
    /// When it was chosen.
    pub since_ns: u64,
    /// The peer refused to make more repairs for a hundred packets.
    pub granted_percent_max: Option<u16>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, .. } = self;
        write!(
            f,
            "{}: loss {:.1e} ({:.1e} to {:.1e})",
            name(self.strength),
            loss.loss,
            loss.loss_low,
            loss.loss_high
        )?;
        if loss.bursts >= 1.0 && loss.burst_losses >= 1.1 {
            write!(f, ", {:.1} at a time", loss.burst_losses)?;
        }
        write!(
            f,
            ", by {} packets; with a round trip of {} packets and messages of {}, {:.1} % of the path are \
             useful, with go-back-N alone {:.1} %",
            loss.packets,
            self.window_packets,
            self.message_packets,
            100.0 * self.goodput,
            100.0 * self.goodput_without
        )?;
        match self.granted_percent_max {
            Some(0) => write!(f, "; the peer grants no repairs"),
            Some(percent) => {
                write!(f, "; the peer grants no more than {percent} repairs for a hundred packets")
            }
            None => Ok(()),
        }
    }
}

/// A strength as it is written on command lines.
fn name(strength: Option<Strength>) -> String {
    match strength {
        None => "off".to_owned(),
        Some(Strength { block_packets, repairs, code: CodeKind::Xor }) => {
            format!("lowar:{block_packets}:{repairs}")
        }
        Some(Strength { block_packets, repairs, code: CodeKind::Mds }) => {
            format!("lowar:mds:{block_packets}:{repairs}")
        }
    }
}
