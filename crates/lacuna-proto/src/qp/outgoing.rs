//! The table of messages in flight, each with the machine of its mode. It orders their timeouts, and
//! repeats Cancel frames for messages that were cancelled.

use super::queues::{Position, Queues};
use super::send::Withheld;
use super::transmit::Segment;
use super::user_send::SendId;
use crate::modes::SendMachine;
use lacuna_wire::{Cancel, CancelReason};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Most Cancel frames in one packet; that many always fit.
const CANCELS_PER_PACKET_MAX: usize = 32;

/// A message in flight.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) send: SendId,
    pub(super) machine: SendMachine,
    /// Data of the message; a stream brings its segments one by one.
    pub(super) segment: Option<Arc<Segment>>,
    /// Entries of this message in the channels' queues.
    pub(super) queued: u32,
    pub(super) injected: bool,
    pub(super) len_bytes: u64,
    /// Set once the message was cancelled: Cancel frames are sent until the peer has closed its
    /// receive.
    pub(super) cancelled: Option<CancelReason>,
    /// Runs that wait for their bytes, if the send is offered part by part.
    pub(super) withheld: Option<Box<Withheld>>,
    /// Entry of this message in `Messages::timers`.
    timer_ns: Option<u64>,
}

impl Outgoing {
    #[inline]
    pub(super) fn new(
        send: SendId,
        machine: SendMachine,
        segment: Arc<Segment>,
        len_bytes: u64,
    ) -> Self {
        Self {
            send,
            machine,
            segment: Some(segment),
            queued: 0,
            injected: false,
            len_bytes,
            cancelled: None,
            withheld: None,
            timer_ns: None,
        }
    }

    /// Moves the runs that the machine wants sent to the channels' queues, or withholds them.
    #[inline]
    pub(super) fn enqueue_runs(&mut self, queues: &mut Queues, position: Position) {
        let Some(segment) = &self.segment else { return };
        while let Some(packets) = self.machine.poll_transmit() {
            match &mut self.withheld {
                None => self.queued += queues.push(segment, &packets, position),
                Some(withheld) => withheld.add(&packets),
            }
        }
    }
}

/// Messages in flight.
#[derive(Debug, Default)]
pub(super) struct Messages {
    /// In order of their numbers. Messages start in this order, and mostly end in it, so lookups are
    /// mostly at the front.
    by_number: VecDeque<(u64, Outgoing)>,
    /// Timeouts of the machines, with message numbers; the next one first.
    timers: BTreeSet<(u64, u64)>,
    cancel_due_ns: Option<u64>,
    /// Message with which the next packet of Cancel frames begins.
    cancel_next: u64,
}

impl Messages {
    pub(super) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Index of a message.
    fn position(&self, number: u64) -> Option<usize> {
        let first = self.by_number.front()?.0;
        let near = usize::try_from(number.checked_sub(first)?).ok()?;
        // Mostly no message in between is missing.
        if self.by_number.get(near).is_some_and(|(found, _)| *found == number) {
            return Some(near);
        }
        self.by_number.binary_search_by_key(&number, |(found, _)| *found).ok()
    }

    /// The caller calls [`Messages::update_timer`] if the machine's timeout may have changed.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Outgoing> {
        self.position(number).map(|at| &mut self.by_number[at].1)
    }

    /// Messages of a send, by their numbers.
    pub(super) fn of(&self, numbers: &Range<u64>) -> impl Iterator<Item = &Outgoing> {
        let start = self.by_number.partition_point(|(number, _)| *number < numbers.start);
        let from = self.by_number.range(start..);
        let end = numbers.end;
        from.take_while(move |(number, _)| *number < end).map(|(_, outgoing)| outgoing)
    }

    /// The first message with one of these numbers, and its index.
    #[inline]
    pub(super) fn first_of(&self, numbers: Range<u64>) -> Option<(usize, u64)> {
        let is_before = |(number, _): &(u64, Outgoing)| *number < numbers.start;
        // Mostly it is the first message of all.
        let at = match self.by_number.front() {
            Some(first) if is_before(first) => self.by_number.partition_point(is_before),
            _ => 0,
        };
        let (number, _) = self.by_number.get(at)?;
        numbers.contains(number).then_some((at, *number))
    }

    /// Adds a message with a higher number than all before it.
    #[inline]
    pub(super) fn push(&mut self, number: u64, outgoing: Outgoing) -> &mut Outgoing {
        debug_assert!(self.by_number.back().is_none_or(|(last, _)| *last < number));
        self.by_number.push_back((number, outgoing));
        self.by_number.back_mut().map(|(_, outgoing)| outgoing).expect("pushed just now")
    }

    /// Removes the message with this index ([`Messages::first_of`]), and returns it with its number. (Both,
    /// because taking them apart would be a copy.)
    #[inline]
    pub(super) fn remove_at(&mut self, at: usize) -> Option<(u64, Outgoing)> {
        if let Some(due_ns) = self.by_number[at].1.timer_ns {
            self.timers.remove(&(due_ns, self.by_number[at].0));
        }
        match at {
            0 => self.by_number.pop_front(),
            _ => self.by_number.remove(at),
        }
    }

    /// Cancels messages: nothing more of them is sent, and the peer is told.
    pub(super) fn cancel(&mut self, now_ns: u64, numbers: Range<u64>, reason: CancelReason) {
        for number in numbers {
            if let Some(outgoing) = self.get_mut(number) {
                outgoing.cancelled = Some(reason);
                outgoing.segment = None;
                outgoing.withheld = None;
                self.cancel_due_ns = Some(now_ns);
                self.update_timer(number);
            }
        }
    }

    /// Updates the entry in `timers` after a call to a message's machine.
    pub(super) fn update_timer(&mut self, number: u64) {
        let Some(at) = self.position(number) else { return };
        let outgoing = &mut self.by_number[at].1;
        let is_live = outgoing.cancelled.is_none();
        let timer_ns = outgoing.machine.poll_timeout().filter(|_| is_live);
        if timer_ns != outgoing.timer_ns {
            if let Some(due_ns) = outgoing.timer_ns {
                self.timers.remove(&(due_ns, number));
            }
            outgoing.timer_ns = timer_ns;
            self.timers.extend(timer_ns.map(|due_ns| (due_ns, number)));
        }
    }

    /// When [`Messages::due`] or [`Messages::poll_cancels`] has something.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let machine = self.timers.first().map(|(due_ns, _)| *due_ns);
        machine.into_iter().chain(self.cancel_due_ns).min()
    }

    /// A message whose timeout has expired, if there is one.
    pub(super) fn due(&self, now_ns: u64) -> Option<u64> {
        self.timers.first().filter(|timer| timer.0 <= now_ns).map(|(_, number)| *number)
    }

    /// The Cancel frames that are due, at most one packet's worth. They repeat, in rounds over all
    /// cancelled messages, until the peer has closed the receives.
    pub(super) fn poll_cancels(&mut self, now_ns: u64, rto_ns: u64) -> Vec<Cancel> {
        if self.cancel_due_ns.is_none_or(|due| due > now_ns) {
            return Vec::new();
        }
        let next = self.by_number.partition_point(|(number, _)| *number < self.cancel_next);
        let cancels: Vec<Cancel> = self
            .by_number
            .range(next..)
            .filter_map(|(number, outgoing)| {
                outgoing.cancelled.map(|reason| Cancel { message: *number, reason })
            })
            .take(CANCELS_PER_PACKET_MAX)
            .collect();
        match cancels.last() {
            Some(last) if cancels.len() == CANCELS_PER_PACKET_MAX => {
                self.cancel_next = last.message + 1;
                self.cancel_due_ns = Some(now_ns);
            }
            _ => {
                let any = !cancels.is_empty() || self.cancel_next > 0;
                self.cancel_next = 0;
                self.cancel_due_ns = any.then_some(now_ns + rto_ns);
            }
        }
        cancels
    }
}
