//! The record of one posted receive: the packets that arrived, the complete chunks, the message's end,
//! and its immediate.
//!
//! All reliability modes use this record. Workers set packet bits with one `fetch_or` per packet or per
//! word of packets (`burst.rs`); the worker that sets the last packet bit of a chunk sets the chunk's
//! bit (SDR-RDMA 3.2.1, 3.4.2). The application and the sender of acknowledgements read chunk bits
//! without locks while the message is in flight.
//!
//! Parity is not part of the buffer: `parity/store.rs` keeps the parity packets that are needed.
//! Repaired packets are placed like others.
//!
//! A message may be shorter than the buffer: its last packet has the solicited-event bit, and its length
//! follows from that packet's offset.
//!
//! Invariants:
//! - a chunk bit is set only after all bytes of the chunk were written, by a release that the reader's
//!   acquire sees;
//! - bytes whose packet bit is set are not written again;
//! - one thread places all packets of a chunk (`geometry.rs`), so it alone decides which packet
//!   completes the chunk.

#![allow(unsafe_code)]

mod bitmaps;
mod outcome;
mod parity;

use crate::discard::Discard;
use crate::geometry::Geometry;
use crate::parity::{ParityOutcome, ParityStore};
use crate::payload::Payload;
use crate::pieces::{Key, Piece, Pieces, Progress};
use crate::placement::Placement;
use crate::region::{Bound, Unbound};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use bitmaps::long_bitmap;
use lacuna_crc::Crc32c;
use std::sync::Arc;

/// One posted receive of one slot.
///
/// Padding instead of alignment keeps the two parts on separate cache lines: each message allocates one,
/// and glibc does not reuse cache-line-aligned heap blocks as well as others.
#[derive(Debug)]
#[repr(C)]
pub struct Receive {
    number: u64,
    geometry: Geometry,
    placement: Placement,
    /// The bitmaps; `None` if they have one word, which is then in `live`.
    packet_bits: Option<Box<[AtomicU64]>>,
    chunk_bits: Option<Box<[AtomicU64]>>,
    /// `Some` if messages carry parity.
    parity: Option<Box<ParityStore>>,
    /// Long enough that a cache line begins in it or right after it, wherever the heap puts the struct.
    _padding: [u64; 7],
    live: Live,
}

/// The fields that change while packets arrive. They share no cache line with the fields before, which
/// every worker reads for every packet.
#[derive(Debug)]
struct Live {
    /// Chunk bits set so far.
    chunks_done: AtomicU32,
    /// Fragments of the user immediate that have arrived, a mask.
    fragments: AtomicU32,
    /// Those fragments' bits of the user immediate.
    immediate: AtomicU64,
    /// 0 while the length is unknown, then 1 + length in bytes.
    end: AtomicU64,
    /// 1 once a packet carried a fragment of a user immediate.
    carries_immediate: AtomicU8,
    /// 1 if packets were placed and the protocol has not noted it.
    touched: AtomicU8,
    /// 0 while the receive goes on, then its [`Reason`](crate::reason::Reason).
    reason: AtomicU8,
    /// 0 while nothing arrived, then 1 + the time of the first and of the last arrival.
    first_ns: AtomicU64,
    last_ns: AtomicU64,
    /// The bitmaps, if they have one word.
    packet_word: AtomicU64,
    chunk_word: AtomicU64,
}

/// Outcome of placing one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placed {
    /// First copy of this packet.
    New {
        /// The chunk that this packet completed, if any.
        chunk: Option<u32>,
    },
    /// The packet's bit was set already; nothing was written.
    Duplicate {
        /// The chunk that is complete now because this copy, unlike the first, ended the message.
        chunk: Option<u32>,
    },
    /// A piece of a packet that is still incomplete.
    Part,
    /// A parity packet; nothing was written.
    Parity(ParityOutcome),
}

/// A packet's position in its message, from its headers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) packet: u32,
    /// Byte offset within the message.
    pub(crate) offset: u64,
    pub(crate) ends_message: bool,
    pub(crate) carries_immediate: bool,
    pub(crate) fragment: u32,
}

impl Receive {
    /// A record with clear bitmaps for message `number` over `placement`.
    ///
    /// # Panics
    /// If the buffer is longer than one slot allows; the caller has checked.
    #[inline]
    pub(crate) fn new(number: u64, geometry: Geometry, placement: Placement) -> Self {
        let capacity_bytes = placement.len() as u64;
        assert!(capacity_bytes <= geometry.max_message_bytes());
        let packets = geometry.packets(capacity_bytes);
        let layout = geometry.layout().filter(|_| placement.as_unbound().is_none());
        let parity = layout.map(|layout| {
            let are_shared = placement.is_in_regions();
            Box::new(ParityStore::new(*layout, packets, geometry.channels(), are_shared))
        });
        Self {
            number,
            geometry,
            packet_bits: long_bitmap(packets),
            chunk_bits: long_bitmap(geometry.chunks(capacity_bytes)),
            placement,
            parity,
            _padding: [0; 7],
            live: Live {
                chunks_done: AtomicU32::new(0),
                fragments: AtomicU32::new(0),
                immediate: AtomicU64::new(0),
                end: AtomicU64::new(0),
                carries_immediate: AtomicU8::new(0),
                touched: AtomicU8::new(0),
                reason: AtomicU8::new(0),
                first_ns: AtomicU64::new(0),
                last_ns: AtomicU64::new(0),
                packet_word: AtomicU64::new(0),
                chunk_word: AtomicU64::new(0),
            },
        }
    }

    /// As [`Receive::new`], in memory of its own: the record is built where it stays.
    #[inline]
    pub(crate) fn shared(number: u64, geometry: Geometry, placement: Placement) -> Arc<Self> {
        let place = Arc::<Self>::new_uninit();
        // Not through a reference to the allocation, which would not allow writing.
        let memory = Arc::as_ptr(&place).cast::<Self>().cast_mut();
        // SAFETY: nobody else knows the allocation, and it is initialised by the first line.
        unsafe {
            memory.write(Self::new(number, geometry, placement));
            place.assume_init()
        }
    }

    /// A receive without memory, whose first packet chooses the message's place in a region. It keeps
    /// no record itself: [`Bound::record`] does.
    pub(crate) fn unbound(number: u64, geometry: Geometry) -> Self {
        Self::new(number, geometry, Placement::unbound())
    }

    /// Message number: the n-th send lands in the n-th receive.
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The geometry that both ends agreed on.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Bytes of the buffer.
    #[inline]
    pub fn capacity_bytes(&self) -> u64 {
        self.placement.len() as u64
    }

    /// Chunks of the buffer.
    #[inline]
    pub fn capacity_chunks(&self) -> u32 {
        self.geometry.chunks(self.capacity_bytes())
    }

    /// Whether the first packet chooses, or has chosen, the message's place in a region
    /// ([`RecvTable::post_unbound`](crate::table::RecvTable::post_unbound)). Such a receive has no
    /// memory, bits or end of its own: the record is that of [`Receive::bound`].
    #[inline]
    pub fn is_unbound(&self) -> bool {
        self.as_unbound().is_some()
    }

    /// The place that the first packet has chosen, and the record of what arrived there; `None` before
    /// that, and for a receive with a buffer.
    #[inline]
    pub fn bound(&self) -> Option<&Bound> {
        self.as_unbound()?.get()
    }

    /// The record of what arrived: that of the place which the first packet has chosen, else this one. An
    /// unbound receive without a place has nothing in it.
    #[inline]
    pub fn record(&self) -> &Self {
        self.bound().map_or(self, Bound::record)
    }

    #[inline]
    pub(crate) fn as_unbound(&self) -> Option<&Unbound> {
        self.placement.as_unbound()
    }

    /// Places one packet. Called by the one worker of the packet's channel.
    ///
    /// # Safety
    /// The calling thread is the only one that places packets of this chunk,
    /// and the slot of this receive is pinned.
    #[inline(never)]
    pub(crate) unsafe fn place(
        &self,
        at: Position,
        payload: impl Payload,
    ) -> Result<Placed, Discard> {
        self.place_with(at, payload.len() as u64, || {
            let Some(bytes) = payload.bytes() else { return Ok(()) };
            // SAFETY: by contract this thread alone places packets of this chunk,
            // and the packet's bit is clear, so no other thread writes these bytes,
            // and readers wait for the chunk bit, which needs this packet's bit.
            unsafe { self.placement.put(at.offset as usize, bytes) }?;
            if self.placement.is_in_regions() {
                self.note_sum(at.packet, bytes);
            }
            Ok(())
        })
    }

    /// Places one packet of `length` bytes, which `write` brings to their place. Called by the one worker
    /// of the packet's channel.
    #[inline(always)]
    pub(crate) fn place_with(
        &self,
        at: Position,
        length: u64,
        write: impl FnOnce() -> Result<(), Discard>,
    ) -> Result<Placed, Discard> {
        let only_immediate = length == 0 && at.packet != 0;
        self.admit(at, length, only_immediate)?;
        if only_immediate {
            // If a message has fewer packets than its immediate has fragments, empty packets after its
            // data carry the rest.
            return Ok(Placed::New { chunk: None });
        }
        if let Some(duplicate) = self.duplicate(at) {
            return Ok(duplicate);
        }
        write()?;
        Ok(self.set_packet(at.packet))
    }

    /// Places one piece of the packet at `at`; `pieces` tracks the packet's pieces.
    ///
    /// # Safety
    /// As for [`Receive::place`].
    pub(crate) unsafe fn place_piece(
        &self,
        at: Position,
        piece: Piece,
        payload: impl Payload,
        pieces: (Key, &mut Pieces),
    ) -> Result<Placed, Discard> {
        self.place_piece_with(at, piece, payload.len(), pieces, || {
            let Some(bytes) = payload.bytes() else { return Ok(()) };
            let offset = at.offset as usize + piece.start as usize;
            // SAFETY: as in `place`: the bit of the packet, of which this is a part, is clear.
            unsafe { self.placement.put(offset, bytes) }
        })
    }

    /// Places one piece of `length` bytes, as [`Receive::place_with`] does a packet.
    pub(crate) fn place_piece_with(
        &self,
        at: Position,
        piece: Piece,
        length: usize,
        (key, pieces): (Key, &mut Pieces),
        write: impl FnOnce() -> Result<(), Discard>,
    ) -> Result<Placed, Discard> {
        // A piece must not reach past the end of its packet.
        let end = u64::from(piece.start) + length as u64;
        if end > u64::from(piece.whole_bytes) {
            return Err(Discard::Inconsistent);
        }
        self.admit(at, u64::from(piece.whole_bytes), false)?;
        if let Some(duplicate) = self.duplicate(at) {
            return Ok(duplicate);
        }
        write()?;
        Ok(match pieces.take(key, piece, length as u32) {
            Progress::Duplicate => Placed::Duplicate { chunk: None },
            Progress::Part => Placed::Part,
            Progress::Whole => self.set_packet(at.packet),
        })
    }

    /// Checks the position of a packet of `length` bytes, and records the message's end and the fragment
    /// of the immediate that it carries.
    #[inline(always)]
    fn admit(&self, at: Position, length: u64, only_immediate: bool) -> Result<(), Discard> {
        let mtu_bytes = u64::from(self.geometry.mtu_bytes());
        let end = at.offset + length;
        if end > self.capacity_bytes() {
            return Err(Discard::OutOfRange);
        }
        // A packet longer than the MTU would reach into bytes of other packets, which may have arrived
        // already or belong to another channel's worker.
        if !only_immediate
            && (at.offset != u64::from(at.packet) * mtu_bytes
                || length > mtu_bytes
                || (length != mtu_bytes && !at.ends_message))
        {
            return Err(Discard::Inconsistent);
        }
        if at.ends_message {
            self.learn_end(end)?;
        }
        if at.carries_immediate {
            self.add_fragment(at.packet, at.fragment);
        }
        match self.length_bytes() {
            Some(known) if !only_immediate && end > known => Err(Discard::Inconsistent),
            _ => Ok(()),
        }
    }

    /// The outcome for a packet that has arrived before; `None` if it has not.
    #[inline(always)]
    fn duplicate(&self, at: Position) -> Option<Placed> {
        let now = self.packet_word(at.packet / 64);
        if now & 1 << (at.packet % 64) == 0 {
            return None;
        }
        // A stream may send its last packets again to mark the end of the message; only then is a
        // short last chunk complete.
        let chunk = if at.ends_message { self.finish_chunk(at.packet, now) } else { None };
        Some(Placed::Duplicate { chunk })
    }

    /// Length of the message if its end is known, else of the buffer.
    #[inline]
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.length_bytes().unwrap_or_else(|| self.capacity_bytes())
    }

    /// Where packets end that the fast path may place: [`Receive::limit_bytes`] for memory in one piece, 0
    /// for other memory.
    #[inline]
    pub(crate) fn plain_limit_bytes(&self) -> u64 {
        match self.placement.is_elsewhere() {
            true => 0,
            false => self.limit_bytes(),
        }
    }

    /// Writes the payload of a repaired packet without setting its bit.
    ///
    /// # Errors
    /// If its memory comes from a pool that has no buffer.
    ///
    /// # Panics
    /// If it does not fit the buffer.
    ///
    /// # Safety
    /// As for [`Receive::write`].
    pub(crate) unsafe fn put(&self, offset: u64, payload: &[u8]) -> Result<(), Discard> {
        // SAFETY: by contract.
        unsafe { self.placement.put(offset as usize, payload) }
    }

    /// Writes a packet's payload without setting its bit; see [`Receive::publish`].
    ///
    /// # Panics
    /// If it does not fit the buffer.
    ///
    /// # Safety
    /// As for [`Receive::place`], and the packet's bit is clear.
    #[inline]
    pub(crate) unsafe fn write(&self, offset: u64, payload: &[u8]) {
        // SAFETY: by contract this thread alone places packets of this chunk,
        // and readers wait for the chunk bit, which needs this packet's bit.
        unsafe { self.placement.write(offset as usize, payload) };
    }

    /// Writes a packet's payload and adds headers and payload to the checksum, in one pass. If the
    /// trailer then does not match, the caller must call [`Receive::clear`].
    ///
    /// # Panics
    /// If it does not fit the buffer.
    ///
    /// # Safety
    /// As for [`Receive::write`].
    #[inline]
    pub(crate) unsafe fn write_summed(
        &self,
        offset: u64,
        sum: &mut Crc32c,
        headers: &[u8],
        payload: &[u8],
    ) {
        // SAFETY: as in `write`.
        unsafe { self.placement.write_summed(offset as usize, sum, headers, payload) };
    }

    /// Zeroes the bytes of a packet whose trailer was wrong.
    ///
    /// # Panics
    /// If it does not fit the buffer.
    ///
    /// # Safety
    /// As for [`Receive::write`].
    #[cold]
    pub(crate) unsafe fn clear(&self, offset: u64, len: usize) {
        // SAFETY: as in `write`.
        unsafe { self.placement.clear(offset as usize, len) };
    }

    /// Records the message's end; an error if it contradicts an earlier packet.
    fn learn_end(&self, end: u64) -> Result<(), Discard> {
        match self.live.end.load(Ordering::Relaxed) {
            0 if self.has_packets_from(end.div_ceil(u64::from(self.geometry.mtu_bytes()))) => {
                Err(Discard::Inconsistent)
            }
            0 => match self.live.end.compare_exchange(
                0,
                end + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => Ok(()),
                Err(known) if known == end + 1 => Ok(()),
                Err(_) => Err(Discard::Inconsistent),
            },
            known if known == end + 1 => Ok(()),
            _ => Err(Discard::Inconsistent),
        }
    }

    /// Records a fragment of the user immediate.
    fn add_fragment(&self, packet: u32, fragment: u32) {
        let split = self.geometry.split();
        if split.fragments() == 0 {
            return;
        }
        self.live.carries_immediate.store(1, Ordering::Relaxed);
        let index = packet % split.fragments();
        if self.live.fragments.load(Ordering::Relaxed) & (1 << index) == 0 {
            let value = u64::from(fragment) << (index * u32::from(split.user_bits()));
            self.live.immediate.fetch_or(value, Ordering::Relaxed);
            self.live.fragments.fetch_or(1 << index, Ordering::Release);
        }
    }

    /// Length of the message, once a packet with its end has arrived.
    #[inline]
    pub fn length_bytes(&self) -> Option<u64> {
        self.live.end.load(Ordering::Acquire).checked_sub(1)
    }

    /// Packets of the message if its end is known, else of the buffer.
    #[inline]
    pub(crate) fn packets(&self) -> u32 {
        self.geometry.packets(self.length_bytes().unwrap_or_else(|| self.capacity_bytes()))
    }

    /// Chunks of the message if its end is known, else of the buffer.
    #[inline]
    pub fn chunks(&self) -> u32 {
        self.geometry.chunks(self.length_bytes().unwrap_or_else(|| self.capacity_bytes()))
    }

    /// Fragments of the user immediate that have arrived, a mask.
    #[inline]
    pub fn fragments(&self) -> u32 {
        self.live.fragments.load(Ordering::Acquire)
    }

    /// The user immediate, once all its fragments have arrived (3.2.4).
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        let mask = self.fragments();
        self.geometry.split().join(mask, self.live.immediate.load(Ordering::Relaxed))
    }

    /// Whether the message carries an immediate of which a part is missing.
    #[inline]
    pub fn awaits_immediate(&self) -> bool {
        self.live.carries_immediate.load(Ordering::Acquire) != 0 && self.immediate().is_none()
    }

    /// Whether all chunks up to the end have arrived, and the immediate if the message carries one.
    #[inline]
    pub fn is_complete(&self) -> bool {
        // `chunks_done` first: a worker records the end before it counts its chunk.
        let done = self.chunks_done();
        let chunks = self.chunks();
        // The count is a cheap first test. It is not sufficient: a sender that moves the end may have
        // sent chunks after it, which must not stand for missing ones.
        done >= chunks
            && self.cumulative() == chunks
            && !self.awaits_immediate()
            && !self.awaits_end()
    }

    /// Whether the end of the message has to come, because it does not fill its slot. A buffer that is full
    /// is complete without; but the place of a write ends with the range of its key, and a write that goes
    /// on behind it is refused, not cut.
    fn awaits_end(&self) -> bool {
        self.placement.is_in_window()
            && self.capacity_bytes() < self.geometry.max_message_bytes()
            && self.length_bytes().is_none()
    }

    /// The bytes of a complete chunk, up to the end of the message; `None` if it is incomplete, or the
    /// receive has no memory of its own ([`Placement::phantom`], [`Placement::slices`],
    /// [`Receive::is_unbound`]).
    pub fn chunk(&self, chunk: u32) -> Option<&[u8]> {
        if !self.has_chunk(chunk) {
            return None;
        }
        let start = u64::from(chunk) * self.geometry.chunk_bytes();
        let limit = self.length_bytes().unwrap_or_else(|| self.capacity_bytes());
        let end = (start + self.geometry.chunk_bytes()).min(limit);
        if start > end {
            // The sender has moved the end before this chunk.
            return None;
        }
        // SAFETY: the chunk's bit is set (acquired above), and no worker writes
        // below a set packet bit.
        unsafe { self.placement.read(start as usize, (end - start) as usize) }
    }

    /// Bytes whose chunks are all here, as one slice; `None` if some are not, or as with [`Receive::chunk`].
    pub fn bytes(&self, range: core::ops::Range<u64>) -> Option<&[u8]> {
        let limit = self.length_bytes().unwrap_or_else(|| self.capacity_bytes());
        if range.start > range.end || range.end > limit {
            return None;
        }
        let chunk_bytes = self.geometry.chunk_bytes();
        let chunks = range.start / chunk_bytes..range.end.div_ceil(chunk_bytes);
        for chunk in chunks {
            if !u32::try_from(chunk).is_ok_and(|chunk| self.has_chunk(chunk)) {
                return None;
            }
        }
        // SAFETY: the bits of all chunks of the range are set (acquired above), and no worker writes
        // below a set packet bit.
        unsafe { self.placement.read(range.start as usize, (range.end - range.start) as usize) }
    }

    /// Takes the memory out of a receive that is over. That of an unbound receive is empty; its bytes are
    /// in a region. The record, some 300 bytes, stays where it is: its bits say what arrived, and its
    /// chunks have no bytes any more.
    #[inline]
    pub fn take_placement(&mut self) -> Placement {
        let without_memory = Placement::phantom(self.placement.len());
        std::mem::replace(&mut self.placement, without_memory).without_bound()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
