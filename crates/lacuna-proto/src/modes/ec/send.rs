//! Sender side: sends each submessage with its parity once, then the chunks that parity could not
//! repair.
//!
//! A submessage is judged once, when its last parity packet was passed or has expired: all its packets
//! are on one channel with the parity last, so no more of them will arrive. If the peer still lacks
//! chunks, the submessage *falls back*: its missing chunks are retransmitted, and each run of them is
//! judged as in selective repeat. Before that, runs of its data are not judged.
//!
//! A sender of the mode `auto` is *deferred*: it sends all data first, without parity, and treats
//! every submessage as one that has fallen back. Once all data are on the wire, the submessages
//! without a judged packet are the message's *tail*, and [`Sender::choose`] sets their parity;
//! `modes/auto` says why. This parity comes after all data, so a submessage that lacks more than it
//! can repair does not wait for it, and falls back once its data were passed.

use super::Config;
use crate::modes::acked::Acked;
use crate::modes::{Counts, MessageShape, SentRun};
use lacuna_place::parity::Layout;
use lacuna_wire::Ack;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Most runs that wait for an acknowledgement newer than the report that passed them, as in
/// selective repeat.
const UNDECIDED_MAX: usize = 4096;

/// Sender of one message.
#[derive(Debug)]
pub struct Sender {
    shape: MessageShape,
    layout: Layout,
    acked: Acked,
    /// Runs of the submessage before `next` that were not sent yet.
    first: VecDeque<Range<u32>>,
    /// Next submessage to send for the first time.
    next: u32,
    repairs: VecDeque<Range<u32>>,
    /// Further copies of repairs, sent after the first ones.
    copies: VecDeque<Range<u32>>,
    /// Chunks with repairs in flight and how many copies are, kept where there may be several.
    repairs_in_flight: BTreeMap<u32, u32>,
    /// Copies of each repair.
    repair_copies: u8,
    /// Parity chunks that are sent of each submessage.
    parity: Vec<u8>,
    /// The parity of the tail is not chosen yet.
    is_deferred: bool,
    /// The parity is sent after all data of the message, not after its own submessage.
    parity_trails: bool,
    /// Data packets before this one were judged, or went on another channel than some that were
    /// not.
    judged_packets: u32,
    /// Runs passed by a report that is newer than the newest acknowledgement: sequence number of the
    /// report's control packet, run, and retransmission timeout at that time.
    undecided: VecDeque<(u64, SentRun, u64)>,
    /// One bit per submessage that has fallen back.
    fallen: Vec<u64>,
    fallbacks: u64,
    /// Submessages with parity.
    coded: u32,
    /// Of `coded`, those that were not judged yet.
    unjudged: u32,
    /// Fragments of the immediate that were sent again and are not judged since; a mask.
    fragments_resent: u32,
    retransmitted_chunks: u64,
}

impl Sender {
    /// Sends a message of this shape.
    ///
    /// # Panics
    /// If the shape has no parity layout, because the geometry was made without a code.
    pub fn new(config: Config, shape: MessageShape) -> Self {
        let layout = shape.layout.expect("the geometry of a coded message has a layout");
        debug_assert_eq!(layout.code(), config.code);
        let submessages = layout.submessages(shape.data_packets);
        // k + m is at most 255.
        let share = |s| layout.parity_chunks(layout.chunks_of(s, shape.data_packets)) as u8;
        Self {
            shape,
            layout,
            acked: Acked::new(&shape),
            first: VecDeque::new(),
            next: 0,
            repairs: VecDeque::new(),
            copies: VecDeque::new(),
            repairs_in_flight: BTreeMap::new(),
            repair_copies: 1,
            parity: (0..submessages).map(share).collect(),
            is_deferred: false,
            parity_trails: false,
            judged_packets: 0,
            undecided: VecDeque::new(),
            fallen: vec![0; submessages.div_ceil(64) as usize],
            fallbacks: 0,
            coded: submessages,
            unjudged: submessages,
            fragments_resent: 0,
            retransmitted_chunks: 0,
        }
    }

    /// Sends the data of a message of this shape first, and then as much parity as
    /// `choose` says.
    ///
    /// # Panics
    /// As [`Sender::new`].
    pub fn deferred(config: Config, shape: MessageShape) -> Self {
        let mut sender = Self::new(config, shape);
        sender.parity.fill(0);
        sender.fallen.fill(u64::MAX);
        (sender.coded, sender.unjudged) = (0, 0);
        sender.next = sender.layout.submessages(shape.data_packets);
        sender.first.push_back(0..shape.total_packets);
        sender.is_deferred = true;
        sender
    }

    /// The message's tail, once [`Sender::choose`] is due: this sender is deferred and all its data
    /// are on the wire.
    pub(crate) fn tail(&self) -> Option<Range<u32>> {
        let is_due = self.is_deferred && self.first.is_empty();
        let first = self.judged_packets.div_ceil(self.layout.data_packets());
        let start = first.saturating_mul(self.layout.data_packets()).min(self.shape.data_packets);
        is_due.then_some(start..self.shape.data_packets)
    }

    /// Sends `parity_of` parity chunks of each submessage of the tail, at most all of its parity. From
    /// now on each repair is sent `repair_copies` times. Repairs already in flight get their further
    /// copies after the parity, because a repair that is lost in this last round trip would cost
    /// another one.
    pub(crate) fn choose(&mut self, parity_of: impl Fn(u32) -> u8, repair_copies: u8) {
        let Some(tail) = self.tail() else { return };
        self.is_deferred = false;
        self.parity_trails = true;
        self.repair_copies = repair_copies.max(1);
        let packets = self.shape.data_packets;
        for submessage in self.layout.submessages(tail.start)..self.layout.submessages(packets) {
            let most = self.layout.parity_chunks(self.layout.chunks_of(submessage, packets));
            let count = u32::from(parity_of(submessage)).min(most);
            if count > 0 {
                self.parity[submessage as usize] = count as u8;
                self.fallen[(submessage / 64) as usize] &= !(1 << (submessage % 64));
                self.coded += 1;
                self.unjudged += 1;
                self.first.extend(self.layout.first_parity_of(submessage, packets, count));
            }
        }
        for _ in 1..self.repair_copies {
            for (chunk, count) in &mut self.repairs_in_flight {
                *count += 1;
                self.retransmitted_chunks += 1;
                push(&mut self.first, self.shape.packets_of(*chunk));
            }
        }
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Range<u32>> {
        if let Some(repair) = self.repairs.pop_front().or_else(|| self.copies.pop_front()) {
            return Some(repair);
        }
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

    pub(crate) fn on_passed(&mut self, sequence: u64, run: SentRun, rto_ns: u64) {
        self.note_judged(&run.packets);
        let described = self.is_settled(&run.packets)
            || self.acked.describes(sequence, &self.chunks_judged_by(&run.packets));
        if !described && self.undecided.len() < UNDECIDED_MAX {
            self.undecided.push_back((sequence, run, rto_ns));
        } else {
            self.judge(&run.packets);
        }
    }

    pub(crate) fn on_expired(&mut self, run: SentRun) {
        self.note_judged(&run.packets);
        self.judge(&run.packets);
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        // An undecided run whose acknowledgement never comes expires like a run without a report.
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

    pub(crate) fn counts(&self) -> Counts {
        let Self { retransmitted_chunks, fallbacks, .. } = *self;
        Counts { retransmitted_chunks, fallbacks }
    }

    pub(crate) fn awaits_peer(&self) -> bool {
        true
    }

    pub(crate) fn missing(&self, packets: Range<u32>) -> Range<u32> {
        self.acked.missing(&self.shape, packets)
    }

    pub(crate) fn acked_chunks(&self) -> u32 {
        self.acked.count()
    }

    fn note_judged(&mut self, packets: &Range<u32>) {
        if !self.layout.is_parity(packets.start) {
            self.judged_packets = self.judged_packets.max(packets.end.min(self.shape.data_packets));
        }
    }

    /// The submessage that this run of parity ends, if it does.
    fn ended_by(&self, packets: &Range<u32>) -> Option<u32> {
        let last = packets.end.checked_sub(1).filter(|last| self.layout.is_parity(*last))?;
        let submessage = self.layout.locate(last).submessage;
        let count = u32::from(*self.parity.get(submessage as usize)?);
        let packets_all = self.shape.data_packets;
        let parity = self.layout.first_parity_of(submessage, packets_all, count).last()?;
        (parity.end == packets.end).then_some(submessage)
    }

    fn chunks_of(&self, submessage: u32) -> Range<u32> {
        let data = self.layout.data_of(submessage, self.shape.data_packets);
        data.start / self.shape.chunk_packets..data.end.div_ceil(self.shape.chunk_packets)
    }

    fn has_fallen(&self, chunk: u32) -> bool {
        self.is_fallen(self.layout.submessage_of(chunk * self.shape.chunk_packets))
    }

    fn is_fallen(&self, submessage: u32) -> bool {
        self.fallen[(submessage / 64) as usize] >> (submessage % 64) & 1 == 1
    }

    fn has_fragments(&self) -> bool {
        (0..self.shape.fragments).all(|packet| self.acked.has_fragment(packet))
    }

    /// Chunks that have to be described before this run can be judged.
    fn chunks_judged_by(&self, packets: &Range<u32>) -> Range<u32> {
        match self.ended_by(packets) {
            Some(submessage) => self.chunks_of(submessage),
            None if self.layout.is_parity(packets.start) => 0..0,
            None => {
                // A submessage that ends in this run is judged as a whole.
                let first = packets.start / self.layout.data_packets() * self.layout.data_packets();
                let chunks = self.shape.judged_chunks(packets);
                chunks.start.min(first / self.shape.chunk_packets)..chunks.end
            }
        }
    }

    /// Whether the peer has everything that judging this run would look for.
    fn is_settled(&self, packets: &Range<u32>) -> bool {
        let has_chunks = match self.ended_by(packets) {
            Some(submessage) => {
                let has = |chunk| self.acked.has(chunk);
                self.is_fallen(submessage) || self.chunks_of(submessage).all(has)
            }
            None if self.layout.is_parity(packets.start) => true,
            None => {
                let mut chunks = self.shape.judged_chunks(packets);
                chunks.all(|chunk| self.acked.has(chunk) || !self.has_fallen(chunk))
                    && self.beyond_repair(packets).next().is_none()
            }
        };
        has_chunks && self.has_fragments()
    }

    /// Judges a run: each of its packets has come, was repaired, or is lost, and what the peer
    /// lacks by it is sent again.
    fn judge(&mut self, packets: &Range<u32>) {
        if let Some(submessage) = self.ended_by(packets) {
            self.unjudged = self.unjudged.saturating_sub(1);
            let has_all = self.chunks_of(submessage).all(|chunk| self.acked.has(chunk));
            if !has_all && !self.is_fallen(submessage) {
                self.fall_back(submessage);
            }
        } else if !self.layout.is_parity(packets.start) {
            self.repair(self.shape.judged_chunks(packets));
            let beyond: Vec<u32> = self.beyond_repair(packets).collect();
            beyond.into_iter().for_each(|submessage| self.fall_back(submessage));
        }
        if self.shape.fragments > 0 {
            self.repair_immediate(packets);
        }
    }

    fn fall_back(&mut self, submessage: u32) {
        self.fallen[(submessage / 64) as usize] |= 1 << (submessage % 64);
        self.fallbacks += 1;
        self.repair(self.chunks_of(submessage));
    }

    /// Submessages that end in this run of data and miss more packets than the trailing parity can
    /// repair, which is its number of chunks in each row.
    fn beyond_repair(&self, packets: &Range<u32>) -> impl Iterator<Item = u32> + '_ {
        let all = self.shape.data_packets;
        let count = |end: u32| {
            if end == all { self.parity.len() as u32 } else { end / self.layout.data_packets() }
        };
        let ended = match self.parity_trails {
            true => packets.start / self.layout.data_packets()..count(packets.end.min(all)),
            false => 0..0,
        };
        ended.filter(|submessage| {
            let missing = self.chunks_of(*submessage).filter(|chunk| !self.acked.has(*chunk));
            let most = u32::from(self.parity[*submessage as usize]) * self.layout.chunk_packets();
            !self.is_fallen(*submessage) && missing.count() as u32 > most
        })
    }

    /// Sends the missing ones of these chunks again if their submessage has fallen back, neighbours
    /// in one run. Copies are sent round by round, so that one burst of losses does not take all
    /// copies of a chunk.
    fn repair(&mut self, chunks: Range<u32>) {
        let mut lost = VecDeque::new();
        for chunk in chunks {
            let is_in_flight = self.count_judged(chunk);
            if self.acked.has(chunk) || !self.has_fallen(chunk) || is_in_flight {
                continue;
            }
            self.retransmitted_chunks += u64::from(self.repair_copies);
            push(&mut lost, self.shape.packets_of(chunk));
            if self.repair_copies > 1 || self.is_deferred {
                self.repairs_in_flight.insert(chunk, u32::from(self.repair_copies));
            }
        }
        for _ in 1..self.repair_copies {
            lost.iter().for_each(|run| push(&mut self.copies, run.clone()));
        }
        lost.into_iter().for_each(|run| push(&mut self.repairs, run));
    }

    /// Counts one transmission of the chunk as judged. Returns whether another one is in flight.
    fn count_judged(&mut self, chunk: u32) -> bool {
        let Some(count) = self.repairs_in_flight.get_mut(&chunk) else { return false };
        *count -= 1;
        if *count > 0 {
            return true;
        }
        self.repairs_in_flight.remove(&chunk);
        false
    }

    /// Sends again the empty packets of the run whose fragment is missing and, once all submessages
    /// were judged, a packet for each other missing fragment.
    fn repair_immediate(&mut self, packets: &Range<u32>) {
        let fragments = self.shape.fragments;
        for packet in packets.clone().take(fragments as usize) {
            self.fragments_resent &= !(1 << (packet % fragments));
        }
        let empty = match self.layout.is_parity(packets.start) {
            true => 0..0,
            false => self.shape.immediate_packets(packets),
        };
        let others = if self.coded > 0 && self.unjudged == 0 { 0..fragments } else { 0..0 };
        for packet in empty.chain(others) {
            let bit = 1 << (packet % fragments);
            if !self.acked.has_fragment(packet) && self.fragments_resent & bit == 0 {
                self.fragments_resent |= bit;
                self.repairs.push_back(packet..packet + 1);
            }
        }
    }
}

/// Queues a run, joined to the last one if that ends where this begins.
fn push(runs: &mut VecDeque<Range<u32>>, run: Range<u32>) {
    match runs.back_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push_back(run),
    }
}
