//! A second socket on the same port, connected to the peer that everything goes to.
//!
//! For each message of a socket that is not connected the kernel checks the address and looks up
//! the route: over loopback 0.35 of 3.0 us. So once some bursts in a row went to one destination, a
//! socket is connected to it. What comes from there fits it better, and the kernel hands it to that
//! socket; everything else comes to the first as before. So nothing is lost when it appears, and
//! nobody above has to know. When as many bursts in a row went elsewhere it goes, once it is empty.
//!
//! What a socket for any address sends has the source that the route of the moment says, and a
//! connected one keeps that of the first moment. So beside such a socket the route is asked again
//! every second, and where it says another source the connected socket goes, too, and makes room for
//! one with that.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use super::receive::batching::Pile;
use super::receive::small::{Lone, Look};
use super::{UdpConfig, setup, syscall};

/// Bursts in a row to one destination that are worth a socket, which costs some 30 us and is
/// earned back after a hundred packets (a judgement).
const ROW: u32 = 64;

/// What comes from others is looked for after so many weights of looks for what comes from the one:
/// every 32nd time if that brought something, every 16th if not. To look costs 0.3 us, which what
/// comes from the one should not wait for (a judgement).
const OTHERS_EVERY: u32 = 32 * LOOK;
const LOOK: u32 = 8;
const EMPTY_LOOK: u32 = 2 * LOOK;
/// While somebody looks for lone packets and does nothing else, every 16th would come late.
const EMPTY_PLAIN_LOOK: u32 = 1;

/// And among lone packets whenever that was so long ago. (In bulk a receive takes longer.)
const OTHERS_EVERY_NS: u64 = 20_000;
/// Or so long ago, right behind a burst: what answers it is not here yet, so that nothing waits for
/// that look. It takes as long as a look for lone packets and a half.
const OTHERS_BEHIND_BURST_NS: u64 = 10_000;

/// How often a route is asked for the source that it says, beside a socket for any address: that
/// takes some microseconds (a judgement).
const ROUTE_EVERY_NS: u64 = 1_000_000_000;

/// From one try to make the socket to the next (a judgement).
const AGAIN_NS: u64 = 1_000_000_000;

/// See the module's text.
pub(super) struct Favourite {
    /// Where the last burst went, and how many before it in a row.
    to: Option<SocketAddr>,
    row: u32,
    made: Option<Connected>,
    /// It could not be had: not tried again before.
    not_before_ns: u64,
    /// Weights of looks since what comes from others was looked for.
    looks: u32,
    /// When that was.
    others_ns: u64,
    /// A burst went since the last look.
    is_behind_burst: bool,
    /// The first socket may still hold what came from the one before there was
    /// another: it is emptied first, so that all stays in order.
    may_hold_older: bool,
    /// What those before have dropped.
    dropped: u64,
}

pub(super) struct Connected {
    pub(super) socket: UdpSocket,
    /// How many messages to ask for next.
    pub(super) receive_messages: usize,
    pub(super) to: SocketAddr,
    /// How packets come to it.
    pub(super) lone: Lone,
    /// Whether they are let lie.
    pub(super) pile: Pile,
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

impl Favourite {
    pub(super) fn new() -> Self {
        Self {
            to: None,
            row: 0,
            made: None,
            not_before_ns: 0,
            looks: 0,
            others_ns: 0,
            is_behind_burst: false,
            may_hold_older: false,
            dropped: 0,
        }
    }

    /// A burst is about to go to `to` (as the socket says it): by the connected
    /// socket, if there is one that goes there.
    #[inline]
    pub(super) fn on_burst(
        &mut self,
        now_ns: u64,
        to: SocketAddr,
        first: &UdpSocket,
        config: &UdpConfig,
    ) -> Option<BorrowedFd<'_>> {
        if self.to != Some(to) {
            (self.to, self.row) = (Some(to), 0);
        }
        self.row = self.row.saturating_add(1);
        self.is_behind_burst = true;
        if self.row >= ROW && self.made.is_none() && now_ns >= self.not_before_ns {
            self.make(now_ns, to, first, config);
        }
        let made = self.made.as_mut()?;
        let is_there = made.to == to && made.has_source(now_ns);
        if self.row >= ROW {
            made.is_over = !is_there;
        }
        is_there.then(|| made.socket.as_fd())
    }

    /// Makes the connected socket, if it is to be had.
    #[cold]
    fn make(&mut self, now_ns: u64, to: SocketAddr, first: &UdpSocket, config: &UdpConfig) {
        self.made = Connected::new(now_ns, to, first, config).ok();
        self.may_hold_older = true;
        if self.made.is_none() {
            // No route, no descriptor: it may pass.
            self.not_before_ns = now_ns.saturating_add(AGAIN_NS);
        }
    }

    pub(super) fn made(&mut self) -> Option<&mut Connected> {
        self.made.as_mut()
    }

    /// The connected socket was looked at, and was found empty or not.
    pub(super) fn on_look(&mut self, look: Look, is_empty: bool) {
        self.looks += match (look, is_empty) {
            (_, false) => LOOK,
            (Look::Plain, true) => EMPTY_PLAIN_LOOK,
            (_, true) => EMPTY_LOOK,
        };
        if !is_empty {
            return;
        }
        if let Some(over) = self.made.take_if(|made| made.is_over) {
            self.dropped += over.drops();
        }
    }

    /// Whether it is time to look for what comes to the first socket.
    pub(super) fn is_for_others(&mut self, now_ns: u64) -> bool {
        let every_ns = match std::mem::take(&mut self.is_behind_burst) {
            true => OTHERS_BEHIND_BURST_NS,
            false => OTHERS_EVERY_NS,
        };
        let is_for_others = self.made.is_none()
            || self.may_hold_older
            || self.looks >= OTHERS_EVERY
            || (self.made.as_ref().is_some_and(|made| made.lone.is_on())
                && now_ns.saturating_sub(self.others_ns) >= every_ns);
        if is_for_others {
            (self.looks, self.others_ns) = (0, now_ns);
        }
        is_for_others
    }

    /// The first socket was found empty.
    pub(super) fn on_no_others(&mut self) {
        self.may_hold_older = false;
    }

    /// The connected socket, if there is one.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.made.as_ref().map(|made| made.socket.as_fd())
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
        let granted = super::offload::set_options(&socket, config);
        socket.connect(peer)?;
        let source = match config.local.ip().is_unspecified() {
            true => Some(socket.local_addr()?.ip()),
            false => None,
        };
        let lone = Lone::new(granted);
        let pile = Pile::new(setup::receive_buffer_bytes(&socket));
        Ok(Self {
            socket,
            receive_messages: 1,
            to,
            lone,
            pile,
            source,
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
            let said = setup::source_towards(setup::from_wire(self.to));
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

    #[test]
    fn who_is_everybodys_peer_again_has_the_socket_that_was_not_gone_yet() {
        let config = UdpConfig::new((Ipv4Addr::UNSPECIFIED, 0).into());
        let first = setup::bind(&config).unwrap();
        let mut favourite = Favourite::new();
        let mut burst = |port: u16| {
            let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            favourite.on_burst(0, to, &first, &config).is_some()
        };
        while !burst(4791) {}
        assert!((0..ROW).all(|_| !burst(4792)), "one socket at a time");
        assert!((0..ROW).all(|_| burst(4791)));
        favourite.on_look(Look::Whole, true);
        assert!(favourite.made().is_some());
    }

    #[test]
    fn a_socket_that_could_not_be_had_is_tried_again_after_a_while() {
        let config = UdpConfig::new((Ipv4Addr::LOCALHOST, 0).into());
        let first = setup::bind(&config).unwrap();
        let mut favourite = Favourite::new();
        let mut bursts = |now_ns, to: &str| {
            let to = to.parse().unwrap();
            (0..2 * ROW).any(|_| favourite.on_burst(now_ns, to, &first, &config).is_some())
        };
        // A socket of IPv4 cannot be connected there.
        assert!(!bursts(5, "[::1]:9"));
        assert!(!bursts(AGAIN_NS, "127.0.0.1:9"), "too early");
        assert!(bursts(AGAIN_NS + 5, "127.0.0.1:9"));
    }

    #[test]
    fn a_peer_of_ipv4_gets_a_socket_of_ipv4_beside_one_that_speaks_both() {
        let config = UdpConfig::new((Ipv6Addr::UNSPECIFIED, 0).into());
        let first = setup::bind(&config).unwrap();
        let mut favourite = Favourite::new();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 4791));
        let to = setup::to_wire(to, first.local_addr().unwrap().is_ipv6());
        while favourite.on_burst(0, to, &first, &config).is_none() {}
        let made = favourite.made().unwrap();
        let local = made.socket.local_addr().unwrap();
        assert_eq!(local, (Ipv4Addr::LOCALHOST, first.local_addr().unwrap().port()).into());
    }

    #[test]
    fn a_connected_socket_goes_when_the_route_says_another_source() {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, 4791));
        for ip in [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into(), LOCALHOST] {
            let config = UdpConfig::new((ip, 0).into());
            let first = setup::bind(&config).unwrap();
            let to = setup::to_wire(to, first.local_addr().unwrap().is_ipv6());
            let mut favourite = Favourite::new();
            let burst = |now_ns, favourite: &mut Favourite| {
                favourite.on_burst(now_ns, to, &first, &config).is_some()
            };
            while !burst(0, &mut favourite) {}
            assert!(burst(3 * ROUTE_EVERY_NS, &mut favourite), "the source of the route");
            let Some(made) = favourite.made() else { panic!("a socket that just sent") };
            let is_for_any = ip.is_unspecified();
            assert_eq!(made.source, is_for_any.then_some(Ipv4Addr::LOCALHOST.into()));
            if !is_for_any {
                continue;
            }
            // As if the route had changed meanwhile.
            made.source = Some([127, 0, 0, 2].into());
            assert!(burst(4 * ROUTE_EVERY_NS - 1, &mut favourite), "not asked yet");
            assert!(!burst(4 * ROUTE_EVERY_NS, &mut favourite));
            favourite.on_look(Look::Whole, true);
            assert!(burst(4 * ROUTE_EVERY_NS, &mut favourite), "one with the new source");
        }
    }
}
