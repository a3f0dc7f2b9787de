//! Nudges: reports of a receiver that waits for the rest of a message and hears nothing.
//!
//! If the receiver's address changes, nothing reaches it until it has sent something, and the sender learns of
//! the new address from that alone. Its last report may have left before the change, or be lost after it, and
//! without data there is no other. So it repeats its report, less and less often. That also helps where both
//! the sender's last packets and its flushes are lost.

/// Time from a report to the first nudge: two round trips, in which data or a flush would have come, within
/// these limits. The lower one is that of a run's expiry, since a sender's host may be busy.
const DELAY_NS: (u64, u64) = (50_000_000, 1_000_000_000);
/// Each nudge waits twice as long as the one before. So many last for half a minute, after which peers give
/// each other up.
const NUDGES_MAX: u32 = 9;

/// When the next nudge is due.
#[derive(Debug, Default)]
pub(super) struct Nudge {
    due_ns: Option<u64>,
    /// Nudges since the peer was heard.
    sent: u32,
    sent_ns: u64,
}

impl Nudge {
    /// A report was sent. `waits`: some of a message came, and not all. The peer was last heard at
    /// `heard_ns`.
    pub(super) fn on_report(&mut self, now_ns: u64, heard_ns: u64, srtt_ns: u64, waits: bool) {
        if heard_ns > self.sent_ns {
            self.sent = 0;
        }
        let delay_ns = (2 * srtt_ns).clamp(DELAY_NS.0, DELAY_NS.1) << self.sent;
        self.due_ns = (waits && self.sent < NUDGES_MAX).then_some(now_ns + delay_ns);
    }

    pub(super) fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// Whether a nudge has to be sent now.
    pub(super) fn on_timeout(&mut self, now_ns: u64) -> bool {
        if self.due_ns.is_none_or(|due_ns| due_ns > now_ns) {
            return false;
        }
        (self.due_ns, self.sent_ns) = (None, now_ns);
        self.sent += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nudges_become_rarer_and_end_until_the_peer_is_heard() {
        let (mut nudge, mut times_ms) = (Nudge::default(), Vec::new());
        nudge.on_report(0, 0, 30_000_000, true);
        while let Some(due_ns) = nudge.due_ns() {
            assert!(!nudge.on_timeout(due_ns - 1));
            assert!(nudge.on_timeout(due_ns));
            times_ms.push(due_ns / 1_000_000);
            nudge.on_report(due_ns, 0, 30_000_000, true);
        }
        assert_eq!(times_ms, [60, 180, 420, 900, 1860, 3780, 7620, 15_300, 30_660]);
        nudge.on_report(40_000_000_000, 35_000_000_000, 30_000_000, true);
        assert_eq!(nudge.due_ns(), Some(40_060_000_000));
        nudge.on_report(41_000_000_000, 35_000_000_000, 30_000_000, false);
        assert_eq!(nudge.due_ns(), None);
    }
}
