//! Sender side: keeps a bit per acknowledged chunk, and retransmits the missing chunks of each run that
//! was passed or has expired.
//!
//! There is no state per packet and no timer per chunk. Runs with losses are in a separate box, so
//! that a message without losses takes two cache lines and no allocation of its own.

use super::Config;
use crate::modes::acked::Acked;
use crate::modes::{Counts, MessageShape, SentRun};
use lacuna_wire::Ack;
use std::collections::VecDeque;
use std::ops::Range;

/// Most runs that wait for an acknowledgement as new as the report that passed them: more than a
/// message has in flight between two acknowledgements. Further runs are judged by the acknowledgement
/// before.
const UNDECIDED_MAX: usize = 4096;

/// Sender of one message.
#[derive(Debug)]
pub struct Sender {
    config: Config,
    shape: MessageShape,
    acked: Acked,
    /// The whole message, until it was handed out.
    fresh: Option<Range<u32>>,
    /// `None` until something may have been lost.
    losses: Option<Box<Losses>>,
}

#[derive(Debug, Default)]
struct Losses {
    /// Runs to be sent again.
    transmit: VecDeque<Range<u32>>,
    /// Runs passed by a report that is newer than the newest acknowledgement: sequence number of the
    /// report's control packet, run, and retransmission timeout at that time.
    undecided: VecDeque<(u64, SentRun, u64)>,
    /// Without NACK: runs that lost something, with the time when their timeout expires.
    aging: VecDeque<(u64, SentRun)>,
    retransmitted_chunks: u64,
}

impl Losses {
    fn push(&mut self, run: Range<u32>) {
        match self.transmit.back_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => self.transmit.push_back(run),
        }
    }
}

impl Sender {
    /// Sends a message of this shape.
    pub fn new(config: Config, shape: MessageShape) -> Self {
        let fresh = Some(0..shape.total_packets);
        Self { config, shape, acked: Acked::new(&shape), fresh, losses: None }
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Range<u32>> {
        self.fresh.take().or_else(|| self.losses.as_mut()?.transmit.pop_front())
    }

    pub(crate) fn on_ack(&mut self, sequence: u64, ack: &Ack<'_>) {
        if !self.acked.on_ack(sequence, ack) {
            return;
        }
        let undecided = self.losses.as_ref().map_or(0, |losses| losses.undecided.len());
        for _ in 0..undecided {
            let first = self.losses.as_mut().and_then(|losses| losses.undecided.pop_front());
            if let Some((passed_by, run, rto_ns)) = first {
                self.on_passed(passed_by, run, rto_ns);
            }
        }
    }

    pub(crate) fn on_passed(&mut self, sequence: u64, run: SentRun, rto_ns: u64) {
        if self.has_all(&run.packets) {
            return;
        }
        let described = self.acked.describes(sequence, &self.shape.judged_chunks(&run.packets));
        let losses = self.losses.get_or_insert_default();
        if !described && losses.undecided.len() < UNDECIDED_MAX {
            losses.undecided.push_back((sequence, run, rto_ns));
        } else if self.config.nack {
            self.repair(&run.packets);
        } else {
            losses.aging.push_back((run.sent_ns + rto_ns, run));
        }
    }

    pub(crate) fn on_expired(&mut self, run: SentRun) {
        self.repair(&run.packets);
    }

    pub(crate) fn missing(&self, packets: Range<u32>) -> Range<u32> {
        self.acked.missing(&self.shape, packets)
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        // An undecided run whose acknowledgement never comes expires like a run without a report.
        let losses = self.losses.as_ref()?;
        let undecided = losses.undecided.front().map(|(_, run, rto_ns)| run.sent_ns + rto_ns);
        let aging = losses.aging.front().map(|(due_ns, _)| *due_ns);
        undecided.into_iter().chain(aging).min()
    }

    pub(crate) fn on_timeout(&mut self, now_ns: u64) -> u64 {
        let mut expired = 0;
        while let Some(run) = self.pop_due(now_ns) {
            // A run that was acknowledged meanwhile does not count as expired.
            expired += u64::from(!self.has_all(&run.packets));
            self.repair(&run.packets);
        }
        expired
    }

    fn pop_due(&mut self, now_ns: u64) -> Option<SentRun> {
        let losses = self.losses.as_mut()?;
        if losses.aging.front().is_some_and(|(due_ns, _)| *due_ns <= now_ns) {
            return losses.aging.pop_front().map(|(_, run)| run);
        }
        let is_due = |(_, run, rto_ns): &(u64, SentRun, u64)| run.sent_ns + rto_ns <= now_ns;
        losses.undecided.front().filter(|first| is_due(first))?;
        losses.undecided.pop_front().map(|(_, run, _)| run)
    }

    pub(crate) fn counts(&self) -> Counts {
        let losses = self.losses.as_ref();
        let retransmitted_chunks = losses.map_or(0, |losses| losses.retransmitted_chunks);
        Counts { retransmitted_chunks, ..Counts::default() }
    }

    pub(crate) fn awaits_peer(&self) -> bool {
        true
    }

    pub(crate) fn acked_chunks(&self) -> u32 {
        self.acked.count()
    }

    fn has_all(&self, packets: &Range<u32>) -> bool {
        self.shape.judged_chunks(packets).all(|chunk| self.acked.has(chunk))
            && self.shape.immediate_packets(packets).all(|packet| self.acked.has_fragment(packet))
    }

    /// Queues the missing parts of a run to be sent again, neighbours in one run.
    fn repair(&mut self, packets: &Range<u32>) {
        for chunk in self.shape.judged_chunks(packets) {
            if !self.acked.has(chunk) {
                let losses = self.losses.get_or_insert_default();
                losses.retransmitted_chunks += 1;
                losses.push(self.shape.packets_of(chunk));
            }
        }
        for packet in self.shape.immediate_packets(packets) {
            if !self.acked.has_fragment(packet) {
                self.losses.get_or_insert_default().push(packet..packet + 1);
            }
        }
    }
}
