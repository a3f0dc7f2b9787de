//! The trait that every datapath implements, what a datapath says of itself, and the trait of those
//! who take what arrives.
//!
//! The shape follows from segmentation offload: a [`Burst`] to one destination goes out in a call,
//! a [`ReceivedBatch`] from one source comes in. A datapath never calls back into its user except
//! through [`Placer`], and never starts a thread.

use core::net::SocketAddr;
use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

use crate::{BUNDLE_PACKETS_MAX, Burst, PACKET_BYTES_MAX, ReceivedBatch, SendError};

/// What a datapath can do, for those who size packets, bursts and windows by it.
///
/// A wrapper reports what the datapath inside it reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Which datapath this is: `"udp"`, `"udp-plain"`, `"mem"`. For logs and start-up messages.
    pub name: &'static str,
    /// The largest packet (UDP payload) that `send` can ever take. The path may carry less, which
    /// shows as [`SendError::PacketTooLarge`] or as loss.
    pub packet_bytes_max: usize,
    /// The most packets worth putting into one burst.
    pub burst_packets_max: usize,
    /// Whether runs of packets of one size leave in one piece. It may turn false while running,
    /// when the device turns out not to support it.
    pub segmentation_offload: bool,
    /// Whether packets that arrive together may be received in one piece.
    pub receive_coalescing: bool,
    /// Whether [`ReceivedBatch::congestion_experienced`] means something.
    pub congestion_marks: bool,
    /// Whether [`ReceivedBatch::waited_ns`] means something.
    pub timestamps: bool,
    /// Which trailers `send` fills in by itself.
    pub trailer: TrailerOffload,
    /// What the receive buffer may hold by the datapath's own accounting. For UDP that is the
    /// kernel's (`SO_RCVBUF` as read back), which charges bookkeeping besides payload: a packet may
    /// cost twice its size or more.
    pub receive_buffer_bytes: usize,
}

impl Capabilities {
    /// Packets of `packet_bytes` that leave in one piece, the burst allowing: one system call and
    /// one way through the network stack for all of them. 1 without segmentation offload.
    #[must_use]
    pub fn bundle_packets(&self, packet_bytes: usize) -> usize {
        match self.segmentation_offload {
            true => (PACKET_BYTES_MAX / packet_bytes.max(1)).clamp(1, BUNDLE_PACKETS_MAX),
            false => 1,
        }
    }
}

/// Which trailer of a packet a datapath fills in by itself: the last four bytes of the packet, which
/// whoever makes it leaves free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrailerOffload {
    /// None: packets leave as they are.
    #[default]
    None,
    /// The invariant CRC of InfiniBand, which covers headers of IP and UDP that only the datapath
    /// knows.
    Icrc,
}

/// What to poll of a datapath: nothing, or up to two descriptors.
///
/// (One epoll descriptor for both makes each packet that arrives dearer. Measured: M-udp-6.)
#[cfg(unix)]
#[derive(Clone, Copy, Debug, Default)]
pub struct EventSources<'d>([Option<EventSource<'d>>; 2]);

/// A descriptor that is readable while packets wait.
#[cfg(unix)]
#[derive(Clone, Copy, Debug)]
pub struct EventSource<'d> {
    /// What to poll.
    pub descriptor: BorrowedFd<'d>,
    /// The last `send` found no room here: poll for that, too.
    pub wants_room: bool,
}

#[cfg(unix)]
impl<'d> EventSources<'d> {
    /// Nothing to poll: the datapath has to be looked at from time to time.
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

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = EventSource<'d>> + use<'d> {
        self.0.into_iter().flatten()
    }

    /// Whether there is nothing to poll.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }
}

/// Something that moves bursts of packets; see the [crate's page](crate) for the rules.
pub trait Datapath: Send {
    /// What this datapath can do.
    fn capabilities(&self) -> Capabilities;

    /// The address that this end is bound to, with the port filled in.
    fn local_addr(&self) -> SocketAddr;

    /// Sends the packets of the burst in order and returns how many were taken, a prefix.
    ///
    /// Fewer than all means that the datapath would block or that the next packet is in trouble:
    /// drop the prefix from the burst ([`Burst::advance`]) and call again, after a wait if nothing
    /// was taken. A packet taken is not a packet delivered.
    ///
    /// # Errors
    ///
    /// The error is about the first packet of the burst, none was taken, and later packets are
    /// unaffected.
    fn send(&mut self, now_ns: u64, burst: &Burst<'_, '_>) -> Result<usize, SendError>;

    /// Takes one bounded batch of what has arrived, hands it to the placer and returns the number
    /// of packets; 0 when it found nothing. Where there are several places to look, not every call
    /// looks at each, and what comes fast may be left there for a fraction of a millisecond, until
    /// it is worth a call. Never blocks.
    ///
    /// # Errors
    ///
    /// When the datapath itself is broken. What the network does to it is absorbed and counted.
    fn receive(&mut self, now_ns: u64, placer: &mut dyn Placer) -> io::Result<usize>;

    /// When this datapath wants `receive` or `send` to be called even if nothing arrives, because
    /// it holds packets back. A time already past means at once.
    fn next_event_ns(&self) -> Option<u64>;

    /// What to poll. A datapath that has nothing to poll has to be looked at from time to time.
    #[cfg(unix)]
    fn event_sources(&self) -> EventSources<'_>;

    /// Whether the last `send` took less than it was given because the way out was full. A
    /// thread that sleeps then wakes up, too, when there is room again.
    fn send_blocked(&self) -> bool {
        false
    }

    /// Packets that this end's own receive queue has dropped for want of room, cumulative. Packets
    /// that arrived in one piece may count once: Linux does not count the segments of a piece it
    /// drops.
    fn receive_drops(&self) -> u64;

    /// The longest packet (UDP payload) that the host believes to pass on the route to `to`. `send`
    /// takes longer ones, if the first hop does: only who doubts that they arrive has to ask. `None`
    /// where the host does not tell.
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

    fn receive_drops(&self) -> u64 {
        (**self).receive_drops()
    }

    fn route_packet_bytes(&self, to: SocketAddr) -> Option<usize> {
        (**self).route_packet_bytes(to)
    }
}

/// Takes what arrives.
///
/// The bytes belong to the datapath and are good for the length of the call only; the placer may write
/// to them, to decrypt in place for instance.
pub trait Placer {
    /// Packets from one source, in the order of their arrival.
    fn on_packets(&mut self, batch: ReceivedBatch<'_>);
}
