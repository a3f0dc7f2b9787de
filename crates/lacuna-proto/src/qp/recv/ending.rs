//! When receives are over: their deadlines, the grace of those that end with gaps, and the reasons.
//!
//! A *receive* is what the application posted, a *slot* a part of it with a message number of its own.
//! Receives are known by the message number of their first slot, their *head*. Of a receive that is over with a gap, the slots are closed here,
//! under the queue pair's lock, so that late packets write nothing and change no record. (Closing waits
//! for a worker that is placing into the slot; workers never wait for this lock with a slot pinned.) A
//! whole receive is left to the application to close: nothing writes below set bits.
//!
//! In a bounded mode a receive may end by what was heard ([`Watch`](crate::modes::bounded::Watch)); the
//! verdict is carried out after the receive's grace, and later as long as packets still come.

use super::{Grace, Incoming, PostedReceive, RecvOptions, RecvSide, State};
use crate::modes::bounded::Span;
use lacuna_place::reason::Reason;
use std::ops::Range;

/// A receive as the application posted it; kept with its first slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Posting {
    slots: u32,
    /// Slots that have to be complete: all, or up to that in which the message ends.
    needed: u32,
    /// Slots that are complete.
    done: u32,
    over: Option<Reason>,
    /// Its end is to be told.
    notifies: bool,
}

impl Posting {
    pub(super) fn new(slots: u32, notifies: bool) -> Self {
        Self { slots, needed: slots, done: 0, over: None, notifies }
    }

    /// Why it is over, if it is.
    pub(super) fn reason(&self) -> Option<Reason> {
        self.over
    }
}

/// What only few open receives have: a deadline, a grace of their own, or an end that has begun.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Special {
    options: RecvOptions,
    closing: Option<Closing>,
}

/// What happens to a receive when its grace has passed.
#[derive(Debug, Clone, Copy)]
struct Closing {
    verdict: Reason,
    due_ns: u64,
    /// Packets that were here when the grace began.
    packets: u64,
}

/// Counters of receives that are over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndStats {
    /// Receives by [`Reason::index`].
    pub receives: [u64; Reason::ALL.len()],
    /// Bytes that were missing when receives ended. The length of a message whose end did not arrive is
    /// taken to be that of the buffer.
    pub missing_bytes: u64,
    /// Packets that arrived within the grace of receives: a grace of 0 would have lost them.
    pub graced_packets: u64,
    /// Message numbers came round again sooner than four round trips, or than packets are late: an old
    /// packet could have been taken for a new one.
    pub quick_wraps: u64,
}

impl RecvSide {
    /// Notes what is special of the receive that begins with message `head`.
    pub(super) fn add_options(&mut self, head: u64, options: RecvOptions) {
        self.special.insert(head, Special { options, closing: None });
        if let Some(deadline_ns) = options.deadline_ns {
            self.deadlines.push(deadline_ns, head);
        }
    }

    fn posting(&self, head: u64) -> Option<&Posting> {
        self.entry(head).map(|incoming| &incoming.posting)
    }

    pub(super) fn is_open(&self, head: u64) -> bool {
        self.posting(head).is_some_and(|posting| posting.over.is_none())
    }

    /// The first message of the receive that message `number` is for.
    fn head_of(&self, number: u64) -> Option<u64> {
        self.entry(number).map(|incoming| number - u64::from(incoming.index))
    }

    /// A slot of the receive that begins with `head` is complete; `ends` if the message ends in it.
    #[inline]
    pub(super) fn on_slot_complete(&mut self, head: u64, number: u64, ends: bool) {
        let Some(Incoming { posting, .. }) = self.entry_mut(head) else { return };
        posting.done += 1;
        if ends {
            posting.needed = posting.needed.min((number + 1 - head) as u32);
        }
        if posting.done >= posting.needed {
            self.over(head, Reason::Whole);
        }
    }

    /// Notes that a receive is over.
    #[inline]
    fn over(&mut self, head: u64, reason: Reason) {
        let Some(Incoming { posting, receive, .. }) = self.entry_mut(head) else { return };
        if posting.over.is_some() {
            return;
        }
        posting.over = Some(reason);
        let (slots, notifies) = (posting.slots, posting.notifies);
        if let Some(receive) = receive {
            receive.end_by(reason);
        }
        self.open -= 1;
        if notifies {
            self.ended.push_back(head);
        }
        if let Some(unbound) = &mut self.unbound {
            unbound.on_over(head);
        }
        self.ends.receives[reason.index()] += 1;
        if head == self.open_from {
            self.open_from += u64::from(slots);
            self.skip_ended();
        }
        if !self.special.is_empty() || !self.deadlines.is_empty() {
            self.forget_special(head);
        }
    }

    /// Moves `open_from` to the next open receive.
    fn skip_ended(&mut self) {
        while let Some(Posting { slots, over: Some(_), .. }) = self.posting(self.open_from) {
            self.open_from += u64::from(*slots);
        }
    }

    /// Forgets what was special of a receive that is over.
    fn forget_special(&mut self, head: u64) {
        if let Some(Special { closing: Some(closing), .. }) = self.special.remove(&head) {
            let packets = self.placed_packets(head);
            self.ends.graced_packets += packets.saturating_sub(closing.packets);
        }
        let mut deadlines = std::mem::take(&mut self.deadlines);
        deadlines.tidy(self.open, |head| self.is_open(head));
        self.deadlines = deadlines;
    }

    fn is_closing(&self, head: u64) -> bool {
        self.special.get(&head).is_some_and(|special| special.closing.is_some())
    }

    /// The slots of a receive.
    pub(super) fn numbers(&self, head: u64) -> Range<u64> {
        let slots = self.posting(head).map_or(0, |posting| posting.slots);
        head..head + u64::from(slots)
    }

    fn placed_packets(&self, head: u64) -> u64 {
        let records = self.numbers(head).filter_map(|n| self.entry(n)?.receive.as_ref());
        records.map(|receive| u64::from(receive.record().placed_packets())).sum()
    }

    /// Ends a receive that is not whole: closes its slots, so that its record stays as it is.
    pub(super) fn end(&mut self, head: u64, reason: Reason) {
        if !self.is_open(head) {
            return;
        }
        let (table, is_one_sided) = (self.table.clone(), self.is_one_sided());
        let mut missing_bytes = 0;
        let mut is_whole = true;
        let mut is_behind_end = false;
        for number in self.numbers(head) {
            table.close(number);
            let Some(incoming) = self.entry(number) else { continue };
            let (receive, is_open) = (incoming.receive.clone(), incoming.state == State::Open);
            if let Some(record) = receive.as_ref().map(|receive| receive.record())
                && !is_behind_end
            {
                let length = record.length_bytes();
                // How much a write to a region would be is known only by its end.
                let capacity = || if is_one_sided { 0 } else { record.capacity_bytes() };
                let expected = length.unwrap_or_else(capacity);
                missing_bytes += expected.saturating_sub(record.placed_bytes());
                is_whole &= record.is_complete();
                is_behind_end = length.is_some();
            }
            if is_open {
                self.finish(number);
                if receive.is_none_or(|receive| !receive.record().is_complete()) {
                    self.note_failed(number);
                }
            }
        }
        self.ends.missing_bytes += missing_bytes;
        self.advance();
        // The last packets may have come just before the slots were closed.
        self.over(head, if is_whole { Reason::Whole } else { reason });
    }

    /// The application has closed a receive, which ends it if it was not over.
    pub(super) fn on_given_back(&mut self, posted: &PostedReceive) {
        if self.is_open(posted.first) {
            let is_complete = posted.is_complete();
            self.over(posted.first, if is_complete { Reason::Whole } else { Reason::Cancelled });
        }
    }

    /// Ends all receives because the queue pair has failed. The application closes them.
    pub(super) fn end_all(&mut self) {
        let mut head = self.open_from;
        while let Some(Posting { slots, .. }) = self.posting(head).copied() {
            self.over(head, Reason::Failed);
            head += u64::from(slots);
        }
    }

    // ---- bounded modes ----

    /// Packets of the messages `low..=high` were placed on a channel. Ends those receives, or begins
    /// their grace, of which nothing more can come. Returns whether any ended.
    #[inline]
    pub(super) fn judge_touched(
        &mut self,
        now_ns: u64,
        channel: u8,
        high: u64,
        grace_ns: u64,
    ) -> bool {
        if self.watch.is_none() {
            return false;
        }
        let Some(ordinal) = self.entry(high).map(|incoming| incoming.ordinal) else { return false };
        let Some(watch) = &mut self.watch else { return false };
        watch.on_packet(channel, high, ordinal);
        self.reach = self.reach.max(high + 1);
        self.judge(now_ns, grace_ns)
    }

    /// The sender said on a channel that it has sent everything of the messages before `before`.
    /// Returns whether any receive ended.
    pub(crate) fn on_word(&mut self, now_ns: u64, channel: u8, before: u64, grace_ns: u64) -> bool {
        let before = before.min(self.posted);
        let Some(watch) = &mut self.watch else { return false };
        if !watch.on_word(channel, before) {
            return false;
        }
        self.reach = self.reach.max(before);
        self.judge(now_ns, grace_ns)
    }

    /// Judges the open receives of messages that have begun.
    fn judge(&mut self, now_ns: u64, path_grace_ns: u64) -> bool {
        let mut any = false;
        let mut next = self.open_from;
        while let Some(Posting { slots, .. }) = self.posting(next).filter(|_| next < self.reach) {
            let head = next;
            next += u64::from(*slots);
            let Some(span) = self.span(head) else { continue };
            let Some(verdict) = self.watch.as_ref().and_then(|watch| watch.verdict(&span)) else {
                continue;
            };
            any |= self.close_after_grace(now_ns, head, verdict, path_grace_ns);
        }
        any
    }

    /// Begins the grace of a receive. Returns whether it ended at once, because it has none.
    fn close_after_grace(
        &mut self,
        now_ns: u64,
        head: u64,
        verdict: Reason,
        path_grace_ns: u64,
    ) -> bool {
        let packets = self.placed_packets(head);
        let mut special = self.special.get(&head).copied().unwrap_or_default();
        let grace_ns = special.options.grace.or_path_ns(path_grace_ns);
        if grace_ns == 0 {
            self.end(head, verdict);
            return true;
        }
        let due_ns = now_ns.saturating_add(grace_ns);
        special.closing = Some(Closing { verdict, due_ns, packets });
        self.special.insert(head, special);
        self.deadlines.push(due_ns, head);
        false
    }

    /// What is judged of an open receive whose grace has not begun.
    fn span(&self, head: u64) -> Option<Span> {
        if !self.is_open(head) || self.is_closing(head) {
            return None;
        }
        let geometry = &self.geometry;
        let mut span = Span {
            first: head,
            last: self.numbers(head).end - 1,
            ordinal: self.entry(head)?.ordinal,
            ended_on: None,
            goes_on: geometry.layout().is_some(),
            channels: 0,
        };
        for number in head..=span.last {
            let Some(receive) = &self.entry(number)?.receive else { continue };
            let slot = geometry.slot_of(number);
            let record = receive.record();
            let length = record.length_bytes();
            let most = match receive.is_unbound() {
                true => geometry.max_message_bytes(),
                false => record.capacity_bytes(),
            };
            let packets = geometry.packets(length.unwrap_or(most));
            // Empty packets with fragments of the immediate may follow the data.
            let fragments = geometry.split().fragments();
            span.channels |= geometry.channels_of(slot, packets.max(fragments));
            if length.is_some() {
                span.last = number;
                span.ended_on = Some(geometry.channel_of(slot, packets - 1));
                span.goes_on |= record.awaits_immediate();
                break;
            }
        }
        Some(span)
    }

    // ---- time ----

    /// When [`RecvSide::on_timeout`] wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.deadlines.next_ns()
    }

    /// Ends receives whose deadline or grace has passed. Returns whether any ended.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, path_grace_ns: u64) -> bool {
        let mut any = false;
        while let Some(head) = self.deadlines.pop_due(now_ns) {
            // Only open receives have an entry.
            let Some(Special { options, closing }) = self.special.get(&head).copied() else {
                continue;
            };
            let is_overdue = options.deadline_ns.is_some_and(|due_ns| due_ns <= now_ns);
            if is_overdue {
                self.end(head, Reason::Deadline);
                any = true;
                continue;
            }
            let Some(closing) = closing.filter(|closing| closing.due_ns <= now_ns) else {
                continue;
            };
            // While packets still come the path reorders more than the grace knew.
            let grace_ns = options.grace.or_path_ns(path_grace_ns);
            let records = self.numbers(head).filter_map(|n| self.entry(n)?.receive.as_ref());
            let last_ns = records.filter_map(|receive| receive.last_arrival_ns()).max();
            match last_ns.map(|last_ns| last_ns + grace_ns).filter(|due_ns| *due_ns > now_ns) {
                Some(due_ns) => {
                    let closing = Some(Closing { due_ns, ..closing });
                    self.special.insert(head, Special { options, closing });
                    self.deadlines.push(due_ns, head);
                }
                None => {
                    self.end(head, closing.verdict);
                    any = true;
                }
            }
        }
        any
    }

    /// The sender has given up a message. In a bounded mode its last packets may still come.
    pub(super) fn end_cancelled(&mut self, now_ns: u64, number: u64, path_grace_ns: u64) {
        let Some(head) = self.head_of(number) else { return };
        if self.watch.is_none() {
            self.end(head, Reason::Cancelled);
        } else if !self.is_closing(head) {
            self.close_after_grace(now_ns, head, Reason::Cancelled, path_grace_ns);
        }
    }
}

impl Grace {
    fn or_path_ns(self, path_ns: u64) -> u64 {
        match self {
            Self::Path => path_ns,
            Self::Fixed { ns } => ns,
        }
    }
}
