//! A rank's side of a network: what its runner posts and offers, and what it is told.

use super::{Config, Happening, Network, Receive, Send};
use crate::run::{Event, Fabric, FabricError, Posting, Token};
use lacuna_path::ranges::Ranges;
use std::ops::Range;

/// A rank's side of a network.
pub struct Endpoint<'a> {
    pub(super) network: &'a mut Network,
    pub(super) rank: usize,
}

impl Fabric for Endpoint<'_> {
    fn now_ns(&self) -> u64 {
        self.network.now_ns
    }

    fn chunk_bytes(&self) -> usize {
        self.network.config.packet_bytes * self.network.config.chunk_packets
    }

    fn post_receive(&mut self, posting: &Posting) -> Result<(), FabricError> {
        let pair = (posting.peer, self.rank);
        let receive = Receive {
            token: posting.token,
            buffer: vec![0xee; posting.len_bytes],
            here: Ranges::default(),
            told: Ranges::default(),
            is_over: false,
        };
        let state = self.network.pairs.entry(pair).or_default();
        let message = state.receives.len();
        state.receives.push(receive);
        self.network.nodes[self.rank].receives.insert(posting.token, (pair, message));
        let Config { delay_ns, is_warm, .. } = &self.network.config;
        let known_ns = if *is_warm { 0 } else { delay_ns(self.rank, posting.peer) };
        self.network.at(self.network.now_ns + known_ns, Happening::Credit { pair });
        if let Some(deadline_ns) = posting.deadline_ns {
            self.network.at(deadline_ns, Happening::Deadline { pair, message });
        }
        Ok(())
    }

    fn post_send(&mut self, posting: &Posting) -> Result<(), FabricError> {
        let pair = (self.rank, posting.peer);
        let (token, len) = (posting.token, posting.len_bytes);
        let state = self.network.pairs.entry(pair).or_default();
        state.sends.push(Send { token, len, offered: 0, left: 0, waiting: Vec::new() });
        let message = state.sends.len() - 1;
        self.network.nodes[self.rank].sends.insert(token, (pair, message));
        Ok(())
    }

    fn offer(&mut self, token: Token, offset: usize, bytes: &[u8]) -> Result<(), FabricError> {
        let Some((pair, message)) = self.network.nodes[self.rank].sends.get(&token).copied() else {
            return Err(FabricError::Broken { cause: format!("{token:?} was not posted") });
        };
        let state = self.network.pairs.entry(pair).or_default();
        let send = &mut state.sends[message];
        send.offered += bytes.len();
        assert!(send.offered <= send.len, "more was offered than the message has");
        send.waiting.push((offset, bytes.to_vec()));
        self.network.flush(pair, message);
        Ok(())
    }

    fn view(&self, token: Token, bytes: Range<usize>) -> &[u8] {
        let (pair, message) = self.network.nodes[self.rank].receives[&token];
        let receive = &self.network.pairs[&pair].receives[message];
        assert!(receive.here.covers(&bytes), "{bytes:?} has not come");
        &receive.buffer[bytes]
    }

    fn release(&mut self, token: Token) {
        if let Some((pair, message)) = self.network.nodes[self.rank].receives.remove(&token)
            && let Some(state) = self.network.pairs.get_mut(&pair)
        {
            let receive = &mut state.receives[message];
            receive.is_over = true;
            receive.buffer = Vec::new();
        }
    }

    fn cancel(&mut self, token: Token) {
        if let Some((pair, message)) = self.network.nodes[self.rank].sends.remove(&token)
            && let Some(state) = self.network.pairs.get_mut(&pair)
        {
            state.sends[message].waiting.clear();
        }
    }

    fn tell(&mut self, peer: usize, note: &[u8]) -> Result<(), FabricError> {
        if !self.network.nodes[self.rank].is_dead {
            let (from, to, note) = (self.rank, peer, note.to_vec());
            let Config { delay_ns, has_unruly_notes, .. } = &self.network.config;
            let delay_ns = delay_ns(from, to);
            let time_ns = self.network.now_ns + delay_ns;
            if *has_unruly_notes {
                let is_slow = note.iter().fold(0u8, |sum, byte| sum ^ byte).count_ones() % 2 == 1;
                let first_ns = time_ns + if is_slow { delay_ns } else { 0 };
                self.network.at(first_ns, Happening::Note { from, to, note: note.clone() });
                self.network.at(time_ns + delay_ns / 2, Happening::Note { from, to, note });
            } else {
                self.network.at(time_ns, Happening::Note { from, to, note });
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Option<Event> {
        self.network.nodes[self.rank].events.pop_front()
    }
}
