//! Black-hole detection (RFC 8899, section 4.3): detects from the peer's counts alone that full
//! packets no longer pass.
//!
//! The path MTU may fall during a connection without an ICMP message. Then flushes are answered and
//! short packets arrive, but no full packet does. Ordinary loss looks different: some packets of each
//! round trip arrive.
//!
//! A full packet must have arrived if more packets arrived than short ones were sent. If full packets
//! sent since then are lost, many in a row or some in several reports, a black hole is suspected.
//!
//! An outage says nothing about the MTU, so the owner restarts the detector after a silence that was
//! longer than an answer takes.

use super::ledger::LedgerEntry;

/// Full packets lost in a row that raise the suspicion at once (a judgement). Loss bursts are mostly
/// shorter.
const LOST_AT_ONCE: u64 = 16;
/// Fewer lost packets raise it, too: this many, in this many reports. A congestion window of less
/// than `LOST_AT_ONCE` packets that is lost twice is such a case.
const LOST_AGAIN: (u64, u32) = (2, 2);
/// Most packets in flight during the suspicion: enough to end it soon if it was only a long loss
/// burst, and few enough to waste.
pub(super) const SUSPECTED_PACKETS: u64 = 4;

/// Detector of one path, for all channels.
#[derive(Debug, Default)]
pub(super) struct BlackHoleDetector {
    /// Full packets lost since the last one that is known to have arrived.
    lost_packets: u64,
    /// Reports with such losses.
    reports: u32,
    /// The current report has such losses.
    has_loss: bool,
    /// A full packet arrived since [`BlackHoleDetector::take_full_arrived`].
    has_full_arrived: bool,
}

/// Counts of one channel when a full packet was last known to have arrived.
#[derive(Debug)]
pub(super) struct Watch {
    /// One past the highest number reported by then.
    full_psn: u64,
    /// Packets received by then.
    received_packets: u64,
    /// Short packets sent before `full_psn`.
    short_packets: u64,
}

/// Counts of one channel in a report.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChannelCounts {
    /// One past the highest number received.
    pub(super) psn: u64,
    /// Packets received, copies included.
    pub(super) received_packets: u64,
    /// Lower and upper bound on short packets sent before `psn`.
    pub(super) short_packets: (u64, u64),
}

impl Watch {
    pub(super) fn new(first_psn: u64) -> Self {
        Self { full_psn: first_psn, received_packets: 0, short_packets: 0 }
    }

    /// Takes in a report. Returns whether a full packet arrived.
    fn on_report(&mut self, counts: ChannelCounts) -> bool {
        let (least, most) = counts.short_packets;
        let received = counts.received_packets.saturating_sub(self.received_packets);
        if received <= most.saturating_sub(self.short_packets) {
            return false;
        }
        let full_psn = counts.psn.max(self.full_psn);
        self.restart(full_psn, counts.received_packets, least.max(self.short_packets));
        true
    }

    /// Considers only packets sent from now on.
    pub(super) fn restart(&mut self, next_psn: u64, received_packets: u64, short_packets: u64) {
        *self = Self { full_psn: next_psn, received_packets, short_packets };
    }
}

impl BlackHoleDetector {
    pub(super) fn on_report(&mut self, watch: &mut Watch, counts: ChannelCounts) {
        if watch.on_report(counts) {
            *self = Self { has_full_arrived: true, ..Self::default() };
        }
    }

    /// A run has been passed or has expired: its missing packets are lost.
    #[inline]
    pub(super) fn on_judged(&mut self, watch: &Watch, entry: &LedgerEntry) {
        if entry.psn_end > watch.full_psn {
            self.judge(watch, entry.psn_end, entry.count(), entry.short().into());
        }
    }

    fn judge(&mut self, watch: &Watch, psn_end: u64, count: u64, short: u64) {
        let since = psn_end.saturating_sub(watch.full_psn).min(count);
        let full = since.saturating_sub(short);
        self.lost_packets += full;
        self.has_loss |= full > 0;
    }

    /// Ends a report.
    pub(super) fn end_report(&mut self) {
        self.reports += u32::from(std::mem::take(&mut self.has_loss));
    }

    /// Forgets all losses.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Whether full packets seem not to pass.
    pub(super) fn is_suspected(&self) -> bool {
        let (packets, reports) = LOST_AGAIN;
        self.lost_packets >= LOST_AT_ONCE || self.lost_packets >= packets && self.reports >= reports
    }

    /// Whether a full packet arrived since the last call.
    pub(super) fn take_full_arrived(&mut self) -> bool {
        std::mem::take(&mut self.has_full_arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel and what is thought of its path.
    struct Tried {
        black_hole: BlackHoleDetector,
        watch: Watch,
        sent: u64,
        came: u64,
        short: u64,
    }

    impl Tried {
        fn new() -> Self {
            let (black_hole, watch) = (BlackHoleDetector::default(), Watch::new(0));
            Self { black_hole, watch, sent: 0, came: 0, short: 0 }
        }

        /// A run with a short packet at its end if it has one, and the report of it.
        fn run(&mut self, count: u64, short: u64, came: u64) -> bool {
            self.sent += count;
            self.short += short;
            self.came += came;
            let short_packets = (self.short, self.short);
            let counts =
                ChannelCounts { psn: self.sent, received_packets: self.came, short_packets };
            self.black_hole.on_report(&mut self.watch, counts);
            self.black_hole.judge(&self.watch, self.sent, count, short);
            self.black_hole.end_report();
            self.black_hole.is_suspected()
        }
    }

    #[test]
    fn a_window_of_which_nothing_comes_is_doubted_at_once() {
        let mut tried = Tried::new();
        assert!(!tried.run(100, 0, 100));
        assert!(!tried.run(15, 0, 0), "a burst of losses");
        assert!(!tried.run(15, 0, 1));
        assert!(tried.run(16, 0, 0));
        assert!(tried.black_hole.take_full_arrived());
    }

    #[test]
    fn short_packets_that_come_say_nothing_of_full_ones() {
        let mut tried = Tried::new();
        tried.run(2, 1, 2);
        let doubted: Vec<bool> = (0..3).map(|_| tried.run(2, 1, 1)).collect();
        assert_eq!(doubted, [false, true, true]);
        assert!(!tried.run(2, 1, 2), "a full one came");
    }

    #[test]
    fn messages_of_short_packets_alone_are_never_doubted() {
        let mut tried = Tried::new();
        assert!((0..100).all(|_| !tried.run(1, 1, 0)));
    }

    #[test]
    fn random_losses_are_no_doubt() {
        let mut tried = Tried::new();
        assert!((0..1000).all(|run| !tried.run(40, 0, 40 - run % 40)));
    }
}
