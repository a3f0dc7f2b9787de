//! Small packets that arrive one by one at a polling receiver: when the connected socket is read
//! without control messages.
//!
//! For a lone packet the control messages carry hardly any news: there is one packet, and it arrived
//! just now, because the read before returned nothing. So after a row of lone packets the socket is
//! read without control messages. If the receiver did not poll just before, it asks for the arrival
//! time afterwards. One packet in sixteen is read with its ECN mark: with so little in flight, a
//! congestion controller has nothing to reduce. Measured: M-udp-1.
//!
//! Coalesced packets cannot be separated without their size. So coalescing is switched off meanwhile,
//! and the socket must then be found empty before plain reads begin. Packets that the kernel
//! coalesced before and queues after that check are read as one packet with a wrong trailer: a loss.
//!
//! It does no I/O: changes of socket options are returned as a [`Switch`].

use super::chooser::{How, Taken};

/// Score at which plain reads begin: 64 lone packets in a row, some 0.5 ms of small messages to and
/// fro (a judgement).
const SCORE_MAX: u32 = 64;

/// A read that returns several packets, or one that was not polled for, lowers the score by this, so
/// a burst ends plain reads after some 30 packets. It must be small: a peer's report leaves just
/// before its message, so even on an idle machine one in 15 small messages to and fro is not alone.
const SCORE_PENALTY: u32 = 2;

/// More bytes in one read are bulk, which should be coalesced from its second packet on.
const SMALL_BYTES: usize = 1024;

/// Longest time between two reads of a polling receiver, and so the error of a lone packet's arrival
/// time. A read takes some 0.3 us.
const POLL_INTERVAL_NS_MAX: u64 = 2_000;

/// Plain reads in a row before one that asks for the ECN mark (a judgement).
const PLAIN_READS_MAX: u32 = 15;

/// Detects small packets on the connected socket; see the module's text.
#[derive(Debug, Default)]
pub(super) struct SmallPackets {
    /// Rises with lone packets up to [`SCORE_MAX`], falls with others.
    score: u32,
    is_on: bool,
    /// When the last read found the socket empty; `None` if it returned packets.
    empty_ns: Option<u64>,
    /// Reads that returned a packet since the last one that asked for marks.
    plain_reads: u32,
    /// While on: whether the kernel reports ECN marks.
    tells_marks: bool,
}

/// What to change of the socket's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::udp) enum Switch {
    /// Switch coalescing and all control messages off. If the socket is not empty afterwards, the
    /// caller switches them on again and calls
    /// [`Chooser::on_switch_failed`](super::Chooser::on_switch_failed).
    ToPlain,
    /// Switch coalescing and all control messages on.
    ToWhole,
    /// Switch ECN marks alone on or off.
    Marks(bool),
}

impl SmallPackets {
    /// Whether packets arrive one by one.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn how(&self, now_ns: u64) -> How {
        match (self.is_on, self.was_polled_for(now_ns)) {
            (false, _) => How::Whole,
            (true, false) => How::Timed,
            (true, true) if self.plain_reads < PLAIN_READS_MAX => How::Plain,
            (true, true) => How::Marked,
        }
    }

    /// The receiver polls, and its last read returned nothing.
    fn was_polled_for(&self, now_ns: u64) -> bool {
        self.empty_ns
            .is_some_and(|empty_ns| now_ns.saturating_sub(empty_ns) <= POLL_INTERVAL_NS_MAX)
    }

    /// A read returned nothing.
    pub(super) fn on_empty(&mut self, now_ns: u64) -> Option<Switch> {
        self.empty_ns = Some(now_ns);
        if self.score == SCORE_MAX && !self.is_on {
            (self.is_on, self.plain_reads, self.tells_marks) = (true, 0, false);
            return Some(Switch::ToPlain);
        }
        // Changed only while the socket is empty, so that no packet waits for the system call.
        let tells_marks = self.plain_reads >= PLAIN_READS_MAX;
        if !self.is_on || tells_marks == self.tells_marks {
            return None;
        }
        self.tells_marks = tells_marks;
        Some(Switch::Marks(tells_marks))
    }

    /// A read returned packets.
    pub(super) fn on_packets(&mut self, now_ns: u64, how: How, taken: Taken) -> Option<Switch> {
        self.plain_reads = if how == How::Marked { 0 } else { self.plain_reads.saturating_add(1) };
        let was_polled_for = self.was_polled_for(now_ns);
        self.empty_ns = None;
        self.score = match taken.bytes <= SMALL_BYTES {
            true if taken.packets == 1 && was_polled_for => SCORE_MAX.min(self.score + 1),
            true => self.score.saturating_sub(SCORE_PENALTY),
            false => 0,
        };
        if self.score > 0 || !self.is_on {
            return None;
        }
        self.is_on = false;
        Some(Switch::ToWhole)
    }

    /// The socket was not empty after the last switch, which was undone.
    pub(super) fn on_switch_failed(&mut self) {
        (self.is_on, self.score) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ_NS: u64 = 300;

    /// One packet after a read that returned nothing. Returns the switches that were due.
    fn lone(small: &mut SmallPackets, now_ns: &mut u64) -> Vec<Switch> {
        let mut switches = Vec::from_iter(small.on_empty(*now_ns));
        *now_ns += READ_NS;
        let taken = Taken { packets: 1, bytes: 100, is_drained: true };
        switches.extend(small.on_packets(*now_ns, small.how(*now_ns), taken));
        switches
    }

    fn on(now_ns: &mut u64) -> SmallPackets {
        let mut small = SmallPackets::default();
        for _ in 0..SCORE_MAX {
            assert_eq!(lone(&mut small, now_ns), []);
            assert_eq!(small.how(*now_ns), How::Whole);
        }
        assert_eq!(lone(&mut small, now_ns), [Switch::ToPlain]);
        small
    }

    #[test]
    fn a_row_of_lone_packets_switches_and_bulk_switches_back_at_once() {
        let mut now_ns = 0;
        let mut small = on(&mut now_ns);
        assert!(small.is_on());
        let bulk = Taken { packets: 1, bytes: SMALL_BYTES + 1, is_drained: true };
        assert_eq!(small.on_packets(now_ns, How::Plain, bulk), Some(Switch::ToWhole));
        assert!(!small.is_on());
        assert_eq!(small.on_packets(now_ns, How::Whole, bulk), None);
    }

    #[test]
    fn several_small_packets_in_a_row_switch_back() {
        let mut now_ns = 0;
        let mut small = on(&mut now_ns);
        let follows = Taken { packets: 1, bytes: 100, is_drained: false };
        let looks = (1..).find(|_| small.on_packets(now_ns, How::Timed, follows).is_some());
        assert_eq!(looks, Some(SCORE_MAX / SCORE_PENALTY));
    }

    #[test]
    fn one_packet_in_sixteen_is_read_with_its_mark_which_the_kernel_tells_then() {
        let mut now_ns = 0;
        let mut small = on(&mut now_ns);
        let mut marked = 0;
        for _ in 0..160 {
            let switches = lone(&mut small, &mut now_ns);
            marked += u32::from(switches.contains(&Switch::Marks(true)));
        }
        assert_eq!(marked, 10);
    }

    #[test]
    fn a_packet_that_nobody_polled_for_is_asked_for_its_time() {
        let mut now_ns = 0;
        let mut small = on(&mut now_ns);
        assert_eq!(small.on_empty(now_ns), None);
        assert_eq!(small.how(now_ns + POLL_INTERVAL_NS_MAX), How::Plain);
        assert_eq!(small.how(now_ns + POLL_INTERVAL_NS_MAX + 1), How::Timed);
    }

    #[test]
    fn a_socket_that_was_not_empty_is_read_as_before() {
        let mut now_ns = 0;
        let mut small = on(&mut now_ns);
        small.on_switch_failed();
        assert_eq!(small.how(now_ns), How::Whole);
        assert_eq!(lone(&mut small, &mut now_ns), [], "not at once again");
    }
}
