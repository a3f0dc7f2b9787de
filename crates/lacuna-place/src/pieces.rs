//! Reassembly of packets that arrive in pieces.
//!
//! A sender splits packets when the path MTU has become too small for them (`qp/pmtu.rs` of
//! `lacuna-proto`). The record has bits for whole packets only. A piece of data is written to the buffer
//! at once, and the packet's bit is set when its last byte has arrived. Parity has no place in the
//! buffer, so its pieces are assembled here.
//!
//! Memory is bounded: when too many packets are incomplete, the oldest is forgotten. The sender
//! retransmits whole packets, so this costs one retransmission.
//!
//! Invariants: a packet is reported whole once, when its last byte has arrived; only the owner of
//! [`Pieces`] writes bytes of an incomplete packet.

use crate::payload::Payload;
use std::collections::VecDeque;
use std::ops::Range;

/// Most incomplete packets. The pieces of a packet leave together, so only packets that lost a piece or
/// were reordered are incomplete.
const PACKETS_MAX: usize = 256;
/// Most byte ranges per packet, separated by gaps. Senders cut packets into fewer pieces.
const RANGES_MAX: usize = 64;

/// A packet: the number of its message, and its own in the message. The name of a message by slot and generation would
/// not do, because that comes round: a piece of the old message may be left.
pub(crate) type Key = (u64, u32);

/// The position of a piece in its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Offset of the first byte in the packet.
    pub(crate) start: u32,
    /// Bytes of the whole packet.
    pub(crate) whole_bytes: u32,
}

/// State of a packet after a piece of it has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The piece had arrived before.
    Duplicate,
    /// The packet is still incomplete.
    Part,
    /// The piece completed the packet.
    Whole,
}

/// The incomplete packets of one channel.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// Oldest first.
    incomplete: VecDeque<Incomplete>,
}

#[derive(Debug)]
struct Incomplete {
    key: Key,
    whole_bytes: u32,
    /// Byte ranges that have arrived: sorted, with gaps between them.
    ranges: Vec<Range<u32>>,
    /// The bytes of a parity packet; `None` if only the lengths of its pieces are known.
    bytes: Option<Box<[u8]>>,
}

impl Pieces {
    /// A piece of data of `bytes` bytes has arrived; the caller writes it to the buffer.
    pub(crate) fn take(&mut self, key: Key, piece: Piece, bytes: u32) -> Progress {
        let at = self.find_or_start(key, piece.whole_bytes);
        let progress = self.incomplete[at].add(piece.start..piece.start + bytes);
        if progress == Progress::Whole {
            self.incomplete.remove(at);
        }
        progress
    }

    /// A piece of parity has arrived. `Ok` if it completes the packet: with the packet's bytes, or
    /// `None` if only the length of some piece is known.
    pub(crate) fn take_parity(
        &mut self,
        key: Key,
        piece: Piece,
        payload: impl Payload,
    ) -> Result<Option<Box<[u8]>>, Progress> {
        let at = self.find_or_start(key, piece.whole_bytes);
        let packet = &mut self.incomplete[at];
        if packet.ranges.is_empty() {
            packet.bytes = Some(vec![0; piece.whole_bytes as usize].into());
        }
        let start = piece.start as usize;
        match (&mut packet.bytes, payload.bytes()) {
            (Some(whole), Some(bytes)) => whole[start..start + bytes.len()].copy_from_slice(bytes),
            (whole, _) => *whole = None,
        }
        match packet.add(piece.start..piece.start + payload.len() as u32) {
            Progress::Whole => Ok(self.incomplete.remove(at).and_then(|packet| packet.bytes)),
            progress => Err(progress),
        }
    }

    /// Index of a packet; starts it anew if it is unknown or had another length.
    fn find_or_start(&mut self, key: Key, whole_bytes: u32) -> usize {
        // From the back: the pieces of a packet mostly arrive together.
        let found = self.incomplete.iter().rposition(|packet| packet.key == key);
        if let Some(at) = found {
            if self.incomplete[at].whole_bytes == whole_bytes {
                return at;
            }
            self.incomplete.remove(at);
        }
        if self.incomplete.len() == PACKETS_MAX {
            self.incomplete.pop_front();
        }
        self.incomplete.push_back(Incomplete { key, whole_bytes, ranges: Vec::new(), bytes: None });
        self.incomplete.len() - 1
    }
}

impl Incomplete {
    fn add(&mut self, piece: Range<u32>) -> Progress {
        if self.ranges.iter().any(|range| range.start <= piece.start && piece.end <= range.end) {
            return Progress::Duplicate;
        }
        // Merge the piece with the ranges that it touches.
        let from = self.ranges.partition_point(|range| range.end < piece.start);
        let to = self.ranges.partition_point(|range| range.start <= piece.end);
        let touched = &self.ranges[from..to];
        let start = touched.first().map_or(piece.start, |first| first.start.min(piece.start));
        let end = touched.last().map_or(piece.end, |last| last.end.max(piece.end));
        if from == to && self.ranges.len() == RANGES_MAX {
            // No honest sender makes so many gaps: ignore the piece.
            return Progress::Part;
        }
        drop(self.ranges.splice(from..to, std::iter::once(start..end)));
        if start == 0 && end == self.whole_bytes { Progress::Whole } else { Progress::Part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = (7, 3);

    fn take(pieces: &mut Pieces, start: u32, bytes: u32) -> Progress {
        pieces.take(KEY, Piece { start, whole_bytes: 100 }, bytes)
    }

    #[test]
    fn a_packet_is_whole_once_its_last_byte_has_come() {
        let mut pieces = Pieces::default();
        assert_eq!(take(&mut pieces, 60, 40), Progress::Part);
        assert_eq!(take(&mut pieces, 0, 30), Progress::Part);
        assert_eq!(take(&mut pieces, 0, 30), Progress::Duplicate);
        assert_eq!(take(&mut pieces, 20, 39), Progress::Part, "one byte is missing");
        assert_eq!(take(&mut pieces, 50, 20), Progress::Whole);
        assert!(pieces.incomplete.is_empty());
    }

    #[test]
    fn parity_is_put_together() {
        let mut pieces = Pieces::default();
        let whole: Vec<u8> = (0..100).collect();
        let mut take = |range: Range<usize>| {
            let piece = Piece { start: range.start as u32, whole_bytes: 100 };
            pieces.take_parity(KEY, piece, &whole[range])
        };
        assert_eq!(take(50..100), Err(Progress::Part));
        assert_eq!(take(50..100), Err(Progress::Duplicate));
        assert_eq!(take(0..50), Ok(Some(whole.clone().into())));
    }

    #[test]
    fn a_flood_of_incomplete_packets_is_bounded_and_costs_only_the_oldest() {
        let mut pieces = Pieces::default();
        let piece = Piece { start: 0, whole_bytes: 100 };
        for packet in 0..PACKETS_MAX as u32 + 1 {
            assert_eq!(pieces.take((0, packet), piece, 50), Progress::Part);
        }
        assert_eq!(pieces.incomplete.len(), PACKETS_MAX);
        let rest = Piece { start: 50, whole_bytes: 100 };
        assert_eq!(pieces.take((0, 0), rest, 50), Progress::Part, "forgotten");
        assert_eq!(pieces.take((0, 2), rest, 50), Progress::Whole);
        // Every other byte: more gaps than any sender makes.
        for start in 0..60_000 {
            pieces.take(KEY, Piece { start: start * 2, whole_bytes: 120_000 }, 1);
        }
        assert!(pieces.incomplete.iter().all(|packet| packet.ranges.len() <= RANGES_MAX));
    }

    proptest! {
        #[test]
        fn any_cut_in_any_order_is_whole_with_its_last_byte(
            cuts in prop::collection::vec((0u32..64, 1u32..40), 1..60),
        ) {
            let (mut pieces, mut oracle) = (Pieces::default(), [false; 64]);
            for (start, bytes) in cuts {
                let end = (start + bytes).min(64);
                let was_there = oracle[start as usize..end as usize].iter().all(|byte| *byte);
                oracle[start as usize..end as usize].fill(true);
                let progress = pieces.take(KEY, Piece { start, whole_bytes: 64 }, end - start);
                let expected = match oracle.iter().all(|byte| *byte) {
                    true => Progress::Whole,
                    false if was_there => Progress::Duplicate,
                    false => Progress::Part,
                };
                prop_assert_eq!(progress, expected);
                if progress == Progress::Whole {
                    oracle.fill(false);
                }
            }
        }
    }
}
