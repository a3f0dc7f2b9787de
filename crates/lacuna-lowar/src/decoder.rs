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

use crate::block::{Block, Facts, Outcome};
use crate::front::Front;
use crate::grid::{Grid, PSN_ORIGIN};
use crate::pace::Pace;
use crate::packet::{BTH_BYTES, Kind, Packet};
use crate::reorder::{Content, HELD_MAX, Held, Queue};
use crate::shared::Shared;
use crate::strength::{codec, fits};
use crate::upper::{How, Upper};
use lacuna_code::Codec;
use lacuna_wire::rc::{BlockHeader, Opcode, Operation, Strength};
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
}

impl DecoderConfig {
    /// For a path of which nothing is known.
    #[must_use]
    pub fn new(destination: Qpn) -> Self {
        Self { destination, hold_ns_max: HOLD_NS_MAX_DEFAULT }
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
    /// Blocks since the last repair.
    silent_blocks: u32,
    pace: Pace,
    counters: DecoderCounters,
}

impl Decoder {
    /// A decoder that has seen nothing yet.
    #[must_use]
    pub fn new(config: DecoderConfig) -> Self {
        let DecoderConfig { destination, hold_ns_max } = config;
        Self {
            hold_ns_max,
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

    /// Packets with numbers that were seen may be of two rounds from here on, and those of open blocks are.
    fn mix(&mut self, now_ns: u64, shared: &mut Shared) {
        let seen = self.queue.last().map_or(0, |last| last.psn + 1);
        let below = seen.max(self.handed_to).max(self.grid.next);
        self.facts.mixed = Some((now_ns.saturating_add(self.hold_ns_max), below));
        for block in self.blocks.iter_mut().filter(|block| block.is_of_read()) {
            block.blind(shared);
        }
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

    /// Whether repairs say that packets before this number are missing.
    fn knows_missing(&self, psn: u64) -> bool {
        let next = self.grid.next;
        let mut blocks = self.blocks.iter().filter(|block| !block.is_blind());
        blocks.any(|block| block.first < psn && block.is_known_to_reach(next))
    }

    /// Keeps a packet that is behind a gap.
    fn hold(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        bytes: &[u8],
        packet: &Packet<'_>,
        psn: u64,
        up: &mut dyn Upper,
    ) {
        if let Some(held) = self.queue.find_mut(psn, packet) {
            if held.replace(bytes, packet) {
                return;
            }
            if held.is_same(bytes) {
                self.counters.duplicates_dropped += 1;
                return;
            }
            // Of another round.
            self.mix(now_ns, shared);
            return up.take(bytes, How::Passed);
        }
        let content = match psn - self.grid.next <= AHEAD_MAX && !self.queue.is_full() {
            true => self.keep(now_ns, shared, bytes, packet, psn, up),
            false => None,
        };
        let Some(content) = content else {
            self.counters.ring_full += 1;
            self.fail(now_ns, shared, up);
            self.handed_to = self.handed_to.max(psn + 1);
            return up.take(bytes, How::Passed);
        };
        let gap = *self.gap.get_or_insert(Gap { since_ns: now_ns, ..Gap::default() });
        if self.queue.last().is_some_and(|last| last.psn > psn) && packet.kind != Kind::Answer {
            let later = self.queue.iter().find(|held| held.psn > psn);
            let later_ns = later.map_or(gap.since_ns, |held| held.arrived_ns);
            self.pace.on_late(now_ns.saturating_sub(later_ns), self.hold_ns_max);
        }
        self.queue.insert(Held {
            psn,
            opcode: packet.opcode,
            kind: packet.kind,
            payload_bytes: packet.payload_bytes,
            arrived_ns: now_ns,
            content,
        });
        if self.is_behind_repairs(psn, packet.kind) {
            self.repairs_passed(now_ns);
        }
        self.settle(now_ns, shared, up);
    }

    /// Places a packet ahead, or copies it; `None` if there is no room.
    fn keep(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        bytes: &[u8],
        packet: &Packet<'_>,
        psn: u64,
        up: &mut dyn Upper,
    ) -> Option<Content> {
        if let Some(content) = self.place_ahead(now_ns, shared, bytes, packet, psn, up) {
            self.counters.packets_placed_ahead += 1;
            return Some(content);
        }
        let mut slot = shared.ring.slots.take()?;
        if !slot.store(bytes, BTH_BYTES) {
            shared.ring.slots.give(slot);
            return None;
        }
        self.counters.packets_held += 1;
        Some(Content::Copy(slot, How::Held))
    }

    /// Offers a packet whose block is certain to the connection.
    fn place_ahead(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        bytes: &[u8],
        packet: &Packet<'_>,
        psn: u64,
        up: &mut dyn Upper,
    ) -> Option<Content> {
        let strength = self.strength?;
        let front = self.front.get_or_insert_with(|| Front::new(self.grid));
        let part = match packet.kind {
            Kind::Data(part) => part,
            Kind::Request { length } => {
                let mut front = *front;
                front.skip(psn, self.numbers(length));
                self.front = Some(front);
                return None;
            }
            Kind::Answer => return None,
        };
        let first = front.place(psn, part, strength.block_packets)?;
        let operation = packet.opcode.operation();
        if self.coming.is_some() || self.facts.is_mixed(operation, psn, now_ns) {
            return None;
        }
        let at = self.blocks.iter().position(|block| block.first == first);
        let is_usable = match at {
            Some(at) => !self.blocks[at].is_blind(),
            None => self.blocks.len() < BLOCKS_MAX,
        };
        if !is_usable || !up.place_ahead(bytes) {
            return None;
        }
        if at.is_none() {
            self.open(first, strength, self.codec.clone());
        }
        let block = self.blocks.iter_mut().find(|block| block.first == first)?;
        block.add(shared, psn, (packet.opcode, packet.payload_bytes), packet.body);
        Some(Held::placed(bytes, packet.opcode))
    }

    /// The block that the first missing packet is in, if it is open. Between messages that is the next one
    /// before the first packet that waits, since numbers may have jumped.
    fn head_block(&self) -> Option<&Block> {
        let Grid { next, first, in_message, in_block } = self.grid;
        let (from, to) = match (in_block, in_message) {
            (true, _) => (first, first),
            (false, true) => (next, next),
            (false, false) => (next, self.queue.front().map_or(u64::MAX, |front| front.psn)),
        };
        let blocks = self.blocks.iter().filter(|block| (from..=to).contains(&block.first));
        blocks.min_by_key(|block| block.first)
    }

    /// The number behind that block, or the most that it can be.
    fn end_of_gap(&self) -> u64 {
        if let Some(block) = self.head_block() {
            return block.end();
        }
        let Grid { next, first, in_message, in_block } = self.grid;
        let first = match self.queue.front() {
            _ if in_block => first,
            // The message began anywhere before its first packet that came.
            Some(front) if !in_message && front.psn > next => front.psn - 1,
            _ => next,
        };
        first
            + u64::from(self.strengths().map(|strength| strength.block_packets).max().unwrap_or(1))
    }

    /// How the block that is open or comes next may be protected.
    fn strengths(&self) -> impl Iterator<Item = Strength> {
        let coming = self.coming.map(|(_, strength)| strength);
        self.strength.into_iter().chain(coming)
    }

    /// Whether a packet was sent behind the repairs of the block that the first missing packet is in.
    fn is_behind_repairs(&self, psn: u64, kind: Kind) -> bool {
        psn >= self.end_of_gap() || psn > self.grid.next && (begins(kind) || kind == Kind::Answer)
    }

    fn repairs_passed(&mut self, at_ns: u64) {
        if let Some(gap) = &mut self.gap {
            let passed_ns = gap.passed_ns.map_or(at_ns, |passed_ns| passed_ns.min(at_ns));
            gap.passed_ns = Some(passed_ns);
        }
    }

    /// A repair came: a block, which of its repairs, and the sum.
    pub fn on_repair(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        header: &BlockHeader,
        index: u8,
        sum: &[u8],
        up: &mut dyn Upper,
    ) {
        self.counters.repairs_received += 1;
        self.silent_blocks = 0;
        if !self.learn(header) {
            self.counters.repairs_refused += 1;
            return;
        }
        // Newer by less than half of the rounds.
        if header.round != self.round && header.round.wrapping_sub(self.round) < 1 << 7 {
            self.round = header.round;
            self.mix(now_ns, shared);
        }
        let next = self.grid.next;
        let first = psn::unwrap(header.first_psn, next);
        let end = first + u64::from(header.packets);
        match self.state {
            State::Idle => return,
            State::Stopped { since_ns } => {
                let late_ns = now_ns.saturating_sub(since_ns);
                if (first..end).contains(&next) && late_ns < self.hold_ns_max {
                    self.pace.on_late(late_ns, self.hold_ns_max);
                }
                return;
            }
            State::Tracking => {}
        }
        if end <= next {
            // Nothing is missing. If the grid here is another one, that of the repair goes on.
            if end == next && self.grid.in_block && self.grid.first != first {
                self.grid.in_block = false;
            }
            return;
        }
        let is_taken = self.take_repair(now_ns, shared, header, first, index, sum);
        self.counters.repairs_refused += u64::from(!is_taken);
        if let Some(passed_ns) = self.gap.and_then(|gap| gap.passed_ns)
            && (first..end).contains(&next)
        {
            self.pace.on_late(now_ns.saturating_sub(passed_ns), self.hold_ns_max);
        }
        let next = self.grid.next;
        let is_behind = self.grid.in_message
            || self.queue.front().is_some_and(|front| (next..first).contains(&front.psn));
        if first >= self.end_of_gap() || first > next && is_behind {
            self.repairs_passed(now_ns);
        }
        self.settle(now_ns, shared, up);
    }

    /// Adds a repair to its block, which has a missing packet; false if it is of no use.
    fn take_repair(
        &mut self,
        now_ns: u64,
        shared: &mut Shared,
        header: &BlockHeader,
        first: u64,
        index: u8,
        sum: &[u8],
    ) -> bool {
        let next = self.grid.next;
        if sum.len() > shared.decode.unit_bytes() || first > next + AHEAD_MAX {
            return false;
        }
        let at = self.blocks.iter().position(|block| block.first == first);
        let at = match at {
            Some(at) => at,
            None if first < next => {
                // Packets of it have left, and were added to another block or none. This block is lost
                // to recovery; the next one is not, if the grid goes on as the repair says.
                self.close_below(next, shared);
                self.grid.first = first;
                self.grid.in_block = self.grid.in_message;
                return false;
            }
            None => {
                let Ok(codec) = codec(header.strength) else { return false };
                let is_between = self.queue.is_empty() && !self.grid.in_message;
                if is_between && header.has_first && !self.knows_missing(first) {
                    self.start_at(first);
                } else if first == next {
                    self.grid.in_block = false;
                }
                self.open(first, header.strength, codec);
                match self.blocks.iter().position(|block| block.first == first) {
                    Some(at) => at,
                    None => return false,
                }
            }
        };
        let operation = crate::packet::operation_of(header.class);
        if self.facts.is_mixed(operation, first, now_ns) {
            self.blocks[at].blind(shared);
        }
        self.blocks[at].add_repair(shared, header, index, sum)
    }

    /// Learns the strength that a repair tells; false if there is no such strength.
    fn learn(&mut self, header: &BlockHeader) -> bool {
        if codec(header.strength).is_err() {
            return false;
        }
        let first = psn::unwrap(header.first_psn, self.grid.next);
        if self.state == State::Idle {
            self.adopt(header.strength);
            return true;
        }
        let expected = match self.coming {
            Some((from, strength)) if from <= first => Some(strength),
            _ => self.strength,
        };
        match expected {
            None => self.adopt(header.strength),
            Some(expected) if fits(header.strength, expected, header.packets) => {}
            Some(_) => self.coming = Some((first, header.strength)),
        }
        true
    }

    /// The sender's blocks from a number on are so protected.
    pub fn on_announce(&mut self, first_psn: u32, strength: Strength) {
        self.counters.announcements_received += 1;
        self.silent_blocks = 0;
        if codec(strength).is_err() {
            return;
        }
        match self.state {
            State::Tracking if self.strength.is_some() => {
                let first = psn::unwrap(first_psn, self.grid.next);
                self.coming = match self.coming {
                    // It is announced again.
                    Some((from, coming)) if coming == strength => Some((from.min(first), coming)),
                    _ => (self.strength != Some(strength)).then_some((first, strength)),
                };
            }
            State::Idle => {
                self.adopt(strength);
                // The announced packet is the next one, so it is missed if it is lost.
                let first = self.first_psn(first_psn);
                if first >= self.handed_to {
                    self.handed_to = first;
                    self.start_at(first);
                }
            }
            _ => self.adopt(strength),
        }
    }

    /// Hands up what is in order, recovers what can be, until nothing changes; then looks at the time.
    fn settle(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        loop {
            self.drain(now_ns, shared, up);
            let left_before = self.grid.next;
            let mut recovered = 0;
            for block in &mut self.blocks {
                match block.recover(shared, &mut self.queue, now_ns, left_before, &self.facts) {
                    Outcome::Recovered(count) => recovered += count,
                    Outcome::Nothing => {}
                    Outcome::NoSlot => {
                        self.counters.ring_full += 1;
                        return self.fail(now_ns, shared, up);
                    }
                }
            }
            self.counters.packets_recovered += recovered as u64;
            if recovered == 0 {
                break;
            }
            self.gap.get_or_insert(Gap { since_ns: now_ns, ..Gap::default() });
        }
        self.look_at_time(now_ns, shared, up);
    }

    /// Hands up what waits and whose turn it is.
    fn drain(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        let mut is_moved = false;
        while let Some(front) = self.queue.front() {
            let (psn, kind) = (front.psn, front.kind);
            let next = self.grid.next;
            if psn > next {
                let is_jump = (begins(kind) || kind == Kind::Answer) && !self.grid.in_message;
                if !is_jump || self.knows_missing(psn) {
                    break;
                }
                if kind != Kind::Answer {
                    self.start_at(psn);
                }
            }
            let Some(held) = self.queue.pop_front() else { break };
            is_moved = true;
            if psn >= next {
                let what = (held.kind, held.opcode, held.payload_bytes);
                self.depart(held.arrived_ns, shared, psn, what, held.body());
            }
            hand_up(held, shared, up);
        }
        if self.queue.is_empty() {
            (self.gap, self.front) = (None, None);
        } else if is_moved {
            // Another gap is the first one now.
            let behind = |held: &&Held| self.is_behind_repairs(held.psn, held.kind);
            let since_ns = self.queue.iter().map(|held| held.arrived_ns).min();
            let passed_ns = self.queue.iter().filter(behind).map(|held| held.arrived_ns).min();
            let since_ns = since_ns.unwrap_or(now_ns);
            self.gap = Some(Gap { since_ns, passed_ns, deadline_ns: 0 });
        }
    }

    /// Sets the first gap's deadline, and gives it up if that is over.
    fn look_at_time(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        let next = self.grid.next;
        let is_hopeless = |block: &Block| block.is_hopeless_for(next.max(block.first));
        if self.head_block().is_some_and(is_hopeless) {
            self.repairs_passed(now_ns);
        }
        let Some(mut gap) = self.gap else { return };
        let end = self.end_of_gap();
        let repairs = self.strengths().map(|strength| strength.repairs).max().unwrap_or(1);
        let front = self.queue.last().map_or(next, |last| last.psn + 1);
        let left = end.saturating_sub(front) + u64::from(repairs);
        let patience_ns = self.pace.patience_ns(left, self.hold_ns_max);
        // From here on, what is left of the block has so long; from its beginning, the gap has the most.
        gap.deadline_ns =
            now_ns.saturating_add(patience_ns).min(gap.since_ns.saturating_add(self.hold_ns_max));
        if let Some(passed_ns) = gap.passed_ns {
            let settled_ns = passed_ns.saturating_add(self.pace.window_ns());
            gap.deadline_ns = gap.deadline_ns.min(settled_ns);
        }
        self.gap = Some(gap);
        if gap.deadline_ns <= now_ns {
            self.counters.timeouts += u64::from(gap.passed_ns.is_none());
            self.fail(now_ns, shared, up);
        }
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

    fn fail(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        self.counters.blocks_failed += 1;
        let since_ns = self.gap.map_or(now_ns, |gap| gap.since_ns);
        self.stop(since_ns, shared, up);
    }

    /// Hands up everything as it is, and passes everything until the flow goes back.
    fn stop(&mut self, since_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        while let Some(held) = self.queue.pop_front() {
            if held.kind != Kind::Answer {
                self.handed_to = self.handed_to.max(held.psn + 1);
            }
            hand_up(held, shared, up);
        }
        self.close_below(u64::MAX, shared);
        (self.gap, self.front) = (None, None);
        self.state = State::Stopped { since_ns };
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

fn hand_up(held: Held, shared: &mut Shared, up: &mut dyn Upper) {
    match held.content {
        Content::Copy(slot, how) => {
            up.take(slot.packet(BTH_BYTES), how);
            shared.ring.slots.give(slot);
        }
        Content::Placed(headers, header_bytes) => {
            up.placed(&headers[..usize::from(header_bytes)], held.payload_bytes.into());
        }
    }
}
