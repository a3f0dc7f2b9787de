//! Black-hole detection: finds out from the peer's counts alone whether full packets still pass.
//!
//! A path may become too narrow during a connection, and nothing on it need say so (a black hole,
//! RFC 8899, section 4.3). Then flushes are answered and short packets arrive, but no full one
//! does. Ordinary losses look different: something of each round trip arrives.
//!
//! A full packet is known to have come when more packets came than short ones were sent. Full
//! packets sent since then that are known to be lost speak against it: many at once, or some, time
//! and again.
//!
//! A dark path says nothing of its width, so the owner restarts the detector at the end of a
//! silence that was longer than an answer takes.

use super::ledger::LedgerEntry;

/// This many full packets lost in a row are a suspicion at once (a judgement). Bursts of losses are
/// mostly shorter. A shorter congestion window raises the suspicion when it is lost again.
const LOST_AT_ONCE: u64 = 16;
/// Otherwise this many packets, in this many reports.
const LOST_AGAIN: (u64, u32) = (2, 2);
/// Most packets in flight during the suspicion: enough to clear a path of it soon that has only
/// lost a long burst, and few enough to waste.
pub(super) const SUSPECTED_PACKETS: u64 = 4;

/// See the module's text. One detector serves all channels.
#[derive(Debug, Default)]
pub(super) struct BlackHoleDetector {
    /// Full packets lost since one was known to come, and the number of reports that told of them.
    lost_packets: u64,
    reports: u32,
    /// The current report tells of such losses.
    has_loss: bool,
    /// A full packet came since [`BlackHoleDetector::take_full_arrived`].
    has_full_arrived: bool,
}

/// Evidence of one channel for full packets.
#[derive(Debug)]
pub(super) struct Watch {
    /// One past the last number known when a full packet had come.
    evident_psn: u64,
    /// Packets that had come by then, and short ones sent before that number.
    came_packets: u64,
    short_packets: u64,
}

/// Counts of one channel in a report.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChannelCounts {
    /// One past the highest number that came.
    pub(super) psn: u64,
    /// Packets that came, copies included.
    pub(super) came_packets: u64,
    /// Lower and upper bound on short packets sent before `psn`.
    pub(super) short_packets: (u64, u64),
}

impl Watch {
    pub(super) fn new(first_psn: u64) -> Self {
        Self { evident_psn: first_psn, came_packets: 0, short_packets: 0 }
    }

    /// Takes in a report. Returns whether a full packet came.
    fn on_report(&mut self, counts: ChannelCounts) -> bool {
        let (least, most) = counts.short_packets;
        let came = counts.came_packets.saturating_sub(self.came_packets);
        if came <= most.saturating_sub(self.short_packets) {
            return false;
        }
        let evident_psn = counts.psn.max(self.evident_psn);
        self.restart(evident_psn, counts.came_packets, least.max(self.short_packets));
        true
    }

    /// Considers only packets sent from now on.
    pub(super) fn restart(&mut self, next_psn: u64, came_packets: u64, short_packets: u64) {
        *self = Self { evident_psn: next_psn, came_packets, short_packets };
    }
}

impl BlackHoleDetector {
    pub(super) fn on_report(&mut self, watch: &mut Watch, counts: ChannelCounts) {
        if watch.on_report(counts) {
            *self = Self { has_full_arrived: true, ..Self::default() };
        }
    }

    /// A run was judged: what has not come of it is lost.
    #[inline]
    pub(super) fn on_judged(&mut self, watch: &Watch, record: &LedgerEntry) {
        if record.psn_end > watch.evident_psn {
            self.judge(watch, record.psn_end, record.count(), record.short().into());
        }
    }

    fn judge(&mut self, watch: &Watch, psn_end: u64, count: u64, short: u64) {
        let since = psn_end.saturating_sub(watch.evident_psn).min(count);
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

    /// Whether a full packet came since the last call.
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
            let counts = ChannelCounts { psn: self.sent, came_packets: self.came, short_packets };
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
