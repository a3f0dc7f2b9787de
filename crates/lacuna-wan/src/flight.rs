//! Parts of bundles in flight, in order of their release times; parts of equal time come out in order of
//! insertion.
//!
//! The heap orders small keys. A bundle is in a slot, shared by its parts, until the last of them is
//! written.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::arena::Place;
use crate::bundle::Bundle;
use crate::way::Part;

/// A bundle with parts in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) place: Place,
    pub(crate) bundle: Bundle,
    parts: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Flight {
    heap: BinaryHeap<Entry>,
    slots: Vec<Held>,
    free: Vec<u32>,
    /// Breaks ties between equal times.
    inserted: u64,
}

/// Ordered so that the greatest element is due next.
#[derive(Debug)]
struct Entry {
    key: Reverse<(u64, u64)>,
    slot: u32,
    /// Index of its way.
    way: u32,
    part: Part,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Entry {}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Flight {
    /// Inserts the parts of a bundle, at least one, each with its way.
    pub(crate) fn insert(
        &mut self,
        place: Place,
        bundle: Bundle,
        parts: impl ExactSizeIterator<Item = (usize, Part)>,
    ) {
        debug_assert!(parts.len() > 0, "a bundle without parts would never be released");
        let held = Held { place, bundle, parts: parts.len() as u32 };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = held;
                slot
            }
            None => {
                self.slots.push(held);
                self.slots.len() as u32 - 1
            }
        };
        for (way, part) in parts {
            let key = Reverse((part.release_ns, self.inserted));
            self.heap.push(Entry { key, slot, way: way as u32, part });
            self.inserted += 1;
        }
    }

    /// When the next part is due.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.part.release_ns)
    }

    /// Takes the next part that is due at `now_ns`, with its way. The flag tells whether it is the last part
    /// of its bundle, whose frame the caller releases after writing it.
    pub(crate) fn pop_due(&mut self, now_ns: u64) -> Option<(Held, (usize, Part), bool)> {
        if self.next_ns()? > now_ns {
            return None;
        }
        let entry = self.heap.pop()?;
        let held = &mut self.slots[entry.slot as usize];
        held.parts -= 1;
        let is_last = held.parts == 0;
        if is_last {
            self.free.push(entry.slot);
        }
        Some((*held, (entry.way as usize, entry.part), is_last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::bundle::tests::{TCP, frame};

    fn part(release_ns: u64, start: u32) -> Part {
        Part { release_ns, start, end: start + 1, is_marked: false, flipped_bit: None }
    }

    #[test]
    fn parts_come_out_by_time_and_then_by_age_and_the_last_is_told() {
        let bundle = Bundle::parse(&frame(TCP)).unwrap();
        let mut arena = Arena::new(1 << 20);
        let mut flight = Flight::default();
        for (way, times) in [[30, 10, 20], [10, 40, 5], [30, 10, 1]].into_iter().enumerate() {
            let _ = arena.room();
            let parts: Vec<_> = (0..).zip(times).map(|(i, t)| (way, part(t, i))).collect();
            flight.insert(arena.keep(100), bundle, parts.into_iter());
        }
        assert_eq!(flight.next_ns(), Some(1));
        assert!(flight.pop_due(0).is_none());
        let mut out = vec![];
        while let Some((_, (way, part), is_last)) = flight.pop_due(30) {
            out.push((way, part.start, is_last));
        }
        let expected = [
            (2, 2, false),
            (1, 2, false),
            (0, 1, false),
            (1, 0, false),
            (2, 1, false),
            (0, 2, false),
            (0, 0, true),
            (2, 0, true),
        ];
        assert_eq!(out, expected);
        assert_eq!(
            flight.pop_due(40).map(|(_, (way, _), is_last)| (way, is_last)),
            Some((1, true))
        );
        assert_eq!(flight.next_ns(), None);
        assert_eq!(flight.free.len(), flight.slots.len());
    }
}
