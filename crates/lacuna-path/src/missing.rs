//! Counts the lost packets of a channel from the peer's counts alone.
//!
//! A report has the highest sequence number and the number of packets received; the difference is
//! missing. On a path that keeps order, missing packets are lost. On a path that reorders, some are
//! only late, so the number lost is the least that was missing throughout the grace for reordering
//! (`reordering.rs`). It falls again if packets arrive even later.

/// Loss count of one channel.
#[derive(Debug, Clone, Default)]
pub(super) struct Missing {
    lost_packets: u64,
    /// Least that was missing since `since_ns`.
    least_packets: u64,
    since_ns: u64,
    /// Packets of expired runs that are not yet counted as lost. They are *excused*: an outage is no
    /// loss that a lower rate would have avoided.
    expired_packets: u64,
    /// One past the last sequence number of expired runs.
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

    /// `missing_packets` of all packets before `psn` have not arrived. Returns the increase of lost
    /// packets, without excused ones.
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

    /// Total of lost packets, without excused ones. Falls when late packets arrive.
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
