//! The datapath of a channel in virtual time: what is sent waits to be carried, what has arrived waits
//! to be received.

use core::net::{Ipv4Addr, SocketAddr};
#[cfg(unix)]
use lacuna_burst::EventSources;
use lacuna_burst::{
    Burst, Capabilities, Datapath, PACKET_BYTES_MAX, Placer, ReceivedBatch, SendError,
    TrailerOffload,
};
use lacuna_wire::{DataHeader, Seal};
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Packets that one call receives at most.
const RECEIVED_MAX: usize = 64;

/// The UDP port of channel 0.
const FIRST_PORT: u16 = 10_000;

/// A channel of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The host's number.
    pub host: usize,
    /// Its channel.
    pub channel: u8,
}

impl Place {
    /// The address that stands for it.
    pub fn address(self) -> SocketAddr {
        let host = Ipv4Addr::from_bits(10 << 24 | self.host as u32);
        SocketAddr::from((host, FIRST_PORT + u16::from(self.channel)))
    }

    /// Whom an address stands for.
    pub(super) fn of(address: SocketAddr) -> Option<Self> {
        let SocketAddr::V4(address) = address else { return None };
        let host = (address.ip().to_bits() ^ 10 << 24) as usize;
        let channel = u8::try_from(address.port().checked_sub(FIRST_PORT)?).ok()?;
        Some(Self { host, channel })
    }
}

/// A packet under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// All of it.
    Bytes(Vec<u8>),
    /// A data packet without its payload.
    Header(DataHeader),
}

impl Packet {
    /// Bytes that it has on a link, as a UDP payload.
    #[expect(clippy::len_without_is_empty, reason = "no packet is empty")]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Header(header) => Seal::default().packet_bytes(header),
        }
    }
}

/// A packet that a host has sent.
#[derive(Debug)]
pub struct Sent {
    /// Who sent it.
    pub from: Place,
    /// To whom.
    pub to: Place,
    /// Whether it says that its sender answers to congestion marks.
    pub takes_marks: bool,
    /// The packet.
    pub packet: Packet,
}

/// See the module's text. Copies are the same port.
#[derive(Debug, Clone)]
pub struct Port {
    place: Place,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    sent: Vec<Sent>,
    arrived: VecDeque<(Place, Vec<u8>, bool)>,
    /// Longer packets are refused.
    packet_bytes_max: usize,
    /// Packets that were.
    refused: u64,
    /// What the host believes to pass on its route.
    route_packet_bytes: Option<usize>,
}

impl Port {
    pub(super) fn new(place: Place) -> Self {
        let state = State {
            sent: Vec::new(),
            arrived: VecDeque::new(),
            packet_bytes_max: PACKET_BYTES_MAX,
            refused: 0,
            route_packet_bytes: None,
        };
        Self { place, state: Arc::new(Mutex::new(state)) }
    }

    /// Whose it is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Refuses longer packets from here on.
    pub fn set_packet_bytes_max(&self, bytes: usize) {
        self.lock().packet_bytes_max = bytes;
    }

    /// What the host says of its route when it is asked.
    pub fn set_route_packet_bytes(&self, bytes: Option<usize>) {
        self.lock().route_packet_bytes = bytes;
    }

    /// Packets that were refused as too long.
    pub fn refused(&self) -> u64 {
        self.lock().refused
    }

    pub(super) fn put(&self, from: Place, bytes: Vec<u8>, is_marked: bool) {
        self.lock().arrived.push_back((from, bytes, is_marked));
    }

    pub(super) fn take_sent(&self, each: impl FnMut(Sent)) {
        let sent = std::mem::take(&mut self.lock().sent);
        sent.into_iter().for_each(each);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Datapath for Port {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: "virtual",
            packet_bytes_max: PACKET_BYTES_MAX,
            burst_packets_max: Burst::PACKETS_MAX,
            segmentation_offload: false,
            receive_coalescing: false,
            congestion_marks: true,
            timestamps: false,
            trailer: TrailerOffload::None,
            receive_buffer_bytes: usize::MAX,
        }
    }

    fn local_addr(&self) -> SocketAddr {
        self.place.address()
    }

    fn send(&mut self, _now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        let mut state = self.lock();
        let mut count = 0;
        for packet in burst.packets() {
            if packet.len() > state.packet_bytes_max {
                if count > 0 {
                    break;
                }
                state.refused += 1;
                return Err(SendError::PacketTooLarge { packet_bytes: packet.len() });
            }
            let mut bytes = Vec::new();
            packet.copy_to(&mut bytes);
            count += 1;
            // Whoever sends elsewhere sends to nobody.
            if let Some(to) = Place::of(burst.destination()) {
                let takes_marks = burst.takes_marks();
                let packet = Packet::Bytes(bytes);
                state.sent.push(Sent { from: self.place, to, takes_marks, packet });
            }
        }
        Ok(count)
    }

    fn receive(&mut self, _now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        let mut arrived: Vec<_> = {
            let mut state = self.lock();
            let count = state.arrived.len().min(RECEIVED_MAX);
            state.arrived.drain(..count).collect()
        };
        for (from, bytes, is_marked) in &mut arrived {
            let segment_bytes = bytes.len();
            placer.on_packets(ReceivedBatch {
                source: from.address(),
                local: Some(self.place.address().ip()),
                bytes,
                segment_bytes,
                congestion_experienced: *is_marked,
                waited_ns: 0,
            });
        }
        Ok(arrived.len())
    }

    fn next_event_ns(&self) -> Option<u64> {
        (!self.lock().arrived.is_empty()).then_some(0)
    }

    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_> {
        EventSources::none()
    }

    fn receive_drops(&self) -> u64 {
        0
    }

    fn route_packet_bytes(&self, _to: SocketAddr) -> Option<usize> {
        self.lock().route_packet_bytes
    }
}
