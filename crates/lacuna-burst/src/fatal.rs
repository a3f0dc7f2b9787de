//! Fatal errors: the one table of system errors after which a socket is unusable.
//!
//! A host refuses packets for many reasons, and nearly all of them are temporary: a firewall rule or a
//! full connection table (`EPERM`), a prohibiting, blackhole or missing route (`EACCES`, `EINVAL`,
//! `EHOSTUNREACH`, `ENETUNREACH`), an address or interface that is down for a moment (`EADDRNOTAVAIL`,
//! `ENETDOWN`), no memory or descriptors (`ENOBUFS`, `EMFILE`). A list of temporary errors is never
//! complete: kernels and security modules add to it. So the table has the few permanent ones. Any other
//! error costs only the packet or the connection that it is about.

use std::io;

/// The error numbers.
#[cfg(unix)]
mod code {
    pub(super) use libc::{
        EAFNOSUPPORT, EBADF, EFAULT, EINVAL, ENOSYS, ENOTSOCK, EOPNOTSUPP, EPIPE,
    };
}
/// The error numbers of Winsock.
#[cfg(not(unix))]
mod code {
    pub(super) const EBADF: i32 = 10_009;
    pub(super) const EFAULT: i32 = 10_014;
    pub(super) const EINVAL: i32 = 10_022;
    pub(super) const ENOTSOCK: i32 = 10_038;
    pub(super) const EOPNOTSUPP: i32 = 10_045;
    pub(super) const EAFNOSUPPORT: i32 = 10_047;
    pub(super) const EPIPE: i32 = 10_058;
    pub(super) const ENOSYS: i32 = 10_092;
}

/// The kind of socket that an error makes unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    /// Any socket.
    Any,
    /// A datagram socket.
    Packets,
    /// A listening socket.
    Listener,
}

/// The fatal errors; see the module's text.
const TABLE: &[(i32, Ends, &str)] = &[
    (code::EBADF, Ends::Any, "its descriptor is closed"),
    (code::ENOTSOCK, Ends::Any, "its descriptor is something else now"),
    (code::EFAULT, Ends::Any, "the system cannot reach the memory that it was given"),
    (code::ENOSYS, Ends::Any, "the system does not know the call"),
    // A blackhole route causes it, too, so it is temporary for datagram sockets.
    (code::EINVAL, Ends::Listener, "it does not listen any more"),
    // `accept` of Linux also returns errors of the new connection (`accept(2)`), this one among them, so
    // it is temporary for listeners.
    (code::EOPNOTSUPP, Ends::Packets, "the system does not offer the call for it"),
    (code::EAFNOSUPPORT, Ends::Packets, "it does not speak the protocol of that address"),
    (code::EPIPE, Ends::Packets, "it was shut down"),
];

/// Why a datagram socket is unusable after this error; `None` if the error is temporary.
#[must_use]
pub fn ends_socket(error: &io::Error) -> Option<&'static str> {
    reason(error, Ends::Packets)
}

/// Why a listening socket is unusable after this error; `None` if the error is temporary.
#[must_use]
pub fn ends_listener(error: &io::Error) -> Option<&'static str> {
    reason(error, Ends::Listener)
}

fn reason(error: &io::Error, kind: Ends) -> Option<&'static str> {
    let code = error.raw_os_error()?;
    let row = TABLE.iter().find(|row| row.0 == code && (row.1 == Ends::Any || row.1 == kind));
    row.map(|(_, _, why)| *why)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::SendError;

    fn error(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    #[test]
    fn what_a_host_says_when_it_refuses_a_packet_for_a_moment_ends_nothing() {
        for code in [
            libc::EPERM,
            libc::EACCES,
            libc::EINVAL,
            libc::EADDRNOTAVAIL,
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENETDOWN,
            libc::EHOSTDOWN,
            libc::ENODEV,
            libc::ENXIO,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::EIO,
            libc::EPROTO,
            libc::ECONNREFUSED,
            libc::ECONNABORTED,
            libc::ETIMEDOUT,
            // A number that no system uses.
            4000,
        ] {
            assert_eq!(ends_socket(&error(code)), None, "{}", error(code));
            assert!(SendError::Io(error(code)).is_transient(), "{}", error(code));
        }
        assert!(!SendError::PacketTooLarge { packet_bytes: 9000 }.is_transient());
    }

    #[test]
    fn a_connection_that_came_to_nothing_and_want_of_descriptors_end_no_listener() {
        for code in [
            libc::ECONNABORTED,
            libc::EPERM,
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::EPROTO,
            libc::ENETDOWN,
            libc::EHOSTUNREACH,
            libc::EOPNOTSUPP,
        ] {
            assert_eq!(ends_listener(&error(code)), None, "{}", error(code));
        }
    }

    #[test]
    fn only_what_cannot_mend_ends_a_socket() {
        for code in [libc::EBADF, libc::ENOTSOCK, libc::EFAULT] {
            assert!(ends_socket(&error(code)).is_some(), "{}", error(code));
            assert!(ends_listener(&error(code)).is_some(), "{}", error(code));
            assert!(!SendError::Io(error(code)).is_transient(), "{}", error(code));
        }
        assert!(ends_listener(&error(libc::EINVAL)).is_some());
        assert!(ends_socket(&error(libc::EPIPE)).is_some());
    }

    /// A real answer of the system.
    #[test]
    fn a_socket_of_the_other_protocol_never_gets_there() {
        let v4 = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let Err(refused) = v4.send_to(b"", "[::1]:9") else { panic!("it speaks IPv4") };
        assert!(ends_socket(&refused).is_some(), "{refused}");
    }
}
