//! How a receive ends: what the application asks for when it posts one, and what it gets back.
//!
//! The papers end a message in different ways: when it is whole (SDR), by a deadline or a later message
//! (OptiNIC 3.1, Celeris III), when its last packet came (datagram-iWARP). Here each is a
//! [`Reason`] of the same completion, with the map of what arrived.

use crate::clock::Clock;
use lacuna_path::small_vec::SmallVec;
use lacuna_place::reason::Reason;
use lacuna_place::receive::Receive;
use lacuna_proto::qp::PostedReceive;
use std::ops::{Deref, Range};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// When a receive ends if it does not become whole, and what its gaps hold then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecvOptions {
    /// The receive is over after this time, whatever is there; `None` is no limit.
    pub deadline: Option<Duration>,
    /// How long a receive that could end waits for packets which the path has reordered; `None` is as
    /// long as packets have been late on this path, not at all while none was. Only a bounded mode ends
    /// receives before their deadline.
    pub grace: Option<Duration>,
    /// What the gaps hold; `None` is [`Missing::Zero`] in a bounded mode, and [`Missing::Keep`] in
    /// others.
    pub missing: Option<Missing>,
}

impl RecvOptions {
    /// A receive that is over after this time.
    pub fn within(deadline: Duration) -> Self {
        Self { deadline: Some(deadline), ..Self::default() }
    }
}

/// What the gaps of a receive hold when it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Zeros, so that the buffer can be used as it is: a sum ignores them. (Celeris III-B.)
    Zero,
    /// What was there before.
    Keep,
}

/// What a receive has when it was given back.
#[derive(Debug)]
pub struct Completed {
    /// The buffer, for receives posted with a vector: nothing writes to it any
    /// more. Bytes of packets that did not arrive hold what [`RecvOptions::missing`] says.
    pub buffer: Vec<u8>,
    /// Bytes of the message; `None` while its end has not come. The buffer may be
    /// longer.
    pub len: Option<usize>,
    /// Whether everything came.
    pub is_complete: bool,
    /// Chunks that came.
    pub chunks: ChunkMap,
    /// User immediate, if all of it came.
    pub immediate: Option<u32>,
    /// Why the receive is over.
    pub reason: Reason,
    /// Bytes of the message that came; copies count once.
    pub bytes: u64,
    /// Packets that came, or were computed from parity.
    pub packets: PacketMap,
    arrivals: Arrivals,
}

/// When packets came, on the context's clock.
#[derive(Debug)]
struct Arrivals {
    clock: Clock,
    /// Of the first and of the last packet.
    ns: Option<(u64, u64)>,
}

impl Completed {
    /// What a receive has whose slots are closed. `zeroes`: whether its gaps are to be zeroed.
    #[inline]
    pub(crate) fn of(
        mut posted: PostedReceive,
        zeroes: impl FnOnce() -> bool,
        clock: Clock,
    ) -> Self {
        let reason = posted.reason().unwrap_or(Reason::Cancelled);
        let is_complete = reason == Reason::Whole || posted.is_complete();
        let len = posted.length_bytes();
        let packets = PacketMap::of(&posted, len, is_complete);
        if !is_complete && zeroes() {
            posted.zero_missing();
        }
        let bytes = len.filter(|_| is_complete).unwrap_or_else(|| posted.placed_bytes());
        let arrivals = Arrivals { clock, ns: posted.arrivals_ns() };
        Self {
            len: len.map(|len| len as usize),
            is_complete,
            chunks: ChunkMap::of(&posted),
            immediate: posted.immediate(),
            reason,
            bytes,
            packets,
            arrivals,
            buffer: posted.into_vec().unwrap_or_default(),
        }
    }

    /// When the first packet came, to the accuracy of a burst. (A suspension of the host since then
    /// makes it too early.)
    pub fn first_arrival(&self) -> Option<Instant> {
        self.arrivals.instant(self.arrivals.ns.map(|(first, _)| first))
    }

    /// When the last packet came that was no copy.
    pub fn last_arrival(&self) -> Option<Instant> {
        self.arrivals.instant(self.arrivals.ns.map(|(_, last)| last))
    }
}

impl Arrivals {
    fn instant(&self, at_ns: Option<u64>) -> Option<Instant> {
        let ago_ns = self.clock.now_ns().saturating_sub(at_ns?);
        Instant::now().checked_sub(Duration::from_nanos(ago_ns))
    }
}

/// Which chunks of a receive came, one bit each, least significant first: chunk `i`, which begins at `i`
/// times [`Geometry::chunk_bytes`](crate::Geometry::chunk_bytes), is bit `i % 64` of word `i / 64`.
#[derive(Debug, Clone)]
pub struct ChunkMap(SmallVec<u64>);

impl Deref for ChunkMap {
    type Target = [u64];

    #[inline]
    fn deref(&self) -> &[u64] {
        &self.0
    }
}

impl ChunkMap {
    /// All chunk bits of a receive.
    #[inline]
    fn of(posted: &PostedReceive) -> Self {
        if let [only] = &posted.parts[..] {
            let words = only.chunk_bits().iter();
            return Self(words.map(|bits| bits.load(Ordering::Acquire)).collect());
        }
        Self::of_parts(posted)
    }

    fn of_parts(posted: &PostedReceive) -> Self {
        let total: u32 = posted.parts.iter().map(|part| part.capacity_chunks()).sum();
        let mut words = vec![0; total.div_ceil(64) as usize];
        let mut start = 0;
        for part in &posted.parts {
            for (i, bits) in part.chunk_bits().iter().enumerate() {
                put(&mut words, start + 64 * i, bits.load(Ordering::Acquire));
            }
            start += part.capacity_chunks() as usize;
        }
        Self(words.into_iter().collect())
    }
}

/// Which packets of a message came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketMap {
    /// One bit per packet, least significant first; `None` if all came.
    words: Option<Box<[u64]>>,
    packet_bytes: usize,
    /// Bytes of the message, or of the buffer if the message's end did not come.
    len_bytes: usize,
}

impl PacketMap {
    #[inline]
    fn of(posted: &PostedReceive, len: Option<u64>, is_complete: bool) -> Self {
        let geometry = posted.parts[0].geometry();
        let capacity = || posted.parts.iter().map(|part| part.capacity_bytes()).sum();
        let len_bytes = len.unwrap_or_else(capacity) as usize;
        let packet_bytes = geometry.mtu_bytes() as usize;
        let map = Self { words: None, packet_bytes, len_bytes };
        if is_complete {
            return map;
        }
        Self { words: Some(map.words_of(posted)), ..map }
    }

    #[cold]
    fn words_of(&self, posted: &PostedReceive) -> Box<[u64]> {
        let mut words = vec![0; self.len().div_ceil(64)].into_boxed_slice();
        let mut start = 0;
        for part in &posted.parts {
            let packets = (part.capacity_bytes() as usize).div_ceil(self.packet_bytes);
            for word in 0..packets.div_ceil(64) {
                put(&mut words, start + 64 * word, part.packets_here(word as u32));
            }
            start += packets;
        }
        words
    }

    /// Of a message that was written to a region. Of one whose end did not come, up to the last packet
    /// that came.
    pub(crate) fn of_record(record: &Receive) -> Self {
        let packet_bytes = record.geometry().mtu_bytes() as usize;
        if let Some(len) = record.length_bytes().filter(|_| record.is_complete()) {
            return Self { words: None, packet_bytes, len_bytes: len as usize };
        }
        let packets = record.geometry().packets(record.capacity_bytes());
        let mut words: Vec<u64> =
            (0..packets.div_ceil(64)).map(|word| record.packets_here(word)).collect();
        let used = words.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        words.truncate(used);
        let seen = words.last().map_or(0, |last| 64 * used - last.leading_zeros() as usize);
        let len_bytes = record.length_bytes().map_or(seen * packet_bytes, |len| len as usize);
        Self { words: Some(words.into()), packet_bytes, len_bytes }
    }

    /// Packets of the message; of the buffer if the message's end did not come. An empty message has
    /// none.
    pub fn len(&self) -> usize {
        self.len_bytes.div_ceil(self.packet_bytes)
    }

    /// Whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Bytes of a packet: packet `i` begins at `i` times as many. Only the last may be shorter.
    pub fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    /// Whether a packet came.
    pub fn has(&self, packet: usize) -> bool {
        let bit =
            |words: &[u64]| words.get(packet / 64).is_some_and(|w| w >> (packet % 64) & 1 == 1);
        packet < self.len() && self.words.as_deref().is_none_or(bit)
    }

    /// Packets that came.
    pub fn count(&self) -> usize {
        (0..self.len()).filter(|packet| self.has(*packet)).count()
    }

    /// The gaps, as ranges of bytes of the buffer, in order; up to the end of the message, or of the
    /// buffer if the message's end did not come.
    pub fn gaps(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.runs(false)
    }

    /// What came, as ranges of bytes of the buffer, in order.
    pub fn ranges(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.runs(true)
    }

    /// Runs of packets that came, or did not.
    fn runs(&self, came: bool) -> impl Iterator<Item = Range<usize>> + '_ {
        let mut packet = 0;
        std::iter::from_fn(move || {
            while packet < self.len() && self.has(packet) != came {
                packet += 1;
            }
            let first = packet;
            while packet < self.len() && self.has(packet) == came {
                packet += 1;
            }
            let bytes = first * self.packet_bytes..(packet * self.packet_bytes).min(self.len_bytes);
            (first < packet).then_some(bytes)
        })
    }
}

/// Sets the bits of a word from `start` on; those behind the end are dropped.
fn put(words: &mut [u64], start: usize, bits: u64) {
    let (word, shift) = (start / 64, start % 64);
    if let Some(low) = words.get_mut(word) {
        *low |= bits << shift;
    }
    if shift > 0
        && let Some(high) = words.get_mut(word + 1)
    {
        *high |= bits >> (64 - shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(words: &[u64], packet_bytes: usize, len_bytes: usize) -> PacketMap {
        PacketMap { words: Some(words.into()), packet_bytes, len_bytes }
    }

    #[test]
    fn gaps_are_ranges_of_bytes_up_to_the_end_of_the_message() {
        let map = map(&[0b0110_0101], 100, 750);
        assert_eq!(map.gaps().collect::<Vec<_>>(), [100..200, 300..500, 700..750]);
        assert_eq!(map.ranges().collect::<Vec<_>>(), [0..100, 200..300, 500..700]);
        assert_eq!((map.len(), map.count()), (8, 4));
        assert!(map.has(6) && !map.has(7) && !map.has(8));
    }

    #[test]
    fn a_whole_message_has_no_gaps_and_needs_no_words() {
        let map = PacketMap { words: None, packet_bytes: 100, len_bytes: 101 };
        assert_eq!((map.gaps().count(), map.len(), map.count()), (0, 2, 2));
        assert!(map.has(1) && !map.has(2));
        assert!(map.ranges().eq(std::iter::once(0..101)));
        let empty = PacketMap { words: None, packet_bytes: 100, len_bytes: 0 };
        assert_eq!((empty.is_empty(), empty.count(), empty.gaps().count()), (true, 0, 0));
    }

    #[test]
    fn bits_of_parts_that_begin_within_a_word_spill_into_the_next() {
        let mut words = [0; 2];
        put(&mut words, 60, 0b1_0001);
        put(&mut words, 126, 0b111);
        assert_eq!(words, [1 << 60, 1 | 0b11 << 62]);
        assert_eq!(map(&words, 1, 128).gaps().count(), 3);
    }
}
