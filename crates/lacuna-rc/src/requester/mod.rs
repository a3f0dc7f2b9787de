//! The requester: numbers own requests, sends them in order, and completes them by the peer's answers.
//!
//! InfiniBand Architecture Specification, volume 1, section 9.7.3 (numbers), 9.7.5.1 (answers), 9.9.2
//! (faults). A request has as many numbers as it has packets, a READ as many as its answer. Numbers are
//! given when a request begins to leave.
//!
//! Rules of go-back-N:
//!
//! - a refusal "sequence error" with a number says that everything before it has come, and everything from
//!   it on is sent again;
//! - "receiver not ready" likewise, after the wait that it names;
//! - if nothing comes for the timeout while something is unanswered, everything unanswered is sent again,
//!   at most `retry_count` times in a row;
//! - an answer behind the one that a READ waits for says that the latter is lost: it is asked for again from
//!   the missing packet on, once until something of it comes, and the timeout after that.
//!
//! With selective repeat ([`Repair`]) the refusal names what has come behind the missing packet, and what has
//! not is sent again (`selective`).
//!
//! Requests complete in the order in which they were posted. A failed one fails the queue pair, and those
//! behind it complete as flushed.

use crate::PSN_BASE;
mod on_answer;

use crate::config::{AckTimeout, Peer, RcConfig, Repair};
use crate::flow::Flow;
use crate::responder::packets_of;
use crate::run::{Kind, Message, Run, asks_by_number};
use crate::selective::Selective;
use crate::work::{Done, Failure, SendWork, Verb};
use lacuna_path::IP_UDP_BYTES;
use lacuna_wire::Qpn;
use lacuna_wire::rc::{AtomicHeader, Fields, Opcode, Reth};
use std::collections::VecDeque;
use std::ops::Range;

/// The timeout before the first round trip was measured, and the longest one.
const FIRST_TIMEOUT_NS: u64 = 500_000_000;
/// What the timeout allows beyond a round trip, at least: a busy host takes a thread's core away for some
/// milliseconds, and a timeout in vain sends a whole window again.
const SPREAD_NS_MIN: u64 = 10_000_000;
const TIMEOUT_NS_MAX: u64 = 30_000_000_000;
/// Unit of the timeout's code (section 9.7.6.1.3).
const TIMEOUT_UNIT_NS: u64 = 4_096;
/// Headers and trailer of a full packet of a message.
const OVERHEAD_BYTES: u64 = 16;
/// A packet that asks for an answer of its own: headers and trailer.
const REQUEST_BYTES: u64 = 32;

/// A request whose numbers are given.
#[derive(Debug)]
struct Request {
    work: SendWork,
    first_psn: u64,
    packets: u32,
    /// Packets of a READ's or atomic operation's answer that have come.
    answered: u32,
    /// A missing answer was asked for again, and nothing of it has come since.
    asked_again: bool,
}

impl Request {
    fn end_psn(&self) -> u64 {
        self.first_psn + u64::from(self.packets)
    }

    fn is_open_read(&self) -> bool {
        self.work.verb.is_read_or_atomic() && self.answered < self.packets
    }
}

/// What the requester counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) packets: u64,
    pub(crate) packets_again: u64,
    pub(crate) bytes_acknowledged: u64,
    pub(crate) sequence_naks: u64,
    pub(crate) rnr_naks: u64,
    pub(crate) timeouts: u64,
    pub(crate) reads_again: u64,
    pub(crate) stray_answers: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Requester {
    peer: Qpn,
    mtu_bytes: u32,
    ack_every_packets: u32,
    ack_timeout: AckTimeout,
    retry_count: u8,
    rnr_retry_count: u8,
    reads_max: usize,
    pub(crate) flow: Flow,
    /// Not begun.
    posted: VecDeque<SendWork>,
    /// Begun, in the order of their numbers.
    requests: VecDeque<Request>,
    /// Number of the next request to begin.
    next_psn: u64,
    /// Number of the next packet to send: below `next_psn` while something is sent again.
    send_psn: u64,
    /// Everything before this number has come.
    acked_psn: u64,
    /// Everything from this number on was never sent.
    sent_psn: u64,
    /// First numbers of READs that are to be asked again, in order.
    again: VecDeque<u64>,
    /// With selective repeat: nothing below `next_psn` but what it names is sent again.
    selective: Option<Selective>,
    /// Open READs and atomic operations.
    reads: usize,
    /// When the timeout expires, if something is unanswered.
    due_ns: Option<u64>,
    retries: u8,
    rnr_retries: u8,
    /// Nothing is sent before (receiver not ready).
    rnr_until_ns: Option<u64>,
    /// Where and when everything was last sent again.
    went_back: (u64, u64),
    /// No request begins any more (SQD).
    is_draining: bool,
    pub(crate) counts: Counts,
}

impl Requester {
    pub(crate) fn new(config: &RcConfig, peer: &Peer) -> Self {
        let first_psn = PSN_BASE + u64::from(config.first_psn);
        let reads_max = config.reads_max.min(peer.answers_max);
        Self {
            peer: peer.number,
            mtu_bytes: config.mtu_bytes,
            ack_every_packets: config.ack_every_packets,
            ack_timeout: config.ack_timeout,
            retry_count: config.retry_count,
            rnr_retry_count: config.rnr_retry_count,
            reads_max: reads_max.into(),
            flow: Flow::new(config.controller.clone(), config.repair),
            posted: VecDeque::new(),
            requests: VecDeque::new(),
            next_psn: first_psn,
            send_psn: first_psn,
            acked_psn: first_psn,
            sent_psn: first_psn,
            again: VecDeque::new(),
            selective: (config.repair == Repair::SelectiveRepeat).then(Selective::default),
            reads: 0,
            due_ns: None,
            retries: 0,
            rnr_retries: 0,
            rnr_until_ns: None,
            went_back: (0, 0),
            is_draining: false,
            counts: Counts::default(),
        }
    }

    pub(crate) fn post(&mut self, work: SendWork) {
        self.posted.push_back(work);
    }

    pub(crate) fn set_draining(&mut self, is_draining: bool) {
        self.is_draining = is_draining;
    }

    /// Whether everything that has begun is done.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Work requests that are not done.
    pub(crate) fn open(&self) -> usize {
        self.requests.len() + self.posted.len()
    }

    // ---- sending ----

    /// Packets that may leave now, of one request, at most `packets_max`.
    pub(crate) fn poll(&mut self, now_ns: u64, packets_max: u32) -> Option<Run> {
        if self.rnr_until_ns.is_some_and(|until_ns| now_ns < until_ns) {
            return None;
        }
        self.rnr_until_ns = None;
        while let Some(first_psn) = self.again.front().copied() {
            let Some(index) =
                self.find(first_psn).filter(|index| self.requests[*index].is_open_read())
            else {
                self.again.pop_front();
                continue;
            };
            if self.flow.allowance(now_ns, OVERHEAD_BYTES, 1) == 0 {
                return None;
            }
            self.again.pop_front();
            self.counts.reads_again += 1;
            return Some(self.ask(now_ns, index, true));
        }
        if let Some(hole) = self.selective.as_ref().and_then(Selective::next) {
            return self.send_hole(now_ns, hole, packets_max);
        }
        if self.send_psn == self.next_psn && !self.begin() {
            self.flow.on_out_of_data();
            return None;
        }
        let index = self.find(self.send_psn)?;
        if self.requests[index].work.verb.is_read_or_atomic() {
            if self.flow.allowance(now_ns, OVERHEAD_BYTES, 1) == 0 {
                return None;
            }
            return Some(self.ask(now_ns, index, false));
        }
        self.send_part(now_ns, index, self.send_psn, packets_max)
    }

    /// The first packets of a hole, of one request.
    fn send_hole(&mut self, now_ns: u64, hole: Range<u64>, packets_max: u32) -> Option<Run> {
        let Some(index) = self.find(hole.start) else {
            // What has been answered for is no hole, so this is none.
            self.on_again(hole.end);
            return None;
        };
        if self.requests[index].work.verb.is_read_or_atomic() {
            if self.flow.allowance(now_ns, OVERHEAD_BYTES, 1) == 0 {
                return None;
            }
            self.on_again(self.requests[index].end_psn());
            return Some(self.ask(now_ns, index, true));
        }
        let packets = (hole.end - hole.start).min(packets_max.into()) as u32;
        let run = self.send_part(now_ns, index, hole.start, packets)?;
        self.on_again(hole.start + run.len() as u64);
        Some(run)
    }

    fn on_again(&mut self, end: u64) {
        let sent_psn = self.sent_psn;
        if let Some(selective) = &mut self.selective {
            selective.on_again(end, sent_psn);
        }
    }

    /// Gives numbers to the next posted request, if it may begin.
    fn begin(&mut self) -> bool {
        let Some(work) = self.posted.front() else { return false };
        let is_read = work.verb.is_read_or_atomic();
        let must_wait = self.is_draining
            || (work.flags.is_fenced && self.reads > 0)
            || (is_read && self.reads >= self.reads_max);
        if must_wait {
            return false;
        }
        let Some(work) = self.posted.pop_front() else { return false };
        let packets = match work.verb.operation() {
            crate::Operation::Atomic => 1,
            _ => packets_of(work.verb.bytes(), self.mtu_bytes),
        };
        self.reads += usize::from(is_read);
        let first_psn = self.next_psn;
        self.next_psn += u64::from(packets);
        self.requests.push_back(Request {
            work,
            first_psn,
            packets,
            answered: 0,
            asked_again: false,
        });
        true
    }

    /// The request that has a number.
    fn find(&self, psn: u64) -> Option<usize> {
        let index = self.requests.partition_point(|request| request.end_psn() <= psn);
        self.requests.get(index).filter(|request| request.first_psn <= psn).map(|_| index)
    }

    /// A part of a SEND or WRITE, from a number on.
    fn send_part(
        &mut self,
        now_ns: u64,
        index: usize,
        run_psn: u64,
        packets_max: u32,
    ) -> Option<Run> {
        let request = &self.requests[index];
        let (first_psn, packets) = (request.first_psn, request.packets);
        let first = (run_psn - first_psn) as u32;
        let bytes = request.work.verb.bytes();
        let waiting = (packets - first).min(packets_max);
        let packet_bytes = bytes.min(self.mtu_bytes.into()) + OVERHEAD_BYTES;
        let len = self.flow.allowance(now_ns, packet_bytes, waiting);
        if len == 0 {
            return None;
        }
        let window_packets = self.flow.window_packets(packet_bytes);
        // The window's last packet must be asked for, or nothing would ever open it again.
        let ack_every = u64::from(self.ack_every_packets).min(window_packets / 4).max(1) as u32;
        let (data, remote, immediate) = match &request.work.verb {
            Verb::Send { data, immediate } => (data.clone(), None, *immediate),
            Verb::Write { data, remote, immediate } => (data.clone(), Some(*remote), *immediate),
            _ => return None,
        };
        let is_solicited = request.work.flags.is_solicited;
        let end_psn = run_psn + u64::from(len);
        let ends_message = first + len == packets;
        let last_asks = window_packets <= u64::from(len);
        // Where the run asks last.
        let asked = (run_psn..end_psn).rev().find(|psn| {
            let is_last = psn + 1 == end_psn;
            is_last && (ends_message || last_asks) || asks_by_number(*psn, ack_every)
        });
        let run_bytes = self.wire_bytes(index, first, first + len);
        let is_again = end_psn <= self.sent_psn;
        let again = self.sent_psn.min(end_psn).saturating_sub(run_psn);
        self.counts.packets += u64::from(len);
        self.counts.packets_again += again;
        let payload_bytes = run_bytes - u64::from(len) * IP_UDP_BYTES;
        self.flow.on_sent(
            now_ns,
            len.into(),
            payload_bytes,
            asked.map(|psn| (psn + 1, is_again || psn < self.sent_psn)),
        );
        self.on_packets_sent(now_ns, end_psn);
        let message =
            Message { data, remote, immediate, is_solicited, packets, first, ack_every, last_asks };
        let kind = Kind::Message(Box::new(message));
        Some(Run::new(self.peer, self.mtu_bytes, run_psn, len, kind))
    }

    /// The request of a READ or an atomic operation, from what is missing of its answer.
    fn ask(&mut self, now_ns: u64, index: usize, only_answer: bool) -> Run {
        let request = &mut self.requests[index];
        let answered = request.answered;
        let run_psn = request.first_psn + u64::from(answered);
        let end_psn = request.end_psn();
        let (opcode, fields) = match &request.work.verb {
            Verb::Read { into, remote } => {
                let from = u64::from(answered) * u64::from(self.mtu_bytes);
                let length = (into.len() - from) as u32;
                let reth = Reth { address: remote.address + from, key: remote.key, length };
                (Opcode::ReadRequest, Fields::Reth(reth))
            }
            Verb::CompareSwap { remote, compare, swap, .. } => {
                let atomic = AtomicHeader {
                    address: remote.address,
                    key: remote.key,
                    swap_or_add: *swap,
                    compare: *compare,
                };
                (Opcode::CompareSwap, Fields::Atomic(atomic))
            }
            Verb::FetchAdd { remote, add, .. } => {
                let atomic = AtomicHeader {
                    address: remote.address,
                    key: remote.key,
                    swap_or_add: *add,
                    compare: 0,
                };
                (Opcode::FetchAdd, Fields::Atomic(atomic))
            }
            Verb::Send { .. } | Verb::Write { .. } => {
                unreachable!("these have no answer of their own")
            }
        };
        let is_again = run_psn < self.sent_psn;
        self.counts.packets += 1;
        self.counts.packets_again += u64::from(is_again);
        if run_psn == self.send_psn && answered == 0 {
            // Its first answer tells of the round trip.
            self.flow.on_sent(now_ns, 1, REQUEST_BYTES, Some((run_psn + 1, is_again)));
        } else {
            self.flow.on_sent_unanswered(now_ns, 1, REQUEST_BYTES);
        }
        if only_answer {
            self.start_timer(now_ns);
        } else {
            self.on_packets_sent(now_ns, end_psn);
        }
        let kind = Kind::One { opcode, fields, asks_ack: false };
        Run::new(self.peer, self.mtu_bytes, run_psn, 1, kind)
    }

    fn on_packets_sent(&mut self, now_ns: u64, end_psn: u64) {
        // With selective repeat what is sent again is behind.
        self.send_psn = if self.selective.is_some() { self.send_psn.max(end_psn) } else { end_psn };
        self.sent_psn = self.sent_psn.max(end_psn);
        self.start_timer(now_ns);
    }

    /// Bytes on the wire of the packets with these numbers.
    fn wire_bytes_of(&self, range: &Range<u64>) -> u64 {
        let mut bytes = 0;
        let mut index = self.requests.partition_point(|request| request.end_psn() <= range.start);
        while let Some(request) = self.requests.get(index).filter(|r| r.first_psn < range.end) {
            let from = range.start.saturating_sub(request.first_psn) as u32;
            let to = (range.end - request.first_psn).min(request.packets.into()) as u32;
            bytes += self.wire_bytes(index, from, to);
            index += 1;
        }
        bytes
    }

    /// Bytes on the wire of the packets `from` to `to` of a request, with the headers of IP and UDP.
    fn wire_bytes(&self, index: usize, from: u32, to: u32) -> u64 {
        let request = &self.requests[index];
        let packets = u64::from(to - from);
        if request.work.verb.is_read_or_atomic() {
            // Only the request has left; it counts as its first number.
            return u64::from(from == 0 && to > 0) * (REQUEST_BYTES + IP_UDP_BYTES);
        }
        let mtu_bytes = u64::from(self.mtu_bytes);
        let bytes = request.work.verb.bytes();
        let payload =
            (u64::from(to) * mtu_bytes).min(bytes) - (u64::from(from) * mtu_bytes).min(bytes);
        payload + packets * (OVERHEAD_BYTES + IP_UDP_BYTES)
    }

    // ---- time ----

    fn timeout_ns(&self) -> Option<u64> {
        match self.ack_timeout {
            AckTimeout::Code(0) => None,
            AckTimeout::Code(code) => Some(TIMEOUT_UNIT_NS << code),
            AckTimeout::Measured => {
                let rtt = self.flow.rtt();
                let base_ns = match rtt.smoothed_ns() {
                    None => FIRST_TIMEOUT_NS,
                    Some(smoothed_ns) => {
                        let spread_ns = (4 * rtt.variance_ns()).max(smoothed_ns / 8);
                        smoothed_ns + spread_ns.max(SPREAD_NS_MIN)
                    }
                };
                Some((base_ns << self.retries.min(16)).min(TIMEOUT_NS_MAX))
            }
        }
    }

    /// Begins to wait for an answer, if nobody does.
    fn start_timer(&mut self, now_ns: u64) {
        if self.due_ns.is_none() {
            self.restart_timer(now_ns);
        }
    }

    fn restart_timer(&mut self, now_ns: u64) {
        let is_open = self.acked_psn < self.send_psn || self.reads > 0 && !self.requests.is_empty();
        let timeout_ns = self.timeout_ns().filter(|_| is_open);
        self.due_ns = timeout_ns.map(|timeout_ns| now_ns + timeout_ns);
    }

    /// When [`Requester::on_timeout`] or [`Requester::poll`] has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let wants = !self.again.is_empty()
            || self.send_psn < self.next_psn
            || (!self.posted.is_empty() && !self.is_draining);
        if self.rnr_until_ns.is_some() {
            // The peer has asked to wait: nothing is late, and nothing leaves.
            return self.rnr_until_ns;
        }
        let paced_ns = self.flow.paced_until_ns().filter(|_| wants);
        [self.due_ns, paced_ns].into_iter().flatten().min()
    }

    /// Time has passed. An error fails the queue pair.
    pub(crate) fn on_timeout(&mut self, now_ns: u64) -> Result<(), Failure> {
        if self.rnr_until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.rnr_until_ns = None;
            self.restart_timer(now_ns);
        }
        if self.rnr_until_ns.is_some() || self.due_ns.is_none_or(|due_ns| now_ns < due_ns) {
            return Ok(());
        }
        self.counts.timeouts += 1;
        self.flow.on_timeout();
        if self.retries >= self.retry_count {
            return Err(Failure::RetryExceeded { retries: self.retries });
        }
        self.retries += 1;
        self.again.clear();
        // READs that have come: only their answers are missing.
        for request in &mut self.requests {
            let rest = self.acked_psn.max(request.first_psn)..request.end_psn();
            let has_come = rest.is_empty()
                || self.selective.as_ref().is_some_and(|selective| selective.came().covers(&rest));
            if request.is_open_read() && has_come {
                request.asked_again = true;
                self.again.push_back(request.first_psn);
            }
        }
        self.go_back(now_ns, self.acked_psn);
        self.restart_timer(now_ns);
        Ok(())
    }

    /// Sends everything from a number on again; with selective repeat, what has not come.
    fn go_back(&mut self, now_ns: u64, psn: u64) {
        if let Some(selective) = &mut self.selective {
            selective.lose_all(self.acked_psn.max(psn), self.sent_psn);
            self.flow.on_go_back(now_ns, self.mtu_bytes.into());
            (self.went_back, self.due_ns) = ((psn, now_ns), None);
            return;
        }
        // One packet was lost, as far as is known; what is sent again with it was not.
        let lost_bytes = u64::from(self.send_psn > psn) * u64::from(self.mtu_bytes);
        self.flow.on_go_back(now_ns, lost_bytes);
        self.went_back = (psn, now_ns);
        self.send_psn = psn;
        self.due_ns = None;
        // An open READ from here on is asked for as if new, so what is missing of it is not marked.
        for request in self.requests.iter_mut().rev().take_while(|request| request.end_psn() > psn)
        {
            request.asked_again = false;
        }
    }

    /// The queue pair has failed: what is first fails by `failure`, the others are flushed.
    pub(crate) fn fail(&mut self, failure: Failure, done: &mut Vec<Done>) {
        let mut failure = Some(failure);
        let begun = self.requests.drain(..).map(|request| request.work);
        for work in begun.chain(self.posted.drain(..)) {
            done.push(ended(&work, Err(failure.take().unwrap_or(Failure::Flushed))));
        }
        self.again.clear();
        (self.due_ns, self.rnr_until_ns, self.reads) = (None, None, 0);
        (self.next_psn, self.send_psn) = (self.sent_psn, self.sent_psn);
    }
}

fn ended(work: &SendWork, status: Result<(), Failure>) -> Done {
    let bytes = if status.is_ok() { work.verb.bytes() } else { 0 };
    let (operation, is_signaled) = (work.verb.operation(), work.flags.is_signaled);
    Done { id: work.id, operation, status, bytes, received: None, is_signaled }
}
