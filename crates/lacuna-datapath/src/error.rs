//! Errors of binding a datapath. (Errors of sending are [`SendError`](crate::SendError).)

use crate::limit::Said;
use crate::ports::PortRange;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Why a datapath could not be bound. The caller's choice of address or the environment is at
/// fault. Retrying helps for [`InUse`](BindError::InUse) and [`AllInUse`](BindError::AllInUse)
/// only, once another socket has been closed.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another socket has the address.
    #[error("cannot bind to {0}: {why}", why = in_use(.0))]
    InUse(SocketAddr),
    /// Other sockets have all ports of the range.
    #[error("cannot bind to {ip}: ports {ports} are all in use")]
    AllInUse {
        /// The IP address to bind to.
        ip: IpAddr,
        /// The range, all of which was tried.
        ports: PortRange,
    },
    /// No interface of this machine has the address.
    #[error("cannot bind to {0}: no interface has this address")]
    NotAvailable(SocketAddr),
    /// The address is link-local, so several interfaces may have it, and it does not name one.
    #[error("cannot bind to {0}: a link-local address needs its interface, as in fe80::1%eth0")]
    NoZone(SocketAddr),
    /// The process may not have the address (ports below 1024 need a privilege).
    #[error("cannot bind to {0}: permission denied")]
    Permission(SocketAddr),
    /// Any other error of the system, such as no file descriptor left.
    #[error("cannot bind to {address}: {doing}: {}", Said(source))]
    Io {
        /// The address asked for.
        address: SocketAddr,
        /// Which step failed.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn in_use(address: &SocketAddr) -> &'static str {
    match address.port() {
        0 => "all of this machine's dynamic ports are in use (sysctl net.ipv4.ip_local_port_range)",
        _ => "the address is in use",
    }
}

impl BindError {
    /// Sorts a system error of the step `doing` for `address`.
    pub(crate) fn from_io(address: SocketAddr, doing: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::AddrNotAvailable => Self::NotAvailable(address),
            io::ErrorKind::PermissionDenied => Self::Permission(address),
            _ => Self::Io { address, doing, source },
        }
    }
}
