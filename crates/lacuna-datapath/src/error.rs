//! What can go wrong with a datapath: binding it and sending by it.
//!
//! Receiving has no error type of its own: the network cannot make it fail, and a broken socket is
//! an [`io::Error`].

use crate::limit::Said;
use std::io;
use std::net::SocketAddr;

/// Why a datapath could not be bound. The caller's choice of address or the environment is at
/// fault; trying the same again helps for [`InUse`](BindError::InUse) only, once the other party
/// has gone.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Someone else has the address.
    #[error("cannot bind to {0}: {why}", why = in_use(.0))]
    InUse(SocketAddr),
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

/// Why the first packet of a burst was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The packet is larger than the datapath or the path's first hop takes. Trying again does not
    /// help; a smaller packet does.
    #[error("a packet of {packet_bytes} bytes is larger than the path takes")]
    PacketTooLarge {
        /// The size of the packet that was refused.
        packet_bytes: usize,
    },
    /// The system refused. Trying again helps if [`SendError::is_transient`] says so.
    #[error("cannot send: {0}")]
    Io(#[from] io::Error),
}

impl SendError {
    /// Whether the same packet may go through later. Nearly everything that a system says when it
    /// refuses a packet passes; what does not is in the table behind
    /// [`ends_socket`](crate::ends_socket).
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::PacketTooLarge { .. } => false,
            Self::Io(error) => crate::ends_socket(error).is_none(),
        }
    }
}
