//! Packets behind a gap: kept, handed up once what is missing was recovered, and given up when that cannot
//! be any more.
//!
//! The first missing packet decides. Its block may be known (its packets came, or repairs), or only the most
//! that it can be. Messages that begin behind that end, and repairs of other blocks there, were sent behind the
//! block's repairs; packets of the same message only a bundle further on ([`bundle_packets`]).

use super::{AHEAD_MAX, BLOCKS_MAX, Decoder, Gap, State, begins};
use crate::block::{Block, Outcome};
use crate::bundle::{BUNDLE_PACKETS_MAX, bundle_packets};
use crate::front::Front;
use crate::grid::Grid;
use crate::packet::{BTH_BYTES, Kind, Packet};
use crate::reorder::{Content, Held};
use crate::shared::Shared;
use crate::upper::{How, Upper};
use lacuna_wire::rc::Strength;

impl Decoder {
    /// Keeps a packet that is behind a gap.
    pub(super) fn hold(
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
    pub(super) fn keep(
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
    pub(super) fn place_ahead(
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
    pub(super) fn head_block(&self) -> Option<&Block> {
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
    pub(super) fn end_of_gap(&self) -> u64 {
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
    pub(super) fn strengths(&self) -> impl Iterator<Item = Strength> {
        let coming = self.coming.map(|(_, strength)| strength);
        self.strength.into_iter().chain(coming)
    }

    /// Whether a packet was sent behind the repairs of the block that the first missing packet is in, also if
    /// those left with a bundle.
    pub(super) fn is_behind_repairs(&self, psn: u64, kind: Kind) -> bool {
        let waiting = self.facts.mtu.map_or(BUNDLE_PACKETS_MAX, |mtu| bundle_packets(mtu.into()));
        psn >= self.end_of_gap() + waiting as u64
            || psn > self.grid.next && (begins(kind) || kind == Kind::Answer)
    }

    pub(super) fn repairs_passed(&mut self, at_ns: u64) {
        if let Some(gap) = &mut self.gap {
            let passed_ns = gap.passed_ns.map_or(at_ns, |passed_ns| passed_ns.min(at_ns));
            gap.passed_ns = Some(passed_ns);
        }
    }

    /// Hands up what is in order, recovers what can be, until nothing changes; then looks at the time.
    pub(super) fn settle(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
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
    pub(super) fn drain(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
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
    pub(super) fn look_at_time(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
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

    pub(super) fn fail(&mut self, now_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
        self.counters.blocks_failed += 1;
        let since_ns = self.gap.map_or(now_ns, |gap| gap.since_ns);
        self.stop(since_ns, shared, up);
    }

    /// Hands up everything as it is, and passes everything until the flow goes back.
    pub(super) fn stop(&mut self, since_ns: u64, shared: &mut Shared, up: &mut dyn Upper) {
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
