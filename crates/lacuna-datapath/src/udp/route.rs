//! The kernel's path MTU of the route to a peer.
//!
//! This is the first hop's MTU, or less after a router has sent an ICMP "packet too big" (RFC 1191,
//! RFC 8201). The kernel caches it per destination for about ten minutes, for all sockets; a connected
//! socket can read it. The sockets of this datapath ignore it when they send (`offload.rs`), so the
//! layer above asks for it here.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

use super::syscall;

/// Largest UDP payload, in bytes, of a packet from `local` to `to` within the path MTU.
pub(super) fn packet_bytes(local: SocketAddr, to: SocketAddr) -> io::Result<usize> {
    let to = super::setup::unmapped(to);
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    let local_ip = local.ip().to_canonical();
    if !local_ip.is_unspecified() && local_ip.is_ipv4() == to.is_ipv4() {
        let mut from = super::setup::unmapped(local);
        from.set_port(0);
        socket.bind(&from.into())?;
    }
    socket.connect(&to.into())?;
    let socket = UdpSocket::from(socket);
    let (level, name, header_bytes) = match to.ip() {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU, 28),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_MTU, 48),
    };
    let link_bytes = syscall::option(socket.as_fd(), level, name)?;
    Ok(usize::try_from(link_bytes).unwrap_or(0).saturating_sub(header_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_loopback_packets_may_be_as_long_as_its_link_takes() {
        let any = SocketAddr::from(([0, 0, 0, 0], 0));
        let to = SocketAddr::from(([127, 0, 0, 1], 9));
        let link_bytes = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        // An IP packet cannot be longer.
        let link_bytes = link_bytes.trim().parse::<usize>().unwrap().min(65_535);
        assert_eq!(packet_bytes(any, to).unwrap(), link_bytes - 28);
        assert_eq!(packet_bytes(to, to).unwrap(), link_bytes - 28);
        let mapped = "[::ffff:127.0.0.1]:9".parse().unwrap();
        assert_eq!(packet_bytes("[::]:0".parse().unwrap(), mapped).unwrap(), link_bytes - 28);
    }
}
