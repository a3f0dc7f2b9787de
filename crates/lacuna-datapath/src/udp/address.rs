//! Socket addresses in the kernel's layout (`sockaddr_in`, `sockaddr_in6`), read and written as
//! bytes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

const FAMILY_V4: u16 = libc::AF_INET as u16;
const FAMILY_V6: u16 = libc::AF_INET6 as u16;

/// Size of `sockaddr_in`.
const V4_BYTES: usize = 16;
/// Size of `sockaddr_in6`.
const V6_BYTES: usize = 28;
const _: () = assert!(V4_BYTES == size_of::<libc::sockaddr_in>());
const _: () = assert!(V6_BYTES == size_of::<libc::sockaddr_in6>());

/// Room for either, aligned as the kernel's `sockaddr_storage`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(8))]
pub(super) struct RawAddress {
    bytes: [u8; V6_BYTES],
}

impl RawAddress {
    /// The address and its length in the kernel's layout.
    pub(super) fn from_socket_addr(address: SocketAddr) -> (Self, usize) {
        let mut raw = Self::default();
        raw.bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
        match address {
            SocketAddr::V4(v4) => {
                raw.bytes[0..2].copy_from_slice(&FAMILY_V4.to_ne_bytes());
                raw.bytes[4..8].copy_from_slice(&v4.ip().octets());
                (raw, V4_BYTES)
            }
            SocketAddr::V6(v6) => {
                raw.bytes[0..2].copy_from_slice(&FAMILY_V6.to_ne_bytes());
                raw.bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                raw.bytes[8..24].copy_from_slice(&v6.ip().octets());
                raw.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (raw, V6_BYTES)
            }
        }
    }

    /// Parses an address that the kernel wrote with length `bytes`. `None` when the family is neither
    /// IPv4 nor IPv6, or the address is too short.
    pub(super) fn to_socket_addr(self, bytes: usize) -> Option<SocketAddr> {
        fn at<const N: usize>(raw: &RawAddress, from: usize) -> [u8; N] {
            *raw.bytes[from..].first_chunk().expect("all fields lie within the address")
        }
        let family = u16::from_ne_bytes(at(&self, 0));
        let port = u16::from_be_bytes(at(&self, 2));
        match family {
            FAMILY_V4 if bytes >= V4_BYTES => {
                let ip = Ipv4Addr::from(at::<4>(&self, 4));
                Some(SocketAddrV4::new(ip, port).into())
            }
            FAMILY_V6 if bytes >= V6_BYTES => {
                let ip = Ipv6Addr::from(at::<16>(&self, 8));
                let flow = u32::from_ne_bytes(at(&self, 4));
                let scope = u32::from_ne_bytes(at(&self, 24));
                Some(SocketAddrV6::new(ip, port, flow, scope).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_round_trip() {
        for text in ["1.2.3.4:5", "255.255.255.255:65535", "[2001:db8::1]:4791", "[fe80::1%7]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let (raw, bytes) = RawAddress::from_socket_addr(address);
            assert_eq!(raw.to_socket_addr(bytes), Some(address));
            assert_eq!(raw.to_socket_addr(bytes - 1), None);
        }
    }

    #[test]
    fn the_layout_is_the_kernels() {
        let (raw, _) = RawAddress::from_socket_addr("1.2.3.4:4791".parse().unwrap());
        assert_eq!(raw.bytes[2..8], [0x12, 0xb7, 1, 2, 3, 4]);
    }

    #[test]
    fn an_unknown_family_is_no_address() {
        assert_eq!(RawAddress::default().to_socket_addr(V6_BYTES), None);
    }
}
