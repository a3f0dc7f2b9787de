//! Sender side: submessages with their parity once, then the chunks of those
//! that parity could not repair.
//!
//! A submessage is judged once, when its last parity packet is: all its packets
//! are on one channel, parity last, so everything before it was judged too. If
//! the peer still lacks chunks of it, it has *fallen back*: the chunks go out
//! again, and each run of them is judged as in selective repeat. Of a
//! submessage that has not fallen back no run of data is judged.

use super::{Config, Layout};
use crate::modes::acked::Acked;
use crate::modes::{MessageShape, Run};
use lacuna_wire::Ack;
use std::collections::VecDeque;
use std::ops::Range;

/// Runs that wait for an acknowledgement newer than the report that passed
/// them, as in selective repeat.
const UNDECIDED_MAX: usize = 4096;

/// See the module's text.
#[derive(Debug)]
pub struct Sender {
    shape: MessageShape,
    layout: Layout,
    acked: Acked,
    /// First transmissions of the submessage before `next`.
    first: VecDeque<Range<u32>>,
    /// Next submessage to go out for the first time.
    next: u32,
    repairs: VecDeque<Range<u32>>,
    /// Runs passed by a report without an acknowledgement as new as it.
    undecided: VecDeque<(u64, Run, u64)>,
    /// One bit per submessage that has fallen back.
    fallen: Vec<u64>,
    fallbacks: u64,
    /// Submessages that were not judged yet.
    unjudged: u32,
    /// Fragments of the immediate that were sent again and not judged since.
    fragments_resent: u32,
    retransmitted_chunks: u64,
}

impl Sender {
    /// Sends a message of this shape.
    ///
    /// # Panics
    /// If the shape says nothing of parity: the geometry was made without a code.
    pub fn new(config: Config, shape: MessageShape) -> Self {
        let layout = shape.layout.expect("the geometry of a coded message has a layout");
        debug_assert_eq!(layout.code(), config.code);
        let submessages = layout.submessages(shape.data_packets);
        Self {
            shape,
            layout,
            acked: Acked::new(&shape),
            first: VecDeque::new(),
            next: 0,
            repairs: VecDeque::new(),
            undecided: VecDeque::new(),
            fallen: vec![0; submessages.div_ceil(64) as usize],
            fallbacks: 0,
            unjudged: submessages,
            fragments_resent: 0,
            retransmitted_chunks: 0,
        }
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Range<u32>> {
        if let Some(repair) = self.repairs.pop_front() {
            return Some(repair);
        }
        let packets = self.shape.data_packets;
        if self.first.is_empty() && self.next < self.layout.submessages(packets) {
            let mut data = self.layout.data_of(self.next, packets);
            if data.end == packets {
                // The empty packets of a message shorter than its immediate.
                data.end = self.shape.total_packets;
            }
            self.first.push_back(data);
            self.first.extend(self.layout.parity_of(self.next, packets));
            self.next += 1;
        }
        self.first.pop_front()
    }

    pub(crate) fn on_ack(&mut self, sequence: u64, ack: &Ack<'_>) {
        if !self.acked.on_ack(sequence, ack) {
            return;
        }
        for _ in 0..self.undecided.len() {
            if let Some((passed_by, run, rto_ns)) = self.undecided.pop_front() {
                self.on_passed(passed_by, run, rto_ns);
            }
        }
    }

    pub(crate) fn on_passed(&mut self, sequence: u64, run: Run, rto_ns: u64) {
        let described = self.is_settled(&run.packets)
            || self.acked.describes(sequence, self.last_chunk_of(&run.packets));
        if !described && self.undecided.len() < UNDECIDED_MAX {
            self.undecided.push_back((sequence, run, rto_ns));
        } else {
            self.judge(&run.packets);
        }
    }

    pub(crate) fn on_expired(&mut self, run: Run) {
        self.judge(&run.packets);
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        // An undecided run whose acknowledgement never comes ages like one
        // that nothing was heard of.
        self.undecided.front().map(|(_, run, rto_ns)| run.sent_ns + rto_ns)
    }

    pub(crate) fn on_timeout(&mut self, now_ns: u64) -> u64 {
        let mut expired = 0;
        while self.undecided.front().is_some_and(|(_, run, rto)| run.sent_ns + rto <= now_ns) {
            if let Some((_, run, _)) = self.undecided.pop_front() {
                expired += u64::from(!self.is_settled(&run.packets));
                self.judge(&run.packets);
            }
        }
        expired
    }

    pub(crate) fn retransmitted_chunks(&self) -> u64 {
        self.retransmitted_chunks
    }

    pub(crate) fn fallbacks(&self) -> u64 {
        self.fallbacks
    }

    pub(crate) fn awaits_peer(&self) -> bool {
        true
    }

    pub(crate) fn acked_chunks(&self) -> u32 {
        self.acked.count()
    }

    /// The submessage that this run of parity is the end of.
    fn ended_by(&self, packets: &Range<u32>) -> Option<u32> {
        let last = packets.end.checked_sub(1).filter(|last| self.layout.is_parity(*last))?;
        let submessage = self.layout.locate(last).submessage;
        let parity = self.layout.parity_of(submessage, self.shape.data_packets).last()?;
        (parity.end == packets.end).then_some(submessage)
    }

    fn chunks_of(&self, submessage: u32) -> Range<u32> {
        let data = self.layout.data_of(submessage, self.shape.data_packets);
        data.start / self.shape.chunk_packets..data.end.div_ceil(self.shape.chunk_packets)
    }

    fn has_fallen(&self, chunk: u32) -> bool {
        let submessage = self.layout.submessage_of(chunk * self.shape.chunk_packets);
        self.fallen[(submessage / 64) as usize] >> (submessage % 64) & 1 == 1
    }

    fn has_fragments(&self) -> bool {
        (0..self.shape.fragments).all(|packet| self.acked.has_fragment(packet))
    }

    /// One past the last chunk that judging this run asks for.
    fn last_chunk_of(&self, packets: &Range<u32>) -> u32 {
        match self.ended_by(packets) {
            Some(submessage) => self.chunks_of(submessage).end,
            None if self.layout.is_parity(packets.start) => 0,
            None => packets.end.div_ceil(self.shape.chunk_packets).min(self.shape.chunks()),
        }
    }

    /// Whether judging this run cannot find anything missing.
    fn is_settled(&self, packets: &Range<u32>) -> bool {
        let has_chunks = match self.ended_by(packets) {
            Some(submessage) => self.chunks_of(submessage).all(|chunk| self.acked.has(chunk)),
            None if self.layout.is_parity(packets.start) => true,
            None => {
                let mut chunks = self.shape.judged_chunks(packets);
                chunks.all(|chunk| self.acked.has(chunk) || !self.has_fallen(chunk))
            }
        };
        has_chunks && self.has_fragments()
    }

    /// All packets of this run have come, been repaired, or are lost: what is
    /// missing for it goes out again.
    fn judge(&mut self, packets: &Range<u32>) {
        if let Some(submessage) = self.ended_by(packets) {
            self.unjudged = self.unjudged.saturating_sub(1);
            let chunks = self.chunks_of(submessage);
            if !chunks.clone().all(|chunk| self.acked.has(chunk)) {
                self.fallen[(submessage / 64) as usize] |= 1 << (submessage % 64);
                self.fallbacks += 1;
                self.repair(chunks);
            }
        } else if !self.layout.is_parity(packets.start) {
            self.repair(self.shape.judged_chunks(packets));
        }
        if self.shape.fragments > 0 {
            self.repair_immediate(packets);
        }
    }

    /// Sends what is missing of chunks whose submessage has fallen back again,
    /// neighbours together.
    fn repair(&mut self, chunks: Range<u32>) {
        for chunk in chunks {
            if self.acked.has(chunk) || !self.has_fallen(chunk) {
                continue;
            }
            self.retransmitted_chunks += 1;
            let run = self.shape.packets_of(chunk);
            match self.repairs.back_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => self.repairs.push_back(run),
            }
        }
    }

    /// Empty packets of the run whose fragment is missing go out again; once
    /// all submessages were judged, so does a packet for every other fragment.
    fn repair_immediate(&mut self, packets: &Range<u32>) {
        let fragments = self.shape.fragments;
        for packet in packets.clone().take(fragments as usize) {
            self.fragments_resent &= !(1 << (packet % fragments));
        }
        let empty = match self.layout.is_parity(packets.start) {
            true => 0..0,
            false => self.shape.immediate_packets(packets),
        };
        let others = if self.unjudged == 0 { 0..fragments } else { 0..0 };
        for packet in empty.chain(others) {
            let bit = 1 << (packet % fragments);
            if !self.acked.has_fragment(packet) && self.fragments_resent & bit == 0 {
                self.fragments_resent |= bit;
                self.repairs.push_back(packet..packet + 1);
            }
        }
    }
}
