//! Packets that arrive in pieces: which bytes of each have come.
//!
//! A sender whose path has become too narrow for whole packets splits them (`qp/pmtu.rs` of
//! `lacuna-proto`). The record has bits for whole packets only. A piece of data is written to its place
//! at once, and the packet's bit is set when its last byte has come. Parity has no place in the buffer,
//! so its pieces are put together here.
//!
//! Memory is bounded: when too many packets have begun, the oldest is forgotten. The sender repairs
//! whole packets, so a forgotten one costs a repair and nothing else.
//!
//! Invariants: a packet is reported whole once, when its last byte has come; only the owner of this
//! writes bytes of a packet that is not whole.

use crate::payload::Payload;
use std::collections::VecDeque;
use std::ops::Range;

/// Packets begun at once. Pieces of a packet leave together, so those begun are the ones that
/// lost a piece and wait for their repair, and on a path that reorders those under way.
const PACKETS_MAX: usize = 256;
/// Gaps between pieces of a packet that are kept apart. A sender cuts into fewer.
const RANGES_MAX: usize = 64;

/// A packet of a message: slot, generation, number in its message.
pub(crate) type Key = (u32, u8, u32);

/// Where a piece lies in its packet, and how long that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte, from the packet's.
    pub(crate) start: u32,
    /// Bytes of the whole packet.
    pub(crate) whole_bytes: u32,
}

/// What a piece did for its packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Came {
    /// All of it had come.
    Before,
    /// More is missing.
    Part,
    /// It was what was missing.
    Whole,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// In the order in which they began.
    begun: VecDeque<Begun>,
}

#[derive(Debug)]
struct Begun {
    key: Key,
    whole_bytes: u32,
    /// What has come: in order, apart from each other.
    came: Vec<Range<u32>>,
    /// Of parity, unless only the lengths of its pieces are known.
    bytes: Option<Box<[u8]>>,
}

impl Pieces {
    /// A piece of data came, of so many bytes, which the caller writes to their place.
    pub(crate) fn take(&mut self, key: Key, piece: Piece, bytes: u32) -> Came {
        let at = self.begin(key, piece.whole_bytes);
        let came = self.begun[at].add(piece.start..piece.start + bytes);
        if came == Came::Whole {
            self.begun.remove(at);
        }
        came
    }

    /// A piece of parity came: the whole packet, if that was what was missing, or nothing instead of
    /// it if a piece of it had no bytes.
    pub(crate) fn take_parity(
        &mut self,
        key: Key,
        piece: Piece,
        payload: impl Payload,
    ) -> Result<Option<Box<[u8]>>, Came> {
        let at = self.begin(key, piece.whole_bytes);
        let begun = &mut self.begun[at];
        if begun.came.is_empty() {
            begun.bytes = Some(vec![0; piece.whole_bytes as usize].into());
        }
        let start = piece.start as usize;
        match (&mut begun.bytes, payload.bytes()) {
            (Some(whole), Some(bytes)) => whole[start..start + bytes.len()].copy_from_slice(bytes),
            (whole, _) => *whole = None,
        }
        match begun.add(piece.start..piece.start + payload.len() as u32) {
            Came::Whole => Ok(self.begun.remove(at).and_then(|begun| begun.bytes)),
            came => Err(came),
        }
    }

    /// Where a packet is, begun anew if it is not there or was of another length.
    fn begin(&mut self, key: Key, whole_bytes: u32) -> usize {
        // The pieces of a packet mostly follow each other.
        let found = self.begun.iter().rposition(|begun| begun.key == key);
        if let Some(at) = found {
            if self.begun[at].whole_bytes == whole_bytes {
                return at;
            }
            self.begun.remove(at);
        }
        if self.begun.len() == PACKETS_MAX {
            self.begun.pop_front();
        }
        self.begun.push_back(Begun { key, whole_bytes, came: Vec::new(), bytes: None });
        self.begun.len() - 1
    }
}

impl Begun {
    fn add(&mut self, piece: Range<u32>) -> Came {
        if self.came.iter().any(|came| came.start <= piece.start && piece.end <= came.end) {
            return Came::Before;
        }
        // Those that it touches become one with it.
        let from = self.came.partition_point(|came| came.end < piece.start);
        let to = self.came.partition_point(|came| came.start <= piece.end);
        let touched = &self.came[from..to];
        let start = touched.first().map_or(piece.start, |first| first.start.min(piece.start));
        let end = touched.last().map_or(piece.end, |last| last.end.max(piece.end));
        if from == to && self.came.len() == RANGES_MAX {
            // No sender cuts so: it is as if the piece had not come.
            return Came::Part;
        }
        drop(self.came.splice(from..to, std::iter::once(start..end)));
        if start == 0 && end == self.whole_bytes { Came::Whole } else { Came::Part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = (3, 1, 7);

    fn take(pieces: &mut Pieces, start: u32, bytes: u32) -> Came {
        pieces.take(KEY, Piece { start, whole_bytes: 100 }, bytes)
    }

    #[test]
    fn a_packet_is_whole_once_its_last_byte_has_come() {
        let mut pieces = Pieces::default();
        assert_eq!(take(&mut pieces, 60, 40), Came::Part);
        assert_eq!(take(&mut pieces, 0, 30), Came::Part);
        assert_eq!(take(&mut pieces, 0, 30), Came::Before);
        assert_eq!(take(&mut pieces, 20, 39), Came::Part, "one byte is missing");
        assert_eq!(take(&mut pieces, 50, 20), Came::Whole);
        assert!(pieces.begun.is_empty());
    }

    #[test]
    fn parity_is_put_together() {
        let mut pieces = Pieces::default();
        let whole: Vec<u8> = (0..100).collect();
        let mut take = |range: Range<usize>| {
            let piece = Piece { start: range.start as u32, whole_bytes: 100 };
            pieces.take_parity(KEY, piece, &whole[range])
        };
        assert_eq!(take(50..100), Err(Came::Part));
        assert_eq!(take(50..100), Err(Came::Before));
        assert_eq!(take(0..50), Ok(Some(whole.clone().into())));
    }

    #[test]
    fn a_flood_of_begun_packets_is_bounded_and_costs_only_the_oldest() {
        let mut pieces = Pieces::default();
        let piece = Piece { start: 0, whole_bytes: 100 };
        for packet in 0..PACKETS_MAX as u32 + 1 {
            assert_eq!(pieces.take((0, 0, packet), piece, 50), Came::Part);
        }
        assert_eq!(pieces.begun.len(), PACKETS_MAX);
        let rest = Piece { start: 50, whole_bytes: 100 };
        assert_eq!(pieces.take((0, 0, 0), rest, 50), Came::Part, "forgotten");
        assert_eq!(pieces.take((0, 0, 2), rest, 50), Came::Whole);
        // Every other byte, as nobody cuts.
        for start in 0..60_000 {
            pieces.take(KEY, Piece { start: start * 2, whole_bytes: 120_000 }, 1);
        }
        assert!(pieces.begun.iter().all(|begun| begun.came.len() <= RANGES_MAX));
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
                let came = pieces.take(KEY, Piece { start, whole_bytes: 64 }, end - start);
                let expected = match oracle.iter().all(|byte| *byte) {
                    true => Came::Whole,
                    false if was_there => Came::Before,
                    false => Came::Part,
                };
                prop_assert_eq!(came, expected);
                if came == Came::Whole {
                    oracle.fill(false);
                }
            }
        }
    }
}
