//! Decides which socket is read next, how, and whether to leave what is there for a while.
//!
//! There may be two sockets: the first, which takes packets from anyone, and one that is connected to
//! the peer that nearly all packets come from ([`connected`](super::super::connected)). Without a
//! connected socket the first is read, always whole. With one:
//!
//! * The first is read until it was found empty once, since it may hold packets of the peer that are
//!   older; then once in a number of looks. A look costs some 0.3 us, which the peer's packets should
//!   not wait for.
//! * The connected one is read plainly while small packets come one by one ([`small`](super::small)).
//! * It is left alone for a while when a fast flow was caught up with ([`batching`](super::batching)).
//!
//! Pure: it is told what was taken, and knows no socket and no clock.

use super::batching::Batching;
use super::small::{SmallPackets, Switch};

/// The first socket is read after so many looks at the connected one that brought something, or half
/// as many that did not (a judgement).
const OTHERS_EVERY: u32 = 32;

/// While small packets come one by one, which is when somebody polls and does nothing else, it is
/// read when that was so long ago, …
const OTHERS_EVERY_NS: u64 = 20_000;
/// … or after so many looks, for those whose clock stands still (judgements).
const OTHERS_EVERY_SMALL: u32 = 8 * OTHERS_EVERY;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::udp) enum Next {
    /// Read the first socket, whole.
    First,
    /// Read the connected socket.
    Connected(How),
    /// Leave what is there.
    Wait,
}

/// How to read a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::udp) enum How {
    /// Any number of packets, and all that there is to know of them.
    Whole,
    /// One packet and its mark.
    Marked,
    /// One packet. It came just now.
    Plain,
    /// One packet, and when it came.
    Timed,
}

/// What a look found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::udp) struct Taken {
    pub(in crate::udp) packets: usize,
    pub(in crate::udp) bytes: usize,
    /// There was no more.
    pub(in crate::udp) is_drained: bool,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(in crate::udp) struct Chooser {
    connected: Option<OfConnected>,
}

/// What is known of the connected socket.
#[derive(Debug)]
struct OfConnected {
    small: SmallPackets,
    batching: Batching,
    /// Looks at it since the first socket was read; those that found nothing count twice.
    looks: u32,
    /// When the first socket was read.
    others_ns: u64,
    /// The first socket was not found empty since there are two.
    may_hold_older: bool,
}

impl Chooser {
    /// There is a connected socket from now on, with a buffer of so many bytes by the kernel's
    /// accounting; or, with `None`, there is none any more.
    pub(in crate::udp) fn on_connected(&mut self, buffer_bytes: Option<usize>) {
        self.connected = buffer_bytes.map(|buffer_bytes| OfConnected {
            small: SmallPackets::default(),
            batching: Batching::new(buffer_bytes),
            looks: 0,
            others_ns: 0,
            may_hold_older: true,
        });
    }

    /// What to do now. `queued_bytes` asks how much lies in the connected socket, by the kernel's
    /// accounting; it is asked only when that decides.
    pub(in crate::udp) fn next(
        &mut self,
        now_ns: u64,
        queued_bytes: impl FnOnce() -> Option<u64>,
    ) -> Next {
        let Some(connected) = &mut self.connected else { return Next::First };
        if connected.is_others_turn(now_ns) {
            (connected.looks, connected.others_ns) = (0, now_ns);
            return Next::First;
        }
        let how = connected.small.how(now_ns);
        if how == How::Whole && connected.batching.waits(now_ns, queued_bytes) {
            return Next::Wait;
        }
        Next::Connected(how)
    }

    /// The first socket was read and found empty.
    pub(in crate::udp) fn on_first_empty(&mut self) {
        if let Some(connected) = &mut self.connected {
            connected.may_hold_older = false;
        }
    }

    /// The connected socket was read in this way; what to change of its options.
    pub(in crate::udp) fn on_taken(
        &mut self,
        now_ns: u64,
        how: How,
        taken: Taken,
    ) -> Option<Switch> {
        let connected = self.connected.as_mut()?;
        let is_empty = taken.packets == 0;
        connected.looks += if is_empty { 2 } else { 1 };
        connected.batching.on_taken(now_ns, taken.bytes, is_empty || taken.is_drained);
        match is_empty {
            true => connected.small.on_empty(now_ns),
            false => connected.small.on_packets(now_ns, how, taken),
        }
    }

    /// [`Switch::ToPlain`] found that something lay in the socket.
    pub(in crate::udp) fn on_switch_failed(&mut self) {
        if let Some(connected) = &mut self.connected {
            connected.small.on_switch_failed();
        }
    }
}

impl OfConnected {
    fn is_others_turn(&self, now_ns: u64) -> bool {
        let is_due = match self.small.is_on() {
            false => self.looks >= OTHERS_EVERY,
            true => {
                self.looks >= OTHERS_EVERY_SMALL
                    || now_ns.saturating_sub(self.others_ns) >= OTHERS_EVERY_NS
            }
        };
        is_due || self.may_hold_older
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: Taken = Taken { packets: 0, bytes: 0, is_drained: true };
    const ONE: Taken = Taken { packets: 1, bytes: 100, is_drained: true };
    const WHOLE: Next = Next::Connected(How::Whole);

    fn unasked() -> Option<u64> {
        panic!("not asked")
    }

    /// With a connected socket, and the first one found empty.
    fn chooser() -> Chooser {
        let mut chooser = Chooser::default();
        chooser.on_connected(Some(32 << 20));
        assert_eq!(chooser.next(0, unasked), Next::First);
        chooser.on_first_empty();
        chooser
    }

    #[test]
    fn with_one_socket_there_is_no_choice() {
        let mut chooser = Chooser::default();
        for now_ns in 0..100 {
            assert_eq!(chooser.next(now_ns, unasked), Next::First);
            chooser.on_first_empty();
            assert_eq!(chooser.on_taken(now_ns, How::Whole, ONE), None);
        }
    }

    #[test]
    fn what_is_older_is_read_before_the_connected_socket() {
        let mut chooser = Chooser::default();
        chooser.on_connected(Some(32 << 20));
        for now_ns in 0..100 {
            assert_eq!(chooser.next(now_ns, unasked), Next::First);
        }
        chooser.on_first_empty();
        assert_eq!(chooser.next(100, unasked), WHOLE);
        chooser.on_connected(None);
        assert_eq!(chooser.next(100, unasked), Next::First);
    }

    #[test]
    fn the_first_socket_is_read_after_a_number_of_looks_sooner_if_they_bring_nothing() {
        for (taken, looks) in [(ONE, OTHERS_EVERY), (EMPTY, OTHERS_EVERY / 2)] {
            let mut chooser = chooser();
            for _ in 0..3 {
                for _ in 0..looks {
                    assert_eq!(chooser.next(0, unasked), WHOLE);
                    chooser.on_taken(0, How::Whole, taken);
                }
                assert_eq!(chooser.next(0, unasked), Next::First);
                chooser.on_first_empty();
            }
        }
    }

    #[test]
    fn among_small_packets_time_decides_when_the_first_socket_is_read() {
        let mut chooser = chooser();
        let (mut now_ns, mut others_ns) = (0, 0);
        let mut is_plain = false;
        for _ in 0..2000 {
            now_ns += 300;
            match chooser.next(now_ns, unasked) {
                Next::First => {
                    assert!(!is_plain || now_ns - others_ns >= OTHERS_EVERY_NS);
                    others_ns = now_ns;
                    chooser.on_first_empty();
                }
                Next::Connected(how) => {
                    assert!(!is_plain || now_ns - others_ns < OTHERS_EVERY_NS);
                    // Every other look finds a packet.
                    let taken = if now_ns % 600 == 0 { ONE } else { EMPTY };
                    is_plain |= chooser.on_taken(now_ns, how, taken) == Some(Switch::ToPlain);
                }
                Next::Wait => panic!("nothing to wait for"),
            }
        }
        assert!(is_plain);
    }

    #[test]
    fn a_fast_flow_that_was_caught_up_with_is_left_alone_and_asked_for() {
        let mut chooser = chooser();
        let bundle = Taken { packets: 15, bytes: 61_800, is_drained: true };
        let mut asked = 0;
        let mut waited = 0;
        for now_ns in (0..10_000_000).step_by(16_000) {
            match chooser.next(now_ns, || {
                asked += 1;
                Some(1 << 20)
            }) {
                Next::First => chooser.on_first_empty(),
                Next::Connected(how) => _ = chooser.on_taken(now_ns, how, bundle),
                Next::Wait => waited += 1,
            }
        }
        assert!(waited > 0 && asked > 0, "{waited} times left alone, {asked} times asked for");
    }
}
