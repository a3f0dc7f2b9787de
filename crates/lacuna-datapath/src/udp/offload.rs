//! UDP with the offloads of Linux: segmentation (GSO), coalescing (GRO), several messages a call.
//!
//! Idea and system interface: Willem de Bruijn, "Optimizing UDP for content delivery: GSO, pacing
//! and zerocopy" (2018); `udp(7)`. Offloads are probed when the socket is bound. The device of a route
//! may still refuse segmentation later; the socket then goes on without it.
//!
//! Sockets set "don't fragment" and ignore the kernel's estimate of the path MTU
//! (`IP_PMTUDISC_PROBE`), so that the layer above can probe it: a packet too large for the first hop
//! is an error here, and one too large for a later hop is lost.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::{fmt, io};

use super::connected::Connector;
use super::icrc::IcrcSender;
use super::options::Granted;
use super::receive::Receiver;
use super::syscall::{self, SendArrays, Target};
use super::{ABSORBED_PER_CALL_MAX, UdpConfig, options, route, setup};
use crate::{
    BUNDLE_PACKETS_MAX, BindError, Burst, Capabilities, Datapath, EventSource, EventSources,
    PACKET_BYTES_MAX, Placer, SendError, TrailerOffload,
};

/// Refused bundles in a row, whose packets then went one by one, after which the device is taken to
/// refuse segmentation (a judgement). A route that was a black hole a moment ago looks the same once.
const BUNDLE_REFUSALS_MAX: u32 = 3;

/// Which socket had no room for the last burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Full {
    Neither,
    First,
    Connected,
}

pub(super) struct Offloaded {
    config: UdpConfig,
    /// The first socket, which is not connected: it sends to and receives from any peer.
    socket: UdpSocket,
    granted: Granted,
    connector: Connector,
    icrc: IcrcSender,
    receiver: Receiver,
    local: SocketAddr,
    send_arrays: SendArrays,
    /// Most packets of one message: 1 without segmentation.
    bundle_packets_max: usize,
    /// Bundles in a row that the device refused and whose packets then went one by one.
    bundle_refusals: u32,
    receive_buffer_bytes: usize,
    full: Full,
    absorbed_errors: u64,
}

impl Offloaded {
    pub(super) fn bind(config: UdpConfig) -> Result<Self, BindError> {
        let socket = setup::bind(&config)?;
        let local = setup::local_addr(&socket, &config)?;
        let granted = Granted::request(&socket, &config);
        Ok(Self {
            connector: Connector::new(&config),
            icrc: IcrcSender::new(local),
            receiver: Receiver::new(&config, local),
            local,
            send_arrays: SendArrays::new(),
            bundle_packets_max: if granted.segmentation { BUNDLE_PACKETS_MAX } else { 1 },
            bundle_refusals: 0,
            receive_buffer_bytes: setup::receive_buffer_bytes(&socket),
            full: Full::Neither,
            absorbed_errors: 0,
            config,
            granted,
            socket,
        })
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    pub(super) fn absorbed_errors(&self) -> u64 {
        self.absorbed_errors + self.receiver.absorbed_errors()
    }

    #[cold]
    fn connect(&mut self, now_ns: u64, to: SocketAddr) {
        let made = self.connector.make(now_ns, to, &self.socket, &self.config);
        self.receiver.on_connected(made);
    }
}

impl Datapath for Offloaded {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "udp",
            packet_bytes_max: PACKET_BYTES_MAX,
            burst_packets_max: Burst::PACKETS_MAX,
            segmentation_offload: self.bundle_packets_max > 1,
            receive_coalescing: self.granted.coalescing,
            congestion_marks: match self.local.is_ipv6() {
                true => self.granted.marks_v6,
                false => self.granted.marks_v4,
            },
            timestamps: self.granted.timestamps,
            trailer: match self.granted.identifies_by_rule {
                true => TrailerOffload::Icrc,
                false => TrailerOffload::None,
            },
            receive_buffer_bytes: self.receive_buffer_bytes,
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        let to = setup::to_socket_family(burst.destination(), self.local.is_ipv6());
        self.full = Full::Neither;
        let (mut connected, mut icrc) = (None, None);
        if burst.trailer() == TrailerOffload::Icrc {
            // Not by the connected socket, whose identifications are not known.
            icrc = Some(self.icrc.flow_to(now_ns, to)?);
        } else {
            if self.connector.wants(now_ns, to) {
                self.connect(now_ns, to);
            }
            connected = self.connector.socket_to(now_ns, to);
        }
        let takes_marks = burst.takes_marks() || !self.config.ecn;
        let class = (!takes_marks).then(|| self.config.dscp.traffic_class());
        let mut sent = 0;
        let mut absorbed = 0;
        let mut bundle_packets_max = self.bundle_packets_max;
        let mut is_bundle_refused = false;
        while sent < burst.len() {
            let socket = connected.unwrap_or(self.socket.as_fd());
            let target = Target { socket, to, is_connected: connected.is_some() };
            let icrc = icrc.as_deref_mut();
            let result =
                self.send_arrays.send(target, burst, sent, bundle_packets_max, class, icrc);
            let error = match result {
                Ok(packets) => {
                    if std::mem::take(&mut is_bundle_refused) {
                        // The refused bundle's packets went one by one.
                        self.bundle_refusals += 1;
                        if self.bundle_refusals == BUNDLE_REFUSALS_MAX {
                            self.bundle_packets_max = bundle_packets_max;
                        }
                    } else if packets > 1 && bundle_packets_max > 1 {
                        self.bundle_refusals = 0;
                    }
                    sent += packets;
                    continue;
                }
                Err(error) => error,
            };
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                // ENOBUFS: the queue of the interface is full, which passes as quickly as EAGAIN.
                Some(libc::EAGAIN | libc::ENOBUFS) => {
                    self.full = match connected {
                        Some(_) => Full::Connected,
                        None => Full::First,
                    };
                    return Ok(sent);
                }
                // A connected socket reports more errors of earlier packets. The first socket is
                // tried next; it shows whether the error is about this packet.
                _ if connected.take().is_some() => self.absorbed_errors += 1,
                Some(code) if is_of_earlier_packet(code) && absorbed < ABSORBED_PER_CALL_MAX => {
                    absorbed += 1;
                    self.absorbed_errors += 1;
                }
                // EIO: the device computes no checksums, or the route encrypts. EINVAL: older kernels
                // also return it for a packet that is too large, which sending it alone will show,
                // and for a blackhole route.
                Some(libc::EIO | libc::EINVAL) if bundle_packets_max > 1 => {
                    (bundle_packets_max, is_bundle_refused) = (1, true);
                }
                // The next call begins with this packet and gets the same error.
                _ if sent > 0 => return Ok(sent),
                Some(libc::EMSGSIZE) => {
                    return Err(SendError::PacketTooLarge {
                        packet_bytes: burst.packet_bytes(sent),
                    });
                }
                _ => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        self.receiver.receive(now_ns, &self.socket, &mut self.connector, placer)
    }

    fn next_event_ns(&self) -> Option<u64> {
        None
    }

    fn event_sources(&self) -> EventSources<'_> {
        let connected = self
            .connector
            .socket()
            .map(|descriptor| EventSource { descriptor, wants_room: self.full == Full::Connected });
        let wants_room = match self.full {
            Full::Neither => false,
            Full::First => true,
            // The connected socket may have been closed meanwhile.
            Full::Connected => connected.is_none(),
        };
        EventSources::two(EventSource { descriptor: self.socket.as_fd(), wants_room }, connected)
    }

    fn send_blocked(&self) -> bool {
        self.full != Full::Neither
    }

    fn receive_drops(&self) -> u64 {
        let first = syscall::drops(self.socket.as_fd()).map_or(0, u64::from);
        first + self.connector.receive_drops()
    }

    fn tell_local(&mut self) {
        if std::mem::replace(&mut self.config.tells_local, true) {
            return;
        }
        options::set_local_reports(&self.socket);
        self.connector.tell_local();
        self.receiver.tell_local(&self.config, self.local);
    }

    fn connect_peer(&mut self, is_allowed: bool) {
        self.connector.allow(is_allowed);
    }

    fn route_packet_bytes(&self, to: SocketAddr) -> Option<usize> {
        route::packet_bytes(self.local, to).ok()
    }
}

/// Whether the error comes from an ICMP message about an earlier packet (`ip(7)`, "Error handling").
/// It says nothing about the packet at hand.
fn is_of_earlier_packet(code: i32) -> bool {
    matches!(code, libc::ECONNREFUSED | libc::ECONNRESET | libc::EHOSTDOWN | libc::EPROTO)
}

impl fmt::Debug for Offloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offloaded")
            .field("local", &self.local)
            .field("bundle_packets_max", &self.bundle_packets_max)
            .field("granted", &self.granted)
            .field("absorbed_errors", &self.absorbed_errors())
            .finish_non_exhaustive()
    }
}
