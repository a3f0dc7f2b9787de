//! UDP with what Linux offers: segmentation out, coalescing in, several messages a call.
//!
//! Idea and system interface: Willem de Bruijn, "Optimizing UDP for content delivery: GSO, pacing
//! and zerocopy" (2018); `udp(7)`. Offloads are probed when the socket is bound. Segmentation may
//! still be refused later by the device that a route leads to; the socket then goes on without.
//!
//! Sockets set "don't fragment" and ignore what the kernel believes about the path's MTU
//! (`IP_PMTUDISC_PROBE`), so that the layer above can probe it: too large for the first hop is an
//! error here, too large for a later one is loss.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::connected::{Connected, Favourite};
use super::receive::small::Look;
use super::segments::RUN_PACKETS_MAX;
use super::syscall::{self, ReceiveArrays, SLOT_BYTES, SendArrays, Way};
use super::{ABSORBED_PER_CALL_MAX, UdpConfig, route, setup};
use crate::{
    BindError, Burst, Capabilities, Datapath, PACKET_BYTES_MAX, Placer, ReceivedBatch, SendError,
    ends_socket,
};

/// The most messages of one `receive`. Uncoalesced packets cost a system call divided by this.
const RECEIVE_MESSAGES_MAX: usize = 32;

/// How much one `receive` is meant to take, so that what it hands over is still in the second-level
/// cache when it is looked at. With `examples/udp_rate.rs`, 1 to 16 slots make no difference beyond
/// the noise (58 to 60 Gbit/s at 4,096 bytes), so this is a judgement.
const RECEIVE_BYTES_TARGET: usize = 4 * SLOT_BYTES;

/// So often in a row a run goes packet by packet before segmentation is taken to be refused by the
/// device. A route that swallowed packets a moment ago looks the same, once (a judgement).
const RUN_REFUSALS_MAX: u32 = 3;

/// ECT(0) in the traffic class.
const ECN_CAPABLE: i32 = 0b10;

/// Longest time that a message is believed to have waited.
const WAITED_MAX: Duration = Duration::from_millis(200);

pub(super) struct Offloaded {
    config: UdpConfig,
    socket: UdpSocket,
    favourite: Favourite,
    local: SocketAddr,
    send_arrays: SendArrays,
    receive_arrays: ReceiveArrays,
    /// Packets in a message: 1 when segmentation is not to be had.
    run_packets_max: usize,
    /// Times in a row that a run was refused in one piece and went packet by packet.
    run_refusals: u32,
    receive_coalescing: bool,
    congestion_marks: bool,
    receive_buffer_bytes: usize,
    /// How many messages to ask for next: [`take`].
    receive_messages: usize,
    blocked: bool,
    /// If blocked: it is the connected socket that has no room.
    connected_blocked: bool,
    absorbed_errors: u64,
}

/// What the kernel has of what a socket asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    segmentation: bool,
    pub(super) coalescing: bool,
    pub(super) marks_v4: bool,
    pub(super) marks_v6: bool,
}

/// Asks for everything that a socket is to have.
pub(super) fn set_options(socket: &UdpSocket, config: &UdpConfig) -> Granted {
    let fd = socket.as_fd();
    let set = |level, name, value| syscall::set_option(fd, level, name, value).is_ok();
    if config.receive_buffer_bytes > setup::receive_buffer_bytes(socket) / 2 {
        // The kernel clamped it, and doubled it for its bookkeeping. The privileged may insist.
        let bytes = config.receive_buffer_bytes.try_into().unwrap_or(i32::MAX / 2);
        set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes);
    }
    // A socket of one protocol refuses the options of the other, so each is tried.
    set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
    if config.ecn {
        // ECT(0): what sends here answers to marks (RFC 3168, section 5).
        set(libc::IPPROTO_IP, libc::IP_TOS, ECN_CAPABLE);
        set(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ECN_CAPABLE);
    }
    // When a message came is noted by the kernel, so that it does not matter how late this
    // process looks.
    set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    Granted {
        // It is asked for message by message; a socket-wide size of 0 (off) is the probe.
        segmentation: set(libc::SOL_UDP, libc::UDP_SEGMENT, 0),
        coalescing: set(libc::SOL_UDP, libc::UDP_GRO, 1),
        marks_v4: set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1),
        marks_v6: set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1),
    }
}

impl Offloaded {
    pub(super) fn bind(config: UdpConfig) -> Result<Self, BindError> {
        let socket = setup::bind(&config)?;
        let local = setup::local_addr(&socket, &config)?;
        let granted = set_options(&socket, &config);
        Ok(Self {
            config,
            favourite: Favourite::new(),
            local,
            send_arrays: SendArrays::new(),
            receive_arrays: ReceiveArrays::new(RECEIVE_MESSAGES_MAX),
            run_packets_max: if granted.segmentation { RUN_PACKETS_MAX } else { 1 },
            run_refusals: 0,
            receive_coalescing: granted.coalescing,
            congestion_marks: if local.is_ipv6() { granted.marks_v6 } else { granted.marks_v4 },
            receive_buffer_bytes: setup::receive_buffer_bytes(&socket),
            receive_messages: 1,
            blocked: false,
            connected_blocked: false,
            absorbed_errors: 0,
            socket,
        })
    }

    pub(super) fn absorbed_errors(&self) -> u64 {
        self.absorbed_errors
    }
}

impl Datapath for Offloaded {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "udp",
            packet_bytes_max: PACKET_BYTES_MAX,
            burst_packets_max: Burst::PACKETS_MAX,
            segmentation_offload: self.run_packets_max > 1,
            receive_coalescing: self.receive_coalescing,
            congestion_marks: self.congestion_marks,
            receive_buffer_bytes: self.receive_buffer_bytes,
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        let to = setup::to_wire(burst.destination(), self.local.is_ipv6());
        self.blocked = false;
        let mut connected = self.favourite.on_burst(now_ns, to, &self.socket, &self.config);
        let mut sent = 0;
        let mut absorbed = 0;
        let mut run_packets_max = self.run_packets_max;
        let mut is_run_refused = false;
        while sent < burst.len() {
            let socket = connected.unwrap_or(self.socket.as_fd());
            let way = Way { socket, to, is_connected: connected.is_some() };
            let in_class = burst.takes_marks() || !self.config.ecn;
            let result = self.send_arrays.send(way, burst, sent, run_packets_max, in_class);
            let error = match result {
                Ok(packets) => {
                    if std::mem::take(&mut is_run_refused) {
                        // What was refused in one piece has gone packet by packet.
                        self.run_refusals += 1;
                        if self.run_refusals == RUN_REFUSALS_MAX {
                            self.run_packets_max = run_packets_max;
                        }
                    } else if packets > 1 && run_packets_max > 1 {
                        self.run_refusals = 0;
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
                    self.blocked = true;
                    self.connected_blocked = connected.is_some();
                    return Ok(sent);
                }
                // A connected socket tells more of what earlier packets met. Whether it is about
                // this one the first socket knows.
                _ if connected.take().is_some() => self.absorbed_errors += 1,
                Some(code) if is_echo(code) && absorbed < ABSORBED_PER_CALL_MAX => {
                    absorbed += 1;
                    self.absorbed_errors += 1;
                }
                // EIO: the device computes no checksums, or the route encrypts. EINVAL: on older
                // kernels also that the packet is too large, which trying it alone will tell, and of
                // a route that swallows packets.
                Some(libc::EIO | libc::EINVAL) if run_packets_max > 1 => {
                    (run_packets_max, is_run_refused) = (1, true);
                }
                // The next call begins with this packet and finds the same.
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
        let arrays = &mut self.receive_arrays;
        let mut absorbed = 0;
        while self.favourite.is_for_others(now_ns) {
            match take(&self.socket, None, &mut self.receive_messages, arrays, placer) {
                Ok((0, _)) => {
                    self.favourite.on_no_others();
                    break;
                }
                Ok((packets, _)) => return Ok(packets),
                Err(error) if ends_socket(&error).is_some() => return Err(error),
                // It passes, and says nothing of what waits here.
                Err(_) => {
                    self.absorbed_errors += 1;
                    absorbed += 1;
                    if absorbed == ABSORBED_PER_CALL_MAX {
                        return Ok(0);
                    }
                }
            }
        }
        let Some(made) = self.favourite.made() else { return Ok(0) };
        let look = made.lone.look(now_ns);
        if look == Look::Whole
            && made.pile.lies(now_ns, || syscall::queued_bytes(made.socket.as_fd()))
        {
            return Ok(0);
        }
        match take_connected(made, look, now_ns, arrays, placer) {
            Ok(packets) => {
                self.favourite.on_look(look, packets == 0);
                return Ok(packets);
            }
            // A connected socket tells of earlier packets only. What is there is found next time.
            Err(_) => self.absorbed_errors += 1,
        }
        Ok(0)
    }

    fn next_event_ns(&self) -> Option<u64> {
        None
    }

    fn event_source(&self) -> Option<BorrowedFd<'_>> {
        match self.favourite.socket() {
            Some(connected) if self.connected_blocked => Some(connected),
            _ => Some(self.socket.as_fd()),
        }
    }

    fn second_event_source(&self) -> Option<BorrowedFd<'_>> {
        let connected = self.favourite.socket()?;
        Some(if self.connected_blocked { self.socket.as_fd() } else { connected })
    }

    fn send_blocked(&self) -> bool {
        self.blocked
    }

    fn receive_drops(&self) -> u64 {
        let first = syscall::drops(self.socket.as_fd()).map_or(0, u64::from);
        first + self.favourite.receive_drops()
    }

    fn route_packet_bytes(&self, to: SocketAddr) -> Option<usize> {
        route::packet_bytes(self.local, to).ok()
    }
}

/// Takes what has come to the connected socket; 0 when nothing has.
fn take_connected(
    made: &mut Connected,
    look: Look,
    now_ns: u64,
    arrays: &mut ReceiveArrays,
    placer: &mut dyn Placer,
) -> io::Result<usize> {
    let Connected { socket, lone, pile, to, receive_messages, .. } = made;
    let asked = *receive_messages;
    let taken = match look {
        Look::Plain | Look::Timed => take_plain(socket, *to, look == Look::Timed, arrays, placer)?,
        Look::Whole => take(socket, Some(*to), receive_messages, arrays, placer)?,
        Look::Marked => take(socket, Some(*to), &mut 1, arrays, placer)?,
    };
    pile.on_taken(now_ns, taken.1, taken.0 == 0 || *receive_messages < asked);
    match taken.0 {
        0 => lone.on_empty(now_ns, socket),
        _ => lone.on_packets(now_ns, socket, look, taken),
    }
    Ok(taken.0)
}

/// Takes one packet that has come to a socket connected to `peer`, without what the kernel tells
/// beside it, unless when it came is asked for. Packets and bytes; none when nothing has come.
fn take_plain(
    socket: &UdpSocket,
    peer: SocketAddr,
    is_timed: bool,
    arrays: &mut ReceiveArrays,
    placer: &mut dyn Placer,
) -> io::Result<(usize, usize)> {
    let bytes = loop {
        match arrays.receive_plain(socket.as_fd()) {
            Ok(bytes) => break bytes,
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return Ok((0, 0)),
                _ => return Err(error),
            },
        }
    };
    let waited_ns = if is_timed { waited_ns(now(), syscall::last_came(socket.as_fd())) } else { 0 };
    placer.on_packets(ReceivedBatch {
        source: setup::from_wire(peer),
        bytes,
        segment_bytes: bytes.len(),
        congestion_experienced: false,
        waited_ns,
    });
    Ok((1, bytes.len()))
}

/// The time by the system's clock, which the kernel notes arrivals by.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Takes what has come to one socket, which may be connected to a `peer`; packets and bytes, none
/// when nothing has come.
/// `ask` is how many messages to ask for: twice what the last call found if that was all it asked
/// for, and not more than fit the target at their size. One that is asked for and not there costs as
/// much as an empty call, some 0.4 us, which a lone packet should not wait for.
fn take(
    socket: &UdpSocket,
    peer: Option<SocketAddr>,
    ask: &mut usize,
    arrays: &mut ReceiveArrays,
    placer: &mut dyn Placer,
) -> io::Result<(usize, usize)> {
    while let Err(error) = arrays.receive(socket.as_fd(), peer.is_some(), *ask) {
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN) => {
                *ask = 1;
                return Ok((0, 0));
            }
            _ => return Err(error),
        }
    }
    // Not to read it where the socket was found empty a moment ago makes a ping-pong of small
    // messages no faster that could be told from the noise (1 % of 6 us).
    let now = now();
    let (mut packets, mut bytes) = (0, 0);
    let mut bytes_max = 1;
    let mut messages = 0;
    for message in arrays.messages() {
        messages += 1;
        bytes_max = bytes_max.max(message.bytes.len());
        // Neither happens with UDP over IP: no message is longer than a slot, all have a source.
        let (Some(source), false) = (peer.or(message.source), message.truncated) else { continue };
        let batch = ReceivedBatch {
            source: setup::from_wire(source),
            bytes: message.bytes,
            segment_bytes: message.control.segment_bytes.unwrap_or(message.bytes.len()),
            congestion_experienced: message.control.congestion_experienced,
            waited_ns: waited_ns(now, message.control.came),
        };
        packets += batch.len();
        bytes += batch.bytes.len();
        placer.on_packets(batch);
    }
    let most = (RECEIVE_BYTES_TARGET / bytes_max).clamp(1, arrays.slots());
    let is_all = messages == (*ask).min(arrays.slots());
    *ask = if is_all { 2 * messages } else { messages }.clamp(1, most);
    Ok((packets, bytes))
}

/// How long a message had waited. The system's clock may have been set meanwhile: what is more than
/// any thread stays away is no waiting.
fn waited_ns(now: Duration, came: Option<Duration>) -> u64 {
    let waited = came.and_then(|came| now.checked_sub(came)).unwrap_or_default();
    if waited <= WAITED_MAX { waited.as_nanos() as u64 } else { 0 }
}

/// What an earlier packet met in the network, by way of an ICMP message, reported here (`ip(7)`,
/// "Error handling"). It says nothing about the packet at hand.
fn is_echo(code: i32) -> bool {
    matches!(code, libc::ECONNREFUSED | libc::ECONNRESET | libc::EHOSTDOWN | libc::EPROTO)
}

impl fmt::Debug for Offloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offloaded")
            .field("local", &self.local)
            .field("run_packets_max", &self.run_packets_max)
            .field("receive_coalescing", &self.receive_coalescing)
            .field("absorbed_errors", &self.absorbed_errors)
            .finish_non_exhaustive()
    }
}
