//! Parity of one receive: checks a parity packet against the message and hands it to the store. The
//! record provides the data packets for repairs.

#![allow(unsafe_code)]

use super::{Placed, Position, Receive};
use crate::discard::Discard;
use crate::parity::{DataPackets, ParityOutcome, ParityStore};
use crate::payload::{LengthOnly, Payload};
use crate::pieces::{Key, Piece, Pieces, Progress};
use crate::sync::Ordering;
use std::ops::Range;

impl Receive {
    /// The parity store; `None` if messages carry no parity.
    pub(crate) fn parity(&self) -> Option<&ParityStore> {
        self.parity.as_deref()
    }

    /// Notes the bytes of a packet that arrived in memory which others may write, if its row may be
    /// repaired.
    pub(crate) fn note_sum(&self, packet: u32, bytes: &[u8]) {
        if let Some(store) = &self.parity {
            store.note_sum(packet, bytes);
        }
    }

    /// Whether these are the bytes of a packet as it arrived.
    pub(crate) fn has_sum(&self, packet: u32, bytes: &[u8]) -> bool {
        self.parity.as_ref().is_some_and(|store| store.has_sum(packet, bytes))
    }

    /// Takes one parity packet, or a piece of one that is followed by `behind` bytes of other pieces. The
    /// message's length follows from its address, since parity lies after the data.
    pub(crate) fn take_parity(
        &self,
        channel: u8,
        at: Position,
        (payload, behind): (impl Payload, u32),
        (key, pieces): (Key, &mut Pieces),
    ) -> Result<Placed, Discard> {
        let store = self.parity.as_deref().ok_or(Discard::Inconsistent)?;
        let layout = store.layout();
        let mtu_bytes = self.geometry.mtu_bytes();
        let ahead = u64::from(at.packet - layout.base()) * u64::from(mtu_bytes);
        let length = at.offset.checked_sub(ahead).ok_or(Discard::Inconsistent)?;
        if length > self.capacity_bytes() {
            return Err(Discard::OutOfRange);
        }
        if !at.ends_message && length != self.geometry.max_message_bytes() {
            // Only a message that continues in the next slot does not end here, and it fills this one.
            return Err(Discard::Inconsistent);
        }
        let packets = self.geometry.packets(length);
        let place = layout.locate(at.packet);
        let is_parity = place.submessage < layout.submessages(packets)
            && place.row < layout.rows_of(place.submessage, packets)
            && place.parity < layout.parity_chunks(layout.chunks_of(place.submessage, packets));
        if !is_parity {
            return Err(Discard::Inconsistent);
        }
        let whole_bytes = layout.parity_bytes(place, length, packets, mtu_bytes);
        let left = payload.len() as u64 + u64::from(behind);
        let start = whole_bytes.checked_sub(left).ok_or(Discard::Inconsistent)? as u32;
        if payload.len() == 0 && whole_bytes > 0 {
            return Err(Discard::Inconsistent);
        }
        if at.ends_message {
            self.learn_end(length)?;
        } else if self.length_bytes().is_some() {
            return Err(Discard::Inconsistent);
        }
        if at.carries_immediate {
            self.add_fragment(at.packet, at.fragment);
        }
        if start == 0 && behind == 0 {
            let outcome = store.take(self, channel, at.packet, packets, payload);
            return Ok(Placed::Parity(outcome));
        }
        if store.has(at.packet) {
            return Ok(Placed::Parity(ParityOutcome::Duplicate));
        }
        let piece = Piece { start, whole_bytes: whole_bytes as u32 };
        Ok(Placed::Parity(match pieces.take_parity(key, piece, payload) {
            Ok(Some(whole)) => store.take(self, channel, at.packet, packets, &*whole),
            Ok(None) => {
                store.take(self, channel, at.packet, packets, LengthOnly(whole_bytes as usize))
            }
            Err(Progress::Duplicate) => ParityOutcome::Duplicate,
            Err(_) => ParityOutcome::Part,
        }))
    }

    /// Whether all chunks of a range are complete; tests a word of the bitmap at a time.
    fn has_chunks(&self, chunks: Range<u32>) -> bool {
        let mut chunk = chunks.start;
        while chunk < chunks.end {
            let count = (64 - chunk % 64).min(chunks.end - chunk);
            let mask = (u64::MAX >> (64 - count)) << (chunk % 64);
            let word = self.chunk_bits().get((chunk / 64) as usize);
            if word.is_none_or(|word| word.load(Ordering::Acquire) & mask != mask) {
                return false;
            }
            chunk += count;
        }
        true
    }
}

impl DataPackets for Receive {
    fn mtu_bytes(&self) -> u32 {
        self.geometry.mtu_bytes()
    }

    fn has(&self, packet: u32) -> bool {
        self.has_packet(packet)
    }

    fn has_chunks_of(&self, packets: Range<u32>) -> bool {
        let chunk_packets = self.geometry.chunk_packets();
        self.has_chunks(packets.start / chunk_packets..packets.end.div_ceil(chunk_packets))
    }

    fn bytes_of(&self, packet: u32) -> usize {
        let mtu_bytes = u64::from(self.geometry.mtu_bytes());
        let start = u64::from(packet) * mtu_bytes;
        self.limit_bytes().saturating_sub(start).min(mtu_bytes) as usize
    }

    fn payload(&self, packet: u32) -> Option<&[u8]> {
        if !self.has_packet(packet) {
            return None;
        }
        let start = u64::from(packet) * u64::from(self.geometry.mtu_bytes());
        // SAFETY: the packet's bit is set (acquired above), and no worker writes
        // below a set packet bit.
        unsafe { self.placement.read(start as usize, self.bytes_of(packet)) }
    }

    fn are_phantom(&self) -> bool {
        self.placement.is_phantom()
    }

    fn must_be_copied(&self) -> bool {
        self.placement.is_in_regions()
    }

    fn copy(&self, packet: u32, out: &mut [u8]) -> bool {
        let offset = u64::from(packet) * u64::from(self.geometry.mtu_bytes());
        self.placement.copy(offset, out) && self.has_sum(packet, out)
    }
}
