//! Receiver side of the path: counts received packets per channel, and schedules reports.
//!
//! A report carries state (highest number, totals, credit), never deltas, so any may be lost. A
//! report is due after enough bytes, after enough time, soon after a gap opened, and at once when a
//! message is complete or the peer asked. The thresholds are those of a [`ReportPolicy`]. Reports
//! that are due only by time take at most a fixed share of the bytes received, because the reverse
//! path may have a tenth of the bandwidth or less.

use crate::report_policy::ReportPolicy;
use crate::small_vec::SmallVec;
use lacuna_wire::{ChannelReport, Report, psn};

/// `flushed_psn` trails the highest number by at most this: far more than packets may come late, and
/// far less than half of the 24-bit number space, beyond which it would be unwrapped wrongly.
const FLUSHED_BEHIND: u64 = 1 << 20;

/// Counts of a burst received on one channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArrivedBurst {
    /// Packets, with duplicates and late ones.
    pub packets: u64,
    /// Of the packets, duplicates.
    pub duplicate_packets: u64,
    /// Of the packets, those with a congestion mark.
    pub marked_packets: u64,
    /// Payload bytes, without duplicates.
    pub bytes: u64,
    /// Payload bytes of repair packets, without duplicates.
    pub repair_bytes: u64,
    /// One past the highest sequence number after the burst.
    pub next_psn: u64,
    /// Largest distance by which a missing packet came after a later one, in packets.
    pub reorder_packets: u64,
    /// Whether sequence numbers were skipped when the highest one moved on.
    pub has_gap: bool,
}

/// Totals of one channel.
#[derive(Debug, Clone, Default)]
struct ChannelArrivals {
    next_psn: u64,
    flushed_psn: u64,
    received_packets: u64,
    duplicate_packets: u64,
    marked_packets: u64,
    reorder_packets: u64,
    latest_ns: u64,
    credit_bytes: u32,
}

/// Counts of all channels of one queue pair, and the time of the next report.
#[derive(Debug)]
pub struct Arrivals {
    channels: SmallVec<ChannelArrivals>,
    /// The peer's policy; the default if `None`.
    policy: Option<Box<ReportPolicy>>,
    unreported_bytes: u64,
    report_bytes: u64,
    /// When a report is due; `None` when everything was reported.
    due_ns: Option<u64>,
    reported_ns: u64,
    /// Bytes of the last report, with all control packets sent for it.
    reported_bytes: u64,
}

impl Arrivals {
    /// Nothing came yet; the peer's first packet will carry `first_psn`.
    pub fn new(channels: u8, first_psn: u32) -> Self {
        let channel = ChannelArrivals {
            next_psn: u64::from(first_psn),
            flushed_psn: u64::from(first_psn),
            ..ChannelArrivals::default()
        };
        Self {
            channels: (0..channels).map(|_| channel.clone()).collect(),
            policy: None,
            unreported_bytes: 0,
            report_bytes: u64::from(ReportPolicy::DEFAULT.bytes_max),
            due_ns: None,
            reported_ns: 0,
            reported_bytes: 0,
        }
    }

    /// Sets the peer's policy; it applies from the next [`Arrivals::set_credit`] on.
    pub fn set_policy(&mut self, policy: ReportPolicy) {
        self.policy = (policy != ReportPolicy::DEFAULT).then(|| Box::new(policy));
    }

    #[inline]
    fn policy(&self) -> &ReportPolicy {
        self.policy.as_deref().unwrap_or(&ReportPolicy::DEFAULT)
    }

    /// Sets the bytes that each local socket can hold for this peer.
    pub fn set_credit(&mut self, credit_bytes: u32) {
        for channel in self.channels.iter_mut() {
            channel.credit_bytes = credit_bytes;
        }
        // Report after a quarter of the payload that the credit allows, which is half of the charge.
        let bytes_max = u64::from(self.policy().bytes_max);
        self.report_bytes = bytes_max.min(u64::from(credit_bytes) / 8).max(1);
    }

    /// Takes in a burst. Its report may wait for a part of `srtt_ns`, or for the longest time while
    /// that is not known.
    pub fn on_burst(
        &mut self,
        now_ns: u64,
        channel: u8,
        burst: &ArrivedBurst,
        srtt_ns: Option<u64>,
    ) {
        let state = &mut self.channels[usize::from(channel)];
        let pause_ns = now_ns.saturating_sub(state.latest_ns);
        if burst.next_psn > state.next_psn {
            state.next_psn = burst.next_psn;
            state.latest_ns = now_ns;
        }
        state.received_packets += burst.packets;
        state.duplicate_packets += burst.duplicate_packets;
        state.marked_packets += burst.marked_packets;
        state.reorder_packets = state.reorder_packets.max(burst.reorder_packets);
        self.unreported_bytes += burst.bytes + burst.repair_bytes;
        if self.unreported_bytes >= self.report_bytes {
            self.due_ns = Some(now_ns);
            return;
        }
        let policy = self.policy.as_deref().unwrap_or(&ReportPolicy::DEFAULT);
        let wait_ns = if burst.has_gap || (policy.on_mark && burst.marked_packets > 0) {
            u64::from(policy.gap_delay_ns_min)
        } else if burst.packets > 0 {
            self.wait_ns(policy, burst.bytes, pause_ns, srtt_ns)
        } else {
            return;
        };
        let due_ns = (self.reported_ns + wait_ns).max(now_ns);
        self.due_ns = Some(self.due_ns.map_or(due_ns, |due| due.min(due_ns)));
    }

    /// Time from the last report to the next, if it is due only by time.
    #[inline]
    fn wait_ns(
        &self,
        policy: &ReportPolicy,
        burst_bytes: u64,
        pause_ns: u64,
        srtt_ns: Option<u64>,
    ) -> u64 {
        let delay_ns_max = u64::from(policy.delay_ns_max);
        let Some(srtt_ns) = srtt_ns else { return delay_ns_max };
        let ping_pong = &policy.ping_pong;
        let is_ping_pong = burst_bytes < u64::from(ping_pong.bytes)
            && self.unreported_bytes < self.report_bytes / u64::from(ping_pong.part);
        let delay_ns_min = match is_ping_pong && pause_ns < u64::from(ping_pong.pause_ns) {
            true => u64::from(ping_pong.delay_ns),
            false => u64::from(policy.delay_ns_min),
        };
        let slow_path = &policy.slow_path;
        let is_slow = self.unreported_bytes < u64::from(slow_path.share) * self.reported_bytes;
        let (per_rtt, delay_ns_max) = match is_slow {
            true => (slow_path.per_rtt, u64::from(slow_path.delay_ns_max)),
            false => (policy.per_rtt, delay_ns_max),
        };
        // The delay of a ping-pong may be more than the peer's longest.
        (srtt_ns / u64::from(per_rtt)).clamp(delay_ns_min, delay_ns_max.max(delay_ns_min))
    }

    /// The peer announced that it has sent everything before `wire_psn`.
    #[inline]
    pub fn on_flush(&mut self, channel: u8, wire_psn: u32) {
        if let Some(state) = self.channels.get_mut(usize::from(channel)) {
            let near = state.next_psn.max(state.flushed_psn);
            state.flushed_psn = state.flushed_psn.max(psn::unwrap(wire_psn, near));
        }
    }

    /// One past the last number on `channel` that the peer is known to have sent.
    #[inline]
    pub fn sent_psn(&self, channel: u8) -> u64 {
        let state = self.channels.get(usize::from(channel));
        state.map_or(0, |state| state.next_psn.max(state.flushed_psn))
    }

    /// Makes a report due now, because the peer waits for it.
    #[inline]
    pub fn request(&mut self, now_ns: u64) {
        self.due_ns = Some(now_ns);
    }

    /// Makes a report due within the longest delay, for a change that is not urgent.
    #[inline]
    pub fn request_some_time(&mut self, now_ns: u64) {
        let delay_ns = u64::from(self.policy().delay_ns_max);
        self.due_ns.get_or_insert(now_ns + delay_ns);
    }

    /// Makes a report due by then.
    #[inline]
    pub fn request_by(&mut self, due_ns: u64) {
        self.due_ns = Some(self.due_ns.map_or(due_ns, |due| due.min(due_ns)));
    }

    /// When a report is due.
    #[inline]
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The current report.
    pub fn report(&mut self, now_ns: u64) -> Report {
        let mut report = Report::new();
        for (channel, state) in self.channels.iter().enumerate() {
            let delay_ns = now_ns.saturating_sub(state.latest_ns);
            let flushed_psn = state.flushed_psn.max(state.next_psn.saturating_sub(FLUSHED_BEHIND));
            report.push(ChannelReport {
                channel: channel as u8,
                next_psn: psn::wrap(state.next_psn),
                flushed_psn: psn::wrap(flushed_psn),
                received_packets: state.received_packets,
                duplicate_packets: state.duplicate_packets,
                marked_packets: state.marked_packets,
                reorder_packets: state.reorder_packets.min(u64::from(u32::MAX)) as u32,
                delay_ns: delay_ns.min(u64::from(u32::MAX)) as u32,
                credit_bytes: state.credit_bytes,
            });
        }
        self.due_ns = None;
        self.unreported_bytes = 0;
        self.reported_ns = now_ns;
        self.reported_bytes = 0;
        report
    }

    /// Counts the bytes of a control packet sent for the last report.
    #[inline]
    pub fn on_report_bytes(&mut self, packet_bytes: usize) {
        self.reported_bytes += packet_bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_packets_that_follow_each_other_share_reports() {
        let reports = |every_ns: u64, bytes: u64| {
            let mut arrivals = Arrivals::new(1, 0);
            arrivals.set_credit(1 << 24);
            let mut reports = 0;
            for step in 1..=1000 {
                let now_ns = 1_000_000_000 + step * every_ns;
                let burst =
                    ArrivedBurst { packets: 1, bytes, next_psn: step, ..Default::default() };
                arrivals.on_burst(now_ns, 0, &burst, Some(10_000));
                if arrivals.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                    arrivals.report(now_ns);
                    reports += 1;
                }
            }
            reports
        };
        assert_eq!(reports(10_000, 64), 1 + 999 / 25, "to and fro");
        assert_eq!(reports(100_000, 64), 1000, "seldom");
        assert_eq!(reports(10_000, 4096), 200, "much");
    }

    #[test]
    fn a_peer_that_wants_marks_soon_gets_them_soon() {
        let due_ns = |on_mark: bool| {
            let mut arrivals = Arrivals::new(1, 0);
            arrivals.set_policy(ReportPolicy { on_mark, ..ReportPolicy::DEFAULT });
            arrivals.set_credit(1 << 24);
            arrivals.report(1000);
            let marked_packets = 1;
            let burst = ArrivedBurst {
                packets: 1,
                marked_packets,
                bytes: 4096,
                next_psn: 1,
                ..Default::default()
            };
            arrivals.on_burst(2000, 0, &burst, Some(40_000_000));
            arrivals.due_ns()
        };
        assert_eq!(due_ns(true), Some(1000 + 20_000));
        assert_eq!(due_ns(false), Some(1000 + 1_000_000));
    }

    #[test]
    fn a_peer_that_wants_small_reports_gets_them() {
        let mut arrivals = Arrivals::new(1, 0);
        arrivals.set_policy(ReportPolicy { bytes_max: 16 << 10, ..ReportPolicy::DEFAULT });
        arrivals.set_credit(1 << 24);
        let burst = ArrivedBurst { packets: 4, bytes: 16 << 10, next_psn: 4, ..Default::default() };
        arrivals.on_burst(5, 0, &burst, None);
        assert_eq!(arrivals.due_ns(), Some(5));
    }

    #[test]
    fn a_slow_path_is_not_answered_packet_by_packet() {
        // Reports of 300 bytes over 40 ms, a packet of 1436 bytes every so often.
        let reports = |every_ns: u64| {
            let mut arrivals = Arrivals::new(1, 0);
            arrivals.set_credit(1 << 24);
            let (mut reports, packets) = (0, 10_000);
            for step in 1..=packets {
                let now_ns = 1_000_000_000 + step * every_ns;
                let burst =
                    ArrivedBurst { packets: 1, bytes: 1436, next_psn: step, ..Default::default() };
                arrivals.on_burst(now_ns, 0, &burst, Some(40_000_000));
                if arrivals.due_ns().is_some_and(|due_ns| due_ns <= now_ns) {
                    arrivals.report(now_ns);
                    arrivals.on_report_bytes(300);
                    reports += 1;
                }
            }
            (packets + reports / 2) / reports
        };
        assert_eq!(reports(1_200_000), 9, "10 Mbit/s: a quarter of the round trip");
        assert_eq!(reports(240_000), 14, "50 Mbit/s: 64 times what they take");
        assert_eq!(reports(12_000), 83, "1 Gbit/s: every millisecond");
    }

    #[test]
    fn an_old_flush_is_never_taken_for_one_of_numbers_to_come() {
        // A sender that is paced and never blocked does not flush for hours.
        let mut arrivals = Arrivals::new(1, 0);
        arrivals.on_flush(0, 10);
        let mut reported = 0;
        for step in 1..100u64 {
            let burst = ArrivedBurst { packets: 1, next_psn: step << 19, ..Default::default() };
            arrivals.on_burst(step, 0, &burst, None);
            let report = arrivals.report(step);
            let channel = &report.channels()[0];
            let next_psn = psn::unwrap(channel.next_psn, reported);
            let flushed_psn = psn::unwrap(channel.flushed_psn, reported);
            assert!(flushed_psn <= next_psn, "{flushed_psn} after {next_psn}");
            reported = next_psn;
        }
    }
}
