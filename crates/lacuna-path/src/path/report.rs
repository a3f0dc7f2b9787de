//! Handles the peer's reports.
//!
//! A report has one part per channel. Each part updates the channel's state: the highest number, the
//! count of received packets, the runs that were passed. The sums over the channels become one sample
//! for the congestion controller, after the mode has handled the passed runs.
//!
//! Invariant: a report never counts more than was sent, whatever the peer says.

use super::Path;
use crate::black_hole::ChannelCounts;
use crate::controller::{Controller, RoundTrips, Sample, Shares, Signal};
use crate::delivery::Stamp;
use crate::ledger::LedgerEntry;
use lacuna_wire::{ChannelReport, psn};

/// After runs have expired, a silence longer than one and a half round trips plus this time, for busy
/// hosts, was an outage. A judgement.
const ANSWERED_SLACK_NS: u64 = 30_000_000;

/// Sums of one report over its channels.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReportSums {
    delivered_bytes: u64,
    lost_bytes: u64,
    lost_packets: u64,
    marked_bytes: u64,
    arrived_ns: u64,
    round_trips: Option<RoundTrips>,
    /// How long the peer held the newest packet of those.
    endpoint_ns: u64,
    /// When the newest passed run was sent, on any channel.
    passed_sent_ns: u64,
    /// When the newest run was sent, and its stamp.
    newest: Option<(u64, Stamp)>,
}

impl ReportSums {
    fn add_round_trip(&mut self, rtt_ns: u64, delay_ns: u32) {
        match &mut self.round_trips {
            Some(round_trips) => round_trips.add(rtt_ns),
            None => self.round_trips = Some(RoundTrips::one(rtt_ns)),
        }
        self.endpoint_ns = u64::from(delay_ns);
    }
}

impl Path {
    /// Takes in one channel's part of a report. After all parts, and after the runs that they
    /// passed were taken, [`Path::end_report`] is called.
    pub fn on_report(&mut self, now_ns: u64, report: &ChannelReport) {
        let Some(state) = self.channels.get_mut(usize::from(report.channel)) else { return };
        let sent_psn = state.ledger.next_psn();
        let credit = u64::from(report.credit_bytes);
        state.shared_credit.change_part(state.credit, credit);
        state.credit = credit;
        // A report with a number that was never sent is not for this queue pair.
        let next_psn = psn::unwrap(report.next_psn, state.reported_psn);
        let flushed_psn = psn::unwrap(report.flushed_psn, state.reported_psn);
        if next_psn > sent_psn || flushed_psn > sent_psn {
            return;
        }
        if self.back_off > 0 {
            self.end_darkness(now_ns);
        }
        let state = &mut self.channels[usize::from(report.channel)];
        // The caller may have read its clock before another thread sent the packet: no sample then.
        let arrived_ns = now_ns.saturating_sub(u64::from(report.delay_ns));
        let mut short_packets = (0, state.ledger.short_packets());
        if next_psn > state.reported_psn {
            if let Some(entry) = state.ledger.find(next_psn - 1) {
                state.reported_sent_ns = entry.sent_ns;
                state.packet_bytes = entry.wire_bytes() / entry.count().max(1);
                let behind = entry.psn_end - next_psn;
                state.reported_bytes = entry.wire_end.saturating_sub(behind * state.packet_bytes);
                let short_behind = behind.min(entry.short().into());
                short_packets = (entry.short_end - short_behind, entry.short_end);
                if let Some(sample_ns) = arrived_ns.checked_sub(entry.sent_ns) {
                    self.rtt.on_sample(now_ns, sample_ns);
                    self.report.add_round_trip(sample_ns, report.delay_ns);
                }
                let newer = |(sent_ns, stamp): &(u64, Stamp)| {
                    (stamp.delivered_bytes, *sent_ns)
                        <= (entry.stamp.delivered_bytes, entry.sent_ns)
                };
                if self.report.newest.as_ref().is_none_or(newer) {
                    self.report.newest = Some((entry.sent_ns, entry.stamp));
                }
            } else {
                let bytes = (next_psn - state.reported_psn) * state.packet_bytes;
                state.reported_bytes += bytes;
                // The run expired too early; this sample makes the next timeouts longer.
                let sent_ns = state.ledger.take_expired(next_psn - 1);
                if let Some(sample_ns) = sent_ns.and_then(|ns| arrived_ns.checked_sub(ns)) {
                    self.rtt.on_sample(now_ns, sample_ns);
                    self.report.add_round_trip(sample_ns, report.delay_ns);
                }
            }
            state.reported_bytes = state.reported_bytes.min(state.ledger.wire_bytes());
            state.reported_psn = next_psn;
        }
        // Without reordering, packets before the last one received have arrived or are lost; with
        // reordering, only those that were sent a grace earlier.
        let has_duplicates = report.duplicate_packets > state.duplicate_packets;
        state.duplicate_packets = state.duplicate_packets.max(report.duplicate_packets);
        self.reordering.on_report(now_ns, report.reorder_packets, has_duplicates, &self.rtt);
        let grace_ns = self.reordering.grace_ns(&self.rtt);
        let overtaken_psn = match grace_ns {
            0 => next_psn,
            _ => {
                let sent_ns = state.reported_sent_ns.saturating_sub(grace_ns);
                state.ledger.psn_sent_by(sent_ns).map_or(0, |psn| psn.min(next_psn))
            }
        };
        // A flush covers only packets that were sent a grace before.
        state.passed_psn = state.passed_psn.max(overtaken_psn).max(flushed_psn);
        self.count(now_ns, arrived_ns, grace_ns, report, flushed_psn);
        let state = &mut self.channels[usize::from(report.channel)];
        let received_packets = state.received_packets;
        let counts = ChannelCounts { psn: state.reported_psn, received_packets, short_packets };
        self.black_hole.on_report(&mut state.watch, counts);
    }

    /// Counts delivered and lost bytes for the controller, never more than was sent, whatever the
    /// peer says.
    fn count(
        &mut self,
        now_ns: u64,
        arrived_ns: u64,
        grace_ns: u64,
        report: &ChannelReport,
        flushed_psn: u64,
    ) {
        let state = &mut self.channels[usize::from(report.channel)];
        state.received_packets = state.received_packets.max(report.received_packets);
        let missing = |psn: u64| (psn - state.first_psn).saturating_sub(state.received_packets);
        // Add up the changes: packets differ in size, so the current size times the total of
        // missing packets would be meaningless.
        let missing_packets = missing(state.reported_psn);
        let more = i128::from(missing_packets) - i128::from(state.missing_packets);
        state.missing_packets = missing_packets;
        state.missing_bytes += more * i128::from(state.packet_bytes);
        let came_bytes = i128::from(state.reported_bytes) - state.missing_bytes.max(0);
        let delivered_bytes = u64::try_from(came_bytes).unwrap_or(0);
        if delivered_bytes > state.delivered_bytes {
            self.report.delivered_bytes += delivered_bytes - state.delivered_bytes;
            self.report.arrived_ns = self.report.arrived_ns.max(arrived_ns);
            state.delivered_bytes = delivered_bytes;
        }
        let known_psn = state.reported_psn.max(flushed_psn);
        let missing_packets = missing(known_psn);
        let lost = state.missing.on_report(now_ns, known_psn, missing_packets, grace_ns);
        self.report.lost_bytes += lost * state.packet_bytes;
        let lost_packets = state.missing.lost_packets();
        let more = lost_packets as i64 - state.judged_lost as i64;
        self.loss.on_report(now_ns, known_psn.saturating_sub(state.judged_psn), more);
        (state.judged_psn, state.judged_lost) = (state.judged_psn.max(known_psn), lost_packets);
        self.report.lost_packets += lost;
        let marked = report.marked_packets.saturating_sub(state.marked_packets);
        state.marked_packets = state.marked_packets.max(report.marked_packets);
        self.report.marked_bytes += marked.min(state.reported_psn) * state.packet_bytes;
    }

    /// Ends an outage, at the first report since runs have expired. Losses during it say nothing
    /// about the path MTU.
    fn end_darkness(&mut self, now_ns: u64) {
        self.back_off = 0;
        let srtt_ns = self.rtt.smoothed_ns().unwrap_or(0);
        let dark_ns = now_ns.saturating_sub(self.dark_since_ns);
        if dark_ns > srtt_ns + srtt_ns / 2 + ANSWERED_SLACK_NS {
            self.on_new_size();
        }
    }

    /// Takes the next run that reports have passed. Call until `None`.
    pub fn pop_passed(&mut self) -> Option<LedgerEntry> {
        let channels = self.channels.iter_mut().enumerate();
        let mut popped =
            channels.filter_map(|(at, c)| Some((at, c.ledger.pop_passed(c.passed_psn)?)));
        let (channel, entry) = popped.next()?;
        self.report.passed_sent_ns = self.report.passed_sent_ns.max(entry.sent_ns);
        let watch = &self.channels[channel].watch;
        self.black_hole.on_judged(watch, &entry);
        self.remove_in_flight(channel, &entry);
        Some(entry)
    }

    /// Ends a report: tells the controller.
    pub fn end_report(&mut self, now_ns: u64) {
        self.black_hole.end_report();
        let report = std::mem::take(&mut self.report);
        let path = self.channels[0].shared_credit.senders().count();
        let shares = Shares { host: self.senders.count(), path };
        self.controller.on_signal(now_ns, Signal::Shares(shares));
        let has_delivered = report.delivered_bytes > 0;
        self.ecn.on_report(now_ns, report.passed_sent_ns, has_delivered, report.lost_packets);
        if report.delivered_bytes > 0 {
            self.delivery.on_delivered(report.arrived_ns, report.delivered_bytes);
        }
        self.delivery.on_lost(report.lost_bytes);
        let newest = report.newest.filter(|_| report.delivered_bytes > 0);
        self.pacer.set_rtt(self.rtt.min_ns().unwrap_or(0));
        let rate = newest.map(|(sent_ns, stamp)| self.delivery.sample(sent_ns, &stamp));
        self.controller.on_report(&Sample {
            now_ns,
            arrived_ns: report.arrived_ns,
            sent_ns: newest.map_or(0, |(sent_ns, _)| sent_ns),
            newly_delivered_bytes: report.delivered_bytes,
            delivered_bytes: self.delivery.delivered_bytes(),
            newly_lost_bytes: report.lost_bytes,
            newly_marked_bytes: report.marked_bytes.min(report.delivered_bytes),
            rate,
            round_trips: report.round_trips,
            endpoint_ns: report.endpoint_ns,
            min_rtt_ns: self.rtt.min_ns().unwrap_or(0),
            smoothed_rtt_ns: self.rtt.smoothed_ns().unwrap_or(0),
            in_flight_bytes: self.in_flight_wire_bytes,
            is_window_limited: std::mem::take(&mut self.window_limited),
        });
        self.limits = self.controller.limits();
    }
}
