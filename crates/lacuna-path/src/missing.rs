//! How many packets of a channel are lost, from the peer's counts alone.
//!
//! A report says how far the sequence numbers came and how many packets came: the difference is
//! missing. On a path that keeps order, missing packets are lost. On a path that does not, some are
//! only late, so the number lost is the least that was missing throughout the grace for reordering
//! (`reordering.rs`). A count that falls later is believed too: those packets came after all.

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(super) struct Missing {
    lost_packets: u64,
    /// Least that was missing since `since_ns`.
    least_packets: u64,
    since_ns: u64,
    /// Packets whose runs expired and that are not counted yet, and the number after the last of
    /// them. They are excused: the peer's silence is no loss that a rate could answer for.
    expired_packets: u64,
    expired_psn: u64,
    /// Of `lost_packets`, those that are excused.
    excused_packets: u64,
}

impl Missing {
    /// A run has expired.
    pub(super) fn on_expired(&mut self, packets: u64, psn_end: u64) {
        self.expired_packets += packets;
        self.expired_psn = self.expired_psn.max(psn_end);
    }

    /// `missing_packets` of all packets before `psn` have not come. Returns how many more are lost
    /// than before.
    pub(super) fn on_report(
        &mut self,
        now_ns: u64,
        psn: u64,
        missing_packets: u64,
        grace_ns: u64,
    ) -> u64 {
        let before = self.lost_packets;
        self.lost_packets = before.min(missing_packets);
        self.least_packets = self.least_packets.min(missing_packets);
        if now_ns.saturating_sub(self.since_ns) >= grace_ns {
            if grace_ns == 0 {
                self.least_packets = missing_packets;
            }
            self.lost_packets = self.lost_packets.max(self.least_packets);
            self.least_packets = missing_packets;
            self.since_ns = now_ns;
        }
        let lost = self.lost_packets.saturating_sub(before);
        let excused = lost.min(self.expired_packets);
        self.excused_packets += excused;
        self.expired_packets -= excused;
        if psn >= self.expired_psn {
            self.expired_packets = 0;
        }
        lost - excused
    }

    /// Packets lost in all, without excused ones. Falls when packets come after all.
    pub(super) fn lost_packets(&self) -> u64 {
        self.lost_packets.saturating_sub(self.excused_packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_a_gap_is_a_loss_at_once() {
        let mut missing = Missing::default();
        assert_eq!(missing.on_report(10, 100, 0, 0), 0);
        assert_eq!(missing.on_report(20, 200, 3, 0), 3);
        assert_eq!(missing.on_report(30, 300, 3, 0), 0);
        assert_eq!(missing.on_report(40, 400, 4, 0), 1);
    }

    #[test]
    fn late_packets_are_no_losses() {
        let mut missing = Missing::default();
        // Up to five are on a detour at any time, and one is lost half-way.
        let mut lost = 0;
        for step in 0..100u64 {
            let late = [2, 5, 0, 3][(step % 4) as usize];
            lost += missing.on_report(step * 10, step * 50, late + u64::from(step > 50), 100);
        }
        assert_eq!(lost, 1);
    }

    #[test]
    fn packets_that_came_after_all_are_not_counted_twice() {
        let mut missing = Missing::default();
        assert_eq!(missing.on_report(0, 100, 10, 0), 10);
        assert_eq!(missing.on_report(10, 200, 0, 0), 0);
        assert_eq!(missing.on_report(20, 300, 4, 0), 4);
    }

    #[test]
    fn what_was_sent_into_silence_is_excused_once() {
        let mut missing = Missing::default();
        missing.on_expired(50, 100);
        assert_eq!(missing.on_report(10, 120, 50, 0), 0);
        assert_eq!(missing.on_report(20, 220, 60, 0), 10);
    }
}
