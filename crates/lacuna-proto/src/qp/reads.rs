//! Reads of regions of the peer (datagram-iWARP 3; RDMA READ): a request that the peer answers with a write
//! into a region of this end.
//!
//! **The asking end.** A read is asked for, and again after a timeout, until something of the answer has
//! come or the peer refuses. The answer is known by the place that it is written to, so each read needs a
//! place of its own, best a window with a key of its own. It ends when all of it was written, with gaps in
//! a bounded mode, or by its deadline, which travels as time left. An answer longer than a slot is several
//! messages with consecutive numbers, of which only the last has an end. In a bounded mode all of one may be
//! lost; its number shows that it belongs to the answer.
//!
//! **The answering end.** It copies the bytes before it sends them: so all packets of the answer, its parity
//! and its repairs are of one state of the region, whoever writes it meanwhile, and nothing is read after the
//! key was revoked. A request waits until most of what was copied before it has left, so that a copy is still
//! in the cache when it is sent (measured: M-reads-1). What may wait is bounded; a request beyond that is not
//! heard, and is asked for again. A repeated request is answered once (in a bounded mode, once more after the
//! first answer has left, because that may have been lost whole).

use super::error::Failure;
use super::send::Target;
use super::user_send::SendId;
use lacuna_place::reason::Reason;
use lacuna_place::receive::Receive;
use lacuna_wire::{Read, ReadRefusal, ReadRefused};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Most bytes of one read. Longer ones are for the caller to divide.
pub const READ_BYTES_MAX: u64 = 16 << 20;
/// Most reads that may be open at the asking end.
pub const READS_OPEN_MAX: usize = 512;
/// Requests in one control packet.
const REQUESTS_PER_PACKET: usize = 8;
/// Most reads that wait for their answer or are answered, and bytes of answers that are not acknowledged.
const ANSWERS_MAX: usize = READS_OPEN_MAX;
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The next answer is copied when less than this of those before it waits to be sent: half of a common
/// second-level cache.
const AHEAD_BYTES: u64 = 512 << 10;
/// How long an answer to a read without a deadline may take: a place for it may never be known here.
pub(super) const ANSWER_NS_MAX: u64 = 60_000_000_000;
/// Numbers of answered requests that are remembered; older ones count as answered.
const ANSWERED_MAX: usize = 8 * READS_OPEN_MAX;
/// Messages of which nothing came that are remembered: two of each read that is open.
const LOST_MAX: usize = 2 * READS_OPEN_MAX;
/// Most refusals that wait to be sent.
const REFUSALS_MAX: usize = 128;

/// Identifies a read of this queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(u64);

/// A read to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// What is read of the peer.
    pub from: Target,
    /// How many bytes: 1 to [`READ_BYTES_MAX`].
    pub len_bytes: u64,
    /// Where it is written here. No other open read may be written there.
    pub into: Target,
    /// Deadline, on the caller's clock.
    pub deadline_ns: Option<u64>,
}

/// A read could not be made. The caller's fault, but for the last two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostReadError {
    /// The queue pair reads no regions.
    #[error("this queue pair reads no regions: use a one-sided one")]
    NoRegions,
    /// The length is out of range.
    #[error("a read of {len_bytes} bytes: must be 1 to {READ_BYTES_MAX}")]
    Length {
        /// Bytes asked for.
        len_bytes: u64,
    },
    /// Too many reads are open; try again when some have ended.
    #[error("{open} reads are open already; wait for some to complete")]
    Busy {
        /// Open reads.
        open: usize,
    },
    /// The queue pair has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Why a read has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The deadline passed.
    #[error("deadline passed with {placed_bytes} of {len_bytes} bytes read")]
    Deadline {
        /// Bytes that came.
        placed_bytes: u64,
        /// Bytes asked for.
        len_bytes: u64,
    },
    /// The peer refused it.
    #[error("the peer refused the read: {}", show(*.0))]
    Refused(ReadRefusal),
    /// The peer gave the answer up, or the place for it here was revoked.
    #[error("the answer was given up before it was whole")]
    GivenUp,
    /// The queue pair has failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

fn show(why: ReadRefusal) -> &'static str {
    match why {
        ReadRefusal::Key => "the key is unknown, was revoked, or does not allow reading",
        ReadRefusal::Range => "the place is outside of the key's range",
        ReadRefusal::TooLong => "it is longer than the peer answers",
        ReadRefusal::Unable => "the peer cannot answer",
        ReadRefusal::Other(_) => "for a reason that this version does not know",
    }
}

/// State of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadStatus {
    /// How it ended; `None` while it goes on. In a bounded mode a read may be a success with gaps.
    pub outcome: Option<Result<(), ReadFailure>>,
    /// Bytes that came, of messages that are over; copies count once. Of a second answer (in a bounded
    /// mode) they do not count.
    pub placed_bytes: u64,
}

/// A read at the asking end.
#[derive(Debug)]
struct Asked {
    request: ReadRequest,
    /// When the peer is asked next; `None` once something came.
    ask_ns: Option<u64>,
    /// The number of the answer's first message, once one of its messages is over.
    first: Option<u64>,
    /// Bytes of the answer's messages that are over, whether they came or not.
    over_bytes: u64,
    placed_bytes: u64,
    outcome: Option<Result<(), ReadFailure>>,
    /// The owner takes its outcome from a list ([`Reads::poll_ended`]).
    notifies: bool,
}

impl Asked {
    /// What message `number` has of the answer, in messages of `slot_bytes`; 0 if it is of another one.
    fn share(&self, number: u64, slot_bytes: u64) -> u64 {
        let index = self.first.and_then(|first| number.checked_sub(first));
        let start = index.and_then(|index| index.checked_mul(slot_bytes));
        let left = start.and_then(|start| self.request.len_bytes.checked_sub(start));
        left.map_or(0, |left| left.min(slot_bytes))
    }

    /// Something of the answer is over. Returns whether that ends the read.
    fn on_over(&mut self, bytes: u64, reason: Reason) -> bool {
        self.over_bytes += bytes;
        if self.outcome.is_some() {
            return false;
        }
        match reason {
            Reason::Whole | Reason::End | Reason::Accounted | Reason::Preempted => {
                if self.over_bytes >= self.request.len_bytes {
                    self.outcome = Some(Ok(()));
                }
            }
            Reason::Deadline | Reason::Cancelled | Reason::Failed => {
                self.outcome = Some(Err(ReadFailure::GivenUp));
            }
        }
        self.outcome.is_some()
    }
}

/// Reads in both directions.
#[derive(Debug, Default)]
pub(super) struct Reads {
    next_id: u64,
    asked: BTreeMap<ReadId, Asked>,
    /// Numbers of messages that were over before anything of them came: the newest ones.
    lost: VecDeque<u64>,
    /// Of those that notify, some have ended.
    has_ended: bool,
    /// When [`Reads::poll_requests`] has something to do.
    ask_ns: Option<u64>,
    /// When [`Reads::on_timeout`] has something to do.
    deadline_ns: Option<u64>,
    refusals: VecDeque<ReadRefused>,
    /// Requests of the peer that were answered.
    answered: BTreeSet<u64>,
    /// Requests that wait for their answer, each with the answer's deadline.
    waiting: VecDeque<(Read, u64)>,
    /// Answers that are being sent, with their bytes and numbers.
    answering: Vec<(SendId, u64, u64)>,
}

/// How far an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Some of it was never sent.
    Queued,
    /// Some of it may have to be sent again.
    Sent,
    Ended,
}

impl Reads {
    // ---- the asking end ----

    pub(super) fn ask(
        &mut self,
        now_ns: u64,
        request: ReadRequest,
    ) -> Result<ReadId, PostReadError> {
        let ReadRequest { len_bytes, .. } = request;
        if !(1..=READ_BYTES_MAX).contains(&len_bytes) {
            return Err(PostReadError::Length { len_bytes });
        }
        let open = self.asked.len();
        if open >= READS_OPEN_MAX {
            return Err(PostReadError::Busy { open });
        }
        self.next_id += 1;
        let id = ReadId(self.next_id);
        // Without time left, the peer is not asked.
        let is_over = request.deadline_ns.is_some_and(|due_ns| due_ns <= now_ns);
        let ask_ns = if is_over { None } else { Some(now_ns) };
        let asked = Asked {
            request,
            ask_ns,
            first: None,
            over_bytes: 0,
            placed_bytes: 0,
            outcome: is_over.then_some(Err(ReadFailure::Deadline { placed_bytes: 0, len_bytes })),
            notifies: false,
        };
        self.asked.insert(id, asked);
        self.update_due();
        Ok(id)
    }

    pub(super) fn status(&self, id: ReadId) -> Option<ReadStatus> {
        let asked = self.asked.get(&id)?;
        Some(ReadStatus { outcome: asked.outcome, placed_bytes: asked.placed_bytes })
    }

    /// Has the owner take a read's outcome from a list, instead of asking for it.
    pub(super) fn notify(&mut self, id: ReadId) {
        if let Some(asked) = self.asked.get_mut(&id) {
            asked.notifies = true;
            self.has_ended |= asked.outcome.is_some();
        }
    }

    /// The next such read that has ended, which is forgotten.
    pub(super) fn poll_ended(&mut self) -> Option<(ReadId, Result<u64, ReadFailure>)> {
        if !self.has_ended {
            return None;
        }
        let outcome = |asked: &Asked| asked.outcome.filter(|_| asked.notifies);
        let mut ended = self
            .asked
            .iter()
            .filter_map(|(id, asked)| Some((*id, outcome(asked)?.map(|()| asked.placed_bytes))));
        let first = ended.next();
        self.has_ended = ended.next().is_some();
        self.asked.remove(&first?.0);
        first
    }

    /// Forgets a read, whatever it does. What still comes of it is placed while its key lives.
    pub(super) fn release(&mut self, id: ReadId) {
        self.asked.remove(&id);
        self.update_due();
    }

    /// The number of the next read, and that of the oldest one that has not ended.
    pub(super) fn open_range(&self) -> (u64, Option<u64>) {
        let open = self.asked.iter().find(|(_, asked)| asked.outcome.is_none());
        (self.next_id + 1, open.map(|(id, _)| id.0))
    }

    /// Whether an answer is awaited.
    pub(super) fn awaits_peer(&self) -> bool {
        self.asked.values().any(|asked| asked.outcome.is_none())
    }

    /// A message to a region is over. Returns whether it was the answer to a read, or a part of one, and
    /// whether that has ended.
    pub(super) fn on_over(&mut self, receive: &Receive, reason: Reason) -> (bool, bool) {
        let (number, slot_bytes) = (receive.number(), receive.geometry().max_message_bytes());
        let Some(bound) = receive.bound() else {
            return (false, self.on_lost(number, slot_bytes, reason));
        };
        let lies_in = |asked: &Asked| {
            let Target { key, address } = asked.request.into;
            let end = address.saturating_add(asked.request.len_bytes);
            key == bound.key() && (address..end).contains(&bound.address())
        };
        let Some(asked) = self.asked.values_mut().find(|asked| lies_in(asked)) else {
            return (false, false);
        };
        asked.ask_ns = None;
        let mut has_ended = false;
        if asked.first.is_none() {
            let before = (bound.address() - asked.request.into.address) / slot_bytes;
            asked.first = Some(number.saturating_sub(before));
            // Messages of the same answer, of which nothing has come.
            for lost in &self.lost {
                let bytes = asked.share(*lost, slot_bytes);
                has_ended |= bytes > 0 && asked.on_over(bytes, Reason::Accounted);
            }
        }
        let share = asked.share(number, slot_bytes);
        if share > 0 {
            asked.placed_bytes += bound.record().placed_bytes();
        }
        has_ended |= asked.on_over(share, reason);
        self.update_due();
        (true, has_ended)
    }

    /// A message of which nothing came is over. Returns whether a read has ended.
    fn on_lost(&mut self, number: u64, slot_bytes: u64, reason: Reason) -> bool {
        let share = |asked: &mut Asked| asked.share(number, slot_bytes);
        let has_ended = match self.asked.values_mut().map(|a| (share(a), a)).find(|(b, _)| *b > 0) {
            Some((bytes, asked)) => asked.on_over(bytes, reason),
            None => false,
        };
        if self.lost.len() >= LOST_MAX {
            self.lost.pop_front();
        }
        self.lost.push_back(number);
        if has_ended {
            self.update_due();
        }
        has_ended
    }

    /// The peer will not answer. Returns whether a read has ended.
    pub(super) fn on_refused(&mut self, refused: &ReadRefused) -> bool {
        let Some(asked) = self.asked.get_mut(&ReadId(refused.id)) else { return false };
        // What was begun before is of an answer that the peer has given.
        if asked.outcome.is_some() || asked.ask_ns.is_none() {
            return false;
        }
        asked.outcome = Some(Err(ReadFailure::Refused(refused.why)));
        self.update_due();
        true
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        for asked in self.asked.values_mut().filter(|asked| asked.outcome.is_none()) {
            asked.outcome = Some(Err(ReadFailure::Failed(failure)));
        }
        self.update_due();
    }

    /// Ends the reads whose deadline has passed. Returns whether any has.
    pub(super) fn on_timeout(&mut self, now_ns: u64) -> bool {
        if self.deadline_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return false;
        }
        let mut any = false;
        for asked in self.asked.values_mut() {
            let ReadRequest { deadline_ns, len_bytes, .. } = asked.request;
            if asked.outcome.is_none() && deadline_ns.is_some_and(|due_ns| due_ns <= now_ns) {
                let placed_bytes = asked.placed_bytes;
                asked.outcome = Some(Err(ReadFailure::Deadline { placed_bytes, len_bytes }));
                any = true;
            }
        }
        self.update_due();
        any
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        let refusal = (!self.refusals.is_empty()).then_some(0);
        [refusal, self.ask_ns, self.deadline_ns].into_iter().flatten().min()
    }

    /// Whether requests or refusals are due to be sent.
    pub(super) fn has_due(&self, now_ns: u64) -> bool {
        !self.refusals.is_empty() || self.ask_ns.is_some_and(|due_ns| due_ns <= now_ns)
    }

    /// The requests that are due, at most one packet's worth. Those that have begun, by `has_begun` of the
    /// key that they are written to, are not asked for again.
    pub(super) fn poll_requests(
        &mut self,
        now_ns: u64,
        rto_ns: u64,
        has_begun: impl Fn(u32) -> bool,
    ) -> Vec<Read> {
        let mut requests = Vec::new();
        for (id, asked) in &mut self.asked {
            let is_due = asked.ask_ns.is_some_and(|ask_ns| ask_ns <= now_ns);
            if asked.outcome.is_some() || !is_due || requests.len() >= REQUESTS_PER_PACKET {
                continue;
            }
            let ReadRequest { from, len_bytes, into, deadline_ns } = asked.request;
            if has_begun(into.key) {
                asked.ask_ns = None;
                continue;
            }
            asked.ask_ns = Some(now_ns + rto_ns.max(1));
            let left_ns = deadline_ns.map(|due_ns| due_ns.saturating_sub(now_ns));
            let left_us = left_ns.map_or(0, |ns| (ns / 1000).clamp(1, u64::from(u32::MAX)) as u32);
            requests.push(Read {
                id: id.0,
                key: from.key,
                address: from.address,
                length: len_bytes,
                sink_key: into.key,
                sink_address: into.address,
                left_us,
            });
        }
        self.update_due();
        requests
    }

    fn update_due(&mut self) {
        self.has_ended |= self.asked.values().any(|a| a.notifies && a.outcome.is_some());
        let open = || self.asked.values().filter(|asked| asked.outcome.is_none());
        self.ask_ns = open().filter_map(|asked| asked.ask_ns).min();
        self.deadline_ns = open().filter_map(|asked| asked.request.deadline_ns).min();
    }

    // ---- the answering end ----

    /// Takes in a request of a peer that is told everything (`is_reliable`), or may have to be answered once
    /// more. Its answer is given up at `deadline_ns`.
    pub(super) fn on_request(
        &mut self,
        read: &Read,
        deadline_ns: u64,
        is_reliable: bool,
        progress: impl Fn(SendId) -> Answer,
    ) {
        self.answering.retain(|(send, ..)| progress(*send) != Answer::Ended);
        let is_old = self
            .answered
            .first()
            .is_some_and(|oldest| self.answered.len() >= ANSWERED_MAX && read.id < *oldest);
        let is_answered = is_old || self.answered.contains(&read.id);
        let is_known = self.answering.iter().any(|(.., id)| *id == read.id)
            || self.waiting.iter().any(|(waiting, _)| waiting.id == read.id);
        let has_room = self.answering.len() + self.waiting.len() < ANSWERS_MAX;
        if has_room && !is_known && (!is_answered || !is_reliable && !is_old) {
            self.waiting.push_back((*read, deadline_ns));
        }
    }

    /// Whether a request waits for its answer.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next request to be answered, with the answer's deadline; `None` while enough is copied.
    pub(super) fn poll_answer(
        &mut self,
        now_ns: u64,
        progress: impl Fn(SendId) -> Answer,
    ) -> Option<(Read, u64)> {
        let (mut queued_bytes, mut bytes) = (0, 0);
        self.answering.retain(|(send, len_bytes, _)| {
            let progress = progress(*send);
            bytes += if progress == Answer::Ended { 0 } else { *len_bytes };
            queued_bytes += if progress == Answer::Queued { *len_bytes } else { 0 };
            progress != Answer::Ended
        });
        while let Some((read, deadline_ns)) = self.waiting.pop_front() {
            if queued_bytes >= AHEAD_BYTES
                || bytes + read.length.min(READ_BYTES_MAX) > ANSWER_BYTES_MAX
            {
                self.waiting.push_front((read, deadline_ns));
                return None;
            }
            // Nobody waits for it any more.
            if deadline_ns > now_ns {
                return Some((read, deadline_ns));
            }
        }
        None
    }

    pub(super) fn on_answer(&mut self, read: &Read, send: SendId) {
        self.answering.push((send, read.length, read.id));
        self.answered.insert(read.id);
        if self.answered.len() > ANSWERED_MAX {
            self.answered.pop_first();
        }
    }

    pub(super) fn refuse(&mut self, id: u64, why: ReadRefusal) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push_back(ReadRefused { id, why });
        }
    }

    pub(super) fn poll_refusal(&mut self) -> Option<ReadRefused> {
        self.refusals.pop_front()
    }
}
