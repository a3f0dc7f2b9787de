//! Sends, and writes to a region of the server. Both have a handle that says when the server has all of a
//! message, or in a mode without repair has given it up.

use super::ClientArgs;
use super::pattern;
use super::protocol::Request;
use super::sending::{Operations, Tally};
use super::verb::Verb;
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::memory;
use lacuna::{Connection, Reason, SendBuffer, SendError, SendFailure, SendHandle, Target};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take to finish a message that was sent, in a mode without repair.
const FINISHED_WITHIN: Duration = Duration::from_secs(30);

/// A message on its way.
struct InFlight {
    handle: SendHandle,
    buffer: Arc<Vec<u8>>,
    /// Since when this end is done with it.
    sent: Option<Instant>,
}

/// Sends or writes in flight.
pub(super) struct Sends<'a> {
    args: &'a ClientArgs,
    measured: &'a Connection,
    /// Of writes: the key of the server's region, and its places.
    to: Option<(u32, Request)>,
    in_flight: VecDeque<InFlight>,
    spare: Vec<Arc<Vec<u8>>>,
    is_reliable: bool,
}

impl<'a> Sends<'a> {
    /// `to` is the key of the server's region, and its places, if it is written to.
    pub(super) fn new(
        args: &'a ClientArgs,
        measured: &'a Connection,
        to: Option<(u32, Request)>,
        buffers: Vec<Arc<Vec<u8>>>,
    ) -> Self {
        let is_reliable = args.mode.is_reliable();
        Self { args, measured, to, in_flight: VecDeque::new(), spare: buffers, is_reliable }
    }

    fn start(&self, number: u64, buffer: &Arc<Vec<u8>>) -> Result<SendHandle, Failure> {
        let data = SendBuffer::new(buffer.clone());
        let deadline = self.args.deadline.unwrap_or(Duration::MAX);
        let started = match self.to {
            None => self.measured.start_send_within(data, None, deadline),
            Some((key, request)) => {
                let to = Target { key, address: request.place(number) };
                let immediate = (self.args.verb == Verb::WriteImm).then_some(number as u32);
                self.measured.start_write_to_within(to, data, immediate, deadline)
            }
        };
        started.map_err(|error| Failure::Network(error.to_string()))
    }
}

impl Operations for Sends<'_> {
    fn post(&mut self, number: u64) -> Result<Instant, Failure> {
        let mut buffer = match self.spare.pop() {
            Some(buffer) => buffer,
            None => Arc::new(memory::zeroed(self.args.size as usize)?),
        };
        if self.args.validate {
            if Arc::get_mut(&mut buffer).is_none() {
                // A worker still holds the old buffer.
                buffer = Arc::new(memory::zeroed(self.args.size as usize)?);
            }
            let content = match self.to {
                None => number,
                Some((_, request)) => pattern::number_in_turn(number, request.inflight),
            };
            if let Some(bytes) = Arc::get_mut(&mut buffer) {
                pattern::fill(bytes, 0, content);
            }
        }
        let posted = Instant::now();
        let handle = self.start(number, &buffer)?;
        self.in_flight.push_back(InFlight { handle, buffer, sent: None });
        Ok(posted)
    }

    /// The oldest has ended when the server has all of it, or in a mode without repair has given it up, or
    /// when its time is over.
    fn wait_oldest(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        let Some(oldest) = self.in_flight.front_mut() else { return Ok(true) };
        let is_finished = oldest.handle.wait_finished(POLL_INTERVAL);
        let outcome = if is_finished && self.args.deadline.is_none() {
            Some(Ok(()))
        } else {
            oldest.handle.status().outcome
        };
        match outcome {
            None => return Ok(false),
            // Of a send, and of what is not repaired, the server knows how.
            Some(Ok(())) if is_finished && self.to.is_some() && self.is_reliable => {
                tally.count(Reason::Whole, 0);
            }
            Some(Ok(())) if is_finished => {}
            Some(Ok(())) => {
                // Sent: this end is done with it.
                if let Some(failure) = self.measured.failure() {
                    return Err(Failure::Network(failure.to_string()));
                }
                if oldest.sent.get_or_insert_with(Instant::now).elapsed() > FINISHED_WITHIN {
                    let text = "the server takes no more messages".to_owned();
                    return Err(Failure::Network(text));
                }
                return Ok(false);
            }
            Some(Err(SendFailure::Deadline { acked_bytes, len_bytes, .. })) => {
                if self.to.is_some() {
                    tally.count(Reason::Deadline, len_bytes.saturating_sub(acked_bytes));
                    tally.lost_bytes = tally.lost_bytes.filter(|_| self.is_reliable);
                }
            }
            // The receive is over, by its own deadline.
            Some(Err(SendFailure::ClosedByPeer)) if self.args.deadline.is_some() => {}
            Some(Err(failure)) => return Err(SendError::Failed(failure).into()),
        }
        if let Some(oldest) = self.in_flight.pop_front() {
            self.spare.push(oldest.buffer);
        }
        Ok(true)
    }

    fn are_awaited(&self) -> bool {
        self.to.is_some() || self.args.deadline.is_some()
    }

    /// Newest first: a message that has not begun leaves its receive to the next one, and the server would
    /// find the wrong content there.
    fn give_up(&mut self) {
        for message in self.in_flight.drain(..).rev() {
            message.handle.cancel();
        }
    }
}
