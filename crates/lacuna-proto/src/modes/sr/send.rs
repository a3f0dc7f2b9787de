//! Sender side: remembers which chunks the peer has, and decides for every run
//! that the path has judged which of its chunks go out again.
//!
//! No state per packet and no timer per chunk: one bit per chunk, and entries
//! only for runs that lost something.

use super::Config;
use crate::modes::{MessageShape, Run};
use lacuna_wire::Ack;
use std::collections::VecDeque;
use std::ops::Range;

/// Runs that wait for an acknowledgement newer than the report that passed
/// them. The path has at most this many in flight per message between two
/// acknowledgements; beyond it the oldest is judged by what is known.
const UNDECIDED_MAX: usize = 4096;

/// See the module's text.
#[derive(Debug)]
pub struct Sender {
    config: Config,
    shape: MessageShape,
    /// One bit per chunk that the peer has.
    acked: Vec<u64>,
    acked_chunks: u32,
    /// Fragments of the immediate that the peer has.
    fragments: u32,
    /// Control packet that the newest acknowledgement came with.
    acked_sequence: u64,
    /// Chunks from here on are not described by the newest acknowledgement.
    covered_chunks: u32,
    transmit: VecDeque<Range<u32>>,
    /// Runs passed by a report without an acknowledgement as new as it.
    undecided: VecDeque<(u64, Run, u64)>,
    /// Runs that lost something and wait for their timeout (without NACK).
    aging: VecDeque<(u64, Run)>,
    retransmitted_chunks: u64,
}

impl Sender {
    /// Sends a message of this shape.
    pub fn new(config: Config, shape: MessageShape) -> Self {
        Self {
            config,
            shape,
            acked: vec![0; shape.chunks().div_ceil(64) as usize],
            acked_chunks: 0,
            fragments: 0,
            acked_sequence: 0,
            covered_chunks: 0,
            transmit: std::iter::once(0..shape.total_packets).collect(),
            undecided: VecDeque::new(),
            aging: VecDeque::new(),
            retransmitted_chunks: 0,
        }
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Range<u32>> {
        self.transmit.pop_front()
    }

    pub(crate) fn on_ack(&mut self, sequence: u64, ack: &Ack<'_>) {
        let chunks = self.shape.chunks();
        let cumulative = ack.cumulative.min(chunks);
        self.set_acked(0..cumulative);
        for (index, byte) in ack.chunks.iter().enumerate() {
            let first = u64::from(cumulative) + index as u64 * 8;
            for bit in 0..8 {
                let chunk = first + bit;
                if byte >> bit & 1 == 1 && chunk < u64::from(chunks) {
                    self.set_acked(chunk as u32..chunk as u32 + 1);
                }
            }
        }
        self.fragments |= ack.immediate_fragments;
        if sequence < self.acked_sequence {
            return;
        }
        self.acked_sequence = sequence;
        self.covered_chunks = if ack.truncated {
            (u64::from(cumulative) + ack.chunks.len() as u64 * 8).min(u64::from(chunks)) as u32
        } else {
            u32::MAX
        };
        for _ in 0..self.undecided.len() {
            if let Some((passed_by, run, rto_ns)) = self.undecided.pop_front() {
                self.on_passed(passed_by, run, rto_ns);
            }
        }
    }

    pub(crate) fn on_passed(&mut self, sequence: u64, run: Run, rto_ns: u64) {
        if self.has_all(&run.packets) {
            return;
        }
        let described = self.acked_sequence >= sequence
            && run.packets.end.div_ceil(self.shape.chunk_packets) <= self.covered_chunks;
        if !described && self.undecided.len() < UNDECIDED_MAX {
            self.undecided.push_back((sequence, run, rto_ns));
        } else if self.config.nack {
            self.repair(&run.packets);
        } else {
            self.aging.push_back((run.sent_ns + rto_ns, run));
        }
    }

    pub(crate) fn on_expired(&mut self, run: Run) {
        self.repair(&run.packets);
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        // An undecided run whose acknowledgement never comes ages like one
        // that nothing was heard of.
        let undecided = self.undecided.front().map(|(_, run, rto_ns)| run.sent_ns + rto_ns);
        let aging = self.aging.front().map(|(due_ns, _)| *due_ns);
        undecided.into_iter().chain(aging).min()
    }

    pub(crate) fn on_timeout(&mut self, now_ns: u64) -> u64 {
        let mut expired = 0;
        while self.aging.front().is_some_and(|(due_ns, _)| *due_ns <= now_ns) {
            if let Some((_, run)) = self.aging.pop_front() {
                // What was acknowledged meanwhile has not expired.
                expired += u64::from(!self.has_all(&run.packets));
                self.repair(&run.packets);
            }
        }
        while self.undecided.front().is_some_and(|(_, run, rto)| run.sent_ns + rto <= now_ns) {
            if let Some((_, run, _)) = self.undecided.pop_front() {
                expired += u64::from(!self.has_all(&run.packets));
                self.repair(&run.packets);
            }
        }
        expired
    }

    pub(crate) fn retransmitted_chunks(&self) -> u64 {
        self.retransmitted_chunks
    }

    pub(crate) fn awaits_peer(&self) -> bool {
        true
    }

    pub(crate) fn acked_chunks(&self) -> u32 {
        self.acked_chunks
    }

    /// Chunks that are judged by a run: those whose last packet is in it.
    fn judged_chunks(&self, packets: &Range<u32>) -> Range<u32> {
        let data = packets.start.min(self.shape.data_packets)..packets.end;
        let end = if data.end >= self.shape.data_packets {
            self.shape.chunks()
        } else {
            data.end / self.shape.chunk_packets
        };
        let start = data.start / self.shape.chunk_packets;
        let start = if data.start >= self.shape.data_packets { end } else { start };
        start.min(end)..end
    }

    /// Empty packets of a run that carry only a fragment of the immediate.
    fn immediate_packets(&self, packets: &Range<u32>) -> Range<u32> {
        packets.start.max(self.shape.data_packets)..packets.end
    }

    fn has_all(&self, packets: &Range<u32>) -> bool {
        self.judged_chunks(packets).all(|chunk| self.is_acked(chunk))
            && self.immediate_packets(packets).all(|packet| self.has_fragment(packet))
    }

    /// Puts the missing parts of a run on the wire again, neighbours together.
    fn repair(&mut self, packets: &Range<u32>) {
        for chunk in self.judged_chunks(packets) {
            if self.is_acked(chunk) {
                continue;
            }
            self.retransmitted_chunks += 1;
            self.push(self.shape.packets_of(chunk));
        }
        for packet in self.immediate_packets(packets) {
            if !self.has_fragment(packet) {
                self.push(packet..packet + 1);
            }
        }
    }

    fn push(&mut self, run: Range<u32>) {
        match self.transmit.back_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => self.transmit.push_back(run),
        }
    }

    fn is_acked(&self, chunk: u32) -> bool {
        self.acked[(chunk / 64) as usize] >> (chunk % 64) & 1 == 1
    }

    fn has_fragment(&self, packet: u32) -> bool {
        self.shape.fragments == 0 || self.fragments >> (packet % self.shape.fragments) & 1 == 1
    }

    fn set_acked(&mut self, chunks: Range<u32>) {
        let mut chunk = chunks.start;
        while chunk < chunks.end {
            let word = &mut self.acked[(chunk / 64) as usize];
            let count = (64 - chunk % 64).min(chunks.end - chunk);
            let mask = (u64::MAX >> (64 - count)) << (chunk % 64);
            self.acked_chunks += (mask & !*word).count_ones();
            *word |= mask;
            chunk += count;
        }
    }
}
