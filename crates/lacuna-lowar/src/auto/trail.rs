//! The fate of each packet in the order in which the packets were sent, as far as a receiver can tell.
//!
//! Numbers that are skipped are lost packets, whether or not anything protects them; what a repair recovers
//! later was lost all the same. So the trail looks at packets as they come from the path, before the
//! decoder. Repairs of a block are numbered, so those between two that came, and behind the last one, are
//! seen to be lost, too.
//!
//! - **Late packets.** A gap is judged once it is older than the reordering window. A packet that comes in
//!   the meantime was late. One that comes soon after the judgement was late, too, and widens the window,
//!   which narrows slowly again. It stays below a third of a round trip: what comes then is sent again.
//! - **Going back.** Two packets in a row with numbers that were passed are the beginning of another round:
//!   its packets are followed from there on. A single one is a duplicate.
//! - **Jumps between messages** (see [`crate::decoder`]) are no loss in answers to READs, and count as one
//!   lost packet in flows that have requests which take more numbers than one.
//!
//! Not seen: a whole block's repairs if none of them comes, the end of a round before the sender goes back.

use crate::grid::PSN_ORIGIN;
use crate::packet::{Kind, Packet};
use lacuna_wire::psn;
use lacuna_wire::rc::{BlockHeader, Operation};
use std::collections::VecDeque;

use crate::strength::repairs_of;

/// Gaps that wait for their judgement; one more judges the oldest. Twice as many are kept if no judgement is
/// asked for.
const MISSING_MAX: usize = 512;
/// A number so far ahead is of another flow, or of one whose window nobody knows.
const AHEAD_MAX: u64 = 1 << 17;
/// Of two packets that came again, the second is at most so far behind the first.
const AGAIN_MAX: u64 = 64;
/// Judged gaps that are remembered, for packets that come after all.
const JUDGED_MAX: usize = 32;
/// Of the reordering window, lost with each judgement that finds none late: it halves in 700.
const WINDOW_DECAY: u64 = 1024;
/// Share of the mean that a message's length has: 1 / 2^this.
const LENGTH_SHIFT: u32 = 5;

/// Packets that are missing, in a row.
#[derive(Clone, Copy, Debug)]
struct Missing {
    /// Numbers, if they have any and may still come.
    first: u64,
    end: u64,
    /// Packets sent before.
    position: u64,
    /// How many were sent.
    packets: u64,
    since_ns: u64,
}

/// Repairs of the block that ended last.
#[derive(Clone, Copy, Debug)]
struct Repairs {
    first: u64,
    next: u64,
    total: u64,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Trail {
    /// The number that follows the last one; `None` before the first.
    head: Option<u64>,
    in_message: bool,
    /// Requests with numbers for their answers were seen.
    has_requests: bool,
    /// Packets that were sent so far.
    position: u64,
    missing: VecDeque<Missing>,
    judged: VecDeque<Missing>,
    /// How late packets have been lately, and the most that is believed.
    late_ns: u64,
    late_ns_max: u64,
    /// The number behind a packet that came again.
    again: Option<u64>,
    repairs: Option<Repairs>,
    mtu: u32,
    /// The message began with this number, or before it if that is not certain.
    began: u64,
    is_certain: bool,
    /// Means of the length of a message and of its square, in packets, fixed point; 0 before the first.
    length: u64,
    length_squared: u64,
}

impl Trail {
    /// Packets of the message that a packet is of, on average over packets: most are in long messages. One
    /// that goes on counts as long as it is, and before any has ended as a long one.
    pub(super) fn message_packets(&self) -> Option<u64> {
        let open = self.head?.saturating_sub(self.began);
        let mean = self.length_squared.checked_div(self.length);
        Some(mean.unwrap_or(LONG_PACKETS).max(open).max(1))
    }

    /// Another flow of the same path is followed from its next packet on.
    pub(super) fn on_other_flow(&mut self) {
        *self = Self { position: self.position, late_ns: self.late_ns, ..Self::default() };
    }

    /// A packet of the connection came.
    pub(super) fn on_packet(&mut self, now_ns: u64, packet: &Packet<'_>) {
        let (begins, ends, numbers) = match packet.kind {
            Kind::Answer => return,
            Kind::Request { length } => {
                let numbers = length.div_ceil(self.mtu.max(1)).max(1);
                self.has_requests |= numbers > 1;
                (true, true, u64::from(if self.mtu == 0 { 1 } else { numbers }))
            }
            Kind::Data(part) => {
                if !part.ends() {
                    self.mtu = packet.payload_bytes.into();
                }
                (part.begins(), part.ends(), 1)
            }
        };
        let head = *self.head.get_or_insert_with(|| {
            self.began = PSN_ORIGIN + u64::from(packet.psn);
            self.began
        });
        let psn = psn::unwrap(packet.psn, head);
        if psn > head + AHEAD_MAX {
            *self = Self { position: self.position, began: psn, ..Self::default() };
            self.head = Some(psn + numbers);
            return;
        }
        if psn < head {
            return self.on_earlier(now_ns, psn, numbers, ends);
        }
        self.again = None;
        if let Some(Repairs { next, total, .. }) = self.repairs.take() {
            self.miss(now_ns, 0..0, total - next);
        }
        let skipped = psn - head;
        let is_between = !self.in_message && begins;
        let is_answer = packet.opcode.operation() == Operation::ReadResponse;
        match skipped {
            0 => {}
            _ if is_between && is_answer => {}
            _ if is_between && self.has_requests => self.miss(now_ns, 0..0, 1),
            _ => self.miss(now_ns, head..psn, skipped),
        }
        // A message's length is known from where it begins and where the next one does, if the packets between
        // leave no doubt.
        if skipped > 1 || !self.in_message && !begins {
            (self.began, self.is_certain) = (psn, false);
        }
        if begins {
            if self.is_certain {
                self.on_message(psn - self.began);
            }
            (self.began, self.is_certain) = (psn, true);
        }
        self.passed(psn + numbers, ends);
    }

    fn passed(&mut self, head: u64, ends: bool) {
        self.position += 1;
        self.head = Some(head);
        self.in_message = !ends;
    }

    fn on_message(&mut self, packets: u64) {
        let packets = packets.min(LONG_PACKETS * 16);
        let mean = |mean: &mut u64, value: u64| {
            let value = value << LENGTH_SHIFT;
            *mean = if *mean == 0 {
                value
            } else {
                *mean - (*mean >> LENGTH_SHIFT) + (value >> LENGTH_SHIFT)
            };
        };
        mean(&mut self.length, packets);
        mean(&mut self.length_squared, packets * packets);
    }

    /// A packet with a number that was passed: late, sent again, or a duplicate.
    fn on_earlier(&mut self, now_ns: u64, psn: u64, numbers: u64, ends: bool) {
        let at =
            self.missing.iter().position(|missing| (missing.first..missing.end).contains(&psn));
        if let Some(at) = at {
            return self.came_late(at, psn);
        }
        let is_late = |gap: &&Missing| {
            (gap.first..gap.end).contains(&psn)
                && now_ns.saturating_sub(gap.since_ns) < self.late_ns_max
        };
        if let Some(gap) = self.judged.iter().find(is_late) {
            let late_ns = now_ns.saturating_sub(gap.since_ns);
            self.late_ns = self.late_ns.max(late_ns + late_ns / 4).min(self.late_ns_max);
            return;
        }
        match self.again {
            Some(again) if psn >= again && psn - again <= AGAIN_MAX => {
                // The one before was of this round, too.
                self.position += 1;
                self.repairs = None;
                self.again = None;
                if psn < self.began {
                    (self.began, self.is_certain) = (psn, false);
                }
                self.miss(now_ns, again..psn, psn - again);
                self.passed(psn + numbers, ends);
            }
            _ => self.again = Some(psn + numbers),
        }
    }

    fn came_late(&mut self, at: usize, psn: u64) {
        let Some(before) = self.missing.remove(at) else { return };
        let behind = psn + 1 - before.first;
        let rest = Missing {
            first: psn + 1,
            position: before.position + behind,
            packets: before.packets - behind,
            ..before
        };
        let before = Missing { end: psn, packets: behind - 1, ..before };
        for part in [rest, before] {
            if part.packets > 0 {
                self.missing.insert(at, part);
            }
        }
    }

    /// A repair of a block came.
    pub(super) fn on_repair(&mut self, now_ns: u64, block: &BlockHeader, index: u8) {
        let Some(head) = self.head else { return };
        let first = psn::unwrap(block.first_psn, head);
        let end = first + u64::from(block.packets);
        if end < head || end > head + AHEAD_MAX {
            return;
        }
        if end > head {
            // The end of the block's data is missing.
            if let Some(Repairs { next, total, .. }) = self.repairs.take() {
                self.miss(now_ns, 0..0, total - next);
            }
            self.miss(now_ns, head..end, end - head);
            (self.head, self.in_message) = (Some(end), !block.has_last);
            if first > head {
                (self.began, self.is_certain) = (first, false);
            }
        }
        let total = u64::from(repairs_of(block.strength, block.packets));
        let known = self.repairs.filter(|repairs| repairs.first == first);
        let next = known.map_or(0, |repairs| repairs.next);
        let index = u64::from(index).min(total.saturating_sub(1));
        if index < next {
            return;
        }
        self.miss(now_ns, 0..0, index - next);
        self.position += 1;
        self.repairs = Some(Repairs { first, next: index + 1, total });
    }

    /// So many packets in a row are missing.
    fn miss(&mut self, since_ns: u64, numbers: std::ops::Range<u64>, packets: u64) {
        if packets == 0 {
            return;
        }
        let position = self.position;
        self.position += packets;
        if self.missing.len() >= 2 * MISSING_MAX {
            // Nobody asks for them.
            self.missing.pop_front();
        }
        let missing =
            Missing { first: numbers.start, end: numbers.end, position, packets, since_ns };
        self.missing.push_back(missing);
    }

    /// Tells of the losses that are judged now, with the packets sent before, and how many were lost in a
    /// row; returns the packets that are judged by then. The window is between the two times.
    pub(super) fn judge(
        &mut self,
        now_ns: u64,
        (window_ns, window_ns_max): (u64, u64),
        mut lost: impl FnMut(u64, u64),
    ) -> u64 {
        self.late_ns_max = window_ns_max;
        let window_ns = window_ns.max(self.late_ns).min(window_ns_max);
        while let Some(first) = self.missing.front() {
            let is_old = first.since_ns.saturating_add(window_ns) <= now_ns;
            if !is_old && self.missing.len() <= MISSING_MAX {
                return first.position;
            }
            lost(first.position, first.packets);
            self.late_ns -= self.late_ns.div_ceil(WINDOW_DECAY);
            if self.judged.len() >= JUDGED_MAX {
                self.judged.pop_front();
            }
            self.judged.extend(self.missing.pop_front());
        }
        self.position
    }

    /// Bytes of memory on the heap.
    pub(super) fn memory_bytes(&self) -> usize {
        (self.missing.capacity() + self.judged.capacity()) * size_of::<Missing>()
    }
}

/// Packets of a message whose end was not seen yet, at least.
const LONG_PACKETS: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_wire::Qpn;
    use lacuna_wire::rc::{CodeKind, Fields, MessageClass, Opcode, RcHeader, Strength};

    fn packet(opcode: Opcode, psn: u32) -> Vec<u8> {
        let header = RcHeader {
            opcode,
            destination: Qpn::from_bits(1),
            psn,
            asks_ack: false,
            is_solicited: false,
            fields: Fields::None,
        };
        let payload = vec![7; 4];
        let mut packet = vec![0; header.packet_bytes(4)];
        header.emit(4, &mut packet);
        packet[header.header_bytes()..][..4].copy_from_slice(&payload);
        packet
    }

    fn middle(trail: &mut Trail, now_ns: u64, psn: u32) {
        let bytes = packet(Opcode::SendMiddle, psn);
        trail.on_packet(now_ns, &Packet::parse(&bytes).unwrap());
    }

    fn judged(trail: &mut Trail, now_ns: u64) -> (Vec<(u64, u64)>, u64) {
        let mut lost = Vec::new();
        let position =
            trail.judge(now_ns, (100, 250), |position, packets| lost.push((position, packets)));
        (lost, position)
    }

    fn block(first_psn: u32, packets: u16, repairs: u16) -> BlockHeader {
        BlockHeader {
            first_psn,
            packets,
            has_first: false,
            has_last: false,
            class: MessageClass::Send,
            last_bytes: 0,
            round: 0,
            strength: Strength { block_packets: packets, repairs, code: CodeKind::Xor },
        }
    }

    #[test]
    fn skipped_numbers_are_lost_once_they_are_older_than_the_window() {
        let mut trail = Trail::default();
        for (now_ns, psn) in [(0, 10), (1, 11), (2, 14), (3, 15), (4, 17)] {
            middle(&mut trail, now_ns, psn);
        }
        assert_eq!(judged(&mut trail, 50), (vec![], 2), "the gap may be filled");
        assert_eq!(judged(&mut trail, 102), (vec![(2, 2)], 6));
        assert_eq!(judged(&mut trail, 110), (vec![(6, 1)], 8));
    }

    #[test]
    fn what_comes_within_the_window_was_late() {
        let mut trail = Trail::default();
        for (now_ns, psn) in [(0, 10), (1, 15), (2, 12), (3, 16)] {
            middle(&mut trail, now_ns, psn);
        }
        assert_eq!(judged(&mut trail, 200), (vec![(1, 1), (3, 2)], 7));
        middle(&mut trail, 201, 14);
        middle(&mut trail, 202, 17);
        assert_eq!(judged(&mut trail, 400), (vec![], 8), "a single one later is a duplicate");
    }

    #[test]
    fn the_window_is_as_long_as_packets_have_been_late() {
        let mut trail = Trail::default();
        for (now_ns, psn) in [(0, 10), (1, 12), (2, 13)] {
            middle(&mut trail, now_ns, psn);
        }
        assert_eq!(judged(&mut trail, 120), (vec![(1, 1)], 4), "too early");
        middle(&mut trail, 161, 11);
        for (now_ns, psn) in [(170, 14), (171, 16), (172, 17)] {
            middle(&mut trail, now_ns, psn);
        }
        assert_eq!(judged(&mut trail, 300), (vec![], 5), "200 from now on");
        middle(&mut trail, 330, 15);
        assert_eq!(judged(&mut trail, 600), (vec![], 8));
    }

    #[test]
    fn packets_that_are_sent_again_are_followed_from_where_the_sender_goes_back_to() {
        let mut trail = Trail::default();
        for psn in [10, 11, 13, 14, 15] {
            middle(&mut trail, 0, psn);
        }
        assert_eq!(judged(&mut trail, 200), (vec![(2, 1)], 6));
        // 12 again, 13 is lost now, and the flow goes on.
        for psn in [12, 14, 15, 16] {
            middle(&mut trail, 300, psn);
        }
        assert_eq!(judged(&mut trail, 500), (vec![(7, 1)], 11));
    }

    #[test]
    fn repairs_are_packets_too() {
        let mut trail = Trail::default();
        for psn in 0..4 {
            middle(&mut trail, 0, psn);
        }
        // Of four repairs the first, third and last are missing.
        trail.on_repair(0, &block(0, 4, 4), 1);
        middle(&mut trail, 1, 4);
        assert_eq!(judged(&mut trail, 200), (vec![(4, 1), (6, 2)], 9));
        // The data's end is missing with the first repair.
        trail.on_repair(300, &block(4, 4, 4), 1);
        trail.on_repair(300, &block(4, 4, 4), 2);
        trail.on_repair(300, &block(4, 4, 4), 3);
        middle(&mut trail, 300, 8);
        assert_eq!(judged(&mut trail, 500), (vec![(9, 3), (12, 1)], 17));
    }

    #[test]
    fn numbers_that_other_requests_took_are_no_loss_of_answers() {
        let mut trail = Trail::default();
        for psn in [5, 6, 20, 21, 23] {
            let bytes = packet(Opcode::ReadResponseMiddle, psn);
            let mut read = Packet::parse(&bytes).unwrap();
            let part = match psn {
                5 | 20 => lacuna_wire::rc::Part::First,
                6 => lacuna_wire::rc::Part::Last,
                _ => lacuna_wire::rc::Part::Middle,
            };
            read.kind = Kind::Data(part);
            trail.on_packet(0, &read);
        }
        assert_eq!(judged(&mut trail, 200), (vec![(4, 1)], 6));
    }

    #[test]
    fn long_messages_count_by_their_packets() {
        let mut trail = Trail::default();
        let mut psn = 0;
        for message in 0..200 {
            let packets = if message % 10 == 9 { 1000 } else { 1 };
            for place in 0..packets {
                let opcode = match (place == 0, place + 1 == packets) {
                    (true, true) => Opcode::SendOnly,
                    (true, false) => Opcode::SendFirst,
                    (false, true) => Opcode::SendLast,
                    (false, false) => Opcode::SendMiddle,
                };
                let bytes = packet(opcode, psn);
                trail.on_packet(0, &Packet::parse(&bytes).unwrap());
                psn += 1;
            }
        }
        let mean = trail.message_packets().unwrap();
        assert!((900..1010).contains(&mean), "{mean}");
    }

    #[test]
    fn a_message_that_goes_on_is_as_long_as_it_is_although_it_is_sent_again() {
        let mut trail = Trail::default();
        assert_eq!(trail.message_packets(), None);
        middle(&mut trail, 0, 7);
        for psn in 0..3 {
            let bytes = packet(Opcode::SendOnly, 8 + psn);
            trail.on_packet(0, &Packet::parse(&bytes).unwrap());
        }
        assert_eq!(trail.message_packets(), Some(1));
        let bytes = packet(Opcode::SendFirst, 11);
        trail.on_packet(0, &Packet::parse(&bytes).unwrap());
        (12..5_000).for_each(|psn| middle(&mut trail, 1, psn));
        assert_eq!(trail.message_packets(), Some(4_989));
        // 400 is sent again, and everything behind it.
        (400..6_000).for_each(|psn| middle(&mut trail, 1_000, psn));
        assert_eq!(trail.message_packets(), Some(5_989));
        // An end and a beginning may be among what is missing.
        (6_010..6_020).for_each(|psn| middle(&mut trail, 2_000, psn));
        assert_eq!(trail.message_packets(), Some(10));

        let mut unknown = Trail::default();
        [50, 51, 53, 52, 53, 54].into_iter().for_each(|psn| middle(&mut unknown, 0, psn));
        assert_eq!(unknown.message_packets(), Some(LONG_PACKETS));
    }
}
