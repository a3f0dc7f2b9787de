//! Small packets that come one by one to somebody who polls: whether the connected socket is read
//! without what the kernel tells beside a message.
//!
//! That (how large its packets are, how it is marked, when it came) is hardly news for a lone packet:
//! it is alone, and it came just now, since the look before found nothing. So after a row of lone
//! packets the socket is asked for bytes and nothing else (`recv`). For a packet that was not waited
//! for, the time of arrival is asked for afterwards. Marks of congestion are asked for with one packet
//! in sixteen: so little is in flight that a controller has nothing to take back.
//! Measured: M-udp-1.
//!
//! Packets that were coalesced cannot be told apart without their size. So coalescing is switched
//! off meanwhile, and the socket must be found empty afterwards before it is read plainly. What the
//! kernel is about to queue in those nanoseconds, coalesced before, is one packet with a wrong
//! trailer to whoever takes it: a loss.
//!
//! Pure: what has to be done with the socket's options is answered as a [`Switch`].

use super::chooser::{How, Taken};

/// A row of so many lone packets is sure to be followed by more: some 0.5 ms of small messages to
/// and fro (a judgement).
const SURE: u32 = 64;

/// What a look takes back that found a packet that was not waited for, or several: a burst is noticed
/// after some 30. A peer's report goes just before its message, so one in 15 small messages to and
/// fro is no lone one where all is well, and more on a machine that is busy.
const DOUBT: u32 = 2;

/// More at once is bulk, which is to be coalesced from its second packet on.
const SMALL_BYTES: usize = 1024;

/// Longest time between two looks of somebody who polls, and so the error of a lone packet's time of
/// arrival. A look takes some 0.3 us.
const POLLED_NS: u64 = 2_000;

/// Packets in a row that are read plainly before one is read with its mark (a judgement).
const PLAIN_ROW: u32 = 15;

/// How the packets of the connected socket come; see the module's text.
#[derive(Debug, Default)]
pub(super) struct SmallPackets {
    /// Goes up with lone packets and down with others, up to [`SURE`].
    score: u32,
    is_on: bool,
    /// When the socket was found empty, if it was when it was last looked at.
    empty_ns: Option<u64>,
    /// Looks that found something since the last that asked for marks.
    plain: u32,
    /// While on: whether the kernel tells marks.
    tells_marks: bool,
}

/// What to change of the socket's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::udp) enum Switch {
    /// Nothing is told beside a message any more. If the socket turns out not to be empty then, all
    /// is told again, and [`Chooser::on_switch_failed`](super::Chooser::on_switch_failed) called.
    ToPlain,
    /// All is told beside each message.
    ToWhole,
    /// Marks alone are told, or not.
    Marks(bool),
}

impl SmallPackets {
    /// Whether packets come one by one.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn how(&self, now_ns: u64) -> How {
        match (self.is_on, self.is_awaited(now_ns)) {
            (false, _) => How::Whole,
            (true, false) => How::Timed,
            (true, true) if self.plain < PLAIN_ROW => How::Plain,
            (true, true) => How::Marked,
        }
    }

    /// Somebody polls, and found nothing so far.
    fn is_awaited(&self, now_ns: u64) -> bool {
        self.empty_ns.is_some_and(|empty_ns| now_ns.saturating_sub(empty_ns) <= POLLED_NS)
    }

    /// A look found nothing.
    pub(super) fn on_empty(&mut self, now_ns: u64) -> Option<Switch> {
        self.empty_ns = Some(now_ns);
        if self.score == SURE && !self.is_on {
            (self.is_on, self.plain, self.tells_marks) = (true, 0, false);
            return Some(Switch::ToPlain);
        }
        // Now that nothing is there that would wait for it.
        let tells_marks = self.plain >= PLAIN_ROW;
        if !self.is_on || tells_marks == self.tells_marks {
            return None;
        }
        self.tells_marks = tells_marks;
        Some(Switch::Marks(tells_marks))
    }

    /// A look found something.
    pub(super) fn on_packets(&mut self, now_ns: u64, how: How, taken: Taken) -> Option<Switch> {
        // Marks are told beside one packet in a row.
        self.plain = if how == How::Marked { 0 } else { self.plain.saturating_add(1) };
        let is_awaited = self.is_awaited(now_ns);
        self.empty_ns = None;
        self.score = match taken.bytes <= SMALL_BYTES {
            true if taken.packets == 1 && is_awaited => SURE.min(self.score + 1),
            true => self.score.saturating_sub(DOUBT),
            false => 0,
        };
        if self.score > 0 || !self.is_on {
            return None;
        }
        self.is_on = false;
        Some(Switch::ToWhole)
    }

    /// The socket was not empty when the last switch was made.
    pub(super) fn on_switch_failed(&mut self) {
        (self.is_on, self.score) = (false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK_NS: u64 = 300;

    /// One packet after a look that found nothing; what was to be switched.
    fn lone(small: &mut SmallPackets, now_ns: &mut u64) -> Vec<Switch> {
        let mut switches = Vec::from_iter(small.on_empty(*now_ns));
        *now_ns += LOOK_NS;
        let taken = Taken { packets: 1, bytes: 100, is_drained: true };
        switches.extend(small.on_packets(*now_ns, small.how(*now_ns), taken));
        switches
    }

    fn on(now_ns: &mut u64) -> SmallPackets {
        let mut small = SmallPackets::default();
        for _ in 0..SURE {
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
        assert_eq!(looks, Some(SURE / DOUBT));
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
        assert_eq!(small.how(now_ns + POLLED_NS), How::Plain);
        assert_eq!(small.how(now_ns + POLLED_NS + 1), How::Timed);
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
