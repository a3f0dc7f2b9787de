//! ECN validation (RFC 9000, 13.4.2): decides whether data packets are sent as ECN-capable (ECT, RFC
//! 3168).
//!
//! Some paths drop every ECN-capable packet, because of a broken router or a careless filter. If none
//! of the first ECN-capable packets arrives, later packets are sent without ECT. Control packets
//! never have ECT, so on such a path the peer reports, and all data are missing.
//!
//! A path that clears the marks does no harm: the controller uses its other signals. Once an
//! ECN-capable packet was delivered, more reports without any delivery are needed, because an outage
//! looks the same for a report or two.

/// Reports in a row that show losses and no delivery, each about packets sent after the one before
/// it came: before the first delivery, and after it.
const ALL_LOST_REPORTS: (u32, u32) = (2, 4);
/// RFC 9000, A.4, tests a path with this many packets: it is enough if all of them are lost and
/// none was delivered before.
const TESTED_PACKETS: u64 = 10;

/// State of ECN validation.
#[derive(Debug, Default)]
pub(super) struct Ecn {
    /// An ECN-capable packet was delivered.
    is_capable: bool,
    has_failed: bool,
    all_lost_reports: u32,
    lost_packets: u64,
    /// When the last of those reports came.
    all_lost_ns: u64,
}

impl Ecn {
    /// Whether packets sent now are ECN-capable.
    pub(super) fn is_allowed(&self) -> bool {
        !self.has_failed
    }

    /// Takes in the counts of a report, whose newest packet was sent at `sent_ns`.
    pub(super) fn on_report(
        &mut self,
        now_ns: u64,
        sent_ns: u64,
        has_delivered: bool,
        lost_packets: u64,
    ) {
        if has_delivered {
            self.is_capable = true;
            self.all_lost_reports = 0;
            self.lost_packets = 0;
            return;
        }
        if lost_packets == 0 {
            return;
        }
        self.lost_packets += lost_packets;
        if self.all_lost_reports == 0 || sent_ns > self.all_lost_ns {
            self.all_lost_reports += 1;
            self.all_lost_ns = now_ns;
        }
        let enough = if self.is_capable { ALL_LOST_REPORTS.1 } else { ALL_LOST_REPORTS.0 };
        let is_tested = !self.is_capable && self.lost_packets >= TESTED_PACKETS;
        self.has_failed |= self.all_lost_reports >= enough || is_tested;
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
