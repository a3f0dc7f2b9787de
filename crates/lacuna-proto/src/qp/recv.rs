//! Receiving side of a queue pair: the posted receives in order, which of them are finished, and
//! the frames that tell the sender so.
//!
//! A receive longer than one slot takes several slots in a row. A receive is *finished* when all of
//! its message came or the application closed it; the sender is told, and sends nothing more for it.
//! It is *closed* when the application took its buffer back; then its slots are free.

use super::error::{Failure, PostReceiveError, ReceiveFailure};
use crate::modes::{Mode, RecvMachine};
use lacuna_path::small_vec::SmallVec;
use lacuna_place::geometry::Geometry;
use lacuna_place::placement::Placement;
use lacuna_place::prefetch::prefetch_value;
use lacuna_place::receive::Receive;
use lacuna_place::table::RecvTable;
use lacuna_wire::{Ack, CancelReason, ControlWriter, Frame, Receives, Run, RunList, U64List};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Most incomplete messages remembered: as many as the default split has slots, which bounds the
/// messages that the sender can have open. With 16 message bits a sender may miss the oldest.
const FAILED_MAX: usize = 1024;
/// Most incomplete messages in one frame, 8 bytes each; the newest are sent. For an older one, the
/// sender goes by the acknowledgements.
const FAILED_PER_FRAME_MAX: usize = 64;
/// Most runs of receives in one frame.
const RUNS_PER_FRAME_MAX: usize = 16;
/// Bytes of a run in the frame.
const RUN_BYTES: usize = 13;

/// With this many messages in progress, [`RecvSide::is_near_end`] is true without a scan.
const BEGUN_MESSAGES_MAX: u64 = 8;

/// A posted receive, with one record per slot.
#[derive(Debug)]
pub struct PostedReceive {
    /// Number of its first message.
    pub first: u64,
    /// The records, in order of offset.
    pub parts: SmallVec<Arc<Receive>>,
}

impl PostedReceive {
    /// Returns the memory, once every part's slot was closed and the queue pair was told. `None` for
    /// foreign memory, or while a part has other references.
    pub fn into_vec(self) -> Option<Vec<u8>> {
        let mut placement = None;
        for part in self.parts {
            placement = Some(Arc::try_unwrap(part).ok()?.into_placement());
        }
        placement?.into_vec().ok()
    }

    /// Whether the message is complete: every part up to the one in which the message ends.
    pub fn is_complete(&self) -> bool {
        for part in &self.parts {
            if !part.is_complete() {
                return false;
            }
            if part.length_bytes().is_some() {
                return true;
            }
        }
        true
    }

    /// Length of the message, once its end is known; the length of the buffer if the message filled
    /// it without an end mark.
    pub fn length_bytes(&self) -> Option<u64> {
        let mut before = 0;
        for part in &self.parts {
            if let Some(length) = part.length_bytes() {
                return Some(before + length);
            }
            before += part.capacity_bytes();
        }
        self.is_complete().then_some(before)
    }

    /// The user immediate, once all of its fragments came; it travels with the first part.
    pub fn immediate(&self) -> Option<u32> {
        self.parts.first()?.immediate()
    }
}

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
    continues: bool,
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
        }
    }

    // ---- the application's calls ----

    pub(crate) fn post(&mut self, buffer: Placement) -> Result<PostedReceive, PostReceiveError> {
        if let Some(failure) = self.failure {
            return Err(failure.into());
        }
        let slots = self.geometry.slots();
        let slot_bytes = self.geometry.max_message_bytes();
        let capacity_bytes = buffer.len() as u64;
        let needed = self.geometry.slots_for(capacity_bytes);
        if needed > u64::from(slots) {
            return Err(PostReceiveError::TooLong { capacity_bytes, slots, slot_bytes });
        }
        let open = self.incoming.len() as u64;
        let numbers = self.posted..self.posted + needed;
        if open + needed > u64::from(slots) || !numbers.clone().all(|n| self.table.is_free(n)) {
            return Err(PostReceiveError::NoSlot { needed, open, slots });
        }
        let parts = buffer.into_parts(slot_bytes as usize);
        let parts = numbers.clone().zip(parts).map(|(number, part)| {
            let receive = self.table.post(number, part);
            let receive = receive.expect("checked above, and posts are under the lock");
            self.add_to_runs(receive.capacity_bytes(), number > numbers.start);
            self.incoming.push_back(Incoming {
                receive: Some(receive.clone()),
                machine: self.mode.receiver(),
                continues: number > numbers.start,
                state: State::Open,
                closed: false,
                cancelled: None,
            });
            receive
        });
        let parts: SmallVec<_> = parts.collect();
        debug_assert_eq!(parts.len() as u64, needed);
        self.posted = numbers.end;
        Ok(PostedReceive { first: numbers.start, parts })
    }

    /// Whether the sender may soon run out of announced receives: it has started more than half of
    /// the open ones, as far as is known.
    pub(crate) fn sender_runs_short(&self) -> bool {
        let started = self.highest_started.map_or(0, |highest_started| highest_started + 1);
        let left = self.announced.saturating_sub(started);
        left * 2 < self.posted - started.min(self.posted)
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
            let goes_on = self.entry(number + 1).is_some_and(|next| next.continues);
            let missing = |receive: &Arc<Receive>| receive.chunks() - receive.chunks_done();
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

    /// Packets were placed for messages `low..=high`. Returns whether any of them became complete.
    pub(crate) fn on_touched(&mut self, low: u64, high: u64) -> bool {
        self.highest_started = self.highest_started.max(Some(high));
        self.highest_received = self.highest_received.max(high);
        let mut has_changed = false;
        for number in low.max(self.base)..=high {
            let Some(incoming) = self.entry_mut(number) else { break };
            let Some(receive) = &incoming.receive else { continue };
            if incoming.state == State::Open && receive.is_complete() {
                let ends = receive.length_bytes().is_some();
                self.finish(number);
                has_changed = true;
                self.messages += 1;
                if ends {
                    self.finish_unused(number + 1);
                }
            }
        }
        if has_changed {
            self.advance();
        }
        has_changed
    }

    /// The message ended before the receive's last slots; closes those, because they get no data.
    fn finish_unused(&mut self, mut number: u64) {
        if !self.entry(number).is_some_and(|incoming| incoming.continues) {
            return;
        }
        let table = self.table.clone();
        while let Some(incoming) = self.entry_mut(number) {
            if !incoming.continues || incoming.state == State::Finished {
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
    pub(crate) fn on_cancel(&mut self, number: u64, reason: CancelReason) -> bool {
        match self.entry_mut(number) {
            Some(incoming) if incoming.state == State::Open && incoming.cancelled.is_none() => {
                incoming.cancelled = Some(reason);
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
    }

    // ---- frames ----

    /// Writes the Receives frame. Returns `false` if it did not fit behind other frames. Alone in a
    /// packet, the frame is shortened until it fits.
    pub(crate) fn write_receives(&mut self, writer: &mut ControlWriter) -> bool {
        let mut finished: Vec<u8> = Vec::new();
        for number in self.base..self.finished_end {
            if self.entry(number).is_some_and(|incoming| incoming.state == State::Finished) {
                let index = (number - self.base) as usize;
                finished.resize(index / 8 + 1, 0);
                finished[index / 8] |= 1 << (index % 8);
            }
        }
        // The list of runs may end after any receive.
        let mut first_runs = [Run::default(); RUNS_PER_FRAME_MAX];
        first_runs.iter_mut().zip(&self.runs).for_each(|(first, run)| *first = *run);
        let mut runs = &first_runs[..self.runs.len().min(RUNS_PER_FRAME_MAX)];
        let room = writer.room().saturating_sub(Receives::FIXED_BYTES);
        let failed_max = FAILED_PER_FRAME_MAX.min(self.failed.len());
        let wanted = finished.len() + failed_max * 8 + runs.len() * RUN_BYTES;
        let is_first = writer.is_empty();
        if wanted > room && !is_first {
            return false;
        }
        finished.truncate(room / 2);
        let failed_max = failed_max.min((room - finished.len()) / 2 / 8);
        let runs_max = (room - finished.len() - failed_max * 8) / RUN_BYTES;
        runs = &runs[..runs_max.min(runs.len())];
        let mut newest = self.failed.iter().rev().copied();
        let failed: Vec<u64> = newest.by_ref().take(failed_max).collect();
        let failed_from = newest.next().map_or(self.failed_from, |omitted| omitted + 1);
        let is_written = writer.push(&Frame::Receives(Receives {
            base: self.base,
            posted: self.posted,
            finished: &finished,
            failed_from,
            failed: U64List::from_values(&failed),
            runs: RunList::from_runs(runs),
        }));
        if is_written {
            self.announced = self.base + runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        }
        // If not even the fixed part fits an empty packet, give up, so that the caller does not loop.
        is_written || is_first
    }

    /// Begins a round of acknowledgements.
    pub(crate) fn begin_acks(&mut self) {
        self.ack_next = self.base;
    }

    /// Writes acknowledgements of open messages until the packet is full.
    /// Returns whether the round is over.
    pub(crate) fn write_acks(&mut self, writer: &mut ControlWriter) -> bool {
        let Some(highest_started) = self.highest_started else { return true };
        while self.ack_next <= highest_started {
            let room = writer.room();
            if room < ACK_ROOM_MIN {
                return writer.is_empty();
            }
            let number = self.ack_next;
            self.prefetch(number + PREFETCH_AHEAD);
            let Some(incoming) = self.entry_mut(number) else { return true };
            if incoming.state == State::Open
                && let Some(receive) = &incoming.receive
            {
                let mut scratch = [0u8; ACK_BITMAP_MAX];
                let room = (room - Ack::FIXED_BYTES).min(ACK_BITMAP_MAX) / 4 * 4;
                let ack = incoming.machine.poll_ack(receive, &mut scratch[..room]);
                if let Some(ack) = ack
                    && !writer.push(&Frame::Ack(ack))
                {
                    return false;
                }
            }
            self.ack_next += 1;
        }
        true
    }
}

/// How many messages ahead a receive is prefetched before it is acknowledged (a judgement): one
/// comes from memory while two are written.
const PREFETCH_AHEAD: u64 = 2;
/// With less room than this in a packet, an acknowledgement waits for the next one.
const ACK_ROOM_MIN: usize = 64;
/// Most bitmap bytes of one acknowledgement: 8,192 chunks.
const ACK_BITMAP_MAX: usize = 1024;
