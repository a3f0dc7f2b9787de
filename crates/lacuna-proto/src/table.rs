//! The receive side of a queue pair's root key: all its slots, and the workers'
//! way into them.
//!
//! [`RecvTable`] is shared by everyone; [`ChannelWriter`] is the right to place
//! packets of one channel and exists once per channel. Because a packet's
//! channel is a function of its offset, that right makes each byte's writer
//! unique, by construction rather than by care.
//!
//! Per packet the writer costs: one load of the slot word when the slot is
//! pinned already for this burst, one copy, one `fetch_or` on the packet word,
//! and one more per chunk. No allocation, no lock, no system call.

#![allow(unsafe_code)]

use crate::discard::Discard;
use crate::geometry::Geometry;
use crate::psn;
use crate::receive::{Placed, Position, Receive};
use crate::slot::{Pinned, Slot};
use lacuna_wire::DataHeader;
use std::sync::{Arc, OnceLock};

/// The slots of one queue pair.
#[derive(Debug)]
pub struct RecvTable {
    geometry: Geometry,
    rkey: u32,
    /// Made at the first post: a queue pair that only sends has none.
    slots: OnceLock<Box<[Slot<Arc<Receive>>]>>,
}

impl RecvTable {
    /// A table without posted receives whose packets must carry `rkey`, and
    /// the one writer of each channel.
    pub(crate) fn new(
        geometry: Geometry,
        rkey: u32,
        first_psn: u32,
    ) -> (Arc<Self>, Vec<ChannelWriter>) {
        let table = Arc::new(Self { geometry, rkey, slots: OnceLock::new() });
        let writers = (0..geometry.channels())
            .map(|channel| ChannelWriter {
                table: table.clone(),
                channel,
                next_psn: u64::from(first_psn),
            })
            .collect();
        (table, writers)
    }

    /// The numbers both ends agreed on.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The key that the peer's packets carry.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    fn slots(&self) -> &[Slot<Arc<Receive>>] {
        self.slots.get_or_init(|| (0..self.geometry.slots()).map(|_| Slot::new()).collect())
    }

    fn slot(&self, number: u64) -> &Slot<Arc<Receive>> {
        &self.slots()[self.geometry.slot_of(number) as usize]
    }

    /// Whether the slot of message `number` can be posted.
    pub fn is_free(&self, number: u64) -> bool {
        self.slot(number).is_free()
    }

    /// Opens the slot of the receive's message. `false` if it is occupied.
    pub(crate) fn post(&self, receive: Arc<Receive>) -> bool {
        let number = receive.number();
        let generation = self.geometry.generation_of(number);
        self.slot(number).post(generation, receive).is_ok()
    }

    /// Closes the slot of message `number`: once this returns no byte of the
    /// buffer changes any more. `None` if it was closed already: also then no
    /// byte changes, a close under way is waited for. A number whose slot went
    /// on to another generation closes nothing.
    ///
    /// Waits for workers that are placing into it; must not be called by a
    /// worker in the middle of a burst.
    pub fn close(&self, number: u64) -> Option<Arc<Receive>> {
        let generation = self.geometry.generation_of(number);
        self.slot(number).retire(generation, self.geometry.config().generations)
    }
}

/// The right to place packets of one channel.
#[derive(Debug)]
pub struct ChannelWriter {
    table: Arc<RecvTable>,
    channel: u8,
    /// One past the highest packet sequence number that came.
    next_psn: u64,
}

/// What one burst of packets of one queue pair on one channel did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BurstSummary {
    /// Packets placed for the first time.
    pub packets: u64,
    /// Payload bytes placed for the first time.
    pub bytes: u64,
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

impl ChannelWriter {
    /// The channel this is the writer of.
    pub fn channel(&self) -> u8 {
        self.channel
    }

    /// Sets the first sequence number that the peer will use.
    pub(crate) fn expect_psn(&mut self, first_psn: u32) {
        self.next_psn = u64::from(first_psn);
    }

    /// Begins a burst; the slots it touches stay pinned until it is dropped.
    #[inline]
    pub fn burst(&mut self) -> BurstPlacer<'_> {
        let next_psn = self.next_psn;
        BurstPlacer {
            table: &self.table,
            channel: self.channel,
            next_psn: &mut self.next_psn,
            pinned: None,
            summary: BurstSummary { next_psn, ..BurstSummary::default() },
        }
    }
}

/// Numbers ahead that a packet which placed nothing may move the highest number
/// by: more than any burst of loss between two packets that did.
const STRAY_AHEAD_MAX: u64 = 1 << 16;

/// Places the packets of one burst.
#[derive(Debug)]
pub struct BurstPlacer<'w> {
    table: &'w RecvTable,
    channel: u8,
    next_psn: &'w mut u64,
    /// The slot of the last packet, with its index and generation.
    pinned: Option<(u32, u8, Pinned<'w, Arc<Receive>>)>,
    summary: BurstSummary,
}

impl BurstPlacer<'_> {
    /// Places one packet whose trailer was found good.
    #[inline]
    pub fn place(&mut self, header: &DataHeader, payload: &[u8], marked: bool) {
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

    #[inline]
    fn try_place(&mut self, header: &DataHeader, payload: &[u8]) -> Result<Placed, Discard> {
        let geometry = &self.table.geometry;
        if header.rkey != self.table.rkey {
            return Err(Discard::Key);
        }
        let fields = geometry.split().unpack(header.immediate);
        let slot = fields.message;
        if geometry.channel_of(slot, fields.packet) != self.channel {
            return Err(Discard::Channel);
        }
        let Some(offset) = header.address.checked_sub(geometry.slot_address(slot)) else {
            return Err(Discard::Inconsistent);
        };
        if offset > geometry.max_message_bytes() {
            return Err(Discard::Inconsistent);
        }
        let generation = header.dest.generation();
        let receive = match &self.pinned {
            Some((index, pinned_generation, pinned))
                if *index == slot && *pinned_generation == generation =>
            {
                pinned
            }
            _ => {
                self.pinned = None;
                let slots = self.table.slots.get().ok_or(Discard::Late)?;
                let pinned = slots[slot as usize].pin(generation).map_err(|_| Discard::Late)?;
                &self.pinned.insert((slot, generation, pinned)).2
            }
        };
        let position = Position {
            packet: fields.packet,
            offset,
            ends_message: header.ends_message,
            carries_immediate: header.carries_immediate,
            fragment: fields.fragment,
        };
        // SAFETY: the slot is pinned. `self` exists through the only writer of
        // this channel, the packet belongs to this channel, and all packets of
        // its chunk do (`Geometry::new` makes stripes of whole chunks).
        let placed = unsafe { receive.place(position, payload) }?;
        let number = receive.number();
        self.summary.touched = Some(match self.summary.touched {
            None => (number, number),
            Some((low, high)) => (low.min(number), high.max(number)),
        });
        Ok(placed)
    }

    #[inline]
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

    /// Ends the burst: unpins, and says what it did.
    #[inline]
    pub fn finish(mut self) -> BurstSummary {
        self.pinned = None;
        self.summary.next_psn = *self.next_psn;
        self.summary
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
