//! Makes and binds the sockets of all UDP datapaths, and converts IPv4 addresses to and from the
//! IPv4-mapped form of dual-stack sockets.

use std::io;
#[cfg(target_os = "linux")]
use std::net::IpAddr;
use std::net::{SocketAddr, SocketAddrV6, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use super::UdpConfig;
use crate::BindError;
pub(super) use crate::wildcard::unmapped;
use crate::wildcard::{lacks_zone, set_dual_stack, with_ipv4_fallback};

/// Makes a bound, non-blocking socket with the configured buffers, as far as the kernel grants them.
pub(super) fn bind(config: &UdpConfig) -> Result<UdpSocket, BindError> {
    if lacks_zone(config.local) {
        return Err(BindError::NoZone(config.local));
    }
    let bound =
        with_ipv4_fallback(config.local, |local| bind_at(local, config), |(_, error)| error);
    bound.map_err(|(doing, error)| BindError::from_io(config.local, doing, error))
}

fn bind_at(local: SocketAddr, config: &UdpConfig) -> Result<UdpSocket, (&'static str, io::Error)> {
    let step = |doing| move |error: io::Error| (doing, error);
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))
        .map_err(step("cannot make a socket"))?;
    socket.set_nonblocking(true).map_err(step("cannot make the socket non-blocking"))?;
    set_dual_stack(&socket, local);
    set_buffer(config.receive_buffer_bytes, &|bytes| socket.set_recv_buffer_size(bytes));
    set_buffer(config.send_buffer_bytes, &|bytes| socket.set_send_buffer_size(bytes));
    if config.broadcasts {
        socket.set_broadcast(true).map_err(step("cannot have the socket broadcast"))?;
    }
    #[cfg(target_os = "linux")]
    if config.shares_port {
        socket.set_reuse_port(true).map_err(step("cannot share the port"))?;
    }
    socket.bind(&local.into()).map_err(step("the system refuses"))?;
    record(&socket);
    Ok(socket.into())
}

/// Records the descriptor so that a child process can close it.
fn record(socket: &Socket) {
    #[cfg(unix)]
    crate::process::descriptors::note(socket);
    #[cfg(not(unix))]
    let _ = socket;
}

/// The source address of the route to `to`.
#[cfg(target_os = "linux")]
pub(super) fn source_towards(to: SocketAddr) -> io::Result<IpAddr> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&to.into())?;
    Ok(UdpSocket::from(socket).local_addr()?.ip())
}

/// Makes a second socket on the port of `first`, to be connected to `peer`. The port is shareable only
/// during this call; packets that arrive at either socket meanwhile are read. It is bound to the address
/// that packets to the peer leave from, also if `first` is bound to any: so what comes to other addresses of
/// this host before it is connected is not taken for what came to that one. An IPv4 peer gets an
/// IPv4 socket even if `first` is dual-stack, because the kernel looks up the route of every message
/// from an IPv6 socket to an IPv4 peer, connected or not. Measured: M-udp-4.
#[cfg(target_os = "linux")]
pub(super) fn bind_beside(
    first: &UdpSocket,
    peer: SocketAddr,
    config: &UdpConfig,
) -> io::Result<UdpSocket> {
    let mut local = first.local_addr()?;
    if local.ip().is_unspecified() {
        let (from, port) = (source_towards(peer)?, local.port());
        // A link-local address is one of an interface, which is the peer's.
        local = match (from, peer) {
            (IpAddr::V6(ip), SocketAddr::V6(peer)) => {
                SocketAddrV6::new(ip, port, 0, peer.scope_id()).into()
            }
            (from, _) => (from, port).into(),
        };
    }
    let share = |is_shared| socket2::SockRef::from(first).set_reuse_address(is_shared);
    let bind = || {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        set_dual_stack(&socket, local);
        set_buffer(config.receive_buffer_bytes, &|bytes| socket.set_recv_buffer_size(bytes));
        set_buffer(config.send_buffer_bytes, &|bytes| socket.set_send_buffer_size(bytes));
        socket.set_reuse_address(true)?;
        socket.bind(&local.into())?;
        socket.set_reuse_address(false)?;
        record(&socket);
        Ok(socket.into())
    };
    share(true)?;
    let bound = bind();
    share(false)?;
    bound
}

/// Sets a buffer size. Where the system refuses rather than clamps, the size is halved until the
/// system accepts it.
fn set_buffer(bytes: usize, set: &dyn Fn(usize) -> io::Result<()>) {
    /// No system refuses this size; below it, the system's default is good enough.
    const BYTES_MIN: usize = 64 << 10;
    let mut bytes = bytes;
    while set(bytes).is_err() && bytes > BYTES_MIN {
        bytes /= 2;
    }
}

pub(super) fn receive_buffer_bytes(socket: &UdpSocket) -> usize {
    socket2::SockRef::from(socket).recv_buffer_size().unwrap_or(0)
}

pub(super) fn local_addr(socket: &UdpSocket, config: &UdpConfig) -> Result<SocketAddr, BindError> {
    socket
        .local_addr()
        .map_err(|error| BindError::from_io(config.local, "cannot read back the address", error))
}

/// The address in the socket's family: an IPv6 socket reaches IPv4 peers by IPv4-mapped addresses
/// (RFC 4291, section 2.5.5.2).
pub(super) fn to_socket_family(address: SocketAddr, socket_is_v6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if socket_is_v6 => {
            SocketAddr::V6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0))
        }
        _ => address,
    }
}
