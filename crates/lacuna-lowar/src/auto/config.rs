//! What a strength is chosen for: settings, and what was measured of the flow.

/// Settings of the choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoConfig {
    /// Most repairs that are asked for, in repairs for a hundred packets.
    pub percent_max: u16,
    /// Most repairs of a block: as many coding units are in use at both ends.
    pub repairs_max: u16,
    /// Whether the peer's short blocks have only their share of repairs.
    pub caps_short_blocks: bool,
}

impl Default for AutoConfig {
    /// A duplicate of every other packet, and 32 units.
    fn default() -> Self {
        Self { percent_max: 50, repairs_max: 32, caps_short_blocks: false }
    }
}

/// What a choice is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Circumstances {
    /// Time of a packet on the link.
    pub(super) packet_ns: u64,
    pub(super) rtt_ns: u64,
    pub(super) packet_bytes: u32,
    pub(super) message_packets: u64,
}

impl Circumstances {
    /// Whether the others are about the same.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let near = |a: u64, b: u64| a.abs_diff(b) <= a.max(b) / 16;
        near(self.packet_ns, other.packet_ns)
            && near(self.rtt_ns, other.rtt_ns)
            && self.packet_bytes == other.packet_bytes
            && near(self.message_packets, other.message_packets)
    }
}
