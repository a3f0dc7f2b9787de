//! The server's side: takes what comes, counts it, and knows when nothing more does.

use super::contents::Contents;
use super::{Lent, Placed};
use crate::failure::Failure;
use crate::interrupt::POLL_INTERVAL;
use crate::perf::idle::IdleWatch;
use crate::perf::pattern;
use crate::perf::protocol::{Awaited, Counters, Done, Ended, Request, Sent};
use crate::perf::receiving::lost;
use crate::perf::verb::Verb;
use lacuna::Connection;
use lacuna::datagram::{self, Arrived, Operation, PeerId, RecvWork};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Completions that are taken before it is asked again whether the client is done.
const TAKEN_BETWEEN: u32 = 256;
/// Nothing more comes if nothing has come for so long, and for some round trips, after the client was done. Longer
/// than a record stays open whose segments stop to come.
const QUIET_MIN: Duration = Duration::from_millis(200);
const QUIET_RTTS: u32 = 3;
/// However much still comes, it is over then.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);
/// How often it is looked whether something came, at the end.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The numbers of messages that a word tells apart.
const NUMBERS: u32 = (1 << 24) - 1;

/// See the module's text.
pub(in crate::perf) struct Served<'a> {
    session: &'a Connection,
    lent: &'a Lent,
    request: &'a Request,
    contents: Contents,
    counters: Counters,
    placed: Placed,
    ended: Ended,
    /// Of each source of sends: what a message's content is ahead of its number.
    ahead: HashMap<PeerId, u32>,
    checked: Vec<u8>,
    started: Instant,
    idle: IdleWatch,
}

impl<'a> Served<'a> {
    /// Posts the receives, if there are any.
    pub(in crate::perf) fn new(
        session: &'a Connection,
        lent: &'a Lent,
        request: &'a Request,
        idle: Duration,
    ) -> Result<Self, Failure> {
        let served = Self {
            session,
            lent,
            request,
            contents: Contents::new(lent.places.all.inflight),
            counters: Counters::default(),
            placed: Placed::default(),
            ended: Ended::default(),
            ahead: HashMap::new(),
            checked: vec![0; if request.validate { request.size_bytes as usize } else { 0 }],
            started: Instant::now(),
            idle: IdleWatch::new(idle),
        };
        if lent.verb == Verb::Send {
            (0..u64::from(lent.places.all.inflight)).try_for_each(|id| served.post(id))?;
        }
        Ok(served)
    }

    fn post(&self, id: u64) -> Result<(), Failure> {
        let at = self.lent.places.all.place(id);
        let into = self.lent.region.slice(at..at + self.request.size_bytes);
        let into = into.map_err(|error| Failure::Local(error.to_string()))?;
        let posted = self.lent.qp.post_recv(RecvWork { id, into });
        posted.map_err(|error| Failure::Local(error.to_string()))
    }

    /// Goes on until the client says that it is done, and nothing more comes.
    pub(in crate::perf) fn take(
        &mut self,
        mut done: Awaited<Done>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        loop {
            if let Some(done) = done.poll().map_err(lost)? {
                return self.settle(&done, stop);
            }
            if stop() {
                return Err(Failure::Interrupted);
            }
            if let Some(failure) = self.session.failure() {
                return Err(Failure::Network(format!("lost the client: {failure}")));
            }
            self.take_some(POLL_INTERVAL)?;
            let stats = self.lent.qp.stats();
            self.idle.check(Placed::default().with(&stats).packets + stats.packets_sent)?;
        }
    }

    /// Takes what has come, and waits for the first at most `limit`.
    fn take_some(&mut self, limit: Duration) -> Result<(), Failure> {
        let Some(first) = self.lent.qp.wait(limit) else { return Ok(()) };
        self.on_done(first)?;
        for _ in 1..TAKEN_BETWEEN {
            let Some(done) = self.lent.qp.poll() else { return Ok(()) };
            self.on_done(done)?;
        }
        Ok(())
    }

    fn on_done(&mut self, done: datagram::Done) -> Result<(), Failure> {
        let datagram::Done { id, operation, peer, status, bytes, arrived, .. } = done;
        let Some(arrived) = arrived.filter(|_| status.is_ok()) else { return Ok(()) };
        let is_whole = bytes == u64::from(arrived.length);
        self.placed.bytes += bytes;
        match is_whole {
            true => self.placed.whole += 1,
            false => self.placed.partial += 1,
        }
        *self.ended.entry(name(arrived.ended).to_owned()).or_default() += 1;
        let number = self.placed.whole + self.placed.partial - 1;
        if self.request.validate && u64::from(arrived.length) != self.request.size_bytes {
            self.wrong(number, 0);
        } else if self.request.validate {
            let wrong = match operation {
                Operation::Receive => self.check_send(id, peer, arrived.number)?,
                _ => self.check_record(&arrived)?,
            };
            if let Some(at) = wrong {
                self.wrong(number, at);
            }
        }
        if operation == Operation::Receive {
            self.post(id)?;
        }
        Ok(())
    }

    fn wrong(&mut self, number: u64, at: usize) {
        self.counters.wrong += 1;
        let text = || format!("message {number} of those that came, at byte {at}");
        self.counters.first_wrong.get_or_insert_with(text);
    }

    /// Looks at a message in a receive, which nobody writes meanwhile: it is of one message, and its content is as
    /// far ahead of its number as that of all others of its source.
    fn check_send(&mut self, id: u64, peer: PeerId, number: u32) -> Result<Option<usize>, Failure> {
        let at = self.lent.places.all.place(id);
        read(self.lent, at, &mut self.checked)?;
        let Some(word) = self.checked.first_chunk::<8>() else { return Ok(Some(0)) };
        let Some(content) = pattern::message_of(u64::from_le_bytes(*word), 0) else {
            return Ok(Some(0));
        };
        let ahead = (content as u32).wrapping_sub(number) & NUMBERS;
        if *self.ahead.entry(peer).or_insert(ahead) != ahead {
            return Ok(Some(0));
        }
        Ok(pattern::first_wrong(&self.checked, 0..self.checked.len(), content))
    }

    /// Looks at what the map of a Write-Record shows.
    fn check_record(&mut self, arrived: &Arrived) -> Result<Option<usize>, Failure> {
        let Some(place) = arrived.place else { return Ok(Some(0)) };
        let stride = Request { inflight: 1, ..*self.request }.region_bytes().max(1);
        let (at, round) = (place.offset / stride, self.lent.round(place.key));
        let (Some(round), true) = (round, place.offset % stride == 0) else { return Ok(Some(0)) };
        read(self.lent, place.offset, &mut self.checked)?;
        for range in arrived.map.ranges(arrived.length) {
            let part = range.start as usize..range.end as usize;
            let wrong = self.contents.first_wrong(&self.checked, part, at as u32, round);
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        Ok(None)
    }

    /// The client has handed all to the network: takes what is still on its way.
    fn settle(&mut self, done: &Done, stop: &dyn Fn() -> bool) -> Result<(), Failure> {
        self.counters.messages = done.messages;
        if self.lent.verb == Verb::Read {
            self.counters.lost_bytes = done.lost_bytes;
            self.ended.clone_from(&done.ended);
            return Ok(());
        }
        let rtt = self.session.stats().rtt.min_us.unwrap_or(0.0);
        let quiet = QUIET_MIN.max(Duration::from_secs_f64(rtt / 1e6) * QUIET_RTTS);
        let since = Instant::now();
        let (mut packets, mut changed) = (0, since);
        while self.placed.whole + self.placed.partial < done.messages {
            if stop() {
                return Err(Failure::Interrupted);
            }
            self.take_some(LOOK_EVERY)?;
            let stats = self.lent.qp.stats();
            let came = Placed::default().with(&stats).packets;
            if came != packets || stats.messages_open > 0 {
                (packets, changed) = (came, Instant::now());
            }
            if changed.elapsed() >= quiet || since.elapsed() >= SETTLED_WITHIN {
                break;
            }
        }
        while let Some(done) = self.lent.qp.poll() {
            self.on_done(done)?;
        }
        let came = self.placed.whole + self.placed.partial;
        // Those that were given up may have come nevertheless.
        self.counters.messages = done.messages.max(came);
        let missed = self.counters.messages - came;
        if missed > 0 {
            self.ended.insert("missed".to_owned(), missed);
        }
        let all_bytes = self.counters.messages.saturating_mul(self.request.size_bytes);
        self.counters.lost_bytes = Some(all_bytes.saturating_sub(self.placed.bytes));
        Ok(())
    }

    /// The counters so far.
    pub(in crate::perf) fn counters(&self) -> Counters {
        let stats = self.lent.qp.stats();
        let is_read = self.lent.verb == Verb::Read;
        let came = self.placed.whole + self.placed.partial;
        let messages = self.counters.messages.max(came);
        let lost_bytes = self.counters.lost_bytes;
        let placed = Placed { sources: stats.peers as u64, ..self.placed.with(&stats) };
        let whole = self.ended.get(name(datagram::Ended::Whole)).copied().unwrap_or(0);
        Counters {
            messages,
            incomplete: messages.saturating_sub(whole),
            missing_bytes: lost_bytes.unwrap_or(0),
            duplicate_packets: placed.duplicate_packets,
            rejected_packets: stats.rejected.iter().sum::<u64>() + placed.refused_packets,
            sent: is_read.then(|| Sent {
                packets: stats.packets_sent,
                bytes: messages.saturating_mul(self.request.size_bytes),
                ..Sent::default()
            }),
            ended: self.ended.clone(),
            datagrams: Some(placed),
            ..self.counters.clone()
        }
    }

    /// Time since the beginning.
    pub(in crate::perf) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

fn read(lent: &Lent, at: u64, into: &mut [u8]) -> Result<(), Failure> {
    lent.region.read(at, into).map_err(|error| Failure::Local(error.to_string()))
}

/// How a message that came is over, as [`lacuna::Reason`] has names.
fn name(ended: datagram::Ended) -> &'static str {
    match ended {
        datagram::Ended::Whole => "whole",
        datagram::Ended::Accounted => "accounted",
        datagram::Ended::Silence => "silence",
        datagram::Ended::Evicted => "evicted",
        datagram::Ended::Cancelled => "cancelled",
    }
}
