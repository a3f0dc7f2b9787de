//! The address with which this end appears in a capture.
//!
//! A socket that is bound to all addresses sends from whichever the system's routes give it, which
//! the socket itself never says. Another one, connected to the same peer, does; it sends nothing.
//! A capture asks once for each peer: of a route that changes later it shows the old address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Peers that are remembered: then all are forgotten and asked for again.
const PEERS_MAX: usize = 1024;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Local {
    bound: SocketAddr,
    /// By peer; what could not be found out stays as it is bound.
    towards: HashMap<IpAddr, IpAddr>,
}

impl Local {
    pub(super) fn new(bound: SocketAddr) -> Self {
        Self { bound, towards: HashMap::new() }
    }

    /// This end as `peer` sees it.
    pub(super) fn towards(&mut self, peer: SocketAddr) -> SocketAddr {
        let bound = self.bound;
        if !bound.ip().is_unspecified() {
            return bound;
        }
        if self.towards.len() >= PEERS_MAX && !self.towards.contains_key(&peer.ip()) {
            self.towards.clear();
        }
        let ask = || routed(peer).unwrap_or(bound.ip());
        let ip = *self.towards.entry(peer.ip()).or_insert_with(ask);
        SocketAddr::new(ip, bound.port())
    }
}

/// The address that the system sends from to `peer`.
fn routed(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}
