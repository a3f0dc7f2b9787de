//! Packet sequence numbers: 24 bits on the wire, 64 bits in the protocol.
//!
//! Each transmission on a channel gets a new number, retransmissions too, so a number identifies
//! one transmission for ever. The wire carries the low 24 bits (InfiniBand's PSN). [`unwrap`] finds
//! the full number nearest to a known one, which is right while fewer than 2^23 packets are in
//! flight.

/// Bits on the wire.
pub const BITS: u32 = 24;
const MASK: u64 = crate::PSN_MASK as u64;

/// The low bits, for the wire.
#[inline]
pub fn wrap(psn: u64) -> u32 {
    (psn & MASK) as u32
}

/// The number with low bits `wire` that is nearest to `near`.
#[inline]
pub fn unwrap(wire: u32, near: u64) -> u64 {
    let ahead = u64::from(wire).wrapping_sub(near) & MASK;
    if ahead < 1 << (BITS - 1) {
        near + ahead
    } else {
        // An earlier number; if that would be negative, take the later one.
        near.checked_sub((1 << BITS) - ahead).unwrap_or(near + ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn unwrap_inverts_wrap_within_half_the_space(
            near in (1u64 << 24)..1 << 40,
            distance in -(1i64 << 23)..(1i64 << 23),
        ) {
            let psn = near.wrapping_add_signed(distance);
            prop_assert_eq!(unwrap(wrap(psn), near), psn);
        }
    }
}
