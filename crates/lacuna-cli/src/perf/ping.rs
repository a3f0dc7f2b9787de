//! Writes with an immediate, back and forth: one at a time, which the server sends back.
//!
//! What is measured is half of the round: from posting a write until the other end's program was told of it.

use super::protocol::Request;
use super::sending::{Operations, Tally};
use super::{ClientArgs, pattern};
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::memory;
use lacuna::{Connection, Reason, Region, SendBuffer, Target};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Writes that come back.
pub(super) struct Pings<'a> {
    args: &'a ClientArgs,
    measured: &'a Connection,
    request: Request,
    /// Key of the server's region.
    key: u32,
    /// Where the server writes back to.
    back: &'a Region,
    buffer: Arc<Vec<u8>>,
    /// The one that is on its way.
    number: u64,
    /// When it is given up.
    until: Option<Instant>,
}

impl<'a> Pings<'a> {
    /// Writes `buffer` to the region with this key; the server writes it back to `back`.
    pub(super) fn new(
        args: &'a ClientArgs,
        measured: &'a Connection,
        key: u32,
        request: Request,
        back: &'a Region,
        buffer: Arc<Vec<u8>>,
    ) -> Self {
        Self { args, measured, request, key, back, buffer, number: 0, until: None }
    }

    fn check(&self, tally: &mut Tally) -> Result<(), Failure> {
        let mut bytes = memory::zeroed(self.args.size as usize)?;
        let place = self.request.place(self.number);
        self.back.read(place, &mut bytes).map_err(|error| Failure::Local(error.to_string()))?;
        let content = pattern::number_in_turn(self.number, self.request.inflight);
        if let Some(at) = pattern::first_wrong(&bytes, 0..bytes.len(), content) {
            tally.wrong(self.number, at as u64);
        }
        Ok(())
    }
}

impl Operations for Pings<'_> {
    fn post(&mut self, number: u64) -> Result<Instant, Failure> {
        if self.args.validate {
            let mut buffer = memory::zeroed(self.args.size as usize)?;
            pattern::fill(&mut buffer, 0, pattern::number_in_turn(number, self.request.inflight));
            self.buffer = Arc::new(buffer);
        }
        self.number = number;
        let to = Target { key: self.key, address: self.request.place(number) };
        let deadline = self.args.deadline.unwrap_or(Duration::MAX);
        let data = SendBuffer::new(self.buffer.clone());
        let posted = Instant::now();
        self.until = self.args.deadline.and_then(|deadline| posted.checked_add(deadline));
        let write = self.measured.start_write_to_within(to, data, Some(number as u32), deadline);
        // The answer says that it arrived; without the handle it goes on.
        drop(write.map_err(|error| Failure::Network(error.to_string()))?);
        Ok(posted)
    }

    fn wait_oldest(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let limit = left.map_or(POLL_INTERVAL, |left| left.min(POLL_INTERVAL));
        if let Some(written) = self.measured.wait_written(limit) {
            // One that was given up may come late.
            if written.immediate != Some(self.number as u32) {
                return Ok(false);
            }
            let lost_bytes = self.args.size.saturating_sub(written.bytes);
            tally.count(written.reason, lost_bytes);
            if self.args.validate && written.reason == Reason::Whole {
                self.check(tally)?;
            }
            return Ok(true);
        }
        if let Some(failure) = self.measured.failure() {
            return Err(Failure::Network(failure.to_string()));
        }
        if left.is_some_and(|left| left.is_zero()) {
            tally.count(Reason::Deadline, self.args.size);
            return Ok(true);
        }
        Ok(false)
    }

    fn are_awaited(&self) -> bool {
        true
    }

    fn give_up(&mut self) {}
}
