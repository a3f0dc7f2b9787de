//! The place of a message in a region: an unbound receive has none until its first packet names one, by a
//! key and an address. That packet *binds* the receive. Several workers may try to at the same time; one
//! wins, and the packets of the others must agree with it, as all later ones.
//!
//! Addresses count from the start of the key's range, so packet `p` of a message that begins at `base`
//! has the address `base + p * mtu`. Parity and empty packets have addresses after the data, as in a
//! slot. The record is an ordinary [`Receive`] without memory of its own, as long as the rest of the key's
//! range or the longest message.
//!
//! A record does not hold the region: workers reach the bytes under a pin of the key, burst by burst, and
//! compare the key's generation. So after `revoke` the owner can have the memory back although the receive
//! is still open.

use super::Validity;
use super::keys::Registration;
use crate::discard::Discard;
use crate::geometry::Geometry;
use crate::parity::DataPackets;
use crate::payload::Payload;
use crate::pieces::{Key, Piece, Pieces};
use crate::placement::Placement;
use crate::receive::{Placed, Position, Receive};
use crate::sync::SetOnce;
use crate::table::Ticket;
use std::fmt;
use std::ops::Range;
// Taken once, by the owner: nothing for loom to look at.
use std::sync::{Mutex, PoisonError};

/// What an unbound receive is bound to, once its first packet has arrived.
#[derive(Debug, Default)]
pub(crate) struct Unbound(SetOnce<Box<Bound>>);

impl Unbound {
    /// What the receive is bound to.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Bound> {
        self.0.get().map(|bound| &**bound)
    }

    /// Binds the receive, unless another worker was first, and returns what it is bound to.
    pub(crate) fn bind(&self, make: impl FnOnce() -> Bound) -> Option<&Bound> {
        if self.get().is_none() {
            // An error means that another worker was first.
            _ = self.0.set(Box::new(make()));
        }
        self.get()
    }
}

/// The place of a message in a region, and the record of what arrived there.
pub struct Bound {
    key: u32,
    /// Of the key's registration.
    generation: u64,
    address: u64,
    record: Receive,
    ticket: Mutex<Option<Ticket>>,
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound")
            .field("key", &self.key)
            .field("address", &self.address)
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}

impl Bound {
    /// Binds message `number` to `address` of a key's range.
    ///
    /// # Panics
    /// If the address is after the end of the range; the caller has checked.
    pub(crate) fn new(
        number: u64,
        geometry: Geometry,
        entry: &Registration,
        address: u64,
        ticket: Option<Ticket>,
    ) -> Self {
        let bytes = (entry.len() - address).min(geometry.max_message_bytes());
        Self {
            key: entry.key(),
            generation: entry.generation(),
            address,
            record: Receive::new(number, geometry, Placement::in_region(bytes as usize)),
            ticket: Mutex::new(ticket),
        }
    }

    /// The key of the region that all packets of the message carry. It may have been revoked since.
    #[inline]
    pub fn key(&self) -> u32 {
        self.key
    }

    /// Where the message begins, in bytes from the start of the key's range.
    #[inline]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Takes what is held for the message since it was [admitted](crate::table::RecvTable::admit_by).
    pub fn take_ticket(&self) -> Option<Ticket> {
        self.ticket.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The record: packets, chunks, end and immediate. It has no bytes ([`Receive::chunk`]); they are in
    /// the region.
    #[inline]
    pub fn record(&self) -> &Receive {
        &self.record
    }

    /// Whether this is the registration that the message was bound to, and not a later one whose key
    /// happens to be the same.
    #[inline]
    pub(crate) fn is_under(&self, entry: &Registration) -> bool {
        self.generation == entry.generation()
    }

    /// The message in the key's range, while that is pinned.
    #[inline]
    pub(crate) fn in_window<'w>(&'w self, entry: &'w Registration) -> InWindow<'w> {
        debug_assert!(self.is_under(entry));
        InWindow { bound: self, entry }
    }
}

/// A message in a region whose key is pinned: its packets can be written and read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InWindow<'w> {
    bound: &'w Bound,
    entry: &'w Registration,
}

impl InWindow<'_> {
    /// Places one packet. Called by the one worker of the packet's channel.
    pub(crate) fn place(&self, at: Position, payload: impl Payload) -> Result<Placed, Discard> {
        let bytes = payload.len() as u64;
        let placed = self.bound.record.place_with(at, bytes, || {
            let Some(bytes) = payload.bytes() else { return Ok(()) };
            self.write(at.offset, bytes)?;
            self.bound.record.note_sum(at.packet, bytes);
            Ok(())
        })?;
        self.mark_new(placed, at.packet, bytes);
        Ok(placed)
    }

    /// Places one piece of a packet.
    pub(crate) fn place_piece(
        &self,
        at: Position,
        piece: Piece,
        payload: impl Payload,
        pieces: (Key, &mut Pieces),
    ) -> Result<Placed, Discard> {
        let record = &self.bound.record;
        let placed = record.place_piece_with(at, piece, payload.len(), pieces, || {
            let Some(bytes) = payload.bytes() else { return Ok(()) };
            self.write(at.offset + u64::from(piece.start), bytes)
        })?;
        self.mark_new(placed, at.packet, piece.whole_bytes.into());
        Ok(placed)
    }

    /// Writes a packet that was repaired, whose bit is clear, and sets its bit. Returns the number of
    /// chunks that it completed. Called by the one worker of the packet's channel.
    pub(crate) fn place_repaired(&self, packet: u32, bytes: &[u8]) -> Result<u64, Discard> {
        self.write(self.offset_of(packet), bytes)?;
        let chunks = self.bound.record.publish(packet / 64, 1 << (packet % 64));
        self.mark_new(Placed::New { chunk: None }, packet, bytes.len() as u64);
        Ok(chunks)
    }

    fn offset_of(&self, packet: u32) -> u64 {
        u64::from(packet) * u64::from(self.mtu_bytes())
    }

    /// Writes to an offset of the message.
    #[inline]
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Discard> {
        let (region, at) = (self.entry.region(), self.bound.address + offset);
        if region.is_exclusive() {
            let start = self.entry.range().start + at;
            let is_taken = |map: &Validity| map.touches(start..start + bytes.len() as u64);
            if region.validity().is_some_and(is_taken) {
                return Err(Discard::Overlap);
            }
        }
        // The record is no longer than the range, so this never fails.
        self.entry.write(at, bytes).map_err(|_| Discard::Window)
    }

    /// Marks a packet of `bytes` bytes in the region's validity map, if its bit was set just now.
    #[inline]
    fn mark_new(&self, placed: Placed, packet: u32, bytes: u64) {
        if let (Placed::New { .. }, Some(validity)) = (placed, self.entry.region().validity())
            && bytes > 0
        {
            let start = self.entry.range().start + self.bound.address + self.offset_of(packet);
            let range = start..start + bytes;
            validity.mark_joint(range.clone(), self.covered(packet, range));
        }
    }

    /// The range of a packet and of the neighbours that share a granule with it and have arrived.
    fn covered(&self, packet: u32, range: Range<u64>) -> Range<u64> {
        let (record, mtu_bytes) = (&self.bound.record, u64::from(self.mtu_bytes()));
        let mut covered = range.clone();
        let has_neighbour = |packet| record.meets_packet(packet);
        // The end of the message is known before the bit of its last packet is set. A sender that
        // contradicts itself may have sent short packets in the middle; they cover what they have.
        if !range.start.is_multiple_of(super::GRANULE_BYTES)
            && packet > 0
            && has_neighbour(packet - 1)
            && self.bytes_of(packet - 1) as u64 == mtu_bytes
        {
            covered.start -= mtu_bytes;
        }
        if !range.end.is_multiple_of(super::GRANULE_BYTES)
            && range.end - range.start == mtu_bytes
            && has_neighbour(packet + 1)
        {
            covered.end += self.bytes_of(packet + 1) as u64;
        }
        covered
    }
}

impl DataPackets for InWindow<'_> {
    fn mtu_bytes(&self) -> u32 {
        DataPackets::mtu_bytes(&self.bound.record)
    }

    fn has(&self, packet: u32) -> bool {
        self.bound.record.has(packet)
    }

    fn has_chunks_of(&self, packets: Range<u32>) -> bool {
        self.bound.record.has_chunks_of(packets)
    }

    fn bytes_of(&self, packet: u32) -> usize {
        self.bound.record.bytes_of(packet)
    }

    fn payload(&self, _packet: u32) -> Option<&[u8]> {
        None
    }

    fn are_phantom(&self) -> bool {
        false
    }

    fn must_be_copied(&self) -> bool {
        true
    }

    fn copy(&self, packet: u32, out: &mut [u8]) -> bool {
        let at = self.bound.address + self.offset_of(packet);
        self.entry.read(at, out).is_ok() && self.bound.record.has_sum(packet, out)
    }
}
