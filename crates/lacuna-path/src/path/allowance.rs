//! The allowance: how many packets the congestion window, the peer's credit and the pacer allow now.

use super::{IP_UDP_BYTES, Path};
use crate::black_hole::SUSPECTED_PACKETS;
use crate::controller::{Controller, Limits};
use crate::ledger::charge;

/// More than any path holds (a second at 100 Tbit/s); keeps sums from overflowing.
const PATH_BYTES_MAX: u64 = 1 << 44;

/// Most bytes in flight on a dark path. A judgement.
const DARK_BYTES: u64 = 64 << 10;

impl Path {
    /// Number of the `waiting` packets, with `packet_bytes` of UDP payload each, that may be sent
    /// on `channel` now.
    ///
    /// If congestion window and credit do not allow all packets, only whole bundles are sent while
    /// others are in flight: more room follows soon, and a system call for one packet costs as much
    /// as for a bundle (RFC 9293, 3.8.6.2.1, "silly window syndrome"). If the room is less than two
    /// bundles, halves of it are sent, so that one half can be in flight while the other is reported.
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

    /// Number of the `waiting` packets that fit congestion window, credit, and the limits of a path
    /// in doubt.
    #[inline]
    fn packets_that_fit(&self, channel: usize, packet_bytes: u64, waiting: u64) -> u64 {
        let state = &self.channels[channel];
        let (wire_bytes, packet_charge) = (packet_bytes + IP_UDP_BYTES, charge(1, packet_bytes));
        let window_bytes = self.limits.window_bytes;
        let window_left = window_bytes.saturating_sub(self.in_flight_wire_bytes);
        let held = state.ledger.in_flight_charge();
        let credit_left =
            state.shared_credit.room(state.credit, held, self.path_charge(packet_bytes));
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
        // The pacer sends no larger bursts. Waiting for room for a larger one would leave a small
        // congestion window half empty.
        let paced = self.limits.burst_bytes / wire_bytes;
        let room = (window_bytes / wire_bytes).min((held + credit_left) / packet_charge);
        let bundle = u64::from(self.bundle_packets).min(room / 2).min(paced).max(1);
        let mut whole = packets - packets % bundle;
        if bundle < u64::from(self.bundle_packets) {
            // One bundle at a time: the datapath would put several into one call, and the rest into
            // another, shorter than any of them.
            whole = whole.min(bundle);
        }
        match state.ledger.in_flight_bytes() > 0 || whole > 0 {
            true => whole,
            // One packet at a time is allowed, however small the peer's buffer is.
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

    /// Bytes that may be sent during an outage, or while a black hole is suspected.
    #[inline]
    fn doubt_left(&self, packet_bytes: u64) -> u64 {
        match (self.is_dark(), self.black_hole.is_suspected()) {
            // The path has an outage, or the peer's host is stopped. A few packets and the flushes
            // after them detect the end; the whole congestion window would only be load.
            (true, _) => DARK_BYTES.saturating_sub(self.in_flight_bytes),
            // A black hole is suspected: a few full packets confirm or refute it.
            (_, true) => (SUSPECTED_PACKETS * packet_bytes).saturating_sub(self.in_flight_bytes),
            (false, false) => u64::MAX,
        }
    }

    /// When pacing allows more, if pacing held this channel back.
    #[inline]
    pub fn pacing_timeout_ns(&self, channel: usize) -> Option<u64> {
        self.channels[channel].paced.then(|| self.pacer.ready_ns())
    }
}
