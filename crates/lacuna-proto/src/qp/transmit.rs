//! A run of packets ready to be sent. Headers follow from the run by arithmetic, payloads are
//! borrowed from the sender's memory or gathered from it, and parity is computed on first use.
//!
//! If the path MTU has fallen, each packet of a run is sent in several pieces, each with a sequence
//! number of its own (see `pmtu.rs`, and `pieces.rs` of `lacuna-place` for the receiver).
//!
//! The queue pair hands out runs under its lock. Building the packets, with the parity and a
//! checksum over every byte, happens outside of it.

use super::encode::{Encoder, Parity};
use super::scratch::Scratch;
use super::send::Target;
use crate::modes::MessageShape;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::Geometry;
use lacuna_place::parity::ParityPacket;
use lacuna_wire::{DataHeader, ImmediateFields, Qpn, Seal, psn};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// The data of a message, or a part that a streaming send has pushed.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) geometry: Geometry,
    pub(crate) number: u64,
    pub(crate) data: SendBuffer,
    /// Packet of the message that the data begins with.
    pub(crate) first_packet: u32,
    /// End of the message in bytes, if this segment holds it.
    pub(crate) message_end: Option<u64>,
    pub(crate) immediate: Option<u32>,
    pub(crate) peer_queue_pair: u32,
    pub(crate) rkey: u32,
    /// Where the message goes, if that is a region of the peer.
    pub(crate) target: Option<Target>,
    /// `Some` if the message carries parity; the segment is the whole message then.
    pub(crate) encoder: Option<Encoder>,
}

impl Segment {
    fn mtu_bytes(&self) -> u64 {
        u64::from(self.geometry.mtu_bytes())
    }

    /// Offset in the message of the end of the data.
    fn end_bytes(&self) -> u64 {
        u64::from(self.first_packet) * self.mtu_bytes() + self.data.len() as u64
    }

    /// Offset of a packet's first byte in the data. Empty packets after the data have the offset of
    /// their end.
    #[inline]
    fn data_at(&self, packet: u32) -> usize {
        let place = u64::from(packet) * self.mtu_bytes();
        let base = u64::from(self.first_packet) * self.mtu_bytes();
        (place - base).min(self.data.len() as u64) as usize
    }

    /// The shape of this segment.
    pub(crate) fn shape(&self) -> MessageShape {
        let data_packets = self.geometry.packets(self.data.len() as u64);
        let fragments = match self.immediate {
            Some(immediate) => self.geometry.split().fragments_of(immediate),
            None => 0,
        };
        MessageShape {
            chunk_packets: self.geometry.chunk_packets(),
            data_packets,
            total_packets: data_packets.max(fragments),
            fragments,
            layout: self.encoder.as_ref().and(self.geometry.layout()).copied(),
        }
    }

    /// Payload bytes of a packet.
    fn payload_bytes(&self, packet: u32) -> u64 {
        if self.geometry.is_parity(packet) {
            return self.parity_bytes(packet);
        }
        let start = u64::from(packet) * self.mtu_bytes();
        self.end_bytes().saturating_sub(start).min(self.mtu_bytes())
    }

    /// Longest payload of these packets.
    fn longest_bytes(&self, packets: &Range<u32>) -> u64 {
        if !self.geometry.is_parity(packets.start) {
            return self.payload_bytes(packets.start);
        }
        packets.clone().map(|packet| self.parity_bytes(packet)).max().unwrap_or(0)
    }

    /// Pieces to cut each of these packets into, so that no piece has a longer payload than this.
    #[cold]
    fn pieces(&self, packets: &Range<u32>, payload_bytes_max: u32) -> u32 {
        self.longest_bytes(packets).div_ceil(payload_bytes_max.into()).max(1) as u32
    }

    /// Payload bytes of a parity packet.
    fn parity_bytes(&self, packet: u32) -> u64 {
        let Some(layout) = self.geometry.layout() else { return 0 };
        let bytes = self.data.len() as u64;
        let packets = self.geometry.packets(bytes);
        layout.parity_bytes(layout.locate(packet), bytes, packets, self.geometry.mtu_bytes())
    }

    /// Which parity a packet carries, and its offset in the message, which is after the data.
    fn parity_place(&self, packet: u32) -> Option<(ParityPacket, u64)> {
        let layout = self.geometry.layout().filter(|layout| layout.is_parity(packet))?;
        let ahead = u64::from(packet - layout.base()) * u64::from(self.geometry.mtu_bytes());
        Some((layout.locate(packet), self.data.len() as u64 + ahead))
    }
}

/// A run of consecutive packets of one message on one channel.
#[derive(Debug, Clone)]
pub struct Transmit {
    pub(crate) segment: Arc<Segment>,
    /// Packet indices within the message.
    pub(crate) packets: Range<u32>,
    /// Pieces that each packet is cut into; 1 if it is sent whole.
    pub(crate) pieces: u32,
    pub(crate) channel: u8,
    pub(crate) first_psn: u64,
    /// End of the run that this one was cut from, which is all parity that the mode sends of one
    /// submessage.
    run_end: u32,
    pub(crate) takes_marks: bool,
    /// Bytes that are nowhere in the segment, once they were asked for.
    made: OnceLock<Made>,
}

/// What a run has of its own to be read from. Small: runs are moved from queue to queue.
#[derive(Debug, Clone)]
enum Made {
    /// Parity of a run of parity.
    Parity(Arc<Parity>),
    /// The data of a run of data that must be gathered.
    Data(Scratch),
}

impl Transmit {
    /// A run whose packets are cut into pieces if their payloads are longer than
    /// `payload_bytes_max`.
    #[inline]
    pub(super) fn new(
        segment: Arc<Segment>,
        packets: Range<u32>,
        run_end: u32,
        channel: u8,
        payload_bytes_max: u32,
    ) -> Self {
        let pieces = match payload_bytes_max >= segment.geometry.mtu_bytes() {
            true => 1,
            false => segment.pieces(&packets, payload_bytes_max),
        };
        Self {
            segment,
            packets,
            pieces,
            channel,
            first_psn: 0,
            run_end,
            takes_marks: true,
            made: OnceLock::new(),
        }
    }

    /// Whether this is a run of parity.
    pub fn is_parity(&self) -> bool {
        self.segment.geometry.is_parity(self.packets.start)
    }

    /// Computes the parity of a run of parity, if that was not done yet. Reading a packet does so, too;
    /// this is for a caller that measures the time.
    pub fn prepare(&self) {
        if self.is_parity() {
            self.parity();
        }
    }

    fn parity(&self) -> Option<&Parity> {
        let segment = &*self.segment;
        let (encoder, layout) = (segment.encoder.as_ref()?, segment.geometry.layout()?);
        let made = self.made.get_or_init(|| {
            let submessage = layout.locate(self.packets.start).submessage;
            let is_last = self.run_end == self.packets.end;
            let count = layout.locate(self.run_end - 1).parity + 1;
            let mtu_bytes = segment.geometry.mtu_bytes() as usize;
            let counts = (count, is_last);
            Made::Parity(encoder.parity(layout, submessage, &segment.data, mtu_bytes, counts))
        });
        match made {
            Made::Parity(parity) => Some(parity),
            Made::Data(_) => None,
        }
    }

    /// Message number.
    pub fn number(&self) -> u64 {
        self.segment.number
    }

    /// Channel of the run.
    pub fn channel(&self) -> u8 {
        self.channel
    }

    /// Seal of its packets.
    #[inline]
    pub fn seal(&self) -> Seal {
        self.segment.geometry.seal()
    }

    /// Whether its packets may be marked as ECN-capable.
    pub fn takes_marks(&self) -> bool {
        self.takes_marks
    }

    /// Packets on the wire.
    pub fn len(&self) -> usize {
        (self.packets.end - self.packets.start) as usize * self.pieces as usize
    }

    /// One past the sequence number of the run's last packet.
    pub fn psn_end(&self) -> u64 {
        self.first_psn + self.len() as u64
    }

    /// Runs are never empty.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Header and payload of the run's packet `index`.
    ///
    /// # Panics
    /// If there is no such packet.
    #[inline]
    pub fn packet(&self, index: usize) -> (DataHeader, &[u8]) {
        assert!(index < self.len());
        self.template().packet(index)
    }

    /// Headers and payloads of the run's packets from `first` on.
    #[inline]
    pub fn packets_from(&self, first: usize) -> impl Iterator<Item = (DataHeader, &[u8])> {
        let template = self.template();
        (first..self.len()).map(move |index| template.packet(index))
    }

    /// Headers of the run's packets from `first` on, for a caller that needs no payloads: neither
    /// the sender's memory nor parity is read.
    #[inline]
    pub fn headers_from(&self, first: usize) -> impl Iterator<Item = DataHeader> {
        let template = self.template_of(self.data_range(), &[]);
        (first..self.len()).map(move |index| template.header(index))
    }

    #[inline]
    fn template(&self) -> Template<'_> {
        let Range { start, end } = self.data_range();
        let data = self.segment.data.try_range(start, end - start);
        self.template_of(start..end, data.unwrap_or_else(|| self.gather(start..end)))
    }

    /// The run's data, which must be gathered; a run of parity has none.
    #[cold]
    fn gather(&self, Range { start, end }: Range<usize>) -> &[u8] {
        if self.is_parity() {
            return &[];
        }
        let made = self.made.get_or_init(|| {
            let mut scratch = Scratch::new(end - start);
            self.segment.data.copy_to(start, &mut scratch);
            Made::Data(scratch)
        });
        match made {
            Made::Data(scratch) => scratch,
            Made::Parity(_) => &[],
        }
    }

    /// The range of the segment's data that the run carries.
    #[inline]
    fn data_range(&self) -> Range<usize> {
        match self.is_parity() {
            true => 0..0,
            false => {
                self.segment.data_at(self.packets.start)..self.segment.data_at(self.packets.end)
            }
        }
    }

    /// Template for this range of the segment's data; `data` are its bytes, or empty if only
    /// headers are wanted.
    #[inline]
    fn template_of<'t>(&'t self, range: Range<usize>, data: &'t [u8]) -> Template<'t> {
        let segment = &*self.segment;
        let geometry = &segment.geometry;
        let slot = geometry.slot_of(segment.number);
        let generation = geometry.generation_of(segment.number);
        let (message_address, rkey) = match segment.target {
            Some(Target { key, address }) => (address, key),
            None => (geometry.slot_address(slot), segment.rkey),
        };
        Template {
            run: self,
            data,
            base: u64::from(segment.first_packet) * segment.mtu_bytes() + range.start as u64,
            data_bytes: range.end - range.start,
            pieces: self.pieces,
            is_parity: self.is_parity(),
            has_addresses: self.is_parity()
                || segment.target.is_some()
                || geometry.seal().needs_address(),
            mtu_bytes: segment.mtu_bytes(),
            // The fields left at zero are each packet's own.
            header: DataHeader {
                dest: Qpn::new(segment.peer_queue_pair, self.channel, generation),
                psn: 0,
                ends_message: false,
                carries_immediate: segment.immediate.is_some(),
                address: None,
                rkey,
                length: 0,
                behind: 0,
                immediate: 0,
            },
            slot,
            message_address,
        }
    }

    /// Bytes of the run on the wire.
    #[inline]
    pub(crate) fn measure(&self) -> Measured {
        let segment = &*self.segment;
        let (mtu_bytes, end) = (segment.mtu_bytes(), segment.end_bytes());
        let runs_to = u64::from(self.packets.end) * mtu_bytes;
        if self.pieces > 1 || runs_to >= end + mtu_bytes || self.is_parity() {
            return self.measure_each();
        }
        // Only full packets, and at most one short packet at the end of the data.
        let start = u64::from(self.packets.start) * mtu_bytes;
        Measured {
            padded_bytes: (runs_to.min(end) - start).next_multiple_of(4),
            overhead_bytes: self.len() as u64
                * u64::from(segment.geometry.overhead_bytes(segment.target.is_some())),
            short: u32::from(runs_to > end),
        }
    }

    /// Measures a run of any kind, packet by packet.
    #[cold]
    fn measure_each(&self) -> Measured {
        let segment = &*self.segment;
        let has_addresses = self.pieces > 1 || self.is_parity() || segment.target.is_some();
        let mut run = Measured { padded_bytes: 0, overhead_bytes: 0, short: 0 };
        for packet in self.packets.clone() {
            let bytes = segment.payload_bytes(packet);
            run.padded_bytes += padded(bytes, self.pieces);
            run.short += if bytes < segment.mtu_bytes() { self.pieces } else { 0 };
            // An empty packet after the data is addressed to their end, not to its own place.
            let is_elsewhere = u64::from(packet) * segment.mtu_bytes() > segment.end_bytes();
            let overhead_bytes = segment.geometry.overhead_bytes(has_addresses || is_elsewhere);
            run.overhead_bytes += u64::from(self.pieces) * u64::from(overhead_bytes);
        }
        run
    }
}

/// Bytes of a run on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Bytes of payload and padding.
    pub(crate) padded_bytes: u64,
    /// Bytes of headers and trailers.
    pub(crate) overhead_bytes: u64,
    /// Packets that are not full: the one in which the data end, and empty ones.
    pub(crate) short: u32,
}

/// Byte range of one piece of a payload. Pieces differ by at most a byte.
fn piece(bytes: usize, pieces: usize, index: usize) -> Range<usize> {
    bytes * index / pieces..bytes * (index + 1) / pieces
}

/// Bytes of a payload with the padding of its pieces.
fn padded(bytes: u64, pieces: u32) -> u64 {
    let pieces = pieces as usize;
    let lengths = (0..pieces).map(|index| piece(bytes as usize, pieces, index).len());
    lengths.map(|length| length.next_multiple_of(4) as u64).sum()
}

/// The common parts of a run's packets, computed once.
#[derive(Debug, Clone, Copy)]
struct Template<'t> {
    run: &'t Transmit,
    /// The data of the run; empty if only headers are wanted.
    data: &'t [u8],
    /// Offset of the run's data in the message.
    base: u64,
    data_bytes: usize,
    pieces: u32,
    is_parity: bool,
    /// Every packet carries its address: parity, because it is nowhere in the message; writes to regions,
    /// because the peer does not know the message's; and where the seal wants one.
    has_addresses: bool,
    mtu_bytes: u64,
    header: DataHeader,
    slot: u32,
    /// Address of the message's first byte.
    message_address: u64,
}

impl<'t> Template<'t> {
    // The compiler does not inline this into its two callers by itself.
    #[inline(always)]
    fn packet(&self, index: usize) -> (DataHeader, &'t [u8]) {
        if self.pieces > 1 {
            return self.piece_with_bytes(index);
        }
        self.whole_with_bytes(self.run.packets.start + index as u32, index)
    }

    #[inline]
    fn header(&self, index: usize) -> DataHeader {
        match self.pieces > 1 {
            true => self.piece(index).1,
            false => self.whole(self.run.packets.start + index as u32, index),
        }
    }

    #[cold]
    fn piece_with_bytes(&self, index: usize) -> (DataHeader, &'t [u8]) {
        let (packet, header, part) = self.piece(index);
        (header, &self.whole_with_bytes(packet, index).1[part])
    }

    /// The piece with this index on the wire: its packet, its header, and the part of the packet's
    /// payload that it carries.
    #[cold]
    fn piece(&self, index: usize) -> (u32, DataHeader, Range<usize>) {
        let pieces = self.pieces as usize;
        let packet = self.run.packets.start + (index / pieces) as u32;
        let header = self.whole(packet, index);
        let bytes = header.length as usize;
        let Range { start, end } = piece(bytes, pieces, index % pieces);
        let place = self.message_address + u64::from(packet) * self.mtu_bytes;
        let address = match self.is_parity {
            // The address of parity encodes the message's length; `behind`, the bytes that are
            // left, tells where the piece belongs.
            true => header.address,
            false => Some(header.address.unwrap_or(place) + start as u64),
        };
        let (length, behind) = ((end - start) as u32, (bytes - end) as u32);
        (packet, DataHeader { address, length, behind, ..header }, start..end)
    }

    /// A whole packet; its first sequence number is that of `index`.
    #[inline(always)]
    fn whole_with_bytes(&self, packet: u32, index: usize) -> (DataHeader, &'t [u8]) {
        let (offset, payload) = match self.is_parity {
            true => (self.parity_place(packet).0, self.parity(packet)),
            false => {
                let (offset, start, end) = self.data_place(packet);
                (offset, &self.data[start..end])
            }
        };
        (self.header_of(packet, index, offset, payload.len()), payload)
    }

    /// The header of a whole packet.
    fn whole(&self, packet: u32, index: usize) -> DataHeader {
        let (offset, length) = match self.is_parity {
            true => self.parity_place(packet),
            false => {
                let (offset, start, end) = self.data_place(packet);
                (offset, end - start)
            }
        };
        self.header_of(packet, index, offset, length)
    }

    /// Header of a packet of `length` bytes at `offset` of its message (of its slot, for parity).
    #[inline(always)]
    fn header_of(&self, packet: u32, index: usize, offset: u64, length: usize) -> DataHeader {
        let segment = &*self.run.segment;
        let geometry = &segment.geometry;
        // A packet at the place of its number needs no address.
        let has_address = self.has_addresses || offset != u64::from(packet) * self.mtu_bytes;
        // Every parity packet of a message that ends in this slot has the mark.
        let ends_message = match self.is_parity {
            true => segment.message_end.is_some(),
            false => segment.message_end == Some(offset + length as u64),
        };
        let split = geometry.split();
        let fragment = match segment.immediate {
            Some(immediate) => split.fragment_of(immediate, packet),
            None => 0,
        };
        DataHeader {
            psn: psn::wrap(self.run.first_psn + index as u64),
            ends_message,
            address: has_address.then(|| self.message_address + offset),
            length: length as u32,
            immediate: split.pack(ImmediateFields { message: self.slot, packet, fragment }),
            ..self.header
        }
    }

    /// Offset of a data packet in the message, and begin and end of its bytes in the run's data.
    /// Empty packets after the data have the offset of their end.
    #[inline(always)]
    fn data_place(&self, packet: u32) -> (u64, usize, usize) {
        let place = u64::from(packet) * self.mtu_bytes;
        let start = (place - self.base).min(self.data_bytes as u64) as usize;
        let end = (start + self.mtu_bytes as usize).min(self.data_bytes);
        (self.base + start as u64, start, end)
    }

    /// Offset in the slot and length of a parity packet.
    fn parity_place(&self, packet: u32) -> (u64, usize) {
        let segment = &*self.run.segment;
        let offset = segment.parity_place(packet).map_or(0, |(_, offset)| offset);
        (offset, segment.parity_bytes(packet) as usize)
    }

    fn parity(&self, packet: u32) -> &'t [u8] {
        let Some((at, _)) = self.run.segment.parity_place(packet) else { return &[] };
        let mtu_bytes = self.mtu_bytes as usize;
        let start = at.row as usize * mtu_bytes;
        let parity = self.run.parity();
        parity.map_or(&[], |p| p.chunk(at.parity, start..start + mtu_bytes))
    }
}
