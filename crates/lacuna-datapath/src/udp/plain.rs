//! UDP through the standard library alone: one packet a call, copied into one buffer first.
//!
//! It runs anywhere, and it is the reference against which the offloads are tested. Only for ICRCs it
//! asks more of Linux: "don't fragment" where it sends them (`icrc.rs`), and each packet's
//! destination where it receives them.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
#[cfg(unix)]
use std::os::fd::AsFd;

#[cfg(target_os = "linux")]
use super::icrc::IcrcSender;
#[cfg(target_os = "linux")]
use super::syscall::ReceiveArrays;
use super::{ABSORBED_PER_CALL_MAX, UdpConfig, setup};
#[cfg(unix)]
use crate::EventSources;
use crate::{
    BindError, Burst, Capabilities, Datapath, PACKET_BYTES_MAX, Placer, ReceivedBatch, SendError,
    TrailerOffload, ends_socket,
};

/// The most packets that one `receive` hands over (a judgement: some 20 us of work).
const RECEIVE_PACKETS_MAX: usize = 32;

#[derive(Debug)]
pub(super) struct Plain {
    socket: UdpSocket,
    local: SocketAddr,
    /// Destination of received packets, if the configuration asks for it and the socket is bound to
    /// one address.
    local_ip: Option<IpAddr>,
    /// The packet being sent or received.
    packet: Vec<u8>,
    receive_buffer_bytes: usize,
    blocked: bool,
    absorbed_errors: u64,
    #[cfg(target_os = "linux")]
    icrc: Icrc,
}

/// For packets with ICRCs.
#[cfg(target_os = "linux")]
struct Icrc {
    sender: IcrcSender,
    /// Packets have "don't fragment".
    is_unfragmented: bool,
    /// To receive with destinations, if the socket is bound to any address.
    arrays: Option<ReceiveArrays>,
}

#[cfg(target_os = "linux")]
impl std::fmt::Debug for Icrc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Icrc").field("sender", &self.sender).finish_non_exhaustive()
    }
}

impl Plain {
    pub(super) fn bind(config: UdpConfig) -> Result<Self, BindError> {
        let socket = setup::bind(&config)?;
        let local = setup::local_addr(&socket, &config)?;
        let ip = local.ip().to_canonical();
        let local_ip = (config.tells_local && !ip.is_unspecified()).then_some(ip);
        #[cfg(target_os = "linux")]
        super::options::set_class(&socket, config.dscp.traffic_class());
        let receive_buffer_bytes = setup::receive_buffer_bytes(&socket);
        // One byte longer than the longest packet, so that truncation is noticed.
        let packet = vec![0; PACKET_BYTES_MAX + 1];
        Ok(Self {
            socket,
            local,
            local_ip,
            packet,
            receive_buffer_bytes,
            blocked: false,
            absorbed_errors: 0,
            #[cfg(target_os = "linux")]
            icrc: Icrc { sender: IcrcSender::new(local), is_unfragmented: false, arrays: None },
        })
    }

    pub(super) fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    pub(super) fn absorbed_errors(&self) -> u64 {
        self.absorbed_errors
    }

    /// Completes the ICRC of `self.packet[..bytes]`.
    #[cfg(target_os = "linux")]
    fn complete_icrc(&mut self, now_ns: u64, to: SocketAddr, bytes: usize) -> io::Result<()> {
        if !self.icrc.is_unfragmented {
            self.icrc.is_unfragmented = super::options::set_unfragmented(&self.socket);
        }
        if let Some(trailer) = self.packet[..bytes].last_chunk_mut() {
            *trailer = self.icrc.sender.flow_to(now_ns, to)?.seal(*trailer, bytes, 0);
        }
        Ok(())
    }

    /// Receives a packet: its length, source and destination.
    fn receive_packet(&mut self) -> io::Result<(usize, SocketAddr, Option<IpAddr>)> {
        #[cfg(target_os = "linux")]
        if let Some(arrays) = &mut self.icrc.arrays {
            arrays.receive(self.socket.as_fd(), false, 1)?;
            let message = arrays.messages().next().ok_or(io::ErrorKind::WouldBlock)?;
            // UDP over IP has a source, and no packet that is longer than a slot.
            let source = message.source.ok_or(io::ErrorKind::Interrupted)?;
            self.packet[..message.bytes.len()].copy_from_slice(message.bytes);
            return Ok((message.bytes.len(), source, message.control.local));
        }
        let (bytes, source) = self.socket.recv_from(&mut self.packet)?;
        Ok((bytes, source, self.local_ip))
    }

    /// Sends `self.packet[..bytes]`; false when the socket would block.
    fn send_packet(&mut self, to: SocketAddr, bytes: usize) -> Result<bool, SendError> {
        let mut absorbed = 0;
        loop {
            match self.socket.send_to(&self.packet[..bytes], to) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_full(&error) => return Ok(false),
                Err(error) if is_too_large(&error) => {
                    return Err(SendError::PacketTooLarge { packet_bytes: bytes });
                }
                Err(error) if is_of_earlier_packet(&error) && absorbed < ABSORBED_PER_CALL_MAX => {
                    absorbed += 1;
                    self.absorbed_errors += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Datapath for Plain {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "udp-plain",
            packet_bytes_max: PACKET_BYTES_MAX,
            burst_packets_max: Burst::PACKETS_MAX,
            segmentation_offload: false,
            receive_coalescing: false,
            congestion_marks: false,
            timestamps: false,
            trailer: match cfg!(target_os = "linux") {
                true => TrailerOffload::Icrc,
                false => TrailerOffload::None,
            },
            receive_buffer_bytes: self.receive_buffer_bytes,
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    #[cfg_attr(
        not(target_os = "linux"),
        allow(unused_variables, reason = "only ICRCs need the time")
    )]
    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        self.blocked = false;
        let to = setup::to_socket_family(burst.destination(), self.local.is_ipv6());
        for (sent, packet) in burst.packets().enumerate() {
            let result = if packet.len() > PACKET_BYTES_MAX {
                Err(SendError::PacketTooLarge { packet_bytes: packet.len() })
            } else {
                let mut rest = &mut self.packet[..];
                for part in [packet.header, packet.payload, packet.trailer] {
                    let (head, tail) = rest.split_at_mut(part.len());
                    head.copy_from_slice(part);
                    rest = tail;
                }
                #[cfg(target_os = "linux")]
                let completed = match burst.trailer() {
                    TrailerOffload::Icrc => self.complete_icrc(now_ns, to, packet.len()),
                    _ => Ok(()),
                };
                #[cfg(not(target_os = "linux"))]
                let completed = Ok(());
                completed.map_err(SendError::from).and_then(|()| self.send_packet(to, packet.len()))
            };
            match result {
                Ok(true) => {}
                Ok(false) => {
                    self.blocked = true;
                    return Ok(sent);
                }
                // The next call begins with this packet and gets the same error.
                Err(_) if sent > 0 => return Ok(sent),
                Err(error) => return Err(error),
            }
        }
        Ok(burst.len())
    }

    fn receive(&mut self, _now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        let mut absorbed = 0;
        let mut packets = 0;
        while packets < RECEIVE_PACKETS_MAX {
            match self.receive_packet() {
                // Longer than any packet of ours: from a foreign sender.
                Ok((bytes, ..)) if bytes > PACKET_BYTES_MAX => {}
                Ok((bytes, source, local)) => {
                    packets += 1;
                    placer.on_packets(ReceivedBatch {
                        source: setup::unmapped(source),
                        local,
                        bytes: &mut self.packet[..bytes],
                        segment_bytes: bytes,
                        congestion_experienced: false,
                        waited_ns: 0,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if packets == 0 && ends_socket(&error).is_some() => return Err(error),
                // Temporary, or the next call reports it again.
                Err(_) => {
                    self.absorbed_errors += 1;
                    absorbed += 1;
                    if absorbed == ABSORBED_PER_CALL_MAX {
                        break;
                    }
                }
            }
        }
        Ok(packets)
    }

    fn next_event_ns(&self) -> Option<u64> {
        None
    }

    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_> {
        EventSources::one(self.socket.as_fd(), self.blocked)
    }

    fn send_blocked(&self) -> bool {
        self.blocked
    }

    fn tell_local(&mut self) {
        let ip = self.local.ip().to_canonical();
        if !ip.is_unspecified() {
            self.local_ip = Some(ip);
            return;
        }
        #[cfg(target_os = "linux")]
        if self.icrc.arrays.is_none() {
            super::options::set_local_reports(&self.socket);
            self.icrc.arrays = Some(ReceiveArrays::new(1));
        }
    }

    /// The standard library has no call for this; Linux has.
    fn receive_drops(&self) -> u64 {
        #[cfg(target_os = "linux")]
        return super::syscall::drops(self.socket.as_fd()).map_or(0, u64::from);
        #[cfg(not(target_os = "linux"))]
        0
    }

    #[cfg(target_os = "linux")]
    fn route_packet_bytes(&self, to: SocketAddr) -> Option<usize> {
        super::route::packet_bytes(self.local, to).ok()
    }
}

/// Whether the error comes from an ICMP message about an earlier packet (RFC 1122, section 4.1.3.3).
fn is_of_earlier_packet(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset)
}

fn is_full(error: &io::Error) -> bool {
    #[cfg(unix)]
    if error.raw_os_error() == Some(libc::ENOBUFS) {
        return true;
    }
    error.kind() == io::ErrorKind::WouldBlock
}

fn is_too_large(error: &io::Error) -> bool {
    #[cfg(unix)]
    const MESSAGE_SIZE: i32 = libc::EMSGSIZE;
    #[cfg(not(unix))]
    const MESSAGE_SIZE: i32 = 10_040; // WSAEMSGSIZE
    error.raw_os_error() == Some(MESSAGE_SIZE)
}
