//! What each rank has published last, passed on with the notes of operations that end in time: how the
//! proposals for the next budget travel ([`crate::budget`]) without messages of their own rounds.
//!
//! A note to a peer is accompanied by what the peer is not known to have. So in a ring all ranks know of all
//! after an operation, and in an all-to-all after a step.

use super::fabric::NOTE_BYTES_MAX;
use super::note::Note;
use std::collections::BTreeMap;

/// Longest publication of a rank.
pub const PUBLISHED_BYTES_MAX: usize = 64;

/// Publications of one note, whose heads are of 13 bytes; the rest goes with the next.
const NEWS_MAX: usize = (NOTE_BYTES_MAX - 16) / (PUBLISHED_BYTES_MAX + 13);

/// What a rank has published: a stamp that increases, and bytes.
pub(super) type Published = (u64, Vec<u8>);

#[derive(Debug)]
pub(super) struct Board {
    entries: Vec<Option<Published>>,
    /// By peer that notes are exchanged with: the stamps that it knows, or that are on their way to it.
    known: BTreeMap<usize, Vec<Option<u64>>>,
}

impl Board {
    pub(super) fn new(ranks: usize) -> Self {
        Self { entries: vec![None; ranks], known: BTreeMap::new() }
    }

    pub(super) fn get(&self, rank: usize) -> Option<(u64, &[u8])> {
        let (stamp, bytes) = self.entries.get(rank)?.as_ref()?;
        Some((*stamp, bytes))
    }

    /// Keeps what is newer than what is here.
    pub(super) fn put(&mut self, rank: usize, stamp: u64, bytes: Vec<u8>) {
        if let Some(entry) = self.entries.get_mut(rank)
            && entry.as_ref().is_none_or(|(before, _)| *before < stamp)
        {
            *entry = Some((stamp, bytes));
        }
    }

    /// A peer has told of this.
    pub(super) fn learn(&mut self, peer: usize, rank: usize, stamp: u64, bytes: Vec<u8>) {
        let ranks = self.entries.len();
        if peer < ranks && rank < ranks {
            let known = &mut self.known.entry(peer).or_insert_with(|| vec![None; ranks])[rank];
            *known = (*known).max(Some(stamp));
        }
        self.put(rank, stamp, bytes);
    }

    /// What a peer is not known to know, which it will.
    pub(super) fn news_for(&mut self, peer: usize) -> Option<Note> {
        let ranks = self.entries.len();
        let known = self.known.entry(peer).or_insert_with(|| vec![None; ranks]);
        let mut news = Vec::new();
        for (rank, (entry, known)) in self.entries.iter().zip(known).enumerate() {
            if let Some((stamp, bytes)) = entry
                && rank != peer
                && news.len() < NEWS_MAX
                && known.is_none_or(|known| known < *stamp)
            {
                *known = Some(*stamp);
                news.push((rank, (*stamp, bytes.clone())));
            }
        }
        (!news.is_empty()).then_some(Note::Board(news))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_are_told_once_and_older_ones_are_ignored() {
        let mut board = Board::new(3);
        assert_eq!(board.news_for(1), None);
        board.put(0, 5, vec![1]);
        assert_eq!(board.news_for(1), Some(Note::Board(vec![(0, (5, vec![1]))])));
        assert_eq!(board.news_for(1), None);
        board.learn(1, 2, 7, vec![2]);
        assert_eq!(board.news_for(1), None, "it is from there");
        board.learn(1, 2, 6, vec![3]);
        assert_eq!(board.get(2), Some((7, &[2][..])));
        // Nobody is told what it has published itself.
        assert_eq!(board.news_for(2), Some(Note::Board(vec![(0, (5, vec![1]))])));
        board.learn(9, 9, 1, vec![]);
        assert_eq!(board.get(9), None);
    }

    #[test]
    fn news_of_many_ranks_take_several_notes() {
        let mut board = Board::new(2000);
        (0..2000).for_each(|rank| board.put(rank, 1, vec![0; PUBLISHED_BYTES_MAX]));
        let mut told = 0;
        while let Some(note) = board.news_for(5) {
            assert!(note.write(0).len() <= NOTE_BYTES_MAX);
            let Note::Board(news) = note else { unreachable!() };
            told += news.len();
        }
        assert_eq!(told, 1999);
    }
}
