//! The invariant CRC of RoCEv2: the trailer that RDMA NICs compute and expect.
//!
//! It is the CRC-32 of Ethernet over all bytes that no router may change: eight bytes of ones in
//! place of InfiniBand's local route header, then the IP and UDP headers, then the packet from the
//! BTH to the pad. Fields that routers change count as ones (InfiniBand Architecture Specification,
//! volume 1, annex A17):
//!
//! | header | counted as ones |
//! |---|---|
//! | IPv4 | type of service, time to live, header checksum |
//! | IPv6 | traffic class, flow label, hop limit |
//! | UDP | checksum |
//! | BTH | byte 4: FECN, BECN, six reserved bits |
//!
//! So the sender must know the packet's addresses, ports, lengths (including the ICRC) and, over
//! IPv4, its identification, exactly as they arrive. `flow.rs` computes the ICRC in two parts: the
//! protocol's, and that of whoever knows these.

mod flow;
mod power;

pub use flow::{IcrcFlow, Identification};
pub(crate) use flow::{inner, inner_without_variant};

use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of the ICRC.
pub const ICRC_BYTES: usize = 4;

mod field {
    use std::ops::Range;

    pub(super) mod ipv4 {
        pub(in crate::icrc) const TYPE_OF_SERVICE: usize = 1;
        pub(in crate::icrc) const TIME_TO_LIVE: usize = 8;
        pub(in crate::icrc) const CHECKSUM: std::ops::Range<usize> = 10..12;
    }

    pub(super) mod ipv6 {
        pub(in crate::icrc) const VERSION_AND_CLASS: usize = 0;
        pub(in crate::icrc) const CLASS_AND_FLOW: std::ops::Range<usize> = 1..4;
        pub(in crate::icrc) const HOP_LIMIT: usize = 7;
    }

    pub(super) const UDP_CHECKSUM: Range<usize> = 6..8;
    /// Offset of FECN, BECN and reserved bits in the BTH.
    pub(super) const BTH_VARIANT: usize = 4;
}

/// Ones in place of the local route header, which RoCE does not have.
const ROUTE_HEADER_BYTES: usize = 8;
/// The longest prefix with masked bytes: route header, IPv6, UDP, BTH up to its variant byte.
const MASKED_BYTES_MAX: usize = ROUTE_HEADER_BYTES + 40 + 8 + field::BTH_VARIANT + 1;

/// The ICRC of an IPv4 packet. `ip` and `udp` are the headers as sent, without IP options;
/// `pieces` are the bytes from the BTH to the pad, in order.
#[must_use]
pub fn icrc_ipv4(ip: &[u8; 20], udp: &[u8; 8], pieces: &[&[u8]]) -> [u8; ICRC_BYTES] {
    icrc(&mask_ipv4(*ip), udp, pieces)
}

/// The ICRC of an IPv6 packet. `ip` and `udp` are the headers as sent, without extension headers;
/// `pieces` are the bytes from the BTH to the pad, in order.
#[must_use]
pub fn icrc_ipv6(ip: &[u8; 40], udp: &[u8; 8], pieces: &[&[u8]]) -> [u8; ICRC_BYTES] {
    icrc(&mask_ipv6(*ip), udp, pieces)
}

/// The header with ones for what routers change.
fn mask_ipv4(mut ip: [u8; 20]) -> [u8; 20] {
    ip[field::ipv4::TYPE_OF_SERVICE] = 0xff;
    ip[field::ipv4::TIME_TO_LIVE] = 0xff;
    ip[field::ipv4::CHECKSUM].fill(0xff);
    ip
}

/// The same of IPv6.
fn mask_ipv6(mut ip: [u8; 40]) -> [u8; 40] {
    ip[field::ipv6::VERSION_AND_CLASS] |= 0x0f;
    ip[field::ipv6::CLASS_AND_FLOW].fill(0xff);
    ip[field::ipv6::HOP_LIMIT] = 0xff;
    ip
}

fn icrc(masked_ip: &[u8], udp: &[u8; 8], pieces: &[&[u8]]) -> [u8; ICRC_BYTES] {
    // Collect the masked prefix in one buffer: short updates of the CRC are slow.
    let mut masked = [0xff; MASKED_BYTES_MAX];
    let mut end = ROUTE_HEADER_BYTES;
    let mut append = |bytes: &[u8]| {
        masked[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    };
    append(masked_ip);
    append(&udp[..field::UDP_CHECKSUM.start]);
    append(&[0xff; 2]);
    // Count bytes to the variant byte, because any piece may hold it.
    let mut until_variant = field::BTH_VARIANT;
    let mut rest = pieces.iter().copied();
    let mut behind_variant: &[u8] = &[];
    for piece in rest.by_ref() {
        if let Some((before, behind)) = piece.split_at_checked(until_variant + 1) {
            append(&before[..until_variant]);
            append(&[0xff]);
            behind_variant = behind;
            break;
        }
        append(piece);
        until_variant -= piece.len();
    }

    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    digest.update(&masked[..end]);
    digest.update(behind_variant);
    for piece in rest {
        digest.update(piece);
    }
    // A 32-bit algorithm leaves the upper half of the result zero.
    (digest.finalize() as u32).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_the_packet_elsewhere_changes_nothing() {
        let bytes: Vec<u8> = (0..60).collect();
        let whole = icrc_ipv4(&[0x45; 20], &[7; 8], &[&bytes]);
        for cut in 0..=bytes.len() {
            let (head, tail) = bytes.split_at(cut);
            assert_eq!(icrc_ipv4(&[0x45; 20], &[7; 8], &[head, &[], tail]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn exactly_the_variant_bits_are_exempt() {
        let (ip4, ip6, udp, bth) = ([0; 20], [0; 40], [0; 8], [0; 12]);
        let base4 = icrc_ipv4(&ip4, &udp, &[&bth]);
        let base6 = icrc_ipv6(&ip6, &udp, &[&bth]);
        for bit in 0..20 * 8 {
            let exempt = matches!(bit / 8, 1 | 8 | 10 | 11);
            assert_eq!(icrc_ipv4(&flip(ip4, bit), &udp, &[&bth]) == base4, exempt, "IPv4 {bit}");
        }
        for bit in 0..40 * 8 {
            let exempt = (4..32).contains(&bit) || bit / 8 == 7;
            assert_eq!(icrc_ipv6(&flip(ip6, bit), &udp, &[&bth]) == base6, exempt, "IPv6 {bit}");
        }
        for bit in 0..8 * 8 {
            let exempt = bit / 8 >= 6;
            assert_eq!(icrc_ipv4(&ip4, &flip(udp, bit), &[&bth]) == base4, exempt, "UDP {bit}");
        }
        for bit in 0..12 * 8 {
            let exempt = bit / 8 == 4;
            assert_eq!(icrc_ipv4(&ip4, &udp, &[&flip(bth, bit)]) == base4, exempt, "BTH {bit}");
        }
    }

    #[test]
    fn less_than_a_base_header_is_no_reason_to_panic() {
        for length in 0..12 {
            let bytes = vec![0; length];
            let (head, tail) = bytes.split_at(length / 2);
            assert_eq!(
                icrc_ipv6(&[0; 40], &[0; 8], &[head, tail]),
                icrc_ipv6(&[0; 40], &[0; 8], &[&bytes])
            );
        }
    }

    /// Bit 0 is the most significant bit of the first byte, as in header diagrams.
    fn flip<const N: usize>(mut bytes: [u8; N], bit: usize) -> [u8; N] {
        bytes[bit / 8] ^= 0x80 >> (bit % 8);
        bytes
    }
}
