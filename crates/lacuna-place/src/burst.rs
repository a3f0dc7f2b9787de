//! Places a burst of packets: the receiver's fast path.
//!
//! Consecutive packets of a burst mostly belong to one message. The placer pins a slot once per
//! message and burst, not once per packet. It gathers packet bits in a register and publishes a word
//! of them at a time, with one `fetch_or` for up to 64 packets; the workers of SDR-RDMA spend one on
//! each (3.4.1, figure 15). Readers see no difference: only this worker sets these bits, and a chunk's
//! bit is set after the bits of its packets.
//!
//! A *plain* packet is full, does not end its message, and carries no fragment of an immediate that is
//! still incomplete. The fast path copies it and computes its checksum in one pass. If the checksum is
//! wrong, the bytes are zeroed; nobody reads them before the packet's bit is set.
//!
//! All other packets go to `Receive::place`, which makes all checks. Gathered bits are published first,
//! so that it sees all packets that arrived.
//!
//! Packets with the key of a region are placed by `region.rs`.
//!
//! Parity packets go to the receive's record. Rows that they make repairable are repaired at the end of
//! the burst (`repairs.rs`).
//!
//! [`BurstPlacer::note`] records a packet without copying it: hardware has placed its bytes, or a
//! simulation has none.
//!
//! Cost of a plain packet, in order, 64 payload bytes, one core: see
//! `bench/README.md`, "engine". No allocation, no lock, no system call.
//!
//! Invariants: a slot stays pinned until the bits of all packets written into it are published; a bit is
//! published after the bytes are written.

#![allow(unsafe_code)]

mod current;
mod region;
mod repairs;

pub(crate) use repairs::Repairs;

use crate::discard::Discard;
use crate::parity::ParityOutcome;
use crate::payload::{LengthOnly, Payload};
use crate::pieces::{Piece, Pieces};
use crate::prefetch::prefetch_value;
use crate::receive::{Placed, Position, Receive};
use crate::summary::BurstSummary;
use crate::table::RecvTable;
use current::Current;
use lacuna_wire::{DataHeader, ImmediateSplit, PacketError, Seal, psn};
use std::ops::Range;

/// The most by which a packet that is not new may raise the highest sequence number (a judgement: more
/// than any burst of losses between two new packets).
const STRAY_AHEAD_MAX: u64 = 1 << 16;

/// Places the packets of one burst; see the module's text.
#[derive(Debug)]
pub struct BurstPlacer<'w> {
    table: &'w RecvTable,
    split: ImmediateSplit,
    mtu_bytes: u32,
    seal: Seal,
    channel: u8,
    next_psn: &'w mut u64,
    /// A stripe of the current message that belongs to this channel.
    stripe: Range<u32>,
    /// The message of the last packet.
    current: Option<Current<'w>>,
    repairs: Repairs<'w>,
    pieces: &'w mut Pieces,
    summary: &'w mut BurstSummary,
}

/// The message and packet that a packet's headers name.
#[derive(Debug, Clone, Copy)]
struct PacketId {
    slot: u32,
    generation: u8,
    packet: u32,
    fragment: u32,
}

/// Outcome of the fast path for one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plain {
    /// The packet was plain and is placed.
    Placed,
    /// The packet was plain, but `write` found it invalid; its bytes were removed again.
    Refused,
    /// The packet is not plain, or not of the current message and stripe. Nothing was done.
    Other,
}

impl<'w> BurstPlacer<'w> {
    pub(crate) fn new(
        table: &'w RecvTable,
        channel: u8,
        next_psn: &'w mut u64,
        repairs: Repairs<'w>,
        pieces: &'w mut Pieces,
        summary: &'w mut BurstSummary,
    ) -> Self {
        let geometry = table.geometry();
        Self {
            table,
            split: geometry.split(),
            mtu_bytes: geometry.mtu_bytes(),
            seal: geometry.seal(),
            channel,
            summary,
            next_psn,
            stripe: 0..0,
            current: None,
            repairs,
            pieces,
        }
    }

    /// The packets' trailer.
    #[inline]
    pub fn seal(&self) -> Seal {
        self.seal
    }

    /// The remote key that packets for the table have.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.table.rkey()
    }

    /// Places one packet whose trailer was checked, except for the remote key.
    #[inline]
    pub fn place(&mut self, header: &DataHeader, payload: &[u8], marked: bool) {
        let has_key = header.rkey == self.table.rkey();
        let write = |receive: &Receive, offset| {
            // SAFETY: `place_plain`'s promise.
            unsafe { receive.write(offset, payload) };
            true
        };
        if !has_key || self.place_plain(header, payload.len(), marked, write) == Plain::Other {
            self.place_any(header, payload, marked);
        }
    }

    /// Checks the trailer of one packet, from which `header` was read, and places it. The payload of a
    /// plain packet is read once: it is copied and summed in one pass, and zeroed again if the trailer
    /// does not match.
    ///
    /// # Errors
    /// When the trailer does not match ([`Seal::check`]).
    #[inline]
    pub fn check_and_place(
        &mut self,
        packet: &[u8],
        header: &DataHeader,
        payload: &[u8],
        marked: bool,
    ) -> Result<(), PacketError> {
        let (rkey, seal) = (self.table.rkey(), self.seal);
        let mut has_key = Ok(true);
        let mut write = |receive: &Receive, offset| {
            has_key = seal.check_while(header, packet, rkey, |sum, headers, payload| match sum {
                // SAFETY: `place_plain`'s promise.
                Some(sum) => unsafe { receive.write_summed(offset, sum, headers, payload) },
                // SAFETY: the same.
                None => unsafe { receive.write(offset, payload) },
            });
            let is_good = has_key == Ok(true);
            if !is_good && !seal.judges_first() {
                // SAFETY: `place_plain`'s promise.
                unsafe { receive.clear(offset, payload.len()) };
            }
            is_good
        };
        // With an address, the key is in the header. Without one it is part of the trailer, which
        // `write` checks.
        if header.address.is_none_or(|_| header.rkey == rkey) {
            let mut placed = self.place_plain(header, payload.len(), marked, &mut write);
            // It may be the first packet of a message or stripe. If it is invalid, its slot was pinned
            // in vain, which does no harm.
            let is_full = payload.len() as u64 == u64::from(self.mtu_bytes);
            if placed == Plain::Other && is_full && !header.ends_message && self.switch_to(header) {
                placed = self.place_plain(header, payload.len(), marked, &mut write);
            }
            match placed {
                Plain::Placed => return Ok(()),
                Plain::Refused => {
                    has_key?;
                    self.summary.discard(Discard::Key);
                    return Ok(());
                }
                Plain::Other => {}
            }
        }
        let mut header = *header;
        seal.check(&mut header, packet)?;
        self.place_any(&header, payload, marked);
        Ok(())
    }

    /// Records one packet of `payload_bytes` that a network card has placed, or that a simulation sends
    /// without bytes. It keeps the same record as [`BurstPlacer::place`] and copies nothing.
    ///
    /// If the receive has memory, the caller asserts that the bytes are in it. A parity packet of which
    /// only the length is known repairs nothing then; it does in a receive without memory
    /// ([`Placement::phantom`](crate::placement::Placement::phantom)).
    #[inline]
    pub fn note(&mut self, header: &DataHeader, payload_bytes: u32, marked: bool) {
        let has_key = header.rkey == self.table.rkey();
        let payload_bytes = payload_bytes as usize;
        let is_there = |_: &Receive, _| true;
        if !has_key || self.place_plain(header, payload_bytes, marked, is_there) == Plain::Other {
            self.note_any(header, payload_bytes, marked);
        }
    }

    #[inline(always)]
    fn packet_id(&self, header: &DataHeader) -> PacketId {
        let fields = self.split.unpack(header.immediate);
        PacketId {
            slot: fields.message,
            generation: header.dest.generation(),
            packet: fields.packet,
            fragment: fields.fragment,
        }
    }

    /// Places a plain packet of the current message by `write`, which gets the packet's offset and
    /// returns whether the packet is valid. Does not check the remote key.
    ///
    /// Promise to `write`: the slot is pinned, the packet belongs to this channel, whose only writer
    /// `self` borrows, and its bit is clear, so nobody else reads or writes these bytes before the bit
    /// is published.
    #[inline(always)]
    fn place_plain(
        &mut self,
        header: &DataHeader,
        payload_bytes: usize,
        marked: bool,
        write: impl FnOnce(&Receive, u64) -> bool,
    ) -> Plain {
        let id = self.packet_id(header);
        let Some(current) = self.current.as_mut() else { return Plain::Other };
        let mtu_bytes = u64::from(self.mtu_bytes);
        let offset = u64::from(id.packet) * mtu_bytes;
        let is_plain = current.is(id)
            && payload_bytes as u64 == mtu_bytes
            && header
                .address
                .is_none_or(|address| address == current.base + offset && header.behind == 0)
            && offset + mtu_bytes <= current.limit_bytes
            && !header.ends_message
            && (!header.carries_immediate || current.has_immediate)
            && self.stripe.contains(&id.packet);
        if !is_plain {
            return Plain::Other;
        }
        let (word, bit) = (id.packet / 64, 1u64 << (id.packet % 64));
        if word != current.word {
            current.publish(self.channel, &mut self.repairs, self.summary);
            current.gather(word);
        }
        if current.set & bit != 0 {
            return Plain::Other;
        }
        if !write(&current.receive, offset) {
            return Plain::Refused;
        }
        current.set |= bit;
        current.fresh |= bit;
        self.summary.packets += 1;
        self.summary.bytes += mtu_bytes;
        self.summary.marked += u64::from(marked);
        if header.psn == psn::wrap(*self.next_psn) {
            *self.next_psn += 1;
        } else {
            self.note_psn(header.psn, true);
        }
        Plain::Placed
    }

    /// Switches to the message and the stripe of this packet; `false` if they are the current ones, are
    /// not for this channel, or the message's slot is not open.
    #[inline(never)]
    fn switch_to(&mut self, header: &DataHeader) -> bool {
        let geometry = self.table.geometry();
        let id = self.packet_id(header);
        let is_current = self.is_current(id);
        if is_current && self.stripe.contains(&id.packet)
            || geometry.is_parity(id.packet)
            || geometry.channel_of(id.slot, id.packet) != self.channel
            || !is_current && !self.enter(id)
        {
            return false;
        }
        self.stripe = geometry.stripe_of(id.packet);
        true
    }

    fn is_current(&self, id: PacketId) -> bool {
        self.current.as_ref().is_some_and(|current| current.is(id))
    }

    /// Unpins the current message and pins that of a packet; `false` if its slot is not open.
    fn enter(&mut self, PacketId { slot, generation, .. }: PacketId) -> bool {
        self.leave();
        let pinned = self.table.pin(slot, generation);
        self.current = pinned.map(|pinned| Current::new(self.channel, slot, generation, pinned));
        self.stripe = 0..0;
        // With one channel, packets of the next message mostly follow; with several, that message may
        // be for another worker. The pin is needed to read the record's address. Measured: M-place-1.
        if self.current.is_some()
            && self.table.geometry().channels() == 1
            && let Some(next) = self.table.pin((slot + 1) % self.split.messages(), generation)
        {
            prefetch_value(&**next);
        }
        self.current.is_some()
    }

    /// Places a packet of any kind.
    #[inline(never)]
    fn place_any(&mut self, header: &DataHeader, payload: &[u8], marked: bool) {
        self.handle_any(header, payload, marked);
    }

    /// Records a packet of any kind without its bytes.
    #[inline(never)]
    fn note_any(&mut self, header: &DataHeader, payload_bytes: usize, marked: bool) {
        self.handle_any(header, LengthOnly(payload_bytes), marked);
    }

    #[inline(always)]
    fn handle_any(&mut self, header: &DataHeader, payload: impl Payload, marked: bool) {
        let mut is_new = false;
        match self.try_place(header, payload) {
            Ok(Placed::New { chunk }) => {
                is_new = true;
                self.summary.packets += 1;
                self.summary.bytes += payload.len() as u64;
                self.summary.chunks += u64::from(chunk.is_some());
            }
            Ok(Placed::Duplicate { chunk }) => {
                self.summary.duplicates += 1;
                self.summary.chunks += u64::from(chunk.is_some());
            }
            Ok(Placed::Part) => {
                is_new = true;
                self.summary.packets += 1;
                self.summary.bytes += payload.len() as u64;
            }
            Ok(Placed::Parity(outcome)) => {
                is_new = self.summary.count_parity(outcome, payload.len() as u64);
            }
            Err(reason) => {
                self.summary.discard(reason);
                match reason {
                    Discard::Late => {
                        self.summary.late = true;
                        self.note_late(header.psn);
                    }
                    reason if Discard::REFUSING.contains(&reason) => {}
                    // The packet may not be from the peer, so its sequence number is ignored.
                    _ => return,
                }
            }
        }
        self.summary.marked += u64::from(marked);
        self.note_psn(header.psn, is_new);
    }

    fn try_place(&mut self, header: &DataHeader, payload: impl Payload) -> Result<Placed, Discard> {
        let geometry = self.table.geometry();
        if header.rkey != self.table.rkey() {
            return self.place_by_key(header, payload);
        }
        let id = self.packet_id(header);
        let PacketId { slot, packet, .. } = id;
        if geometry.channel_of(slot, packet) != self.channel {
            return Err(Discard::Channel);
        }
        let offset = geometry.offset_of(slot, packet, header.address);
        let offset = offset.ok_or(Discard::Inconsistent)?;
        let is_parity = geometry.is_parity(packet);
        if !self.is_current(id) && !self.enter(id) {
            // Mostly parity of a message that was complete without it.
            let parity = Ok(Placed::Parity(ParityOutcome::Finished));
            return if is_parity { parity } else { Err(Discard::Late) };
        }
        let Some(current) = &mut self.current else { return Err(Discard::Late) };
        current.publish(self.channel, &mut self.repairs, self.summary);
        current.gather_none();
        let position = Position {
            packet,
            offset,
            ends_message: header.ends_message,
            carries_immediate: header.carries_immediate,
            fragment: id.fragment,
        };
        let receive = &**current.receive;
        let pieces = ((receive.number(), packet), &mut *self.pieces);
        let placed = if is_parity {
            receive.take_parity(self.channel, position, (payload, header.behind), pieces)
        } else {
            match piece_of(position, self.mtu_bytes, payload.len(), header.behind) {
                // SAFETY: the slot is pinned. `self` exists through the only writer of
                // this channel, the packet belongs to this channel, and all packets of
                // its chunk do (`Geometry::new` makes stripes of whole chunks).
                None => unsafe { receive.place(position, payload) },
                // SAFETY: the same.
                Some((position, piece)) => unsafe {
                    receive.place_piece(position, piece, payload, pieces)
                },
            }
        };
        current.refresh();
        let placed = placed?;
        if !matches!(placed, Placed::Duplicate { .. }) {
            current.receive.touch();
        }
        self.summary.touch(current.receive.number());
        if let Placed::Parity(outcome) = placed {
            self.repairs.on_parity(current, packet, outcome);
        } else {
            self.repairs.on_data(current, self.channel, packet);
            self.stripe = geometry.stripe_of(packet);
        }
        Ok(placed)
    }

    #[inline(never)]
    fn note_psn(&mut self, wire: u32, is_new: bool) {
        let psn = psn::unwrap(wire, *self.next_psn);
        if !is_new && psn > *self.next_psn + STRAY_AHEAD_MAX {
            // A copy that is half the number space old looks as if it were far ahead.
            return;
        }
        if psn >= *self.next_psn {
            self.summary.gap |= psn > *self.next_psn;
            *self.next_psn = psn + 1;
        } else if is_new {
            // Only a missing packet shows how far the path reorders: a copy of an old one may arrive at
            // any time.
            let late_by = *self.next_psn - psn - 1;
            self.summary.reorder_packets = self.summary.reorder_packets.max(late_by);
        }
    }

    /// Notes how far behind the highest sequence number a packet is that came too late for its message.
    #[cold]
    fn note_late(&mut self, wire: u32) {
        let behind = self.next_psn.saturating_sub(psn::unwrap(wire, *self.next_psn) + 1);
        self.summary.late_packets = self.summary.late_packets.max(behind);
    }

    /// Publishes the gathered bits and unpins the slot.
    fn leave(&mut self) {
        if let Some(current) = &mut self.current {
            current.publish(self.channel, &mut self.repairs, self.summary);
        }
        self.current = None;
    }

    /// Whether the burst has made rows repairable.
    #[inline]
    pub fn has_repairs(&mut self) -> bool {
        // Gathered packets may make a row repairable, too.
        if self.repairs.are_possible() {
            self.leave();
        }
        self.repairs.has_rows()
    }

    /// Repairs all repairable rows. [`BurstPlacer::finish`] does so if the caller did not; a caller with
    /// a clock measures the time and reports it by [`BurstPlacer::note_decoding`].
    #[inline(never)]
    pub fn repair(&mut self) {
        self.leave();
        // SAFETY: `self` borrows the only writer of this channel.
        unsafe { self.repairs.run(self.table, self.channel, self.summary) };
    }

    /// Adds the time of the repairs to the summary.
    pub fn note_decoding(&mut self, took_ns: u64) {
        self.summary.decode_ns += took_ns;
    }

    /// Ends the burst and returns its counts.
    #[inline]
    pub fn finish(mut self) -> BurstSummary {
        self.end().clone()
    }

    /// Ends the burst and borrows its counts, without a copy: many small messages arrive in a burst of
    /// their own, and the summary is large.
    #[inline]
    pub fn end(&mut self) -> &BurstSummary {
        self.leave();
        if self.has_repairs() {
            self.repair();
        }
        self.summary.next_psn = *self.next_psn;
        self.summary
    }
}

/// For a payload that is a piece of its packet: the packet's position and the piece's.
fn piece_of(at: Position, mtu_bytes: u32, bytes: usize, behind: u32) -> Option<(Position, Piece)> {
    let begin = u64::from(at.packet) * u64::from(mtu_bytes);
    // Empty packets after all data have an offset before that of their number.
    let start = at.offset.checked_sub(begin)?;
    if behind == 0 && (start == 0 || bytes == 0) {
        return None;
    }
    let whole_bytes = (start + bytes as u64).checked_add(u64::from(behind))?;
    // An impossible length is refused later.
    let whole_bytes = u32::try_from(whole_bytes).unwrap_or(u32::MAX);
    let piece = Piece { start: u32::try_from(start).unwrap_or(u32::MAX), whole_bytes };
    Some((Position { offset: begin, ..at }, piece))
}

impl Drop for BurstPlacer<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
