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

mod parity;

use crate::discard::Discard;
use crate::geometry::Geometry;
use crate::parity::{ParityOutcome, ParityStore};
use crate::payload::Payload;
use crate::pieces::{Key, Piece, Pieces, Progress};
use crate::placement::Placement;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use lacuna_crc::Crc32c;

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
    carries_immediate: AtomicU32,
    /// The bitmaps, if they have one word.
    packet_word: AtomicU64,
    chunk_word: AtomicU64,
}

/// A bitmap of `bits` bits; `None` if it has one word.
fn long_bitmap(bits: u32) -> Option<Box<[AtomicU64]>> {
    let words = bits.div_ceil(64);
    (words != 1).then(|| (0..words).map(|_| AtomicU64::new(0)).collect())
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
    pub(crate) fn new(number: u64, geometry: Geometry, placement: Placement) -> Self {
        let capacity_bytes = placement.len() as u64;
        assert!(capacity_bytes <= geometry.max_message_bytes());
        let packets = geometry.packets(capacity_bytes);
        let parity = geometry
            .layout()
            .map(|layout| Box::new(ParityStore::new(*layout, packets, geometry.channels())));
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
                carries_immediate: AtomicU32::new(0),
                packet_word: AtomicU64::new(0),
                chunk_word: AtomicU64::new(0),
            },
        }
    }

    #[inline]
    fn packet_bits(&self) -> &[AtomicU64] {
        self.packet_bits.as_deref().unwrap_or(std::slice::from_ref(&self.live.packet_word))
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

    /// Places one packet. Called by the one worker of the packet's channel.
    ///
    /// # Safety
    /// The calling thread is the only one that places packets of this chunk,
    /// and the slot of this receive is pinned.
    #[inline]
    pub(crate) unsafe fn place(
        &self,
        at: Position,
        payload: impl Payload,
    ) -> Result<Placed, Discard> {
        let length = payload.len() as u64;
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
        if let Some(bytes) = payload.bytes() {
            // SAFETY: by contract this thread alone places packets of this chunk,
            // and the packet's bit is clear, so no other thread writes these bytes,
            // and readers wait for the chunk bit, which needs this packet's bit.
            unsafe { self.placement.write(at.offset as usize, bytes) };
        }
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
        (key, pieces): (Key, &mut Pieces),
    ) -> Result<Placed, Discard> {
        // A piece must not reach past the end of its packet.
        let end = u64::from(piece.start) + payload.len() as u64;
        if end > u64::from(piece.whole_bytes) {
            return Err(Discard::Inconsistent);
        }
        self.admit(at, u64::from(piece.whole_bytes), false)?;
        if let Some(duplicate) = self.duplicate(at) {
            return Ok(duplicate);
        }
        if let Some(bytes) = payload.bytes() {
            let offset = at.offset as usize + piece.start as usize;
            // SAFETY: as in `place`: the bit of the packet, of which this is a part, is clear.
            unsafe { self.placement.write(offset, bytes) };
        }
        Ok(match pieces.take(key, piece, payload.len() as u32) {
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

    /// Sets the bit of a packet whose bytes were written, and its chunk's bit if that is complete now.
    #[inline(always)]
    fn set_packet(&self, packet: u32) -> Placed {
        let bit = 1u64 << (packet % 64);
        let word = &self.packet_bits()[(packet / 64) as usize];
        let now = word.fetch_or(bit, Ordering::AcqRel) | bit;
        Placed::New { chunk: self.finish_chunk(packet, now) }
    }

    /// A word of the packet bitmap.
    ///
    /// # Panics
    /// If the buffer has no such packets.
    #[inline]
    pub(crate) fn packet_word(&self, word: u32) -> u64 {
        self.packet_bits()[word as usize].load(Ordering::Relaxed)
    }

    /// Length of the message if its end is known, else of the buffer.
    #[inline]
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.length_bytes().unwrap_or_else(|| self.capacity_bytes())
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

    /// Sets the clear bits `fresh` of a word, whose packets this worker has written, and the bits of the
    /// chunks that are complete now. Returns the number of those chunks.
    pub(crate) fn publish(&self, word: u32, fresh: u64) -> u64 {
        let now = self.packet_bits()[word as usize].fetch_or(fresh, Ordering::AcqRel) | fresh;
        let chunk_packets = self.geometry.chunk_packets();
        if chunk_packets == 1 {
            return u64::from(self.set_chunks(word, fresh));
        }
        if now == u64::MAX && chunk_packets <= 64 && chunk_packets.is_power_of_two() {
            // The word consists of complete chunks, as in bulk.
            let chunks = 64 >> chunk_packets.trailing_zeros();
            let first = word * chunks;
            let bits = (u64::MAX >> (64 - chunks)) << (first % 64);
            return u64::from(self.set_chunks(first / 64, bits));
        }
        // The bits of several short chunks are gathered and set a word at a time.
        let (mut done, mut bits, mut chunk_word) = (0, 0, 0);
        let mut rest = fresh;
        while rest != 0 {
            // The last new packet of the first chunk that has new packets.
            let first = word * 64 + rest.trailing_zeros();
            let next_chunk = (first / chunk_packets + 1) * chunk_packets;
            let ahead = u64::MAX.checked_shl(next_chunk - word * 64).unwrap_or(0);
            let last = word * 64 + 63 - (rest & !ahead).leading_zeros();
            if let Some(chunk) = self.whole_chunk(last, now) {
                if chunk / 64 != chunk_word {
                    done += self.set_chunks(chunk_word, std::mem::take(&mut bits));
                    chunk_word = chunk / 64;
                }
                bits |= 1 << (chunk % 64);
            }
            rest &= ahead;
        }
        u64::from(done + self.set_chunks(chunk_word, bits))
    }

    /// The packet's chunk, if it is complete; `now` is the value of the packet's word.
    #[inline]
    fn whole_chunk(&self, packet: u32, now: u64) -> Option<u32> {
        let chunk_packets = self.geometry.chunk_packets();
        let chunk = packet / chunk_packets;
        let first = chunk * chunk_packets;
        // Since the check of this packet, another worker may have learned an end before it (from a
        // sender that contradicts itself). The chunk includes this packet nevertheless.
        let last = (first + chunk_packets).min(self.packets()).max(packet + 1) - 1;
        let is_whole = if first / 64 == last / 64 {
            let mask = (u64::MAX >> (63 - (last - first))) << (first % 64);
            now & mask == mask
        } else {
            (first / 64..=last / 64).all(|word| {
                let low = first.max(word * 64) % 64;
                let high = last.min(word * 64 + 63) % 64;
                let mask = (u64::MAX >> (63 - (high - low))) << low;
                self.packet_bits()[word as usize].load(Ordering::Acquire) & mask == mask
            })
        };
        is_whole.then_some(chunk)
    }

    /// Sets bits of a word of the chunk bitmap. Returns how many of them were clear.
    #[inline]
    fn set_chunks(&self, word: u32, bits: u64) -> u32 {
        if bits == 0 {
            return 0;
        }
        let before = self.chunk_bits()[word as usize].fetch_or(bits, Ordering::AcqRel);
        let done = (bits & !before).count_ones();
        if done > 0 {
            self.live.chunks_done.fetch_add(done, Ordering::AcqRel);
        }
        done
    }

    /// Sets the bit of the packet's chunk and returns it, if `packet` completed it; `now` is the value of
    /// the packet's word.
    #[inline]
    fn finish_chunk(&self, packet: u32, now: u64) -> Option<u32> {
        let chunk = self.whole_chunk(packet, now)?;
        (self.set_chunks(chunk / 64, 1 << (chunk % 64)) == 1).then_some(chunk)
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

    /// Whether any packet from `first` on has arrived; called once per message.
    fn has_packets_from(&self, first: u64) -> bool {
        let words = self.packet_bits().iter().enumerate().skip((first / 64) as usize);
        words.map(|(index, word)| (index as u64, word.load(Ordering::Relaxed))).any(
            |(index, word)| {
                let skipped = first.saturating_sub(index * 64);
                word >> skipped != 0
            },
        )
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

    /// Number of complete chunks.
    #[inline]
    pub fn chunks_done(&self) -> u32 {
        self.live.chunks_done.load(Ordering::Acquire)
    }

    /// Whether a chunk is complete; `false` out of range.
    #[inline]
    pub fn has_chunk(&self, chunk: u32) -> bool {
        self.chunk_bits()
            .get((chunk / 64) as usize)
            .is_some_and(|word| word.load(Ordering::Acquire) >> (chunk % 64) & 1 == 1)
    }

    /// The live chunk bitmap: chunk `i` is bit `i % 64` of word `i / 64`.
    #[inline]
    pub fn chunk_bits(&self) -> &[AtomicU64] {
        self.chunk_bits.as_deref().unwrap_or(std::slice::from_ref(&self.live.chunk_word))
    }

    /// The packet bits of one chunk; of a chunk with more than 64 packets, the first 64.
    pub fn chunk_packets(&self, chunk: u32) -> u64 {
        let first = chunk.saturating_mul(self.geometry.chunk_packets());
        let count = self.geometry.chunk_packets().min(64);
        (0..count)
            .fold(0, |bits, i| bits | u64::from(self.has_packet(first.saturating_add(i))) << i)
    }

    /// Whether a packet has arrived.
    #[inline]
    pub fn has_packet(&self, packet: u32) -> bool {
        self.packet_bits()
            .get((packet / 64) as usize)
            .is_some_and(|word| word.load(Ordering::Acquire) >> (packet % 64) & 1 == 1)
    }

    /// Number of chunks before the first missing one: the cumulative acknowledgement.
    #[inline]
    pub fn cumulative(&self) -> u32 {
        let chunks = self.chunks();
        for (index, word) in self.chunk_bits().iter().enumerate() {
            let missing = (!word.load(Ordering::Acquire)).trailing_zeros();
            if missing < 64 {
                return (index as u32 * 64 + missing).min(chunks);
            }
        }
        chunks
    }

    /// Writes the chunk bits from `first` on into `out`, least significant bit first, as in an
    /// acknowledgement. Returns the number of bytes up to the last one with a set bit.
    pub fn copy_chunk_bits(&self, first: u32, out: &mut [u8]) -> usize {
        let load = |word: usize| {
            self.chunk_bits().get(word).map_or(0, |word| word.load(Ordering::Acquire))
        };
        let shift = first % 64;
        let mut used = 0;
        for (index, bytes) in out.chunks_mut(8).enumerate() {
            let word = (first / 64) as usize + index;
            if word >= self.chunk_bits().len() {
                break;
            }
            let mut bits = load(word) >> shift;
            if shift > 0 {
                bits |= load(word + 1) << (64 - shift);
            }
            let bits = bits.to_le_bytes();
            bytes.copy_from_slice(&bits[..bytes.len()]);
            if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
                used = index * 8 + last + 1;
            }
        }
        used
    }

    /// Fragments of the user immediate that have arrived, a mask.
    #[inline]
    pub fn fragments(&self) -> u32 {
        self.live.fragments.load(Ordering::Acquire)
    }

    /// The user immediate, once all its fragments have arrived (3.2.4).
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        let fragments = self.geometry.split().fragments();
        let all = if fragments == 32 { u32::MAX } else { (1 << fragments) - 1 };
        (fragments > 0 && self.fragments() == all)
            .then(|| self.live.immediate.load(Ordering::Relaxed) as u32)
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
            && (self.live.carries_immediate.load(Ordering::Acquire) == 0
                || self.immediate().is_some())
    }

    /// The bytes of a complete chunk, up to the end of the message; `None` if it is incomplete, or the
    /// receive has no memory ([`Placement::phantom`]).
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

    /// The memory.
    #[inline]
    pub fn into_placement(self) -> Placement {
        self.placement
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
