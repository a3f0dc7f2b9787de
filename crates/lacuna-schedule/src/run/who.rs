//! Whose contributions are in which elements: sets of ranks over ranges.

use std::ops::Range;

/// A set of ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash)]
pub struct RankSet(Vec<u64>);

impl RankSet {
    /// All of so many.
    #[must_use]
    pub fn all(ranks: usize) -> Self {
        (0..ranks).collect()
    }

    /// Adds a rank.
    pub fn insert(&mut self, rank: usize) {
        if self.0.len() <= rank / 64 {
            self.0.resize(rank / 64 + 1, 0);
        }
        self.0[rank / 64] |= 1 << (rank % 64);
    }

    /// Whether it has a rank.
    #[must_use]
    pub fn contains(&self, rank: usize) -> bool {
        self.0.get(rank / 64).is_some_and(|word| word >> (rank % 64) & 1 == 1)
    }

    /// How many it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its ranks, in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 64).filter(|rank| self.contains(*rank))
    }

    /// Those of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let (longer, shorter) =
            if self.0.len() < other.0.len() { (other, self) } else { (self, other) };
        let mut union = longer.clone();
        union.0.iter_mut().zip(&shorter.0).for_each(|(word, other)| *word |= other);
        union
    }

    /// Those of this one that another has not.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.0.iter_mut().zip(&other.0).for_each(|(word, other)| *word &= !other);
        rest.trim();
        rest
    }

    pub(super) fn words(&self) -> &[u64] {
        &self.0
    }

    pub(super) fn from_words(words: Vec<u64>) -> Self {
        let mut set = Self(words);
        set.trim();
        set
    }

    /// Equal sets have equal words.
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

impl FromIterator<usize> for RankSet {
    fn from_iter<I: IntoIterator<Item = usize>>(ranks: I) -> Self {
        let mut set = Self::default();
        ranks.into_iter().for_each(|rank| set.insert(rank));
        set
    }
}

/// Whose contributions an element has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Who {
    pub(super) ranks: RankSet,
    /// Some hop has not said what it had lost.
    pub(super) is_uncertain: bool,
}

/// The same for ranges of elements; what was never set has nobody's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct WhoMap(Vec<(Range<usize>, Who)>);

impl WhoMap {
    /// Sets a range.
    pub(super) fn set(&mut self, range: Range<usize>, who: Who) {
        if range.is_empty() {
            return;
        }
        let from = self.0.partition_point(|(other, _)| other.end <= range.start);
        let to = self.0.partition_point(|(other, _)| other.start < range.end);
        let mut kept = Vec::new();
        if let Some((first, who)) = self.0[from..to].first().filter(|(r, _)| r.start < range.start)
        {
            kept.push((first.start..range.start, who.clone()));
        }
        let end = range.end;
        kept.push((range, who));
        if let Some((last, who)) = self.0[from..to].last().filter(|(r, _)| r.end > end) {
            kept.push((end..last.end, who.clone()));
        }
        self.0.splice(from..to, kept);
    }

    /// A range, in pieces of the same contributions; neighbours differ.
    pub(super) fn get(&self, range: Range<usize>) -> Vec<(Range<usize>, Who)> {
        let mut pieces: Vec<(Range<usize>, Who)> = Vec::new();
        let mut push = |range: Range<usize>, who: &Who| match pieces.last_mut() {
            _ if range.is_empty() => {}
            Some((last, same)) if same == who => last.end = range.end,
            _ => pieces.push((range, who.clone())),
        };
        let from = self.0.partition_point(|(other, _)| other.end <= range.start);
        let mut next = range.start;
        for (other, who) in self.0[from..].iter().take_while(|(other, _)| other.start < range.end) {
            push(next..other.start.max(next), &Who::default());
            let end = other.end.min(range.end);
            push(other.start.max(next)..end, who);
            next = end;
        }
        push(next..range.end, &Who::default());
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_link::SplitMix64;

    #[test]
    fn a_map_holds_what_was_set_last() {
        let mut random = SplitMix64::new(2);
        for _ in 0..200 {
            let (mut map, mut oracle) = (WhoMap::default(), vec![Who::default(); 40]);
            for _ in 0..20 {
                let start = random.below(40) as usize;
                let range = start..start + random.below(41 - start as u64) as usize;
                let ranks = [random.below(3) as usize].into_iter().collect();
                let who = Who { ranks, is_uncertain: random.chance(100_000) };
                map.set(range.clone(), who.clone());
                oracle[range].fill(who);
                let start = random.below(40) as usize;
                let range = start..start + random.below(41 - start as u64) as usize;
                let pieces = map.get(range.clone());
                let flat: Vec<Who> =
                    pieces.iter().flat_map(|(range, who)| vec![who.clone(); range.len()]).collect();
                assert_eq!(flat, oracle[range]);
                assert!(pieces.windows(2).all(|pair| pair[0].1 != pair[1].1));
            }
        }
    }

    #[test]
    fn sets_of_many_ranks() {
        let odd: RankSet = (0..200).filter(|rank| rank % 2 == 1).collect();
        let all = RankSet::all(200);
        assert_eq!(odd.len(), 100);
        assert_eq!(all.without(&odd).union(&odd), all);
        assert_eq!(all.without(&all), RankSet::default());
        assert!(all.without(&all).is_empty() && odd.contains(199) && !odd.contains(200));
        assert_eq!(odd.iter().take(2).collect::<Vec<_>>(), [1, 3]);
    }
}
