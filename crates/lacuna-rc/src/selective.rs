//! Selective repeat at the requester: which packets have come behind a gap, which are lost, which are sent
//! again.
//!
//! After IRN (Mittal et al., "Revisiting Network Support for RDMA", section 3): the responder keeps what
//! comes behind a gap and says so, and only what is missing is sent again. A packet counts as lost once one
//! has come that was sent [`REORDERED_MAX`] packets or more behind it; one that was sent again, once one has
//! come that was sent so much later than its repetition. IRN's answers name the packet that caused them;
//! these name as many ranges as fit a packet ([`ranges_max`]), so a lost answer costs nothing. Between the last
//! ones of a full answer nothing is known.
//!
//! Invariant: holes are disjoint, in order, and hold no packet that has come.

use crate::run::RANGE_BYTES;
use lacuna_path::ranges::Ranges;
use std::ops::Range;

/// Packets that may overtake another one before that counts as lost (RFC 8985, as TCP's three duplicates).
const REORDERED_MAX: u64 = 3;
/// Ranges that an answer names, at most: the lowest, and the highest.
const RANGES_MAX: usize = 128;

/// The same with packets of this payload.
pub(crate) fn ranges_max(mtu_bytes: u32) -> usize {
    (mtu_bytes as usize / RANGE_BYTES).min(RANGES_MAX)
}

/// Packets that are lost, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hole {
    range: Range<u64>,
    /// They were sent again when everything before this number had been sent; `None` if not yet.
    again_at: Option<u64>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Selective {
    came: Ranges,
    holes: Vec<Hole>,
}

impl Selective {
    /// Ranges that have come, behind the gap.
    pub(crate) fn came(&self) -> &Ranges {
        &self.came
    }

    /// Takes in what has come behind `acked`, the number that is missing first. Gives what is lost by that,
    /// and was not before. `is_cut`: there are more ranges before the last one.
    pub(crate) fn on_came(
        &mut self,
        acked: u64,
        ranges: &[Range<u64>],
        is_cut: bool,
    ) -> Vec<Range<u64>> {
        let told_to = match ranges {
            [.., last, _] if is_cut => last.end,
            _ => u64::MAX,
        };
        ranges.iter().for_each(|range| self.came.add(range.start.max(acked + 1)..range.end));
        self.came.remove(&(acked..acked + 1));
        let highest = self.came.last_end().unwrap_or(acked);
        let (mut holes, mut lost) = (Vec::new(), Vec::new());
        for gap in self.came.gaps(&(acked..highest)) {
            if gap.end + REORDERED_MAX > highest || gap.start >= told_to {
                // What is behind it may have overtaken it. An older hole here stays.
                holes.extend(
                    self.parts(&gap).filter_map(|(range, known)| {
                        known.map(|again_at| Hole { range, again_at })
                    }),
                );
                continue;
            }
            for (range, known) in self.parts(&gap) {
                let again_at = match known {
                    Some(Some(again_at)) if highest < again_at + REORDERED_MAX => Some(again_at),
                    Some(None) => None,
                    Some(Some(_)) | None => {
                        lost.push(range.clone());
                        None
                    }
                };
                holes.push(Hole { range, again_at });
            }
        }
        self.holes = holes;
        lost
    }

    /// A gap in parts: those that are in holes, with when they were sent again, and the others.
    fn parts(&self, gap: &Range<u64>) -> impl Iterator<Item = (Range<u64>, Option<Option<u64>>)> {
        let mut parts = Vec::new();
        let mut next = gap.start;
        for hole in &self.holes {
            let part = hole.range.start.max(next)..hole.range.end.min(gap.end);
            if part.is_empty() {
                continue;
            }
            if next < part.start {
                parts.push((next..part.start, None));
            }
            next = part.end;
            parts.push((part, Some(hole.again_at)));
        }
        if next < gap.end {
            parts.push((next..gap.end, None));
        }
        parts.into_iter()
    }

    /// Everything before this number has come.
    pub(crate) fn on_acked(&mut self, acked: u64) {
        self.came.remove_below(acked);
        self.holes.retain_mut(|hole| {
            hole.range.start = hole.range.start.max(acked);
            !hole.range.is_empty()
        });
    }

    /// Nothing came for a whole timeout, or the peer has no receive: all that has not come is lost. The packet
    /// that is missing first may have come before, and found no receive.
    pub(crate) fn lose_all(&mut self, acked: u64, sent: u64) {
        self.came.remove(&(acked..acked + 1));
        let gaps = self.came.gaps(&(acked..sent));
        self.holes = gaps.map(|range| Hole { range, again_at: None }).collect();
    }

    /// The first packets to send again.
    pub(crate) fn next(&self) -> Option<Range<u64>> {
        self.holes.iter().find(|hole| hole.again_at.is_none()).map(|hole| hole.range.clone())
    }

    /// The first packets of [`Selective::next`] up to `end` were sent again; everything before `sent` had been
    /// sent before.
    pub(crate) fn on_again(&mut self, end: u64, sent: u64) {
        let Some(at) = self.holes.iter().position(|hole| hole.again_at.is_none()) else { return };
        let hole = &mut self.holes[at];
        let rest = end.max(hole.range.start)..hole.range.end;
        hole.again_at = Some(sent);
        if !rest.is_empty() {
            hole.range.end = rest.start;
            self.holes.insert(at + 1, Hole { range: rest, again_at: None });
        }
    }

    /// Packets in a range that are lost and were not sent again: they are not under way.
    pub(crate) fn waiting(&self, within: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let waiting = self.holes.iter().filter(|hole| hole.again_at.is_none());
        let within = within.clone();
        waiting
            .map(move |hole| hole.range.start.max(within.start)..hole.range.end.min(within.end))
            .filter(|range| !range.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is lost once all numbers from `from` to `to` have come.
    fn lost(selective: &mut Selective, from: u64, to: u64) -> Vec<u64> {
        let ranges = std::slice::from_ref(&(from..to)).to_vec();
        selective.on_came(10, &ranges, false).into_iter().flatten().collect()
    }

    #[test]
    fn a_packet_is_lost_once_enough_has_overtaken_it() {
        let mut selective = Selective::default();
        assert_eq!(lost(&mut selective, 11, 13), [0; 0]);
        assert_eq!(selective.next(), None, "two packets have overtaken it");
        assert_eq!(lost(&mut selective, 11, 14), [10]);
        assert_eq!(selective.next(), Some(10..11));
        assert_eq!(lost(&mut selective, 11, 20), [0; 0], "known");
    }

    #[test]
    fn what_was_sent_again_is_lost_again_when_what_was_sent_after_it_comes() {
        let mut selective = Selective::default();
        assert_eq!(lost(&mut selective, 14, 20), [10, 11, 12, 13]);
        selective.on_again(12, 30);
        assert_eq!(selective.next(), Some(12..14));
        selective.on_again(14, 31);
        assert_eq!(selective.next(), None);
        assert_eq!(lost(&mut selective, 14, 32), [0; 0]);
        assert_eq!(lost(&mut selective, 14, 33), [10, 11]);
        assert_eq!(lost(&mut selective, 14, 34), [12, 13]);
        selective.on_acked(13);
        assert_eq!(selective.next(), Some(13..14));
        selective.on_acked(34);
        assert_eq!((selective.next(), selective.came().last_end()), (None, None));
    }

    #[test]
    fn what_an_answer_had_no_room_for_is_not_lost() {
        let mut selective = Selective::default();
        let lost = selective.on_came(10, &[12..14, 16..18, 41..45], true);
        assert_eq!(lost, [10..12, 14..16]);
        let lost = selective.on_came(10, &[12..14, 16..40, 41..45], false);
        assert!(lost.into_iter().flatten().eq([40]));
    }

    #[test]
    fn after_a_timeout_all_is_lost_that_has_not_come() {
        let mut selective = Selective::default();
        selective.on_came(10, &[12..14, 20..24], false);
        selective.lose_all(10, 30);
        let mut again = Vec::new();
        while let Some(range) = selective.next() {
            selective.on_again(range.end, 30);
            again.push(range);
        }
        assert_eq!(again, [10..12, 14..20, 24..30]);
    }
}
