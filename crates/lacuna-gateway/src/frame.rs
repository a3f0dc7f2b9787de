//! Where in an Ethernet frame an RDMA packet is, and which flow it is of.
//!
//! RoCEv2 (InfiniBand Architecture Specification, volume 1, annex A17): Ethernet, up to two VLAN tags, IPv4
//! without options or IPv6 without extension headers, UDP to port 4791, BTH to pad, ICRC. Anything else,
//! fragments included, is of no interest here and passes.
//!
//! Invariant: all offsets of a [`Layout`] are inside the frame that it was read from.

use lacuna_wire::Qpn;
use lacuna_wire::rc::REPAIR_OPCODE;
use lacuna_wire::{ICRC_BYTES, icrc_ipv4, icrc_ipv6};

/// UDP port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;
/// Most VLAN tags of a frame that is looked into.
pub const TAGS_MAX: usize = 2;

pub(crate) const ETHERNET_BYTES: usize = 14;
pub(crate) const TAG_BYTES: usize = 4;
pub(crate) const UDP_BYTES: usize = 8;
pub(crate) const BTH_BYTES: usize = 12;

const TYPE_VLAN: u16 = 0x8100;
const TYPE_SERVICE_VLAN: u16 = 0x88a8;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
/// Bits of a VLAN tag that are its number, without priority.
const VLAN_NUMBER: u16 = 0x0fff;
const PROTOCOL_UDP: u8 = 17;
/// "More fragments", and the fragment's offset.
const FRAGMENT: u16 = 0x3fff;

/// Version of IP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Version {
    /// IPv4, without options.
    V4,
    /// IPv6, without extension headers.
    V6,
}

impl Version {
    /// Bytes of its header.
    #[must_use]
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }
}

/// Where an RDMA packet is in a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Version of IP.
    pub version: Version,
    /// Where the IP header begins.
    pub ip: usize,
    /// Where the BTH begins, behind the UDP header.
    pub bth: usize,
    /// Behind the ICRC; Ethernet's own padding may follow.
    pub end: usize,
}

/// Requests or answers of one direction of a connection, as its packets show them. Both are for the same
/// queue pair, but are numbered independently: an answer has its request's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey {
    /// Queue pair that the packets are for.
    pub queue_pair: u32,
    /// Whether these are the answers.
    pub is_answers: bool,
    /// Numbers of the VLANs, outer one first; a tag that is not there counts as the highest number.
    pub vlans: [u16; TAGS_MAX],
    /// Addresses; those of IPv4 are mapped into IPv6.
    pub source: [u8; 16],
    /// Of the receiver.
    pub destination: [u8; 16],
}

impl FlowKey {
    /// Queue pair that the packets are for.
    #[must_use]
    pub fn destination_queue_pair(&self) -> Qpn {
        Qpn::from_bits(self.queue_pair)
    }

    /// Its addresses alone: the same for all flows of one host to another.
    pub(crate) fn addresses(&self) -> Self {
        Self { queue_pair: 0, is_answers: false, ..*self }
    }

    /// The way back. Its queue pair is another one, which is not known.
    pub(crate) fn reversed(&self) -> Self {
        Self { source: self.destination, destination: self.source, ..*self }
    }
}

impl Layout {
    /// Looks for an RDMA packet; `None` if the frame has none that is to be looked at.
    #[must_use]
    pub fn of(frame: &[u8]) -> Option<Self> {
        let mut ip = ETHERNET_BYTES;
        let mut kind = u16_at(frame, ip - 2)?;
        for _ in 0..TAGS_MAX {
            if kind == TYPE_VLAN || kind == TYPE_SERVICE_VLAN {
                ip += TAG_BYTES;
                kind = u16_at(frame, ip - 2)?;
            }
        }
        let (version, ip_payload_bytes) = match kind {
            TYPE_IPV4 => (Version::V4, ipv4_payload(frame.get(ip..)?)?),
            TYPE_IPV6 => (Version::V6, ipv6_payload(frame.get(ip..)?)?),
            _ => return None,
        };
        let udp = ip + version.header_bytes();
        let end = udp + ip_payload_bytes;
        let is_whole = end <= frame.len()
            && ip_payload_bytes >= UDP_BYTES + BTH_BYTES + ICRC_BYTES
            && u16_at(frame, udp + 4)? as usize == ip_payload_bytes;
        if !is_whole || u16_at(frame, udp + 2)? != ROCE_PORT {
            return None;
        }
        Some(Self { version, ip, bth: udp + UDP_BYTES, end })
    }

    /// From the BTH to the pad.
    #[must_use]
    pub fn packet<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        &frame[self.bth..self.end - ICRC_BYTES]
    }

    /// The flow that the packet is of, if it is a request or, as `is_answer` says, an answer.
    #[must_use]
    pub fn key(&self, frame: &[u8], is_answer: bool) -> FlowKey {
        let mut vlans = [u16::MAX; TAGS_MAX];
        let tags = frame[ETHERNET_BYTES..self.ip].chunks_exact(TAG_BYTES);
        for (vlan, tag) in vlans.iter_mut().zip(tags) {
            *vlan = u16::from_be_bytes([tag[0], tag[1]]) & VLAN_NUMBER;
        }
        let (source, destination) = match self.version {
            Version::V4 => {
                let at = |from: usize| mapped(&frame[self.ip + from..self.ip + from + 4]);
                (at(12), at(16))
            }
            Version::V6 => {
                let at = |from: usize| {
                    let mut address = [0; 16];
                    address.copy_from_slice(&frame[self.ip + from..self.ip + from + 16]);
                    address
                };
                (at(8), at(24))
            }
        };
        let bth = &frame[self.bth..];
        // A repair header is no BTH.
        let number = if bth[0] == REPAIR_OPCODE { &bth[1..4] } else { &bth[5..8] };
        let queue_pair = u32::from_be_bytes([0, number[0], number[1], number[2]]);
        FlowKey { queue_pair, is_answers: is_answer, vlans, source, destination }
    }

    /// The ICRC that the frame should have.
    #[must_use]
    pub fn icrc(&self, frame: &[u8]) -> [u8; ICRC_BYTES] {
        let mut udp = [0; UDP_BYTES];
        udp.copy_from_slice(&frame[self.bth - UDP_BYTES..self.bth]);
        let pieces = [self.packet(frame)];
        let header = &frame[self.ip..self.ip + self.version.header_bytes()];
        match self.version {
            Version::V4 => {
                let mut ip = [0; 20];
                ip.copy_from_slice(header);
                icrc_ipv4(&ip, &udp, &pieces)
            }
            Version::V6 => {
                let mut ip = [0; 40];
                ip.copy_from_slice(header);
                icrc_ipv6(&ip, &udp, &pieces)
            }
        }
    }

    /// Whether the frame has the ICRC that it should have.
    #[must_use]
    pub fn is_intact(&self, frame: &[u8]) -> bool {
        frame[self.end - ICRC_BYTES..self.end] == self.icrc(frame)
    }
}

fn ipv4_payload(ip: &[u8]) -> Option<usize> {
    let total_bytes = usize::from(u16_at(ip, 2)?);
    let is_plain = *ip.first()? == 0x45
        && u16_at(ip, 6)? & FRAGMENT == 0
        && *ip.get(9)? == PROTOCOL_UDP
        && ip.len() >= Version::V4.header_bytes();
    if is_plain { total_bytes.checked_sub(Version::V4.header_bytes()) } else { None }
}

fn ipv6_payload(ip: &[u8]) -> Option<usize> {
    let is_plain = ip.first()? >> 4 == 6
        && *ip.get(6)? == PROTOCOL_UDP
        && ip.len() >= Version::V6.header_bytes();
    if is_plain { u16_at(ip, 4).map(usize::from) } else { None }
}

fn mapped(v4: &[u8]) -> [u8; 16] {
    let mut address = [0; 16];
    address[10..12].fill(0xff);
    address[12..].copy_from_slice(v4);
    address
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}
