//! The sender's state of the path to one peer, shared by all messages of a queue pair: data in
//! flight, round-trip time, and how much may be sent how fast.
//!
//! Data in flight has two limits. The *congestion window* comes from the congestion controller. The
//! *credit* comes from the peer: the space in the peer's socket buffer, per channel. On a short path
//! all data in flight may be in that socket at once, so the credit alone is the limit, and the socket
//! never overflows. On a long path most of the data is on the way, so the path's own capacity (rate
//! times smallest round trip) is added to the credit.
//!
//! `allowance.rs` computes how much may be sent, `report.rs` takes in the peer's reports, and
//! `timeout.rs` acts when there are none.

mod allowance;
mod report;
mod timeout;

pub use timeout::RtoConfig;

use crate::black_hole::{BlackHoleDetector, Watch};
use crate::controller::{AnyController, Controller, Limits, RoundTrips, Signal, StartRate};
use crate::delivery::Delivery;
use crate::ecn::Ecn;
use crate::ledger::{Ledger, LedgerEntry, Sent, charge};
use crate::loss::LossEstimate;
use crate::missing::Missing;
use crate::pacer::Pacer;
use crate::reordering::Reordering;
use crate::rtt::RttEstimator;
use crate::shared_credit::{Senders, SharedCredit};
use crate::small_vec::SmallVec;
use report::ReportSums;
use std::sync::Arc;

/// IPv4 and UDP headers, which a link carries too.
pub const IP_UDP_BYTES: u64 = 28;

/// The sender's state of one channel.
#[derive(Debug)]
struct ChannelPath {
    ledger: Ledger,
    /// Charge that the peer's socket of this channel can hold for this queue pair.
    credit: u64,
    /// Shared with all queue pairs that send to the same socket.
    shared_credit: Arc<SharedCredit>,
    /// Everything before this number was passed.
    passed_psn: u64,
    /// One past the highest number reported.
    reported_psn: u64,
    /// Number of the first packet.
    first_psn: u64,
    /// Packets that the peer has counted.
    received_packets: u64,
    /// See `received_packets`.
    duplicate_packets: u64,
    /// See `received_packets`.
    marked_packets: u64,
    missing: Missing,
    watch: Watch,
    /// The loss estimate covers the packets before this number.
    judged_psn: u64,
    /// Losses among those packets.
    judged_lost: u64,
    /// Packets before `reported_psn` that have not arrived.
    missing_packets: u64,
    /// Estimate of their wire bytes.
    missing_bytes: i128,
    /// Wire bytes of all packets before `reported_psn`.
    reported_bytes: u64,
    /// Of `reported_bytes`, those of packets that have arrived.
    delivered_bytes: u64,
    /// Wire bytes of a packet of the newest run reported.
    packet_bytes: u64,
    /// Everything before this number was handed to the datapath. A flush must not cover packets that
    /// were polled and not sent yet. Unlimited for owners that send polled packets at once.
    handed_psn: u64,
    /// When the newest reported packet was sent.
    reported_sent_ns: u64,
    /// Whether the pacer held the channel back at the last attempt; the pacer then decides when to
    /// ask again.
    paced: bool,
}

/// The sender's state of a path.
#[derive(Debug)]
pub struct Path {
    channels: SmallVec<ChannelPath>,
    rtt: RttEstimator,
    rto: RtoConfig,
    back_off: u32,
    /// Since when `back_off` is not 0.
    dark_since_ns: u64,
    reordering: Reordering,
    loss: LossEstimate,
    black_hole: BlackHoleDetector,
    controller: AnyController,
    /// The controller's limits, as of the last event.
    limits: Limits,
    pacer: Pacer,
    delivery: Delivery,
    ecn: Ecn,
    /// Sums of the current report.
    report: ReportSums,
    /// Whether the congestion window or the credit held back a send since the last report.
    window_limited: bool,
    /// Whether the congestion window or the credit was used up at the last attempt: only a report or
    /// a timeout can end that.
    is_blocked: bool,
    in_flight_bytes: u64,
    /// Wire bytes in flight: with the headers of IP and UDP.
    in_flight_wire_bytes: u64,
    bundle_packets: u32,
    senders: Arc<Senders>,
}

impl Path {
    /// A path over `channels` channels.
    pub fn new(channels: u8, first_psn: u32, controller: AnyController, rto: RtoConfig) -> Self {
        Self {
            channels: (0..channels)
                .map(|_| ChannelPath {
                    ledger: Ledger::new(first_psn),
                    credit: 0,
                    shared_credit: Arc::new(SharedCredit::new()),
                    passed_psn: u64::from(first_psn),
                    reported_psn: u64::from(first_psn),
                    first_psn: u64::from(first_psn),
                    received_packets: 0,
                    duplicate_packets: 0,
                    marked_packets: 0,
                    missing: Missing::default(),
                    watch: Watch::new(u64::from(first_psn)),
                    judged_psn: u64::from(first_psn),
                    judged_lost: 0,
                    missing_packets: 0,
                    missing_bytes: 0,
                    reported_bytes: 0,
                    delivered_bytes: 0,
                    packet_bytes: IP_UDP_BYTES,
                    handed_psn: u64::MAX,
                    reported_sent_ns: 0,
                    paced: false,
                })
                .collect(),
            rtt: RttEstimator::default(),
            rto,
            back_off: 0,
            dark_since_ns: 0,
            reordering: Reordering::default(),
            loss: LossEstimate::default(),
            black_hole: BlackHoleDetector::default(),
            limits: controller.limits(),
            controller,
            pacer: Pacer::default(),
            delivery: Delivery::default(),
            ecn: Ecn::default(),
            report: ReportSums::default(),
            window_limited: false,
            is_blocked: false,
            in_flight_bytes: 0,
            in_flight_wire_bytes: 0,
            bundle_packets: 1,
            senders: Arc::default(),
        }
    }

    /// Round-trip time of the path.
    #[inline]
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// Loss estimate of the path.
    #[inline]
    pub fn loss(&self) -> &LossEstimate {
        &self.loss
    }

    /// Loss estimate, for starting with remembered losses.
    pub fn loss_mut(&mut self) -> &mut LossEstimate {
        &mut self.loss
    }

    /// Time until a loss is detected: a round trip, and what reordering and the peer's reports add.
    /// 0 before the first sample.
    #[inline]
    pub fn loss_detection_ns(&self) -> u64 {
        let rtt_ns = self.rtt.smoothed_ns().unwrap_or(0);
        rtt_ns + self.reordering.grace_ns(&self.rtt)
    }

    /// The congestion controller.
    #[inline]
    pub fn controller(&self) -> &AnyController {
        &self.controller
    }

    /// Takes a round-trip sample from a probe.
    pub fn on_rtt_sample(&mut self, now_ns: u64, sample_ns: u64) {
        self.rtt.on_sample(now_ns, sample_ns);
        self.signal(now_ns, Signal::RoundTrips(RoundTrips::one(sample_ns)));
    }

    /// Takes a round-trip time that may be that of another path.
    pub fn on_rtt_guess(&mut self, guess_ns: u64) {
        self.rtt.guess(guess_ns);
    }

    /// Starts at a rate known from elsewhere.
    pub fn start_at(&mut self, now_ns: u64, start: StartRate) {
        self.signal(now_ns, Signal::Start(start));
    }

    fn signal(&mut self, now_ns: u64, signal: Signal) {
        self.controller.on_signal(now_ns, signal);
        self.limits = self.controller.limits();
    }

    /// Limits of the congestion controller.
    #[inline]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// When the congestion controller wants [`Path::on_timeout`] to be called.
    #[inline]
    pub fn controller_timeout_ns(&self) -> Option<u64> {
        self.controller.poll_timeout()
    }

    /// Calls the congestion controller, if its timer is due.
    pub fn on_timeout(&mut self, now_ns: u64) {
        if self.controller_timeout_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.controller.on_timeout(now_ns);
            self.limits = self.controller.limits();
        }
    }

    /// Packets that the peer received more than once: needless repairs, and copies made by the
    /// network.
    pub fn duplicate_packets(&self) -> u64 {
        self.channels.iter().map(|channel| channel.duplicate_packets).sum()
    }

    /// Rate and smallest round trip that were found, for the memory of paths.
    pub fn found(&self) -> Option<(u64, u64)> {
        Some((self.controller.found_bits_per_s()?, self.rtt.min_ns()?))
    }

    /// Joins the credit of a channel's socket with that of the other queue pairs that send to it.
    /// To be called before anything is sent.
    pub fn join(&mut self, channel: usize, shared_credit: Arc<SharedCredit>) {
        let state = &mut self.channels[channel];
        debug_assert_eq!(state.ledger.in_flight_charge(), 0);
        state.shared_credit.change_part(state.credit, 0);
        shared_credit.change_part(0, state.credit);
        state.shared_credit = shared_credit;
    }

    /// Counts this path among its owner's senders while it has anything in flight. To be called
    /// before anything is sent.
    pub fn count_among(&mut self, senders: Arc<Senders>) {
        debug_assert_eq!(self.in_flight_wire_bytes, 0);
        self.senders = senders;
    }

    /// Sets the charge that the peer's socket of a channel can hold.
    #[inline]
    pub fn set_credit(&mut self, channel: usize, credit: u64) {
        let state = &mut self.channels[channel];
        state.shared_credit.change_part(state.credit, credit);
        state.credit = credit;
    }

    /// Next sequence number of a channel.
    #[inline]
    pub fn next_psn(&self, channel: usize) -> u64 {
        self.channels[channel].ledger.next_psn()
    }

    /// UDP payload bytes in flight on all channels.
    #[inline]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// UDP payload bytes in flight on one channel.
    #[inline]
    pub fn in_flight_bytes_on(&self, channel: usize) -> u64 {
        self.channels[channel].ledger.in_flight_bytes()
    }

    /// Sets how many packets the datapath sends in one call, for about the price of one.
    pub fn set_bundle(&mut self, packets: u32) {
        self.bundle_packets = packets.max(1);
    }

    /// Counts a run that is sent now; returns its first sequence number.
    pub fn on_sent(&mut self, now_ns: u64, channel: usize, sent: Sent) -> u64 {
        let (count, bytes) = (sent.count(), sent.bytes);
        let wire_bytes = bytes + count * IP_UDP_BYTES;
        self.controller.on_sent(now_ns, wire_bytes, self.in_flight_wire_bytes);
        self.limits = self.controller.limits();
        if let Some(rate) = self.limits.rate_bits_per_s {
            let queued_ns = match (self.rtt.latest_ns(), self.rtt.min_ns()) {
                (Some(latest_ns), Some(min_ns)) => latest_ns.saturating_sub(min_ns),
                _ => 0,
            };
            let late_ns = self.pacer.on_sent(now_ns, wire_bytes, rate, queued_ns);
            self.delivery.on_late(late_ns);
        }
        self.is_blocked = false;
        if self.in_flight_wire_bytes == 0 {
            self.begin_sending();
        }
        self.in_flight_bytes += bytes;
        self.in_flight_wire_bytes += wire_bytes;
        let stamp = self.delivery.on_sent(now_ns, wire_bytes, self.in_flight_wire_bytes);
        let charge = charge(count, bytes);
        let state = &mut self.channels[channel];
        state.shared_credit.take(charge);
        state.ledger.push(LedgerEntry {
            sent,
            psn_end: 0,
            charge,
            sent_ns: now_ns,
            wire_end: 0,
            short_end: 0,
            stamp,
        })
    }

    /// The owner has nothing to send. Until everything now in flight is delivered, rate samples are
    /// application-limited.
    #[inline]
    pub fn on_out_of_data(&mut self) {
        self.pacer.on_other_limit();
        if self.in_flight_wire_bytes < self.limits.window_bytes {
            self.delivery.on_out_of_data(self.in_flight_wire_bytes);
        }
    }

    /// Removes a run from what is in flight.
    fn remove_in_flight(&mut self, channel: usize, entry: &LedgerEntry) {
        self.in_flight_bytes -= entry.sent.bytes;
        self.in_flight_wire_bytes -= entry.wire_bytes();
        self.channels[channel].shared_credit.give_back(entry.charge);
        if self.in_flight_wire_bytes == 0 {
            self.end_sending();
        }
    }

    /// Counts this path among the senders, because data is in flight. The shared credit of the first
    /// channel counts the senders to the peer.
    fn begin_sending(&self) {
        self.senders.begin();
        self.channels[0].shared_credit.senders().begin();
    }

    /// Nothing is in flight any more.
    fn end_sending(&self) {
        self.senders.end();
        self.channels[0].shared_credit.senders().end();
    }

    /// Whether data packets are sent as ECN-capable.
    #[inline]
    pub fn takes_marks(&self) -> bool {
        self.ecn.is_allowed()
    }

    /// Whether a black hole is suspected: short packets pass, full ones do not. Only a few packets
    /// are sent then.
    #[inline]
    pub fn is_narrow(&self) -> bool {
        self.black_hole.is_suspected()
    }

    /// Whether a full packet is known to have arrived since the last call.
    #[inline]
    pub fn take_full_arrived(&mut self) -> bool {
        self.black_hole.take_full_arrived()
    }

    /// The size of full packets has changed: discards the losses of earlier ones.
    pub fn on_new_size(&mut self) {
        self.black_hole.restart();
        for state in self.channels.iter_mut() {
            let ledger = &state.ledger;
            let (next_psn, short_packets) = (ledger.next_psn(), ledger.short_packets());
            state.watch.restart(next_psn, state.received_packets, short_packets);
        }
    }

    /// Packets take another way to the same host: what was lost on the one before says nothing about
    /// which sizes pass.
    pub fn on_rerouted(&mut self) {
        self.on_new_size();
    }

    /// The peer is at another host, so nothing of what was found holds (RFC 9000, 9.4): this controller
    /// starts anew. What is in flight stays so.
    pub fn on_other_host(&mut self, controller: AnyController) {
        self.on_new_size();
        self.rtt = RttEstimator::default();
        self.reordering = Reordering::default();
        self.loss = LossEstimate::default();
        self.pacer = Pacer::default();
        self.ecn = Ecn::default();
        self.back_off = 0;
        self.limits = controller.limits();
        self.controller = controller;
        self.is_blocked = false;
    }

    /// Whether the congestion window or the credit was used up at the last attempt.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Everything before `psn` on `channel` was handed to the datapath.
    #[inline]
    pub fn on_handed(&mut self, channel: usize, psn: u64) {
        if let Some(state) = self.channels.get_mut(channel) {
            state.handed_psn = psn;
        }
    }

    /// Whether everything that was sent on a channel was handed to the datapath.
    pub fn has_handed_all(&self, channel: usize) -> bool {
        let state = &self.channels[channel];
        state.handed_psn.max(state.passed_psn) >= state.ledger.next_psn()
    }

    /// The sequence number for a flush: packets before it were sent at least a grace ago, so they
    /// should have arrived by now.
    pub fn flush_psn(&self, now_ns: u64, channel: usize) -> u64 {
        let state = &self.channels[channel];
        let psn = match self.reordering.grace_ns(&self.rtt) {
            0 => state.ledger.next_psn(),
            grace_ns => {
                let sent_ns = now_ns.saturating_sub(grace_ns);
                state.ledger.psn_sent_by(sent_ns).unwrap_or(state.passed_psn)
            }
        };
        psn.min(state.handed_psn.max(state.passed_psn))
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        for state in &self.channels {
            state.shared_credit.give_back(state.ledger.in_flight_charge());
            state.shared_credit.change_part(state.credit, 0);
        }
        if self.in_flight_wire_bytes > 0 {
            self.end_sending();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{ControllerConfig, Setup};
    use lacuna_wire::{ChannelReport, Seal, psn};

    #[test]
    fn a_first_flight_uses_up_its_window_whatever_the_size_of_packets() {
        for mtu_bytes in (1200..9000u64).step_by(7) {
            let packet_bytes = mtu_bytes + Seal::default().overhead_bytes(false) as u64;
            let wire_bytes = packet_bytes + IP_UDP_BYTES;
            let setup = Setup { packet_bytes: wire_bytes, seed: 0 };
            let bbr = ControllerConfig::Bbr.build(setup);
            let mut path = Path::new(1, 0, bbr, RtoConfig::default());
            path.set_credit(0, 1 << 24);
            path.set_bundle((65_507 / packet_bytes) as u32);
            let (mut sent, mut number) = (0, 0);
            loop {
                let allowed = path.allowance_packets(0, 0, packet_bytes, 1000);
                let count = allowed.min(path.bundle_packets);
                if count == 0 {
                    break;
                }
                let bytes = u64::from(count) * packet_bytes;
                path.on_sent(0, 0, Sent { number, packets: 0..count, pieces: 1, short: 0, bytes });
                sent += u64::from(count) * wire_bytes;
                number += 1;
            }
            let window = path.limits().window_bytes;
            assert!(sent * 100 >= window * 85, "packets of {mtu_bytes}: {sent} of {window}");
        }
    }

    #[test]
    fn what_was_ever_lost_is_not_measured_by_the_packets_of_today() {
        let setup = Setup { packet_bytes: 1500, seed: 0 };
        let fixed = ControllerConfig::Fixed { rate_bits_per_s: 1_000_000_000 };
        let mut path = Path::new(1, 0, fixed.build(setup), RtoConfig::default());
        let (mut received_packets, mut came_bytes, mut now_ns) = (0, 0, 0);
        let mut report = ChannelReport::default();
        for run in 0..10_000u64 {
            // Full packets and, in turn, the small one that ends a message; one
            // in ten runs loses a full packet.
            let (count, bytes) = if run % 2 == 0 { (10, 14_720) } else { (1, 72) };
            let short = u32::from(run % 2 == 1);
            let packets = 0..count;
            path.on_sent(now_ns, 0, Sent { number: run, packets, pieces: 1, short, bytes });
            let lost = u64::from(run % 10 == 0);
            received_packets += u64::from(count) - lost;
            came_bytes += bytes + u64::from(count) * IP_UDP_BYTES - lost * 1500;
            now_ns += 1_000_000;
            report.next_psn = psn::wrap(path.next_psn(0));
            report.received_packets = received_packets;
            path.on_report(now_ns, &report);
            while path.pop_passed().is_some() {}
            path.end_report(now_ns);
        }
        assert_eq!(path.delivery.delivered_bytes(), came_bytes);
    }
}
