//! Measures round trips before the first trial, without other traffic. Later timeouts are based on the
//! longest of them.

use super::SILENCE_NS_MAX;
use super::refusals::REFUSED_RETRY_NS;

/// Number of probes.
const TIMINGS: u32 = 8;
/// Interval between them.
const TIMING_GAP_NS: u64 = 20_000_000;

/// The phase of round-trip probes.
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

    /// This host refused a probe: send another in its place.
    pub(super) fn on_refused(&mut self, now_ns: u64) {
        self.sent = self.sent.saturating_sub(1);
        self.next_ns = now_ns.saturating_add(REFUSED_RETRY_NS);
    }

    pub(super) fn waited_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns)
    }

    /// When the phase ends. `rtt_ns_max` is 0 until the first echo.
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
