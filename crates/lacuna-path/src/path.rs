//! The sender's books of the path to one peer, shared by all messages of a queue pair: what is in
//! flight, how long a round trip takes, how fast and how much may be sent.
//!
//! Two bounds hold at once. The *congestion window* comes from the congestion controller. The
//! *credit* comes from the peer: it says for each channel what the peer's socket buffer can hold. On
//! a short path everything in flight may sit in that socket at once, so the credit bounds what is in
//! flight, and a path without loss loses nothing in the host. On a long path most of it is on the
//! way, so the bytes that the path itself holds (rate times smallest round trip) come on top of the
//! credit.

use crate::controller::{
    AnyController, Controller, Limits, RoundTrips, Sample, Shares, Signal, StartRate,
};
use crate::delivery::{Delivery, Stamp};
use crate::ecn::Ecn;
use crate::ledger::{Ledger, Record, Sent, charge};
use crate::loss::LossEstimate;
use crate::missing::Missing;
use crate::pacer::Pacer;
use crate::passage::{DOUBTED_PACKETS, Passage, Told, Watch};
use crate::pool::{Pool, Senders};
use crate::reordering::Reordering;
use crate::rtt::RttEstimator;
use crate::small_vec::SmallVec;
use lacuna_wire::{ChannelReport, psn};
use std::sync::Arc;

/// IPv4 and UDP headers, which a link carries too.
pub const IP_UDP_BYTES: u64 = 28;

/// More than any path holds (a second at 100 Tbit/s); keeps sums from overflowing.
const PATH_BYTES_MAX: u64 = 1 << 44;

/// Shortest time after which a run expires of which nothing was heard: a few time slices of a loaded
/// host (Linux: 4 ms each, and several tasks).
const UNHEARD_NS_MIN: u64 = 50_000_000;

/// After runs have expired the peer is asked, and answers within a round trip and a half and this
/// time for busy hosts, unless the path is dark.
const ANSWERED_SLACK_NS: u64 = 30_000_000;

/// What may be in flight while nothing is heard of the peer.
const DARK_WINDOW_BYTES: u64 = 64 << 10;

/// How the retransmission timeout follows the round-trip time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RtoConfig {
    /// `alpha` of RTO = RTT + alpha RTT (SDR-RDMA 4.1.1), in hundredths.
    pub alpha_percent: u32,
    /// Never shorter: a host may take a core away for milliseconds.
    pub min_ns: u64,
    /// Back-off makes it no longer than this; a round trip that is longer does.
    pub max_ns: u64,
    /// Before the first sample.
    pub initial_ns: u64,
}

impl Default for RtoConfig {
    /// 3 RTT, as in the paper's evaluation (5.1.1).
    fn default() -> Self {
        Self {
            alpha_percent: 200,
            min_ns: 10_000_000,
            max_ns: 1_000_000_000,
            initial_ns: 200_000_000,
        }
    }
}

/// Sender's view of one channel.
#[derive(Debug)]
struct ChannelPath {
    ledger: Ledger,
    /// Charge that the peer's socket of this channel can hold for us.
    credit: u64,
    /// Shared with those that send to the same socket.
    pool: Arc<Pool>,
    /// Everything before this number was passed.
    passed_psn: u64,
    /// Largest report taken in, to tell new ones.
    reported_psn: u64,
    /// Number of the first packet.
    first_psn: u64,
    /// Packets that the peer has counted, and of those the ones it had already
    /// and those with a congestion mark.
    received_packets: u64,
    /// See `received_packets`.
    duplicate_packets: u64,
    /// See `received_packets`.
    marked_packets: u64,
    missing: Missing,
    watch: Watch,
    /// How far the estimate of losses has gone: number, and losses before it.
    judged_psn: u64,
    judged_lost: u64,
    /// Packets before `reported_psn` that did not come, and their wire bytes as
    /// far as can be told.
    missing_packets: u64,
    /// See `missing_packets`.
    missing_bytes: i128,
    /// Wire bytes of all packets before `reported_psn`.
    reported_bytes: u64,
    /// Of those, the ones that came.
    delivered_bytes: u64,
    /// Wire bytes of a packet of the newest run reported.
    packet_bytes: u64,
    /// Everything before this number was handed to the datapath: what was
    /// polled but not sent yet must not be called sent. Unlimited for owners
    /// that send what they poll before anything else.
    handed_psn: u64,
    /// When the newest packet that was reported had been sent.
    reported_sent_ns: u64,
    /// Whether the pacer held it back when it was last asked: the pacer then
    /// decides when to ask again.
    paced: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Path {
    channels: SmallVec<ChannelPath>,
    rtt: RttEstimator,
    rto: RtoConfig,
    back_off: u32,
    /// If that is not 0: since when it is not.
    dark_since_ns: u64,
    reordering: Reordering,
    loss: LossEstimate,
    passage: Passage,
    controller: AnyController,
    /// What it allows, as of the last time that it was told anything.
    limits: Limits,
    pacer: Pacer,
    delivery: Delivery,
    ecn: Ecn,
    /// What the report that is being taken in said so far.
    report: ReportSums,
    /// Whether a send was refused for the congestion window or the credit since the last report.
    window_limited: bool,
    /// Whether the congestion window or the credit was used up at the last attempt: only a report or
    /// a timeout can end that.
    is_blocked: bool,
    in_flight_bytes: u64,
    /// The same with the headers of IP and UDP.
    in_flight_wire_bytes: u64,
    bundle_packets: u32,
    senders: Arc<Senders>,
}

/// Sums of one report over its channels.
#[derive(Debug, Clone, Copy, Default)]
struct ReportSums {
    delivered_bytes: u64,
    lost_bytes: u64,
    lost_packets: u64,
    marked_bytes: u64,
    arrived_ns: u64,
    round_trips: Option<RoundTrips>,
    /// How long the peer held what the newest of those tells of.
    endpoint_ns: u64,
    /// When the newest run that was passed had left, on any channel.
    passed_sent_ns: u64,
    /// When the newest run had left, and its stamp.
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
    /// A path over `channels` channels.
    pub fn new(channels: u8, first_psn: u32, controller: AnyController, rto: RtoConfig) -> Self {
        Self {
            channels: (0..channels)
                .map(|_| ChannelPath {
                    ledger: Ledger::new(first_psn),
                    credit: 0,
                    pool: Arc::new(Pool::new()),
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
            passage: Passage::default(),
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

    /// How often packets are lost.
    #[inline]
    pub fn loss(&self) -> &LossEstimate {
        &self.loss
    }

    /// Begins with what is remembered of the path's losses.
    pub fn loss_mut(&mut self) -> &mut LossEstimate {
        &mut self.loss
    }

    /// How long it takes until a loss shows: a round trip, and what reordering
    /// and the peer's reports add. 0 before the first sample.
    #[inline]
    pub fn loss_shows_ns(&self) -> u64 {
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

    /// Takes a round-trip time that may be of another path.
    pub fn on_rtt_guess(&mut self, guess_ns: u64) {
        self.rtt.guess(guess_ns);
    }

    /// Begins at a rate that is known from elsewhere.
    pub fn start_at(&mut self, now_ns: u64, start: StartRate) {
        self.signal(now_ns, Signal::Start(start));
    }

    fn signal(&mut self, now_ns: u64, signal: Signal) {
        self.controller.on_signal(now_ns, signal);
        self.limits = self.controller.limits();
    }

    /// What the congestion controller allows.
    #[inline]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// When the congestion controller wants [`Path::on_timeout`] to be called.
    #[inline]
    pub fn controller_timeout_ns(&self) -> Option<u64> {
        self.controller.poll_timeout()
    }

    /// Time has come for the congestion controller, if it asked for it.
    pub fn on_timeout(&mut self, now_ns: u64) {
        if self.controller_timeout_ns().is_some_and(|due_ns| due_ns <= now_ns) {
            self.controller.on_timeout(now_ns);
            self.limits = self.controller.limits();
        }
    }

    /// Packets that the peer has counted as there already: needless repairs, and copies that the
    /// network made.
    pub fn duplicate_packets(&self) -> u64 {
        self.channels.iter().map(|channel| channel.duplicate_packets).sum()
    }

    /// What the path was found to be like, for its memory: rate and smallest
    /// round trip.
    pub fn found(&self) -> Option<(u64, u64)> {
        Some((self.controller.found_bits_per_s()?, self.rtt.min_ns()?))
    }

    /// Shares a channel's credit with the others of `pool`. To be called before
    /// anything is sent.
    pub fn join(&mut self, channel: usize, pool: Arc<Pool>) {
        let state = &mut self.channels[channel];
        debug_assert_eq!(state.ledger.in_flight_charge(), 0);
        state.pool.change_part(state.credit, 0);
        pool.change_part(0, state.credit);
        state.pool = pool;
    }

    /// Counts itself among those of its owner that have anything in flight. To be
    /// called before anything is sent.
    pub fn count_among(&mut self, senders: Arc<Senders>) {
        debug_assert_eq!(self.in_flight_wire_bytes, 0);
        self.senders = senders;
    }

    /// Sets what the peer's socket of a channel holds.
    #[inline]
    pub fn set_credit(&mut self, channel: usize, credit: u64) {
        let state = &mut self.channels[channel];
        state.pool.change_part(state.credit, credit);
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

    /// How many packets the datapath sends in one piece, for the price of one.
    pub fn set_bundle(&mut self, packets: u32) {
        self.bundle_packets = packets.max(1);
    }

    /// Of the `waiting` packets of `packet_bytes` of UDP payload, how many may be sent on
    /// `channel` now.
    ///
    /// Where congestion window and credit do not let all packets go, whole bundles go while others
    /// are in flight: the report that lets one packet go lets more go soon, and a piece of one packet
    /// costs as much as a full one (RFC 9293, 3.8.6.2.1, "silly window syndrome"). Where two bundles
    /// have no room, halves of the room go: else both ends would take turns.
    pub fn allowance_packets(
        &mut self,
        now_ns: u64,
        channel: usize,
        packet_bytes: u64,
        waiting: u32,
    ) -> u32 {
        self.channels[channel].paced = false;
        let state = &self.channels[channel];
        let waiting = u64::from(waiting);

        let Limits { window_bytes: window, rate_bits_per_s, burst_bytes } = self.limits;
        let window_left = window.saturating_sub(self.in_flight_wire_bytes);

        let min_rtt_ns = self.rtt.min_ns().unwrap_or(0);
        let on_the_way = match self.controller.path_bytes(min_rtt_ns).min(PATH_BYTES_MAX) * 2 {
            0 => 0,
            bytes => charge(bytes / packet_bytes, bytes) / self.channels.len() as u64,
        };
        let held = state.ledger.in_flight_charge();
        let packet_charge = charge(1, packet_bytes);
        let credit_left = state.pool.room(state.credit, held, on_the_way);
        // Nothing is heard: the path is dark or the peer stands still. Some packets, and the
        // questions behind them, find out when that ends. Sending all of the congestion window
        // again and again would only be load.
        let probing = match (self.is_dark(), self.passage.is_doubted()) {
            (true, _) => DARK_WINDOW_BYTES.saturating_sub(self.in_flight_bytes),
            // No full packet seems to pass: the same, and less of it.
            (_, true) => (DOUBTED_PACKETS * packet_bytes).saturating_sub(self.in_flight_bytes),
            (false, false) => u64::MAX,
        };
        let all_fit = |left: u64, unit: u64| waiting * unit <= left;
        let is_cut = !all_fit(window_left, packet_bytes + IP_UDP_BYTES)
            || !all_fit(credit_left, packet_charge)
            || !all_fit(probing, packet_bytes);
        let mut packets = waiting;
        if is_cut {
            packets = (window_left / (packet_bytes + IP_UDP_BYTES))
                .min(credit_left / packet_charge)
                .min(probing / packet_bytes);
            // The pacer sends no larger pieces. Waiting for room for a larger one would leave a
            // small congestion window half empty.
            let paced = burst_bytes / (packet_bytes + IP_UDP_BYTES);
            let room =
                (window / (packet_bytes + IP_UDP_BYTES)).min((held + credit_left) / packet_charge);
            let bundle = u64::from(self.bundle_packets).min(room / 2).min(paced).max(1);
            let mut whole = packets - packets % bundle;
            if bundle < u64::from(self.bundle_packets) {
                // One at a time: the datapath would put several into one piece, and what
                // is left over in another, shorter than any of them.
                whole = whole.min(bundle);
            }
            packets = match state.ledger.in_flight_bytes() > 0 || whole > 0 {
                true => whole,
                // However small the peer's buffer: one packet at a time goes.
                false => packets.max(1),
            };
        }
        if packets == 0 {
            self.window_limited = true;
            self.is_blocked = true;
            self.pacer.on_other_limit();
            return 0;
        }
        if let Some(rate) = rate_bits_per_s {
            let allowed = self.pacer.allowance(now_ns, rate, burst_bytes);
            if allowed == 0 {
                self.channels[channel].paced = true;
                return 0;
            }
            packets = packets.min((allowed / (packet_bytes + IP_UDP_BYTES)).max(1));
        }
        packets.min(waiting) as u32
    }

    /// When pacing allows more, if pacing held this channel back.
    #[inline]
    pub fn pacing_timeout_ns(&self, channel: usize) -> Option<u64> {
        self.channels[channel].paced.then(|| self.pacer.ready_ns())
    }

    /// Counts a run that goes out now; returns its first sequence number.
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
        state.pool.take(charge);
        state.ledger.push(Record {
            sent,
            psn_end: 0,
            charge,
            sent_ns: now_ns,
            wire_end: 0,
            short_end: 0,
            stamp,
        })
    }

    /// The owner has nothing to send: until that is delivered which is in
    /// flight now, rates say more of the application than of the path.
    #[inline]
    pub fn on_out_of_data(&mut self) {
        self.pacer.on_other_limit();
        if self.in_flight_wire_bytes < self.limits.window_bytes {
            self.delivery.on_out_of_data(self.in_flight_wire_bytes);
        }
    }

    /// Takes in one channel's part of a report. After all of them, and after
    /// the runs that they passed, comes [`Path::end_report`].
    pub fn on_report(&mut self, now_ns: u64, report: &ChannelReport) {
        let Some(state) = self.channels.get_mut(usize::from(report.channel)) else { return };
        let sent_psn = state.ledger.next_psn();
        let credit = u64::from(report.credit_bytes);
        state.pool.change_part(state.credit, credit);
        state.credit = credit;
        // A report may name no number that was not sent: it is not ours then.
        let next_psn = psn::unwrap(report.next_psn, state.reported_psn);
        let flushed_psn = psn::unwrap(report.flushed_psn, state.reported_psn);
        if next_psn > sent_psn || flushed_psn > sent_psn {
            return;
        }
        if self.back_off > 0 {
            self.end_darkness(now_ns);
        }
        let state = &mut self.channels[usize::from(report.channel)];
        // A caller's clock that was read a moment ago may lie before the sending
        // by another thread: no sample then.
        let arrived_ns = now_ns.saturating_sub(u64::from(report.delay_ns));
        let mut short_packets = (0, state.ledger.short_packets());
        if next_psn > state.reported_psn {
            if let Some(record) = state.ledger.find(next_psn - 1) {
                state.reported_sent_ns = record.sent_ns;
                state.packet_bytes = record.wire_bytes() / record.count().max(1);
                let behind = record.psn_end - next_psn;
                state.reported_bytes = record.wire_end.saturating_sub(behind * state.packet_bytes);
                let short_behind = behind.min(record.short().into());
                short_packets = (record.short_end - short_behind, record.short_end);
                if let Some(sample_ns) = arrived_ns.checked_sub(record.sent_ns) {
                    self.rtt.on_sample(now_ns, sample_ns);
                    self.report.add_round_trip(sample_ns, report.delay_ns);
                }
                let newer = |(sent_ns, stamp): &(u64, Stamp)| {
                    (stamp.delivered_bytes, *sent_ns)
                        <= (record.stamp.delivered_bytes, record.sent_ns)
                };
                if self.report.newest.as_ref().is_none_or(newer) {
                    self.report.newest = Some((record.sent_ns, record.stamp));
                }
            } else {
                let bytes = (next_psn - state.reported_psn) * state.packet_bytes;
                state.reported_bytes += bytes;
                // Given up too early: the next timeouts are longer.
                let sent_ns = state.ledger.take_expired(next_psn - 1);
                if let Some(sample_ns) = sent_ns.and_then(|ns| arrived_ns.checked_sub(ns)) {
                    self.rtt.on_sample(now_ns, sample_ns);
                    self.report.add_round_trip(sample_ns, report.delay_ns);
                }
            }
            state.reported_bytes = state.reported_bytes.min(state.ledger.wire_bytes());
            state.reported_psn = next_psn;
        }
        // In order, the last packet to come proves that those before it are
        // lost or here; otherwise only of those that were sent a grace earlier.
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
        // A flush names only what was sent a grace before it.
        state.passed_psn = state.passed_psn.max(overtaken_psn).max(flushed_psn);
        self.count(now_ns, arrived_ns, grace_ns, report, flushed_psn);
        let state = &mut self.channels[usize::from(report.channel)];
        let came_packets = state.received_packets;
        let told = Told { psn: state.reported_psn, came_packets, short_packets };
        self.passage.on_report(&mut state.watch, told);
    }

    /// Counts what came and what is lost, for the controller. Never more than
    /// was sent, whatever the peer says.
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
        // Change by change: packets differ in size, and the size of today's times
        // all that was ever missing would be anything.
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
        let told_psn = state.reported_psn.max(flushed_psn);
        let missing_packets = missing(told_psn);
        let lost = state.missing.on_report(now_ns, told_psn, missing_packets, grace_ns);
        self.report.lost_bytes += lost * state.packet_bytes;
        let lost_packets = state.missing.lost_packets();
        let more = lost_packets as i64 - state.judged_lost as i64;
        self.loss.on_report(now_ns, told_psn.saturating_sub(state.judged_psn), more);
        (state.judged_psn, state.judged_lost) = (state.judged_psn.max(told_psn), lost_packets);
        self.report.lost_packets += lost;
        let marked = report.marked_packets.saturating_sub(state.marked_packets);
        state.marked_packets = state.marked_packets.max(report.marked_packets);
        self.report.marked_bytes += marked.min(state.reported_psn) * state.packet_bytes;
    }

    /// Something is heard again, or for the first time since runs have expired. What was lost
    /// in the dark says nothing of the path's width.
    fn end_darkness(&mut self, now_ns: u64) {
        self.back_off = 0;
        let srtt_ns = self.rtt.smoothed_ns().unwrap_or(0);
        let dark_ns = now_ns.saturating_sub(self.dark_since_ns);
        if dark_ns > srtt_ns + srtt_ns / 2 + ANSWERED_SLACK_NS {
            self.on_new_size();
        }
    }

    /// Takes the next run that reports have passed. Call until `None`.
    pub fn pop_passed(&mut self) -> Option<Record> {
        let channels = self.channels.iter_mut().enumerate();
        let mut popped =
            channels.filter_map(|(at, c)| Some((at, c.ledger.pop_passed(c.passed_psn)?)));
        let (channel, record) = popped.next()?;
        self.report.passed_sent_ns = self.report.passed_sent_ns.max(record.sent_ns);
        let watch = &self.channels[channel].watch;
        self.passage.on_judged(watch, &record);
        self.note_gone(channel, &record);
        Some(record)
    }

    /// A run is in flight no more.
    fn note_gone(&mut self, channel: usize, record: &Record) {
        self.in_flight_bytes -= record.sent.bytes;
        self.in_flight_wire_bytes -= record.wire_bytes();
        self.channels[channel].pool.give_back(record.charge);
        if self.in_flight_wire_bytes == 0 {
            self.end_sending();
        }
    }

    /// Something is in flight: those who share with this one count it. Its first channel
    /// stands for the way to the peer.
    fn begin_sending(&self) {
        self.senders.begin();
        self.channels[0].pool.senders().begin();
    }

    /// Nothing is any more.
    fn end_sending(&self) {
        self.senders.end();
        self.channels[0].pool.senders().end();
    }

    /// A report was taken in: tells the controller.
    pub fn end_report(&mut self, now_ns: u64) {
        self.passage.end_report();
        let report = std::mem::take(&mut self.report);
        let path = self.channels[0].pool.senders().count();
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

    /// The retransmission timeout now, back-off included.
    #[inline]
    pub fn rto_ns(&self) -> u64 {
        let base = match self.rtt.smoothed_ns() {
            None => self.rto.initial_ns,
            Some(srtt) => {
                let scaled = srtt + srtt * u64::from(self.rto.alpha_percent) / 100;
                // RFC 6298 (2.3): never below what the variance calls for.
                scaled.max(srtt + 4 * self.rtt.variance_ns())
            }
        };
        let base = base.max(self.rto.min_ns);
        // The bound is on the back-off: a timeout below the round trip would
        // send everything twice for ever.
        (base << self.back_off.min(16)).min(self.rto.max_ns.max(base))
    }

    /// When the oldest run in flight expires.
    #[inline]
    pub fn expiry_ns(&self) -> Option<u64> {
        let oldest = self.channels.iter().filter_map(|c| c.ledger.oldest_sent_ns()).min()?;
        Some(oldest + self.unheard_ns())
    }

    /// How long nothing may be heard of a run. By then the peer was asked
    /// several times, so on a short path a silence says more of a busy host
    /// than of the path.
    fn unheard_ns(&self) -> u64 {
        self.rto_ns().max(UNHEARD_NS_MIN)
    }

    /// Takes the next run that nothing was heard of for too long.
    pub fn pop_expired(&mut self, now_ns: u64) -> Option<Record> {
        let sent_before_ns = now_ns.checked_sub(self.unheard_ns())?;
        for channel in 0..self.channels.len() {
            let state = &mut self.channels[channel];
            if let Some(record) = state.ledger.pop_expired(sent_before_ns) {
                state.missing.on_expired(record.count(), record.psn_end);
                self.passage.on_judged(&state.watch, &record);
                self.note_gone(channel, &record);
                return Some(record);
            }
        }
        None
    }

    /// Runs expired: wait twice as long for the next ones (RFC 6298, 5.5),
    /// until a report comes.
    pub fn on_expired(&mut self, now_ns: u64) {
        self.signal(now_ns, Signal::Silence);
        if self.back_off == 0 {
            self.dark_since_ns = now_ns;
        }
        self.back_off = (self.back_off + 1).min(16);
    }

    /// Whether data packets may say that their sender answers to congestion marks.
    #[inline]
    pub fn takes_marks(&self) -> bool {
        self.ecn.is_allowed()
    }

    /// Whether what was sent last has expired, and nothing was heard since.
    #[inline]
    pub fn is_dark(&self) -> bool {
        self.back_off > 0
    }

    /// Whether full packets do not seem to pass any more, though short ones do. Only a few are
    /// sent then.
    #[inline]
    pub fn is_narrow(&self) -> bool {
        self.passage.is_doubted()
    }

    /// Whether a full packet is known to have come since this was last asked.
    #[inline]
    pub fn take_full_came(&mut self) -> bool {
        self.passage.take_came()
    }

    /// What was lost so far says nothing of full packets: they are of another size from now on.
    pub fn on_new_size(&mut self) {
        self.passage.restart();
        for state in self.channels.iter_mut() {
            let ledger = &state.ledger;
            let (next_psn, short_packets) = (ledger.next_psn(), ledger.short_packets());
            state.watch.restart(next_psn, state.received_packets, short_packets);
        }
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

    /// Up to where a flush may say that everything was sent and would have come
    /// by now: the number after the last packet that was sent a grace ago.
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
            state.pool.give_back(state.ledger.in_flight_charge());
            state.pool.change_part(state.credit, 0);
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
    use lacuna_wire::DATA_OVERHEAD_BYTES;

    #[test]
    fn a_first_flight_uses_up_its_window_whatever_the_size_of_packets() {
        for mtu_bytes in (1200..9000u64).step_by(7) {
            let packet_bytes = mtu_bytes + DATA_OVERHEAD_BYTES as u64;
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
        let (mut came_packets, mut came_bytes, mut now_ns) = (0, 0, 0);
        let mut report = ChannelReport::default();
        for run in 0..10_000u64 {
            // Full packets and, in turn, the small one that ends a message; one
            // in ten runs loses a full packet.
            let (count, bytes) = if run % 2 == 0 { (10, 14_720) } else { (1, 72) };
            let short = u32::from(run % 2 == 1);
            let packets = 0..count;
            path.on_sent(now_ns, 0, Sent { number: run, packets, pieces: 1, short, bytes });
            let lost = u64::from(run % 10 == 0);
            came_packets += u64::from(count) - lost;
            came_bytes += bytes + u64::from(count) * IP_UDP_BYTES - lost * 1500;
            now_ns += 1_000_000;
            report.next_psn = psn::wrap(path.next_psn(0));
            report.received_packets = came_packets;
            path.on_report(now_ns, &report);
            while path.pop_passed().is_some() {}
            path.end_report(now_ns);
        }
        assert_eq!(path.delivery.delivered_bytes(), came_bytes);
    }
}
