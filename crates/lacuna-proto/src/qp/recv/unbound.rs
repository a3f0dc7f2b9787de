//! Receives of a one-sided queue pair: the peer writes to regions by key and address, and no application
//! posts anything.
//!
//! The queue pair keeps [`OPEN_MAX`] unbound receives open (`lacuna_place::region`). The first packet of a
//! message binds one to its place; the mode repairs it or ends it like any other receive. When one is
//! over, its slot is closed and the next is opened, here, under the queue pair's lock.
//!
//! The application hears of a message only if it carries an immediate. It finds those in a queue. While
//! that is full no receive is opened, so a peer that writes faster than the application looks waits; its
//! message was never refused after a byte was placed.

use super::ending::Posting;
use super::{Incoming, RecvSide, State};
use lacuna_place::reason::Reason;
use lacuna_place::receive::Receive;
use lacuna_place::region::Bound;
use std::collections::VecDeque;
use std::sync::Arc;

/// Receives that are open at once: the messages that a peer can have in flight. Each takes some 300 bytes
/// while nothing has arrived. A judgement.
pub(crate) const OPEN_MAX: u64 = 256;
/// Most messages that wait for the application.
const WRITTEN_MAX: usize = 1024;

/// A message that the peer has written to a region, and that carried an immediate.
#[derive(Debug, Clone)]
pub struct Written {
    /// Its record. Where it lies is in [`Receive::bound`], which is never `None` here.
    pub receive: Arc<Receive>,
    /// Why it is over.
    pub reason: Reason,
}

/// What a one-sided queue pair has besides.
#[derive(Debug, Default)]
pub(super) struct Unbound {
    /// Receives that are over and were not closed.
    ended: Vec<u64>,
    /// Messages with an immediate that the application has not taken.
    written: VecDeque<Written>,
}

impl Unbound {
    /// The receive of message `number` is over.
    pub(super) fn on_over(&mut self, number: u64) {
        self.ended.push(number);
    }
}

impl RecvSide {
    /// Opens receives for writes to regions; the application posts none.
    pub(crate) fn become_one_sided(&mut self) {
        self.unbound = Some(Unbound::default());
        self.refill();
    }

    pub(crate) fn is_one_sided(&self) -> bool {
        self.unbound.is_some()
    }

    /// A packet of a message named a key that does not let it be placed: nothing of it can ever be whole.
    pub(crate) fn refuse(&mut self, number: u64) {
        self.end(number, Reason::Failed);
    }

    /// Whether a receive is over that [`RecvSide::reap`] has to look at.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.unbound.as_ref().is_some_and(|unbound| !unbound.ended.is_empty())
    }

    /// Closes the receives that are over and opens others. `is_answer` says whether a message is the answer
    /// to a read, of which the application is told otherwise. Returns whether the application has
    /// something to take.
    pub(crate) fn reap(&mut self, mut is_answer: impl FnMut(&Receive, Reason) -> bool) -> bool {
        let Some(unbound) = &mut self.unbound else { return false };
        let ended = std::mem::take(&mut unbound.ended);
        let mut has_written = false;
        for number in ended {
            self.table.close(number);
            let Some(incoming) = self.entry_mut(number) else { continue };
            incoming.closed = true;
            let receive = incoming.receive.take();
            let reason = incoming.posting.reason().unwrap_or(Reason::Failed);
            if receive.as_ref().is_some_and(|receive| is_answer(receive, reason)) {
                continue;
            }
            let told = receive
                .filter(|receive| receive.bound().is_some_and(|b| b.record().says_immediate()));
            if let (Some(receive), Some(unbound)) = (told, &mut self.unbound) {
                unbound.written.push_back(Written { receive, reason });
                has_written = true;
            }
        }
        self.advance();
        self.refill();
        has_written
    }

    /// Whether something of a message to this key has come and is not over.
    pub(crate) fn has_begun(&self, key: u32) -> bool {
        let bound = |incoming: &Incoming| incoming.receive.as_ref()?.bound().map(Bound::key);
        self.incoming.iter().any(|incoming| bound(incoming) == Some(key))
    }

    /// The message that [`RecvSide::poll_written`] returns next.
    pub(crate) fn peek_written(&self) -> Option<&Written> {
        self.unbound.as_ref()?.written.front()
    }

    /// The next message that carried an immediate.
    pub(crate) fn poll_written(&mut self) -> Option<Written> {
        let written = self.unbound.as_mut()?.written.pop_front()?;
        self.refill();
        Some(written)
    }

    fn refill(&mut self) {
        let most = OPEN_MAX.min(self.geometry.slots().into());
        while self.failure.is_none() && (self.incoming.len() as u64) < most {
            let waiting = self.unbound.as_ref().map_or(0, |unbound| unbound.written.len());
            if waiting + self.incoming.len() >= WRITTEN_MAX {
                return;
            }
            let Some(receive) = self.table.post_unbound(self.posted) else { return };
            self.add_to_runs(self.geometry.max_message_bytes(), false);
            self.incoming.push_back(Incoming {
                receive: Some(receive),
                machine: self.mode.receiver(),
                index: 0,
                ordinal: self.receives,
                posting: Posting::new(1, false),
                state: State::Open,
                closed: false,
                cancelled: None,
            });
            self.posted += 1;
            self.receives += 1;
            self.open += 1;
        }
    }
}
