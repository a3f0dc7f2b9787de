//! Whether full packets still pass, from the peer's counts alone.
//!
//! A path may become too narrow while a connection lasts, and nothing on it need say so (a
//! black hole, RFC 8899, section 4.3). Then questions are answered and short packets arrive, but
//! no full one does. Losses look different: of what goes out in a round trip something comes.
//!
//! That a full packet came is known when more packets came than short ones were sent. Full packets
//! that were sent since and are known to be lost, because the peer was asked, speak against it:
//! many at once, or some, time and again.
//!
//! A path on which nothing is heard is dark, which says nothing of its width: whoever keeps this
//! restarts it when a silence ends that was longer than an answer takes.

use super::ledger::Record;

/// So many full packets lost in a row are doubted at once. Bursts of losses are mostly shorter, and
/// a congestion window that is shorter is doubted when it is lost again.
const LOST_AT_ONCE: u64 = 16;
/// Else so many, by so many reports.
const LOST_AGAIN: (u64, u32) = (2, 2);
/// Packets that may be in flight while it is in doubt: enough to see a path that lost a long burst
/// again at once, and few enough to waste.
pub(super) const DOUBTED_PACKETS: u64 = 4;

/// See the module's text; of all channels.
#[derive(Debug, Default)]
pub(super) struct Passage {
    /// Full packets lost since one was known to come, and the reports that told of them.
    lost_packets: u64,
    reports: u32,
    /// The report at hand tells of some.
    is_told: bool,
    /// A full packet came, since that was last asked.
    came: bool,
}

/// What of one channel speaks for full packets.
#[derive(Debug)]
pub(super) struct Watch {
    /// One past the last number that was known of when a full packet had come.
    evident_psn: u64,
    /// Packets that had come then, and short ones sent before that number.
    came_packets: u64,
    short_packets: u64,
}

/// What a report says of a channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told {
    /// One past the highest number that came.
    pub(super) psn: u64,
    /// Packets that came, copies included.
    pub(super) came_packets: u64,
    /// Short packets sent before that number: at least, and at most.
    pub(super) short_packets: (u64, u64),
}

impl Watch {
    pub(super) fn new(first_psn: u64) -> Self {
        Self { evident_psn: first_psn, came_packets: 0, short_packets: 0 }
    }

    /// Takes in a report; whether it says that a full packet came.
    fn on_report(&mut self, told: Told) -> bool {
        let (least, most) = told.short_packets;
        let came = told.came_packets.saturating_sub(self.came_packets);
        if came <= most.saturating_sub(self.short_packets) {
            return false;
        }
        let evident_psn = told.psn.max(self.evident_psn);
        self.restart(evident_psn, told.came_packets, least.max(self.short_packets));
        true
    }

    /// Looks only at what is sent from now on.
    pub(super) fn restart(&mut self, next_psn: u64, came_packets: u64, short_packets: u64) {
        *self = Self { evident_psn: next_psn, came_packets, short_packets };
    }
}

impl Passage {
    pub(super) fn on_report(&mut self, watch: &mut Watch, told: Told) {
        if watch.on_report(told) {
            *self = Self { came: true, ..Self::default() };
        }
    }

    /// A run is judged; what of it did not come is lost.
    #[inline]
    pub(super) fn on_judged(&mut self, watch: &Watch, record: &Record) {
        if record.psn_end > watch.evident_psn {
            self.judge(watch, record.psn_end, record.count(), record.short().into());
        }
    }

    fn judge(&mut self, watch: &Watch, psn_end: u64, count: u64, short: u64) {
        let since = psn_end.saturating_sub(watch.evident_psn).min(count);
        let full = since.saturating_sub(short);
        self.lost_packets += full;
        self.is_told |= full > 0;
    }

    /// The report was taken in.
    pub(super) fn end_report(&mut self) {
        self.reports += u32::from(std::mem::take(&mut self.is_told));
    }

    /// Forgets what was lost.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Whether full packets do not seem to pass.
    pub(super) fn is_doubted(&self) -> bool {
        let (packets, reports) = LOST_AGAIN;
        self.lost_packets >= LOST_AT_ONCE || self.lost_packets >= packets && self.reports >= reports
    }

    /// Whether a full packet came since this was last asked.
    pub(super) fn take_came(&mut self) -> bool {
        std::mem::take(&mut self.came)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel and what is thought of its path.
    struct Tried {
        passage: Passage,
        watch: Watch,
        sent: u64,
        came: u64,
        short: u64,
    }

    impl Tried {
        fn new() -> Self {
            let (passage, watch) = (Passage::default(), Watch::new(0));
            Self { passage, watch, sent: 0, came: 0, short: 0 }
        }

        /// A run with a short packet at its end if it has one, and the report of it.
        fn run(&mut self, count: u64, short: u64, came: u64) -> bool {
            self.sent += count;
            self.short += short;
            self.came += came;
            let short_packets = (self.short, self.short);
            let told = Told { psn: self.sent, came_packets: self.came, short_packets };
            self.passage.on_report(&mut self.watch, told);
            self.passage.judge(&self.watch, self.sent, count, short);
            self.passage.end_report();
            self.passage.is_doubted()
        }
    }

    #[test]
    fn a_window_of_which_nothing_comes_is_doubted_at_once() {
        let mut tried = Tried::new();
        assert!(!tried.run(100, 0, 100));
        assert!(!tried.run(15, 0, 0), "a burst of losses");
        assert!(!tried.run(15, 0, 1));
        assert!(tried.run(16, 0, 0));
        assert!(tried.passage.take_came());
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
