//! Frames of a TUN or TAP device: a packet, or a bundle of some fifty (a GSO super-packet), and cutting
//! bundles. Frames of a TAP device have an Ethernet header ([`ethernet`]) before the IP packet.
//!
//! The kernel passes TCP and UDP data as to a network card with segmentation offload: one set of
//! headers, a long payload, and the size of a segment. Cutting a bundle into single packets would cost
//! what bundles save. So a path cuts only around packets that it loses, marks or corrupts. A part of a
//! bundle is a bundle itself, with the headers that its packets would have:
//!
//! * IP: total length; identification counted from that of the first packet (as the kernel does); IPv4
//!   header checksum.
//! * TCP: sequence number; FIN and PSH only on the last packet, CWR only on the first (RFC 3168).
//! * UDP: length.
//! * The transport checksum is left to the receiving kernel, as in the bundle: the field holds the sum
//!   over the pseudo-header, whose length changes.
//!
//! Programs choose the contents of frames, so nothing here trusts them: an inconsistent frame is
//! [`Malformed`].

mod checksum;
pub mod ethernet;
mod vnet;

use std::net::IpAddr;
use std::ops::Range;

use vnet::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4, Vnet};

pub use vnet::VNET_BYTES;

/// The longest frame: the longest IPv4 packet behind its headers. (An IPv6 packet may have 40 bytes
/// more; the kernel's bundles stay below 64 KiB in either case.)
pub const FRAME_BYTES_MAX: usize = VNET_BYTES + ethernet::HEADER_BYTES + 65_535 + 40;

/// The longest headers of a bundle that is cut: 40 bytes of IPv6, 60 of TCP and room for extension
/// headers (a judgement; the kernel's own are 40 to 100 bytes).
const HEADERS_BYTES_MAX: usize = 256;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const TCP_BYTES: usize = 20;

const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than its headers.
    #[error("a frame of {frame_bytes} bytes is too short")]
    Short {
        /// Its length.
        frame_bytes: usize,
    },
    /// Neither IPv4 nor IPv6.
    #[error("IP version {version}")]
    Version {
        /// The version field.
        version: u8,
    },
    /// A bundle of a kind that was not asked for, or whose fields contradict each other.
    #[error("a bundle of kind {gso_type} with packets of {gso_size} bytes that cannot be cut")]
    Bundle {
        /// Its kind.
        gso_type: u8,
        /// Payload of each packet.
        gso_size: u16,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ip {
    V4,
    V6,
    /// A frame of Ethernet with something else, such as ARP.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Tcp,
    Udp,
}

/// The parsed headers of a frame. Offsets count from the IP packet, after the [`VNET_BYTES`] and the link's
/// header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bundle {
    /// Bytes of the link's header.
    link_bytes: u8,
    ip: Ip,
    /// `None` for a single packet of any protocol, which cannot be cut.
    transport: Option<Transport>,
    /// Offset of the transport header; 0 for a single packet.
    transport_at: usize,
    /// Headers of each packet; 0 for a single packet.
    header_bytes: u32,
    /// Bytes after the headers.
    payload_bytes: u32,
    /// Payload of each packet but the last; more than 0 unless the payload is empty.
    segment_bytes: u32,
    /// At least 1.
    packets: u32,
}

impl Bundle {
    /// Parses the headers of a TUN device's frame.
    ///
    /// # Errors
    ///
    /// When the frame is too short or its headers are inconsistent.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        Self::parse_behind(frame, 0)
    }

    /// Parses the headers of a TAP device's frame. What is no IP packet is a single one of some protocol.
    ///
    /// # Errors
    ///
    /// When the frame is too short or its headers are inconsistent.
    pub fn parse_ethernet(frame: &[u8]) -> Result<Self, Malformed> {
        let short = Malformed::Short { frame_bytes: frame.len() };
        let Some((vnet, link)) = frame.split_first_chunk::<VNET_BYTES>() else {
            return Err(short);
        };
        let header = ethernet::Header::parse(link).ok_or(short)?;
        if header.has_ip() {
            return Self::parse_behind(frame, ethernet::HEADER_BYTES);
        }
        let vnet = Vnet::parse(vnet);
        if vnet.gso_type != GSO_NONE {
            let Vnet { gso_type, gso_size, .. } = vnet;
            return Err(Malformed::Bundle { gso_type, gso_size });
        }
        Ok(Self::single(Ip::Other, ethernet::HEADER_BYTES, link.len() - ethernet::HEADER_BYTES))
    }

    /// A packet that cannot be cut.
    fn single(ip: Ip, link_bytes: usize, bytes: usize) -> Self {
        Self {
            link_bytes: link_bytes as u8,
            ip,
            transport: None,
            transport_at: 0,
            header_bytes: 0,
            payload_bytes: bytes as u32,
            segment_bytes: bytes as u32,
            packets: 1,
        }
    }

    fn parse_behind(frame: &[u8], link_bytes: usize) -> Result<Self, Malformed> {
        let short = Malformed::Short { frame_bytes: frame.len() };
        let Some((vnet, behind)) = frame.split_first_chunk::<VNET_BYTES>() else {
            return Err(short);
        };
        let vnet = Vnet::parse(vnet);
        let packet = behind.get(link_bytes..).unwrap_or_default();
        let (ip, ip_bytes) = match packet.first().map(|byte| byte >> 4) {
            Some(4) => (Ip::V4, usize::from(packet[0] & 0xf) * 4),
            Some(6) => (Ip::V6, IPV6_BYTES),
            Some(version) => return Err(Malformed::Version { version }),
            None => return Err(short),
        };
        if ip_bytes < IPV4_BYTES || packet.len() < ip_bytes {
            return Err(short);
        }
        let bundle = Malformed::Bundle { gso_type: vnet.gso_type, gso_size: vnet.gso_size };
        let transport = match (vnet.gso_type & !GSO_ECN, ip) {
            (GSO_NONE, _) => return Ok(Self::single(ip, link_bytes, packet.len())),
            (GSO_TCPV4, Ip::V4) | (GSO_TCPV6, Ip::V6) => Transport::Tcp,
            (GSO_UDP_L4, _) => Transport::Udp,
            _ => return Err(bundle),
        };
        let Some(at) = usize::from(vnet.csum_start).checked_sub(link_bytes) else {
            return Err(bundle);
        };
        let headers = match transport {
            Transport::Udp => at + UDP_BYTES,
            Transport::Tcp => match packet.get(at + 12) {
                Some(offset) => at + usize::from(offset >> 4) * 4,
                None => return Err(bundle),
            },
        };
        let least = match transport {
            Transport::Udp => UDP_BYTES,
            Transport::Tcp => TCP_BYTES,
        };
        let makes_sense = vnet.gso_size > 0
            && vnet.needs_checksum()
            && usize::from(vnet.csum_offset) == transport.checksum_at()
            && at >= ip_bytes
            && headers >= at + least
            && headers <= packet.len().min(HEADERS_BYTES_MAX);
        if !makes_sense {
            return Err(bundle);
        }
        let payload_bytes = (packet.len() - headers) as u32;
        Ok(Self {
            link_bytes: link_bytes as u8,
            ip,
            transport: Some(transport),
            transport_at: at,
            header_bytes: headers as u32,
            payload_bytes,
            segment_bytes: u32::from(vnet.gso_size),
            packets: payload_bytes.div_ceil(u32::from(vnet.gso_size)).max(1),
        })
    }

    /// Number of packets on the wire.
    #[must_use]
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Bytes of packet `index`, IP header included.
    #[must_use]
    pub fn packet_bytes(&self, index: u32) -> u32 {
        self.wire_bytes_of(index..index + 1) as u32
    }

    /// Bytes of some packets together, IP headers included.
    #[must_use]
    pub fn wire_bytes_of(&self, packets: Range<u32>) -> u64 {
        let payload = self.payload_of(&packets);
        u64::from(self.header_bytes) * u64::from(packets.end - packets.start)
            + u64::from(payload.end - payload.start)
    }

    /// Bytes of all packets together.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        self.wire_bytes_of(0..self.packets)
    }

    /// Where the packet begins in the frame.
    fn packet_at(&self) -> usize {
        VNET_BYTES + usize::from(self.link_bytes)
    }

    /// Whether the packets are ECN-capable (RFC 3168: ECT), so that a router may mark them.
    #[must_use]
    pub fn is_ecn_capable(&self, frame: &[u8]) -> bool {
        matches!(self.ecn(&frame[self.packet_at()..]), 1 | 2)
    }

    /// Whom the packets are for; `None` if they are no IP packets.
    #[must_use]
    pub fn destination(&self, frame: &[u8]) -> Option<IpAddr> {
        let packet = &frame[self.packet_at()..];
        match self.ip {
            Ip::V4 => Some(IpAddr::from(*packet.get(16..)?.first_chunk::<4>()?)),
            Ip::V6 => Some(IpAddr::from(*packet.get(24..)?.first_chunk::<16>()?)),
            Ip::Other => None,
        }
    }

    /// Whether the packet is for neighbours only: IPv4 224.0.0.0/24 (RFC 5771) and IPv6 ff02::/16
    /// (RFC 4291). A router does not forward it.
    #[must_use]
    pub fn is_link_local_multicast(&self, frame: &[u8]) -> bool {
        let packet = &frame[self.packet_at()..];
        match self.ip {
            Ip::V4 => packet[16..19] == [224, 0, 0],
            Ip::V6 => packet[24..26] == [0xff, 0x02],
            Ip::Other => false,
        }
    }

    /// The frame of some of the packets: new headers, which are written to `header`, and payload from
    /// the frame, uncopied. `is_marked` sets CE. For all packets unmarked, it is the frame itself.
    ///
    /// # Panics
    ///
    /// When the bundle has no such packets, or was not parsed from this frame.
    #[must_use]
    pub fn cut<'a>(
        &self,
        frame: &'a [u8],
        packets: Range<u32>,
        is_marked: bool,
        header: &'a mut PartHeader,
    ) -> [&'a [u8]; 2] {
        assert!(packets.start < packets.end && packets.end <= self.packets, "no such packets");
        let is_whole = packets == (0..self.packets);
        if is_whole && !is_marked {
            return [frame, &[]];
        }
        // For a single packet only the IP header changes.
        let packet_at = self.packet_at();
        let touched = match (self.transport, self.ip) {
            (Some(_), _) => self.header_bytes as usize,
            (None, Ip::V4) => usize::from(frame[packet_at] & 0xf) * 4,
            (None, Ip::V6) => IPV6_BYTES,
            (None, Ip::Other) => 0,
        };
        let bytes = &mut header.bytes[..packet_at + touched];
        bytes.copy_from_slice(&frame[..packet_at + touched]);
        let payload = match self.transport {
            Some(_) => self.payload_of(&packets),
            None => touched as u32..self.payload_bytes,
        };
        if let (Some(transport), false) = (self.transport, is_whole) {
            self.rewrite(bytes, transport, &packets, payload.end - payload.start);
        }
        let ip = &mut bytes[packet_at..];
        if is_marked {
            self.mark(ip);
        }
        if self.ip == Ip::V4 {
            let ip_bytes = usize::from(ip[0] & 0xf) * 4;
            ip[10..12].fill(0);
            let sum = !checksum::sum(&ip[..ip_bytes]);
            ip[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let base = packet_at + self.header_bytes as usize;
        let payload = base + payload.start as usize..base + payload.end as usize;
        [bytes, &frame[payload]]
    }

    /// Writes the frame of one packet to `out`, all checksums complete, with one bit flipped; `bit`
    /// counts from the start of its IP header.
    ///
    /// # Panics
    ///
    /// When there is no such packet or bit.
    pub fn corrupt(&self, frame: &[u8], packet: u32, is_marked: bool, bit: u32, out: &mut Vec<u8>) {
        let mut header = PartHeader::default();
        out.clear();
        for part in self.cut(frame, packet..packet + 1, is_marked, &mut header) {
            out.extend_from_slice(part);
        }
        let Some((vnet_bytes, behind)) = out.split_first_chunk_mut::<VNET_BYTES>() else { return };
        let vnet = Vnet::parse(vnet_bytes);
        let (at, offset) = (usize::from(vnet.csum_start), usize::from(vnet.csum_offset));
        if vnet.needs_checksum() && at + offset + 2 <= behind.len() {
            let sum = match !checksum::sum(&behind[at..]) {
                // In UDP, 0 means that there is no checksum (RFC 768).
                0 => 0xffff,
                sum => sum,
            };
            behind[at + offset..][..2].copy_from_slice(&sum.to_be_bytes());
        }
        Vnet::default().emit(vnet_bytes);
        behind[usize::from(self.link_bytes) + bit as usize / 8] ^= 1 << (bit % 8);
    }

    /// The range of these packets' payload in the bundle's.
    fn payload_of(&self, packets: &Range<u32>) -> Range<u32> {
        let start = (packets.start * self.segment_bytes).min(self.payload_bytes);
        start..packets.end.saturating_mul(self.segment_bytes).min(self.payload_bytes)
    }

    /// Turns the bundle's headers into those of some of its packets.
    fn rewrite(
        &self,
        bytes: &mut [u8],
        transport: Transport,
        packets: &Range<u32>,
        payload_bytes: u32,
    ) {
        let Some((vnet_bytes, behind)) = bytes.split_first_chunk_mut::<VNET_BYTES>() else {
            return;
        };
        let ip = &mut behind[usize::from(self.link_bytes)..];
        let mut vnet = Vnet::parse(vnet_bytes);
        if packets.start > 0 {
            vnet.gso_type &= !GSO_ECN;
        }
        if packets.len() == 1 {
            (vnet.gso_type, vnet.gso_size, vnet.hdr_len) = (GSO_NONE, 0, 0);
        }
        vnet.emit(vnet_bytes);

        let total = self.header_bytes + payload_bytes;
        match self.ip {
            Ip::V4 => {
                put(ip, 2, total as u16);
                put(ip, 4, word(ip, 4).wrapping_add(packets.start as u16));
            }
            Ip::V6 => put(ip, 4, (total - IPV6_BYTES as u32) as u16),
            Ip::Other => {}
        }

        let at = self.transport_at;
        let length = |payload: u32| self.header_bytes - at as u32 + payload;
        let sum_at = at + transport.checksum_at();
        let sum =
            checksum::exchange(word(ip, sum_at), length(self.payload_bytes), length(payload_bytes));
        put(ip, sum_at, sum);
        match transport {
            Transport::Udp => put(ip, at + 4, length(payload_bytes) as u16),
            Transport::Tcp => {
                let number = [ip[at + 4], ip[at + 5], ip[at + 6], ip[at + 7]];
                let skipped = packets.start * self.segment_bytes;
                let number = u32::from_be_bytes(number).wrapping_add(skipped);
                ip[at + 4..at + 8].copy_from_slice(&number.to_be_bytes());
                if packets.end < self.packets {
                    ip[at + 13] &= !(TCP_FIN | TCP_PSH);
                }
                if packets.start > 0 {
                    ip[at + 13] &= !TCP_CWR;
                }
            }
        }
    }

    /// Reads the ECN field of an IP header.
    fn ecn(&self, ip: &[u8]) -> u8 {
        match self.ip {
            Ip::V4 => ip[1] & 3,
            Ip::V6 => (ip[1] >> 4) & 3,
            Ip::Other => 0,
        }
    }

    /// Sets the ECN field to CE.
    fn mark(&self, ip: &mut [u8]) {
        match self.ip {
            Ip::V4 => ip[1] |= 3,
            Ip::V6 => ip[1] |= 3 << 4,
            Ip::Other => {}
        }
    }
}

impl Transport {
    /// Offset of the checksum in the header.
    fn checksum_at(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }
}

/// Buffer for the headers of a part of a bundle.
#[derive(Debug)]
pub struct PartHeader {
    bytes: [u8; VNET_BYTES + ethernet::HEADER_BYTES + HEADERS_BYTES_MAX],
}

impl Default for PartHeader {
    fn default() -> Self {
        Self { bytes: [0; VNET_BYTES + ethernet::HEADER_BYTES + HEADERS_BYTES_MAX] }
    }
}

/// A 16-bit field.
fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
pub(crate) mod tests;
