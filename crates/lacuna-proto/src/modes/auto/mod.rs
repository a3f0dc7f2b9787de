//! The mode that chooses: selective repeat for all that can be repaired while
//! later data still go out, parity for the end of a message, as much as the path
//! calls for.
//!
//! # Agreement without a round trip
//!
//! On the wire it is an erasure layout with the MDS code k = 32, m = 16. A
//! parity packet's number says its submessage, its parity chunk and its row, the
//! code is systematic, and any part of its parity is a code of its own. So the
//! receiver repairs with whatever came, and the sender alone decides, for each
//! submessage, how much of the parity it sends: none, which is selective repeat,
//! or up to all of it. Nothing has to be told. m = 16 leaves two thirds of a
//! slot's packet numbers to data. Single losses ask for up to 8 (`plan.txt`);
//! bursts of 8 at one per cent reach 15, where more might help a little.
//!
//! # What parity is for
//!
//! A lost packet is sent again one round trip later. If data still go out then,
//! that costs the packet's own time on the wire and nothing else, and parity
//! would cost more. Only what is lost in the last round trip lengthens a message,
//! by up to a round trip. So all data go out first, as in selective repeat. When
//! the last of them has left, the submessages of which nothing was judged yet
//! are by themselves what was sent in the last round trip: neither rate nor round
//! trip enter. That is the *tail*; its parity follows now. Behind all data it
//! costs nothing where nothing was lost, because the message is complete before
//! the parity comes, and what there is to know of the path is known by then, of
//! a first message too if it is long enough.
//!
//! A repair that is lost again would cost a round trip more. Once the data are
//! on the wire, repairs may go out several times: few packets, on a wire that is idle.
//! Those that went out between the last data go out as often behind the parity.
//!
//! # Who chooses
//!
//! `plan.rs` has the formulas: an [`Estimate`] of the path and the size of the
//! tail in, a [`Choice`] out. It is a plain function, given to the queue pair by
//! its owner, so a test or a simulation may give another. `chooser.rs` asks it,
//! with hysteresis, and says why.

mod chooser;
mod plan;
#[cfg(test)]
mod tests;

pub(crate) use chooser::Chooser;
pub use chooser::{AutoStats, Chosen};
pub use plan::{cost, plan};

use lacuna_code::Code;
use lacuna_path::loss::LossEstimate;

/// The code that messages carry parts of.
pub const CODE: Code = Code::MDS_32_16;

/// What is known of the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Packets, as many as the evidence is worth, that `loss` was seen in.
    pub evidence_packets: f64,
    /// Packets that were seen in fact: what is believed beforehand is less.
    pub seen_packets: f64,
    /// Losses in the evidence.
    pub lost_packets: f64,
    /// Mean packets lost in a row.
    pub burst_packets: f64,
    /// Round-trip time, and how much later than it a loss shows.
    pub rtt_ns: u64,
    /// Wire bits per second; 0 if not known.
    pub rate_bits_per_s: u64,
}

impl Estimate {
    /// What a connection believes of a path over which so many packets went, of which this share was lost
    /// in runs of this mean length: for those who plan.
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

/// What is to be decided.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Question {
    /// The path.
    pub estimate: Estimate,
    /// Packets of the message.
    pub message_packets: u32,
    /// Packets of its tail: sent and not judged.
    pub tail_packets: u32,
    /// Rows of the code in a submessage: losses in a row hit as many.
    pub rows: u32,
    /// Wire bytes of a packet.
    pub packet_bytes: u64,
    /// Other data wait behind this message: its parity would delay them, and
    /// what is lost of it is repaired while they go out.
    pub is_followed: bool,
}

/// What is decided for the tail of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Parity chunks for each submessage, as far as a short one has so many.
    pub parity: u8,
    /// How often repairs go out from now on, at least once.
    pub repair_copies: u8,
}

impl Default for Choice {
    /// Selective repeat.
    fn default() -> Self {
        Self { parity: 0, repair_copies: 1 }
    }
}

/// Decides; a plain function, so that whoever owns a queue pair may bring another.
pub type Policy = fn(&Question) -> Choice;
