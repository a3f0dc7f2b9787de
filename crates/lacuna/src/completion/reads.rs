//! Reads that complete into a queue. A long one is divided into parts, and whoever finds that some have
//! ended asks for the next.
//!
//! They belong to whoever delivers, and are dealt with without the queue pair's lock: revoking the window of
//! a part waits for workers that are writing to it.

use super::{Completion, Outcome, Reservation};
use crate::clock::Clock;
use crate::error::{PostReadError, ReadError, ReadFailure};
use crate::reading::Parts;
use crate::shared::Shared;
use lacuna_proto::qp::{QueuePair, ReadId};

/// A read that has not ended.
pub(super) struct PendingRead {
    pub(super) entry: Reservation,
    pub(super) user_data: u64,
    pub(super) parts: Parts,
}

/// The reads of a queue pair that have not ended.
#[derive(Default)]
pub(super) struct Reads {
    open: Vec<PendingRead>,
    /// Parts that have ended; used again and again.
    ended: Vec<(ReadId, Result<u64, ReadFailure>)>,
    /// A read may go on although none of its parts has ended.
    is_waiting: bool,
}

impl Reads {
    pub(super) fn add(&mut self, read: PendingRead) {
        self.is_waiting |= read.parts.are_done();
        self.open.push(read);
    }

    /// Collects what has ended, under the queue pair's lock.
    pub(super) fn collect(&mut self, qp: &mut QueuePair) {
        while let Some(ended) = qp.poll_ended_read() {
            self.ended.push(ended);
        }
    }

    /// Goes on with what has ended, without the lock.
    pub(super) fn go_on(
        &mut self,
        shared: &Shared,
        clock: Clock,
        into: &mut Vec<(Reservation, Completion, bool)>,
    ) {
        if self.ended.is_empty() && !self.is_waiting {
            return;
        }
        let mut finish = |read: PendingRead, result: Result<u64, ReadError>| {
            let PendingRead { entry, user_data, mut parts } = read;
            parts.release(shared);
            let (queue_pair, has_failed) = (shared.number(), result.is_err());
            let outcome = Outcome::Read(result);
            let completion = Completion { user_data, queue_pair, is_silent: false, outcome };
            into.push((entry, completion, has_failed));
        };
        for (id, result) in self.ended.drain(..) {
            // That of a read which has failed is known no more.
            let found = self.open.iter_mut().enumerate().find_map(|(index, read)| {
                read.parts.on_ended(id, result.unwrap_or(0)).map(|_| index)
            });
            if let (Some(index), Err(failure)) = (found, result) {
                finish(self.open.remove(index), Err(failure.into()));
            }
        }
        self.is_waiting = false;
        let mut index = 0;
        while let Some(read) = self.open.get_mut(index) {
            match read.parts.ask(shared, clock, true) {
                Ok(()) if read.parts.are_done() => {
                    let read = self.open.remove(index);
                    let bytes = read.parts.placed_bytes();
                    finish(read, Ok(bytes));
                }
                Ok(()) => index += 1,
                // Others have taken all places since.
                Err(ReadError::Post(PostReadError::Busy { .. })) => {
                    self.is_waiting = true;
                    index += 1;
                }
                Err(error) => finish(self.open.remove(index), Err(error)),
            }
        }
    }
}
