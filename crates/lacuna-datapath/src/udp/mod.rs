//! The UDP datapath: one socket per datapath, with segmentation offload (GSO) and receive coalescing
//! (GRO) on Linux.
//!
//! With [`Offload::Auto`] on Linux, consecutive packets of one size in a burst form a bundle: one
//! message, which the kernel or the network card cuts into packets (`UDP_SEGMENT`). Packets that
//! arrive together are received as one message (`UDP_GRO`). A packet that the kernel handles alone
//! costs its sender some 3 us, whatever its size; a packet of a bundle costs a tenth of that. The
//! kernel gathers payloads from the caller's memory. Elsewhere, and with [`Offload::Plain`], each
//! packet takes one call.
//!
//! The first socket is not connected: it sends to any peer and receives from any peer. On Linux a
//! connected socket may exist beside it, for the peer that receives nearly all packets
//! (`connected.rs`); `receive` decides which socket is read, when and how. An IPv6 socket bound to the
//! unspecified address also takes IPv4; IPv4 peers appear with their IPv4 addresses.
//!
//! Linux tells enough about the headers that it will write for an ICRC
//! ([`TrailerOffload::Icrc`](crate::TrailerOffload::Icrc)): `icrc.rs`.

#[cfg(target_os = "linux")]
mod address;
#[cfg(target_os = "linux")]
mod connected;
#[cfg(target_os = "linux")]
mod control;
mod groups;
#[cfg(target_os = "linux")]
mod icrc;
#[cfg(target_os = "linux")]
mod offload;
#[cfg(target_os = "linux")]
mod options;
mod plain;
#[cfg(target_os = "linux")]
mod receive;
#[cfg(target_os = "linux")]
mod route;
#[cfg(target_os = "linux")]
mod segments;
mod setup;
#[cfg(target_os = "linux")]
mod syscall;

use std::io;
use std::net::SocketAddr;

pub use groups::Groups;
#[cfg(target_os = "linux")]
use offload::Offloaded;
use plain::Plain;

#[cfg(unix)]
use crate::EventSources;
use crate::ports::{PortRange, bind_in};
use crate::{BindError, Burst, Capabilities, Datapath, Placer, SendError};

/// How to bind a [`Udp`].
#[derive(Clone, Copy, Debug)]
pub struct UdpConfig {
    /// The address to bind to; port 0 for any. [`Udp::bind_in`] takes the first free port of a range.
    pub local: SocketAddr,
    /// The receive buffer to ask for. The kernel clamps it (on Linux to `net.core.rmem_max`, unless
    /// the process has `CAP_NET_ADMIN`); [`Capabilities::receive_buffer_bytes`] is the actual size.
    pub receive_buffer_bytes: usize,
    /// The send buffer to ask for, clamped likewise.
    pub send_buffer_bytes: usize,
    /// Which of the kernel's offloads to use.
    pub offload: Offload,
    /// Whether packets are marked as ECN-capable, ECT(0). Without offloads they never are.
    pub ecn: bool,
    /// The class of service of all packets. Only set on Linux.
    pub dscp: Dscp,
    /// Whether a peer that receives nearly all packets gets a connected socket, which makes each
    /// packet to it cheaper. Such packets have IP identifications that count up. Receive batching and
    /// plain reads of small packets need a connected socket. Linux only, with offloads.
    pub connects_peer: bool,
    /// Whether [`ReceivedBatch::local`](crate::ReceivedBatch::local) is filled in. Linux only, except
    /// for a socket that is bound to one address.
    pub tells_local: bool,
    /// Whether other sockets may be bound to the same port, each getting a share of the peers: for several workers.
    /// Linux only.
    pub shares_port: bool,
    /// Whether packets may go to broadcast addresses.
    pub broadcasts: bool,
    /// Whether a [`ReceivedBatch`](crate::ReceivedBatch) says how it came: with congestion marks, and how long it
    /// waited in the socket. That is a control message each, of every message. Only on Linux.
    pub tells_arrival: bool,
}

impl UdpConfig {
    /// The default: a receiving thread can pause for 25 ms at 10 Gbit/s, or 2.5 ms at 100 Gbit/s,
    /// before the socket drops packets.
    pub const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
    /// The default: some bursts. Packets in this buffer have passed the pacer, so a larger one only
    /// adds delay.
    pub const SEND_BUFFER_BYTES: usize = 4 << 20;

    /// The defaults, bound to `local`.
    #[must_use]
    pub fn new(local: SocketAddr) -> Self {
        Self {
            local,
            receive_buffer_bytes: Self::RECEIVE_BUFFER_BYTES,
            send_buffer_bytes: Self::SEND_BUFFER_BYTES,
            offload: Offload::Auto,
            ecn: true,
            dscp: Dscp::DEFAULT,
            connects_peer: true,
            tells_local: false,
            shares_port: false,
            broadcasts: false,
            tells_arrival: true,
        }
    }
}

/// A class of service (differentiated services code point, RFC 2474).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// Best effort.
    pub const DEFAULT: Self = Self(0);

    /// The class with this number; `None` if it has more than six bits.
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number < 64 { Some(Self(number)) } else { None }
    }

    /// The traffic class of this code point without ECN (RFC 3168, section 5: Not-ECT).
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only set on Linux"))]
    fn traffic_class(self) -> u8 {
        self.0 << 2
    }
}

/// Which of the kernel's offloads to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// All that the system has: segmentation, coalescing, several messages a call, congestion marks.
    #[default]
    Auto,
    /// None: one packet a call, through the standard library. For comparison, and for systems
    /// without offloads. IP may fragment packets above the path's MTU rather than refuse them.
    Plain,
}

/// A UDP socket.
#[derive(Debug)]
pub struct Udp(Kind);

#[derive(Debug)]
enum Kind {
    #[cfg(target_os = "linux")]
    Offloaded(Box<Offloaded>),
    Plain(Box<Plain>),
}

impl Udp {
    /// Binds a socket.
    ///
    /// # Errors
    ///
    /// When the system refuses the address; the error says which and why.
    pub fn bind(config: UdpConfig) -> Result<Self, BindError> {
        Ok(Self(match config.offload {
            #[cfg(target_os = "linux")]
            Offload::Auto => Kind::Offloaded(Box::new(Offloaded::bind(config)?)),
            _ => Kind::Plain(Box::new(Plain::bind(config)?)),
        }))
    }

    /// Binds a socket and boxes it, for callers that choose their datapath at run time.
    ///
    /// # Errors
    ///
    /// As [`Udp::bind`].
    pub fn bind_boxed(config: UdpConfig) -> Result<Box<dyn Datapath>, BindError> {
        Ok(match Self::bind(config)?.0 {
            #[cfg(target_os = "linux")]
            Kind::Offloaded(udp) => udp,
            Kind::Plain(udp) => udp,
        })
    }

    /// Binds a socket to the first free port of `ports`. Returns it and the ports before it, which
    /// were taken.
    ///
    /// # Errors
    ///
    /// [`BindError::AllInUse`] when all ports are taken, else as [`Udp::bind`].
    pub fn bind_in(config: UdpConfig, ports: PortRange) -> Result<(Self, Vec<u16>), BindError> {
        bind_in(config.local, ports, |local| Self::bind(UdpConfig { local, ..config }))
    }

    /// ICMP errors that earlier packets caused (such as "connection refused" by a peer that has gone)
    /// and that the system reported on a later, unrelated call. The transport detects loss by itself,
    /// so they are counted and otherwise ignored.
    #[must_use]
    pub fn absorbed_errors(&self) -> u64 {
        match &self.0 {
            #[cfg(target_os = "linux")]
            Kind::Offloaded(udp) => udp.absorbed_errors(),
            Kind::Plain(udp) => udp.absorbed_errors(),
        }
    }

    /// What its socket gets and sends of multicast groups.
    ///
    /// # Errors
    ///
    /// When the system has no more descriptors.
    pub fn groups(&self) -> io::Result<Groups> {
        Groups::of(match &self.0 {
            #[cfg(target_os = "linux")]
            Kind::Offloaded(udp) => udp.socket(),
            Kind::Plain(udp) => udp.socket(),
        })
    }

    fn inner(&self) -> &dyn Datapath {
        match &self.0 {
            #[cfg(target_os = "linux")]
            Kind::Offloaded(udp) => &**udp,
            Kind::Plain(udp) => &**udp,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn Datapath {
        match &mut self.0 {
            #[cfg(target_os = "linux")]
            Kind::Offloaded(udp) => &mut **udp,
            Kind::Plain(udp) => &mut **udp,
        }
    }
}

impl Datapath for Udp {
    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    fn local_addr(&self) -> SocketAddr {
        self.inner().local_addr()
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        self.inner_mut().send(now_ns, burst)
    }

    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        self.inner_mut().receive(now_ns, placer)
    }

    fn next_event_ns(&self) -> Option<u64> {
        None
    }

    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_> {
        self.inner().event_sources()
    }

    fn send_blocked(&self) -> bool {
        self.inner().send_blocked()
    }

    fn tell_local(&mut self) {
        self.inner_mut().tell_local();
    }

    fn receive_drops(&self) -> u64 {
        self.inner().receive_drops()
    }

    fn connect_peer(&mut self, is_allowed: bool) {
        self.inner_mut().connect_peer(is_allowed);
    }

    fn route_packet_bytes(&self, to: SocketAddr) -> Option<usize> {
        self.inner().route_packet_bytes(to)
    }
}

/// Most errors of earlier packets that one call ignores before it reports the next (a judgement;
/// without a bound, a broken socket could hold a worker for ever).
const ABSORBED_PER_CALL_MAX: u32 = 16;

#[cfg(test)]
mod tests;
