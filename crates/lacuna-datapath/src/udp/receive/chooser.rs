//! Decides which socket is read next, and how, or whether reading is delayed.
//!
//! There may be two sockets: the first, which receives from any peer, and one that is connected to the
//! peer that nearly all packets come from ([`connected`](super::super::connected)). Without a
//! connected socket, the first is always read with all control messages. With one:
//!
//! * The first is read until it was empty once, because it may hold older packets of the peer. From
//!   then on it is read once per [`FIRST_EVERY_READS`] reads of the connected one: a read costs some
//!   0.3 us, which would delay the peer's packets.
//! * The connected one is read without control messages while small packets arrive one by one
//!   ([`small`](super::small)).
//! * Reading it is delayed while a fast flow fills it ([`batching`](super::batching)).
//!
//! It does no I/O and reads no clock: the caller reports what it read.

use super::batching::Batching;
use super::small::{SmallPackets, Switch};

/// The first socket is read after this many reads of the connected one that returned packets, or half
/// as many that did not (a judgement).
const FIRST_EVERY_READS: u32 = 32;

/// While small packets arrive one by one, the caller polls all the time. Then the first socket is
/// read this long after its last read, …
const FIRST_EVERY_NS: u64 = 20_000;
/// … or after this many reads, for callers whose clock stands still (judgements).
const FIRST_EVERY_READS_SMALL: u32 = 8 * FIRST_EVERY_READS;

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::udp) enum Next {
    /// Read the first socket, with all control messages.
    First,
    /// Read the connected socket.
    Connected(How),
    /// Read nothing.
    Wait,
}

/// How to read a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::udp) enum How {
    /// Any number of packets, with all control messages.
    Whole,
    /// One packet with its ECN mark.
    Marked,
    /// One packet without control messages; it arrived just now.
    Plain,
    /// One packet and its arrival time.
    Timed,
}

/// What a read returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::udp) struct Taken {
    pub(in crate::udp) packets: usize,
    pub(in crate::udp) bytes: usize,
    /// The socket was empty afterwards.
    pub(in crate::udp) is_drained: bool,
}

/// Chooses the next read; see the module's text.
#[derive(Debug, Default)]
pub(in crate::udp) struct Chooser {
    connected: Option<ConnectedState>,
}

/// State while there is a connected socket.
#[derive(Debug)]
struct ConnectedState {
    small: SmallPackets,
    batching: Batching,
    /// Reads of it since the first socket was read; those that returned nothing count twice.
    reads: u32,
    /// When the first socket was read last.
    first_read_ns: u64,
    /// The first socket was not yet empty since the connected one exists.
    may_hold_older: bool,
}

impl Chooser {
    /// A connected socket was made, with a receive buffer of `buffer_bytes` by the kernel's
    /// accounting; `None`: it was closed.
    pub(in crate::udp) fn on_connected(&mut self, buffer_bytes: Option<usize>) {
        self.connected = buffer_bytes.map(|buffer_bytes| ConnectedState {
            small: SmallPackets::default(),
            batching: Batching::new(buffer_bytes),
            reads: 0,
            first_read_ns: 0,
            may_hold_older: true,
        });
    }

    /// What to do now. `queued_bytes` asks the kernel how much the connected socket holds, by its
    /// accounting; it is called only when the answer decides.
    pub(in crate::udp) fn next(
        &mut self,
        now_ns: u64,
        queued_bytes: impl FnOnce() -> Option<u64>,
    ) -> Next {
        let Some(connected) = &mut self.connected else { return Next::First };
        if connected.is_first_due(now_ns) {
            (connected.reads, connected.first_read_ns) = (0, now_ns);
            return Next::First;
        }
        let how = connected.small.how(now_ns);
        if how == How::Whole && connected.batching.delays_read(now_ns, queued_bytes) {
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

    /// The connected socket was read in the way `how`. Returns the change of its options that is due.
    pub(in crate::udp) fn on_taken(
        &mut self,
        now_ns: u64,
        how: How,
        taken: Taken,
    ) -> Option<Switch> {
        let connected = self.connected.as_mut()?;
        let is_empty = taken.packets == 0;
        connected.reads += if is_empty { 2 } else { 1 };
        connected.batching.on_taken(now_ns, taken.bytes, is_empty || taken.is_drained);
        match is_empty {
            true => connected.small.on_empty(now_ns),
            false => connected.small.on_packets(now_ns, how, taken),
        }
    }

    /// After [`Switch::ToPlain`] the socket was not empty, so the switch was undone.
    pub(in crate::udp) fn on_switch_failed(&mut self) {
        if let Some(connected) = &mut self.connected {
            connected.small.on_switch_failed();
        }
    }
}

impl ConnectedState {
    fn is_first_due(&self, now_ns: u64) -> bool {
        let is_due = match self.small.is_on() {
            false => self.reads >= FIRST_EVERY_READS,
            true => {
                self.reads >= FIRST_EVERY_READS_SMALL
                    || now_ns.saturating_sub(self.first_read_ns) >= FIRST_EVERY_NS
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

    /// A chooser with a connected socket, and with the first socket found empty.
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
    fn older_packets_are_read_before_the_connected_socket() {
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
    fn the_first_socket_is_read_after_a_number_of_reads_sooner_if_they_return_nothing() {
        for (taken, reads) in [(ONE, FIRST_EVERY_READS), (EMPTY, FIRST_EVERY_READS / 2)] {
            let mut chooser = chooser();
            for _ in 0..3 {
                for _ in 0..reads {
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
        let (mut now_ns, mut first_read_ns) = (0, 0);
        let mut is_plain = false;
        for _ in 0..2000 {
            now_ns += 300;
            match chooser.next(now_ns, unasked) {
                Next::First => {
                    assert!(!is_plain || now_ns - first_read_ns >= FIRST_EVERY_NS);
                    first_read_ns = now_ns;
                    chooser.on_first_empty();
                }
                Next::Connected(how) => {
                    assert!(!is_plain || now_ns - first_read_ns < FIRST_EVERY_NS);
                    // Every other read returns a packet.
                    let taken = if now_ns % 600 == 0 { ONE } else { EMPTY };
                    is_plain |= chooser.on_taken(now_ns, how, taken) == Some(Switch::ToPlain);
                }
                Next::Wait => panic!("nothing to wait for"),
            }
        }
        assert!(is_plain);
    }

    #[test]
    fn a_fast_flow_is_delayed_and_its_queue_is_asked_for() {
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
