//! The trait [`Datapath`], its [`Capabilities`], and the trait [`Placer`] of the receiver of packets.
//!
//! The interface follows from segmentation offload and coalescing: one call sends a [`Burst`] to one
//! destination, and packets are received as a [`ReceivedBatch`] from one source. A datapath calls its
//! user only through [`Placer`], and never starts a thread.

use core::net::SocketAddr;
use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

use crate::{BUNDLE_PACKETS_MAX, Burst, PACKET_BYTES_MAX, ReceivedBatch, SendError};

/// The limits and offloads of a datapath; its user sizes packets, bursts and windows by them.
///
/// A wrapper reports those of its inner datapath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Name of the datapath, for logs: `"udp"`, `"udp-plain"`, `"mem"`.
    pub name: &'static str,
    /// The largest packet (UDP payload) that `send` can take. The path may carry less, which shows as
    /// [`SendError::PacketTooLarge`] or as loss.
    pub packet_bytes_max: usize,
    /// The most packets worth putting into one burst.
    pub burst_packets_max: usize,
    /// Whether consecutive packets of one size leave as a bundle. It may become false while running,
    /// when the device refuses bundles.
    pub segmentation_offload: bool,
    /// Whether packets that arrive together may be received as one batch.
    pub receive_coalescing: bool,
    /// Whether [`ReceivedBatch::congestion_experienced`] is reported.
    pub congestion_marks: bool,
    /// Whether [`ReceivedBatch::waited_ns`] is reported.
    pub timestamps: bool,
    /// Which trailers `send` can complete.
    pub trailer: TrailerOffload,
    /// Size of the receive buffer, by the datapath's own accounting. For UDP that is the kernel's
    /// (`SO_RCVBUF` as read back), which includes bookkeeping: a packet may cost twice its size or more.
    pub receive_buffer_bytes: usize,
}

impl Capabilities {
    /// Most packets of `packet_bytes` in one bundle, which passes the network stack as one. 1 without
    /// segmentation offload.
    #[must_use]
    pub fn bundle_packets(&self, packet_bytes: usize) -> usize {
        match self.segmentation_offload {
            true => (PACKET_BYTES_MAX / packet_bytes.max(1)).clamp(1, BUNDLE_PACKETS_MAX),
            false => 1,
        }
    }
}

/// What a datapath does to the trailers of packets that it sends, which are their last four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrailerOffload {
    /// None: packets are sent unchanged.
    #[default]
    None,
    /// Turns the CRC-32 of the packet's own bytes into the invariant CRC of InfiniBand. That covers
    /// IP and UDP headers, too, which only the datapath knows; their part is added
    /// (`lacuna_wire::IcrcFlow`), so a packet that was damaged before stays so.
    Icrc,
}

/// The descriptors of a datapath to poll: up to two, or none.
///
/// (One epoll descriptor for both makes each arriving packet more expensive. Measured: M-udp-6.)
#[cfg(unix)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EventSources<'d>([Option<EventSource<'d>>; 2]);

/// A descriptor that is readable while packets wait.
#[cfg(unix)]
#[derive(Clone, Copy, Debug)]
pub struct EventSource<'d> {
    /// The descriptor to poll for input.
    pub descriptor: BorrowedFd<'d>,
    /// The last `send` found its buffer full: poll for output, too.
    pub wants_room: bool,
}

#[cfg(unix)]
impl<'d> EventSources<'d> {
    /// Nothing to poll: the caller must call `receive` from time to time.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// One descriptor.
    #[must_use]
    pub fn one(descriptor: BorrowedFd<'d>, wants_room: bool) -> Self {
        Self([Some(EventSource { descriptor, wants_room }), None])
    }

    /// One descriptor, or two.
    #[must_use]
    pub fn two(first: EventSource<'d>, second: Option<EventSource<'d>>) -> Self {
        Self([Some(first), second])
    }

    /// All descriptors.
    pub fn iter(&self) -> impl Iterator<Item = EventSource<'d>> + use<'d> {
        self.0.into_iter().flatten()
    }

    /// Whether there is nothing to poll.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }
}

/// Sends and receives bursts of packets; see the [crate's page](crate) for the rules.
pub trait Datapath: Send {
    /// The limits and offloads of this datapath.
    fn capabilities(&self) -> Capabilities;

    /// The address that this end is bound to, with the port filled in.
    fn local_addr(&self) -> SocketAddr;

    /// Sends the packets of the burst in order and returns how many were taken: a prefix.
    ///
    /// Fewer than all means that the datapath would block or that the next packet causes an error: drop
    /// the prefix from the burst ([`Burst::advance`]) and call again, after a wait if nothing was taken.
    /// A packet that was taken may still be lost.
    ///
    /// # Errors
    ///
    /// The error concerns the first packet of the burst only; no packet was taken.
    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError>;

    /// Receives a bounded number of packets, hands them to the placer and returns their number; 0 when
    /// it found none. With several sockets, a call may read only one of them, and packets of a fast flow
    /// may be left unread for a fraction of a millisecond, so that one call returns many. Never blocks.
    ///
    /// # Errors
    ///
    /// When the datapath itself is broken. Errors of the network are counted and ignored.
    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize>;

    /// When the caller must call `receive` or `send` even if nothing arrives, because the datapath
    /// delays packets. A time in the past means at once.
    fn next_event_ns(&self) -> Option<u64>;

    /// The descriptors to poll. If there is none, the caller must call `receive` from time to time.
    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_>;

    /// Whether the last `send` took fewer packets than it was given because its buffer was full. A
    /// [waiting](EventSource::wants_room) thread is then woken when there is room again, too.
    fn send_blocked(&self) -> bool {
        false
    }

    /// From now on [`ReceivedBatch::local`] is filled in, if the datapath can: the receiver of
    /// [`TrailerOffload::Icrc`] needs it.
    fn tell_local(&mut self) {}

    /// Whether a peer that receives nearly all packets may have a connected socket from now on, if the datapath has
    /// such. It makes packets of that peer cheaper and those of others wait; see `UdpConfig::connects_peer`.
    fn connect_peer(&mut self, is_allowed: bool) {
        let _ = is_allowed;
    }

    /// Packets that this end's receive queue has dropped because it was full, cumulative. Packets that
    /// arrived as one bundle may count once: Linux does not count the segments of a dropped bundle.
    fn receive_drops(&self) -> u64;

    /// The largest packet (UDP payload) within the host's path MTU of the route to `to`. `send` takes
    /// larger ones if the first hop does; this method is for callers that doubt whether they arrive.
    /// `None` where the host does not report it.
    fn route_packet_bytes(&self, to: SocketAddr) -> Option<usize> {
        let _ = to;
        None
    }
}

impl<D: Datapath + ?Sized> Datapath for Box<D> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn local_addr(&self) -> SocketAddr {
        (**self).local_addr()
    }

    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError> {
        (**self).send(now_ns, burst)
    }

    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize> {
        (**self).receive(now_ns, placer)
    }

    fn next_event_ns(&self) -> Option<u64> {
        (**self).next_event_ns()
    }

    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_> {
        (**self).event_sources()
    }

    fn send_blocked(&self) -> bool {
        (**self).send_blocked()
    }

    fn tell_local(&mut self) {
        (**self).tell_local();
    }

    fn connect_peer(&mut self, is_allowed: bool) {
        (**self).connect_peer(is_allowed);
    }

    fn receive_drops(&self) -> u64 {
        (**self).receive_drops()
    }

    fn route_packet_bytes(&self, to: SocketAddr) -> Option<usize> {
        (**self).route_packet_bytes(to)
    }
}

/// Takes received packets.
///
/// The bytes belong to the datapath and are valid only during the call; the placer may write to them, to
/// decrypt in place for instance.
pub trait Placer {
    /// Packets from one source, in the order of their arrival.
    fn on_packets(&mut self, batch: ReceivedBatch<'_>);
}
