//! The way to the peer, shared by all messages of a queue pair: what is in
//! flight, how long a round trip takes, how fast and how much may be sent.
//!
//! Two bounds hold at once. The *window* is the congestion controller's. The
//! *credit* is the peer's: per channel, what its socket buffer can hold. On a
//! short path everything in flight may sit in that socket at once, so credit
//! bounds what is in flight, and a path without loss loses nothing in the host.
//! On a long path most of what is in flight is on the way; there the bytes
//! that the path itself holds (rate times smallest RTT) come on top.

pub mod arrivals;
pub mod controller;
pub mod ledger;
pub mod pacer;
mod reordering;

use crate::psn;
use crate::rtt::RttEstimator;
use controller::{Controller, ControllerConfig, Sample};
use lacuna_wire::{ChannelReport, DATA_OVERHEAD_BYTES};
use ledger::{Ledger, Record, charge};
use pacer::Pacer;
use reordering::Reordering;
use std::ops::Range;

/// IPv4 and UDP headers, which a link carries too.
pub const IP_UDP_BYTES: u64 = 28;

/// A round trip below which a path holds nothing worth counting: what is in
/// flight is in a socket buffer. Loopback and one switch are below, the next
/// building is above.
const SHORT_PATH_NS: u64 = 500_000;

/// More than any path holds (a second at 100 Tbit/s); keeps sums from overflowing.
const PATH_BYTES_MAX: u64 = 1 << 44;

/// Shortest time after which a run that nothing was heard of expires: a few time
/// slices of a loaded host (Linux: 4 ms each, and several tasks).
const UNHEARD_NS_MIN: u64 = 50_000_000;

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
struct Channel {
    ledger: Ledger,
    /// Charge that the peer's socket of this channel can hold for us.
    credit: u64,
    /// Everything before this number was passed.
    passed_psn: u64,
    /// Largest report taken in, to tell new ones.
    reported_psn: u64,
    /// Packets that the peer has counted, and of those the ones it had already.
    received_packets: u64,
    /// See `received_packets`.
    duplicate_packets: u64,
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
    channels: Vec<Channel>,
    rtt: RttEstimator,
    rto: RtoConfig,
    back_off: u32,
    reordering: Reordering,
    controller: Controller,
    pacer: Pacer,
    /// Bytes that arrived, by the peer's count of packets, and when that was
    /// last learnt. What was sent and lost does not count: a rate taken from it
    /// would follow the sender, not the path.
    delivered_bytes: u64,
    delivered_ns: u64,
    /// Packets that the peer has counted since `delivered_bytes` was last moved.
    arrived_packets: u64,
    /// Whether a send was refused for the window since the last report.
    window_limited: bool,
    /// Whether the window was full when it was last asked for: only the peer's
    /// word, or a timeout, can open it.
    is_blocked: bool,
    in_flight_bytes: u64,
    bundle_packets: u32,
}

/// Outcome of a report: how far the sequence numbers of a channel were passed.
#[derive(Debug, Clone, Copy)]
pub struct Passed {
    channel: usize,
    psn: u64,
}

impl Path {
    /// A path over `channels` channels.
    pub fn new(channels: u8, first_psn: u32, controller: ControllerConfig, rto: RtoConfig) -> Self {
        Self {
            channels: (0..channels)
                .map(|_| Channel {
                    ledger: Ledger::new(first_psn),
                    credit: 0,
                    passed_psn: u64::from(first_psn),
                    reported_psn: u64::from(first_psn),
                    received_packets: 0,
                    duplicate_packets: 0,
                    handed_psn: u64::MAX,
                    reported_sent_ns: 0,
                    paced: false,
                })
                .collect(),
            rtt: RttEstimator::default(),
            rto,
            back_off: 0,
            reordering: Reordering::default(),
            controller: Controller::new(controller),
            pacer: Pacer::default(),
            delivered_bytes: 0,
            delivered_ns: 0,
            arrived_packets: 0,
            window_limited: false,
            is_blocked: false,
            in_flight_bytes: 0,
            bundle_packets: 1,
        }
    }

    /// Round-trip time of the path.
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The congestion controller.
    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Takes a round-trip sample from a probe.
    pub fn on_rtt_sample(&mut self, now_ns: u64, sample_ns: u64) {
        self.rtt.on_sample(now_ns, sample_ns);
    }

    /// Sets what the peer's socket of a channel holds.
    pub fn set_credit(&mut self, channel: usize, credit: u64) {
        self.channels[channel].credit = credit;
    }

    /// Sets how many queue pairs share the way out.
    pub fn set_shares(&mut self, shares: u32) {
        self.controller.set_shares(shares);
    }

    /// Next sequence number of a channel.
    pub fn next_psn(&self, channel: usize) -> u64 {
        self.channels[channel].ledger.next_psn()
    }

    /// UDP payload bytes in flight on all channels.
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// UDP payload bytes in flight on one channel.
    pub fn in_flight_bytes_on(&self, channel: usize) -> u64 {
        self.channels[channel].ledger.in_flight_bytes()
    }

    /// How many packets the datapath sends in one piece, for the price of one.
    pub fn set_bundle(&mut self, packets: u32) {
        self.bundle_packets = packets.max(1);
    }

    /// Of the `waiting` packets of `mtu_bytes` payload, how many may be sent on
    /// `channel` now.
    ///
    /// What window and credit cut off goes in whole bundles while others are on
    /// their way: the report that opens the window for one packet opens it for
    /// more soon, and a piece of one packet costs as much as a full one (the
    /// same thought as in RFC 9293 3.8.6.2.1, "silly window"). Where two bundles
    /// have no room, in halves of the room: else both ends would take turns.
    pub fn allowance_packets(
        &mut self,
        now_ns: u64,
        channel: usize,
        mtu_bytes: u32,
        waiting: u32,
    ) -> u32 {
        let packet_bytes = u64::from(mtu_bytes) + DATA_OVERHEAD_BYTES as u64;
        self.channels[channel].paced = false;
        let state = &self.channels[channel];
        let mut packets = u64::from(u32::MAX);

        let window = self.controller.window_bytes();
        packets = packets.min(window.saturating_sub(self.in_flight_bytes) / packet_bytes);

        let min_rtt_ns = self.rtt.min_ns().unwrap_or(0);
        let on_the_way = if min_rtt_ns > SHORT_PATH_NS {
            let path_bytes = self.controller.path_bytes(min_rtt_ns).min(PATH_BYTES_MAX) * 2;
            charge(path_bytes / packet_bytes, path_bytes) / self.channels.len() as u64
        } else {
            0
        };
        let credit = state.credit.saturating_add(on_the_way);
        let held = state.ledger.in_flight_charge();
        let packet_charge = charge(1, packet_bytes);
        packets = packets.min(credit.saturating_sub(held) / packet_charge);
        let room = (window / packet_bytes).min(credit / packet_charge);
        if self.back_off > 0 {
            // Nothing is heard: the path is dark or the peer stands still. Some
            // packets, and the questions behind them, find out when that ends;
            // all of the window again and again would only be load.
            let probing = DARK_WINDOW_BYTES.saturating_sub(self.in_flight_bytes);
            packets = packets.min(probing / packet_bytes);
        }
        let is_cut = packets < u64::from(waiting);
        let bundle = u64::from(self.bundle_packets).min(room / 2).max(1);
        let whole = packets - packets % bundle;
        if state.ledger.in_flight_bytes() > 0 {
            packets = if is_cut { whole } else { packets };
        } else {
            // However small the peer's buffer: one packet at a time goes.
            packets = if is_cut && whole > 0 { whole } else { packets.max(1) };
        }
        if packets == 0 {
            self.window_limited = true;
            self.is_blocked = true;
            return 0;
        }
        if let Some(rate) = self.controller.rate_bits_per_s() {
            let allowed = self.pacer.allowance(now_ns, rate);
            if allowed == 0 {
                self.channels[channel].paced = true;
                return 0;
            }
            packets = packets.min((allowed / (packet_bytes + IP_UDP_BYTES)).max(1));
        }
        packets.min(u64::from(waiting)) as u32
    }

    /// When pacing allows more, if pacing held this channel back.
    pub fn pacing_timeout_ns(&self, channel: usize) -> Option<u64> {
        self.channels[channel].paced.then(|| self.pacer.ready_ns())
    }

    /// Counts a run that goes out now; returns its first sequence number.
    pub fn on_sent(
        &mut self,
        now_ns: u64,
        channel: usize,
        number: u64,
        packets: Range<u32>,
        bytes: u64,
    ) -> u64 {
        let count = u64::from(packets.end - packets.start);
        if let Some(rate) = self.controller.rate_bits_per_s() {
            self.pacer.on_sent(now_ns, bytes + count * IP_UDP_BYTES, rate);
        }
        if self.in_flight_bytes == 0 {
            // A pause is no delivery interval.
            self.delivered_ns = now_ns;
        }
        self.is_blocked = false;
        self.in_flight_bytes += bytes;
        self.channels[channel].ledger.push(Record {
            number,
            packets,
            psn_end: 0,
            bytes,
            charge: charge(count, bytes),
            sent_ns: now_ns,
            delivered_bytes: self.delivered_bytes,
            delivered_ns: self.delivered_ns,
        })
    }

    /// Takes in one channel's part of a report.
    pub fn on_report(&mut self, now_ns: u64, report: &ChannelReport) -> Option<Passed> {
        let channel = usize::from(report.channel);
        let state = self.channels.get_mut(channel)?;
        let sent_psn = state.ledger.next_psn();
        state.credit = u64::from(report.credit_bytes);
        // A report may name no number that was not sent: it is not ours then.
        let next_psn = psn::unwrap(report.next_psn, state.reported_psn);
        let flushed_psn = psn::unwrap(report.flushed_psn, state.reported_psn);
        if next_psn > sent_psn || flushed_psn > sent_psn {
            return None;
        }
        self.back_off = 0;
        let arrived = report.received_packets.saturating_sub(state.received_packets);
        state.received_packets = state.received_packets.max(report.received_packets);
        // Never more than was sent, whatever the peer says.
        self.arrived_packets += arrived.min(sent_psn);
        if next_psn > state.reported_psn {
            state.reported_psn = next_psn;
            if let Some(record) = state.ledger.find(next_psn - 1).cloned() {
                state.reported_sent_ns = record.sent_ns;
                let held_ns = u64::from(report.delay_ns);
                // A caller's clock that was read a moment ago may lie before the
                // sending by another thread: no sample then.
                if let Some(sample_ns) = now_ns.checked_sub(record.sent_ns + held_ns) {
                    self.rtt.on_sample(now_ns, sample_ns);
                }
            }
        }
        // In order, the last packet to come proves that those before it are
        // lost or here; otherwise only of those that were sent a window earlier.
        let state = &mut self.channels[channel];
        let has_duplicates = report.duplicate_packets > state.duplicate_packets;
        state.duplicate_packets = state.duplicate_packets.max(report.duplicate_packets);
        self.reordering.on_report(now_ns, report.reorder_packets, has_duplicates, &self.rtt);
        let window_ns = self.reordering.window_ns(&self.rtt);
        let state = &mut self.channels[channel];
        let overtaken_psn = match window_ns {
            0 => next_psn,
            _ => {
                let sent_ns = state.reported_sent_ns.saturating_sub(window_ns);
                state.ledger.psn_sent_by(sent_ns).map_or(0, |psn| psn.min(next_psn))
            }
        };
        // A flush names only what was sent a window before it.
        state.passed_psn = state.passed_psn.max(overtaken_psn).max(flushed_psn);
        Some(Passed { channel, psn: state.passed_psn })
    }

    /// Takes the next run that `passed` covers. Call until `None`, then
    /// [`Path::on_passed`] with the sum.
    pub fn pop_passed(&mut self, passed: Passed) -> Option<Record> {
        let record = self.channels[passed.channel].ledger.pop_passed(passed.psn)?;
        self.in_flight_bytes -= record.bytes;
        Some(record)
    }

    /// Tells the controller of runs that left the network; `last` is the newest.
    pub fn on_passed(&mut self, now_ns: u64, bytes: u64, last: &Record) {
        let packets = u64::from(last.packets.end - last.packets.start).max(1);
        let arrived = std::mem::take(&mut self.arrived_packets);
        self.delivered_bytes += arrived.saturating_mul(last.bytes / packets);
        self.controller.on_sample(&Sample {
            now_ns,
            passed_bytes: bytes,
            delivered_bytes: self.delivered_bytes,
            delivered_before_bytes: last.delivered_bytes,
            interval_ns: now_ns.saturating_sub(last.delivered_ns),
            min_rtt_ns: self.rtt.min_ns().unwrap_or(0),
            window_limited: std::mem::take(&mut self.window_limited),
        });
        self.delivered_ns = now_ns;
    }

    /// The retransmission timeout now, back-off included.
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
        for state in &mut self.channels {
            if let Some(record) = state.ledger.pop_expired(sent_before_ns) {
                self.in_flight_bytes -= record.bytes;
                return Some(record);
            }
        }
        None
    }

    /// Runs expired: wait twice as long for the next ones (RFC 6298, 5.5),
    /// until a report comes.
    pub fn on_expired(&mut self) {
        self.back_off = (self.back_off + 1).min(16);
    }

    /// Whether the window was full when it was last asked for.
    pub fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    /// Everything before `psn` on `channel` was handed to the datapath.
    pub fn on_handed(&mut self, channel: usize, psn: u64) {
        if let Some(state) = self.channels.get_mut(channel) {
            state.handed_psn = psn;
        }
    }

    /// Up to where a flush may say that everything was sent and would have come
    /// by now: the number after the last packet that was sent a reordering
    /// window ago.
    pub fn flush_psn(&self, now_ns: u64, channel: usize) -> u64 {
        let state = &self.channels[channel];
        let psn = match self.reordering.window_ns(&self.rtt) {
            0 => state.ledger.next_psn(),
            window_ns => {
                let sent_ns = now_ns.saturating_sub(window_ns);
                state.ledger.psn_sent_by(sent_ns).unwrap_or(state.passed_psn)
            }
        };
        psn.min(state.handed_psn.max(state.passed_psn))
    }
}
