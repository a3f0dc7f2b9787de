//! How much a requester may send, and how fast: the congestion controller, the pacer, and what they learn
//! from acknowledgements.
//!
//! A reliable connection has no reports as SDR's queue pairs have: numbers come again when packets are
//! sent again, and a foreign peer says nothing but "all up to here". So what is known of the path comes
//! from packets that ask for an answer. Each of them leaves a *mark*; the newest mark that an answer covers
//! gives one sample. A number that was sent before gives no round trip, since the answer may be to either
//! (Karn's rule).
//!
//! Repairs of a shim below are packets on the path as the others: they are in flight until the packets
//! that they cover are answered, and count as delivered then.

use crate::config::Repair;
use crate::responder::Repairs;
use lacuna_path::IP_UDP_BYTES;
use lacuna_path::controller::{
    AnyController, Controller, Limits, RoundTrips, Sample, Shares, Signal, StartRate,
};
use lacuna_path::delivery::{Delivery, Stamp};
use lacuna_path::pacer::{Pacer, bytes_in};
use lacuna_path::rtt::RttEstimator;
use std::collections::VecDeque;

/// Marks that are kept: more packets that ask than any window holds would be asked in vain.
const MARKS_MAX: usize = 4096;

/// What hosts take beyond the path's round trip, for the cap on what is under way.
const HOST_NS: u64 = 2_000_000;

/// What a notification of congestion counts for: a packet.
const MARKED_BYTES: u64 = 1500;

/// A packet that asked for an answer.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// The number after it.
    psn_end: u64,
    sent_ns: u64,
    stamp: Stamp,
    /// It was sent before.
    is_again: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Flow {
    controller: AnyController,
    /// No more is under way than the path holds at its rate, whatever the controller allows (IRN's BDP-FC).
    is_capped: bool,
    pacer: Pacer,
    delivery: Delivery,
    rtt: RttEstimator,
    marks: VecDeque<Mark>,
    /// Repairs in flight: the number behind what they cover, and their bytes on the wire.
    repairs: VecDeque<(u64, u64)>,
    in_flight_bytes: u64,
    /// The pacer holds packets back.
    is_paced: bool,
    is_window_limited: bool,
    /// Bytes of packets that met congestion, not reported yet.
    marked_bytes: u64,
    /// Something was acknowledged.
    has_delivered: bool,
    /// Nothing that was sent came as long as packets could be marked: the path may drop such ones.
    marks_are_refused: bool,
}

impl Flow {
    pub(crate) fn new(controller: AnyController, repair: Repair) -> Self {
        Self {
            controller,
            is_capped: repair == Repair::SelectiveRepeat,
            pacer: Pacer::default(),
            delivery: Delivery::default(),
            rtt: RttEstimator::default(),
            marks: VecDeque::new(),
            repairs: VecDeque::new(),
            in_flight_bytes: 0,
            is_paced: false,
            is_window_limited: false,
            marked_bytes: 0,
            has_delivered: false,
            marks_are_refused: false,
        }
    }

    pub(crate) fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    pub(crate) fn controller(&self) -> &AnyController {
        &self.controller
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    pub(crate) fn start_at(&mut self, now_ns: u64, start: StartRate) {
        self.controller.on_signal(now_ns, Signal::Start(start));
    }

    pub(crate) fn guess_rtt(&mut self, rtt_ns: u64) {
        self.rtt.guess(rtt_ns);
    }

    /// Packets of `packet_bytes` that fit the window.
    pub(crate) fn window_packets(&self, packet_bytes: u64) -> u64 {
        self.limits().window_bytes / (packet_bytes + IP_UDP_BYTES)
    }

    fn limits(&self) -> Limits {
        let mut limits = self.controller.limits();
        if let (true, Some(rate), Some(rtt_ns)) =
            (self.is_capped, limits.rate_bits_per_s, self.rtt.min_ns())
        {
            let path_bytes = bytes_in(rtt_ns + rtt_ns / 4 + HOST_NS, rate);
            limits.window_bytes = limits.window_bytes.min(path_bytes);
        }
        limits
    }

    /// Packets of `packet_bytes` bytes of UDP payload that may leave now, of `waiting`.
    pub(crate) fn allowance(&mut self, now_ns: u64, packet_bytes: u64, waiting: u32) -> u32 {
        let limits = self.limits();
        let wire_bytes = packet_bytes + IP_UDP_BYTES;
        self.is_paced = false;
        let left = limits.window_bytes.saturating_sub(self.in_flight_bytes) / wire_bytes;
        let left = if self.in_flight_bytes == 0 { left.max(1) } else { left };
        if left == 0 {
            self.is_window_limited = true;
            self.pacer.on_other_limit();
            return 0;
        }
        let mut packets = left.min(waiting.into());
        if let Some(rate) = limits.rate_bits_per_s {
            let allowed = self.pacer.allowance(now_ns, rate, limits.burst_bytes);
            if allowed == 0 {
                self.is_paced = true;
                return 0;
            }
            packets = packets.min((allowed / wire_bytes).max(1));
        }
        packets as u32
    }

    /// When the pacer lets the next packet leave, if it holds one back.
    pub(crate) fn paced_until_ns(&self) -> Option<u64> {
        self.is_paced.then(|| self.pacer.ready_ns())
    }

    /// Counts packets of `bytes` bytes of UDP payload in all that leave now. `asked`: the number after the
    /// last one that asks for an answer, and whether it was sent before.
    pub(crate) fn on_sent(
        &mut self,
        now_ns: u64,
        packets: u64,
        bytes: u64,
        asked: Option<(u64, bool)>,
    ) {
        let wire_bytes = bytes + packets * IP_UDP_BYTES;
        self.controller.on_sent(now_ns, wire_bytes, self.in_flight_bytes);
        if let Some(rate) = self.controller.limits().rate_bits_per_s {
            let late_ns = self.pacer.on_sent(now_ns, wire_bytes, rate, 0);
            self.delivery.on_late(late_ns);
        }
        self.in_flight_bytes += wire_bytes;
        let stamp = self.delivery.on_sent(now_ns, wire_bytes, self.in_flight_bytes);
        if let Some((psn_end, is_again)) = asked
            && self.marks.len() < MARKS_MAX
        {
            self.marks.push_back(Mark { psn_end, sent_ns: now_ns, stamp, is_again });
        }
    }

    /// Counts packets that are not answered for, such as what was read: they are paced all the same.
    pub(crate) fn on_sent_unanswered(&mut self, now_ns: u64, packets: u64, bytes: u64) {
        if let Some(rate) = self.controller.limits().rate_bits_per_s {
            self.pacer.on_sent(now_ns, bytes + packets * IP_UDP_BYTES, rate, 0);
        }
    }

    /// Counts repairs that left.
    pub(crate) fn on_repairs(&mut self, now_ns: u64, repairs: &Repairs) {
        let Repairs { packets, bytes, psn_end } = *repairs;
        let Some(psn_end) = psn_end.filter(|_| self.in_flight_bytes > 0) else {
            return self.on_sent_unanswered(now_ns, packets, bytes);
        };
        self.on_sent(now_ns, packets, bytes, None);
        let wire_bytes = bytes + packets * IP_UDP_BYTES;
        let is_full = self.repairs.len() >= MARKS_MAX;
        match self.repairs.back_mut() {
            Some(last) if is_full => *last = (psn_end, last.1 + wire_bytes),
            _ => self.repairs.push_back((psn_end, wire_bytes)),
        }
    }

    /// Packets without answers that the pacer lets leave now, of `waiting`.
    pub(crate) fn allowance_unanswered(
        &mut self,
        now_ns: u64,
        packet_bytes: u64,
        waiting: u32,
    ) -> u32 {
        let limits = self.controller.limits();
        let Some(rate) = limits.rate_bits_per_s else { return waiting };
        let allowed = self.pacer.allowance(now_ns, rate, limits.burst_bytes);
        match allowed / (packet_bytes + IP_UDP_BYTES) {
            _ if allowed == 0 => 0,
            packets => packets.max(1).min(waiting.into()) as u32,
        }
    }

    /// When [`Flow::allowance_unanswered`] allows more.
    pub(crate) fn unanswered_until_ns(&self) -> u64 {
        self.pacer.ready_ns()
    }

    /// Everything before `psn` has come; `wire_bytes` have come that had not, of which `landed_bytes` were
    /// under way.
    pub(crate) fn on_acknowledged(
        &mut self,
        now_ns: u64,
        psn: u64,
        mut wire_bytes: u64,
        mut landed_bytes: u64,
    ) {
        while let Some((_, bytes)) = self.repairs.front().filter(|(psn_end, _)| *psn_end <= psn) {
            wire_bytes += bytes;
            landed_bytes += bytes;
            self.repairs.pop_front();
        }
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(landed_bytes);
        let mut newest = None;
        while self.marks.front().is_some_and(|mark| mark.psn_end <= psn) {
            newest = self.marks.pop_front();
        }
        self.report(now_ns, newest, wire_bytes, 0);
    }

    /// Packets are lost, and the others still under way (selective repeat).
    pub(crate) fn on_lost(&mut self, now_ns: u64, wire_bytes: u64) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(wire_bytes);
        self.report(now_ns, None, 0, wire_bytes);
    }

    /// Everything in flight is sent again; of that `lost_bytes` are taken for lost by the path.
    pub(crate) fn on_go_back(&mut self, now_ns: u64, lost_bytes: u64) {
        self.in_flight_bytes = 0;
        self.marks.clear();
        self.repairs.clear();
        self.report(now_ns, None, 0, lost_bytes);
    }

    /// Whether packets are sent as ones that routers may mark: if the controller listens to marks.
    pub(crate) fn takes_marks(&self) -> bool {
        !self.marks_are_refused && !matches!(self.controller, AnyController::Fixed(_))
    }

    /// The peer says that packets were marked. Notifications do not say how many; they are as few as one in
    /// 50 us, so each stands for little.
    pub(crate) fn on_marked(&mut self, now_ns: u64) {
        self.marked_bytes += MARKED_BYTES;
        self.report(now_ns, None, 0, 0);
    }

    /// Nothing came for a whole timeout. If nothing ever did, marks may be why (RFC 9000, 13.4.2).
    pub(crate) fn on_timeout(&mut self) {
        self.marks_are_refused |= !self.has_delivered;
    }

    /// Nothing is left to send.
    pub(crate) fn on_out_of_data(&mut self) {
        self.pacer.on_other_limit();
        self.is_paced = false;
        if self.in_flight_bytes < self.controller.limits().window_bytes {
            self.delivery.on_out_of_data(self.in_flight_bytes);
        }
    }

    fn report(&mut self, now_ns: u64, newest: Option<Mark>, delivered_bytes: u64, lost_bytes: u64) {
        let mut round_trips = None;
        if let Some(mark) = newest.filter(|mark| !mark.is_again) {
            let sample_ns = now_ns.saturating_sub(mark.sent_ns);
            self.rtt.on_sample(now_ns, sample_ns);
            round_trips = Some(RoundTrips::one(sample_ns));
        }
        if delivered_bytes > 0 {
            self.has_delivered = true;
            self.delivery.on_delivered(now_ns, delivered_bytes);
        }
        self.delivery.on_lost(lost_bytes);
        self.pacer.set_rtt(self.rtt.min_ns().unwrap_or(0));
        self.controller.on_signal(now_ns, Signal::Shares(Shares { host: 1, path: 1 }));
        let rate = newest.map(|mark| self.delivery.sample(mark.sent_ns, &mark.stamp));
        self.controller.on_report(&Sample {
            now_ns,
            arrived_ns: now_ns,
            sent_ns: newest.map_or(0, |mark| mark.sent_ns),
            newly_delivered_bytes: delivered_bytes,
            delivered_bytes: self.delivery.delivered_bytes(),
            newly_lost_bytes: lost_bytes,
            newly_marked_bytes: std::mem::take(&mut self.marked_bytes),
            rate,
            round_trips,
            endpoint_ns: 0,
            min_rtt_ns: self.rtt.min_ns().unwrap_or(0),
            smoothed_rtt_ns: self.rtt.smoothed_ns().unwrap_or(0),
            in_flight_bytes: self.in_flight_bytes,
            is_window_limited: std::mem::take(&mut self.is_window_limited),
        });
    }
}
