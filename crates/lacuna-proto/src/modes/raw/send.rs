//! Sender side: sends the whole message once.

use crate::modes::{Counts, MessageShape, SentRun};
use lacuna_wire::Ack;
use std::ops::Range;

/// Sender of one message.
#[derive(Debug)]
pub struct Sender {
    first: Option<Range<u32>>,
}

impl Sender {
    /// Sends the whole message.
    pub fn new(shape: MessageShape) -> Self {
        Self { first: Some(0..shape.total_packets) }
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Range<u32>> {
        self.first.take()
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
