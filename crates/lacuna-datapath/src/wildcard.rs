//! Dual-stack sockets: the wildcard address `[::]` stands for all IPv6 and IPv4 addresses of this
//! host.
//!
//! A socket bound to `[::]` takes IPv4 too (RFC 3493, sections 3.7 and 5.3), whatever the system's
//! default (Linux: `net.ipv6.bindv6only`). On a host without IPv6 the socket is bound to `0.0.0.0`
//! instead, so a program can ask for all addresses without knowing the host. An IPv4-mapped address
//! (`::ffff:192.0.2.1`) gets an IPv4 socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::Socket;

/// Whether the system has dual-stack sockets; OpenBSD and DragonFly have not.
const HAS_DUAL_STACK: bool = !cfg!(any(target_os = "openbsd", target_os = "dragonfly"));

/// Whether a socket bound to `local` takes IPv4, and whether it takes IPv6.
#[must_use]
pub fn families(local: SocketAddr) -> (bool, bool) {
    (local.is_ipv4() || (is_wildcard(local) && HAS_DUAL_STACK), local.is_ipv6())
}

pub(crate) fn is_wildcard(local: SocketAddr) -> bool {
    local.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
}

/// Calls `make` for `local`, and again for `0.0.0.0` if `local` is `[::]` and the error of the first
/// call means that this host has no IPv6. `reason` extracts the system's error.
pub(crate) fn with_ipv4_fallback<T, E>(
    local: SocketAddr,
    make: impl Fn(SocketAddr) -> Result<T, E>,
    reason: impl Fn(&E) -> &io::Error,
) -> Result<T, E> {
    let local = unmapped(local);
    match make(local) {
        Err(error) if is_wildcard(local) && means_no_ipv6(reason(&error)) => {
            make((Ipv4Addr::UNSPECIFIED, local.port()).into())
        }
        made => made,
    }
}

/// Makes a socket for `[::]` take IPv4 too. On a system without dual-stack sockets it takes IPv6
/// only.
pub(crate) fn set_dual_stack(socket: &Socket, local: SocketAddr) {
    if is_wildcard(local) {
        let _ = socket.set_only_v6(false);
    }
}

/// Turns an IPv4-mapped IPv6 address into the IPv4 address; leaves others as they are.
pub(crate) fn unmapped(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Whether the error means that the host has no IPv6: a kernel without IPv6 refuses the socket, and
/// some sandboxes make one but refuse to bind it even to `::`.
fn means_no_ipv6(error: &io::Error) -> bool {
    #[cfg(unix)]
    const UNSUPPORTED: i32 = libc::EAFNOSUPPORT;
    /// `WSAEAFNOSUPPORT`.
    #[cfg(not(unix))]
    const UNSUPPORTED: i32 = 10_047;
    error.raw_os_error() == Some(UNSUPPORTED) || error.kind() == io::ErrorKind::AddrNotAvailable
}

/// Whether the address is link-local without a scope: it needs an interface and does not name one.
pub(crate) fn lacks_zone(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// The addresses that are tried when the system answers `answer` for IPv6, and whether one worked.
    fn tried(local: &str, answer: io::Error) -> (Vec<String>, bool) {
        let tried = RefCell::new(Vec::new());
        let answer = RefCell::new(Some(answer));
        let make = |local: SocketAddr| {
            tried.borrow_mut().push(local.to_string());
            match local {
                SocketAddr::V4(_) => Ok(()),
                SocketAddr::V6(_) => Err(answer.take().expect("tried once")),
            }
        };
        let made = with_ipv4_fallback(local.parse().unwrap(), make, |error| error);
        (tried.into_inner(), made.is_ok())
    }

    #[cfg(unix)]
    #[test]
    fn without_ipv6_the_wildcard_is_that_of_ipv4() {
        for number in [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL] {
            let error = || io::Error::from_raw_os_error(number);
            let both = vec!["[::]:7400".to_owned(), "0.0.0.0:7400".to_owned()];
            assert_eq!(tried("[::]:7400", error()), (both, true));
            // For one specific IPv6 address there is no fallback.
            assert_eq!(tried("[::1]:7400", error()), (vec!["[::1]:7400".to_owned()], false));
        }
        let taken = io::Error::from_raw_os_error(libc::EADDRINUSE);
        assert_eq!(tried("[::]:7400", taken), (vec!["[::]:7400".to_owned()], false));
    }

    #[test]
    fn a_mapped_address_is_one_of_ipv4() {
        let nothing = io::Error::from(io::ErrorKind::Other);
        let tried = tried("[::ffff:192.0.2.1]:7400", nothing);
        assert_eq!(tried, (vec!["192.0.2.1:7400".to_owned()], true));
    }

    #[test]
    fn only_link_local_addresses_need_a_zone() {
        for (address, lacks) in [
            ("[fe80::1]:1", true),
            ("[febf::1]:1", true),
            ("[fe80::1%3]:1", false),
            ("[fec0::1]:1", false),
            ("[2001:db8::1]:1", false),
            ("[::1]:1", false),
            ("169.254.0.1:1", false),
        ] {
            assert_eq!(lacks_zone(address.parse().unwrap()), lacks, "{address}");
        }
    }

    #[test]
    fn families_follow_from_the_address() {
        for (address, taken) in [
            ("[::]:1", (HAS_DUAL_STACK, true)),
            ("[::1]:1", (false, true)),
            ("0.0.0.0:1", (true, false)),
            ("127.0.0.1:1", (true, false)),
        ] {
            assert_eq!(families(address.parse().unwrap()), taken, "{address}");
        }
    }
}
