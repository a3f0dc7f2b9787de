//! Round trips before the first trial, with nothing else on the way: how long answers take from now
//! on is judged by the longest of them.

use super::SILENCE_NS_MAX;
use super::refusals::AGAIN_NS;

/// Round trips to begin with.
const TIMINGS: u32 = 8;
/// From one of them to the next.
const TIMING_GAP_NS: u64 = 20_000_000;

/// See the module's text.
#[derive(Debug)]
pub(super) struct Timing {
    sent: u32,
    next_ns: u64,
    since_ns: u64,
}

impl Timing {
    pub(super) fn new(now_ns: u64) -> Self {
        Self { sent: 0, next_ns: now_ns, since_ns: now_ns }
    }

    /// When the next probe may go; `None` once all are sent.
    pub(super) fn next_ns(&self) -> Option<u64> {
        (self.sent < TIMINGS).then_some(self.next_ns)
    }

    pub(super) fn on_sent(&mut self, now_ns: u64) {
        (self.sent, self.next_ns) = (self.sent + 1, now_ns + TIMING_GAP_NS);
    }

    /// One did not leave: another goes in its place.
    pub(super) fn on_refused(&mut self, now_ns: u64) {
        self.sent = self.sent.saturating_sub(1);
        self.next_ns = now_ns.saturating_add(AGAIN_NS);
    }

    pub(super) fn waited_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns)
    }

    /// When enough was waited for answers. `rtt_ns_max` is 0 until there was one.
    pub(super) fn ends_ns(&self, rtt_ns_max: u64) -> u64 {
        match rtt_ns_max {
            0 => self.since_ns.saturating_add(SILENCE_NS_MAX),
            rtt_ns => self.next_ns.saturating_add(2 * rtt_ns),
        }
    }

    pub(super) fn is_over(&self, now_ns: u64, rtt_ns_max: u64) -> bool {
        self.sent == TIMINGS && now_ns >= self.ends_ns(rtt_ns_max)
    }
}
