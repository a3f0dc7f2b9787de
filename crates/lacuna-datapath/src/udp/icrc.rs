//! Completes the ICRCs of packets that are sent: computes what the IP and UDP headers add.
//!
//! | header field | how it is known |
//! |---|---|
//! | source address | the socket's, or else that of the route, which is looked up again every second |
//! | ports, destination, lengths | from the socket and the packet |
//! | IPv4 flags | "don't fragment", which the sockets set (`options.rs`) |
//! | IPv4 identification | 0, and counted up within a bundle: so Linux does for sockets that are not connected and set "don't fragment" (`ip_select_ident_segs`, `inet_gso_segment`) |
//!
//! So these packets never use the connected socket (`connected.rs`), whose identifications count up
//! from a random one. If the route's source has changed, packets of less than a second have wrong
//! ICRCs and count as lost.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use lacuna_wire::{ICRC_BYTES, IcrcFlow};

use super::setup;
use crate::TxPacket;

/// Interval at which the route's source address is looked up; some microseconds each (a judgement).
const ROUTE_CHECK_INTERVAL_NS: u64 = 1_000_000_000;
/// Size of the cache of source addresses; when it is full, it is cleared.
const PEERS_MAX: usize = 1024;

/// Completes ICRCs; see the module's text.
#[derive(Debug)]
pub(super) struct IcrcSender {
    local: SocketAddr,
    /// Source address by peer and when it was looked up, if the socket is bound to any address.
    sources: HashMap<IpAddr, (IpAddr, u64)>,
    /// Of the last destination.
    flow: Option<IcrcFlow>,
}

impl IcrcSender {
    /// Of a socket that is bound to `local`.
    pub(super) fn new(local: SocketAddr) -> Self {
        Self { local, sources: HashMap::new(), flow: None }
    }

    /// For packets to `to`, in either form of an IPv4 address.
    ///
    /// # Errors
    /// When there is no route to it, which sending would show as well.
    #[inline(never)]
    pub(super) fn flow_to(&mut self, now_ns: u64, to: SocketAddr) -> io::Result<&mut IcrcFlow> {
        let to = setup::unmapped(to);
        let source = SocketAddr::new(self.source(now_ns, to)?, self.local.port());
        let flow = match self.flow.take().filter(|flow| flow.is(source, to)) {
            Some(flow) => flow,
            None => IcrcFlow::new(source, to).ok_or(io::ErrorKind::AddrNotAvailable)?,
        };
        Ok(self.flow.insert(flow))
    }

    fn source(&mut self, now_ns: u64, to: SocketAddr) -> io::Result<IpAddr> {
        let bound = self.local.ip().to_canonical();
        if !bound.is_unspecified() {
            return Ok(bound);
        }
        if let Some((source, asked_ns)) = self.sources.get(&to.ip())
            && now_ns.saturating_sub(*asked_ns) < ROUTE_CHECK_INTERVAL_NS
        {
            return Ok(*source);
        }
        let source = setup::source_towards(to)?.to_canonical();
        if self.sources.len() >= PEERS_MAX {
            self.sources.clear();
        }
        self.sources.insert(to.ip(), (source, now_ns));
        Ok(source)
    }
}

/// The parts of a packet before its trailer, and the trailer; `None` if the packet is shorter than a
/// trailer.
pub(super) fn split<'p>(packet: TxPacket<'p>) -> Option<([&'p [u8]; 3], [u8; ICRC_BYTES])> {
    let mut parts = [packet.header, packet.payload, packet.trailer];
    let last = parts.iter_mut().rfind(|part| !part.is_empty())?;
    let (before, trailer) = last.split_last_chunk()?;
    *last = before;
    Some((parts, *trailer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trailer_is_at_the_end_of_the_last_part() {
        let whole = b"12345678";
        for (header, payload, trailer) in [(8, 0, 0), (0, 8, 0), (2, 2, 4), (1, 1, 6), (0, 4, 4)] {
            let (head, rest) = whole.split_at(header);
            let (body, tail) = rest.split_at(payload);
            assert_eq!(tail.len(), trailer);
            let packet = TxPacket { header: head, payload: body, trailer: tail };
            let (parts, trailer) = split(packet).unwrap();
            assert_eq!((parts.concat(), &trailer), (b"1234".to_vec(), b"5678"));
        }
        assert!(split(TxPacket { header: b"123", payload: b"", trailer: b"" }).is_none());
        assert!(split(TxPacket { header: b"", payload: b"", trailer: b"" }).is_none());
    }

    #[test]
    fn the_source_is_the_sockets_or_else_the_routes() {
        let to: SocketAddr = "127.0.0.1:9".parse().unwrap();
        for (bound, source) in [
            ("127.0.0.2:5", "127.0.0.2:5"),
            ("0.0.0.0:5", "127.0.0.1:5"),
            ("[::]:5", "127.0.0.1:5"),
        ] {
            let mut sender = IcrcSender::new(bound.parse().unwrap());
            let flow = sender.flow_to(0, to).unwrap();
            assert!(flow.is(source.parse().unwrap(), to), "{bound}: {flow:?}");
        }
        let mapped = "[::ffff:127.0.0.1]:9".parse().unwrap();
        let mut sender = IcrcSender::new("[::]:5".parse().unwrap());
        assert!(sender.flow_to(0, mapped).unwrap().is("127.0.0.1:5".parse().unwrap(), to));
    }
}
