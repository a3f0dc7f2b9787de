//! Receiving side of a queue pair: the posted receives in order, which of them are finished, and
//! the frames that tell the sender so.
//!
//! A receive longer than one slot takes several slots in a row. A receive is *finished* when all of
//! its message came or the application closed it; the sender is told, and sends nothing more for it.
//! It is *closed* when the application took its buffer back; then its slots are free. Why and when a
//! receive is over with something missing is in `ending.rs`.

mod ending;
mod frames;
mod posted;
mod unbound;
mod watches;
mod wraps;

pub use ending::EndStats;
pub use posted::{Grace, PostedReceive, RecvOptions, RecvRequest};
pub use unbound::Written;
pub(super) use wraps::ROUND_TRIPS;

use super::deadlines::Deadlines;
use super::error::{Failure, PostReceiveError, ReceiveFailure};
use crate::modes::bounded::Watch;
use crate::modes::{Mode, RecvMachine};
use ending::{Posting, Special};
use lacuna_path::small_vec::SmallVec;
use lacuna_place::geometry::Geometry;
use lacuna_place::prefetch::prefetch_value;
use lacuna_place::receive::Receive;
use lacuna_place::table::RecvTable;
use lacuna_wire::{CancelReason, Run};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use unbound::Unbound;
use watches::ChunkWatches;
use wraps::Wraps;

/// Most incomplete messages remembered: as many as the default split has slots, which bounds the
/// messages that the sender can have open. With 16 message bits a sender may miss the oldest.
const FAILED_MAX: usize = 1024;
/// With this many messages in progress, [`RecvSide::is_near_end`] is true without a scan.
const BEGUN_MESSAGES_MAX: u64 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Finished,
}

#[derive(Debug)]
struct Incoming {
    /// `None` once the application closed it, so that its memory is free.
    receive: Option<Arc<Receive>>,
    machine: RecvMachine,
    /// Index of this slot in its receive; not 0 where it continues the slot before.
    index: u32,
    /// The receive's place among all receives.
    ordinal: u64,
    /// The receive, if this is its first slot.
    posting: Posting,
    state: State,
    closed: bool,
    cancelled: Option<CancelReason>,
}

/// Receiving side of a queue pair.
#[derive(Debug)]
pub(crate) struct RecvSide {
    geometry: Geometry,
    mode: Mode,
    table: Arc<RecvTable>,
    posted: u64,
    /// Receives announced to the peer, counted from the first; at most `posted`.
    announced: u64,
    /// All messages before this one are finished.
    base: u64,
    /// Number of the first entry of `incoming`.
    first: u64,
    incoming: VecDeque<Incoming>,
    /// Lengths of the receives from `base` on, run-length coded as in the frame, so that a report
    /// need not scan every receive.
    runs: VecDeque<Run>,
    /// One past the last message that is finished.
    finished_end: u64,
    /// Messages that were closed incomplete, from `failed_from` on.
    failed: BTreeSet<u64>,
    failed_from: u64,
    /// Highest message that the sender is known to have started.
    highest_started: Option<u64>,
    /// Highest message of which a packet was received.
    highest_received: u64,
    /// Message with which the next packet of acknowledgements begins.
    ack_next: u64,
    failure: Option<Failure>,
    pub(crate) messages: u64,
    /// Receives posted.
    receives: u64,
    /// Receives that are not over.
    open: usize,
    /// The first message of the first receive that is not over.
    open_from: u64,
    /// One past the last message of which something was heard.
    reach: u64,
    /// Open receives that have a deadline, a grace, or an end that has begun, by their first messages.
    special: BTreeMap<u64, Special>,
    /// Deadlines and graces of receives, by their first messages.
    deadlines: Deadlines<u64>,
    /// Receives that are over and were to be told of, by their first messages.
    ended: VecDeque<u64>,
    /// `Some` in a mode where receives end with gaps.
    watch: Option<Watch>,
    wraps: Wraps,
    chunk_watches: ChunkWatches,
    /// `Some` if the peer writes to regions and nothing is posted.
    unbound: Option<Unbound>,
    pub(crate) ends: EndStats,
}

impl RecvSide {
    pub(crate) fn new(geometry: Geometry, mode: Mode, table: Arc<RecvTable>) -> Self {
        Self {
            geometry,
            mode,
            table,
            posted: 0,
            announced: 0,
            base: 0,
            first: 0,
            incoming: VecDeque::new(),
            runs: VecDeque::new(),
            finished_end: 0,
            failed: BTreeSet::new(),
            failed_from: 0,
            highest_started: None,
            highest_received: 0,
            ack_next: 0,
            failure: None,
            messages: 0,
            receives: 0,
            open: 0,
            open_from: 0,
            reach: 0,
            special: BTreeMap::new(),
            deadlines: Deadlines::default(),
            ended: VecDeque::new(),
            watch: mode.watch(geometry.channels()),
            wraps: Wraps::default(),
            chunk_watches: ChunkWatches::default(),
            unbound: None,
            ends: EndStats::default(),
        }
    }

    // ---- the application's calls ----

    /// `safe_ns`: how long an old packet could still come.
    pub(crate) fn post(
        &mut self,
        now_ns: u64,
        request: RecvRequest,
        safe_ns: u64,
    ) -> Result<PostedReceive, PostReceiveError> {
        let RecvRequest { buffer, options, notifies } = request;
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        if self.is_one_sided() {
            return Err(PostReceiveError::OneSided);
        }
        let slots = self.geometry.slots();
        let slot_bytes = self.geometry.max_message_bytes();
        let capacity_bytes = buffer.len() as u64;
        let needed = self.geometry.slots_for(capacity_bytes);
        // A buffer that the first packet takes is one piece of memory of one record.
        let slots_max = if buffer.is_pooled() { 1 } else { slots };
        if needed > u64::from(slots_max) {
            let slots = slots_max;
            return Err(PostReceiveError::TooLong { capacity_bytes, slots, slot_bytes });
        }
        let open = self.incoming.len() as u64;
        let numbers = self.posted..self.posted + needed;
        if open + needed > u64::from(slots) || !numbers.clone().all(|n| self.table.is_free(n)) {
            return Err(PostReceiveError::NoSlot { needed, open, slots });
        }
        let parts = buffer.into_parts(slot_bytes as usize);
        let posting = Posting::new(needed as u32, notifies);
        let ordinal = self.receives;
        let parts = numbers.clone().zip(parts).map(|(number, part)| {
            let receive = self.table.post(number, part);
            let receive = receive.expect("checked above, and posts are under the lock");
            self.add_to_runs(receive.capacity_bytes(), number > numbers.start);
            self.incoming.push_back(Incoming {
                receive: Some(receive.clone()),
                machine: self.mode.receiver(),
                index: (number - numbers.start) as u32,
                ordinal,
                posting,
                state: State::Open,
                closed: false,
                cancelled: None,
            });
            receive
        });
        let parts: SmallVec<_> = parts.collect();
        debug_assert_eq!(parts.len() as u64, needed);
        self.posted = numbers.end;
        self.receives += 1;
        self.open += 1;
        if options != RecvOptions::default() {
            self.add_options(numbers.start, options);
        }
        if self.watch.is_some() {
            let period = u64::from(slots) * u64::from(self.geometry.config().generations);
            let is_quick = self.wraps.on_posted(now_ns, &numbers, period, safe_ns);
            self.ends.quick_wraps += u64::from(is_quick);
        }
        Ok(PostedReceive { first: numbers.start, parts })
    }

    /// Whether the n-th message belongs to the n-th receive, late or not.
    fn pairs_in_order(&self) -> bool {
        self.watch.is_some() && !self.is_one_sided()
    }

    /// The first message of the next receive that is over and was to be told of.
    pub(crate) fn poll_ended(&mut self) -> Option<u64> {
        self.ended.pop_front()
    }

    /// Whether the sender may soon run out of announced receives: it has started more than half of
    /// the open ones, as far as is known.
    pub(crate) fn sender_runs_short(&self) -> bool {
        let started = self.highest_started.map_or(0, |highest_started| highest_started + 1);
        let left = self.announced.saturating_sub(started);
        left * 2 < self.posted - started.min(self.posted)
    }

    /// Whether the sender has begun a message that is not finished.
    pub(crate) fn is_in_progress(&self) -> bool {
        self.highest_started.is_some_and(|highest| self.base <= highest)
    }

    /// Whether some receive in progress lacks less than `bytes`. (The message may be shorter; its
    /// last packets tell.)
    pub(crate) fn is_near_end(&self, bytes: u64) -> bool {
        if self.highest_received.saturating_sub(self.base) >= BEGUN_MESSAGES_MAX {
            return true;
        }
        let chunks = bytes / self.geometry.chunk_bytes();
        (self.base..=self.highest_received).any(|number| {
            let Some(incoming) = self.entry(number) else { return false };
            let goes_on = self.entry(number + 1).is_some_and(|next| next.index > 0);
            let missing = |receive: &Arc<Receive>| {
                let record = receive.record();
                record.chunks() - record.chunks_done()
            };
            let missing = incoming.receive.as_ref().map(missing);
            let is_near = missing.is_some_and(|missing| u64::from(missing) < chunks);
            incoming.state == State::Open && is_near && !goes_on
        })
    }

    /// Why the message will never be complete, if so.
    pub(crate) fn failure_of(&self, posted: &PostedReceive) -> Option<ReceiveFailure> {
        let cancelled = |part: &Arc<Receive>| {
            let incoming = self.entry(part.number())?;
            incoming.cancelled.map(ReceiveFailure::Cancelled)
        };
        let failed = || self.failure.map(ReceiveFailure::Failed);
        posted.parts.iter().find_map(cancelled).or_else(failed)
    }

    /// The application has closed these slots (with `RecvTable::close`). Returns whether the sender
    /// must be told.
    pub(crate) fn on_closed(&mut self, posted: &PostedReceive) -> bool {
        let mut has_changed = false;
        self.on_given_back(posted);
        for part in &posted.parts {
            let number = part.number();
            let Some(incoming) = self.entry_mut(number) else { continue };
            incoming.closed = true;
            let receive = incoming.receive.take();
            if incoming.state == State::Open {
                self.finish(number);
                if receive.is_some_and(|receive| receive.is_complete()) {
                    self.messages += 1;
                } else {
                    self.note_failed(number);
                }
                has_changed = true;
            }
        }
        self.advance();
        // Applications mostly close receives in order.
        self.prefetch(posted.first + posted.parts.len() as u64);
        has_changed
    }

    /// Prefetches a receive that is looked at soon.
    fn prefetch(&self, number: u64) {
        if let Some(Incoming { receive: Some(receive), .. }) = self.entry(number) {
            prefetch_value(&**receive);
        }
    }

    fn add_to_runs(&mut self, capacity_bytes: u64, continues: bool) {
        match self.runs.back_mut() {
            Some(run) if run.capacity_bytes == capacity_bytes && run.continues == continues => {
                run.count += 1;
            }
            _ => self.runs.push_back(Run { count: 1, capacity_bytes, continues }),
        }
    }

    fn finish(&mut self, number: u64) {
        self.finished_end = self.finished_end.max(number + 1);
        if let Some(incoming) = self.entry_mut(number) {
            incoming.state = State::Finished;
        }
    }

    fn note_failed(&mut self, number: u64) {
        if self.watch.is_some() {
            // The sender repairs nothing, so it has no use for the list.
            return;
        }
        if number >= self.failed_from {
            self.failed.insert(number);
        }
        if self.failed.len() > FAILED_MAX
            && let Some(oldest) = self.failed.pop_first()
        {
            self.failed_from = oldest + 1;
        }
    }

    fn entry(&self, number: u64) -> Option<&Incoming> {
        self.incoming.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn entry_mut(&mut self, number: u64) -> Option<&mut Incoming> {
        self.incoming.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn advance(&mut self) {
        while self.entry(self.base).is_some_and(|incoming| incoming.state == State::Finished) {
            self.base += 1;
            if let Some(run) = self.runs.front_mut() {
                run.count -= 1;
                if run.count == 0 {
                    self.runs.pop_front();
                }
            }
        }
        // A sender that reuses a slot knows the outcome of the slot's last message.
        let reused =
            self.highest_started.and_then(|n| n.checked_sub(u64::from(self.geometry.slots())));
        if let Some(known) = reused
            && self.failed.first().is_some_and(|oldest| *oldest <= known)
        {
            self.failed = self.failed.split_off(&(known + 1));
            self.failed_from = self.failed_from.max(known + 1);
        }
        while self.first < self.base && self.incoming.front().is_some_and(|i| i.closed) {
            self.incoming.pop_front();
            self.first += 1;
        }
    }

    // ---- packets and frames from the peer ----

    /// Packets were placed for messages `low..=high` on a channel. Returns whether any receive ended or
    /// any slot became complete. `grace_ns`: how late packets are on this path.
    pub(crate) fn on_touched(
        &mut self,
        now_ns: u64,
        channel: u8,
        (low, high): (u64, u64),
        grace_ns: u64,
    ) -> bool {
        self.highest_started = self.highest_started.max(Some(high));
        self.highest_received = self.highest_received.max(high);
        let mut has_changed = false;
        for number in low.max(self.base)..=high {
            let Some(incoming) = self.entry_mut(number) else { break };
            let Some(receive) = &incoming.receive else { continue };
            if incoming.state != State::Open {
                continue;
            }
            if receive.take_touched() {
                receive.note_arrival(now_ns);
            }
            let record = receive.record();
            if record.is_complete() {
                let ends = record.length_bytes().is_some();
                let head = number - u64::from(incoming.index);
                incoming.state = State::Finished;
                self.finished_end = self.finished_end.max(number + 1);
                has_changed = true;
                self.messages += 1;
                self.on_slot_complete(head, number, ends);
                if ends {
                    self.finish_unused(number + 1);
                }
            }
        }
        if has_changed {
            self.advance();
        }
        has_changed | self.judge_touched(now_ns, channel, high, grace_ns)
    }

    /// The message ended before the receive's last slots; closes those, because they get no data.
    fn finish_unused(&mut self, mut number: u64) {
        if self.entry(number).is_none_or(|incoming| incoming.index == 0) {
            return;
        }
        let table = self.table.clone();
        while let Some(incoming) = self.entry_mut(number) {
            if incoming.index == 0 || incoming.state == State::Finished {
                return;
            }
            table.close(number);
            self.finish(number);
            number += 1;
        }
    }

    /// The sender has started all messages before `started`.
    pub(crate) fn on_flush(&mut self, started: u64) {
        let posted = started.min(self.posted);
        self.highest_started = self.highest_started.max(posted.checked_sub(1));
    }

    /// The sender cancelled a message. Returns whether the receive was open.
    pub(crate) fn on_cancel(
        &mut self,
        now_ns: u64,
        number: u64,
        reason: CancelReason,
        grace_ns: u64,
    ) -> bool {
        match self.entry_mut(number) {
            Some(incoming) if incoming.state == State::Open && incoming.cancelled.is_none() => {
                incoming.cancelled = Some(reason);
                self.end_cancelled(now_ns, number, grace_ns);
                true
            }
            _ => false,
        }
    }

    /// Why the queue pair has failed, if it has.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    pub(crate) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        self.end_all();
    }
}
