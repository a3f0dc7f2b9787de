//! A run of packets ready for the wire: the headers follow from it by
//! arithmetic, the payload is borrowed from the sender's memory. Parity is
//! computed when it is first asked for, and is the run's own.
//!
//! On a path that has become too narrow each packet of a run goes in as many
//! pieces (`pieces.rs`), each with a sequence number of its own.
//!
//! The queue pair hands these out under its lock; building the packets, with
//! the parity and the checksum over every byte, happens outside of it.

use super::encode::{Encoder, Parity};
use crate::buffer::SendBuffer;
use crate::modes::MessageShape;
use lacuna_place::geometry::Geometry;
use lacuna_place::parity::ParityPacket;
use lacuna_wire::{DataHeader, ImmediateFields, Qpn, Seal, psn};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Data of one message, or of a part that a streaming send added to it.
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
    /// If the message carries parity; it is whole then, not a part of a stream.
    pub(crate) encoder: Option<Encoder>,
}

impl Segment {
    fn mtu_bytes(&self) -> u64 {
        u64::from(self.geometry.mtu_bytes())
    }

    /// Where in the message the data end.
    fn end_bytes(&self) -> u64 {
        u64::from(self.first_packet) * self.mtu_bytes() + self.data.len() as u64
    }

    /// Where in the data a packet begins: at their end, if it is behind them.
    #[inline]
    fn data_at(&self, packet: u32) -> usize {
        let place = u64::from(packet) * self.mtu_bytes();
        let base = u64::from(self.first_packet) * self.mtu_bytes();
        (place - base).min(self.data.len() as u64) as usize
    }

    /// The packets of this segment as its mode sees them.
    pub(crate) fn shape(&self) -> MessageShape {
        let data_packets = self.geometry.packets(self.data.len() as u64);
        let fragments = match self.immediate {
            Some(_) => self.geometry.split().fragments(),
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

    /// Payload of a packet.
    fn payload_bytes(&self, packet: u32) -> u64 {
        if self.geometry.is_parity(packet) {
            return self.parity_bytes(packet);
        }
        let start = u64::from(packet) * self.mtu_bytes();
        self.end_bytes().saturating_sub(start).min(self.mtu_bytes())
    }

    /// The longest payload of some packets in a row.
    fn longest_bytes(&self, packets: &Range<u32>) -> u64 {
        if !self.geometry.is_parity(packets.start) {
            return self.payload_bytes(packets.start);
        }
        packets.clone().map(|packet| self.parity_bytes(packet)).max().unwrap_or(0)
    }

    /// Pieces that each of some packets in a row goes in, so that none is longer than this.
    #[cold]
    fn pieces(&self, packets: &Range<u32>, payload_bytes_max: u32) -> u32 {
        self.longest_bytes(packets).div_ceil(payload_bytes_max.into()).max(1) as u32
    }

    /// Bytes of parity packet `packet`.
    fn parity_bytes(&self, packet: u32) -> u64 {
        let Some(layout) = self.geometry.layout() else { return 0 };
        let bytes = self.data.len() as u64;
        let packets = self.geometry.packets(bytes);
        layout.parity_bytes(layout.locate(packet), bytes, packets, self.geometry.mtu_bytes())
    }

    /// What parity packet `packet` is, and where it goes: behind the data.
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
    /// Pieces that each goes in: 1 if it goes whole.
    pub(crate) pieces: u32,
    pub(crate) channel: u8,
    pub(crate) first_psn: u64,
    /// End of the run that this one was cut from: parity that the message's mode
    /// sends of one submessage.
    whole_end: u32,
    pub(crate) takes_marks: bool,
    /// Of a run of parity, once it was asked for.
    parity: OnceLock<Arc<Parity>>,
}

impl Transmit {
    /// A run whose packets go whole if their payloads are no longer than `payload_bytes_max`.
    #[inline]
    pub(super) fn new(
        segment: Arc<Segment>,
        packets: Range<u32>,
        whole_end: u32,
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
            whole_end,
            takes_marks: true,
            parity: OnceLock::new(),
        }
    }

    /// Whether the run is of parity.
    pub fn is_parity(&self) -> bool {
        self.segment.geometry.is_parity(self.packets.start)
    }

    /// Computes the parity of a run of parity, unless that was done. Asking for
    /// a packet does so too; this is for a caller who wants to take the time.
    pub fn prepare(&self) {
        if self.is_parity() {
            self.parity();
        }
    }

    fn parity(&self) -> Option<&Parity> {
        let segment = &*self.segment;
        let (encoder, layout) = (segment.encoder.as_ref()?, segment.geometry.layout()?);
        let parity = self.parity.get_or_init(|| {
            let submessage = layout.locate(self.packets.start).submessage;
            let is_last = self.whole_end == self.packets.end;
            let count = layout.locate(self.whole_end - 1).parity + 1;
            let mtu_bytes = segment.geometry.mtu_bytes() as usize;
            encoder.parity(layout, submessage, &segment.data, mtu_bytes, (count, is_last))
        });
        Some(parity)
    }

    /// Message number.
    pub fn number(&self) -> u64 {
        self.segment.number
    }

    /// Channel that the run belongs to.
    pub fn channel(&self) -> u8 {
        self.channel
    }

    /// How its packets are sealed.
    #[inline]
    pub fn seal(&self) -> Seal {
        self.segment.geometry.seal()
    }

    /// Whether its packets may say that their sender answers to congestion marks.
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

    /// The headers of the run's packets from `first` on, for who needs no bytes: neither memory nor
    /// parity is touched. Each says how long its payload is.
    #[inline]
    pub fn headers_from(&self, first: usize) -> impl Iterator<Item = DataHeader> {
        let template = self.template_of(self.data_range(), &[]);
        (first..self.len()).map(move |index| template.header(index))
    }

    #[inline]
    fn template(&self) -> Template<'_> {
        let Range { start, end } = self.data_range();
        self.template_of(start..end, self.segment.data.range(start, end - start))
    }

    /// What of the segment's data the run carries.
    #[inline]
    fn data_range(&self) -> Range<usize> {
        match self.is_parity() {
            true => 0..0,
            false => {
                self.segment.data_at(self.packets.start)..self.segment.data_at(self.packets.end)
            }
        }
    }

    /// With the run's range of the segment's data, and those, if they are wanted.
    #[inline]
    fn template_of<'t>(&'t self, range: Range<usize>, data: &'t [u8]) -> Template<'t> {
        let segment = &*self.segment;
        let geometry = &segment.geometry;
        let slot = geometry.slot_of(segment.number);
        let generation = geometry.generation_of(segment.number);
        Template {
            run: self,
            data,
            base: u64::from(segment.first_packet) * segment.mtu_bytes() + range.start as u64,
            data_bytes: range.end - range.start,
            pieces: self.pieces,
            is_parity: self.is_parity(),
            mtu_bytes: segment.mtu_bytes(),
            // The rest is each packet's own.
            header: DataHeader {
                dest: Qpn::new(segment.peer_queue_pair, self.channel, generation),
                psn: 0,
                ends_message: false,
                carries_immediate: segment.immediate.is_some(),
                address: None,
                rkey: segment.rkey,
                length: 0,
                behind: 0,
                immediate: 0,
            },
            slot,
        }
    }

    /// What the run is on the wire.
    #[inline]
    pub(crate) fn measure(&self) -> Measured {
        let segment = &*self.segment;
        let (mtu_bytes, end) = (segment.mtu_bytes(), segment.end_bytes());
        let runs_to = u64::from(self.packets.end) * mtu_bytes;
        if self.pieces > 1 || runs_to >= end + mtu_bytes || self.is_parity() {
            return self.measure_each();
        }
        // Full packets, and one at most that the data end in.
        let start = u64::from(self.packets.start) * mtu_bytes;
        Measured {
            padded_bytes: (runs_to.min(end) - start).next_multiple_of(4),
            overhead_bytes: self.len() as u64 * u64::from(segment.geometry.overhead_bytes(false)),
            short: u32::from(runs_to > end),
        }
    }

    /// The same of a run of any kind, packet by packet.
    #[cold]
    fn measure_each(&self) -> Measured {
        let segment = &*self.segment;
        let has_addresses = self.pieces > 1 || self.is_parity();
        let mut run = Measured { padded_bytes: 0, overhead_bytes: 0, short: 0 };
        for packet in self.packets.clone() {
            let bytes = segment.payload_bytes(packet);
            run.padded_bytes += padded(bytes, self.pieces);
            run.short += if bytes < segment.mtu_bytes() { self.pieces } else { 0 };
            // Empty packets behind the data stand at its end.
            let is_elsewhere = u64::from(packet) * segment.mtu_bytes() > segment.end_bytes();
            let overhead_bytes = segment.geometry.overhead_bytes(has_addresses || is_elsewhere);
            run.overhead_bytes += u64::from(self.pieces) * u64::from(overhead_bytes);
        }
        run
    }
}

/// What a run is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Bytes of payload and padding.
    pub(crate) padded_bytes: u64,
    /// Bytes of headers and trailers.
    pub(crate) overhead_bytes: u64,
    /// Packets that are shorter than they can be: those that the data end in, and empty ones.
    pub(crate) short: u32,
}

/// The bytes of one piece of a payload: all are equally long, but for a byte.
fn piece(bytes: usize, pieces: usize, index: usize) -> Range<usize> {
    bytes * index / pieces..bytes * (index + 1) / pieces
}

/// Bytes of a payload and the padding of its pieces.
fn padded(bytes: u64, pieces: u32) -> u64 {
    let pieces = pieces as usize;
    let lengths = (0..pieces).map(|index| piece(bytes as usize, pieces, index).len());
    lengths.map(|length| length.next_multiple_of(4) as u64).sum()
}

/// What the packets of a run have in common, worked out once.
#[derive(Debug, Clone, Copy)]
struct Template<'t> {
    run: &'t Transmit,
    /// The data of the run, if they are wanted.
    data: &'t [u8],
    /// Where in the message they begin, and how many they are.
    base: u64,
    data_bytes: usize,
    pieces: u32,
    is_parity: bool,
    mtu_bytes: u64,
    header: DataHeader,
    slot: u32,
}

impl<'t> Template<'t> {
    // It has two callers, for which the compiler does not inline it by itself.
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

    /// The packet on the wire with this index, which is a piece: of which packet, its header, and the
    /// part of the packet's payload that it carries.
    #[cold]
    fn piece(&self, index: usize) -> (u32, DataHeader, Range<usize>) {
        let pieces = self.pieces as usize;
        let packet = self.run.packets.start + (index / pieces) as u32;
        let header = self.whole(packet, index);
        let bytes = header.length as usize;
        let Range { start, end } = piece(bytes, pieces, index % pieces);
        let geometry = &self.run.segment.geometry;
        let place = geometry.slot_address(self.slot) + u64::from(packet) * self.mtu_bytes;
        let address = match self.is_parity {
            // The address of parity says how long the message is; the bytes that are left say
            // the rest.
            true => header.address,
            false => Some(header.address.unwrap_or(place) + start as u64),
        };
        let (length, behind) = ((end - start) as u32, (bytes - end) as u32);
        (packet, DataHeader { address, length, behind, ..header }, start..end)
    }

    /// A packet, whose first or only sequence number is that of this index.
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

    /// Its header alone.
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

    /// The header of a packet of `length` bytes that goes to `offset` in its message, or slot.
    #[inline(always)]
    fn header_of(&self, packet: u32, index: usize, offset: u64, length: usize) -> DataHeader {
        let segment = &*self.run.segment;
        let geometry = &segment.geometry;
        // Its own place is told by its number.
        let is_elsewhere = self.is_parity || offset != u64::from(packet) * self.mtu_bytes;
        // Parity says it of the whole message.
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
            address: is_elsewhere.then(|| geometry.slot_address(self.slot) + offset),
            length: length as u32,
            immediate: split.pack(ImmediateFields { message: self.slot, packet, fragment }),
            ..self.header
        }
    }

    /// Where in the message a data packet goes, and where its bytes begin and end in the run's data.
    /// Empty packets behind all data stand at their end.
    #[inline(always)]
    fn data_place(&self, packet: u32) -> (u64, usize, usize) {
        let place = u64::from(packet) * self.mtu_bytes;
        let start = (place - self.base).min(self.data_bytes as u64) as usize;
        let end = (start + self.mtu_bytes as usize).min(self.data_bytes);
        (self.base + start as u64, start, end)
    }

    /// Where in the slot a packet of parity goes, and how long it is.
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
