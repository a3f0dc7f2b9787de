//! What can go wrong when a datapath is bound. (What can go wrong when it sends is
//! [`SendError`](crate::SendError).)

use crate::limit::Said;
use crate::ports::PortRange;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Why a datapath could not be bound. The caller's choice of address or the environment is at
/// fault; trying the same again helps for [`InUse`](BindError::InUse) and [`AllInUse`](BindError::AllInUse) only, once an other
/// party has gone.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Someone else has the address.
    #[error("cannot bind to {0}: {why}", why = in_use(.0))]
    InUse(SocketAddr),
    /// Others have all ports of a range.
    #[error("cannot bind to {ip}: ports {ports} are all in use")]
    AllInUse {
        /// Where they were asked for.
        ip: IpAddr,
        /// All of them.
        ports: PortRange,
    },
    /// No interface of this machine has the address.
    #[error("cannot bind to {0}: no interface has this address")]
    NotAvailable(SocketAddr),
    /// The address is link-local, which several interfaces may have, and does not say which one
    /// is meant.
    #[error("cannot bind to {0}: a link-local address needs its interface, as in fe80::1%eth0")]
    NoZone(SocketAddr),
    /// The process may not have the address (ports below 1024 need a privilege).
    #[error("cannot bind to {0}: permission denied")]
    Permission(SocketAddr),
    /// Anything else the system said, such as that there is no descriptor left.
    #[error("cannot bind to {address}: {doing}: {}", Said(source))]
    Io {
        /// The address asked for.
        address: SocketAddr,
        /// Which step failed.
        doing: &'static str,
        /// What the system said.
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
    /// Sorts a system error that came up while `doing` something for `address`.
    pub(crate) fn from_io(address: SocketAddr, doing: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(address),
            io::ErrorKind::AddrNotAvailable => Self::NotAvailable(address),
            io::ErrorKind::PermissionDenied => Self::Permission(address),
            _ => Self::Io { address, doing, source },
        }
    }
}
