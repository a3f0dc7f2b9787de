//! Assigns sends to the peer's receives, and builds their messages.
//!
//! A send is *assigned* when its receive is posted: its messages get their numbers, in the order of
//! the sends. The messages are *built* (the state machine of the mode, and the segment that packets
//! are cut from) only when a channel has nothing else left to send. With a thousand queue pairs that
//! send a megabyte each, building all at once would write memory that has left the caches by the
//! time it is the queue pair's turn.
//!
//! Invariants: messages are built in the order of their numbers; while a send is assigned and not
//! built, every channel has something queued, unless the send before is offered part by
//! part (`offers.rs`).

use super::super::encode::Encoder;
use super::super::error::{PostSendError, SendFailure};
use super::super::outgoing::Outgoing;
use super::super::peer_receives::NextReceive;
use super::super::queues::Position;
use super::super::transmit::Segment;
use super::super::user_send::{SendId, SendRequest};
use super::{SendSide, Target};
use lacuna_place::buffer::SendBuffer;
use lacuna_place::geometry::Geometry;
use lacuna_place::prefetch::prefetch_value;
use std::collections::VecDeque;
use std::sync::Arc;

/// Sends whose messages have numbers and are not built yet, in order, with their first number.
#[derive(Debug, Default)]
pub(super) struct Assigned {
    sends: VecDeque<(SendId, SendRequest, u64)>,
    packets: u64,
}

impl Assigned {
    pub(super) fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// Packets of all of them.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    fn push(&mut self, geometry: &Geometry, id: SendId, request: SendRequest, first: u64) {
        self.packets += packets(geometry, &request);
        self.sends.push_back((id, request, first));
    }

    /// Takes the first send, if its messages begin before number `end`.
    fn pop_before(&mut self, geometry: &Geometry, end: u64) -> Option<(SendId, SendRequest, u64)> {
        self.sends.front().filter(|(.., first)| *first < end)?;
        let send = self.sends.pop_front()?;
        self.packets -= packets(geometry, &send.1);
        if let Some(next) = self.sends.front() {
            prefetch_value(next);
        }
        Some(send)
    }
}

/// Packets of a send, at least one.
fn packets(geometry: &Geometry, request: &SendRequest) -> u64 {
    (request.data.len() as u64).div_ceil(u64::from(geometry.mtu_bytes())).max(1)
}

impl SendSide {
    /// The peer's receive for the next send.
    pub(crate) fn next_receive(&mut self) -> Result<NextReceive, PostSendError> {
        let receive = self.peek_receive().filter(|_| self.waiting.is_empty());
        self.wants_receive = receive.is_none();
        receive.ok_or_else(|| self.unposted())
    }

    pub(crate) fn unposted(&self) -> PostSendError {
        PostSendError::Unposted { number: self.next_number, posted: self.peer_receives.posted() }
    }

    /// The peer's receive for a send of this length, if it is next. A write takes as many receives as it
    /// has slots' worth of data.
    #[inline]
    pub(super) fn receive_for(&self, len_bytes: u64) -> Option<NextReceive> {
        let receive = self.peer_receives.next_receive(self.next_number)?;
        if !self.is_one_sided {
            return Some(receive);
        }
        let end = receive.first + self.geometry.slots_for(len_bytes);
        let capacity_bytes = u64::MAX;
        (end <= self.peer_receives.posted()).then_some(NextReceive { capacity_bytes, ..receive })
    }

    pub(super) fn assign_waiting(&mut self) {
        if self.pairs_in_order {
            return self.assign_in_order();
        }
        while let Some(len_bytes) = self.waiting.first_len_bytes() {
            let Some(receive) = self.receive_for(len_bytes) else { return };
            let Some((id, request)) = self.waiting.pop() else { return };
            self.assign_if_fits(id, request, receive);
        }
    }

    pub(super) fn assign_if_fits(
        &mut self,
        id: SendId,
        request: SendRequest,
        receive: NextReceive,
    ) {
        let NextReceive { capacity_bytes, .. } = receive;
        let len_bytes = request.data.len() as u64;
        if len_bytes > capacity_bytes {
            self.settle(id, Err(SendFailure::TooLong { len_bytes, capacity_bytes }));
        } else {
            self.assign(id, request, receive);
        }
    }

    pub(super) fn assign(&mut self, id: SendId, request: SendRequest, receive: NextReceive) {
        let count = self.geometry.slots_for(request.data.len() as u64);
        self.take_numbers(id, receive.first, count);
        // The common case: build the send without moving it into the list and out again.
        if self.assigned.is_empty() && self.queues.has_empty() && !self.holds_back() {
            self.build(id, request, receive.first);
        } else {
            self.assigned.push(&self.geometry, id, request, receive.first);
        }
    }

    pub(super) fn take_numbers(&mut self, id: SendId, first: u64, count: u64) {
        self.next_number = first + count;
        if let Some(send) = self.sends.get_mut(id) {
            send.start(first, count);
        }
        if !self.offers.is_empty() && self.offers.is_open(id) {
            self.growing.push((first, id));
        }
    }

    /// Builds messages until each channel has something to send. To be called when a queue has
    /// become shorter.
    #[inline]
    pub(super) fn build_next(&mut self) {
        while !self.assigned.is_empty() && self.queues.has_empty() && !self.holds_back() {
            self.build_first(u64::MAX);
        }
    }

    /// Builds the messages before number `end`, because a later step needs them.
    pub(super) fn build_before(&mut self, end: u64) {
        while self.build_first(end) {}
    }

    fn build_first(&mut self, end: u64) -> bool {
        let first = self.assigned.pop_before(&self.geometry, end);
        let Some((id, request, number)) = first else { return false };
        self.build(id, request, number);
        true
    }

    fn build(&mut self, id: SendId, request: SendRequest, first: u64) {
        // Needed when the last packet of the send is polled.
        self.sends.prefetch(id);
        let target = self.writes.take(id);
        let SendRequest { mut data, mut immediate, .. } = request;
        let slot_bytes = self.geometry.max_message_bytes() as usize;
        let last = first + self.geometry.slots_for(data.len() as u64) - 1;
        // The immediate travels with the first slot, the end with the last.
        let at = |number: u64| Some(target?.at((number - first) * slot_bytes as u64));
        for number in first..last {
            let full = data.split_to(slot_bytes).expect("slots_for divides the length");
            // Of a write, the last message tells the peer's application.
            let immediate = if target.is_some() { None } else { immediate.take() };
            self.build_message(id, number, full, None, immediate, at(number));
        }
        let end_bytes = Some(data.len() as u64);
        self.build_message(id, last, data, end_bytes, immediate, at(last));
    }

    fn build_message(
        &mut self,
        id: SendId,
        number: u64,
        data: SendBuffer,
        end_bytes: Option<u64>,
        immediate: Option<u32>,
        target: Option<Target>,
    ) {
        let len_bytes = data.len() as u64;
        let encoder = self.codec.clone().map(Encoder::new);
        let segment = self.segment(number, data, (0, end_bytes), immediate, encoder, target);
        let machine = self.mode.sender(segment.shape());
        // In this order the values are not moved; each move would be a copy.
        let outgoing = self.messages.push(number, Outgoing::new(id, machine, segment, len_bytes));
        if self.offers.is_empty() {
            outgoing.enqueue_runs(&mut self.queues, Position::Last);
        } else {
            self.withhold(id, number);
            self.collect_runs(number, Position::Last);
        }
    }

    #[inline]
    pub(super) fn segment(
        &self,
        number: u64,
        data: SendBuffer,
        (first_packet, message_end): (u32, Option<u64>),
        immediate: Option<u32>,
        encoder: Option<Encoder>,
        target: Option<Target>,
    ) -> Arc<Segment> {
        let (peer_queue_pair, rkey) = self.peer.expect("checked when the send was taken");
        Arc::new(Segment {
            geometry: self.geometry,
            number,
            data,
            first_packet,
            message_end,
            immediate,
            peer_queue_pair,
            rkey,
            target,
            encoder,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes::{Mode, auto};
    use lacuna_path::controller::{ControllerConfig, Setup};
    use lacuna_path::{Path, RtoConfig};
    use lacuna_place::geometry::GeometryConfig;
    use lacuna_wire::{Ack, Receives, Run, RunList, U64List};

    /// With `posted` receives of a megabyte, and as many sends that fill them.
    fn send_side(channels: u8, posted: u32) -> (SendSide, Vec<SendId>) {
        let geometry = GeometryConfig { channels, ..GeometryConfig::default() };
        let geometry = Geometry::new(geometry).unwrap();
        let mut side = SendSide::new(geometry, Mode::SR, auto::plan, None);
        side.connect(1, 2);
        let run = Run { count: posted, capacity_bytes: 1 << 20, continues: false };
        side.on_receives(&Receives {
            base: 0,
            posted: posted.into(),
            finished: &[],
            failed_from: 0,
            failed: U64List::from_values(&[]),
            runs: RunList::from_runs(&[run]),
        });
        let data = SendBuffer::from(vec![0; 1 << 20]);
        let request = SendRequest { data, immediate: None, deadline_ns: None };
        let ids = (0..posted).map(|_| side.queue(request.clone()).unwrap()).collect();
        (side, ids)
    }

    #[test]
    fn messages_are_built_when_nothing_else_is_left_to_send() {
        let (mut side, _) = send_side(1, 100);
        assert_eq!(side.started(), 100, "they have their numbers");
        for left in (0..100).rev() {
            assert_eq!(side.assigned.sends.len(), left);
            assert_eq!(side.assigned.packets(), left as u64 * 256);
            assert_eq!(side.queued_packets_on(0, u32::MAX), (left as u32 + 1) * 256);
            assert!(!side.is_near_end((left as u64 + 1) << 20));
            assert!(side.is_near_end((left as u64 + 2) << 20));
            let taken = side.queues.take(0, 256).unwrap();
            assert_eq!((taken.segment.number, taken.is_last), (99 - left as u64, true));
            side.build_next();
        }
        assert!(!side.has_queued());
    }

    #[test]
    fn no_channel_runs_dry_while_messages_wait() {
        let (mut side, _) = send_side(4, 100);
        while !side.assigned.is_empty() {
            for channel in 0..4 {
                assert!(side.has_queued_on(usize::from(channel)));
                // A stripe of each message is the channel's.
                while side.queues.take(channel, 64).is_some_and(|taken| !taken.is_last) {}
                side.build_next();
            }
        }
        assert!(side.assigned.packets() == 0 && side.has_queued());
    }

    #[test]
    fn cancelling_all_that_is_queued_builds_the_next_send() {
        let (mut side, ids) = send_side(1, 3);
        side.cancel(0, ids[0]);
        assert_eq!(side.queues.take(0, 256).unwrap().segment.number, 1);
    }

    #[test]
    fn dropping_the_only_queued_repair_builds_the_next_send() {
        let (mut side, ids) = send_side(1, 3);
        let first = side.queues.take(0, 256).unwrap();
        side.build_next();
        side.enqueue(&first.segment, &(0..16), Position::Repair);
        // The repair is all that is queued now, and then it is acknowledged.
        side.cancel(0, ids[1]);
        let ack = Ack {
            message: 0,
            cumulative: 16,
            immediate_fragments: 0,
            truncated: false,
            skipped_bytes: 0,
            chunks: &[],
        };
        side.on_ack(1, &ack);
        let bbr = ControllerConfig::Bbr.build(Setup { packet_bytes: 4164, seed: 0 });
        let path = Path::new(1, 0, bbr, RtoConfig::default());
        assert_eq!(side.next_packets(0, &path), 256);
        assert_eq!(side.queues.take(0, 256).unwrap().segment.number, 2);
    }
}
