//! How much may be on the way to one peer, and how fast: a congestion controller and a pacer, fed by answers.
//!
//! For protocols whose peers answer for what came, such as reliable connections and datagrams. The caller
//! counts what it sends, keeps a [`Sent`] beside whatever it may be answered by, and gives back the newest one that
//! an answer covers. What was sent before gives no round trip, since the answer may be to either (Karn's rule).
//!
//! All bytes are those on the wire, headers included.

use crate::controller::{
    AnyController, Controller, Limits, RoundTrips, Sample, Shares, Signal, StartRate,
};
use crate::delivery::{Delivery, Stamp};
use crate::pacer::{Pacer, bytes_in};
use crate::rtt::RttEstimator;

/// What hosts take beyond the path's round trip, for the cap on what is under way.
const HOST_NS: u64 = 2_000_000;

/// What was known when something was sent.
#[derive(Debug, Clone, Copy)]
pub struct Sent {
    /// When.
    pub sent_ns: u64,
    /// How much had come until then.
    pub stamp: Stamp,
    /// It was sent before.
    pub is_again: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Flow {
    controller: AnyController,
    /// No more is under way than the path holds at its rate, whatever the controller allows (IRN's BDP-FC).
    is_capped: bool,
    pacer: Pacer,
    delivery: Delivery,
    rtt: RttEstimator,
    in_flight_bytes: u64,
    /// The pacer holds packets back.
    is_paced: bool,
    is_window_limited: bool,
    /// Bytes of packets that met congestion, not reported yet.
    marked_bytes: u64,
}

impl Flow {
    /// Nothing is on the way. `is_capped`: never more than the path holds, once its round trip is known.
    #[must_use]
    pub fn new(controller: AnyController, is_capped: bool) -> Self {
        Self {
            controller,
            is_capped,
            pacer: Pacer::default(),
            delivery: Delivery::default(),
            rtt: RttEstimator::default(),
            in_flight_bytes: 0,
            is_paced: false,
            is_window_limited: false,
            marked_bytes: 0,
        }
    }

    /// Round trips, as far as they were measured or guessed.
    #[must_use]
    pub fn rtt(&self) -> &RttEstimator {
        &self.rtt
    }

    /// The controller.
    #[must_use]
    pub fn controller(&self) -> &AnyController {
        &self.controller
    }

    /// Bytes on the way.
    #[must_use]
    pub fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// Where a controller that finds the rate begins.
    pub fn start_at(&mut self, now_ns: u64, start: StartRate) {
        self.controller.on_signal(now_ns, Signal::Start(start));
    }

    /// The round trip, if it is known from elsewhere.
    pub fn guess_rtt(&mut self, rtt_ns: u64) {
        self.rtt.guess(rtt_ns);
    }

    /// What the controller allows now.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let mut limits = self.controller.limits();
        if let (true, Some(rate), Some(rtt_ns)) =
            (self.is_capped, limits.rate_bits_per_s, self.rtt.min_ns())
        {
            let path_bytes = bytes_in(rtt_ns + rtt_ns / 4 + HOST_NS, rate);
            limits.window_bytes = limits.window_bytes.min(path_bytes);
        }
        limits
    }

    /// Packets of `wire_bytes` that may leave now, of `waiting`.
    pub fn allowance(&mut self, now_ns: u64, wire_bytes: u64, waiting: u32) -> u32 {
        let limits = self.limits();
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
    #[must_use]
    pub fn paced_until_ns(&self) -> Option<u64> {
        self.is_paced.then(|| self.pacer.ready_ns())
    }

    /// Counts what leaves now and will be answered for. `is_again`: it was sent before.
    pub fn on_sent(&mut self, now_ns: u64, wire_bytes: u64, is_again: bool) -> Sent {
        self.controller.on_sent(now_ns, wire_bytes, self.in_flight_bytes);
        if let Some(rate) = self.controller.limits().rate_bits_per_s {
            let late_ns = self.pacer.on_sent(now_ns, wire_bytes, rate, 0);
            self.delivery.on_late(late_ns);
        }
        self.in_flight_bytes += wire_bytes;
        let stamp = self.delivery.on_sent(now_ns, wire_bytes, self.in_flight_bytes);
        Sent { sent_ns: now_ns, stamp, is_again }
    }

    /// Packets without answers that the pacer lets leave now, of `waiting`.
    pub fn allowance_unanswered(&mut self, now_ns: u64, wire_bytes: u64, waiting: u32) -> u32 {
        let limits = self.controller.limits();
        let Some(rate) = limits.rate_bits_per_s else { return waiting };
        let allowed = self.pacer.allowance(now_ns, rate, limits.burst_bytes);
        match allowed / wire_bytes {
            _ if allowed == 0 => 0,
            packets => packets.max(1).min(waiting.into()) as u32,
        }
    }

    /// When [`Flow::allowance_unanswered`] allows more.
    #[must_use]
    pub fn unanswered_until_ns(&self) -> u64 {
        self.pacer.ready_ns()
    }

    /// Counts what is not answered for, such as what was read: it is paced all the same.
    pub fn on_sent_unanswered(&mut self, now_ns: u64, wire_bytes: u64) {
        if let Some(rate) = self.controller.limits().rate_bits_per_s {
            self.pacer.on_sent(now_ns, wire_bytes, rate, 0);
        }
    }

    /// So many bytes are no longer on the way: they came, or are taken for lost.
    pub fn on_landed(&mut self, wire_bytes: u64) {
        self.in_flight_bytes = self.in_flight_bytes.saturating_sub(wire_bytes);
    }

    /// Everything on the way is given up.
    pub fn on_given_up(&mut self) {
        self.in_flight_bytes = 0;
    }

    /// Bytes met congestion; they are reported with the next answer.
    pub fn on_marked(&mut self, wire_bytes: u64) {
        self.marked_bytes += wire_bytes;
    }

    /// Nothing is left to send.
    pub fn on_out_of_data(&mut self) {
        self.pacer.on_other_limit();
        self.is_paced = false;
        if self.in_flight_bytes < self.controller.limits().window_bytes {
            self.delivery.on_out_of_data(self.in_flight_bytes);
        }
    }

    /// An answer came. `newest` is of the newest thing that it covers, for which it waited, `delivered_bytes` came
    /// that had not, and `lost_bytes` are taken for lost.
    pub fn on_answer(
        &mut self,
        now_ns: u64,
        newest: Option<Sent>,
        waited_ns: u64,
        delivered_bytes: u64,
        lost_bytes: u64,
    ) {
        let mut round_trips = None;
        if let Some(sent) = newest.filter(|sent| !sent.is_again) {
            let sample_ns = now_ns.saturating_sub(sent.sent_ns + waited_ns);
            self.rtt.on_sample(now_ns, sample_ns);
            round_trips = Some(RoundTrips::one(sample_ns));
        }
        if delivered_bytes > 0 {
            self.delivery.on_delivered(now_ns, delivered_bytes);
        }
        self.delivery.on_lost(lost_bytes);
        self.pacer.set_rtt(self.rtt.min_ns().unwrap_or(0));
        self.controller.on_signal(now_ns, Signal::Shares(Shares { host: 1, path: 1 }));
        let rate = newest.map(|sent| self.delivery.sample(sent.sent_ns, &sent.stamp));
        self.controller.on_report(&Sample {
            now_ns,
            arrived_ns: now_ns,
            sent_ns: newest.map_or(0, |sent| sent.sent_ns),
            newly_delivered_bytes: delivered_bytes,
            delivered_bytes: self.delivery.delivered_bytes(),
            newly_lost_bytes: lost_bytes,
            newly_marked_bytes: std::mem::take(&mut self.marked_bytes),
            rate,
            round_trips,
            endpoint_ns: waited_ns,
            min_rtt_ns: self.rtt.min_ns().unwrap_or(0),
            smoothed_rtt_ns: self.rtt.smoothed_ns().unwrap_or(0),
            in_flight_bytes: self.in_flight_bytes,
            is_window_limited: std::mem::take(&mut self.is_window_limited),
        });
    }
}
