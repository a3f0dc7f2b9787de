//! A run of packets ready for the wire: the headers follow from it by
//! arithmetic, the payload is borrowed from the sender's memory.
//!
//! The queue pair hands these out under its lock; building the packets, with
//! the checksum over every byte, happens outside of it.

use crate::buffer::SendBuffer;
use crate::geometry::Geometry;
use crate::modes::MessageShape;
use crate::psn;
use lacuna_wire::{DataHeader, ImmediateFields, Qpn};
use std::ops::Range;
use std::sync::Arc;

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
}

impl Segment {
    /// Where in the message a packet's payload goes, and the payload.
    #[inline]
    fn payload(&self, packet: u32) -> (u64, &[u8]) {
        let mtu_bytes = u64::from(self.geometry.mtu_bytes());
        let data: &[u8] = &self.data;
        let base = u64::from(self.first_packet) * mtu_bytes;
        // Empty packets behind the data stand at its end.
        let offset = (u64::from(packet) * mtu_bytes).min(base + data.len() as u64);
        let start = (offset - base) as usize;
        (offset, &data[start..(start + mtu_bytes as usize).min(data.len())])
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
        }
    }
}

/// A run of consecutive packets of one message on one channel.
#[derive(Debug, Clone)]
pub struct Transmit {
    pub(crate) segment: Arc<Segment>,
    /// Packet indices within the message.
    pub(crate) packets: Range<u32>,
    pub(crate) channel: u8,
    pub(crate) first_psn: u64,
}

impl Transmit {
    /// Message number.
    pub fn number(&self) -> u64 {
        self.segment.number
    }

    /// Channel that the run belongs to.
    pub fn channel(&self) -> u8 {
        self.channel
    }

    /// Packets in the run.
    pub fn len(&self) -> usize {
        (self.packets.end - self.packets.start) as usize
    }

    /// One past the sequence number of the run's last packet.
    pub fn psn_end(&self) -> u64 {
        self.first_psn + self.len() as u64
    }

    /// Runs are never empty.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Payload of the run's packet `index`, if it has so many.
    #[inline]
    pub fn payload(&self, index: usize) -> Option<&[u8]> {
        (index < self.len()).then(|| self.segment.payload(self.packets.start + index as u32).1)
    }

    /// Header and payload of the run's packet `index`.
    ///
    /// # Panics
    /// If there is no such packet.
    #[inline]
    pub fn packet(&self, index: usize) -> (DataHeader, &[u8]) {
        assert!(index < self.len());
        let segment = &*self.segment;
        let geometry = &segment.geometry;
        let packet = self.packets.start + index as u32;
        let slot = geometry.slot_of(segment.number);
        let (offset, payload) = segment.payload(packet);
        let immediate = geometry.split().pack(ImmediateFields {
            message: slot,
            packet,
            fragment: geometry.split().fragment_of(segment.immediate.unwrap_or(0), packet),
        });
        let header = DataHeader {
            dest: Qpn::new(
                segment.peer_queue_pair,
                self.channel,
                geometry.generation_of(segment.number),
            ),
            psn: psn::wrap(self.first_psn + index as u64),
            ends_message: segment.message_end == Some(offset + payload.len() as u64),
            carries_immediate: segment.immediate.is_some(),
            address: geometry.slot_address(slot) + offset,
            rkey: segment.rkey,
            length: payload.len() as u32,
            immediate,
        };
        (header, payload)
    }

    /// UDP payload bytes of the whole run, headers, padding and trailers included.
    pub(crate) fn wire_bytes(&self) -> u64 {
        let segment = &*self.segment;
        let mtu_bytes = u64::from(segment.geometry.mtu_bytes());
        let base = u64::from(segment.first_packet) * mtu_bytes;
        let end = base + segment.data.len() as u64;
        let at = |packet: u32| (u64::from(packet) * mtu_bytes).min(end);
        let payload = at(self.packets.end) - at(self.packets.start);
        let count = self.len() as u64;
        payload.next_multiple_of(4) + count * lacuna_wire::DATA_OVERHEAD_BYTES as u64
    }
}
