//! Messages to one peer that are sent until they have come (selective repeat), in their order.
//!
//! What was sent is kept by when it was sent. An acknowledgement says what has come; what was sent before the segment
//! that came last, and has not come for a while longer than that took, is lost (RACK, RFC 8985), and sent
//! again before anything new. The while grows where lost packets turn out to be late ones. Where nothing comes
//! back at all, a timeout sends the oldest again, and then everything.
//!
//! A message that was given up, or that the peer refused, is not simply left out: its place in the line is taken by
//! a word that it is *cancelled*, sent again as its bytes were. So the messages behind it are not held up, and
//! both ends agree.
//!
//! Invariants: operations that succeed complete in order; a position is acknowledged once; what is in flight is on
//! its way or was lost lately.

use super::position::{self, WINDOW, all_of, bytes_of, first_index, index_of, position};
use crate::outgoing::{Left, Message};
use crate::peers::PeerId;
use crate::run::{Data, Run};
use crate::work::Failure;
use lacuna_path::IP_UDP_BYTES;
use lacuna_path::flow::{Flow, Sent};
use lacuna_path::ranges::Ranges;
use lacuna_wire::ddp::{
    self, About, ControlFrame, ControlReason, MissingStretches, Position, Space,
};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// A timeout before any round trip was measured.
const RTO_NS_UNKNOWN: u64 = 100_000_000;
/// The least timeout: what a busy host, and an answer that waits for more, may take.
const RTO_NS_MIN: u64 = 5_000_000;
const RTO_NS_MAX: u64 = 2_000_000_000;
/// How late a packet may be beyond others: at first an eighth of a round trip.
const REORDER_SHIFT: u32 = 3;
const REORDER_NS_MIN: u64 = 250_000;

/// What an acknowledgement says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledged<'a> {
    pub(crate) number: u32,
    pub(crate) instance: u32,
    pub(crate) horizon: Position,
    pub(crate) latest: Position,
    /// How long it waited since the latest segment came.
    pub(crate) waited_ns: u64,
    pub(crate) missing: MissingStretches<'a>,
}

#[derive(Debug)]
struct Outstanding {
    message: Message,
    /// It was given up: this is told instead of its bytes.
    cancelled: Option<ControlReason>,
}

/// Something that was sent.
#[derive(Debug, Clone)]
struct InFlight {
    range: Range<u128>,
    wire_bytes: u64,
    sent: Sent,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct StreamOut {
    peer: PeerId,
    instance: u32,
    /// Number of the first message of all: what is said of the beginning never changes, so a peer that has lost what
    /// it knew does not take what follows for all there is.
    begin: u32,
    /// The peer has acknowledged something of this instance.
    pub(crate) is_begun: bool,
    /// The peer asks how it begins, with this token.
    is_asked: bool,
    /// What the peer asked with: every word about the beginning carries it from then on, so that the packets of
    /// the same flight, which the peer does not know yet, do not undo it.
    token: u64,
    /// Index of the first message.
    first: u64,
    messages: VecDeque<Outstanding>,
    deadlines: BTreeSet<(u64, u64)>,
    /// Where begins what was never sent.
    next: u128,
    came: Ranges<u128>,
    lost: Ranges<u128>,
    flight: VecDeque<InFlight>,
    flow: Flow,
    packet_bytes_max: usize,
    newest: Option<Newest>,
    reorder_shift: u32,
    /// When something lost is known to be so at last.
    reorder_due_ns: Option<u64>,
    /// Since when nothing was heard, while something is to be acknowledged.
    pub(crate) heard_ns: u64,
    /// Since when the peer, which owes the answer to a READ and nothing else, is asked whether it is there; and when it
    /// was asked last.
    pub(crate) probed_ns: Option<(u64, u64)>,
    timeout_from_ns: u64,
    timeouts: u32,
    /// Bytes that were sent again.
    pub(crate) bytes_again: u64,
}

/// The latest sent of what came.
#[derive(Debug, Clone, Copy)]
struct Newest {
    position: u128,
    sent_ns: u64,
    /// How long it took until its acknowledgement was here.
    took_ns: u64,
}

impl StreamOut {
    pub(crate) fn new(
        now_ns: u64,
        peer: PeerId,
        (instance, number): (u32, u32),
        flow: Flow,
        packet_bytes_max: usize,
    ) -> Self {
        let first = first_index(number);
        Self {
            peer,
            instance,
            begin: number,
            is_begun: false,
            is_asked: false,
            token: 0,
            first,
            messages: VecDeque::new(),
            deadlines: BTreeSet::new(),
            next: position(first, 0),
            came: Ranges::default(),
            lost: Ranges::default(),
            flight: VecDeque::new(),
            flow,
            packet_bytes_max,
            newest: None,
            reorder_shift: REORDER_SHIFT,
            reorder_due_ns: None,
            heard_ns: now_ns,
            probed_ns: None,
            timeout_from_ns: now_ns,
            timeouts: 0,
            bytes_again: 0,
        }
    }

    pub(crate) fn instance(&self) -> u32 {
        self.instance
    }

    /// Whether nothing is left to be done.
    pub(crate) fn is_idle(&self) -> bool {
        self.messages.is_empty() && !self.is_asked
    }

    pub(crate) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Adds a message; `cancelled` of one that only says that there is none.
    pub(crate) fn push(
        &mut self,
        now_ns: u64,
        mut message: Message,
        cancelled: Option<ControlReason>,
    ) {
        if self.messages.is_empty() {
            (self.heard_ns, self.timeout_from_ns) = (now_ns, now_ns);
        }
        let index = self.first + self.messages.len() as u64;
        message.number = index as u32;
        if cancelled.is_none() {
            self.deadlines.extend(message.deadline_ns.map(|ns| (ns, index)));
        }
        self.messages.push_back(Outstanding { message, cancelled });
    }

    /// The peer asks how the line begins: it has taken nothing of what was sent until now, if it never has.
    pub(crate) fn on_ask(&mut self, now_ns: u64, token: u64) {
        if self.is_idle() {
            self.heard_ns = now_ns;
        }
        self.is_asked = true;
        if token != 0 {
            self.token = token;
        }
        if !self.is_begun {
            for flying in std::mem::take(&mut self.flight) {
                self.lose(flying.range);
            }
            self.flow.on_given_up();
        }
    }

    /// Has the peer acknowledge something, though nothing is under way: the word where this line begins.
    pub(crate) fn probe(&mut self, now_ns: u64) {
        let (since_ns, _) = self.probed_ns.unwrap_or((now_ns, now_ns));
        self.probed_ns = Some((since_ns, now_ns));
        self.is_asked = true;
    }

    /// Since when the peer is silent, if it is to say something.
    pub(crate) fn silent_since_ns(&self) -> Option<u64> {
        match self.probed_ns {
            Some((since_ns, _)) => Some(since_ns),
            None => (!self.is_idle()).then_some(self.heard_ns),
        }
    }

    /// Whether something would leave if pace and window allow it.
    pub(crate) fn has_data(&self) -> bool {
        self.is_asked || self.lost.last_end().is_some() || self.has_new()
    }

    fn has_new(&self) -> bool {
        let (index, _) = position::split(self.next);
        index < self.first + (self.messages.len() as u64).min(WINDOW)
    }

    /// When something may leave that the pace holds back.
    pub(crate) fn paced_until_ns(&self) -> Option<u64> {
        self.flow.paced_until_ns().filter(|_| self.has_data())
    }

    fn wire_bytes_max(&self) -> u64 {
        self.packet_bytes_max as u64 + IP_UDP_BYTES
    }

    /// Packets that may leave now, at most so many; whether there are any.
    pub(crate) fn poll(&mut self, now_ns: u64, packets_max: usize, runs: &mut Vec<Run>) -> bool {
        let has_any = self.is_asked;
        if !self.has_data() {
            self.flow.on_out_of_data();
            return false;
        }
        let wire_bytes = self.wire_bytes_max();
        let mut packets =
            self.flow.allowance(now_ns, wire_bytes, packets_max.saturating_sub(1) as u32) as usize;
        if has_any || packets > 0 && !self.is_begun {
            let about = About { space: Space::Reliable, number: self.begin };
            self.is_asked = false;
            let mut frames = Vec::new();
            let begin = ControlFrame::Begin { about, instance: self.instance, token: self.token };
            ddp::emit_control(&begin, &mut frames);
            runs.push(Run::control(frames));
        }
        let before = runs.len();
        while packets > 0 {
            let lost = self.lost.iter().next().cloned();
            let (range, is_again) = match lost {
                Some(range) => (range, true),
                None if self.has_new() => {
                    let (index, _) = position::split(self.next);
                    (self.next..position(index + 1, 0), false)
                }
                None => break,
            };
            let (sent, run) = self.cut(range, packets);
            if is_again {
                self.lost.remove(&sent);
            } else {
                self.next = sent.end;
            }
            packets -= run.len().min(packets);
            let wire_bytes = wire_bytes_of(&run);
            self.bytes_again += if is_again { wire_bytes } else { 0 };
            let at = self.flow.on_sent(now_ns, wire_bytes, is_again);
            if self.flight.is_empty() {
                self.timeout_from_ns = now_ns;
            }
            self.flight.push_back(InFlight { range: sent, wire_bytes, sent: at });
            runs.push(run);
        }
        has_any || runs.len() > before
    }

    /// The first part of a range that fits so many packets, as a range and as packets.
    fn cut(&self, range: Range<u128>, packets_max: usize) -> (Range<u128>, Run) {
        let (index, _) = position::split(range.start);
        let Outstanding { message, cancelled } = &self.messages[(index - self.first) as usize];
        if let Some(reason) = *cancelled {
            let about = About { space: Space::Reliable, number: index as u32 };
            let mut frames = Vec::new();
            let key = message.header.key();
            ddp::emit_control(&ControlFrame::Cancel { about, reason, key }, &mut frames);
            return (range.start..position(index + 1, 0), Run::control(frames));
        }
        let mut bytes = bytes_of(&range, message.length);
        let payload_bytes = message.header.payload_bytes(self.packet_bytes_max);
        let most = payload_bytes.saturating_mul(packets_max as u32);
        bytes.end = bytes.end.min(bytes.start.saturating_add(most));
        let length = bytes.end - bytes.start;
        let sent = position::segment(index, message.length, bytes.start, length);
        (sent, Run::of(message.part(bytes, payload_bytes)))
    }

    /// An acknowledgement came.
    pub(crate) fn on_acknowledged(
        &mut self,
        now_ns: u64,
        acknowledged: &Acknowledged<'_>,
        left: &mut Vec<Left>,
    ) {
        let Acknowledged { number, instance, horizon, latest, waited_ns, missing } = *acknowledged;
        let done = index_of(number, self.first);
        let horizon = position::of_wire(horizon, done);
        let is_possible = instance == self.instance
            && done <= self.first + self.messages.len() as u64
            && horizon <= self.next.max(position(done, 0))
            && position(done, 0) <= self.next
            && self.is_in_line(horizon);
        if !is_possible {
            return;
        }
        self.is_begun = true;
        self.heard_ns = now_ns;
        self.probed_ns = None;
        let mut is_late = self.take_in(done, horizon, missing);
        let latest = position::of_wire(latest, done);
        let newest = self.flight.iter().position(|sent| sent.range.contains(&latest));
        let newest = newest.map(|at| (at, self.flight[at].sent));
        let (delivered_bytes, is_sooner) = self.land(now_ns, newest.map(|(at, _)| at));
        is_late |= is_sooner;
        if is_late {
            // It was sent again for nothing, or would have been: packets are later than thought.
            self.reorder_shift = self.reorder_shift.saturating_sub(1);
        }
        if let Some((_, Sent { sent_ns, .. })) = newest
            && self.newest.is_none_or(|known| known.sent_ns <= sent_ns)
        {
            let took_ns = now_ns.saturating_sub(sent_ns + waited_ns);
            self.newest = Some(Newest { position: latest, sent_ns, took_ns });
        }
        let lost_bytes = self.find_lost(now_ns);
        if delivered_bytes > 0 {
            (self.timeout_from_ns, self.timeouts) = (now_ns, 0);
        }
        let newest = newest.map(|(_, sent)| sent);
        self.flow.on_answer(now_ns, newest, waited_ns, delivered_bytes, lost_bytes);
        self.settle(left);
    }

    /// Whether there is such a position: the end of a message is the beginning of the next.
    fn is_in_line(&self, position: u128) -> bool {
        let (index, place) = position::split(position);
        let of = index.checked_sub(self.first).and_then(|at| self.messages.get(at as usize));
        place == 0 || index < self.first || of.is_some_and(|of| place < of.message.length)
    }

    /// Adds what has come to what is known to have; whether some of it was taken for lost.
    fn take_in(&mut self, done: u64, horizon: u128, missing: MissingStretches<'_>) -> bool {
        let mut is_late = self.add(position(self.first, 0)..position(done, 0));
        let mut from = position(done, 0);
        for [from_number, from_place, to_number, to_place] in missing.iter() {
            let start = Position { number: from_number, place: from_place };
            let end = Position { number: to_number, place: to_place };
            let gap = position::of_wire(start, done)..position::of_wire(end, done);
            let is_in_line = self.is_in_line(gap.start) && self.is_in_line(gap.end);
            if gap.start < from || gap.end <= gap.start || horizon < gap.end || !is_in_line {
                return is_late;
            }
            is_late |= self.add(from..gap.start);
            from = gap.end;
        }
        is_late | self.add(from..horizon)
    }

    fn add(&mut self, range: Range<u128>) -> bool {
        if range.is_empty() {
            return false;
        }
        let is_wanted = |late: &Range<u128>| {
            let (index, _) = position::split(late.start);
            let at = index.checked_sub(self.first).map(|at| at as usize);
            at.and_then(|at| self.messages.get(at)).is_some_and(|of| of.cancelled.is_none())
        };
        let is_late = self.lost.within(&range).any(is_wanted);
        self.lost.remove(&range);
        self.came.add(range);
        is_late
    }

    /// Takes out of flight what has come; how many bytes, and whether some came sooner than it can have after it
    /// was sent again. Nothing behind `newest` has come, if that is known.
    fn land(&mut self, now_ns: u64, newest: Option<usize>) -> (u64, bool) {
        let upto = newest.map_or(self.flight.len(), |at| at + 1);
        let soon_ns = self.flow.rtt().min_ns().unwrap_or(0) / 4 * 3;
        let first = position(self.first, 0);
        let (mut delivered_bytes, mut is_sooner) = (0, false);
        let mut kept = Vec::new();
        for flying in self.flight.drain(..upto) {
            let mut gaps = gaps_of(&self.came, first, &flying.range).peekable();
            if gaps.peek() == Some(&flying.range) {
                kept.push(flying);
                continue;
            }
            is_sooner |= flying.sent.is_again && now_ns - flying.sent.sent_ns < soon_ns;
            let mut left_bytes = 0;
            for range in gaps {
                let (index, _) = position::split(range.start);
                let at = (index - self.first) as usize;
                let length = self.messages.get(at).map_or(0, |of| of.message.length);
                let wire_bytes = u64::from(bytes_of(&range, length).len() as u32) + IP_UDP_BYTES;
                left_bytes += wire_bytes;
                kept.push(InFlight { range, wire_bytes, sent: flying.sent });
            }
            delivered_bytes += flying.wire_bytes.saturating_sub(left_bytes);
        }
        for flying in kept.into_iter().rev() {
            self.flight.push_front(flying);
        }
        self.flow.on_landed(delivered_bytes);
        (delivered_bytes, is_sooner)
    }

    fn reorder_ns(&self) -> u64 {
        let rtt_ns = self.flow.rtt().smoothed_ns().unwrap_or(RTO_NS_UNKNOWN);
        (rtt_ns >> self.reorder_shift).max(REORDER_NS_MIN)
    }

    /// What was sent before the newest that came, and is overdue, is lost; how many bytes.
    fn find_lost(&mut self, now_ns: u64) -> u64 {
        self.reorder_due_ns = None;
        let Some(newest) = self.newest else { return 0 };
        let patience_ns = newest.took_ns + self.reorder_ns();
        let mut lost_bytes = 0;
        let is_before = |flying: &InFlight| {
            let sent_ns = flying.sent.sent_ns;
            sent_ns < newest.sent_ns
                || sent_ns == newest.sent_ns && flying.range.start < newest.position
        };
        let upto = self.flight.partition_point(is_before);
        let mut at = 0;
        for _ in 0..upto {
            let due_ns = self.flight[at].sent.sent_ns + patience_ns;
            if due_ns > now_ns {
                self.reorder_due_ns = Some(self.reorder_due_ns.map_or(due_ns, |ns| ns.min(due_ns)));
                at += 1;
                continue;
            }
            let Some(gone) = self.flight.remove(at) else { break };
            lost_bytes += gone.wire_bytes;
            self.lose(gone.range);
        }
        self.flow.on_landed(lost_bytes);
        lost_bytes
    }

    fn lose(&mut self, range: Range<u128>) {
        for gap in gaps_of(&self.came, position(self.first, 0), &range) {
            self.lost.add(gap);
        }
    }

    /// Messages that are over: those that have come from the first on.
    fn settle(&mut self, left: &mut Vec<Left>) {
        while !self.messages.is_empty() && self.came.covers(&all_of(self.first)) {
            let Some(Outstanding { message, cancelled }) = self.messages.pop_front() else { break };
            if let Some(ns) = message.deadline_ns {
                self.deadlines.remove(&(ns, self.first));
            }
            self.first += 1;
            if cancelled.is_none() {
                left.extend(message.left(self.peer, Ok(())));
            }
        }
        let first = position(self.first, 0);
        self.came.remove_below(first);
        self.lost.remove_below(first);
    }

    /// The peer refuses a message.
    pub(crate) fn on_refused(&mut self, number: u32, reason: ControlReason, left: &mut Vec<Left>) {
        self.give_up(index_of(number, self.first), reason, Failure::Peer(reason), left);
    }

    fn give_up(
        &mut self,
        index: u64,
        reason: ControlReason,
        failure: Failure,
        left: &mut Vec<Left>,
    ) {
        let at = index.checked_sub(self.first).map(|at| at as usize);
        let Some(outstanding) = at.and_then(|at| self.messages.get_mut(at)) else { return };
        if outstanding.cancelled.is_some() {
            return;
        }
        outstanding.cancelled = Some(reason);
        if let Some(ns) = outstanding.message.deadline_ns {
            self.deadlines.remove(&(ns, index));
        }
        left.extend(outstanding.message.left(self.peer, Err(failure)));
        outstanding.message.data = Data::Buffer(Vec::new().into());
        // What was sent of it is followed by the word; what was not is the word.
        let range = all_of(index);
        if self.next > range.start {
            self.lose(range.clone());
            self.next = self.next.max(range.end);
        }
    }

    /// When [`StreamOut::on_timeout`] is to be called.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        let resend_ns = (!self.flight.is_empty()).then(|| self.timeout_from_ns + self.rto_ns());
        let deadline_ns = self.deadlines.first().map(|(ns, _)| *ns);
        [resend_ns, deadline_ns, self.reorder_due_ns].into_iter().flatten().min()
    }

    fn rto_ns(&self) -> u64 {
        let rtt = self.flow.rtt();
        let rto_ns = match rtt.smoothed_ns() {
            Some(smoothed_ns) => (smoothed_ns + 4 * rtt.variance_ns()).max(RTO_NS_MIN),
            None => RTO_NS_UNKNOWN,
        };
        (rto_ns << self.timeouts.min(8)).min(RTO_NS_MAX)
    }

    /// Time has passed.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, left: &mut Vec<Left>) {
        while let Some((_, index)) = self.deadlines.first().copied().filter(|(ns, _)| *ns <= now_ns)
        {
            self.deadlines.pop_first();
            self.give_up(index, ControlReason::Deadline, Failure::Deadline, left);
        }
        if self.reorder_due_ns.is_some_and(|ns| ns <= now_ns) {
            let lost_bytes = self.find_lost(now_ns);
            self.flow.on_answer(now_ns, None, 0, 0, lost_bytes);
        }
        if self.flight.is_empty() || self.timeout_from_ns + self.rto_ns() > now_ns {
            return;
        }
        // The oldest again, to learn what is lost; the second time nothing is believed to be under way.
        let gone = if self.timeouts == 0 { 1 } else { self.flight.len() };
        let mut lost_bytes = 0;
        for flying in self.flight.drain(..gone).collect::<Vec<_>>() {
            lost_bytes += flying.wire_bytes;
            self.lose(flying.range);
        }
        self.flow.on_landed(lost_bytes);
        self.flow.on_answer(now_ns, None, 0, 0, lost_bytes);
        self.timeouts += 1;
        self.timeout_from_ns = now_ns;
    }

    /// Everything is given up.
    pub(crate) fn fail(&mut self, failure: Failure, left: &mut Vec<Left>) {
        for Outstanding { message, cancelled } in self.messages.drain(..) {
            if cancelled.is_none() {
                left.extend(message.left(self.peer, Err(failure)));
            }
        }
        self.deadlines.clear();
        self.flight.clear();
        self.flow.on_given_up();
        (self.came, self.lost) = Default::default();
        self.next = position(self.first, 0);
    }
}

/// What has not come of a range. All before the first message has.
fn gaps_of(
    came: &Ranges<u128>,
    first: u128,
    range: &Range<u128>,
) -> impl Iterator<Item = Range<u128>> + use<> {
    came.gaps(&(range.start.max(first)..range.end))
}

fn wire_bytes_of(run: &Run) -> u64 {
    (0..run.len()).map(|at| run.packet_bytes(at) as u64 + IP_UDP_BYTES).sum()
}
