//! How many packets may leave now: by the congestion window, the peer's credit and the pace.

use super::{IP_UDP_BYTES, Path};
use crate::controller::{Controller, Limits};
use crate::ledger::charge;
use crate::passage::DOUBTED_PACKETS;

/// More than any path holds (a second at 100 Tbit/s); keeps sums from overflowing.
const PATH_BYTES_MAX: u64 = 1 << 44;

/// What may be in flight while nothing is heard of the peer.
const DARK_BYTES: u64 = 64 << 10;

impl Path {
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
        let Limits { rate_bits_per_s, burst_bytes, .. } = self.limits;
        let mut packets = self.packets_that_fit(channel, packet_bytes, u64::from(waiting));
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
        packets.min(u64::from(waiting)) as u32
    }

    /// Of the `waiting` packets, how many congestion window, credit and doubts about the path leave
    /// room for.
    #[inline]
    fn packets_that_fit(&self, channel: usize, packet_bytes: u64, waiting: u64) -> u64 {
        let state = &self.channels[channel];
        let (wire_bytes, packet_charge) = (packet_bytes + IP_UDP_BYTES, charge(1, packet_bytes));
        let window_bytes = self.limits.window_bytes;
        let window_left = window_bytes.saturating_sub(self.in_flight_wire_bytes);
        let held = state.ledger.in_flight_charge();
        let credit_left = state.pool.room(state.credit, held, self.path_charge(packet_bytes));
        let doubt_left = self.doubt_left(packet_bytes);
        let all_fit = |left: u64, unit: u64| waiting * unit <= left;
        if all_fit(window_left, wire_bytes)
            && all_fit(credit_left, packet_charge)
            && all_fit(doubt_left, packet_bytes)
        {
            return waiting;
        }
        let packets = (window_left / wire_bytes)
            .min(credit_left / packet_charge)
            .min(doubt_left / packet_bytes);
        // The pacer sends no larger pieces. Waiting for room for a larger one would leave a
        // small congestion window half empty.
        let paced = self.limits.burst_bytes / wire_bytes;
        let room = (window_bytes / wire_bytes).min((held + credit_left) / packet_charge);
        let bundle = u64::from(self.bundle_packets).min(room / 2).min(paced).max(1);
        let mut whole = packets - packets % bundle;
        if bundle < u64::from(self.bundle_packets) {
            // One bundle at a time: the datapath would put several into one piece, and the rest
            // into another, shorter than any of them.
            whole = whole.min(bundle);
        }
        match state.ledger.in_flight_bytes() > 0 || whole > 0 {
            true => whole,
            // However small the peer's buffer: one packet at a time goes.
            false => packets.max(1),
        }
    }

    /// Charge of what the path itself holds for one channel, on top of the peer's credit: twice its
    /// rate times its smallest round trip.
    #[inline]
    fn path_charge(&self, packet_bytes: u64) -> u64 {
        let min_rtt_ns = self.rtt.min_ns().unwrap_or(0);
        match self.controller.path_bytes(min_rtt_ns).min(PATH_BYTES_MAX) * 2 {
            0 => 0,
            bytes => charge(bytes / packet_bytes, bytes) / self.channels.len() as u64,
        }
    }

    /// Bytes that may be sent into a path of which it is not known whether anything passes.
    #[inline]
    fn doubt_left(&self, packet_bytes: u64) -> u64 {
        match (self.is_dark(), self.passage.is_doubted()) {
            // Nothing is heard: the path is dark or the peer stands still. Some packets, and the
            // questions behind them, find out when that ends. Sending all of the congestion window
            // again and again would only be load.
            (true, _) => DARK_BYTES.saturating_sub(self.in_flight_bytes),
            // No full packet seems to pass: the same, and less of it.
            (_, true) => (DOUBTED_PACKETS * packet_bytes).saturating_sub(self.in_flight_bytes),
            (false, false) => u64::MAX,
        }
    }

    /// When pacing allows more, if pacing held this channel back.
    #[inline]
    pub fn pacing_timeout_ns(&self, channel: usize) -> Option<u64> {
        self.channels[channel].paced.then(|| self.pacer.ready_ns())
    }
}
