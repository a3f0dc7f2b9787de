//! What the peer's shim sends: repairs, and how it protects its blocks.
//!
//! Strengths are learned from both. An announcement names the first packet of the block that comes, so a
//! flow is followed from there on, even if that packet is lost. Repairs name their block, so they also set
//! the grid right where it went wrong: after a retransmission that was not seen, or in mid-flow.

use super::{AHEAD_MAX, Decoder, State};
use crate::packet::operation_of;
use crate::shared::Shared;
use crate::strength::{codec, fits};
use crate::upper::Upper;
use lacuna_wire::psn;
use lacuna_wire::rc::{BlockHeader, Strength};

impl Decoder {
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
        let is_newer = header.round != self.round && header.round.wrapping_sub(self.round) < 1 << 7;
        if is_newer {
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
        if is_newer
            && self.goes_back
            && self.queue.is_empty()
            && let Some(again) = self.again.filter(|again| (end..next).contains(again))
        {
            // Nothing is missing here, so the connection lacks a packet that was lost before the flow was
            // protected. What is sent again has repairs, of which none would be used before the flow is back
            // where it was.
            self.start_at(again);
            return;
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
    pub(super) fn take_repair(
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
        let operation = operation_of(header.class);
        if self.facts.is_mixed(operation, first, now_ns) {
            self.blocks[at].blind(shared);
        }
        self.blocks[at].add_repair(shared, header, index, sum)
    }

    /// Learns the strength that a repair tells; false if there is no such strength.
    pub(super) fn learn(&mut self, header: &BlockHeader) -> bool {
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

    /// Whether repairs say that packets before this number are missing.
    pub(super) fn knows_missing(&self, psn: u64) -> bool {
        let next = self.grid.next;
        let mut blocks = self.blocks.iter().filter(|block| !block.is_blind());
        blocks.any(|block| block.first < psn && block.is_known_to_reach(next))
    }

    /// Packets with numbers that were seen may be of two rounds from here on, and those of open blocks are.
    pub(super) fn mix(&mut self, now_ns: u64, shared: &mut Shared) {
        let seen = self.queue.last().map_or(0, |last| last.psn + 1);
        let below = seen.max(self.handed_to).max(self.grid.next);
        self.facts.mixed = Some((now_ns.saturating_add(self.hold_ns_max), below));
        for block in self.blocks.iter_mut().filter(|block| block.is_of_read()) {
            block.blind(shared);
        }
    }
}
