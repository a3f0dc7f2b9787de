//! A set of numbers as disjoint ranges: what was offered of a send, or has come behind a gap.

use std::ops::Range;

/// Disjoint ranges in order. Neighbours are one range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranges<T = u64>(Vec<Range<T>>);

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Copy + Ord> Ranges<T> {
    /// Adds a range; an empty one changes nothing.
    pub fn add(&mut self, added: Range<T>) {
        if added.is_empty() {
            return;
        }
        // The ranges that overlap or touch the added one become one with it.
        let from = self.0.partition_point(|range| range.end < added.start);
        let to = self.0.partition_point(|range| range.start <= added.end);
        let (mut start, mut end) = (added.start, added.end);
        if let [first, .., last] | [first @ last] = &self.0[from..to] {
            (start, end) = (start.min(first.start), end.max(last.end));
        }
        self.0.splice(from..to, std::iter::once(start..end));
    }

    /// Whether all of a range was added.
    pub fn covers(&self, range: &Range<T>) -> bool {
        let at = self.0.partition_point(|other| other.end < range.end);
        range.is_empty() || self.0.get(at).is_some_and(|other| other.start <= range.start)
    }

    /// Removes all numbers below one.
    pub fn remove_below(&mut self, number: T) {
        let gone = self.0.partition_point(|range| range.end <= number);
        self.0.drain(..gone);
        if let Some(first) = self.0.first_mut() {
            first.start = first.start.max(number);
        }
    }

    /// Removes a range.
    pub fn remove(&mut self, gone: &Range<T>) {
        if gone.is_empty() {
            return;
        }
        let from = self.0.partition_point(|range| range.end <= gone.start);
        let to = self.0.partition_point(|range| range.start < gone.end);
        if let [first, .., last] | [first @ last] = &self.0[from..to] {
            let rest = [first.start..gone.start, gone.end..last.end];
            let rest = rest.into_iter().filter(|range| range.start < range.end);
            self.0.splice(from..to, rest);
        }
    }

    /// The number behind the last range.
    pub fn last_end(&self) -> Option<T> {
        self.0.last().map(|range| range.end)
    }

    /// All ranges, in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Range<T>> {
        self.0.iter()
    }

    /// What is missing of a range, in order.
    pub fn gaps(&self, range: &Range<T>) -> impl Iterator<Item = Range<T>> + use<T> {
        let mut next = range.start;
        let mut gaps = Vec::new();
        for there in self.within(range) {
            if next < there.start {
                gaps.push(next..there.start);
            }
            next = there.end;
        }
        if next < range.end {
            gaps.push(next..range.end);
        }
        gaps.into_iter()
    }

    /// Those that overlap a range.
    pub fn within(&self, range: &Range<T>) -> impl Iterator<Item = &Range<T>> {
        let from = self.0.partition_point(|other| other.end <= range.start);
        let end = range.end;
        self.0[from..].iter().take_while(move |other| other.start < end)
    }
}

impl<T: Copy + Ord> FromIterator<Range<T>> for Ranges<T> {
    fn from_iter<I: IntoIterator<Item = Range<T>>>(list: I) -> Self {
        let mut ranges = Self::default();
        list.into_iter().for_each(|range| ranges.add(range));
        ranges
    }
}

impl<T> IntoIterator for Ranges<T> {
    type Item = Range<T>;
    type IntoIter = std::vec::IntoIter<Range<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_the_set_of_what_was_added(
            added in proptest::collection::vec((0..60u64, 0..12u64), 0..30),
            asked in (0..60u64, 0..12u64),
        ) {
            let list: Vec<_> = added.iter().map(|(start, len)| *start..start + len).collect();
            let set: Ranges = list.iter().cloned().collect();
            let has = |at: u64| list.iter().any(|range| range.contains(&at));
            let in_set = |at: u64| set.0.iter().any(|range| range.contains(&at));
            prop_assert!((0..80).all(|at| has(at) == in_set(at)));
            prop_assert!(set.0.windows(2).all(|pair| pair[0].end < pair[1].start));
            let asked = asked.0..asked.0 + asked.1;
            prop_assert_eq!(set.covers(&asked), asked.clone().all(has));
            let overlaps = set.0.iter().filter(|r| r.start < asked.end && asked.start < r.end);
            let within: Vec<_> = set.within(&asked).collect();
            prop_assert!(asked.is_empty() || within == overlaps.collect::<Vec<_>>());
            let missing: Vec<u64> = set.gaps(&asked).flatten().collect();
            prop_assert!(missing.into_iter().eq(asked.clone().filter(|at| !has(*at))));
            let mut above = set.clone();
            above.remove_below(asked.start);
            let kept = (0..80).filter(|at| above.iter().any(|range| range.contains(at)));
            prop_assert!(kept.eq((asked.start..80).filter(|at| has(*at))));
            let mut without = set.clone();
            without.remove(&asked);
            let kept = (0..80).filter(|at| without.iter().any(|range| range.contains(at)));
            prop_assert!(kept.eq((0..80).filter(|at| has(*at) && !asked.contains(at))));
            prop_assert_eq!(set.last_end(), (0..80).rev().find(|at| has(*at)).map(|at| at + 1));
        }
    }
}
