//! Sender side of a message with parity: sends each submessage with its parity once. (Without a code
//! the message is sent by `raw`'s sender.)

use crate::modes::{Counts, MessageShape, SentRun};
use lacuna_place::parity::Layout;
use lacuna_wire::Ack;
use std::collections::VecDeque;
use std::ops::Range;

/// Sender of one message.
#[derive(Debug)]
pub struct Sender {
    shape: MessageShape,
    layout: Layout,
    /// Runs of the submessages before `next` that were not sent yet.
    first: VecDeque<Range<u32>>,
    /// Next submessage to send.
    next: u32,
}

impl Sender {
    /// Sends a message of this shape.
    ///
    /// # Panics
    /// If the shape has no parity layout, because the geometry was made without a code.
    pub fn new(shape: MessageShape) -> Self {
        let layout = shape.layout.expect("the geometry of a coded message has a layout");
        Self { shape, layout, first: VecDeque::new(), next: 0 }
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Range<u32>> {
        let packets = self.shape.data_packets;
        if self.first.is_empty() && self.next < self.layout.submessages(packets) {
            let mut data = self.layout.data_of(self.next, packets);
            if data.end == packets {
                // A message with fewer packets than its immediate has fragments ends with empty
                // packets.
                data.end = self.shape.total_packets;
            }
            self.first.push_back(data);
            self.first.extend(self.layout.parity_of(self.next, packets));
            self.next += 1;
        }
        self.first.pop_front()
    }

    pub(crate) fn on_ack(&mut self, _sequence: u64, _ack: &Ack<'_>) {}

    pub(crate) fn on_passed(&mut self, _sequence: u64, _run: SentRun, _rto_ns: u64) {}

    pub(crate) fn on_expired(&mut self, _run: SentRun) {}

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        None
    }

    pub(crate) fn on_timeout(&mut self, _now_ns: u64) -> u64 {
        0
    }

    pub(crate) fn missing(&self, packets: Range<u32>) -> Range<u32> {
        packets
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts::default()
    }

    pub(crate) fn awaits_peer(&self) -> bool {
        false
    }

    pub(crate) fn acked_chunks(&self) -> u32 {
        0
    }
}
