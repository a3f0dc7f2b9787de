//! How far repairs may leave behind their block.
//!
//! Algorithm 1 of LoWAR sends a block's repairs right behind it. Here they may wait until a bundle of packets of
//! the same message is full: hosts give their kernel many packets of one length at a time, and a repair, which
//! is longer, would cut each bundle at each block. That costs a third more processor time. So a receiver does
//! not take a block's repairs for lost before so many packets behind it have come.

/// Most packets of a bundle.
pub const BUNDLE_PACKETS_MAX: usize = 64;
/// Most bytes of a bundle: a datagram's.
const BUNDLE_BYTES_MAX: usize = 65_507;

/// Packets of this length, or of this payload, that repairs may wait for.
#[must_use]
pub fn bundle_packets(packet_bytes: usize) -> usize {
    (BUNDLE_BYTES_MAX / packet_bytes.max(1)).clamp(1, BUNDLE_PACKETS_MAX)
}
