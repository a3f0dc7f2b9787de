//! What the kernel knows of the way under a TCP connection: how long a round trip takes and which
//! packets pass both ends' links.
//!
//! A connection's control channel is TCP, and its handshake has measured both by the time that the
//! first packet of anything else could leave. The packet size is that of the longest segment: both
//! ends' links and what middle boxes have made of it (MSS clamping), but not a narrower link further
//! on that nobody has told of. So it is a good first guess and no proof.

#[cfg(target_os = "linux")]
mod syscall;

use std::net::TcpStream;

/// What [`tcp_path`] finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPath {
    /// Smoothed round-trip time; at least one sample.
    pub rtt_ns: u64,
    /// The longest IP packet that the connection would send, headers included.
    pub packet_bytes: u32,
    /// Whether the peer's kernel has all that was sent.
    pub is_acknowledged: bool,
}

/// Asks the kernel; `None` where it does not tell, or has not measured yet.
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

/// Asks the kernel; `None` where it does not tell, or has not measured yet.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub fn tcp_path(_stream: &TcpStream) -> Option<TcpPath> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::net::TcpListener;

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
}
