//! The ICRC of packets between two addresses, from the CRC-32 of the packet's own bytes.
//!
//! The protocol cannot compute an ICRC: it does not know the IP and UDP headers. But a CRC is linear:
//!
//! ```text
//! ICRC = CRC-32 of BTH … pad  ^  outer(addresses, ports, length, identification)
//! ```
//!
//! So the protocol writes the first part, the *inner* sum, while it copies the payload, and the
//! datapath adds the second, which costs no second pass. Damage between the two stays visible.
//!
//! **Identification.** Over IPv4 the ICRC covers the identification, which a receiving UDP socket
//! does not see. A sender of Lacuna has "don't fragment" set and an unconnected socket: Linux sends
//! identification 0, and numbers the segments of one bundle (`UDP_SEGMENT`) 0, 1, 2 …. The
//! receiver may get any of them first, after losses or because another host has cut the bundle. But
//! an identification that fits need not be searched: the difference between the ICRC that came and
//! the one for identification 0, divided by the right power of x, *is* the identification. It is
//! accepted if a bundle of such packets has so many: 65,507 bytes over their length, 64 at most. So
//! of damaged packets one in 2^32 passes over IPv6, and over IPv4 one in 2^32 times that number:
//! 15 packets of 4 KiB, 44 of 1,436 bytes. The UDP checksum is beside it.
//!
//! A card or another kernel numbers its packets as it likes. Of its ICRC over IPv4 half remains as a
//! check ([`Identification::Any`]): one in 2^16 differences is one that an identification explains.

use core::net::{IpAddr, SocketAddr};

use crc_fast::{CrcAlgorithm, checksum};

use super::{ICRC_BYTES, MASKED_BYTES_MAX, field, mask_ipv4, mask_ipv6, power};
use crate::PacketError;
use crate::bth;

/// Bytes of a UDP header.
const UDP_BYTES: usize = 8;
/// Bytes that the ICRC covers before the packet: route header, IP, UDP.
const PREFIX_BYTES_MAX: usize = MASKED_BYTES_MAX - field::BTH_VARIANT - 1;
/// Bytes from the IPv4 identification's first to the packet: it is at 4 of 20, and UDP follows.
const IDENTIFICATION_TO_PACKET: usize = 16 + UDP_BYTES;
/// The variant byte of the BTH counts as ones, and is sent as zero. Its effect at the packet's
/// start, so that it moves with the rest of the prefix.
const VARIANT_ONES: u32 = power::multiply(0xff, power::back(field::BTH_VARIANT));

/// Most packets of a bundle (`lacuna_burst::BUNDLE_PACKETS_MAX`), and most bytes of one.
const BUNDLE_PACKETS_MAX: usize = 64;
const BUNDLE_BYTES_MAX: usize = 65_507;

/// Lengths whose constants are kept: full packets, and the last ones of messages.
const LENGTHS: usize = 4;

const PROTOCOL_UDP: u8 = 17;
/// Don't fragment.
const FLAGS: [u8; 2] = [0x40, 0];

/// The CRC-32 of a packet's own bytes, from the BTH to the pad.
pub(crate) fn inner(covered: &[u8]) -> u32 {
    // A 32-bit algorithm leaves the upper half of the result zero.
    checksum(CrcAlgorithm::Crc32IsoHdlc, covered) as u32
}

/// The same as if the byte that routers may change were zero, as [`IcrcFlow`] takes it: notifications and
/// repairs have something there.
pub(crate) fn inner_without_variant(covered: &[u8]) -> u32 {
    let sum = inner(covered);
    match covered.get(field::BTH_VARIANT) {
        None | Some(0) => sum,
        Some(variant) => {
            let to_end = power::past(covered.len() - field::BTH_VARIANT);
            sum ^ power::multiply((*variant).into(), to_end)
        }
    }
}

/// Which identifications of IPv4 a check accepts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Identification {
    /// Those of a bundle, as senders of Lacuna number their packets.
    #[default]
    OfBundle,
    /// Any: cards and kernels number as they like, and a UDP socket does not see it. Of damaged packets
    /// one in 2^16 passes then; over IPv6 nothing changes.
    Any,
}

/// ICRCs of packets from one address to another; see the module's text.
#[derive(Clone, Debug)]
pub struct IcrcFlow {
    source: SocketAddr,
    destination: SocketAddr,
    /// Masked headers, with lengths of zero.
    prefix: [u8; PREFIX_BYTES_MAX],
    lengths: [Length; LENGTHS],
}

/// Constants of packets of one length.
#[derive(Clone, Copy, Debug, Default)]
struct Length {
    packet_bytes: usize,
    /// What the headers add, with identification 0.
    outer: u32,
    /// From the bits of an identification to its effect, and back.
    up: u32,
    down: u32,
}

impl IcrcFlow {
    /// For packets with these addresses in their headers; IPv4-mapped ones count as IPv4. `None` if
    /// the families differ.
    #[must_use]
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Option<Self> {
        let mut prefix = [0xff; PREFIX_BYTES_MAX];
        let ip = &mut prefix[super::ROUTE_HEADER_BYTES..];
        let udp_at = match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = [0; 20];
                header[0] = 0x45; // version 4, 5 words
                header[6..8].copy_from_slice(&FLAGS);
                header[9] = PROTOCOL_UDP;
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                ip[..20].copy_from_slice(&mask_ipv4(header));
                20
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = [0; 40];
                header[0] = 0x60; // version 6
                header[6] = PROTOCOL_UDP;
                header[8..24].copy_from_slice(&source.octets());
                header[24..40].copy_from_slice(&destination.octets());
                ip[..40].copy_from_slice(&mask_ipv6(header));
                40
            }
            _ => return None,
        };
        let udp = &mut ip[udp_at..][..UDP_BYTES];
        udp[0..2].copy_from_slice(&source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&destination.port().to_be_bytes());
        Some(Self { source, destination, prefix, lengths: [Length::default(); LENGTHS] })
    }

    /// Whether it is for packets between these two.
    #[inline]
    #[must_use]
    pub fn is(&self, source: SocketAddr, destination: SocketAddr) -> bool {
        self.source == source && self.destination == destination
    }

    /// Turns the inner sum that a protocol wrote into the ICRC of a packet of `packet_bytes`, trailer
    /// included. IPv6 has no identification.
    #[must_use]
    pub fn seal(
        &mut self,
        inner: [u8; ICRC_BYTES],
        packet_bytes: usize,
        identification: u16,
    ) -> [u8; ICRC_BYTES] {
        let is_v4 = self.is_v4();
        let length = self.length(packet_bytes);
        let mut outer = length.outer;
        if is_v4 && identification != 0 {
            outer ^= power::multiply(identification.swap_bytes().into(), length.up);
        }
        (u32::from_le_bytes(inner) ^ outer).to_le_bytes()
    }

    /// Checks the ICRC of a packet, from the BTH on.
    ///
    /// # Errors
    /// When it does not match, or the packet is shorter than a BTH and a trailer.
    pub fn check(&mut self, packet: &[u8]) -> Result<(), PacketError> {
        self.check_with(packet, Identification::OfBundle)
    }

    /// The same of a sender that numbers its packets so.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_with(
        &mut self,
        packet: &[u8],
        accepted: Identification,
    ) -> Result<(), PacketError> {
        let needed = bth::BYTES + ICRC_BYTES;
        let (Some((covered, trailer)), true) =
            (packet.split_last_chunk::<ICRC_BYTES>(), packet.len() >= needed)
        else {
            return Err(PacketError::TooShort { needed, found: packet.len() });
        };
        let is_v4 = self.is_v4();
        let length = self.length(packet.len());
        // A switch may have set congestion bits there, which do not count.
        let expected = inner_without_variant(covered) ^ length.outer;
        let found = u32::from_le_bytes(*trailer);
        if expected == found {
            return Ok(());
        }
        let identification = power::multiply(expected ^ found, length.down);
        match u16::try_from(identification) {
            Ok(_) if is_v4 && accepted == Identification::Any => Ok(()),
            Ok(swapped) if is_v4 && swapped.swap_bytes() < identifications(packet.len()) => Ok(()),
            _ => Err(PacketError::Trailer { expected, found }),
        }
    }

    fn is_v4(&self) -> bool {
        self.source.ip().to_canonical().is_ipv4()
    }

    /// The constants of a length, kept or computed.
    #[inline]
    fn length(&mut self, packet_bytes: usize) -> Length {
        let at = packet_bytes / 4 % LENGTHS;
        if self.lengths[at].packet_bytes != packet_bytes {
            self.lengths[at] = self.compute(packet_bytes);
        }
        self.lengths[at]
    }

    #[cold]
    fn compute(&self, packet_bytes: usize) -> Length {
        let mut prefix = self.prefix;
        let ip = &mut prefix[super::ROUTE_HEADER_BYTES..];
        let is_v4 = self.is_v4();
        // No UDP packet is longer than 16 bits tell; the datapath refuses others.
        let udp_bytes = ((UDP_BYTES + packet_bytes) as u16).to_be_bytes();
        let udp_at = if is_v4 {
            ip[2..4].copy_from_slice(&((20 + UDP_BYTES + packet_bytes) as u16).to_be_bytes());
            20
        } else {
            ip[4..6].copy_from_slice(&udp_bytes);
            40
        };
        ip[udp_at + 4..udp_at + 6].copy_from_slice(&udp_bytes);
        let end = super::ROUTE_HEADER_BYTES + udp_at + UDP_BYTES;
        let covered_bytes = packet_bytes.saturating_sub(ICRC_BYTES);
        // The inner sum counts from the register's first value as well, so what is left of the
        // prefix is its difference to that: its own checksum, inverted twice.
        let at_packet = inner(&prefix[..end]) ^ VARIANT_ONES;
        Length {
            packet_bytes,
            outer: power::multiply(at_packet, power::past(covered_bytes)),
            up: power::past(covered_bytes + IDENTIFICATION_TO_PACKET),
            down: power::back(covered_bytes + IDENTIFICATION_TO_PACKET),
        }
    }
}

/// How many identifications a sender gives to packets of this length.
fn identifications(packet_bytes: usize) -> u16 {
    (BUNDLE_BYTES_MAX / packet_bytes.max(1)).clamp(1, BUNDLE_PACKETS_MAX) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{icrc_ipv4, icrc_ipv6};

    const V4: (&str, &str) = ("192.0.2.1:49152", "198.51.100.7:4791");
    const V6: (&str, &str) = ("[2001:db8::1]:49152", "[2001:db8:ffff::7]:4791");

    fn flow((source, destination): (&str, &str)) -> IcrcFlow {
        IcrcFlow::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap()
    }

    /// A packet with room for its trailer.
    fn packet(bytes: usize) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..bytes).map(|i| ((i * 7) >> 2) as u8).collect();
        packet[field::BTH_VARIANT] = 0;
        packet
    }

    /// The ICRC by the definition, from whole headers.
    fn by_definition(flow: &IcrcFlow, packet: &[u8], identification: u16) -> [u8; 4] {
        let covered = &packet[..packet.len() - ICRC_BYTES];
        let mut udp = [0; 8];
        udp[0..2].copy_from_slice(&flow.source.port().to_be_bytes());
        udp[2..4].copy_from_slice(&flow.destination.port().to_be_bytes());
        udp[4..6].copy_from_slice(&(8 + packet.len() as u16).to_be_bytes());
        match (flow.source.ip(), flow.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut ip = [0; 20];
                (ip[0], ip[8], ip[9]) = (0x45, 64, 17);
                ip[2..4].copy_from_slice(&(28 + packet.len() as u16).to_be_bytes());
                ip[4..6].copy_from_slice(&identification.to_be_bytes());
                ip[6] = 0x40;
                ip[12..16].copy_from_slice(&source.octets());
                ip[16..20].copy_from_slice(&destination.octets());
                icrc_ipv4(&ip, &udp, &[covered])
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut ip = [0; 40];
                (ip[0], ip[6], ip[7]) = (0x60, 17, 64);
                ip[4..6].copy_from_slice(&(8 + packet.len() as u16).to_be_bytes());
                ip[8..24].copy_from_slice(&source.octets());
                ip[24..40].copy_from_slice(&destination.octets());
                icrc_ipv6(&ip, &udp, &[covered])
            }
            _ => unreachable!(),
        }
    }

    fn sealed(flow: &mut IcrcFlow, mut packet: Vec<u8>, identification: u16) -> Vec<u8> {
        let end = packet.len() - ICRC_BYTES;
        let inner = inner(&packet[..end]).to_le_bytes();
        let icrc = flow.seal(inner, packet.len(), identification);
        packet[end..].copy_from_slice(&icrc);
        packet
    }

    #[test]
    fn inner_and_outer_part_make_the_icrc() {
        for ends in [V4, V6] {
            let mut flow = flow(ends);
            for bytes in [16, 20, 36, 40, 1472, 4132, 36, 65_507] {
                for identification in [0, 1, 2, 63, 255, 256, 0x1234, 0xffff] {
                    let packet = sealed(&mut flow, packet(bytes), identification);
                    let expected = by_definition(&flow, &packet, identification);
                    assert_eq!(packet[bytes - 4..], expected, "{bytes}, {identification}");
                }
            }
        }
    }

    #[test]
    fn exactly_the_identifications_of_a_bundle_are_accepted() {
        let mut flow = flow(V4);
        for (bytes, count) in [(36, 64), (1472, 44), (4132, 15), (40_000, 1)] {
            for identification in 0..=u16::MAX {
                let packet = sealed(&mut flow, packet(bytes), identification);
                assert_eq!(flow.check(&packet).is_ok(), identification < count, "{bytes}");
            }
        }
    }

    #[test]
    fn any_identification_of_a_foreign_sender_is_accepted_and_little_else() {
        let mut flow = flow(V4);
        for identification in 0..=u16::MAX {
            let packet = sealed(&mut flow, packet(100), identification);
            assert_eq!(flow.check_with(&packet, Identification::Any), Ok(()));
        }
        let packet = sealed(&mut flow, packet(100), 0x1234);
        for bit in (0..packet.len() * 8).filter(|bit| bit / 8 != field::BTH_VARIANT) {
            let mut flipped = packet.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(flow.check_with(&flipped, Identification::Any).is_err(), "{bit}");
        }
    }

    #[test]
    fn bits_that_flip_are_noticed_except_where_switches_may_set_them() {
        for ends in [V4, V6] {
            let mut flow = flow(ends);
            let packet = sealed(&mut flow, packet(100), 3 * u16::from(ends == V4));
            for bit in 0..packet.len() * 8 {
                let mut flipped = packet.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(flow.check(&flipped).is_ok(), bit / 8 == field::BTH_VARIANT, "{bit}");
            }
        }
    }

    #[test]
    fn other_addresses_or_ports_are_noticed() {
        let packet = sealed(&mut flow(V4), packet(1472), 0);
        for other in [
            ("192.0.2.2:49152", V4.1),
            ("192.0.2.1:49153", V4.1),
            (V4.0, "198.51.100.8:4791"),
            (V4.0, "198.51.100.7:4792"),
            (V4.1, V4.0),
        ] {
            assert!(flow(other).check(&packet).is_err(), "{other:?}");
        }
        let mapped = ("[::ffff:192.0.2.1]:49152", "[::ffff:198.51.100.7]:4791");
        assert_eq!(flow(mapped).check(&packet), Ok(()));
        assert!(IcrcFlow::new(V4.0.parse().unwrap(), V6.1.parse().unwrap()).is_none());
    }

    #[test]
    fn less_than_a_packet_is_no_reason_to_panic() {
        let mut flow = flow(V6);
        for bytes in 0..16 {
            assert_eq!(
                flow.check(&vec![0; bytes]),
                Err(PacketError::TooShort { needed: 16, found: bytes })
            );
        }
    }
}
