//! A connected socket for the peer that receives nearly all packets, on the same port as the first
//! socket, which is not connected.
//!
//! For each message of a socket that is not connected the kernel checks the address and looks up the
//! route. So once some bursts in a row went to one destination, a socket is connected to it.
//! Measured: M-udp-3. What comes from there fits it better, and the kernel hands it to that socket;
//! everything else comes to the first as before. So nothing is lost when it appears, and nobody above
//! has to know. When as many bursts in a row went elsewhere it goes, once it is empty.
//!
//! What a socket for any address sends has the source that the route of the moment says, and a
//! connected one keeps that of the first moment. So beside such a socket the route is asked again
//! every second, and where it says another source the connected socket goes, too, and makes room for
//! one with that.
//!
//! What the kernel does differently for a connected socket: its packets have IP identifications that
//! count up, where those of the others are 0 (or, of a segmented run, begin at 0).
//! [`UdpConfig::connects_peer`] switches it off.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use super::options::Granted;
use super::{UdpConfig, setup, syscall};

/// Bursts in a row to one destination that are worth a socket, which costs some 30 us and is
/// earned back after a hundred packets (a judgement).
const ROW: u32 = 64;

/// How often a route is asked for the source that it says, beside a socket for any address: that
/// takes some microseconds (a judgement).
const ROUTE_EVERY_NS: u64 = 1_000_000_000;

/// From one try to make the socket to the next (a judgement).
const AGAIN_NS: u64 = 1_000_000_000;

/// Decides when there is a connected socket, and holds it; see the module's text.
pub(super) struct Connector {
    is_allowed: bool,
    /// Where the last burst went, and how many before it in a row.
    to: Option<SocketAddr>,
    row: u32,
    made: Option<Connected>,
    /// It could not be had: not tried again before.
    not_before_ns: u64,
    /// What those before have dropped.
    dropped: u64,
}

/// A connected socket.
pub(super) struct Connected {
    pub(super) socket: UdpSocket,
    pub(super) peer: SocketAddr,
    /// What comes to it came to this address, if that is to be told.
    pub(super) local: Option<IpAddr>,
    pub(super) granted: Granted,
    /// Where it goes, as the first socket says it.
    to: SocketAddr,
    /// What it sends has this source, which may not be the route's any more: beside a socket for
    /// any address.
    source: Option<IpAddr>,
    /// When the route was asked last.
    route_ns: u64,
    /// It said another source.
    is_stale: bool,
    /// Bursts go elsewhere.
    is_over: bool,
}

impl Connector {
    pub(super) fn new(config: &UdpConfig) -> Self {
        Self {
            is_allowed: config.connects_peer,
            to: None,
            row: 0,
            made: None,
            not_before_ns: 0,
            dropped: 0,
        }
    }

    /// A burst is about to go to `to` (as the first socket says it). Whether that is to have a
    /// connected socket, which [`Connector::make`] makes.
    #[inline]
    pub(super) fn wants(&mut self, now_ns: u64, to: SocketAddr) -> bool {
        if self.to != Some(to) {
            (self.to, self.row) = (Some(to), 0);
        }
        self.row = self.row.saturating_add(1);
        self.row >= ROW && self.made.is_none() && self.is_allowed && now_ns >= self.not_before_ns
    }

    /// Makes the connected socket, and returns the size of its receive buffer; `None` if it is not to
    /// be had.
    #[cold]
    pub(super) fn make(
        &mut self,
        now_ns: u64,
        to: SocketAddr,
        first: &UdpSocket,
        config: &UdpConfig,
    ) -> Option<usize> {
        self.made = Connected::new(now_ns, to, first, config).ok();
        if self.made.is_none() {
            // No route, no descriptor: it may pass.
            self.not_before_ns = now_ns.saturating_add(AGAIN_NS);
        }
        self.made.as_ref().map(|made| setup::receive_buffer_bytes(&made.socket))
    }

    /// The connected socket, if there is one that goes to `to`.
    #[inline]
    pub(super) fn towards(&mut self, now_ns: u64, to: SocketAddr) -> Option<BorrowedFd<'_>> {
        let made = self.made.as_mut()?;
        let is_there = made.to == to && made.has_source(now_ns);
        if self.row >= ROW {
            made.is_over = !is_there;
        }
        is_there.then(|| made.socket.as_fd())
    }

    /// The connected socket, if there is one.
    pub(super) fn made(&self) -> Option<&Connected> {
        self.made.as_ref()
    }

    /// The same as a descriptor.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.made.as_ref().map(|made| made.socket.as_fd())
    }

    /// The connected socket was found empty. Whether it has gone, because bursts go elsewhere.
    pub(super) fn drop_if_over(&mut self) -> bool {
        let over = self.made.take_if(|made| made.is_over);
        self.dropped += over.as_ref().map_or(0, Connected::drops);
        over.is_some()
    }

    /// What connected sockets have dropped so far.
    pub(super) fn receive_drops(&self) -> u64 {
        self.dropped + self.made.as_ref().map_or(0, Connected::drops)
    }
}

impl Connected {
    fn new(now_ns: u64, to: SocketAddr, first: &UdpSocket, config: &UdpConfig) -> io::Result<Self> {
        let peer = setup::from_wire(to);
        let socket = setup::bind_beside(first, peer, config)?;
        let granted = Granted::ask(&socket, config);
        socket.connect(peer)?;
        let ip = socket.local_addr()?.ip();
        Ok(Self {
            socket,
            peer,
            local: config.tells_local.then(|| ip.to_canonical()),
            granted,
            to,
            source: config.local.ip().is_unspecified().then_some(ip),
            route_ns: now_ns,
            is_stale: false,
            is_over: false,
        })
    }

    /// Whether what it sends has the source that it should have.
    fn has_source(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.route_ns) >= ROUTE_EVERY_NS;
        if let Some(source) = self.source
            && is_due
        {
            self.route_ns = now_ns;
            // Without a route both sockets say so.
            let said = setup::source_towards(self.peer);
            self.is_stale = said.is_ok_and(|said| said != source);
        }
        !self.is_stale
    }

    fn drops(&self) -> u64 {
        syscall::drops(self.socket.as_fd()).map_or(0, u64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A first socket and what is beside it.
    struct Sockets {
        config: UdpConfig,
        first: UdpSocket,
        connector: Connector,
    }

    impl Sockets {
        fn new(config: UdpConfig) -> Self {
            let first = setup::bind(&config).unwrap();
            Self { first, connector: Connector::new(&config), config }
        }

        fn at(ip: impl Into<IpAddr>) -> Self {
            Self::new(UdpConfig::new((ip.into(), 0).into()))
        }

        /// Whether a burst to `to` goes by a connected socket.
        fn burst(&mut self, now_ns: u64, to: SocketAddr) -> bool {
            let to = setup::to_wire(to, self.first.local_addr().unwrap().is_ipv6());
            if self.connector.wants(now_ns, to) {
                self.connector.make(now_ns, to, &self.first, &self.config);
            }
            self.connector.towards(now_ns, to).is_some()
        }
    }

    fn to(port: u16) -> SocketAddr {
        (LOCALHOST, port).into()
    }

    #[test]
    fn a_peer_that_receives_all_packets_again_has_the_socket_that_was_not_gone_yet() {
        let mut sockets = Sockets::at(Ipv4Addr::UNSPECIFIED);
        while !sockets.burst(0, to(4791)) {}
        assert!((0..ROW).all(|_| !sockets.burst(0, to(4792))), "one socket at a time");
        assert!((0..ROW).all(|_| sockets.burst(0, to(4791))));
        assert!(!sockets.connector.drop_if_over());
        assert!(sockets.connector.made().is_some());
    }

    #[test]
    fn a_socket_that_could_not_be_had_is_tried_again_after_a_while() {
        let mut sockets = Sockets::at(LOCALHOST);
        let mut bursts =
            |now_ns, to: &str| (0..2 * ROW).any(|_| sockets.burst(now_ns, to.parse().unwrap()));
        // A socket of IPv4 cannot be connected there.
        assert!(!bursts(5, "[::1]:9"));
        assert!(!bursts(AGAIN_NS, "127.0.0.1:9"), "too early");
        assert!(bursts(AGAIN_NS + 5, "127.0.0.1:9"));
    }

    #[test]
    fn there_is_none_where_it_is_switched_off() {
        let config = UdpConfig { connects_peer: false, ..UdpConfig::new((LOCALHOST, 0).into()) };
        let mut sockets = Sockets::new(config);
        assert!(!(0..4 * ROW).any(|_| sockets.burst(0, to(4791))));
    }

    #[test]
    fn a_peer_of_ipv4_gets_a_socket_of_ipv4_beside_one_that_speaks_both() {
        let mut sockets = Sockets::at(Ipv6Addr::UNSPECIFIED);
        while !sockets.burst(0, to(4791)) {}
        let local = sockets.connector.made().unwrap().socket.local_addr().unwrap();
        assert_eq!(local, (LOCALHOST, sockets.first.local_addr().unwrap().port()).into());
    }

    #[test]
    fn a_connected_socket_goes_when_the_route_says_another_source() {
        for ip in [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into(), LOCALHOST] {
            let mut sockets = Sockets::at(ip);
            while !sockets.burst(0, to(4791)) {}
            assert!(sockets.burst(3 * ROUTE_EVERY_NS, to(4791)), "the source of the route");
            let made = sockets.connector.made.as_mut().unwrap();
            let is_for_any = ip.is_unspecified();
            assert_eq!(made.source, is_for_any.then_some(LOCALHOST));
            if !is_for_any {
                continue;
            }
            // As if the route had changed meanwhile.
            made.source = Some([127, 0, 0, 2].into());
            assert!(sockets.burst(4 * ROUTE_EVERY_NS - 1, to(4791)), "not asked yet");
            assert!(!sockets.burst(4 * ROUTE_EVERY_NS, to(4791)));
            assert!(sockets.connector.drop_if_over());
            assert!(sockets.burst(4 * ROUTE_EVERY_NS, to(4791)), "one with the new source");
        }
    }
}
