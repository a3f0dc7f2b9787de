//! What a socket asks the kernel for, and what of it was granted: offloads, traffic class, and what
//! the kernel tells beside each message.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use super::{UdpConfig, setup, syscall};

/// ECT(0) in the traffic class (RFC 3168, section 5).
const ECN_CAPABLE: u8 = 0b10;

/// What the kernel has of what a socket asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) segmentation: bool,
    pub(super) coalescing: bool,
    pub(super) marks_v4: bool,
    pub(super) marks_v6: bool,
    pub(super) times: bool,
}

impl Granted {
    /// Asks for everything that `socket` is to have.
    pub(super) fn ask(socket: &UdpSocket, config: &UdpConfig) -> Self {
        let set = |level, name, value| set(socket, level, name, value);
        if config.receive_buffer_bytes > setup::receive_buffer_bytes(socket) / 2 {
            // The kernel clamped it, and doubled it for its bookkeeping. The privileged may insist.
            let bytes = config.receive_buffer_bytes.try_into().unwrap_or(i32::MAX / 2);
            set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes);
        }
        // A socket of one protocol refuses the options of the other, so each is tried.
        set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
        set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
        set_class(socket, traffic_class(config));
        if config.tells_local {
            set(libc::IPPROTO_IP, libc::IP_PKTINFO, 1);
            set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1);
        }
        Self {
            // It is asked for message by message; a socket-wide size of 0 (off) is the probe.
            segmentation: set(libc::SOL_UDP, libc::UDP_SEGMENT, 0),
            coalescing: set(libc::SOL_UDP, libc::UDP_GRO, 1),
            marks_v4: set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
            marks_v6: set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
            // The kernel notes when a message came, so that it does not matter how late this
            // process looks.
            times: set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1),
        }
    }

    /// Switches what costs time beside each message: coalescing, the time of arrival, marks. The
    /// kernel refuses nothing here that it has granted before. It still notes when a message came,
    /// for whoever asks for it afterwards.
    #[cold]
    pub(super) fn tell(self, socket: &UdpSocket, is_on: bool) {
        if self.coalescing {
            set(socket, libc::SOL_UDP, libc::UDP_GRO, i32::from(is_on));
        }
        set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, i32::from(is_on));
        self.tell_marks(socket, is_on);
    }

    /// Switches marks alone.
    pub(super) fn tell_marks(self, socket: &UdpSocket, is_on: bool) {
        if self.marks_v4 {
            set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, i32::from(is_on));
        }
        if self.marks_v6 {
            set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, i32::from(is_on));
        }
    }
}

/// The traffic class of all packets of a socket: DSCP (RFC 2474) and, if its sender answers to marks
/// of congestion, ECT(0).
fn traffic_class(config: &UdpConfig) -> u8 {
    let ecn = if config.ecn { ECN_CAPABLE } else { 0 };
    config.dscp.traffic_class() | ecn
}

/// Packets of `socket` get this traffic class.
pub(super) fn set_class(socket: &UdpSocket, class: u8) {
    if class != 0 {
        set(socket, libc::IPPROTO_IP, libc::IP_TOS, class.into());
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class.into());
    }
}

/// Whether the kernel took it.
fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> bool {
    syscall::set_option(socket.as_fd(), level, name, value).is_ok()
}
