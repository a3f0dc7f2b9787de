//! The mode `auto`: selective repeat for data that can be repaired while later data are still being
//! sent, and for the end of a message as much parity as the path needs.
//!
//! # Agreement without a round trip
//!
//! On the wire a message of `auto` has the layout of the MDS code with k = 32, m = 16. A parity
//! packet's number tells its submessage, its parity chunk and its row; the code is systematic, and
//! any part of its parity is a code of its own. So the receiver repairs with any parity it received,
//! and the sender alone decides how much parity it sends of each submessage, from none (selective
//! repeat) to all, without telling the receiver. m = 16 leaves two thirds of a slot's
//! packet numbers to data. Single losses need up to 8 parity chunks (`plan.txt`); bursts of 8 at a
//! loss of 1 % need 15, where more might help a little.
//!
//! # What parity is for
//!
//! A lost packet is sent again one round trip later. While data are still being sent, this costs
//! the packet's own time on the wire and nothing else; parity would cost more. Only losses in the
//! last round trip make a message longer, by up to a round trip. So the sender sends all data
//! first, as in selective repeat. When the last of them has left, the submessages of which nothing
//! was judged yet are those of the last round trip, whatever rate and round trip are: the *tail*.
//! Its parity follows. After all data it costs nothing where nothing was lost, because the message
//! is complete before the parity comes. And by then the sender knows the path as well as it can,
//! even in a first message if that is long enough.
//!
//! A repair that is lost again costs another round trip. Once the data are on the wire, repairs may
//! be sent several times: they are few packets, and the wire is idle. Repairs sent between the last
//! data get their further copies after the parity.
//!
//! # The policy
//!
//! `plan.rs` computes a [`Choice`] from an [`Estimate`] of the path and the size of the tail. It is a
//! plain function that the queue pair's owner passes in, so a test or a simulation can pass another.
//! `chooser.rs` calls it, adds hysteresis, and keeps the reason for the statistics.

mod chooser;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use chooser::Chooser;
pub use chooser::{AutoStats, Chosen};
pub use plan::{cost, plan};

use lacuna_code::Code;
use lacuna_path::loss::LossEstimate;

/// The code whose parity messages carry in part.
pub const CODE: Code = Code::MDS_32_16;

/// Estimate of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Weight of the evidence in packets, the assumptions made beforehand included.
    pub evidence_packets: f64,
    /// Of those, packets that were seen; the rest is the prior.
    pub seen_packets: f64,
    /// Lost packets among `evidence_packets`.
    pub lost_packets: f64,
    /// Mean packets lost in a row.
    pub burst_packets: f64,
    /// Time until a loss is detected: the round trip, plus the delays of reordering and reports.
    pub rtt_ns: u64,
    /// Wire bits per second; 0 if not known.
    pub rate_bits_per_s: u64,
}

impl Estimate {
    /// The estimate of a connection that has sent `packets` over a path with this loss, in bursts
    /// of this mean length. For planners.
    pub fn of_known_path(
        loss: f64,
        burst_packets: f64,
        packets: f64,
        rtt_ns: u64,
        rate_bits_per_s: u64,
    ) -> Self {
        let mut known = LossEstimate::default();
        known.start_at(loss, burst_packets, packets);
        Self {
            evidence_packets: known.evidence_packets(),
            seen_packets: known.seen_packets(),
            lost_packets: known.lost_packets(),
            burst_packets: known.burst_packets(),
            rtt_ns,
            rate_bits_per_s,
        }
    }

    /// Share of packets that the path loses.
    pub fn loss(&self) -> f64 {
        self.lost_packets / self.evidence_packets.max(1.0)
    }
}

/// Input of the policy, which chooses the parity of a message's tail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// Estimate of the path.
    pub estimate: Estimate,
    /// Packets of the message.
    pub message_packets: u32,
    /// Packets of its tail: sent, and not judged yet.
    pub tail_packets: u32,
    /// Rows of the code in a submessage. Packets lost in a row hit different rows.
    pub rows: u32,
    /// Wire bytes of a packet.
    pub packet_bytes: u64,
    /// Other data wait to be sent after this message: its parity would delay them, and its losses
    /// are repaired while they are sent.
    pub is_followed: bool,
}

/// Output of the policy, for the tail of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Parity chunks for each submessage; a short submessage may have fewer.
    pub parity: u8,
    /// Copies of each repair from now on, at least one.
    pub repair_copies: u8,
}

impl Default for Choice {
    /// Selective repeat.
    fn default() -> Self {
        Self { parity: 0, repair_copies: 1 }
    }
}

/// The type of the policy: a plain function, so that the owner of a queue pair can pass another.
pub type Policy = fn(&Question) -> Choice;
