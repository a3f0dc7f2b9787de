//! The decoder of one flow: packets in order pass at once, packets behind a gap wait until the missing ones
//! are recovered, or cannot be (LoWAR IV-A, IV-B2).
//!
//! **In order.** A packet passes, and its body is added to its block's sums. The paper's decoder does the
//! same. Adding only once something is missing is not possible: the bytes have been handed up by then.
//!
//! **A gap.** Packets behind it wait in the ring, or are placed ahead by the connection above. Each repair
//! names its block; what it and the sums give is recovered, and everything leaves in order.
//!
//! **No repair.** The block has failed when its repairs have come and were not enough, or packets that were
//! sent behind them have come, each plus the measured lateness of this flow; or when the time is up in
//! which the repairs could have come (`pace`); or when the ring is full. Then everything that waits is
//! handed up as it is; the connection sees the gap and goes back. Until it has gone back, to a number at or
//! below the missing one, everything passes.
//!
//! **Between messages** numbers may jump: a READ's request takes the numbers of its answer, an answer skips
//! those of other requests. A message that begins behind a jump is in order, unless repairs say that
//! something is missing: the repairs of a lost message come before the next message.
//!
//! **No shim at the other end.** A flow that has seen neither announcement nor repair only passes. One that
//! saw no repair for [`SILENT_BLOCKS_MAX`] blocks does so again.
//!
//! Invariants: a packet that came is handed up once, unless it is a duplicate of one that still waits; what
//! is recovered is handed up once, and if it comes after all, it is handed up as a duplicate.
//!
//! **Rounds.** Packets that a go-back-N sender repeats are the same, so sums may mix them. Only the answer
//! to a READ that was asked for again may have other bytes. So a block of a READ takes repairs of the round
//! in which it began alone, and none once a packet with an earlier number came; and for
//! [`hold_ns_max`](DecoderConfig::hold_ns_max) after a flow went back, packets of READs with numbers that
//! were seen before are not used. What is left: a packet or repair of the old round that is later than
//! that, or that comes when all packets of the new round before it are lost. With a hold below half of a
//! round trip, which is what a connection needs anyway, a gap is closed before the new round comes.

mod gap;
mod repairs;

use crate::block::{Block, Facts};
use crate::front::Front;
use crate::grid::{Grid, PSN_ORIGIN};
use crate::pace::Pace;
use crate::packet::{Kind, Packet};
use crate::reorder::{Content, HELD_MAX, Queue};
use crate::shared::Shared;
use crate::strength::codec;
use crate::upper::{How, Upper};
use lacuna_code::Codec;
use lacuna_wire::rc::{Opcode, Operation, Strength};
use lacuna_wire::{Qpn, psn};
use std::sync::Arc;

/// Most blocks of a flow that are open.
pub const BLOCKS_MAX: usize = 8;
/// Blocks without any repair after which a flow is taken for one without a shim at its sender.
pub const SILENT_BLOCKS_MAX: u32 = 64;
/// Longest time that a gap stays open, if the caller knows no round trip.
pub const HOLD_NS_MAX_DEFAULT: u64 = 10_000_000;

/// Most numbers that a packet may be ahead and wait: twice what may wait, as half of it may be missing.
const AHEAD_MAX: u64 = 2 * HELD_MAX as u64;
/// Times the longest hold, a quarter of a round trip or more, after which a flow that did not go back is
/// tracked again at its next message: its sender repeats single packets, or the loss was none.
const RESUME_HOLDS: u64 = 16;

/// Settings of a decoder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecoderConfig {
    /// Queue pair that the flow's packets are for.
    pub destination: Qpn,
    /// Longest time that a gap stays open; a quarter of the round trip, if it is known.
    pub hold_ns_max: u64,
    /// Whether the sender sends everything again from a lost packet on. Then repairs of a lower number say
    /// that it went back, also where nothing is missing here: the packet was lost before the flow was
    /// protected. Else the flow would not be repaired before it is back where it was.
    pub goes_back: bool,
}

impl DecoderConfig {
    /// For a path of which nothing is known.
    #[must_use]
    pub fn new(destination: Qpn) -> Self {
        Self { destination, hold_ns_max: HOLD_NS_MAX_DEFAULT, goes_back: false }
    }
}

/// What a decoder did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DecoderCounters {
    /// Packets that were lost and computed from others.
    pub packets_recovered: u64,
    /// Packets that waited behind a gap, in the ring.
    pub packets_held: u64,
    /// Packets that the connection placed ahead of their turn.
    pub packets_placed_ahead: u64,
    /// Duplicates of packets that still waited: dropped.
    pub duplicates_dropped: u64,
    /// Repairs that came.
    pub repairs_received: u64,
    /// Repairs that did not agree with what had come, or that no unit was free for.
    pub repairs_refused: u64,
    /// Announcements that came.
    pub announcements_received: u64,
    /// Blocks that could not have been recovered: no unit was free, or something disagreed.
    pub blocks_blind: u64,
    /// Gaps that were handed up.
    pub blocks_failed: u64,
    /// Those of them whose time was up, with no other reason.
    pub timeouts: u64,
    /// Those of them that found the ring full.
    pub ring_full: u64,
}

impl DecoderCounters {
    /// These and those of another one together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            packets_recovered: self.packets_recovered + other.packets_recovered,
            packets_held: self.packets_held + other.packets_held,
            packets_placed_ahead: self.packets_placed_ahead + other.packets_placed_ahead,
            duplicates_dropped: self.duplicates_dropped + other.duplicates_dropped,
            repairs_received: self.repairs_received + other.repairs_received,
            repairs_refused: self.repairs_refused + other.repairs_refused,
            announcements_received: self.announcements_received + other.announcements_received,
            blocks_blind: self.blocks_blind + other.blocks_blind,
            blocks_failed: self.blocks_failed + other.blocks_failed,
            timeouts: self.timeouts + other.timeouts,
            ring_full: self.ring_full + other.ring_full,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Nothing was seen yet.
    Idle,
    /// The grid is followed.
    Tracking,
    /// A gap was handed up that was first seen at this time; `grid.next` is missing.
    Stopped { since_ns: u64 },
}

/// Times of the first gap, if packets wait behind one.
#[derive(Clone, Copy, Debug, Default)]
struct Gap {
    /// When the first packet behind it came.
    since_ns: u64,
    /// When its repairs were seen to have come or to be overtaken.
    passed_ns: Option<u64>,
    /// When it is given up.
    deadline_ns: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Decoder {
    hold_ns_max: u64,
    goes_back: bool,
    facts: Facts,
    /// How the sender protects its blocks, of the block that is open or comes next.
    strength: Option<Strength>,
    codec: Option<Arc<Codec>>,
    /// From this number on.
    coming: Option<(u64, Strength)>,
    state: State,
    grid: Grid,
    front: Option<Front>,
    blocks: Vec<Block>,
    /// Memory of blocks that were closed.
    spare: Vec<Block>,
    queue: Queue,
    gap: Option<Gap>,
    /// Numbers below this one were handed up, before the flow was tracked or went back; not above
    /// `grid.next` otherwise. Zero if none was.
    handed_to: u64,
    /// How often the flow went back, as its repairs say, modulo 256.
    round: u8,
    /// The number behind the last packet that was sent again.
    again: Option<u64>,
    /// Blocks since the last repair.
    silent_blocks: u32,
    pace: Pace,
    counters: DecoderCounters,
}

impl Decoder {
    /// A decoder that has seen nothing yet.
    #[must_use]
    pub fn new(config: DecoderConfig) -> Self {
        let DecoderConfig { destination, hold_ns_max, goes_back } = config;
        Self {
            hold_ns_max,
            goes_back,
            facts: Facts { destination, migration: 0, mtu: None, mixed: None },
            strength: None,
            codec: None,
            coming: None,
            state: State::Idle,
            grid: Grid::at(PSN_ORIGIN),
            front: None,
            blocks: Vec::new(),
            spare: Vec::new(),
            queue: Queue::default(),
            gap: None,
            handed_to: 0,
            round: 0,
            again: None,
            silent_blocks: 0,
            pace: Pace::default(),
            counters: DecoderCounters::default(),
        }
    }

    /// Sets the longest time that a gap stays open: a quarter of the round trip, once it is known.
    pub fn set_hold_ns_max(&mut self, hold_ns_max: u64) {
        self.hold_ns_max = hold_ns_max;
    }

    /// How the sender protects its blocks, if that is known.
    #[must_use]
    pub fn strength(&self) -> Option<Strength> {
        self.strength
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> DecoderCounters {
        self.counters
    }

    /// Whether packets wait.
    #[must_use]
    pub fn holds_packets(&self) -> bool {
        !self.queue.is_empty()
    }

    /// How late packets of this flow have been lately.
    #[must_use]
    pub fn reordering_window_ns(&self) -> u64 {
        self.pace.window_ns()
    }

    /// A packet came. It is handed up, now or later.
    pub fn on_packet(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        bytes: &[u8],
        up: &mut dyn Upper,
    ) {
        let Some(packet) = Packet::parse(bytes) else { return up.take(bytes, How::Passed) };
        if packet.part().is_some_and(|part| !part.ends()) && packet.payload_bytes > 0 {
            self.facts.mtu = Some(packet.payload_bytes);
        }
        self.facts.migration = packet.migration;
        match self.state {
            State::Tracking => self.on_tracked(now_ns, shared, bytes, &packet, up),
            State::Idle => {
                let psn = self.first_psn(packet.psn);
                match packet.part() {
                    Some(_) if self.strength.is_some() => {
                        self.handed_to = psn;
                        self.start_at(psn);
                        self.pass(now_ns, shared, bytes, &packet, psn, up);
                    }
                    Some(_) => {
                        self.handed_to = self.handed_to.max(psn + 1);
                        up.take(bytes, How::Passed);
                    }
                    None => up.take(bytes, How::Passed),
                }
            }
            State::Stopped { since_ns } => {
                self.on_stopped(now_ns, shared, bytes, &packet, since_ns, up);
            }
        }
    }

    fn on_tracked(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        bytes: &[u8],
        packet: &Packet<'_>,
        up: &mut dyn Upper,
    ) {
        let next = self.grid.next;
        let psn = psn::unwrap(packet.psn, next);
        let is_between = self.queue.is_empty() && !self.grid.in_message;
        if packet.kind == Kind::Answer {
            return match psn < next || is_between {
                true => up.take(bytes, How::Passed),
                false => self.hold(now_ns, shared, bytes, packet, psn, up),
            };
        }
        if psn < next {
            if packet.opcode.operation() == Operation::ReadResponse {
                // A duplicate, or asked for again.
                self.mix(now_ns, shared);
            }
            self.again = Some(psn + 1);
            return up.take(bytes, How::Passed);
        }
        if psn == next {
            return self.pass(now_ns, shared, bytes, packet, psn, up);
        }
        if psn >= self.handed_to && self.handed_to > next {
            // One packet of below, and the flow goes on where it was: that packet was late, and the
            // connection has not gone back yet.
            let since_ns = self.gap.map_or(now_ns, |gap| gap.since_ns);
            self.stop(since_ns, shared, up);
            return self.on_stopped(now_ns, shared, bytes, packet, since_ns, up);
        }
        if is_between && begins(packet.kind) && !self.knows_missing(psn) {
            self.start_at(psn);
            return self.pass(now_ns, shared, bytes, packet, psn, up);
        }
        self.hold(now_ns, shared, bytes, packet, psn, up);
    }

    fn on_stopped(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        bytes: &[u8],
        packet: &Packet<'_>,
        since_ns: u64,
        up: &mut dyn Upper,
    ) {
        let missing = self.grid.next;
        let psn = psn::unwrap(packet.psn, missing);
        let waited_ns = now_ns.saturating_sub(since_ns);
        if packet.kind == Kind::Answer {
            return up.take(bytes, How::Passed);
        }
        if psn <= missing {
            if psn == missing && waited_ns < self.hold_ns_max {
                // Too early for a round trip.
                self.pace.on_late(waited_ns, self.hold_ns_max);
            }
            self.mix(now_ns, shared);
            self.start_at(psn);
            return self.pass(now_ns, shared, bytes, packet, psn, up);
        }
        let is_new = psn >= self.handed_to;
        let resumes_ns = self.hold_ns_max.saturating_mul(RESUME_HOLDS);
        if is_new && begins(packet.kind) && waited_ns > resumes_ns {
            self.start_at(psn);
            return self.pass(now_ns, shared, bytes, packet, psn, up);
        }
        self.handed_to = self.handed_to.max(psn + 1);
        up.take(bytes, How::Passed);
    }

    /// A number before the grid is followed.
    fn first_psn(&self, wire: u32) -> u64 {
        match self.handed_to {
            0 => PSN_ORIGIN + u64::from(wire),
            handed_to => psn::unwrap(wire, handed_to),
        }
    }

    /// Follows the grid from a number on.
    fn start_at(&mut self, psn: u64) {
        self.grid = Grid::at(psn);
        self.state = State::Tracking;
        self.again = None;
    }

    /// Hands up the packet with the number that continues.
    fn pass(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        bytes: &[u8],
        packet: &Packet<'_>,
        psn: u64,
        up: &mut dyn Upper,
    ) {
        self.pace.on_packet(now_ns, self.hold_ns_max);
        if let Some(gap) = self.gap {
            self.pace.on_late(now_ns.saturating_sub(gap.since_ns), self.hold_ns_max);
        }
        // A second packet in order: the flow has gone back indeed.
        let is_second = self.grid.in_message || self.grid.first != psn;
        let what = (packet.kind, packet.opcode, packet.payload_bytes);
        self.depart(now_ns, shared, psn, what, Some(packet.body));
        if is_second {
            self.handed_to = self.grid.next;
        }
        up.take(bytes, How::Passed);
        if !self.queue.is_empty() || self.blocks.iter().any(Block::has_repairs) {
            self.settle(now_ns, shared, up);
        }
    }

    /// A packet leaves in its turn: follows the grid, and adds it to its block unless it is there.
    fn depart(
        &mut self,
        arrived_ns: u64,
        shared: &mut Shared,
        psn: u64,
        (kind, opcode, payload_bytes): (Kind, Opcode, u16),
        body: Option<&[u8]>,
    ) {
        match kind {
            Kind::Answer => return,
            Kind::Request { length } => {
                self.close_below(psn + 1, shared);
                self.grid.skip(psn, self.numbers(length));
            }
            Kind::Data(part) => {
                if self.grid.begins(psn, part) {
                    self.begin(psn, shared);
                }
                let block_packets = self.strength.map_or(1, |strength| strength.block_packets);
                self.grid.step(psn, part, block_packets);
                let first = self.grid.first;
                let block = self.blocks.iter_mut().find(|block| block.first == first);
                if let Some(block) = block {
                    match body {
                        _ if self.facts.is_mixed(opcode.operation(), psn, arrived_ns) => {
                            block.blind(shared);
                        }
                        Some(body) => block.add(shared, psn, (opcode, payload_bytes), body),
                        None => {}
                    }
                }
                if !self.grid.in_block {
                    self.close_below(psn + 1, shared);
                    self.pace.on_block();
                    self.silent_blocks = self.silent_blocks.saturating_add(1);
                }
            }
        }
        self.handed_to = self.handed_to.max(self.grid.next);
        if self.silent_blocks > SILENT_BLOCKS_MAX && self.queue.is_empty() {
            self.close_below(u64::MAX, shared);
            (self.strength, self.codec, self.coming) = (None, None, None);
            self.state = State::Idle;
        }
    }

    /// A block begins in order.
    fn begin(&mut self, first: u64, shared: &mut Shared) {
        self.close_below(first, shared);
        if let Some((_, strength)) = self.coming.filter(|(from, _)| *from <= first) {
            self.coming = None;
            self.adopt(strength);
        }
        if self.blocks.iter().all(|block| block.first != first)
            && let Some(strength) = self.strength
        {
            self.open(first, strength, self.codec.clone());
        }
    }

    /// Sets the strength of blocks from the next one on, if it is one.
    fn adopt(&mut self, strength: Strength) {
        if self.strength != Some(strength)
            && let Ok(codec) = codec(strength)
        {
            (self.strength, self.codec) = (Some(strength), codec);
        }
    }

    /// Opens a block; one too many is not.
    fn open(&mut self, first: u64, strength: Strength, codec: Option<Arc<Codec>>) {
        if self.blocks.len() < BLOCKS_MAX {
            let mut block = self.spare.pop().unwrap_or_else(Block::new);
            block.begin(first, strength, codec, self.round);
            self.blocks.push(block);
        }
    }

    /// Closes the blocks that begin below a number.
    fn close_below(&mut self, psn: u64, shared: &mut Shared) {
        while let Some(at) = self.blocks.iter().position(|block| block.first < psn) {
            let mut block = self.blocks.swap_remove(at);
            self.counters.blocks_blind += u64::from(block.is_blind());
            block.release(shared);
            self.spare.push(block);
        }
    }

    /// Numbers that a request takes: those of its answer.
    fn numbers(&self, length: u32) -> u64 {
        let mtu = self.facts.mtu.map_or(u32::MAX, u32::from);
        u64::from(length.div_ceil(mtu)).max(1)
    }

    /// When [`on_timeout`](Self::on_timeout) is to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.gap.map(|gap| gap.deadline_ns)
    }

    /// Gives up a gap whose time is over.
    pub fn on_timeout(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        if let Some(gap) = self.gap.filter(|gap| gap.deadline_ns <= now_ns) {
            self.counters.timeouts += u64::from(gap.passed_ns.is_none());
            self.fail(now_ns, shared, up);
        }
    }

    /// Hands up everything that waits, as it is: the flow ends, or its caller wants no shim any more.
    pub fn flush(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        if self.state == State::Tracking {
            self.stop(now_ns, shared, up);
        }
    }

    /// Gives units and slots back; what waits is lost. See [`flush`](Self::flush).
    pub fn release(mut self, shared: &mut Shared) {
        self.close_below(u64::MAX, shared);
        while let Some(held) = self.queue.pop_front() {
            if let Content::Copy(slot, _) = held.content {
                shared.ring.slots.give(slot);
            }
        }
    }

    /// Bytes of memory, without units and slots of the ring.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let blocks = self.blocks.iter().chain(&self.spare).map(Block::memory_bytes);
        size_of::<Self>() + blocks.sum::<usize>() + self.queue.memory_bytes()
    }
}

/// Whether a packet may come after a jump of the numbers.
fn begins(kind: Kind) -> bool {
    match kind {
        Kind::Data(part) => part.begins(),
        Kind::Request { .. } => true,
        Kind::Answer => false,
    }
}
