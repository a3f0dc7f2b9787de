//! Messages of one peer that come reliably: placed as they come, in any order, and delivered in theirs.
//!
//! The record is one set of positions: what has come of the line of messages. Its gaps are what an acknowledgement
//! lists as missing. A Send takes a posted receive with the first segment that comes of it. The last one is for a
//! message whose turn it is, unless that has one: receives that are all with later messages would never come free. Where there is
//! none the segment is dropped, and the source is told when one is posted.
//!
//! What cannot be done, such as a write under a wrong key, is refused: the source hears so until it says that
//! the message is cancelled, and its place in the line is over then.
//!
//! A message that finds no room here is dropped, too, and the source hears that this end is there.
//!
//! Invariants: each message is delivered at most once, in the order of the source; what was refused or given
//! up is not delivered; a byte is placed once.

use super::position::{self, WINDOW, all_of, bytes_of, first_index, index_of, position};
use crate::discard::{Discard, of_key};
use crate::incoming::{RecordBound, write};
use crate::map::Map;
use crate::peers::PeerId;
use crate::reads::Reads;
use crate::work::{Arrived, Done, Ended, Failure, Operation, RecvWork, Target};
use core::net::SocketAddr;
use lacuna_path::ranges::Ranges;
use lacuna_place::region::{KeyTable, Rights};
use lacuna_wire::ddp::{
    self, About, ControlFrame, ControlReason, MissingStretches, ReadRequest, Rows, Space,
};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Gaps of the record, at most.
const RANGES_MAX: usize = 1 << 12;
/// Stretches that an acknowledgement lists; there is room for refusals behind.
const STRETCHES_MAX: usize = 48;
const _: () = assert!(STRETCHES_MAX < MissingStretches::MAX);
/// Segments of a message that contradict what came of it before it is refused: more than somebody who guesses numbers
/// hits, and what a source soon sends.
const CONTRADICTIONS_MAX: u32 = 8;
/// Refusals that go with an acknowledgement.
const REFUSALS_MAX: usize = 8;
/// A source that was not verified gets acknowledgements of this many times its bytes (as QUIC has it, RFC 9000, section
/// 8.1), and what came counts up to so many.
const ANSWERED_SHARE: usize = 3;
const ANSWERED_MAX: usize = 64 << 10;
/// Bytes of an acknowledgement, of a stretch in it and of a refusal behind it.
const REPORT_BYTES: usize = ddp::UNTAGGED_HEADER_BYTES + 44 + ddp::TRAILER_BYTES;
const STRETCH_BYTES: usize = 16;
const REFUSAL_BYTES: usize = 9;
/// Segments that come before an acknowledgement goes at once.
const SEGMENTS_MAX: u32 = 32;
/// How long one may wait for more segments.
const WAIT_NS: u64 = 1_000_000;
/// The same where nothing could be taken: the source is to know that this end is there.
const BUSY_WAIT_NS: u64 = 10_000_000;

/// What of the queue pair a message needs that comes.
pub(crate) struct Host<'a> {
    pub(crate) peer: PeerId,
    pub(crate) address: SocketAddr,
    pub(crate) keys: &'a KeyTable,
    pub(crate) receives: &'a mut VecDeque<RecvWork>,
    pub(crate) reads: &'a mut Reads,
    pub(crate) done: &'a mut VecDeque<Done>,
    /// READs that are to be answered, in order.
    pub(crate) requests: &'a mut Vec<ReadRequest>,
    pub(crate) records: &'a mut RecordBound,
    pub(crate) whole: &'a mut u64,
    pub(crate) partial: &'a mut u64,
    /// Whether one more message may be open. The next one of a source always may.
    pub(crate) may_open: bool,
}

/// A segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Came<'a> {
    pub(crate) number: u32,
    pub(crate) length: u32,
    pub(crate) place: u32,
    pub(crate) payload: &'a [u8],
    pub(crate) datagram_bytes: usize,
    pub(crate) what: What,
}

/// What a segment is of.
#[derive(Debug, Clone, Copy)]
pub(crate) enum What {
    Send { is_solicited: bool },
    Request,
    Record { key: u32, offset: u64, is_solicited: bool },
    Answer { sink: u32 },
}

/// A message that has begun to come.
#[derive(Debug)]
struct Open {
    goal: Goal,
    length: u32,
    is_solicited: bool,
    refused: Option<ControlReason>,
    contradictions: u32,
}

#[derive(Debug)]
enum Goal {
    Receive(RecvWork),
    Record {
        key: u32,
        generation: u64,
        base: u64,
    },
    Answer {
        sink: u32,
    },
    Request(Option<ReadRequest>),
    /// Nobody wants it any more, such as the answer to a READ that is over; or it was refused.
    Nothing,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct StreamIn {
    pub(crate) instance: u32,
    pub(crate) record: u32,
    /// The message that is delivered next.
    next: u64,
    came: Ranges<u128>,
    open: BTreeMap<u64, Open>,
    latest: u128,
    latest_ns: u64,
    bytes: u64,
    unreported: u32,
    pub(crate) due_ns: Option<u64>,
    /// Bytes of packets that may still go to an address that has not shown that it hears anything.
    allowed_bytes: usize,
    /// It has: it knows a token, or what this end has sent.
    pub(crate) is_verified: bool,
    /// A segment was dropped as no receive was posted.
    wanted: Option<u128>,
    pub(crate) used_ns: u64,
}

impl StreamIn {
    pub(crate) fn new(now_ns: u64, (instance, number): (u32, u32), record: u32) -> Self {
        let next = first_index(number);
        Self {
            instance,
            record,
            next,
            came: Ranges::default(),
            open: BTreeMap::new(),
            latest: position(next, 0),
            latest_ns: now_ns,
            bytes: 0,
            unreported: 0,
            due_ns: None,
            allowed_bytes: 0,
            is_verified: false,
            wanted: None,
            used_ns: now_ns,
        }
    }

    /// A packet of so many bytes came.
    pub(crate) fn hear(&mut self, bytes: usize) {
        self.allowed_bytes = (self.allowed_bytes + ANSWERED_SHARE * bytes).min(ANSWERED_MAX);
    }

    /// Messages that are open.
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Whether a message waits for a receive.
    pub(crate) fn wants_receive(&self) -> bool {
        self.wanted.is_some()
    }

    /// An acknowledgement is to go by this time.
    fn due_by(&mut self, ns: u64) {
        self.due_ns = Some(self.due_ns.map_or(ns, |due_ns| due_ns.min(ns)));
    }

    /// An acknowledgement is to go at once.
    pub(crate) fn due_now(&mut self) {
        self.due_ns = Some(0);
    }

    /// A receive was posted: what was dropped for want of one may come again.
    pub(crate) fn on_receive(&mut self, now_ns: u64) {
        if let Some(wanted) = self.wanted.take() {
            // Whatever was sent before it is missing, so that all of it comes again.
            (self.latest, self.latest_ns) = (wanted, now_ns);
            self.due_now();
        }
    }

    /// A segment came.
    pub(crate) fn on_segment(
        &mut self,
        now_ns: u64,
        host: &mut Host<'_>,
        segment: &Came<'_>,
    ) -> Result<(), Discard> {
        self.used_ns = now_ns;
        let index = index_of(segment.number, self.next);
        if index < self.next {
            self.due_now();
            return Err(Discard::Duplicate);
        }
        let bytes = segment.payload.len();
        let range = position::segment(index, segment.length, segment.place, bytes as u32);
        if self.came.within(&range).next().is_some() {
            if !self.came.covers(&range) {
                self.contradict(index);
            }
            self.due_now();
            return Err(Discard::Duplicate);
        }
        let merged = self.merged(index, &range);
        let is_apart = merged == range;
        if index >= self.next + WINDOW || is_apart && self.came.iter().len() >= RANGES_MAX {
            self.due_by(now_ns + BUSY_WAIT_NS);
            return Err(Discard::Busy);
        }
        if !self.open.contains_key(&index) {
            if !host.may_open && index != self.next {
                self.due_by(now_ns + BUSY_WAIT_NS);
                return Err(Discard::Busy);
            }
            match self.begin(host, index, segment) {
                Ok(open) => {
                    self.open.insert(index, open);
                }
                Err(Discard::NoBuffer) => {
                    self.wanted = Some(range.start);
                    self.due_by(now_ns + BUSY_WAIT_NS);
                    return Err(Discard::NoBuffer);
                }
                Err(discard) => {
                    self.due_by(now_ns + BUSY_WAIT_NS);
                    return Err(discard);
                }
            }
        }
        let Some(open) = self.open.get_mut(&index) else { return Err(Discard::Busy) };
        if open.length != segment.length {
            self.contradict(index);
            return Err(Discard::Inconsistent);
        }
        if open.refused.is_none() {
            let merged = bytes_of(&merged, open.length);
            match place(host, open, segment, merged) {
                Ok(refused) => open.refused = refused,
                Err(discard) => {
                    self.contradict(index);
                    return Err(discard);
                }
            }
        }
        if open.refused.is_some() {
            self.due_now();
            return Ok(());
        }
        let has_gap = self.came.last_end().unwrap_or(position(self.next, 0)) < range.start;
        (self.latest, self.latest_ns) = (range.start, now_ns);
        self.came.add(range);
        self.bytes = self.bytes.wrapping_add(bytes as u64);
        self.unreported += 1;
        let is_whole = self.came.covers(&all_of(index));
        if is_whole {
            self.deliver(host);
        }
        if is_whole || has_gap || self.unreported >= SEGMENTS_MAX {
            self.due_now();
        } else {
            self.due_by(now_ns + WAIT_NS);
        }
        Ok(())
    }

    /// A segment does not fit what came of its message before. One of them is not the source's; which one, nobody
    /// knows, and the source would send its own for ever.
    fn contradict(&mut self, index: u64) {
        let Some(open) = self.open.get_mut(&index) else { return };
        open.contradictions += 1;
        if open.contradictions >= CONTRADICTIONS_MAX && open.refused.is_none() {
            open.refused = Some(ControlReason::Bounds);
            self.due_now();
        }
    }

    /// A range with what is there around it, within its message.
    fn merged(&self, index: u64, range: &Range<u128>) -> Range<u128> {
        let all = all_of(index);
        let wide = range.start.saturating_sub(1).max(all.start)..(range.end + 1).min(all.end);
        let mut merged = range.clone();
        for there in self.came.within(&wide) {
            merged.start = merged.start.min(there.start.max(all.start));
            merged.end = merged.end.max(there.end.min(all.end));
        }
        merged
    }

    /// What a message of which nothing has come will be.
    fn begin(&self, host: &mut Host<'_>, index: u64, segment: &Came<'_>) -> Result<Open, Discard> {
        let Came { length, place, what, .. } = *segment;
        let (mut is_solicited, mut refused) = (false, None);
        let goal = match what {
            What::Send { is_solicited: asks } => {
                is_solicited = asks;
                let next = self.open.get(&self.next).map(|open| &open.goal);
                let is_its_turn = index == self.next || matches!(next, Some(Goal::Receive(_)));
                if host.receives.len() == 1 && !is_its_turn {
                    return Err(Discard::NoBuffer);
                }
                let Some(work) = host.receives.pop_front() else { return Err(Discard::NoBuffer) };
                if u64::from(length) > work.into.len() {
                    host.receives.push_front(work);
                    refused = Some(ControlReason::NoBuffer);
                    Goal::Nothing
                } else {
                    Goal::Receive(work)
                }
            }
            What::Request => Goal::Request(None),
            What::Record { key, offset, is_solicited: asks } => {
                is_solicited = asks;
                match begin_record(host, key, offset, place, length) {
                    // The source sends it again, until there is room.
                    Ok(_) if !host.records.has_room() => return Err(Discard::Busy),
                    Ok(goal) => {
                        host.records.used += 1;
                        goal
                    }
                    Err(discard) => {
                        refused = Some(reason_of(discard));
                        Goal::Nothing
                    }
                }
            }
            What::Answer { sink } if host.reads.awaits(host.peer, sink, length) => {
                Goal::Answer { sink }
            }
            What::Answer { .. } => Goal::Nothing,
        };
        Ok(Open { goal, length, is_solicited, refused, contradictions: 0 })
    }

    /// The source gives a message up. `key` is of an answer the READ's sink.
    pub(crate) fn on_cancel(
        &mut self,
        now_ns: u64,
        host: &mut Host<'_>,
        (number, key): (u32, u32),
        reason: ControlReason,
    ) {
        self.used_ns = now_ns;
        let index = index_of(number, self.next);
        self.due_now();
        if index < self.next || index >= self.next + WINDOW {
            return;
        }
        if self.came.covers(&all_of(index)) {
            // It has come, whatever its source thinks.
            return;
        }
        let open = self.open.remove(&index);
        let goal = open.as_ref().map(|open| &open.goal);
        if !matches!(goal, Some(Goal::Receive(_) | Goal::Record { .. })) {
            host.reads.refuse(host.peer, key, reason, host.done);
        }
        if let Some(open) = open {
            let map = map_of(&self.came, index, open.length);
            give_back(host, index, open, map);
        }
        (self.latest, self.latest_ns) = (position(index, 0), now_ns);
        self.came.add(all_of(index));
        self.deliver(host);
    }

    /// Messages that are whole, from the next one on.
    fn deliver(&mut self, host: &mut Host<'_>) {
        while self.came.covers(&all_of(self.next)) {
            if let Some(open) = self.open.remove(&self.next) {
                complete(host, self.next, open);
            }
            self.next += 1;
        }
        self.came.remove_below(position(self.next, 0));
    }

    /// The line is over: what was open goes.
    pub(crate) fn end(&mut self, host: &mut Host<'_>) {
        let came = std::mem::take(&mut self.came);
        for (index, open) in std::mem::take(&mut self.open).into_iter().rev() {
            let map = map_of(&came, index, open.length);
            give_back(host, index, open, map);
        }
    }

    /// What has come, and what was refused; `false` if the source may be told nothing now.
    pub(crate) fn report(&mut self, now_ns: u64, out: &mut Vec<u8>) -> bool {
        self.due_ns = None;
        let allowed = if self.is_verified { usize::MAX } else { self.allowed_bytes };
        let Some(allowed) = allowed.checked_sub(REPORT_BYTES) else { return false };
        let stretches_max = STRETCHES_MAX.min(allowed / STRETCH_BYTES);
        self.unreported = 0;
        let from = position(self.next, 0);
        let mut horizon = self.came.last_end().unwrap_or(from);
        let mut rows = Vec::new();
        for gap in self.came.gaps(&(from..horizon)) {
            if rows.len() >= stretches_max {
                horizon = gap.start;
                break;
            }
            let [start, end] = [gap.start, gap.end].map(position::to_wire);
            rows.push([start.number, start.place, end.number, end.place]);
        }
        let waited_ns = now_ns.saturating_sub(self.latest_ns);
        let frame = ControlFrame::Acknowledge {
            about: About { space: Space::Reliable, number: self.next as u32 },
            instance: self.instance,
            record: self.record,
            horizon: position::to_wire(horizon),
            latest: position::to_wire(self.latest),
            bytes: self.bytes,
            waited_us: u32::try_from(waited_ns / 1000).unwrap_or(u32::MAX),
            missing: Rows::new(&rows),
        };
        ddp::emit_control(&frame, out);
        let refused = self.open.iter().filter_map(|(index, open)| Some((*index, open.refused?)));
        let left = (allowed - rows.len() * STRETCH_BYTES) / REFUSAL_BYTES;
        for (index, reason) in refused.take(REFUSALS_MAX.min(left)) {
            let about = About { space: Space::Reliable, number: index as u32 };
            ddp::emit_control(&ControlFrame::Error { about, reason }, out);
        }
        let bytes = ddp::UNTAGGED_HEADER_BYTES + out.len() + ddp::TRAILER_BYTES;
        self.allowed_bytes = self.allowed_bytes.saturating_sub(bytes);
        true
    }
}

/// What came of a message, as its bytes.
fn map_of(came: &Ranges<u128>, index: u64, length: u32) -> Ranges {
    let all = all_of(index);
    let of_message = came.within(&all).map(|range| {
        let range = range.start.max(all.start)..range.end.min(all.end);
        let bytes = bytes_of(&range, length);
        u64::from(bytes.start)..u64::from(bytes.end)
    });
    of_message.collect()
}

/// A Write-Record, if all of it may be written.
fn begin_record(
    host: &Host<'_>,
    key: u32,
    offset: u64,
    place: u32,
    length: u32,
) -> Result<Goal, Discard> {
    let base = offset.checked_sub(place.into()).ok_or(Discard::Bounds)?;
    let range = base..base.checked_add(length.into()).ok_or(Discard::Bounds)?;
    let pinned = host.keys.pin(key, host.peer.number(), Rights::REMOTE_WRITE, range);
    let pinned = pinned.map_err(|error| of_key(&error))?;
    Ok(Goal::Record { key, generation: pinned.generation(), base })
}

/// Copies a segment to its place; why its message is refused, if it is.
fn place(
    host: &mut Host<'_>,
    open: &mut Open,
    segment: &Came<'_>,
    merged: Range<u32>,
) -> Result<Option<ControlReason>, Discard> {
    let Came { place, payload, what, .. } = *segment;
    match (&mut open.goal, what) {
        (Goal::Receive(work), What::Send { .. }) => {
            work.into.write(place.into(), payload).map_err(|_| Discard::Inconsistent)?;
        }
        (Goal::Request(request), What::Request) => match ReadRequest::parse(payload) {
            Ok(parsed) if place == 0 => *request = Some(parsed),
            _ => return Ok(Some(ControlReason::Bounds)),
        },
        (Goal::Answer { sink }, What::Answer { sink: its }) if *sink == its => {
            if !host.reads.write(host.peer, its, place, payload) {
                open.goal = Goal::Nothing;
            }
        }
        (Goal::Record { key, generation, base }, What::Record { key: its, offset, .. }) => {
            if (*key, base.checked_add(place.into())) != (its, Some(offset)) {
                return Err(Discard::Inconsistent);
            }
            let range = offset..offset + payload.len() as u64;
            let pinned = match host.keys.pin(its, host.peer.number(), Rights::REMOTE_WRITE, range) {
                Ok(pinned) if pinned.generation() == *generation => pinned,
                Ok(_) => return Ok(Some(ControlReason::Key)),
                Err(error) => return Ok(Some(reason_of(of_key(&error)))),
            };
            let merged = *base + u64::from(merged.start)..*base + u64::from(merged.end);
            if let Err(discard) = write(&pinned, offset, payload, merged) {
                return Ok(Some(reason_of(discard)));
            }
        }
        (Goal::Nothing, _) => {}
        _ => return Err(Discard::Inconsistent),
    }
    Ok(None)
}

/// What a source hears. It has said where its line begins, and the keys' guesses are counted.
fn reason_of(discard: Discard) -> ControlReason {
    match discard {
        Discard::Key => ControlReason::Key,
        Discard::Bounds => ControlReason::Bounds,
        _ => ControlReason::Rights,
    }
}

/// A message is whole, and it is its turn.
fn complete(host: &mut Host<'_>, index: u64, open: Open) {
    let Open { goal, length, is_solicited, .. } = open;
    let (id, operation, place) = match goal {
        Goal::Receive(work) => (work.id, Operation::Receive, None),
        Goal::Record { key, base, .. } => {
            (0, Operation::Record, Some(Target { key, offset: base }))
        }
        Goal::Answer { sink } => {
            host.done.extend(host.reads.close(sink, Ok(())));
            return;
        }
        Goal::Request(request) => {
            host.requests.extend(request);
            return;
        }
        Goal::Nothing => return,
    };
    *host.whole += 1;
    let (map, ended) = (Map::Whole, Ended::Whole);
    let source = host.address;
    let number = index as u32;
    let arrived = Arrived { source, number, length, map, place, ended, missed: 0, is_solicited };
    host.done.push_back(Done {
        id,
        operation,
        peer: host.peer,
        status: Ok(()),
        bytes: length.into(),
        is_signaled: true,
        arrived: Some(Box::new(arrived)),
    });
}

/// A message will not be whole: its receive is free again, and a record is told with what came.
fn give_back(host: &mut Host<'_>, index: u64, open: Open, came: Ranges) {
    let Open { goal, length, is_solicited, .. } = open;
    match goal {
        Goal::Receive(work) => host.receives.push_front(work),
        Goal::Record { key, base, .. } => {
            *host.partial += 1;
            let map = Map::Parts(came);
            let bytes = map.bytes(length);
            let arrived = Arrived {
                source: host.address,
                number: index as u32,
                length,
                map,
                place: Some(Target { key, offset: base }),
                ended: Ended::Cancelled,
                missed: 0,
                is_solicited,
            };
            host.done.push_back(Done {
                id: 0,
                operation: Operation::Record,
                peer: host.peer,
                status: Ok(()),
                bytes,
                is_signaled: true,
                arrived: Some(Box::new(arrived)),
            });
        }
        Goal::Answer { sink } => {
            host.done.extend(host.reads.close(sink, Err(Failure::Flushed)));
        }
        Goal::Request(_) | Goal::Nothing => {}
    }
}
