//! Addresses of datagram peers, as text and as the system's `struct sockaddr`.
//!
//! `lacuna_address` is plain data of one size for both protocols, so that a completion has its source in it. The layout
//! of `struct sockaddr_in` and `struct sockaddr_in6` is the same on all systems but for the first two bytes: the
//! family, or, on the BSDs, a length and the family.

use super::connection::text_out;
use crate::outcome::{Failure, code};
use crate::pointer::{self, Out};
use lacuna::address;
use std::ffi::{c_char, c_int, c_void};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// An IP address and a port, for datagrams. Equal addresses are equal bytes.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct lacuna_address {
    /// The address in network byte order; one of IPv4 is written ::ffff:192.0.2.1.
    pub ip: [u8; 16],
    /// Number of this host's interface, of link-local addresses; 0 of all others.
    pub scope: u32,
    /// In host byte order.
    pub port: u16,
    /// Must be 0.
    pub reserved: [u8; 2],
}

/// Families of `struct sockaddr`.
const AF_INET: u8 = 2;
const AF_INET6: u8 = if cfg!(any(target_os = "linux", target_os = "android")) {
    10
} else if cfg!(target_os = "freebsd") {
    28
} else if cfg!(windows) {
    23
} else {
    30
};
/// Whether the family is one byte behind a length.
const HAS_LENGTH: bool = cfg!(any(target_os = "macos", target_os = "freebsd"));
const SOCKADDR_IN_BYTES: usize = 16;
const SOCKADDR_IN6_BYTES: usize = 28;

/// One form for each address: mapped ones are IPv4, and only link-local ones have an interface.
fn canonical(ip: Ipv6Addr, port: u16, scope: u32) -> SocketAddr {
    let is_link_local = ip.is_unicast_link_local() || ip.is_multicast();
    match ip.to_ipv4_mapped() {
        Some(v4) => SocketAddr::new(IpAddr::V4(v4), port),
        None => SocketAddrV6::new(ip, port, 0, if is_link_local { scope } else { 0 }).into(),
    }
}

impl lacuna_address {
    pub(super) fn of(address: SocketAddr) -> Self {
        let (ip, scope) = match address {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        let (scope, port) = match canonical(ip, address.port(), scope) {
            SocketAddr::V4(v4) => (0, v4.port()),
            SocketAddr::V6(v6) => (v6.scope_id(), v6.port()),
        };
        Self { ip: ip.octets(), scope, port, reserved: [0; 2] }
    }

    /// The address that a program gives.
    ///
    /// # Safety
    /// If not NULL, `address` points to its struct.
    pub(super) unsafe fn given(address: *const Self, name: &str) -> Result<SocketAddr, Failure> {
        // SAFETY: the caller's promise.
        let Self { ip, scope, port, reserved } = *unsafe { pointer::shared(address, name) }?;
        if reserved != [0; 2] {
            return Err(Failure::usage(format!(
                "{name} has reserved bytes that are not 0: zero the struct"
            )));
        }
        let ip = Ipv6Addr::from(ip);
        if ip.is_unicast_link_local() && scope == 0 {
            return Err(Failure::usage(format!(
                "{name}: {ip} is link-local, and needs the number of this host's interface to it in scope"
            )));
        }
        Ok(canonical(ip, port, scope))
    }
}

/// Reads an address as in "192.0.2.1:7400", "[2001:db8::1]:7400" or, if it is link-local,
/// "[fe80::1%eth0]:7400" with this host's interface to it. Names of hosts are not looked
/// up. May be called from any thread.
///
/// # Safety
/// text is a terminated string; address points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_address_parse(
    text: *const c_char,
    address: *mut lacuna_address,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let text = unsafe { pointer::text(text, "text") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(address, "address") }?;
        let read = address::parse(text);
        let read = read.map_err(|error| Failure::usage(format!("address: {error}")))?;
        out.set(lacuna_address::of(read));
        Ok(())
    })
}

/// Writes an address as lacuna_address_parse() reads it. As snprintf(): as much as fits is
/// written, with its end, and length gets the length of the whole text without its end.
/// buffer may be NULL if capacity is 0, length if it is not wanted. May be called from any
/// thread.
///
/// # Safety
/// address points to its struct; buffer points to capacity bytes; length is NULL or
/// points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_address_text(
    address: *const lacuna_address,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let address = unsafe { lacuna_address::given(address, "address") }?;
        let text = address::show(address).to_string();
        // SAFETY: the caller's promise.
        unsafe { text_out(&text, buffer, capacity, length) }
    })
}

/// The address that a struct sockaddr of length bytes has, which is a struct sockaddr_in
/// or a struct sockaddr_in6, as getaddrinfo() gives them. May be called from any thread.
///
/// # Safety
/// sockaddr points to length bytes; address points to its struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_address_of(
    sockaddr: *const c_void,
    length: usize,
    address: *mut lacuna_address,
) -> c_int {
    code(|| {
        // No more is read than the longest has.
        let known = length.min(SOCKADDR_IN6_BYTES);
        // SAFETY: the caller's promise.
        let bytes = unsafe { pointer::copy_in(sockaddr.cast(), known, "sockaddr") }?;
        // SAFETY: the caller's promise.
        let out = unsafe { Out::new(address, "address") }?;
        out.set(lacuna_address::of(of_sockaddr(&bytes)?));
        Ok(())
    })
}

fn of_sockaddr(bytes: &[u8]) -> Result<SocketAddr, Failure> {
    let [first, second, ..] = *bytes else {
        return Err(Failure::usage(format!("{} bytes are no struct sockaddr", bytes.len())));
    };
    let family = match HAS_LENGTH {
        true => u16::from(second),
        false => u16::from_ne_bytes([first, second]),
    };
    let part = |at: usize| -> Result<[u8; 4], Failure> {
        let part = bytes.get(at..at + 4).and_then(|part| part.try_into().ok());
        part.ok_or_else(|| {
            Failure::usage(format!("{} bytes are too few for its family", bytes.len()))
        })
    };
    let [_, _, high, low] = part(0)?;
    let port = u16::from_be_bytes([high, low]);
    if family == u16::from(AF_INET) {
        return Ok(SocketAddr::from((part(4)?, port)));
    }
    if family != u16::from(AF_INET6) {
        return Err(Failure::usage(format!(
            "family {family}: must be a struct sockaddr_in or a struct sockaddr_in6"
        )));
    }
    let mut ip = [0; 16];
    for (at, quarter) in ip.chunks_exact_mut(4).enumerate() {
        quarter.copy_from_slice(&part(8 + 4 * at)?);
    }
    Ok(canonical(ip.into(), port, u32::from_ne_bytes(part(24)?)))
}

/// Writes an address as the system has it, for its own calls: a struct sockaddr_in for
/// IPv4, else a struct sockaddr_in6. sockaddr has room for capacity bytes, as a struct
/// sockaddr_storage has enough of; LACUNA_USAGE if they are too few. length gets the
/// length, and may be NULL. May be called from any thread.
///
/// # Safety
/// address points to its struct; sockaddr points to capacity bytes; length is NULL or
/// points to a size_t.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lacuna_address_sockaddr(
    address: *const lacuna_address,
    sockaddr: *mut c_void,
    capacity: usize,
    length: *mut usize,
) -> c_int {
    code(|| {
        // SAFETY: the caller's promise.
        let address = unsafe { lacuna_address::given(address, "address") }?;
        // SAFETY: the caller's promise.
        let length = unsafe { Out::optional(length, "length") }?;
        let bytes = to_sockaddr(address);
        if capacity < bytes.len() {
            return Err(Failure::usage(format!(
                "{capacity} bytes at sockaddr: the address takes {}",
                bytes.len()
            )));
        }
        // SAFETY: the caller's promise, and no more than `capacity` bytes.
        unsafe { pointer::copy_out(&bytes, sockaddr.cast(), "sockaddr") }?;
        if let Some(length) = length {
            length.set(bytes.len());
        }
        Ok(())
    })
}

fn to_sockaddr(address: SocketAddr) -> Vec<u8> {
    let (family, len) = match address {
        SocketAddr::V4(_) => (AF_INET, SOCKADDR_IN_BYTES),
        SocketAddr::V6(_) => (AF_INET6, SOCKADDR_IN6_BYTES),
    };
    let start = match HAS_LENGTH {
        true => [len as u8, family],
        false => u16::from(family).to_ne_bytes(),
    };
    let mut bytes = vec![0; len];
    bytes[..2].copy_from_slice(&start);
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => bytes[4..8].copy_from_slice(&v4.ip().octets()),
        SocketAddr::V6(v6) => {
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_from_every_form() {
        for text in ["192.0.2.1:7400", "[2001:db8::1]:1", "[fe80::1%1]:65535", "[ff02::1%1]:9"] {
            // The standard library's parser keeps the zones of groups.
            let address: SocketAddr = text.parse().unwrap();
            let form = lacuna_address::of(address);
            // SAFETY: a local variable.
            assert_eq!(unsafe { lacuna_address::given(&raw const form, "x") }.unwrap(), address);
            assert_eq!(of_sockaddr(&to_sockaddr(address)).unwrap(), address);
        }
    }

    #[test]
    fn equal_addresses_are_equal_bytes() {
        let mapped = lacuna_address::of("[::ffff:192.0.2.1]:7".parse().unwrap());
        let plain = lacuna_address::of("192.0.2.1:7".parse().unwrap());
        assert_eq!((mapped.ip, mapped.scope, mapped.port), (plain.ip, plain.scope, plain.port));
        assert_eq!(lacuna_address::of("[2001:db8::1%3]:7".parse().unwrap()).scope, 0);
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let v4 = to_sockaddr("192.0.2.1:7".parse().unwrap());
        let v6 = to_sockaddr("[2001:db8::1]:7".parse().unwrap());
        assert!(of_sockaddr(&[]).is_err() && of_sockaddr(&v4[..7]).is_err());
        assert!(of_sockaddr(&v6[..27]).is_err() && of_sockaddr(&[0; 28]).is_err());
        let no_zone = lacuna_address::of("[fe80::1]:7".parse().unwrap());
        // SAFETY: a local variable, or refused.
        unsafe {
            assert!(lacuna_address::given(&raw const no_zone, "x").is_err());
            assert!(lacuna_address::given(std::ptr::null(), "x").is_err());
        }
    }
}
