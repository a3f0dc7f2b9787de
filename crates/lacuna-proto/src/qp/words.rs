//! The sender's word that everything of its messages was sent, for a peer whose receives end with gaps
//! (`wire/frame/sent.rs`).
//!
//! The word is sent on a channel that has nothing left to send: while more comes, later packets say the
//! same. It is sent three times, a millisecond apart, because it may be lost like any packet. A word
//! says no more than the channel has handed to the datapath, and nothing about a stream that may still
//! grow.

use super::QueuePair;
use lacuna_path::small_vec::SmallVec;
use lacuna_wire::{Sent, psn};

/// How often a word is sent.
const COPIES: u32 = 3;
/// Time between words on a channel.
const INTERVAL_NS: u64 = 1_000_000;

/// The word on one channel.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    /// Everything of the messages before this one was sent.
    before: u64,
    copies_left: u32,
    /// No word is sent earlier.
    next_ns: u64,
}

/// The words on all channels.
#[derive(Debug)]
pub(super) struct Words {
    channels: SmallVec<Word>,
}

impl Words {
    pub(super) fn new(channels: u8) -> Self {
        Self { channels: (0..channels).map(|_| Word::default()).collect() }
    }

    /// When the next word on a channel is due.
    pub(super) fn due_ns(&self, channel: usize) -> Option<u64> {
        let word = self.channels.get(channel)?;
        (word.copies_left > 0).then_some(word.next_ns)
    }
}

impl QueuePair {
    /// Takes in what was sent since the last call.
    pub(super) fn update_words(&mut self) {
        let Some(words) = &mut self.words else { return };
        for (channel, word) in words.channels.iter_mut().enumerate() {
            let before = self.send.sent_before(channel);
            if before > word.before {
                (word.before, word.copies_left) = (before, COPIES);
            }
        }
    }

    /// The word that is due on a channel.
    pub(super) fn poll_word(&mut self, now_ns: u64, channel: u8) -> Option<Sent> {
        let index = usize::from(channel);
        let is_due = self.words.as_ref()?.due_ns(index).is_some_and(|due_ns| due_ns <= now_ns);
        if !is_due {
            return None;
        }
        // Meanwhile the channel may have got more to send. Its last packets will bring a new word.
        let before = self.send.sent_before(index);
        let word = self.words.as_mut()?.channels.get_mut(index)?;
        word.next_ns = now_ns + INTERVAL_NS;
        if before < word.before {
            word.copies_left = 0;
            return None;
        }
        if !self.path.has_handed_all(index) {
            return None;
        }
        word.copies_left -= 1;
        let next_psn = psn::wrap(self.path.next_psn(index));
        Some(Sent { channel, next_psn, before: word.before })
    }
}
