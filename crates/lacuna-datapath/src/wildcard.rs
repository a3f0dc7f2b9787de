//! The wildcard address `[::]`: all addresses of this host, of IPv6 and of IPv4.
//!
//! A socket there takes IPv4 too (RFC 3493, sections 3.7 and 5.3), whatever the system's default for
//! that is (Linux: `net.ipv6.bindv6only`). On a host without IPv6 it is bound to `0.0.0.0` instead, so
//! that a program may ask for "everything" without knowing the host. An address of IPv4 that is
//! written as one of IPv6 (`::ffff:192.0.2.1`) is that address of IPv4: a socket for it is one of
//! IPv4.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::Socket;

/// Whether a socket at `[::]` can be had that takes IPv4 too: these systems keep the two apart.
const SPEAKS_BOTH: bool = !cfg!(any(target_os = "openbsd", target_os = "dragonfly"));

/// Whether a socket at this address takes IPv4, IPv6.
#[must_use]
pub fn families(local: SocketAddr) -> (bool, bool) {
    (local.is_ipv4() || (is_wildcard(local) && SPEAKS_BOTH), local.is_ipv6())
}

pub(crate) fn is_wildcard(local: SocketAddr) -> bool {
    local.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
}

/// Makes a socket at `local` by `make`; at `0.0.0.0` if that is `[::]` and this host has no IPv6,
/// which `reason` of the error says.
pub(crate) fn or_ipv4<T, E>(
    local: SocketAddr,
    make: impl Fn(SocketAddr) -> Result<T, E>,
    reason: impl Fn(&E) -> &io::Error,
) -> Result<T, E> {
    let local = unmapped(local);
    match make(local) {
        Err(error) if is_wildcard(local) && is_without_ipv6(reason(&error)) => {
            make((Ipv4Addr::UNSPECIFIED, local.port()).into())
        }
        made => made,
    }
}

/// Lets a socket for all addresses take IPv4 too. Where a system does not know that, it takes IPv6
/// only.
pub(crate) fn speak_both(socket: &Socket, local: SocketAddr) {
    if is_wildcard(local) {
        let _ = socket.set_only_v6(false);
    }
}

/// An address of IPv4 as such.
fn unmapped(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => (ip, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// Whether that is the error of a host without IPv6: a kernel without the protocol makes no socket,
/// and some sandboxes make one that has not even `::`.
fn is_without_ipv6(error: &io::Error) -> bool {
    #[cfg(unix)]
    const UNSUPPORTED: i32 = libc::EAFNOSUPPORT;
    /// `WSAEAFNOSUPPORT`.
    #[cfg(not(unix))]
    const UNSUPPORTED: i32 = 10_047;
    error.raw_os_error() == Some(UNSUPPORTED) || error.kind() == io::ErrorKind::AddrNotAvailable
}

/// Whether an address is good only together with an interface that it does not name: link-local, and
/// without a scope.
pub(crate) fn lacks_zone(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Where sockets are tried on a host whose system answers so at addresses of IPv6.
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
        let made = or_ipv4(local.parse().unwrap(), make, |error| error);
        (tried.into_inner(), made.is_ok())
    }

    #[cfg(unix)]
    #[test]
    fn without_ipv6_everything_is_all_of_ipv4() {
        for number in [libc::EAFNOSUPPORT, libc::EADDRNOTAVAIL] {
            let error = || io::Error::from_raw_os_error(number);
            let both = vec!["[::]:7400".to_owned(), "0.0.0.0:7400".to_owned()];
            assert_eq!(tried("[::]:7400", error()), (both, true));
            // Who asks for one address of IPv6 gets that or none.
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
    fn what_is_taken_follows_from_the_address() {
        for (address, taken) in [
            ("[::]:1", (SPEAKS_BOTH, true)),
            ("[::1]:1", (false, true)),
            ("0.0.0.0:1", (true, false)),
            ("127.0.0.1:1", (true, false)),
        ] {
            assert_eq!(families(address.parse().unwrap()), taken, "{address}");
        }
    }
}
