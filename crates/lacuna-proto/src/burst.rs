//! Placing a burst of packets: the receiver's fast path.
//!
//! The packets of a burst mostly follow each other in one message. So the slot
//! is pinned once per message and burst, and packet bits are gathered in a
//! register and published a word at a time: one `fetch_or` for up to 64
//! packets, not one each. SDR-RDMA's workers spend theirs per packet (3.4.1,
//! figure 15); nothing outside can tell, because only this worker sets these
//! bits, and chunk bits still follow the packets they stand for.
//!
//! A *plain* packet, a full one that neither ends a message nor brings a
//! fragment of an immediate that is wanted, is checked, copied and noted here:
//! summed while it is copied, in one pass, before it is known to be good. Its
//! place is one where nothing has come yet, so nobody reads it, and it is
//! cleared if the trailer speaks against it.
//! Any other goes to `Receive::place`, which decides alone; what was gathered
//! is published before, so that it sees all.
//!
//! Parity packets are handed to the receive's record; what they make repairable
//! is repaired when the burst is over, before anybody is told of it
//! (`modes/ec/mod.rs`).
//!
//! Cost of a plain packet, in order, 64 payload bytes, one core: see
//! `bench/README.md`, "engine". No allocation, no lock, no system call.
//!
//! Invariants: a slot stays pinned until the bits of what was written into it
//! are published; a bit is published after the bytes are written.

#![allow(unsafe_code)]

use crate::discard::Discard;
use crate::parity::{Repairer, RowAt, Taken};
use crate::pieces::{Piece, Pieces};
use crate::prefetch::prefetch_value;
use crate::receive::{Placed, Position, Receive};
use crate::slot::Pinned;
use crate::table::RecvTable;
use lacuna_wire::{DataHeader, ImmediateSplit, PacketError, psn};
use std::ops::Range;
use std::sync::Arc;

/// What one burst of packets of one queue pair on one channel did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BurstSummary {
    /// Packets that came for the first time, parity included.
    pub packets: u64,
    /// Payload bytes placed for the first time.
    pub bytes: u64,
    /// Of the packets, those of parity.
    pub parity_packets: u64,
    /// Payload bytes of those.
    pub parity_bytes: u64,
    /// Packets that were lost and repaired with parity.
    pub repaired_packets: u64,
    /// Chunks completed by that; they count among `chunks` too.
    pub repaired_chunks: u64,
    /// Time that the repairing took, as whoever has a clock measured it.
    pub decode_ns: u64,
    /// Chunks completed.
    pub chunks: u64,
    /// Packets whose bit was set already.
    pub duplicates: u64,
    /// Packets with a congestion mark.
    pub marked: u64,
    /// Packets thrown away, by [`Discard::index`].
    pub discarded: [u64; Discard::ALL.len()],
    /// One past the highest sequence number after the burst.
    pub next_psn: u64,
    /// Sequence numbers that were skipped when the highest moved on: a gap.
    pub gap: bool,
    /// Largest distance by which a packet that was missing came after a later
    /// one, in packets.
    pub reorder_packets: u64,
    /// Highest message number that a packet was placed for, and the lowest.
    pub touched: Option<(u64, u64)>,
    /// Whether a late packet came: the peer has not heard of a completion.
    pub late: bool,
}

impl BurstSummary {
    /// Whether any packet had the key. What has none may be noise, and is no sign of life.
    pub(crate) fn is_of_the_peer(&self) -> bool {
        let discarded: u64 = self.discarded.iter().sum();
        let with_the_key = discarded - self.discarded[Discard::Key.index()];
        self.packets + self.duplicates + with_the_key > 0
    }
}

/// Numbers ahead that a packet which placed nothing may move the highest number
/// by: more than any burst of loss between two packets that did.
const STRAY_AHEAD_MAX: u64 = 1 << 16;

/// Places the packets of one burst; see the module's text.
#[derive(Debug)]
pub struct BurstPlacer<'w> {
    table: &'w RecvTable,
    split: ImmediateSplit,
    mtu_bytes: u32,
    channel: u8,
    next_psn: &'w mut u64,
    /// Packets of the current message that are known to belong to the channel.
    stripe: Range<u32>,
    /// The slot of the last packet.
    current: Option<Current<'w>>,
    /// If messages carry parity.
    repairer: Option<&'w mut Repairer>,
    pieces: &'w mut Pieces,
    summary: BurstSummary,
}

/// A pinned slot, and what plain packets are held against.
#[derive(Debug)]
struct Current<'w> {
    slot: u32,
    generation: u8,
    receive: Pinned<'w, Arc<Receive>>,
    base: u64,
    /// Where full packets end at the latest.
    limit_bytes: u64,
    /// Fragments of an immediate have no news any more.
    has_immediate: bool,
    /// Word of the packet bitmap that is gathered.
    word: u32,
    /// Its bits that count as set: published ones and `fresh`.
    set: u64,
    /// Bits to be published.
    fresh: u64,
    /// Parity is kept for rows of this channel: packets may make them repairable.
    has_held: bool,
}

/// No word is gathered: no bitmap has so many.
const NO_WORD: u32 = u32::MAX;

impl<'w> BurstPlacer<'w> {
    pub(crate) fn new(
        table: &'w RecvTable,
        channel: u8,
        next_psn: &'w mut u64,
        repairer: Option<&'w mut Repairer>,
        pieces: &'w mut Pieces,
    ) -> Self {
        let geometry = table.geometry();
        Self {
            table,
            split: geometry.split(),
            mtu_bytes: geometry.mtu_bytes(),
            channel,
            summary: BurstSummary { next_psn: *next_psn, ..BurstSummary::default() },
            next_psn,
            stripe: 0..0,
            current: None,
            repairer,
            pieces,
        }
    }

    /// Places one packet whose trailer was found good, as far as that tells without the key.
    #[inline]
    pub fn place(&mut self, header: &DataHeader, payload: &[u8], marked: bool) {
        let has_key = header.rkey == self.table.rkey();
        let write = |receive: &Receive, offset| {
            // SAFETY: `place_plain`'s promise.
            unsafe { receive.write(offset, payload) };
            true
        };
        if !has_key || self.place_plain(header, payload.len(), marked, write).is_none() {
            self.place_any(header, payload, marked);
        }
    }

    /// Checks the trailer of one packet, from which `header` was read, and places it. The payload
    /// of a plain packet is read once, summed on its way to where it belongs; if the trailer then
    /// speaks against it, nothing is left of it there.
    ///
    /// # Errors
    /// When the trailer does not match ([`DataHeader::check`]).
    #[inline]
    pub fn check_and_place(
        &mut self,
        packet: &[u8],
        header: &DataHeader,
        payload: &[u8],
        marked: bool,
    ) -> Result<(), PacketError> {
        let rkey = self.table.rkey();
        let mut key = Ok(rkey);
        let mut write = |receive: &Receive, offset| {
            key = header.check_while(packet, |sum, headers, payload| {
                // SAFETY: `place_plain`'s promise.
                unsafe { receive.write_summed(offset, sum, headers, payload) };
            });
            let is_good = key == Ok(rkey);
            if !is_good {
                // SAFETY: `place_plain`'s promise.
                unsafe { receive.clear(offset, payload.len()) };
            }
            is_good
        };
        // Who has no key in front of the payload has it behind.
        if header.address.is_none_or(|_| header.rkey == rkey) {
            let mut placed = self.place_plain(header, payload.len(), marked, &mut write);
            // The first packet of a message or of a stripe: what is pinned for nothing is no harm.
            let is_full = payload.len() as u64 == u64::from(self.mtu_bytes);
            if placed.is_none() && is_full && !header.ends_message && self.follow(header) {
                placed = self.place_plain(header, payload.len(), marked, &mut write);
            }
            match placed {
                Some(true) => return Ok(()),
                Some(false) => {
                    key?;
                    self.summary.discarded[Discard::Key.index()] += 1;
                    return Ok(());
                }
                None => {}
            }
        }
        let mut header = *header;
        header.check(packet)?;
        self.place_any(&header, payload, marked);
        Ok(())
    }

    /// Places a plain packet of the current message, as far as `write` finds it good; `None` if it
    /// is none. Its key is not looked at.
    ///
    /// What this promises to `write`, which is told where the packet goes: the slot is pinned, the
    /// packet belongs to this channel, whose only writer `self` borrows, and its bit is clear, so
    /// nobody else reads or writes these bytes before the bit is published.
    #[inline(always)]
    fn place_plain(
        &mut self,
        header: &DataHeader,
        payload_bytes: usize,
        marked: bool,
        write: impl FnOnce(&Receive, u64) -> bool,
    ) -> Option<bool> {
        let current = self.current.as_mut()?;
        let fields = self.split.unpack(header.immediate);
        let mtu_bytes = u64::from(self.mtu_bytes);
        let offset = u64::from(fields.packet) * mtu_bytes;
        let is_plain = fields.message == current.slot
            && header.dest.generation() == current.generation
            && payload_bytes as u64 == mtu_bytes
            && header
                .address
                .is_none_or(|address| address == current.base + offset && header.behind == 0)
            && offset + mtu_bytes <= current.limit_bytes
            && !header.ends_message
            && (!header.carries_immediate || current.has_immediate)
            && self.stripe.contains(&fields.packet);
        if !is_plain {
            return None;
        }
        let (word, bit) = (fields.packet / 64, 1u64 << (fields.packet % 64));
        if word != current.word {
            current.publish(self.channel, &mut self.repairer, &mut self.summary);
            current.word = word;
            current.set = current.receive.packet_word(word);
        }
        if current.set & bit != 0 {
            return None;
        }
        if !write(&current.receive, offset) {
            return Some(false);
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
        Some(true)
    }

    /// Moves on to the message and the stripe of this packet; `false` if they are the current ones
    /// or not to be had.
    #[inline(never)]
    fn follow(&mut self, header: &DataHeader) -> bool {
        let geometry = self.table.geometry();
        let fields = self.split.unpack(header.immediate);
        let (slot, generation) = (fields.message, header.dest.generation());
        let is_current = self.is_current(slot, generation);
        if is_current && self.stripe.contains(&fields.packet)
            || geometry.is_parity(fields.packet)
            || geometry.channel_of(slot, fields.packet) != self.channel
            || !is_current && !self.enter(slot, generation)
        {
            return false;
        }
        self.stripe = geometry.stripe_of(fields.packet);
        true
    }

    fn is_current(&self, slot: u32, generation: u8) -> bool {
        let current = self.current.as_ref();
        current.is_some_and(|current| (current.slot, current.generation) == (slot, generation))
    }

    /// Leaves the current message for that of a slot; `false` if it is not open.
    fn enter(&mut self, slot: u32, generation: u8) -> bool {
        self.leave();
        let pinned = self.table.pin(slot, generation);
        self.current = pinned.map(|pinned| Current::new(self.channel, slot, generation, pinned));
        self.stripe = 0..0;
        // The next message mostly comes next; over several channels it may be another worker's.
        // The pin is for reading from its slot where its record is.
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
            Ok(Placed::Parity(Taken::Duplicate)) => self.summary.duplicates += 1,
            Ok(Placed::Parity(taken)) => {
                // Of a finished message it is not known whether it came before.
                is_new = taken != Taken::Finished;
                self.summary.packets += 1;
                self.summary.parity_packets += 1;
                self.summary.parity_bytes += payload.len() as u64;
            }
            Err(reason) => {
                self.summary.discarded[reason.index()] += 1;
                self.summary.late |= reason == Discard::Late;
                if reason != Discard::Late {
                    // Not provably from the peer: its number proves nothing.
                    return;
                }
            }
        }
        self.summary.marked += u64::from(marked);
        self.note_psn(header.psn, is_new);
    }

    fn try_place(&mut self, header: &DataHeader, payload: &[u8]) -> Result<Placed, Discard> {
        let geometry = self.table.geometry();
        if header.rkey != self.table.rkey() {
            return Err(Discard::Key);
        }
        let fields = self.split.unpack(header.immediate);
        let slot = fields.message;
        if geometry.channel_of(slot, fields.packet) != self.channel {
            return Err(Discard::Channel);
        }
        let is_parity = geometry.is_parity(fields.packet);
        let offset = match header.address {
            Some(address) => address.checked_sub(geometry.slot_address(slot)),
            // The address of parity says how long the message is.
            None if is_parity => None,
            None => Some(u64::from(fields.packet) * u64::from(self.mtu_bytes)),
        };
        let Some(offset) = offset else { return Err(Discard::Inconsistent) };
        if offset > if is_parity { geometry.slot_bytes() } else { geometry.max_message_bytes() } {
            return Err(Discard::Inconsistent);
        }
        let generation = header.dest.generation();
        if !self.is_current(slot, generation) && !self.enter(slot, generation) {
            // The parity of a message that was complete without it, mostly.
            let parity = Ok(Placed::Parity(Taken::Finished));
            return if is_parity { parity } else { Err(Discard::Late) };
        }
        let Some(current) = &mut self.current else { return Err(Discard::Late) };
        current.publish(self.channel, &mut self.repairer, &mut self.summary);
        current.word = NO_WORD;
        let position = Position {
            packet: fields.packet,
            offset,
            ends_message: header.ends_message,
            carries_immediate: header.carries_immediate,
            fragment: fields.fragment,
        };
        let key = (slot, generation, fields.packet);
        let books = (key, &mut *self.pieces);
        if is_parity {
            let payload = (payload, header.behind);
            let taken = current.receive.take_parity(self.channel, position, payload, books);
            current.refresh();
            let taken = taken?;
            self.summary.touch(current.receive.number());
            current.has_held |= matches!(taken, Taken::Kept { .. });
            if let (Taken::Kept { enough: true }, Some(layout), Some(repairer)) =
                (taken, geometry.layout(), &mut self.repairer)
            {
                let at = layout.locate(fields.packet);
                repairer.note(RowAt { slot, generation, row: (at.submessage, at.row) });
            }
            return Ok(Placed::Parity(taken));
        }
        let placed = match piece_of(position, self.mtu_bytes, payload.len(), header.behind) {
            // SAFETY: the slot is pinned. `self` exists through the only writer of
            // this channel, the packet belongs to this channel, and all packets of
            // its chunk do (`Geometry::new` makes stripes of whole chunks).
            None => unsafe { current.receive.place(position, payload) },
            // SAFETY: the same.
            Some((position, piece)) => unsafe {
                current.receive.place_piece(position, piece, payload, books)
            },
        };
        current.refresh();
        let placed = placed?;
        current.note_row(self.channel, fields.packet, &mut self.repairer);
        self.summary.touch(current.receive.number());
        self.stripe = geometry.stripe_of(fields.packet);
        Ok(placed)
    }

    #[inline(never)]
    fn note_psn(&mut self, wire: u32, is_new: bool) {
        let psn = psn::unwrap(wire, *self.next_psn);
        if !is_new && psn > *self.next_psn + STRAY_AHEAD_MAX {
            // A copy half the number space old looks as far ahead. It placed
            // nothing, so it proves nothing.
            return;
        }
        if psn >= *self.next_psn {
            self.summary.gap |= psn > *self.next_psn;
            *self.next_psn = psn + 1;
        } else if is_new {
            // Only a packet that was waited for shows how far the path reorders:
            // a stray copy of an old one may come at any time.
            let late_by = *self.next_psn - psn - 1;
            self.summary.reorder_packets = self.summary.reorder_packets.max(late_by);
        }
    }

    /// Publishes what was gathered, and unpins.
    fn leave(&mut self) {
        if let Some(current) = &mut self.current {
            current.publish(self.channel, &mut self.repairer, &mut self.summary);
        }
        self.current = None;
    }

    /// Whether the burst has made something repairable.
    #[inline]
    pub fn has_repairs(&mut self) -> bool {
        // What was gathered may complete a row too.
        if self.repairer.is_some() {
            self.leave();
        }
        self.repairer.as_deref().is_some_and(Repairer::has_rows)
    }

    /// Repairs what can be repaired. [`BurstPlacer::finish`] does so if it was
    /// not done before; a caller with a clock takes the time and tells it with
    /// [`BurstPlacer::note_decoding`].
    #[inline(never)]
    pub fn repair(&mut self) {
        self.leave();
        let Some(repairer) = self.repairer.as_deref_mut() else { return };
        while let Some(at) = repairer.pop() {
            let Some(receive) = self.table.pin(at.slot, at.generation) else { continue };
            let Some(held) = receive.held() else { continue };
            let packets = receive.packets();
            let repaired = repairer.repair(&receive, held, self.channel, at.row, packets);
            for (packet, bytes) in repaired.packets() {
                let offset = u64::from(packet) * u64::from(self.mtu_bytes);
                // SAFETY: the slot is pinned until the bit is published. The
                // packet belongs to this channel, as its parity does, whose only
                // writer `self` borrows, and its bit was found clear: nobody
                // else reads or writes these bytes.
                unsafe { receive.write(offset, bytes) };
                let chunks = receive.publish(packet / 64, 1 << (packet % 64));
                self.summary.repaired_packets += 1;
                self.summary.repaired_chunks += chunks;
                self.summary.chunks += chunks;
            }
            self.summary.touch(receive.number());
        }
    }

    /// The repairing took so long.
    pub fn note_decoding(&mut self, took_ns: u64) {
        self.summary.decode_ns += took_ns;
    }

    /// Ends the burst: unpins, and says what it did.
    #[inline]
    pub fn finish(mut self) -> BurstSummary {
        self.end().clone()
    }

    /// The same for whoever only looks at what it did: many small messages come in a
    /// burst each, and the summary is not small.
    #[inline]
    pub fn end(&mut self) -> &BurstSummary {
        self.leave();
        if self.has_repairs() {
            self.repair();
        }
        self.summary.next_psn = *self.next_psn;
        &self.summary
    }
}

/// If a payload is a piece of its packet: where that begins, and what of it this is.
fn piece_of(at: Position, mtu_bytes: u32, bytes: usize, behind: u32) -> Option<(Position, Piece)> {
    let begin = u64::from(at.packet) * u64::from(mtu_bytes);
    // Empty packets behind all data stand before the place of their number.
    let start = at.offset.checked_sub(begin)?;
    if behind == 0 && (start == 0 || bytes == 0) {
        return None;
    }
    let whole_bytes = (start + bytes as u64).checked_add(u64::from(behind))?;
    // What is longer than any packet can be is refused by its length.
    let whole_bytes = u32::try_from(whole_bytes).unwrap_or(u32::MAX);
    let piece = Piece { start: u32::try_from(start).unwrap_or(u32::MAX), whole_bytes };
    Some((Position { offset: begin, ..at }, piece))
}

impl Drop for BurstPlacer<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<'w> Current<'w> {
    fn new(channel: u8, slot: u32, generation: u8, receive: Pinned<'w, Arc<Receive>>) -> Self {
        let has_held = receive.held().is_some_and(|held| !held.is_empty(channel));
        let base = receive.geometry().slot_address(slot);
        let mut current = Self {
            slot,
            generation,
            receive,
            base,
            limit_bytes: 0,
            has_immediate: false,
            word: NO_WORD,
            set: 0,
            fresh: 0,
            has_held,
        };
        current.refresh();
        current
    }

    /// Takes in what a packet that is not plain may have changed.
    fn refresh(&mut self) {
        self.limit_bytes = self.receive.limit_bytes();
        self.has_immediate = self.receive.immediate().is_some();
    }

    #[inline]
    fn publish(
        &mut self,
        channel: u8,
        repairer: &mut Option<&mut Repairer>,
        summary: &mut BurstSummary,
    ) {
        if self.fresh != 0 {
            let fresh = std::mem::take(&mut self.fresh);
            summary.chunks += self.receive.publish(self.word, fresh);
            summary.touch(self.receive.number());
            if self.has_held {
                let bits = (0..64).filter(|bit| fresh >> bit & 1 == 1);
                bits.for_each(|bit| self.note_row(channel, self.word * 64 + bit, repairer));
            }
        }
    }

    /// A data packet came: parity that waits for its row may suffice now.
    #[inline]
    fn note_row(&self, channel: u8, packet: u32, repairer: &mut Option<&mut Repairer>) {
        if self.has_held
            && let (Some(held), Some(repairer)) = (self.receive.held(), repairer)
            && let Some(row) = held.row_of(channel, packet)
        {
            repairer.note(RowAt { slot: self.slot, generation: self.generation, row });
        }
    }
}

impl BurstSummary {
    #[inline]
    fn touch(&mut self, number: u64) {
        self.touched = Some(match self.touched {
            None => (number, number),
            Some((low, high)) => (low.min(number), high.max(number)),
        });
    }
}
