//! Messages that are carried whole, each in a time that is said from outside.
//!
//! Between two ranks messages go one after the other; the carrier says when a message is there, and when the next
//! one may begin. A message begins when all of it was offered and its receive is known to the sender.

use super::{Happening, Network};
use crate::run::Event;

/// When a message that begins now is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carried {
    /// From now until the receiver has all of it.
    pub received_ns: u64,
    /// From now until the pair's next message may begin: when its bytes have left, or when it is acknowledged.
    pub next_ns: u64,
}

/// Says of a message from one rank to another, of so many bytes, when it is there.
pub type Carrier = Box<dyn FnMut(usize, usize, usize) -> Carried>;

impl Network {
    /// Begins a pair's next message, if it may.
    pub(super) fn carry_whole(&mut self, pair: (usize, usize)) {
        if self.nodes[pair.0].is_dead {
            return;
        }
        let state = self.pairs.entry(pair).or_default();
        let message = state.next_whole;
        if state.is_carrying || message >= state.credit {
            return;
        }
        let sends = &self.nodes[pair.0].sends;
        // One that was given up never begins, and what is behind it waits: its operation has failed.
        let is_ready =
            |send: &&mut super::Send| send.offered == send.len && sends.contains_key(&send.token);
        let Some(send) = state.sends.get_mut(message).filter(is_ready) else { return };
        let mut data = vec![0; send.len];
        for (offset, part) in std::mem::take(&mut send.waiting) {
            data[offset..offset + part.len()].copy_from_slice(&part);
        }
        (state.next_whole, state.is_carrying) = (message + 1, true);
        let Some(carrier) = &mut self.config.carrier else { return };
        let Carried { received_ns, next_ns } = carrier(pair.0, pair.1, data.len());
        let now_ns = self.now_ns;
        self.at(now_ns + received_ns, Happening::CameWhole { pair, message, data });
        self.at(now_ns + next_ns, Happening::Next { pair, message });
    }

    /// The next message of a pair may begin.
    pub(super) fn next_whole(&mut self, pair: (usize, usize), message: usize) {
        let state = self.pairs.entry(pair).or_default();
        state.is_carrying = false;
        if let Some(send) = state.sends.get(message) {
            let token = send.token;
            self.nodes[pair.0].events.push_back(Event::Sent { token, is_whole: true });
        }
        self.carry_whole(pair);
    }
}
