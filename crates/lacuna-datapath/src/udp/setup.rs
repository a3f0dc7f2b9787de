//! Makes and binds sockets, the same for every kind of UDP datapath, and converts addresses of IPv4
//! to the mapped form that a socket of both protocols uses, and back.

use std::io;
#[cfg(target_os = "linux")]
use std::net::{IpAddr, Ipv4Addr};
use std::net::{SocketAddr, SocketAddrV6, UdpSocket};

use socket2::{Domain, Protocol, Socket, Type};

use super::UdpConfig;
use crate::BindError;
#[cfg(target_os = "linux")]
use crate::wildcard::is_wildcard;
use crate::wildcard::{lacks_zone, or_ipv4, speak_both};

/// A bound, non-blocking socket with the buffers asked for, as far as the kernel grants them.
pub(super) fn bind(config: &UdpConfig) -> Result<UdpSocket, BindError> {
    if lacks_zone(config.local) {
        return Err(BindError::NoZone(config.local));
    }
    let bound = or_ipv4(config.local, |local| bind_at(local, config), |(_, error)| error);
    bound.map_err(|(doing, error)| BindError::from_io(config.local, doing, error))
}

fn bind_at(local: SocketAddr, config: &UdpConfig) -> Result<UdpSocket, (&'static str, io::Error)> {
    let step = |doing| move |error: io::Error| (doing, error);
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))
        .map_err(step("cannot make a socket"))?;
    socket.set_nonblocking(true).map_err(step("cannot make the socket non-blocking"))?;
    speak_both(&socket, local);
    grow(config.receive_buffer_bytes, &|bytes| socket.set_recv_buffer_size(bytes));
    grow(config.send_buffer_bytes, &|bytes| socket.set_send_buffer_size(bytes));
    socket.bind(&local.into()).map_err(step("the system refuses"))?;
    note(&socket);
    Ok(socket.into())
}

/// So that a child process can close it.
fn note(socket: &Socket) {
    #[cfg(unix)]
    crate::process::descriptors::note(socket);
    #[cfg(not(unix))]
    let _ = socket;
}

/// The source that the route to `to` says.
#[cfg(target_os = "linux")]
pub(super) fn source_towards(to: SocketAddr) -> io::Result<IpAddr> {
    let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
    socket.connect(&to.into())?;
    Ok(UdpSocket::from(socket).local_addr()?.ip())
}

/// A socket on the port of `first` beside it, for `peer`. Ports are shared only while this goes on;
/// what comes to either meanwhile is read. For a peer of IPv4 it is one of IPv4, also beside one that
/// speaks both: the kernel looks up a route for each message from one of IPv6 to there, connected or
/// not. Measured: M-udp-4.
#[cfg(target_os = "linux")]
pub(super) fn bind_beside(
    first: &UdpSocket,
    peer: SocketAddr,
    config: &UdpConfig,
) -> io::Result<UdpSocket> {
    let mut local = first.local_addr()?;
    if is_wildcard(local) && peer.is_ipv4() {
        local = (Ipv4Addr::UNSPECIFIED, local.port()).into();
    }
    let share = |is_shared| socket2::SockRef::from(first).set_reuse_address(is_shared);
    let bind = || {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        speak_both(&socket, local);
        grow(config.receive_buffer_bytes, &|bytes| socket.set_recv_buffer_size(bytes));
        grow(config.send_buffer_bytes, &|bytes| socket.set_send_buffer_size(bytes));
        socket.set_reuse_address(true)?;
        socket.bind(&local.into())?;
        socket.set_reuse_address(false)?;
        note(&socket);
        Ok(socket.into())
    };
    share(true)?;
    let bound = bind();
    share(false)?;
    bound
}

/// Asks for a buffer, and for half as often as needed where the system refuses rather than clamps.
fn grow(bytes: usize, set: &dyn Fn(usize) -> io::Result<()>) {
    /// No system refuses this much; below it, what the system gives by itself is good enough.
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

/// The address as this socket has to say it: an IPv6 socket reaches IPv4 peers by mapped addresses
/// (RFC 4291, section 2.5.5.2).
pub(super) fn to_wire(address: SocketAddr, socket_is_v6: bool) -> SocketAddr {
    match address {
        SocketAddr::V4(v4) if socket_is_v6 => {
            SocketAddr::V6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0))
        }
        _ => address,
    }
}

/// The address as everyone else says it.
pub(super) fn from_wire(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => address,
        },
        SocketAddr::V4(_) => address,
    }
}
