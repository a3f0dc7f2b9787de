//! The server's end of a measurement over reliable connections.

use super::{Described, Ends, QUEUE_PAIRS_MAX, chosen, rtt};
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::perf::idle::IdleWatch;
use crate::perf::pattern;
use crate::perf::protocol::{Awaited, Counters, Done, Ended, Repairs, Request, Sent, Terms};
use crate::perf::receiving::lost;
use crate::perf::verb::Verb;
use lacuna::rc::{RecvWork, Settings};
use lacuna::{Connection, Reason, Region};
use std::time::{Duration, Instant};

/// Completions that are taken before it is asked again whether the client is done.
const TAKEN_BETWEEN: u32 = 64;

/// The memory of sends: a place for each receive that is posted.
pub(in crate::perf) fn places_of(request: &Request) -> Request {
    Request { inflight: request.inflight.saturating_mul(2), ..*request }
}

/// The server's end of one measurement.
pub(in crate::perf) struct Served<'a> {
    session: &'a Connection,
    ends: &'a Ends,
    request: &'a Request,
    verb: Verb,
    /// Name of the repair.
    mode: &'static str,
    region: &'a Region,
    /// Messages that came, of verbs that tell: of each queue pair.
    came: Vec<u64>,
    counters: Counters,
    checked: Vec<u8>,
    started: Instant,
    idle: IdleWatch,
}

/// Makes the server's end for the client's, and says how it is described.
pub(in crate::perf) fn accept(
    session: &Connection,
    client: &Described,
) -> Result<(Ends, Described), String> {
    // What this end sends are answers, as fast as the client's end takes them.
    let (settings, count) = client.settings()?;
    let settings = Settings { rtt: rtt(session), ..settings };
    if count > QUEUE_PAIRS_MAX.into() {
        return Err(format!("{count} queue pairs: this server has {QUEUE_PAIRS_MAX} at most"));
    }
    let ends = Ends::open(session, settings, count)?;
    ends.connect(client, session)?;
    let described = ends.described(session);
    Ok((ends, described))
}

impl<'a> Served<'a> {
    pub(in crate::perf) fn new(
        session: &'a Connection,
        ends: &'a Ends,
        request: &'a Request,
        terms: &Terms,
        region: &'a Region,
        idle: Duration,
    ) -> Result<Self, Failure> {
        let verb = Verb::of_name(&terms.verb).map_err(Failure::Network)?;
        let started = Instant::now();
        let served = Self {
            session,
            ends,
            request,
            verb,
            mode: ends.settings.repair.name(),
            region,
            came: vec![0; ends.all.len()],
            counters: Counters::default(),
            checked: vec![0; if request.validate { request.size_bytes as usize } else { 0 }],
            started,
            idle: IdleWatch::new(idle),
        };
        for line in 0..ends.all.len() {
            (0..served.receives()).try_for_each(|number| served.post(line, number))?;
        }
        Ok(served)
    }

    /// Receives of a queue pair that are posted at a time.
    fn receives(&self) -> u64 {
        2 * u64::from(self.request.inflight)
    }

    /// Posts the receive of message `number` of a queue pair.
    fn post(&self, line: usize, number: u64) -> Result<(), Failure> {
        let at = self.place(line, number);
        let range = match self.verb {
            Verb::Send => at..at + self.request.size_bytes,
            // The write itself says where it goes.
            Verb::WriteImm => 0..0,
            Verb::Write | Verb::WriteRecord | Verb::Read => return Ok(()),
        };
        let into = self.region.slice(range).map_err(|error| Failure::Local(error.to_string()))?;
        let posted = self.ends.all[line].post_recv(RecvWork { id: number, into });
        posted.map_err(|error| Failure::Network(format!("lost the client: {error}")))
    }

    /// Where message `number` of a queue pair lies in the region.
    fn place(&self, line: usize, number: u64) -> u64 {
        let each = match self.verb {
            Verb::Send => places_of(self.request),
            _ => *self.request,
        };
        let inflight = u64::from(each.inflight.max(1));
        each.times(self.ends.all.len()).place(line as u64 * inflight + number % inflight)
    }

    /// Goes on until the client says that it is done.
    pub(in crate::perf) fn take(
        &mut self,
        mut done: Awaited<Done>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let tells = matches!(self.verb, Verb::Send | Verb::WriteImm);
        loop {
            if let Some(done) = done.poll().map_err(lost)? {
                return self.conclude(&done);
            }
            if stop() {
                return Err(Failure::Interrupted);
            }
            if let Some(failure) = self.session.failure() {
                return Err(Failure::Network(format!("lost the client: {failure}")));
            }
            if tells {
                self.take_some(POLL_INTERVAL)?;
            } else {
                done.rest(POLL_INTERVAL);
            }
            self.check_idle()?;
        }
    }

    /// Takes messages that came, and waits for the first at most `limit`.
    fn take_some(&mut self, limit: Duration) -> Result<(), Failure> {
        for _ in 0..TAKEN_BETWEEN {
            let Some((line, done)) = self.ends.wait(limit) else { return Ok(()) };
            // What is flushed at the end was never a message.
            if done.status.is_err() {
                continue;
            }
            let number = self.came[line];
            self.came[line] += 1;
            self.counters.messages += 1;
            if self.request.validate {
                self.check(line, number)?;
            }
            self.post(line, number + self.receives())?;
        }
        Ok(())
    }

    fn check(&mut self, line: usize, number: u64) -> Result<(), Failure> {
        let read = self.region.read(self.place(line, number), &mut self.checked);
        read.map_err(|error| Failure::Local(error.to_string()))?;
        let content = number % u64::from(self.request.inflight.max(1));
        if let Some(at) = pattern::first_wrong(&self.checked, 0..self.checked.len(), content) {
            self.counters.wrong += 1;
            let text = || format!("message {number} at byte {at}");
            self.counters.first_wrong.get_or_insert_with(text);
        }
        Ok(())
    }

    fn conclude(&mut self, done: &Done) -> Result<(), Failure> {
        let tells = matches!(self.verb, Verb::Send | Verb::WriteImm);
        while tells && self.counters.messages < done.messages {
            let before = self.counters.messages;
            self.take_some(Duration::ZERO)?;
            if before == self.counters.messages {
                break;
            }
        }
        self.counters.messages = self.counters.messages.max(done.messages);
        if self.request.validate && self.verb == Verb::Write {
            // Messages go round, so each queue pair had about as many, if they were many.
            let lines = self.ends.all.len() as u64;
            let each = (done.messages / lines / 2).min(self.request.inflight.into());
            let each =
                if lines == 1 { done.messages.min(self.request.inflight.into()) } else { each };
            for line in 0..self.ends.all.len() {
                (0..each).try_for_each(|number| self.check(line, number))?;
            }
        }
        Ok(())
    }

    /// How losses are repaired.
    pub(in crate::perf) fn mode(&self) -> &'static str {
        self.mode
    }

    /// The counters so far.
    pub(in crate::perf) fn counters(&self) -> Counters {
        let stats = self.ends.stats();
        let told = matches!(self.verb, Verb::WriteImm).then_some(self.came.iter().sum());
        let whole = self.counters.messages;
        Counters {
            told_messages: told,
            duplicate_packets: stats.refusals.duplicates,
            rejected_packets: stats.refusals.refused + stats.refusals.stray,
            sent: (self.verb == Verb::Read).then(|| Sent {
                packets: stats.answer_packets,
                bytes: whole * self.request.size_bytes,
                ..Sent::default()
            }),
            lost_bytes: Some(0),
            chosen: chosen(&stats),
            repairs: stats.shim.map(|_| Repairs::of(&stats)),
            ended: Ended::from([(Reason::Whole.name().to_owned(), whole)]),
            ..self.counters.clone()
        }
    }

    /// Time since the beginning.
    pub(in crate::perf) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn check_idle(&mut self) -> Result<(), Failure> {
        let stats = self.ends.stats();
        self.idle.check(stats.answer_packets + self.counters.messages)
    }
}
