//! A connected socket for the peer that receives nearly all packets, on the same port as the first
//! socket, which is not connected.
//!
//! For each message of an unconnected socket the kernel checks the address and looks up the route.
//! So after [`BURSTS_IN_ROW_MIN`] bursts in a row to one destination, a socket is connected to it.
//! Measured: M-udp-3. The kernel delivers that peer's packets to the connected socket, because it is
//! the closer match, and all others to the first socket. So no packet is lost when the connected
//! socket appears, and the layers above need not know. After as many bursts in a row to another
//! destination it is closed, once it is empty.
//!
//! Packets of a socket bound to any address have the source address of the current route; a connected
//! socket keeps the source address that it got when it was connected. So if the first socket is bound
//! to any address, the route is checked every second. If its source has changed, the connected socket
//! is not used any more and is replaced.
//!
//! The kernel numbers the packets of a connected socket with IP identifications that count up; those
//! of other sockets are 0 (or, in a segmented bundle, begin at 0). [`UdpConfig::connects_peer`] switches
//! connected sockets off.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use super::options::Granted;
use super::{UdpConfig, setup, syscall};

/// Bursts in a row to one destination after which it gets a connected socket. Making one costs some
/// 30 us, which a hundred packets save (a judgement).
const BURSTS_IN_ROW_MIN: u32 = 64;

/// Interval at which the route's source address is checked; a check takes some microseconds (a
/// judgement).
const ROUTE_CHECK_INTERVAL_NS: u64 = 1_000_000_000;

/// Pause after a failed attempt to make the socket (a judgement).
const RETRY_PAUSE_NS: u64 = 1_000_000_000;

/// Decides when there is a connected socket, and owns it; see the module's text.
pub(super) struct Connector {
    is_allowed: bool,
    /// Destination of the last burst.
    to: Option<SocketAddr>,
    /// Bursts in a row to `to`.
    bursts_in_row: u32,
    connected: Option<Connected>,
    /// After a failed attempt: no other before this time.
    retry_ns: u64,
    /// Packets that earlier connected sockets dropped.
    dropped: u64,
}

/// A connected socket.
pub(super) struct Connected {
    pub(super) socket: UdpSocket,
    pub(super) peer: SocketAddr,
    /// The local address of its packets, if the configuration asks for it.
    pub(super) local: Option<IpAddr>,
    pub(super) granted: Granted,
    /// It may have packets of others, which came between its binding and its connecting: until it was empty once.
    pub(super) is_fresh: bool,
    /// The peer in the first socket's address family (IPv4-mapped in an IPv6 socket).
    to: SocketAddr,
    /// Source address of its packets, to be compared with the route's; `None` if the first socket is
    /// bound to one address.
    source: Option<IpAddr>,
    /// When the route was checked last.
    route_checked_ns: u64,
    /// The route has another source address.
    is_stale: bool,
    /// The last [`BURSTS_IN_ROW_MIN`] bursts did not use it.
    is_unused: bool,
}

impl Connector {
    pub(super) fn new(config: &UdpConfig) -> Self {
        Self {
            is_allowed: config.connects_peer,
            to: None,
            bursts_in_row: 0,
            connected: None,
            retry_ns: 0,
            dropped: 0,
        }
    }

    /// Allows connected sockets from now on, or not. One that is there is not used any more then, and closed once
    /// it is empty.
    pub(super) fn allow(&mut self, is_allowed: bool) {
        self.is_allowed = is_allowed;
        if let Some(connected) = &mut self.connected {
            connected.is_unused = !is_allowed;
        }
    }

    /// Counts a burst to `to` (in the first socket's address family). Returns whether a connected
    /// socket is due; the caller then calls [`Connector::make`].
    #[inline]
    pub(super) fn wants(&mut self, now_ns: u64, to: SocketAddr) -> bool {
        if self.to != Some(to) {
            (self.to, self.bursts_in_row) = (Some(to), 0);
        }
        self.bursts_in_row = self.bursts_in_row.saturating_add(1);
        self.bursts_in_row >= BURSTS_IN_ROW_MIN
            && self.connected.is_none()
            && self.is_allowed
            && now_ns >= self.retry_ns
    }

    /// Makes the connected socket and returns the size of its receive buffer; `None` if that fails.
    #[cold]
    pub(super) fn make(
        &mut self,
        now_ns: u64,
        to: SocketAddr,
        first: &UdpSocket,
        config: &UdpConfig,
    ) -> Option<usize> {
        self.connected = Connected::new(now_ns, to, first, config).ok();
        if self.connected.is_none() {
            // No route or no descriptor, for example: it may succeed later.
            self.retry_ns = now_ns.saturating_add(RETRY_PAUSE_NS);
        }
        self.connected.as_ref().map(|connected| setup::receive_buffer_bytes(&connected.socket))
    }

    /// The connected socket, if there is one for `to` whose source address is current.
    #[inline]
    pub(super) fn socket_to(&mut self, now_ns: u64, to: SocketAddr) -> Option<BorrowedFd<'_>> {
        let connected = self.connected.as_mut().filter(|_| self.is_allowed)?;
        let is_there = connected.to == to && connected.has_source(now_ns);
        if self.bursts_in_row >= BURSTS_IN_ROW_MIN {
            connected.is_unused = !is_there;
        }
        is_there.then(|| connected.socket.as_fd())
    }

    /// The connected socket, if there is one.
    pub(super) fn connected(&self) -> Option<&Connected> {
        self.connected.as_ref()
    }

    /// Its descriptor.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.connected.as_ref().map(|connected| connected.socket.as_fd())
    }

    /// Called when the connected socket is empty: closes it if it is unused, and returns whether it
    /// did.
    pub(super) fn close_if_unused(&mut self) -> bool {
        if let Some(connected) = &mut self.connected {
            connected.is_fresh = false;
        }
        let unused = self.connected.take_if(|connected| connected.is_unused);
        self.dropped += unused.as_ref().map_or(0, Connected::drops);
        unused.is_some()
    }

    /// Fills in the local address of received packets.
    pub(super) fn tell_local(&mut self) {
        if let Some(connected) = &mut self.connected {
            let local = connected.socket.local_addr();
            connected.local = local.ok().map(|local| local.ip().to_canonical());
        }
    }

    /// Packets that all connected sockets have dropped so far.
    pub(super) fn receive_drops(&self) -> u64 {
        self.dropped + self.connected.as_ref().map_or(0, Connected::drops)
    }
}

impl Connected {
    fn new(now_ns: u64, to: SocketAddr, first: &UdpSocket, config: &UdpConfig) -> io::Result<Self> {
        let peer = setup::unmapped(to);
        let socket = setup::bind_beside(first, peer, config)?;
        let granted = Granted::request(&socket, config);
        socket.connect(peer)?;
        let ip = socket.local_addr()?.ip();
        Ok(Self {
            socket,
            peer,
            local: config.tells_local.then(|| ip.to_canonical()),
            granted,
            is_fresh: true,
            to,
            source: config.local.ip().is_unspecified().then_some(ip),
            route_checked_ns: now_ns,
            is_stale: false,
            is_unused: false,
        })
    }

    /// Whether its packets have the source address of the current route.
    fn has_source(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.route_checked_ns) >= ROUTE_CHECK_INTERVAL_NS;
        if let Some(source) = self.source
            && is_due
        {
            self.route_checked_ns = now_ns;
            // Without a route, sending fails on either socket, so nothing changes here.
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

    /// A first socket and its connector.
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
            let to = setup::to_socket_family(to, self.first.local_addr().unwrap().is_ipv6());
            if self.connector.wants(now_ns, to) {
                self.connector.make(now_ns, to, &self.first, &self.config);
            }
            self.connector.socket_to(now_ns, to).is_some()
        }
    }

    fn to(port: u16) -> SocketAddr {
        (LOCALHOST, port).into()
    }

    #[test]
    fn a_peer_that_receives_all_packets_again_has_the_socket_that_was_not_gone_yet() {
        let mut sockets = Sockets::at(Ipv4Addr::UNSPECIFIED);
        while !sockets.burst(0, to(4791)) {}
        assert!(
            (0..BURSTS_IN_ROW_MIN).all(|_| !sockets.burst(0, to(4792))),
            "one socket at a time"
        );
        assert!((0..BURSTS_IN_ROW_MIN).all(|_| sockets.burst(0, to(4791))));
        assert!(!sockets.connector.close_if_unused());
        assert!(sockets.connector.connected().is_some());
    }

    #[test]
    fn a_socket_that_could_not_be_had_is_tried_again_after_a_while() {
        let mut sockets = Sockets::at(LOCALHOST);
        let mut bursts = |now_ns, to: &str| {
            (0..2 * BURSTS_IN_ROW_MIN).any(|_| sockets.burst(now_ns, to.parse().unwrap()))
        };
        // An IPv4 socket cannot be connected to an IPv6 address.
        assert!(!bursts(5, "[::1]:9"));
        assert!(!bursts(RETRY_PAUSE_NS, "127.0.0.1:9"), "too early");
        assert!(bursts(RETRY_PAUSE_NS + 5, "127.0.0.1:9"));
    }

    #[test]
    fn there_is_none_where_it_is_switched_off() {
        let config = UdpConfig { connects_peer: false, ..UdpConfig::new((LOCALHOST, 0).into()) };
        let mut sockets = Sockets::new(config);
        assert!(!(0..4 * BURSTS_IN_ROW_MIN).any(|_| sockets.burst(0, to(4791))));
    }

    #[test]
    fn it_is_not_used_and_closed_once_it_is_not_allowed_any_more() {
        let config = UdpConfig { connects_peer: false, ..UdpConfig::new((LOCALHOST, 0).into()) };
        let mut sockets = Sockets::new(config);
        sockets.connector.allow(true);
        while !sockets.burst(0, to(4791)) {}
        sockets.connector.allow(false);
        assert!(!(0..4 * BURSTS_IN_ROW_MIN).any(|_| sockets.burst(0, to(4791))));
        assert!(sockets.connector.close_if_unused());
        assert!(sockets.connector.connected().is_none());
    }

    #[test]
    fn a_peer_of_ipv4_gets_a_socket_of_ipv4_beside_one_that_speaks_both() {
        let mut sockets = Sockets::at(Ipv6Addr::UNSPECIFIED);
        while !sockets.burst(0, to(4791)) {}
        let local = sockets.connector.connected().unwrap().socket.local_addr().unwrap();
        assert_eq!(local, (LOCALHOST, sockets.first.local_addr().unwrap().port()).into());
    }

    #[test]
    fn a_connected_socket_goes_when_the_route_says_another_source() {
        for ip in [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into(), LOCALHOST] {
            let mut sockets = Sockets::at(ip);
            while !sockets.burst(0, to(4791)) {}
            assert!(
                sockets.burst(3 * ROUTE_CHECK_INTERVAL_NS, to(4791)),
                "the source of the route"
            );
            let connected = sockets.connector.connected.as_mut().unwrap();
            let is_for_any = ip.is_unspecified();
            assert_eq!(connected.source, is_for_any.then_some(LOCALHOST));
            if !is_for_any {
                continue;
            }
            // As if the route had changed meanwhile.
            connected.source = Some([127, 0, 0, 2].into());
            assert!(sockets.burst(4 * ROUTE_CHECK_INTERVAL_NS - 1, to(4791)), "not asked yet");
            assert!(!sockets.burst(4 * ROUTE_CHECK_INTERVAL_NS, to(4791)));
            assert!(sockets.connector.close_if_unused());
            assert!(
                sockets.burst(4 * ROUTE_CHECK_INTERVAL_NS, to(4791)),
                "one with the new source"
            );
        }
    }
}
