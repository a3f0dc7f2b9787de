//! A burst: packets to one destination, gathered for one call.
//!
//! A packet is a header, a payload and a trailer. Headers and trailers are small and are copied into an
//! arena; payloads are large, stay in the application's memory and are only referenced. In the arena
//! the trailer of packet i and the header of packet i+1 are adjacent:
//!
//! ```text
//! arena:  | H0 | T0 H1 | T1 H2 | T2 |    gather list:  H0, P0, T0H1, P1, T1H2, P2, T2
//! ```
//!
//! so a gather list (iovec) has two slices per packet, not three. [`Burst::push_whole`] copies the
//! payload into the arena, too; consecutive such packets are one slice. The storage ([`BurstBuffers`])
//! is reused, so after the first bursts a sender allocates nothing.

mod raw;

use core::net::{IpAddr, SocketAddr};
use std::ops::Range;

use crate::TrailerOffload;
use raw::{SliceList, SliceStorage};

/// Reusable storage for bursts; one per sending thread is enough.
#[derive(Debug)]
pub struct BurstBuffers {
    /// Grows as bursts need it, and keeps old bytes between bursts.
    arena: Vec<u8>,
    packets: Vec<Entry>,
    payloads: SliceStorage,
}

/// Positions of a packet's parts in the arena. Its header begins where the trailer before it ends.
#[derive(Clone, Copy, Debug)]
struct Entry {
    header_start: usize,
    /// Also the end of the header: the two are adjacent in the arena.
    trailer_start: usize,
    trailer_end: usize,
}

impl BurstBuffers {
    /// Storage for bursts of up to [`Burst::PACKETS_MAX`] packets.
    #[must_use]
    pub fn new() -> Self {
        /// Header and trailer of a Lacuna packet (at most 36 bytes, and room for an AEAD tag). The
        /// arena grows if they are larger.
        const ARENA_BYTES_PER_PACKET: usize = 64;
        Self {
            arena: vec![0; ARENA_BYTES_PER_PACKET * Burst::PACKETS_MAX],
            packets: Vec::with_capacity(Burst::PACKETS_MAX),
            payloads: SliceStorage::with_capacity(Burst::PACKETS_MAX),
        }
    }

    /// Begins a burst in this storage; the burst before is dropped.
    pub fn start<'b, 'p>(&'b mut self, destination: SocketAddr) -> Burst<'b, 'p> {
        self.packets.clear();
        Burst {
            destination,
            arena: &mut self.arena,
            packets: &mut self.packets,
            payloads: self.payloads.start(),
            source: None,
            takes_marks: true,
            trailer: TrailerOffload::None,
            first: 0,
            bytes: 0,
        }
    }
}

impl Default for BurstBuffers {
    fn default() -> Self {
        Self::new()
    }
}

/// Packets to one destination, in order. `'b` borrows the storage, `'p` the payloads.
#[derive(Debug)]
pub struct Burst<'b, 'p> {
    destination: SocketAddr,
    arena: &'b mut Vec<u8>,
    packets: &'b mut Vec<Entry>,
    payloads: SliceList<'b, 'p>,
    source: Option<IpAddr>,
    takes_marks: bool,
    trailer: TrailerOffload,
    /// A datapath has taken the packets before this one; see [`Burst::advance`].
    first: usize,
    /// Bytes of the packets from `first` on.
    bytes: usize,
}

impl<'p> Burst<'_, 'p> {
    /// The most packets that a burst holds. At 1,400 bytes they are about 5 bundles, at 4,096 bytes about
    /// 17: enough to make the cost of a system call negligible, and few enough for gather lists to stay
    /// in the L1 cache (a judgement).
    pub const PACKETS_MAX: usize = 256;

    /// Adds a packet. Header and trailer are copied, the payload is referenced.
    ///
    /// # Panics
    ///
    /// When the burst already holds [`PACKETS_MAX`](Self::PACKETS_MAX) packets.
    pub fn push(&mut self, header: &[u8], payload: &'p [u8], trailer: &[u8]) {
        self.push_with(header.len(), payload, trailer.len(), |to_header, to_trailer| {
            to_header.copy_from_slice(header);
            to_trailer.copy_from_slice(trailer);
        });
    }

    /// Adds a packet whose header and trailer `fill` writes in place. It must write every byte: the
    /// storage holds bytes of earlier packets. Padding between payload and trailer counts as trailer.
    ///
    /// # Panics
    ///
    /// When the burst already holds [`PACKETS_MAX`](Self::PACKETS_MAX) packets.
    pub fn push_with(
        &mut self,
        header_bytes: usize,
        payload: &'p [u8],
        trailer_bytes: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) {
        let (start, room) = self.begin_packet(header_bytes + trailer_bytes);
        let (header, trailer) = room.split_at_mut(header_bytes);
        fill(header, trailer);
        self.enter(start, header_bytes, payload, trailer_bytes);
    }

    /// Adds a packet that `fill` writes in place, payload included. It must write every byte: the storage
    /// holds bytes of earlier packets.
    ///
    /// # Panics
    ///
    /// When the burst already holds [`PACKETS_MAX`](Self::PACKETS_MAX) packets.
    pub fn push_whole(&mut self, packet_bytes: usize, fill: impl FnOnce(&mut [u8])) {
        let (start, room) = self.begin_packet(packet_bytes);
        fill(room);
        self.enter(start, packet_bytes, &[], 0);
    }

    /// Adds a packet of at most `bytes_max` bytes that `fill` writes, and whose length it returns.
    ///
    /// # Panics
    ///
    /// As [`push_whole`](Self::push_whole), and when `fill` returns more than it had.
    pub fn push_up_to(&mut self, bytes_max: usize, fill: impl FnOnce(&mut [u8]) -> usize) {
        let (start, room) = self.begin_packet(bytes_max);
        let bytes = fill(room);
        assert!(bytes <= bytes_max, "{bytes} bytes in the room of {bytes_max}");
        self.enter(start, bytes, &[], 0);
    }

    /// The arena position and the room of the next packet, right after the last one.
    // As a call it is 1 % of a packet's instructions, with those of `enter`.
    #[inline(always)]
    fn begin_packet(&mut self, bytes: usize) -> (usize, &mut [u8]) {
        assert!(
            self.packets.len() < Self::PACKETS_MAX,
            "a burst holds at most {} packets",
            Self::PACKETS_MAX
        );
        let (start, end) = (self.arena_bytes(), self.arena_bytes() + bytes);
        if self.arena.len() < end {
            self.arena.resize(end, 0);
        }
        (start, &mut self.arena[start..end])
    }

    /// Bytes of the packets' copied parts: headers, trailers, and packets of `push_whole`.
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        self.packets.last().map_or(0, |entry| entry.trailer_end)
    }

    #[inline(always)]
    fn enter(&mut self, header_start: usize, header: usize, payload: &'p [u8], trailer: usize) {
        let trailer_start = header_start + header;
        let trailer_end = trailer_start + trailer;
        self.packets.push(Entry { header_start, trailer_start, trailer_end });
        self.payloads.push(payload);
        self.bytes += header + payload.len() + trailer;
    }

    /// Has the packets leave from this address of the host, if the datapath can: a host that has several answers
    /// from the one that was asked.
    pub fn leave_from(&mut self, source: IpAddr) {
        self.source = Some(source);
    }

    /// The address that the packets leave from, if that is not the route's.
    #[must_use]
    #[inline]
    pub fn source(&self) -> Option<IpAddr> {
        self.source
    }

    /// Sends the packets without ECN (Not-ECT), whatever the datapath's configuration: for packets
    /// without data, and for paths that lose ECN-capable packets.
    pub fn refuse_marks(&mut self) {
        self.takes_marks = false;
    }

    /// Whether the packets may be marked as ECN-capable (ECT).
    #[must_use]
    pub fn takes_marks(&self) -> bool {
        self.takes_marks
    }

    /// Has the datapath complete the trailers of all packets.
    pub fn offload_trailers(&mut self, trailer: TrailerOffload) {
        self.trailer = trailer;
    }

    /// What the datapath does to the trailers.
    #[must_use]
    #[inline]
    pub fn trailer(&self) -> TrailerOffload {
        self.trailer
    }

    /// Drops the first `packets` packets, which [`Datapath::send`](crate::Datapath::send) has taken.
    ///
    /// # Panics
    ///
    /// When there are fewer.
    pub fn advance(&mut self, packets: usize) {
        assert!(packets <= self.len(), "a burst of {} cannot advance by {packets}", self.len());
        self.bytes -= match packets == self.len() {
            true => self.bytes,
            false => (0..packets).map(|i| self.packet_bytes(i)).sum(),
        };
        self.first += packets;
    }

    /// The packets' destination.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        self.destination
    }

    /// How many packets are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.packets.len() - self.first
    }

    /// Whether none is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all packets together.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Packet `i`, counted from the first one left.
    ///
    /// # Panics
    ///
    /// When there is no such packet.
    #[must_use]
    pub fn packet(&self, i: usize) -> TxPacket<'_> {
        let entry = self.packets[self.first + i];
        TxPacket {
            header: &self.arena[entry.header_start..entry.trailer_start],
            payload: self.payloads.get(self.first + i),
            trailer: &self.arena[entry.trailer_start..entry.trailer_end],
        }
    }

    /// The packets in order.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = TxPacket<'_>> {
        (0..self.len()).map(|i| self.packet(i))
    }

    /// Bytes of packet `i`.
    #[inline]
    pub fn packet_bytes(&self, i: usize) -> usize {
        let entry = self.packets[self.first + i];
        entry.trailer_end - entry.header_start + self.payloads.get(self.first + i).len()
    }

    /// The bytes of packet `i`, if they are contiguous.
    #[inline]
    pub fn whole_packet(&self, i: usize) -> Option<&[u8]> {
        let Entry { header_start, trailer_end, .. } = self.packets[self.first + i];
        match self.payloads.get(self.first + i) {
            [] => Some(&self.arena[header_start..trailer_end]),
            payload => (header_start == trailer_end).then_some(payload),
        }
    }

    /// Calls `slice` for the gather list of the packets in `range`: their bytes in order, without empty
    /// slices, adjacent parts of the arena as one slice. At most `2 * range.len() + 1` slices.
    #[inline]
    pub fn for_each_slice<'s>(&'s self, range: Range<usize>, mut slice: impl FnMut(&'s [u8])) {
        if range.is_empty() {
            return;
        }
        let mut slice = |bytes: &'s [u8]| {
            if !bytes.is_empty() {
                slice(bytes);
            }
        };
        let entries = &self.packets[self.first..][range.clone()];
        let (mut start, mut end) = (entries[0].header_start, entries[0].header_start);
        for (i, entry) in range.zip(entries) {
            let payload = self.payloads.get(self.first + i);
            if !payload.is_empty() {
                slice(&self.arena[start..entry.trailer_start]);
                slice(payload);
                start = entry.trailer_start;
            }
            end = entry.trailer_end;
        }
        slice(&self.arena[start..end]);
    }
}

/// One packet of a burst.
#[derive(Clone, Copy, Debug)]
pub struct TxPacket<'a> {
    /// Sent first.
    pub header: &'a [u8],
    /// The application's bytes.
    pub payload: &'a [u8],
    /// Sent last; includes the padding.
    pub trailer: &'a [u8],
}

impl TxPacket<'_> {
    /// Bytes of the packet on the wire.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.len() + self.payload.len() + self.trailer.len()
    }

    /// Whether the packet has no bytes at all, which UDP allows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the packet, as it is on the wire, to `bytes`.
    pub fn copy_to(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.header);
        bytes.extend_from_slice(self.payload);
        bytes.extend_from_slice(self.trailer);
    }
}

#[cfg(test)]
mod tests;
