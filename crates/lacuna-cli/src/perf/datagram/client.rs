//! The client's operations on datagram queue pairs.
//!
//! A send or Write-Record is over when it was handed to the network; what came of it the server counts. A READ
//! brings its bytes here, so this end counts them.

use super::contents::Contents;
use super::{Ends, Offered, deadline};
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::memory;
use crate::output::Output;
use crate::perf::protocol::Request;
use crate::perf::sending::{Operations, Tally};
use crate::perf::verb::Verb;
use crate::perf::{ClientArgs, pattern};
use crate::units::{show_bytes, show_count, show_rate};
use lacuna::datagram::{self, Done, Target};
use lacuna::{Reason, Region, SendBuffer};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a user is told how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// See the module's text.
pub(in crate::perf) struct Requests<'a> {
    args: &'a ClientArgs,
    ends: &'a Ends,
    offered: Offered,
    request: Request,
    contents: Contents,
    buffers: Vec<Arc<Vec<u8>>>,
    /// Where READs go: a place for each message in flight of each queue pair.
    into: Option<&'a Region>,
    /// Messages that each queue pair has posted.
    posted: Vec<u64>,
    /// Whose turn it is to get a message, of those that have room.
    free: VecDeque<usize>,
    /// By number among all: which of its queue pair it is.
    in_flight: HashMap<u64, u64>,
    /// For one message that was read, if it is checked.
    checked: Vec<u8>,
    progress: Told,
}

impl<'a> Requests<'a> {
    pub(in crate::perf) fn new(
        args: &'a ClientArgs,
        ends: &'a Ends,
        offered: Offered,
        buffers: Vec<Arc<Vec<u8>>>,
        into: Option<&'a Region>,
        output: Output,
    ) -> Self {
        let count = ends.len();
        let places = offered.places.saturating_mul(count as u32);
        let is_checked = args.validate && into.is_some();
        let request = args.request();
        Self {
            args,
            ends,
            offered,
            request,
            contents: Contents::new(places),
            buffers,
            into,
            posted: vec![0; count],
            free: (0..request.inflight).flat_map(|_| 0..count).collect(),
            in_flight: HashMap::new(),
            checked: vec![0; if is_checked { args.size as usize } else { 0 }],
            progress: Told::new(output),
        }
    }

    /// The place of message `number` of a queue pair, and how many of its messages were there before.
    fn place(&self, line: usize, number: u64) -> (u32, u64) {
        let places = u64::from(self.offered.places.max(1));
        ((line as u64 * places + number % places) as u32, number / places)
    }

    /// Where a READ of a queue pair goes.
    fn sink(&self, line: usize, number: u64) -> u64 {
        let inflight = u64::from(self.request.inflight.max(1));
        let all = self.request.times(self.ends.len());
        all.place(line as u64 * inflight + number % inflight)
    }

    fn verb(&mut self, line: usize, number: u64) -> Result<datagram::Verb, Failure> {
        let (place, earlier) = self.place(line, number);
        let keys = &self.offered.keys;
        let key = keys.get((earlier % keys.len().max(1) as u64) as usize).copied();
        let key = key.unwrap_or_default();
        let all = Request { inflight: self.offered.places, ..self.request }.times(self.ends.len());
        let to = Target { key, offset: all.place(place.into()) };
        if let Some(into) = self.into {
            let sink = self.sink(line, number);
            if self.args.validate {
                self.checked.fill(0);
                into.write(sink, &self.checked).map_err(local)?;
            }
            let into = into.slice(sink..sink + self.request.size_bytes).map_err(local)?;
            // All read the same places.
            let offset = self.request.place(number);
            return Ok(datagram::Verb::Read { into, from: Target { key, offset } });
        }
        let content = match self.args.verb {
            Verb::Send => number,
            _ => self.contents.number(place, earlier),
        };
        let data = self.data(number, content)?;
        Ok(match self.args.verb {
            Verb::Send => datagram::Verb::Send { data },
            _ => datagram::Verb::WriteRecord { data, to },
        })
    }

    /// The bytes of a message, filled anew if they are checked.
    fn data(&mut self, number: u64, content: u64) -> Result<SendBuffer, Failure> {
        let at = (number % u64::from(self.request.inflight.max(1))) as usize;
        let buffer = &mut self.buffers[at];
        if self.args.validate {
            // Packets of an earlier message may still be made of it.
            if Arc::get_mut(buffer).is_none() {
                *buffer = Arc::new(memory::zeroed(self.args.size as usize)?);
            }
            if let Some(bytes) = Arc::get_mut(buffer) {
                pattern::fill(bytes, 0, content);
            }
        }
        Ok(SendBuffer::new(buffer.clone()))
    }

    /// A READ is over: counts it, and looks at its bytes.
    fn on_read(
        &mut self,
        line: usize,
        number: u64,
        done: &Done,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        let lost_bytes = self.args.size.saturating_sub(done.bytes);
        let is_whole = done.status.is_ok();
        let reason = match done.status {
            Ok(()) => Reason::Whole,
            Err(datagram::Failure::Lost) => Reason::Accounted,
            Err(_) => Reason::Deadline,
        };
        tally.count(reason, lost_bytes);
        tally.missed += u64::from(done.bytes == 0);
        let Some(into) = self.into.filter(|_| self.args.validate) else { return Ok(()) };
        into.read(self.sink(line, number), &mut self.checked).map_err(local)?;
        let content = number % u64::from(self.request.inflight.max(1));
        let len = self.checked.len();
        let wrong = match is_whole {
            true => pattern::first_wrong(&self.checked, 0..len, content),
            false => pattern::first_foreign(&self.checked, 0..len, |message, word| {
                message == Some(content) || word == 0
            }),
        };
        if let Some(at) = wrong {
            tally.wrong(number, at as u64);
        }
        Ok(())
    }
}

fn local(error: impl std::fmt::Display) -> Failure {
    Failure::Local(error.to_string())
}

impl Operations for Requests<'_> {
    fn post(&mut self, number: u64) -> Result<Instant, Failure> {
        let line = self.free.pop_front().unwrap_or(0);
        let of_line = self.posted[line];
        let verb = self.verb(line, of_line)?;
        let deadline = deadline(self.args);
        let posted = Instant::now();
        self.ends.post(line, (number, verb), deadline).map_err(local)?;
        self.posted[line] += 1;
        self.in_flight.insert(number, of_line);
        Ok(posted)
    }

    fn wait_one(&mut self, _oldest: u64, tally: &mut Tally) -> Result<Option<u64>, Failure> {
        let Some((line, done)) = self.ends.wait(POLL_INTERVAL) else { return Ok(None) };
        let Some(of_line) = self.in_flight.remove(&done.id) else { return Ok(None) };
        self.free.push_back(line);
        match (done.status, self.args.verb) {
            (Ok(()) | Err(datagram::Failure::Deadline | datagram::Failure::Lost), Verb::Read) => {
                self.on_read(line, of_line, &done, tally)?;
            }
            (Ok(()), _) => {}
            (Err(datagram::Failure::Deadline), _) => {
                tally.count(Reason::Deadline, self.args.size.saturating_sub(done.bytes));
            }
            (Err(failure), _) => return Err(Failure::Network(failure.to_string())),
        }
        self.progress.on_message(done.bytes);
        Ok(Some(done.id))
    }

    fn wait_oldest(&mut self, tally: &mut Tally) -> Result<bool, Failure> {
        Ok(self.wait_one(0, tally)?.is_some())
    }

    fn are_awaited(&self) -> bool {
        true
    }

    fn give_up(&mut self) {
        // Servers ask for what they miss of a group's messages until they have counted.
        if self.args.group.is_none() || !self.in_flight.is_empty() {
            // Whatever is left is flushed.
            self.ends.close();
        }
    }
}

/// Tells a user at a terminal how far it is.
struct Told {
    output: Output,
    messages: u64,
    bytes: u64,
    /// Since when, and what there was then.
    since: (Instant, u64),
}

impl Told {
    fn new(output: Output) -> Self {
        Self { output, messages: 0, bytes: 0, since: (Instant::now(), 0) }
    }

    fn on_message(&mut self, bytes: u64) {
        (self.messages, self.bytes) = (self.messages + 1, self.bytes + bytes);
        if !self.output.shows_progress() {
            return;
        }
        let (since, before) = self.since;
        let elapsed = since.elapsed();
        if elapsed >= TOLD_EVERY {
            let rate = (self.bytes - before) as f64 * 8.0 / elapsed.as_secs_f64();
            let messages = show_count(self.messages, "message");
            let bytes = show_bytes(self.bytes);
            self.output.note(&format!("{messages}, {bytes}: {} now", show_rate(rate)));
            self.since = (Instant::now(), self.bytes);
        }
    }
}
