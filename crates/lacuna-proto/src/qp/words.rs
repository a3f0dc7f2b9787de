//! The sender's word that everything of its messages was sent, for a peer whose receives end with gaps
//! (`wire/frame/sent.rs`).
//!
//! The word is sent on a channel that has nothing left to send: while more comes, later packets say the
//! same. It is sent three times, a millisecond apart, because it may be lost like any packet. As long as
//! receives of these messages are open then, for all that the peer has said, it is sent again and again,
//! less and less often, together with a flush, which asks what has become of them: a receive without a
//! deadline has nothing else that ends it. A word
//! says no more than the channel has handed to the datapath, and nothing about a stream that may still
//! grow.

use super::QueuePair;
use lacuna_path::small_vec::SmallVec;
use lacuna_wire::{Sent, psn};

/// How often a word is sent, whatever the peer says.
const COPIES: u32 = 3;
/// Time between them.
const INTERVAL_NS: u64 = 1_000_000;
/// The same of those that ask: at first, if the round trip is not longer, and at most. A judgement.
const ASK_INTERVAL_NS_MIN: u64 = 10_000_000;
const ASK_INTERVAL_NS_MAX: u64 = 200_000_000;

/// The word on one channel.
#[derive(Debug, Clone, Copy, Default)]
struct Word {
    /// Everything of the messages before this one was sent.
    before: u64,
    copies_left: u32,
    /// No word is sent earlier.
    next_ns: u64,
    /// Until the next word that asks; 0 once the peer has ended all receives, or more is sent.
    ask_interval_ns: u64,
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
        (word.copies_left > 0 || word.ask_interval_ns > 0).then_some(word.next_ns)
    }
}

impl QueuePair {
    /// Takes in what was sent since the last call.
    pub(super) fn update_words(&mut self) {
        let srtt_ns = self.path.rtt().smoothed_ns().unwrap_or(0);
        let ask_interval_ns = (2 * srtt_ns).clamp(ASK_INTERVAL_NS_MIN, ASK_INTERVAL_NS_MAX);
        let Some(words) = &mut self.words else { return };
        for (channel, word) in words.channels.iter_mut().enumerate() {
            let before = self.send.sent_before(channel);
            if before > word.before {
                let next_ns = word.next_ns;
                *word = Word { before, copies_left: COPIES, next_ns, ask_interval_ns };
            }
        }
    }

    /// The word that is due on a channel, and whether it asks.
    pub(super) fn poll_word(&mut self, now_ns: u64, channel: u8) -> Option<(Sent, bool)> {
        let index = usize::from(channel);
        let is_due = self.words.as_ref()?.due_ns(index).is_some_and(|due_ns| due_ns <= now_ns);
        if !is_due {
            return None;
        }
        // Meanwhile the channel may have got more to send. Its last packets will bring a new word.
        let before = self.send.sent_before(index);
        let finished_before = self.send.peer_finished_before();
        let word = self.words.as_mut()?.channels.get_mut(index)?;
        let asks = word.copies_left == 0;
        if before < word.before || asks && finished_before >= word.before {
            (word.copies_left, word.ask_interval_ns) = (0, 0);
            return None;
        }
        word.next_ns = now_ns + INTERVAL_NS;
        if !self.path.has_handed_all(index) {
            return None;
        }
        if asks {
            word.ask_interval_ns = (2 * word.ask_interval_ns).min(ASK_INTERVAL_NS_MAX);
        } else {
            word.copies_left -= 1;
        }
        if word.copies_left == 0 {
            word.next_ns = now_ns + word.ask_interval_ns;
        }
        let next_psn = psn::wrap(self.path.next_psn(index));
        Some((Sent { channel, next_psn, before: word.before }, asks))
    }
}
