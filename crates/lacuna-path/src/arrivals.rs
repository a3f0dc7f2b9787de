//! The receiver's side of the path: what came on each channel, and when to
//! report it.
//!
//! A report carries state (highest number, totals, credit), never deltas, so
//! any may be lost. One is due after enough bytes, after enough time, at once
//! when a message is complete, a gap opened or the peer asked. Those that time
//! asks for take no more of the way back than a share of what came: such a way
//! may be a tenth as wide, or less.

use crate::small_vec::SmallVec;
use lacuna_wire::{ChannelReport, Report, psn};

/// Unreported bytes after which a report is due, unless the credit is small.
/// A report costs a packet at both ends: at 128 KiB it is one per two full
/// bundles of segmentation offload.
const REPORT_BYTES_MAX: u64 = 128 << 10;
/// Longest time between an arrival and its report.
const REPORT_DELAY_MAX_NS: u64 = 1_000_000;
/// Shortest time between two reports that nothing but time asks for: a peer
/// that waits for one asks after as long.
const REPORT_DELAY_MIN_NS: u64 = 50_000;
/// Shortest time between a report and the next for the sake of a gap.
const GAP_DELAY_MIN_NS: u64 = 20_000;
/// The same while little comes, packet after packet: small messages to and fro on
/// a short path, which a report would delay by more than half of what one takes.
const TRICKLE_DELAY_NS: u64 = 250_000;
/// Packets follow each other if the pause is shorter than that after which the peer
/// would ask. What comes seldom is reported at once: no timer has to wake anybody.
const TRICKLE_PAUSE_NS: u64 = 40_000;
/// What is little: a burst without a full packet, so that a controller hears of a
/// bulk transfer as often as ever, and such a part of the bytes after which a report
/// is due.
const TRICKLE_BYTES: u64 = 1024;
/// See [`TRICKLE_BYTES`].
const TRICKLE_PART: u64 = 16;
/// Reports per round trip that time alone asks for.
const REPORTS_PER_RTT: u64 = 16;
/// A report that time asks for stands for so many times its own bytes, or waits longer:
/// over 10 Mbit/s each packet had one, and a way back of 1 Mbit/s was full of them. TCP's
/// are a 56th, one of 52 bytes for two full packets.
const SHARE_OF_REPORTS: u64 = 64;
/// Reports per round trip of less than that: where a window is so small, waiting longer
/// would be as much of each round trip.
const SCANT_REPORTS_PER_RTT: u64 = 4;
/// The longest wait for one. On a way back so narrow that they queue, round trips become
/// longer and they fewer. (With 25 ms at most, those of many messages took more than the
/// whole of a way back of 0.2 Mbit/s: round trips were 6 s, and 10 Mbit/s carried 1.4.)
const SCANT_DELAY_MAX_NS: u64 = 100_000_000;

/// Numbers before the highest that count as announced without a flush: far more
/// than may come late, and far from half the number space, beyond which an old
/// announcement would be taken for one of numbers to come.
const FLUSHED_BEHIND: u64 = 1 << 20;

/// A burst of packets that came on one channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArrivedBurst {
    /// Packets, duplicates and late ones among them.
    pub packets: u64,
    /// Of those, the ones that had come before.
    pub duplicate_packets: u64,
    /// Of those, the ones with a congestion mark.
    pub marked_packets: u64,
    /// Payload bytes that came for the first time.
    pub bytes: u64,
    /// The same of repair packets.
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
struct Channel {
    next_psn: u64,
    flushed_psn: u64,
    received_packets: u64,
    duplicate_packets: u64,
    marked_packets: u64,
    reorder_packets: u64,
    latest_ns: u64,
    credit_bytes: u32,
}

/// What came on all channels of one queue pair.
#[derive(Debug)]
pub struct Arrivals {
    channels: SmallVec<Channel>,
    unreported_bytes: u64,
    report_bytes: u64,
    /// When a report is due; `None` when everything was reported.
    due_ns: Option<u64>,
    reported_ns: u64,
    /// What the last report took, with all that went out beside it.
    reported_bytes: u64,
}

impl Arrivals {
    /// Nothing came yet; the peer's first packet will carry `first_psn`.
    pub fn new(channels: u8, first_psn: u32) -> Self {
        let channel = Channel {
            next_psn: u64::from(first_psn),
            flushed_psn: u64::from(first_psn),
            ..Channel::default()
        };
        Self {
            channels: (0..channels).map(|_| channel.clone()).collect(),
            unreported_bytes: 0,
            report_bytes: REPORT_BYTES_MAX,
            due_ns: None,
            reported_ns: 0,
            reported_bytes: 0,
        }
    }

    /// Sets what the local sockets can hold for this peer, each.
    pub fn set_credit(&mut self, credit_bytes: u32) {
        for channel in self.channels.iter_mut() {
            channel.credit_bytes = credit_bytes;
        }
        // A quarter of the payload that the credit stands for (half its charge).
        self.report_bytes = REPORT_BYTES_MAX.min(u64::from(credit_bytes) / 8).max(1);
    }

    /// Takes in a burst; `srtt_ns` decides how long its report may wait, 1 ms
    /// while it is not known.
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
        } else if burst.has_gap {
            // At once, but reordering must not make every packet a report.
            let due_ns = (self.reported_ns + GAP_DELAY_MIN_NS).max(now_ns);
            self.due_ns = Some(self.due_ns.map_or(due_ns, |due| due.min(due_ns)));
        } else if burst.packets > 0 {
            let is_little = burst.bytes < TRICKLE_BYTES
                && self.unreported_bytes < self.report_bytes / TRICKLE_PART;
            let min_ns = match is_little && pause_ns < TRICKLE_PAUSE_NS {
                true => TRICKLE_DELAY_NS,
                false => REPORT_DELAY_MIN_NS,
            };
            let is_scant = self.unreported_bytes < SHARE_OF_REPORTS * self.reported_bytes;
            let (per_rtt, most_ns) = match is_scant {
                true => (SCANT_REPORTS_PER_RTT, SCANT_DELAY_MAX_NS),
                false => (REPORTS_PER_RTT, REPORT_DELAY_MAX_NS),
            };
            let wait_ns = srtt_ns
                .map_or(REPORT_DELAY_MAX_NS, |srtt_ns| (srtt_ns / per_rtt).clamp(min_ns, most_ns));
            let due_ns = (self.reported_ns + wait_ns).max(now_ns);
            self.due_ns = Some(self.due_ns.map_or(due_ns, |due| due.min(due_ns)));
        }
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

    /// A report is due now: something happened that the peer waits for.
    #[inline]
    pub fn request(&mut self, now_ns: u64) {
        self.due_ns = Some(now_ns);
    }

    /// A report is due some time: what happened is no news that the peer waits
    /// for, and goes with the next that is.
    #[inline]
    pub fn request_some_time(&mut self, now_ns: u64) {
        self.due_ns.get_or_insert(now_ns + REPORT_DELAY_MAX_NS);
    }

    /// When a report is due.
    #[inline]
    pub fn due_ns(&self) -> Option<u64> {
        self.due_ns
    }

    /// The report of now.
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

    /// A packet with a report, or with what belongs to the last one, takes so much.
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
