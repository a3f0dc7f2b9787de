//! Ethernet frames with packets of RoCEv2: where the headers are, and how frames are made from those of others.
//!
//! RoCEv2 (InfiniBand volume 1, annex A17) is UDP to port 4791 over IPv4 or IPv6. Everything else is none of
//! these: other protocols, fragments, IPv4 with options, IPv6 with extension headers, more than two VLAN tags,
//! and what is cut off. A frame may be longer than its packet, as Ethernet pads short ones.

use core::net::IpAddr;
use lacuna_wire::{ICRC_BYTES, icrc_ipv4, icrc_ipv6};

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// Bytes of the two addresses of Ethernet.
const ADDRESSES_BYTES: usize = 12;
const VLAN_TYPES: [u16; 2] = [0x8100, 0x88a8];
const VLANS_MAX: usize = 2;
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const PROTOCOL_UDP: u8 = 17;
/// A BTH or a repair's first words.
const PACKET_BYTES_MIN: usize = 12;
/// Headers of a frame before the packet, at most.
pub(crate) const HEADERS_BYTES_MAX: usize =
    ADDRESSES_BYTES + 4 * VLANS_MAX + 2 + IPV6_BYTES + UDP_BYTES;

/// A frame with a packet of RoCEv2.
#[derive(Debug, Clone, Copy)]
pub struct RoceFrame<'f> {
    frame: &'f [u8],
    ip_at: usize,
    udp_at: usize,
    /// Behind the ICRC.
    end: usize,
    /// Who sent it.
    pub source: IpAddr,
    /// Whom it is for.
    pub destination: IpAddr,
}

impl<'f> RoceFrame<'f> {
    /// Reads a frame; `None` if it is none.
    #[must_use]
    pub fn parse(frame: &'f [u8]) -> Option<Self> {
        let word = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
        let mut type_at = ADDRESSES_BYTES;
        let mut vlans = 0;
        while VLAN_TYPES.contains(&word(type_at)?) {
            vlans += 1;
            if vlans > VLANS_MAX {
                return None;
            }
            type_at += 4;
        }
        let ip_at = type_at + 2;
        let ip = frame.get(ip_at..)?;
        let (source, destination, udp_at, ip_end): (IpAddr, IpAddr, usize, usize) =
            match word(type_at)? {
                TYPE_IPV4 => {
                    let header: &[u8; IPV4_BYTES] = ip.first_chunk()?;
                    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
                    if header[0] != 0x45 || fragment != 0 || header[9] != PROTOCOL_UDP {
                        return None;
                    }
                    let [_, _, high, low, ..] = *header;
                    let octets =
                        |at: usize| -> [u8; 4] { header[at..at + 4].try_into().unwrap_or([0; 4]) };
                    let total = usize::from(u16::from_be_bytes([high, low]));
                    (octets(12).into(), octets(16).into(), ip_at + IPV4_BYTES, ip_at + total)
                }
                TYPE_IPV6 => {
                    let header: &[u8; IPV6_BYTES] = ip.first_chunk()?;
                    if header[0] >> 4 != 6 || header[6] != PROTOCOL_UDP {
                        return None;
                    }
                    let octets = |at: usize| -> [u8; 16] {
                        header[at..at + 16].try_into().unwrap_or([0; 16])
                    };
                    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
                    let udp_at = ip_at + IPV6_BYTES;
                    (octets(8).into(), octets(24).into(), udp_at, udp_at + payload)
                }
                _ => return None,
            };
        let udp_bytes = usize::from(word(udp_at + 4)?);
        let end = udp_at + udp_bytes;
        let is_roce = word(udp_at + 2)? == ROCE_PORT
            && end == ip_end
            && end <= frame.len()
            && udp_bytes >= UDP_BYTES + PACKET_BYTES_MIN + ICRC_BYTES;
        is_roce.then_some(Self { frame, ip_at, udp_at, end, source, destination })
    }

    /// All of it, as it came.
    #[must_use]
    pub fn bytes(&self) -> &'f [u8] {
        self.frame
    }

    /// The packet, from the BTH to the pad.
    #[must_use]
    pub fn packet(&self) -> &'f [u8] {
        &self.frame[self.udp_at + UDP_BYTES..self.end - ICRC_BYTES]
    }

    /// What is before the packet.
    pub(crate) fn headers(&self) -> &'f [u8] {
        &self.frame[..self.udp_at + UDP_BYTES]
    }

    /// Whether the ICRC is right.
    #[must_use]
    pub fn has_right_icrc(&self) -> bool {
        let found = &self.frame[self.end - ICRC_BYTES..self.end];
        icrc(self.headers(), self.ip_at, self.udp_at, self.packet())
            .is_some_and(|icrc| icrc == found)
    }
}

/// The ICRC of a packet behind these headers.
fn icrc(headers: &[u8], ip_at: usize, udp_at: usize, packet: &[u8]) -> Option<[u8; ICRC_BYTES]> {
    let udp = headers.get(udp_at..)?.first_chunk()?;
    match udp_at - ip_at {
        IPV4_BYTES => Some(icrc_ipv4(headers.get(ip_at..)?.first_chunk()?, udp, &[packet])),
        IPV6_BYTES => Some(icrc_ipv6(headers.get(ip_at..)?.first_chunk()?, udp, &[packet])),
        _ => None,
    }
}

/// The headers of a flow's frames, from which others are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Template {
    bytes: [u8; HEADERS_BYTES_MAX],
    len: u8,
    ip_at: u8,
    udp_at: u8,
}

impl Template {
    pub(crate) fn of(frame: &RoceFrame<'_>) -> Self {
        let headers = frame.headers();
        let mut bytes = [0; HEADERS_BYTES_MAX];
        bytes[..headers.len()].copy_from_slice(headers);
        Self {
            bytes,
            len: headers.len() as u8,
            ip_at: frame.ip_at as u8,
            udp_at: frame.udp_at as u8,
        }
    }

    /// A frame with another packet: lengths and checksums of IP are made anew, the identification of IPv4 is 0,
    /// UDP has no checksum, as RoCEv2 allows, and the ICRC is of what the frame holds. All else is the flow's:
    /// addresses, ports, DSCP and ECN, TTL, VLAN.
    pub(crate) fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let (ip_at, udp_at) = (usize::from(self.ip_at), usize::from(self.udp_at));
        let mut frame = self.bytes[..self.len.into()].to_vec();
        let udp_bytes = (UDP_BYTES + packet.len() + ICRC_BYTES) as u16;
        let put = |frame: &mut Vec<u8>, at: usize, word: u16| {
            frame[at..at + 2].copy_from_slice(&word.to_be_bytes());
        };
        put(&mut frame, udp_at + 4, udp_bytes);
        put(&mut frame, udp_at + 6, 0);
        if udp_at - ip_at == IPV4_BYTES {
            put(&mut frame, ip_at + 2, IPV4_BYTES as u16 + udp_bytes);
            put(&mut frame, ip_at + 4, 0);
            put(&mut frame, ip_at + 10, 0);
            let sum = checksum(&frame[ip_at..udp_at]);
            put(&mut frame, ip_at + 10, sum);
        } else {
            put(&mut frame, ip_at + 4, udp_bytes);
        }
        let icrc = icrc(&frame, ip_at, udp_at, packet).unwrap_or_default();
        frame.extend_from_slice(packet);
        frame.extend_from_slice(&icrc);
        frame
    }
}

/// The checksum of an IPv4 header whose own field is zero (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words = header.as_chunks().0.iter().map(|word| u32::from(u16::from_be_bytes(*word)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A frame with a packet, from host to host, by numbers; `vlans` tags.
    pub(crate) fn frame(
        source: u8,
        destination: u8,
        is_v6: bool,
        vlans: usize,
        packet: &[u8],
    ) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source];
        for vlan in 0..vlans {
            frame.extend([0x81, 0, 0x20, 10 + vlan as u8]);
        }
        let udp_bytes = (UDP_BYTES + packet.len() + ICRC_BYTES) as u16;
        if is_v6 {
            frame.extend([0x86, 0xdd, 0x6b, 0x80, 0, 0]);
            frame.extend(udp_bytes.to_be_bytes());
            frame.extend([PROTOCOL_UDP, 63]);
            for host in [source, destination] {
                frame.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
            }
        } else {
            frame.extend([8, 0, 0x45, 0xb8]);
            frame.extend((IPV4_BYTES as u16 + udp_bytes).to_be_bytes());
            frame.extend([
                0x12,
                source,
                0x40,
                0,
                63,
                PROTOCOL_UDP,
                0,
                0,
                10,
                0,
                0,
                source,
                10,
                0,
                0,
                destination,
            ]);
        }
        frame.extend(49_152u16.to_be_bytes());
        frame.extend(ROCE_PORT.to_be_bytes());
        frame.extend(udp_bytes.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(packet);
        frame.extend([0; ICRC_BYTES]);
        let at = frame.len() - ICRC_BYTES;
        let parsed = RoceFrame::parse(&frame).expect("it is one");
        let icrc = icrc(parsed.headers(), parsed.ip_at, parsed.udp_at, packet).expect("of IP");
        frame[at..].copy_from_slice(&icrc);
        frame
    }

    #[test]
    fn a_frame_is_found_behind_tags_and_with_its_right_icrc() {
        let packet = [4, 0, 0xff, 0xff, 0, 0, 0, 5, 0, 0, 0, 9, 1, 2, 3, 4];
        for is_v6 in [false, true] {
            for vlans in 0..=2 {
                let mut bytes = frame(1, 2, is_v6, vlans, &packet);
                bytes.extend([0; 6]);
                let parsed = RoceFrame::parse(&bytes).unwrap();
                assert_eq!(parsed.packet(), packet);
                assert!(parsed.has_right_icrc());
                let at = parsed.udp_at + UDP_BYTES;
                let other = Template::of(&parsed).frame(&packet[..12]);
                let other = RoceFrame::parse(&other).unwrap();
                assert!(other.has_right_icrc());
                assert_eq!((other.source, other.destination), (parsed.source, parsed.destination));
                if !is_v6 {
                    let header = &other.bytes()[other.ip_at..other.udp_at];
                    assert_eq!(checksum(header), 0, "its own checksum makes it zero");
                }
                bytes[at + 13] ^= 1;
                assert!(!RoceFrame::parse(&bytes).unwrap().has_right_icrc());
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_something_else_is_no_frame_of_rdma() {
        let packet = [4, 0, 0xff, 0xff, 0, 0, 0, 5, 0, 0, 0, 9];
        for is_v6 in [false, true] {
            let whole = frame(1, 2, is_v6, 1, &packet);
            for cut in 0..whole.len() {
                assert!(RoceFrame::parse(&whole[..cut]).is_none(), "{cut}");
            }
            assert!(RoceFrame::parse(&frame_with(&whole, 12, 0x88)).is_none());
        }
        let whole = frame(1, 2, false, 0, &packet);
        for (at, byte) in [(14, 0x46), (20, 0x20), (21, 1), (23, 6), (36, 0)] {
            assert!(RoceFrame::parse(&frame_with(&whole, at, byte)).is_none(), "{at}");
        }
    }

    fn frame_with(frame: &[u8], at: usize, byte: u8) -> Vec<u8> {
        let mut frame = frame.to_vec();
        frame[at] = byte;
        frame
    }
}
