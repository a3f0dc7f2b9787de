//! The address of this end in a capture.
//!
//! The source address of a socket that is bound to all addresses depends on the route to the peer, and
//! the socket does not report it. So a second socket is connected to the peer, which sends nothing,
//! and its local address is read. That happens once per peer: if a route changes later, the capture
//! still shows the old address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Size of the cache; when it is full, it is cleared.
const PEERS_MAX: usize = 1024;

/// The address of this end, by peer; see the module's text.
#[derive(Debug)]
pub(super) struct LocalAddress {
    bound: SocketAddr,
    /// Source address by peer; the bound address where it could not be found out.
    towards: HashMap<IpAddr, IpAddr>,
}

impl LocalAddress {
    pub(super) fn new(bound: SocketAddr) -> Self {
        Self { bound, towards: HashMap::new() }
    }

    /// The address of this end in packets to and from `peer`.
    pub(super) fn towards(&mut self, peer: SocketAddr) -> SocketAddr {
        let bound = self.bound;
        if !bound.ip().is_unspecified() {
            return bound;
        }
        if self.towards.len() >= PEERS_MAX && !self.towards.contains_key(&peer.ip()) {
            self.towards.clear();
        }
        let ask = || source_of_route(peer).unwrap_or(bound.ip());
        let ip = *self.towards.entry(peer.ip()).or_insert_with(ask);
        SocketAddr::new(ip, bound.port())
    }
}

/// The source address of the route to `peer`.
fn source_of_route(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip().to_canonical())
}
