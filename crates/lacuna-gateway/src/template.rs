//! Headers of a flow, for frames that are made here: repairs, and packets that were recovered.
//!
//! They are those of a neighbour: same addresses, tags, DSCP, time to live and ports, so that the frame
//! takes the same way and is accepted where its neighbours are. Lengths, identification, checksums and ICRC
//! are the frame's own. The UDP checksum is zero, as cards send it, over IPv6 as well (annex A17; RFC 6935).
//! "Congestion experienced" of the neighbour is no news about this frame, and becomes "ECN-capable".

use crate::frame::{ETHERNET_BYTES, Layout, TAG_BYTES, TAGS_MAX, UDP_BYTES, Version};
use lacuna_wire::ICRC_BYTES;

const HEADERS_BYTES_MAX: usize =
    ETHERNET_BYTES + TAGS_MAX * TAG_BYTES + Version::V6.header_bytes() + UDP_BYTES;
const CONGESTION_EXPERIENCED: u8 = 3;

/// See the module's text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Template {
    bytes: [u8; HEADERS_BYTES_MAX],
    ip: u8,
    bth: u8,
    version: Version,
}

impl Template {
    /// The headers of a frame.
    pub(crate) fn of(frame: &[u8], layout: &Layout) -> Self {
        let mut bytes = [0; HEADERS_BYTES_MAX];
        bytes[..layout.bth].copy_from_slice(&frame[..layout.bth]);
        Self { bytes, ip: layout.ip as u8, bth: layout.bth as u8, version: layout.version }
    }

    /// Makes a frame of a packet, from the BTH to the pad. `false` if it would be longer than IP allows.
    pub(crate) fn build(&self, packet: &[u8], identification: u16, out: &mut Vec<u8>) -> bool {
        let (ip, bth) = (usize::from(self.ip), usize::from(self.bth));
        let udp = bth - UDP_BYTES;
        out.clear();
        out.extend_from_slice(&self.bytes[..bth]);
        out.extend_from_slice(packet);
        out.extend_from_slice(&[0; ICRC_BYTES]);
        let Ok(ip_bytes) = u16::try_from(out.len() - ip) else { return false };
        let udp_bytes = ip_bytes - self.version.header_bytes() as u16;
        match self.version {
            Version::V4 => {
                if out[ip + 1] & 3 == CONGESTION_EXPERIENCED {
                    out[ip + 1] ^= 1;
                }
                out[ip + 2..ip + 4].copy_from_slice(&ip_bytes.to_be_bytes());
                out[ip + 4..ip + 6].copy_from_slice(&identification.to_be_bytes());
                out[ip + 10..ip + 12].fill(0);
                let checksum = checksum(&out[ip..udp]);
                out[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
            }
            Version::V6 => {
                if out[ip + 1] >> 4 & 3 == CONGESTION_EXPERIENCED {
                    out[ip + 1] ^= 1 << 4;
                }
                out[ip + 4..ip + 6].copy_from_slice(&udp_bytes.to_be_bytes());
            }
        }
        out[udp + 4..udp + 6].copy_from_slice(&udp_bytes.to_be_bytes());
        out[udp + 6..udp + 8].fill(0);
        let layout = Layout { version: self.version, ip, bth, end: out.len() };
        let icrc = layout.icrc(out);
        let end = out.len();
        out[end - ICRC_BYTES..].copy_from_slice(&icrc);
        true
    }
}

/// The checksum of an IPv4 header whose own is zero (RFC 1071).
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_standard_example() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0x00, 0x00, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(checksum(&header), 0xb861);
    }
}
