//! The description of a reliable connection's end, which the ends exchange by any means before they connect.
//!
//! ```text
//! "LRC" 3 | version 1 | QPN 4 | first number 4 | MTU 4 | reads answered 1 | family 1 | port 2 | IP 4 or 16 | nonce 16
//! ```
//!
//! Version 1 has no nonce, and is what an end writes whose packets are in clear. Version 2 has one: its packets are
//! encrypted, with keys that follow from the nonces of both ends and a secret that they share. Fields that a later
//! version adds follow; bytes behind the last field are ignored.

use crate::{NONCE_BYTES, PSN_MASK, Qpn};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const MAGIC: [u8; 3] = *b"LRC";
/// In clear.
const VERSION_CLEAR: u8 = 1;
/// With a nonce.
const VERSION: u8 = 2;
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
    /// A number that no other queue pair has, from which the keys of its packets follow; `None` if they are in clear.
    pub nonce: Option<[u8; NONCE_BYTES]>,
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
    /// Of the version with a nonce, and cut off within it.
    #[error("description with {found} bytes of a nonce, {NONCE_BYTES} are needed")]
    Nonce {
        /// Bytes that are there.
        found: usize,
    },
}

impl RcInfo {
    /// Longest description.
    pub const BYTES_MAX: usize = FIXED_BYTES + 16 + NONCE_BYTES;

    /// The bytes for the peer.
    #[must_use]
    pub fn emit(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(if self.nonce.is_some() { VERSION } else { VERSION_CLEAR });
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
        out.extend(self.nonce.iter().flatten());
        out
    }

    /// What both ends must know alike for their packets to open: all of it but the address, which a translator may
    /// change, and the nonce, which has a place of its own.
    #[must_use]
    pub fn agreed_bytes(&self) -> Vec<u8> {
        let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Self { address, nonce: None, ..*self }.emit()
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
        let has_nonce = match fixed[3] {
            VERSION_CLEAR => false,
            VERSION => true,
            found => return Err(RcInfoError::Version { found }),
        };
        let word = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        let family = fixed[17];
        let ip = match family {
            FAMILY_IPV4 => rest
                .split_first_chunk()
                .map(|(ip, rest): (&[u8; 4], _)| (IpAddr::V4(Ipv4Addr::from(*ip)), rest)),
            FAMILY_IPV6 => rest
                .split_first_chunk()
                .map(|(ip, rest): (&[u8; 16], _)| (IpAddr::V6(Ipv6Addr::from(*ip)), rest)),
            _ => None,
        };
        let (ip, rest) = ip.ok_or(RcInfoError::Address { found: family })?;
        let nonce = match has_nonce {
            true => Some(*rest.first_chunk().ok_or(RcInfoError::Nonce { found: rest.len() })?),
            false => None,
        };
        Ok(Self {
            number: Qpn::from_bits(word(4)),
            first_psn: word(8) & PSN_MASK,
            mtu_bytes: word(12),
            answers_max: fixed[16],
            address: SocketAddr::new(ip, u16::from_be_bytes([fixed[18], fixed[19]])),
            nonce,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_is_read_and_more_is_ignored() {
        let cases = [None, Some([7; NONCE_BYTES])]
            .into_iter()
            .flat_map(|nonce| [("192.0.2.1:4791", nonce), ("[2001:db8::1]:9", nonce)]);
        for (address, nonce) in cases {
            let info = RcInfo {
                number: Qpn::from_bits(0x12_3456),
                first_psn: 0xff_ffff,
                mtu_bytes: 1436,
                answers_max: 16,
                address: address.parse().unwrap(),
                nonce,
            };
            let mut bytes = info.emit();
            assert_eq!(
                bytes[3],
                if nonce.is_some() { 2 } else { 1 },
                "old readers know the clear one"
            );
            assert!(bytes.len() <= RcInfo::BYTES_MAX);
            for cut in 0..bytes.len() {
                assert!(RcInfo::parse(&bytes[..cut]).is_err());
            }
            bytes.extend([1, 2, 3]);
            assert_eq!(RcInfo::parse(&bytes), Ok(info));
            bytes[3] = 3;
            assert_eq!(RcInfo::parse(&bytes), Err(RcInfoError::Version { found: 3 }));
        }
    }

    #[test]
    fn a_translated_address_is_no_other_agreement_and_all_else_is() {
        let info = RcInfo {
            number: Qpn::from_bits(5),
            first_psn: 6,
            mtu_bytes: 1024,
            answers_max: 7,
            address: "192.0.2.1:4791".parse().unwrap(),
            nonce: Some([7; NONCE_BYTES]),
        };
        let moved = RcInfo { address: "[2001:db8::1]:9".parse().unwrap(), ..info };
        assert_eq!(moved.agreed_bytes(), info.agreed_bytes());
        for other in [
            RcInfo { number: Qpn::from_bits(4), ..info },
            RcInfo { first_psn: 5, ..info },
            RcInfo { mtu_bytes: 1028, ..info },
            RcInfo { answers_max: 8, ..info },
        ] {
            assert_ne!(other.agreed_bytes(), info.agreed_bytes());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            let _ = RcInfo::parse(&bytes);
        }
    }
}
