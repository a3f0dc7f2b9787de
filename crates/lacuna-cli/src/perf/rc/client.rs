//! The client's requests over reliable connections.

use super::Ends;
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::perf::protocol::Request;
use crate::perf::sending::{Operations, Tally};
use crate::perf::verb::Verb;
use crate::perf::{ClientArgs, pattern};
use lacuna::rc::{self, Flags, Remote, SendWork};
use lacuna::{Reason, Region, SendBuffer};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// The requests of the client.
pub(in crate::perf) struct Requests<'a> {
    args: &'a ClientArgs,
    ends: &'a Ends,
    request: Request,
    /// Key of the server's region.
    key: u32,
    buffers: Vec<Arc<Vec<u8>>>,
    /// Where reads go.
    into: Option<&'a Region>,
    /// Of each queue pair.
    lines: Vec<Line>,
    /// Whose turn it is to get a message, of those that have room.
    free: VecDeque<usize>,
    /// For one message, if it is checked.
    checked: Vec<u8>,
}

/// The messages of a queue pair.
#[derive(Debug, Default)]
struct Line {
    /// Those that were posted, and that have ended.
    posted: u64,
    ended: u64,
    /// Numbers among all of those in flight.
    numbers: VecDeque<u64>,
}

impl<'a> Requests<'a> {
    pub(in crate::perf) fn new(
        args: &'a ClientArgs,
        ends: &'a Ends,
        key: u32,
        buffers: Vec<Arc<Vec<u8>>>,
        into: Option<&'a Region>,
    ) -> Self {
        let is_checked = args.validate && into.is_some();
        let checked = vec![0; if is_checked { args.size as usize } else { 0 }];
        let request = args.request();
        let count = ends.all.len();
        let free = (0..request.inflight).flat_map(|_| 0..count).collect();
        let lines = (0..count).map(|_| Line::default()).collect();
        Self { args, ends, request, key, buffers, into, lines, free, checked }
    }

    /// Where a message of a queue pair lies in the regions of both ends.
    fn address(&self, line: usize, number: u64) -> u64 {
        let inflight = u64::from(self.request.inflight.max(1));
        let all = self.request.times(self.lines.len());
        all.place(line as u64 * inflight + number % inflight)
    }

    fn verb(&self, line: usize, number: u64) -> Result<rc::Verb, Failure> {
        let address = self.address(line, number);
        let remote = Remote { address, key: self.key };
        if let Some(into) = self.into {
            let range = address..address + self.request.size_bytes;
            let into = into.slice(range).map_err(|error| Failure::Local(error.to_string()))?;
            return Ok(rc::Verb::Read { into, remote });
        }
        let place = number % u64::from(self.request.inflight.max(1));
        let data = SendBuffer::new(self.buffers[place as usize].clone());
        Ok(match self.args.verb {
            Verb::Send => rc::Verb::Send { data, immediate: None },
            Verb::WriteImm => rc::Verb::Write { data, remote, immediate: Some(number as u32) },
            Verb::Write | Verb::WriteRecord | Verb::Read => {
                rc::Verb::Write { data, remote, immediate: None }
            }
        })
    }
}

impl Operations for Requests<'_> {
    fn post(&mut self, number: u64) -> Result<Instant, Failure> {
        let line = self.free.pop_front().unwrap_or(0);
        let verb = self.verb(line, self.lines[line].posted)?;
        let work = SendWork { id: number, verb, flags: Flags::default() };
        let posted = Instant::now();
        let result = self.ends.all[line].post_send(work);
        result.map_err(|error| Failure::Network(error.to_string()))?;
        self.lines[line].posted += 1;
        self.lines[line].numbers.push_back(number);
        Ok(posted)
    }

    fn wait_one(&mut self, _oldest: u64, tally: &mut Tally) -> Result<Option<u64>, Failure> {
        let Some((at, done)) = self.ends.wait(POLL_INTERVAL) else { return Ok(None) };
        done.status.map_err(|failure| Failure::Network(failure.to_string()))?;
        tally.count(Reason::Whole, 0);
        let line = &mut self.lines[at];
        let number = line.ended;
        line.ended += 1;
        let of_all = line.numbers.pop_front();
        self.free.push_back(at);
        if let (Some(into), false) = (self.into, self.checked.is_empty()) {
            let read = into.read(self.address(at, number), &mut self.checked);
            read.map_err(|error| Failure::Local(error.to_string()))?;
            let place = number % u64::from(self.request.inflight.max(1));
            if let Some(at) = pattern::first_wrong(&self.checked, 0..self.checked.len(), place) {
                tally.wrong(number, at as u64);
            }
        }
        Ok(of_all)
    }

    fn wait_oldest(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        Ok(self.wait_one(0, tally)?.is_some())
    }

    fn are_awaited(&self) -> bool {
        true
    }

    fn give_up(&mut self) {
        // Whatever is left is flushed.
        self.ends.close();
    }
}
