//! TCP sockets of the control connections: listening, the path's round trip and packet size from
//! `TCP_INFO`, and the minimum retransmission timeout.
//!
//! The TCP handshake has measured both before the first data packet could leave. The packet size
//! follows from the MSS: it respects both ends' links and MSS clamping by middleboxes, but not a
//! narrower link in between that has not sent an ICMP error. So it is a first guess and no proof.

#[cfg(target_os = "linux")]
mod syscall;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::wildcard::{lacks_zone, set_dual_stack, with_ipv4_fallback};

/// Listens at `address` with a queue of `backlog` connections, or as many as the system allows.
/// `[::]` takes IPv4 too, and becomes `0.0.0.0` on a host without IPv6 (`wildcard.rs`).
///
/// # Errors
///
/// The system's error when it refuses the address; [`io::ErrorKind::InvalidInput`] for a link-local
/// address without its interface.
pub fn listen(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    if lacks_zone(address) {
        let text = "a link-local address needs its interface, as in fe80::1%eth0";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let listen = |local: SocketAddr| {
        let socket = Socket::new(Domain::for_address(local), Type::STREAM, Some(Protocol::TCP))?;
        // Connections in TIME_WAIT do not keep the port. (On Windows the option would let other
        // sockets take it.)
        #[cfg(unix)]
        socket.set_reuse_address(true)?;
        set_dual_stack(&socket, local);
        socket.bind(&local.into())?;
        socket.listen(backlog)?;
        Ok(TcpListener::from(socket))
    };
    with_ipv4_fallback(address, listen, |error| error)
}

/// A path as TCP has measured it; see [`tcp_path`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPath {
    /// Smoothed round-trip time; at least one sample.
    pub rtt_ns: u64,
    /// The longest IP packet that the connection would send, headers included.
    pub packet_bytes: u32,
    /// Whether the peer's kernel has all that was sent.
    pub is_acknowledged: bool,
}

/// Reads the connection's `TCP_INFO`; `None` if the system has none, or has not measured yet.
#[cfg(target_os = "linux")]
#[must_use]
pub fn tcp_path(stream: &TcpStream) -> Option<TcpPath> {
    use std::os::fd::AsFd;

    /// `TCPI_OPT_TIMESTAMPS` of `linux/tcp.h`.
    const TIMESTAMPS: u8 = 1;
    /// A timestamp option with its padding (RFC 7323, appendix A).
    const TIMESTAMPS_BYTES: u32 = 12;
    /// Headers of TCP and of IPv4 or IPv6.
    const HEADER_BYTES: (u32, u32) = (40, 60);

    let is_v6 = stream.peer_addr().ok()?.ip().to_canonical().is_ipv6();
    let info = syscall::tcp_info(stream.as_fd()).ok()?;
    if info.tcpi_rtt == 0 || info.tcpi_snd_mss == 0 {
        return None;
    }
    let options = if info.tcpi_options & TIMESTAMPS == 0 { 0 } else { TIMESTAMPS_BYTES };
    let headers = if is_v6 { HEADER_BYTES.1 } else { HEADER_BYTES.0 };
    let segment_bytes = info.tcpi_snd_mss.saturating_add(headers + options);
    Some(TcpPath {
        rtt_ns: u64::from(info.tcpi_rtt) * 1000,
        packet_bytes: match info.tcpi_pmtu {
            0 => segment_bytes,
            link_bytes => segment_bytes.min(link_bytes),
        },
        is_acknowledged: info.tcpi_unacked == 0,
    })
}

/// This system has no `TCP_INFO`.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn tcp_path(_stream: &TcpStream) -> Option<TcpPath> {
    None
}

/// Sets the connection's minimum retransmission timeout beyond the round trip (default: 200 ms; the
/// kernel uses four times the round trip's variation where that is longer). The default allows for
/// delayed acknowledgements; where every message is answered at once, it is nearly all of the cost
/// of a lost packet. Returns whether the kernel accepts `least`: Linux does since 6.15, from some
/// milliseconds to 200.
#[cfg(target_os = "linux")]
pub fn set_tcp_rto_min(stream: &TcpStream, least: Duration) -> bool {
    use std::os::fd::AsFd;

    let least_us = u32::try_from(least.as_micros()).unwrap_or(u32::MAX);
    syscall::set_tcp_rto_min_us(stream.as_fd(), least_us).is_ok()
}

/// Nothing can be set here.
#[cfg(not(target_os = "linux"))]
pub fn set_tcp_rto_min(_stream: &TcpStream, _least: Duration) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::os::fd::AsFd;

    #[test]
    fn who_listens_everywhere_is_reached_over_both_protocols() {
        let listener = listen((Ipv6Addr::UNSPECIFIED, 0).into(), 9).unwrap();
        let port = listener.local_addr().unwrap().port();
        let here = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from.ip().to_canonical(), here.local_addr().unwrap().ip());
        if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
            eprintln!("half tested: this machine has no IPv6");
            return;
        }
        TcpStream::connect((Ipv6Addr::LOCALHOST, port)).unwrap();
        let only_v4 = listen((Ipv4Addr::UNSPECIFIED, 0).into(), 9).unwrap();
        let port = only_v4.local_addr().unwrap().port();
        assert!(TcpStream::connect((Ipv6Addr::LOCALHOST, port)).is_err());
    }

    #[test]
    fn a_link_local_address_without_its_interface_is_refused_with_the_reason() {
        let error = listen("[fe80::1]:0".parse().unwrap(), 9).unwrap_err();
        assert!(error.to_string().contains("needs its interface"), "{error}");
    }

    #[test]
    fn a_connection_over_loopback_takes_large_packets_and_little_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let there = listener.accept().unwrap().0;
        for stream in [here, there] {
            let path = tcp_path(&stream).expect("the handshake was measured");
            assert!((16_000..=65_536).contains(&path.packet_bytes), "{path:?}");
            assert!(path.rtt_ns > 0, "{path:?}");
            assert!(path.is_acknowledged, "{path:?}");
        }
    }

    /// The effect shows on lossy paths only. This test checks that the option has this number, or is
    /// unknown to the kernel.
    #[test]
    fn the_least_time_to_a_retransmission_is_set_or_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let is_known = syscall::tcp_rto_min_us(stream.as_fd()).is_ok_and(|us| us == 200_000);
        assert_eq!(set_tcp_rto_min(&stream, Duration::from_millis(25)), is_known);
        if is_known {
            assert!((25_000..30_000).contains(&syscall::tcp_rto_min_us(stream.as_fd()).unwrap()));
            assert!(!set_tcp_rto_min(&stream, Duration::from_secs(5000)), "out of range");
        }
    }
}
