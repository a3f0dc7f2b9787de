//! A finished trial: the client's counts, the server's counts and the round trips.

use crate::counted::Counted;
use crate::host::HostDrops;

/// The result of a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Its number, from 1 on.
    pub number: u32,
    /// UDP payload of its packets.
    pub payload_bytes: u32,
    /// Flows, used in turn.
    pub flows: u16,
    /// Start of the trial, since the start of the client.
    pub begins_ns: u64,
    /// Time during which packets were sent.
    pub duration_ns: u64,
    /// Packets sent.
    pub sent: u32,
    /// Of these, packets that the client's host refused: they never left it.
    pub refused: u64,
    /// The server's counts.
    pub counted: Counted,
    /// Round trips, in the order of sending.
    pub rtts_ns: Vec<u64>,
    /// Packets that the client's host dropped.
    pub sender_drops: HostDrops,
}

impl Trial {
    /// Packets that were sent and did not arrive.
    #[must_use]
    pub fn lost(&self) -> u64 {
        u64::from(self.sent).saturating_sub(self.counted.received)
    }

    /// The sending rate; a packet has `overhead_bytes` besides its payload.
    #[must_use]
    pub fn sent_bits_per_s(&self, overhead_bytes: u32) -> f64 {
        let bits = f64::from(self.sent) * f64::from(self.payload_bytes + overhead_bytes) * 8.0;
        bits / (self.duration_ns.max(1) as f64 / 1e9)
    }

    /// Whether a host dropped packets during the trial, so that its losses are not those of the path.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.counted.drops.total() > 0 || self.sender_drops.total() > 0 || self.refused > 0
    }
}
