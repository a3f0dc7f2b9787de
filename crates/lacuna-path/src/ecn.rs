//! Whether packets may say that their sender answers to congestion marks (ECN).
//!
//! Some paths lose every packet that says so, because of a broken router or a careless filter. A
//! sender has to find that out (RFC 9000, 13.4.2). While no packet that said so has come, the loss of
//! all of them counts as the path's answer, and later packets do not say so. Control packets never
//! say so and still pass, so the sign is: the peer is heard, and all data are missing.
//!
//! A path that clears the marks does no harm: none are seen, and the controller has its other
//! signals. A path that begins to lose such packets later gets more time, since a dark spell looks
//! the same for a report or two.

/// Reports one after the other, each of packets that left after the one before
/// it came, that show losses and nothing delivered: before anything was ever
/// delivered, and after that.
const BARREN_REPORTS: (u32, u32) = (2, 4);
/// As many packets as RFC 9000, A.4, tests a path with: if all of them are lost
/// and none was delivered before, that is enough.
const TESTED_PACKETS: u64 = 10;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Ecn {
    /// Something that said it was delivered.
    is_capable: bool,
    has_failed: bool,
    barren_reports: u32,
    lost_packets: u64,
    /// When the last of the barren reports came.
    barren_ns: u64,
}

impl Ecn {
    /// Whether packets that leave now may say it.
    pub(super) fn is_allowed(&self) -> bool {
        !self.has_failed
    }

    /// Takes in what a report shows of packets, the newest of which was sent at
    /// `sent_ns`.
    pub(super) fn on_report(
        &mut self,
        now_ns: u64,
        sent_ns: u64,
        has_delivered: bool,
        lost_packets: u64,
    ) {
        if has_delivered {
            self.is_capable = true;
            self.barren_reports = 0;
            self.lost_packets = 0;
            return;
        }
        if lost_packets == 0 {
            return;
        }
        self.lost_packets += lost_packets;
        if self.barren_reports == 0 || sent_ns > self.barren_ns {
            self.barren_reports += 1;
            self.barren_ns = now_ns;
        }
        let enough = if self.is_capable { BARREN_REPORTS.1 } else { BARREN_REPORTS.0 };
        let is_tested = !self.is_capable && self.lost_packets >= TESTED_PACKETS;
        self.has_failed |= self.barren_reports >= enough || is_tested;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_of_all_that_was_sent_first_is_an_answer() {
        let mut ecn = Ecn::default();
        ecn.on_report(100, 0, false, 9);
        ecn.on_report(101, 0, false, 0);
        assert!(ecn.is_allowed());
        ecn.on_report(102, 0, false, 1);
        assert!(!ecn.is_allowed());
    }

    #[test]
    fn one_packet_by_itself_is_tried_again() {
        let mut ecn = Ecn::default();
        ecn.on_report(100, 0, false, 1);
        assert!(ecn.is_allowed());
        ecn.on_report(200, 101, false, 1);
        assert!(!ecn.is_allowed());
    }

    #[test]
    fn a_path_that_has_delivered_gets_more_time_and_starts_anew_with_each_delivery() {
        let mut ecn = Ecn::default();
        ecn.on_report(1, 0, true, 3);
        for round in 1..20 {
            let now_ns = round * 100;
            // A dark spell's worth at once counts as one.
            ecn.on_report(now_ns, now_ns - 50, false, 1000);
            ecn.on_report(now_ns + 1, now_ns - 40, false, 1000);
            ecn.on_report(now_ns + 20, now_ns, round % 3 == 0, 0);
        }
        assert!(ecn.is_allowed());
        for round in 20..23 {
            ecn.on_report(round * 100, round * 100 - 50, false, 10);
        }
        assert!(!ecn.is_allowed());
    }
}
