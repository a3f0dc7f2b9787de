//! The path MTU that the kernel knows of the route to a peer.
//!
//! That is the first hop's, or less where a router further on has said by ICMP that a packet was too
//! long for what lies behind it (RFC 1191, RFC 8201). The kernel keeps it by destination, for ten
//! minutes or so, whoever's packet it was; a socket that is connected there may ask. The sockets of
//! this datapath send full packets all the same (`offload.rs`), so somebody has to ask.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use socket2::{Domain, Protocol, Socket, Type};

use super::syscall;

/// Bytes of UDP payload that a packet from `local` to `to` may have.
pub(super) fn packet_bytes(local: SocketAddr, to: SocketAddr) -> io::Result<usize> {
    let to = super::setup::from_wire(to);
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    let local_ip = local.ip().to_canonical();
    if !local_ip.is_unspecified() && local_ip.is_ipv4() == to.is_ipv4() {
        let mut from = super::setup::from_wire(local);
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
        // IP has no longer packets.
        let link_bytes = link_bytes.trim().parse::<usize>().unwrap().min(65_535);
        assert_eq!(packet_bytes(any, to).unwrap(), link_bytes - 28);
        assert_eq!(packet_bytes(to, to).unwrap(), link_bytes - 28);
        let mapped = "[::ffff:127.0.0.1]:9".parse().unwrap();
        assert_eq!(packet_bytes("[::]:0".parse().unwrap(), mapped).unwrap(), link_bytes - 28);
    }
}
