//! The frames of a capture: IP and UDP headers, rebuilt around a packet.
//!
//! A socket never sees the headers of its packets, so they are rebuilt: with the true addresses and
//! source port, and otherwise as a RoCEv2 sender without options would write them. The UDP
//! destination port is always that of RoCEv2 (4791), in both directions, so that Wireshark decodes
//! the packet; the true one is lost. The last 4 bytes, the packet's trailer, are replaced by the
//! invariant CRC of these headers, whatever seal of that length the two ends really use. Packets that
//! are not RoCEv2 packets keep their port and all their bytes.

use std::net::{IpAddr, SocketAddr};

use lacuna_wire::{ICRC_BYTES, icrc_ipv4, icrc_ipv6};

/// RoCEv2 (InfiniBand Architecture, annex A17).
pub(super) const ROCE_PORT: u16 = 4791;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;

/// A base transport header and an ICRC; a shorter packet has no trailer.
const SHORTEST_ROCE_BYTES: usize = 12 + ICRC_BYTES;

const PROTOCOL_UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// How the UDP destination port and the trailer appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// As those of RoCEv2.
    Roce,
    /// As they are.
    Plain,
}

/// Source and destination of packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) congestion_experienced: bool,
}

impl Flow {
    /// Overwrites `frame` with headers, the packet that `fill` appends, and its trailer.
    pub(super) fn frame(
        &self,
        framing: Framing,
        frame: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        frame.clear();
        let (source, destination) = same_family(self.source.ip(), self.destination.ip());
        let udp_start = match source {
            IpAddr::V4(_) => IPV4_BYTES,
            IpAddr::V6(_) => IPV6_BYTES,
        };
        let packet_start = udp_start + UDP_BYTES;
        frame.resize(packet_start, 0);
        fill(frame);
        // The length field of IP has 16 bits; the datapath inside may not check that.
        frame.truncate(usize::from(u16::MAX));

        let udp_bytes = frame.len() - udp_start;
        let udp = &mut frame[udp_start..];
        put_u16(udp, 0, self.source.port());
        let destination_port = match framing {
            Framing::Roce => ROCE_PORT,
            Framing::Plain => self.destination.port(),
        };
        put_u16(udp, 2, destination_port);
        put_u16(udp, 4, udp_bytes as u16);
        let pseudo_header = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                self.put_ipv4(frame, source.octets(), destination.octets())
            }
            (source, destination) => {
                self.put_ipv6(frame, v6_octets(source), v6_octets(destination))
            }
        };
        if framing == Framing::Roce && frame.len() >= packet_start + SHORTEST_ROCE_BYTES {
            put_icrc(frame, udp_start);
        }
        let length = udp_bytes as u32 + u32::from(PROTOCOL_UDP);
        let checksum = match fold(sum(&frame[udp_start..]) + pseudo_header + u64::from(length)) {
            // 0 means that there is no checksum (RFC 768).
            0xffff => 0xffff,
            sum => !sum,
        };
        put_u16(&mut frame[udp_start..], 6, checksum);
    }

    /// Writes the header and returns the sum of the addresses, for the pseudo-header.
    fn put_ipv4(&self, frame: &mut [u8], source: [u8; 4], destination: [u8; 4]) -> u64 {
        /// Don't fragment.
        const FLAGS: u16 = 0x4000;
        let bytes = frame.len() as u16;
        let ip = &mut frame[..IPV4_BYTES];
        ip[0] = 0x45; // version 4, 5 words of header
        ip[1] = self.ecn();
        put_u16(ip, 2, bytes);
        put_u16(ip, 6, FLAGS);
        ip[8] = HOP_LIMIT;
        ip[9] = PROTOCOL_UDP;
        ip[12..16].copy_from_slice(&source);
        ip[16..20].copy_from_slice(&destination);
        let checksum = !fold(sum(ip));
        put_u16(ip, 10, checksum);
        sum(&ip[12..])
    }

    /// Writes the header and returns the sum of the addresses, for the pseudo-header.
    fn put_ipv6(&self, frame: &mut [u8], source: [u8; 16], destination: [u8; 16]) -> u64 {
        let bytes = (frame.len() - IPV6_BYTES) as u16;
        let ip = &mut frame[..IPV6_BYTES];
        ip[0] = 0x60; // version 6
        ip[1] = self.ecn() << 4;
        put_u16(ip, 4, bytes);
        ip[6] = PROTOCOL_UDP;
        ip[7] = HOP_LIMIT;
        ip[8..24].copy_from_slice(&source);
        ip[24..40].copy_from_slice(&destination);
        sum(&ip[8..])
    }

    /// The low bits of the traffic class (RFC 3168).
    fn ecn(&self) -> u8 {
        if self.congestion_experienced { 0b11 } else { 0 }
    }
}

/// Both addresses in one family. An end bound to "any" of the other family appears as "any".
fn same_family(source: IpAddr, destination: IpAddr) -> (IpAddr, IpAddr) {
    match (source, destination) {
        (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => (source, destination),
        (IpAddr::V6(v6), IpAddr::V4(_)) if v6.is_unspecified() => ([0; 4].into(), destination),
        (IpAddr::V4(_), IpAddr::V6(v6)) if v6.is_unspecified() => (source, [0; 4].into()),
        _ => (v6_octets(source).into(), v6_octets(destination).into()),
    }
}

fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn put_icrc(frame: &mut [u8], udp_start: usize) {
    let packet_start = udp_start + UDP_BYTES;
    let trailer_start = frame.len() - ICRC_BYTES;
    let udp: &[u8; UDP_BYTES] = frame[udp_start..].first_chunk().expect("the header is there");
    let covered = [&frame[packet_start..trailer_start]];
    let icrc = if udp_start == IPV4_BYTES {
        icrc_ipv4(frame.first_chunk().expect("the header is there"), udp, &covered)
    } else {
        icrc_ipv6(frame.first_chunk().expect("the header is there"), udp, &covered)
    };
    frame[trailer_start..].copy_from_slice(&icrc);
}

fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The sum of the 16-bit words (RFC 1071), carries not folded.
fn sum(bytes: &[u8]) -> u64 {
    let (words, odd) = bytes.as_chunks::<2>();
    let last = odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>() + last
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
