//! Socket options: offloads, traffic class, and the control messages that the kernel adds to each
//! received message; and which of them the kernel granted.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use super::{UdpConfig, setup, syscall};

/// ECT(0) in the traffic class (RFC 3168, section 5).
const ECN_CAPABLE: u8 = 0b10;

/// The options that the kernel granted to a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) segmentation: bool,
    pub(super) coalescing: bool,
    pub(super) marks_v4: bool,
    pub(super) marks_v6: bool,
    pub(super) timestamps: bool,
    /// "Don't fragment" is set, so that IPv4 identifications follow a rule (`icrc.rs`).
    pub(super) identifies_by_rule: bool,
}

impl Granted {
    /// Sets all options of `socket`.
    pub(super) fn request(socket: &UdpSocket, config: &UdpConfig) -> Self {
        let set = |level, name, value| set(socket, level, name, value);
        if config.receive_buffer_bytes > setup::receive_buffer_bytes(socket) / 2 {
            // The kernel clamps the size, and reports twice the size for its bookkeeping. A privileged
            // process may exceed the limit.
            let bytes = config.receive_buffer_bytes.try_into().unwrap_or(i32::MAX / 2);
            set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes);
        }
        // A socket of one protocol refuses the options of the other, so each is tried.
        let identifies_by_rule = set_unfragmented(socket);
        set_class(socket, traffic_class(config));
        if config.tells_local {
            set_local_reports(socket);
        }
        Self {
            // Each message has its own segment size; setting the socket's to 0 (off) only probes.
            segmentation: set(libc::SOL_UDP, libc::UDP_SEGMENT, 0),
            coalescing: set(libc::SOL_UDP, libc::UDP_GRO, 1),
            marks_v4: config.tells_arrival && set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
            marks_v6: config.tells_arrival && set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
            // With the arrival time, a late read does not distort round-trip samples.
            timestamps: config.tells_arrival && set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1),
            identifies_by_rule,
        }
    }

    /// Switches the options that cost time per message: coalescing, arrival timestamps, ECN marks. The
    /// kernel does not refuse what it has granted before. It still records arrival timestamps, which can
    /// be read afterwards (`SIOCGSTAMPNS`).
    #[cold]
    pub(super) fn set_control_messages(self, socket: &UdpSocket, is_on: bool) {
        if self.coalescing {
            set(socket, libc::SOL_UDP, libc::UDP_GRO, i32::from(is_on));
        }
        if self.timestamps {
            set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, i32::from(is_on));
        }
        self.set_mark_reports(socket, is_on);
    }

    /// Switches ECN marks alone.
    pub(super) fn set_mark_reports(self, socket: &UdpSocket, is_on: bool) {
        if self.marks_v4 {
            set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, i32::from(is_on));
        }
        if self.marks_v6 {
            set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, i32::from(is_on));
        }
    }
}

/// Has packets sent with "don't fragment", whatever the kernel knows of the path MTU; `false` if the
/// system refuses.
pub(super) fn set_unfragmented(socket: &UdpSocket) -> bool {
    let v4 = set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    let v6 = set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
    v4 || v6
}

/// Has the kernel tell each message's destination, for packets that end in an ICRC. RoCE sends them without a
/// UDP checksum, which IPv6 would refuse otherwise.
pub(super) fn set_local_reports(socket: &UdpSocket) {
    set(socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
    set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1);
    set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1);
}

/// The traffic class of all packets of a socket: DSCP (RFC 2474) and, if ECN is on, ECT(0).
fn traffic_class(config: &UdpConfig) -> u8 {
    let ecn = if config.ecn { ECN_CAPABLE } else { 0 };
    config.dscp.traffic_class() | ecn
}

/// Sets the traffic class of all packets of `socket`.
pub(super) fn set_class(socket: &UdpSocket, class: u8) {
    if class != 0 {
        set(socket, libc::IPPROTO_IP, libc::IP_TOS, class.into());
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class.into());
    }
}

/// Sets an option and returns whether the kernel accepted it.
fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> bool {
    syscall::set_option(socket.as_fd(), level, name, value).is_ok()
}
