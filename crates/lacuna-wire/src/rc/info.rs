//! The description of a reliable connection's end, which the ends exchange by any means before they connect.
//!
//! ```text
//! "LRC" 3 | version 1 | QPN 4 | first number 4 | MTU 4 | reads answered 1 | family 1 | port 2 | IP 4 or 16
//! ```
//!
//! Fields that a later version adds follow; bytes behind the address are ignored.

use crate::{PSN_MASK, Qpn};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const MAGIC: [u8; 3] = *b"LRC";
const VERSION: u8 = 1;
const FIXED_BYTES: usize = 20;
const FAMILY_IPV4: u8 = 4;
const FAMILY_IPV6: u8 = 6;

/// One end; see the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RcInfo {
    /// Its queue pair number.
    pub number: Qpn,
    /// Number of its first request, 24 bits.
    pub first_psn: u32,
    /// Bytes of payload of a full packet.
    pub mtu_bytes: u32,
    /// READs and atomic operations that it answers at a time.
    pub answers_max: u8,
    /// Where its packets go. A link-local address comes without its zone.
    pub address: SocketAddr,
}

/// Bytes that describe no end of a reliable connection. The peer's fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RcInfoError {
    /// Not such a description.
    #[error("{found} bytes are no description of a reliable connection")]
    Magic {
        /// Bytes that were given.
        found: usize,
    },
    /// Of a version that is not known.
    #[error("description of version {found}, this end knows {VERSION}")]
    Version {
        /// Its version.
        found: u8,
    },
    /// An address that is no IPv4 or IPv6 address.
    #[error("address of family {found}, neither {FAMILY_IPV4} nor {FAMILY_IPV6}, or cut off")]
    Address {
        /// Its family.
        found: u8,
    },
}

impl RcInfo {
    /// Longest description.
    pub const BYTES_MAX: usize = FIXED_BYTES + 16;

    /// The bytes for the peer.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        out.extend(self.number.bits().to_be_bytes());
        out.extend(self.first_psn.to_be_bytes());
        out.extend(self.mtu_bytes.to_be_bytes());
        out.push(self.answers_max);
        let (family, ip) = match self.address.ip() {
            IpAddr::V4(ip) => (FAMILY_IPV4, ip.octets().to_vec()),
            IpAddr::V6(ip) => (FAMILY_IPV6, ip.octets().to_vec()),
        };
        out.push(family);
        out.extend(self.address.port().to_be_bytes());
        out.extend(ip);
        out
    }

    /// Reads what the peer gave.
    ///
    /// # Errors
    /// When it is no such description.
    pub fn parse(bytes: &[u8]) -> Result<Self, RcInfoError> {
        let magic = RcInfoError::Magic { found: bytes.len() };
        let (fixed, rest) = bytes.split_first_chunk::<FIXED_BYTES>().ok_or(magic)?;
        if fixed[..3] != MAGIC {
            return Err(magic);
        }
        if fixed[3] != VERSION {
            return Err(RcInfoError::Version { found: fixed[3] });
        }
        let word = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let family = fixed[17];
        let ip = match family {
            FAMILY_IPV4 => rest.first_chunk().map(|ip: &[u8; 4]| IpAddr::V4(Ipv4Addr::from(*ip))),
            FAMILY_IPV6 => rest.first_chunk().map(|ip: &[u8; 16]| IpAddr::V6(Ipv6Addr::from(*ip))),
            _ => None,
        };
        let ip = ip.ok_or(RcInfoError::Address { found: family })?;
        Ok(Self {
            number: Qpn::from_bits(word(4)),
            first_psn: word(8) & PSN_MASK,
            mtu_bytes: word(12),
            answers_max: fixed[16],
            address: SocketAddr::new(ip, u16::from_be_bytes([fixed[18], fixed[19]])),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_is_read_and_more_is_ignored() {
        for address in ["192.0.2.1:4791", "[2001:db8::1]:9"] {
            let info = RcInfo {
                number: Qpn::from_bits(0x12_3456),
                first_psn: 0xff_ffff,
                mtu_bytes: 1436,
                answers_max: 16,
                address: address.parse().unwrap(),
            };
            let mut bytes = info.emit();
            assert!(bytes.len() <= RcInfo::BYTES_MAX);
            for cut in 0..bytes.len() {
                assert!(RcInfo::parse(&bytes[..cut]).is_err());
            }
            bytes.extend([1, 2, 3]);
            assert_eq!(RcInfo::parse(&bytes), Ok(info));
            bytes[3] = 2;
            assert_eq!(RcInfo::parse(&bytes), Err(RcInfoError::Version { found: 2 }));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let _ = RcInfo::parse(&bytes);
        }
    }
}
