//! CUBIC (RFC 9438) with HyStart++ (RFC 9406): a window that grows by a cubic function of the time
//! since the last loss, and leaves slow start when round trips grow. For comparison, and for paths
//! shared with TCP. It takes every loss for congestion, so it is slow on paths that lose packets
//! for other reasons.
//!
//! Unlike TCP's it paces: at twice the window per round trip in slow start, at 1.2 times in
//! congestion avoidance (RFC 9002, section 7.7), because one report of 128 KiB would otherwise open
//! the window for one burst of as many bytes.
//!
//! Bytes are wire bytes. Growth is computed with integers.

use super::{Controller, Limits, SHORT_PATH_NS, Sample, Setup, Signal, StartRate};

/// As in [`super::Bbr`]: enough to fill segmentation offload.
const INITIAL_WINDOW_BYTES: u64 = 128 << 10;
/// Smallest window, packets.
const MIN_PACKETS: u64 = 2;
/// `beta_cubic`, per cent (RFC 9438, 4.6).
const BETA_PERCENT: u64 = 70;
/// `C` is 0.4: its inverse times 10^9, for times in milliseconds (RFC 9438, 4.1).
const MS3_PER_C: u128 = 2_500_000_000;
/// `alpha_cubic` = 3 (1 - beta) / (1 + beta), in thousandths (RFC 9438, 4.3).
const ALPHA_PERMILLE: u64 = 529;
/// No window is larger than a second at 100 Tbit/s.
const WINDOW_BYTES_MAX: u64 = 1 << 44;

/// RFC 9406, 4.2: bounds of the growth of a round trip that ends slow start,
const RTT_THRESH_NS: (u64, u64) = (4_000_000, 16_000_000);
/// what part of the round trip it is,
const MIN_RTT_DIVISOR: u64 = 8;
/// samples of a round that it needs,
const RTT_SAMPLES: u32 = 8;
/// by how much growth is slower in conservative slow start,
const CSS_GROWTH_DIVISOR: u64 = 4;
/// and the rounds that this lasts.
const CSS_ROUNDS: u32 = 5;

/// CUBIC with pacing.
#[derive(Debug, Clone)]
pub struct Cubic {
    packet_bytes: u64,
    window_bytes: u64,
    /// Below this window, slow start.
    threshold_bytes: u64,
    /// Window before the last reduction.
    max_bytes: u64,
    /// Congestion avoidance since the last reduction.
    epoch: Option<Epoch>,
    hystart: HyStart,
    /// The next reduction answers to losses of packets sent after this total was delivered: one
    /// reduction per round trip.
    recovers_at_bytes: u64,
    min_rtt_ns: u64,
    smoothed_rtt_ns: u64,
    has_sent: bool,
}

/// What RFC 9438 calls an epoch.
#[derive(Debug, Clone, Copy)]
struct Epoch {
    began_ns: u64,
    /// `K`: time until the window is as large as before the reduction.
    k_ms: u64,
    /// `W_est`: the window that Reno would have.
    reno_bytes: u64,
}

/// RFC 9406, 4.2.
#[derive(Debug, Clone, Default)]
struct HyStart {
    round_end_bytes: u64,
    last_rtt_ns: Option<u64>,
    rtt_ns: Option<u64>,
    samples: u32,
    /// In conservative slow start: the round trip that began it, and rounds left.
    css: Option<(u64, u32)>,
}

impl Cubic {
    /// A controller that knows nothing of the path.
    pub fn new(setup: Setup) -> Self {
        Self {
            packet_bytes: setup.packet_bytes,
            window_bytes: INITIAL_WINDOW_BYTES.max(MIN_PACKETS * setup.packet_bytes),
            threshold_bytes: u64::MAX,
            max_bytes: 0,
            epoch: None,
            hystart: HyStart::default(),
            recovers_at_bytes: 0,
            min_rtt_ns: 0,
            smoothed_rtt_ns: 0,
            has_sent: false,
        }
    }

    fn is_slow_start(&self) -> bool {
        self.window_bytes < self.threshold_bytes
    }

    fn min_window_bytes(&self) -> u64 {
        MIN_PACKETS * self.packet_bytes
    }

    /// RFC 9438, 4.6 and 4.7.
    fn reduce(&mut self, delivered_bytes: u64) {
        let window = self.window_bytes;
        // Fast convergence: leave more to others if the window did not reach its last maximum
        // again.
        self.max_bytes = match window < self.max_bytes {
            true => window / 200 * (100 + BETA_PERCENT),
            false => window,
        };
        self.window_bytes = (window / 100 * BETA_PERCENT).max(self.min_window_bytes());
        self.threshold_bytes = self.window_bytes;
        self.epoch = None;
        self.recovers_at_bytes = delivered_bytes.saturating_add(1);
    }

    /// RFC 9438, 4.2 to 4.5.
    fn avoid_congestion(&mut self, sample: &Sample) {
        let packet = u128::from(self.packet_bytes);
        let window = self.window_bytes;
        let max_bytes = self.max_bytes;
        let epoch = self.epoch.get_or_insert_with(|| {
            let missing = u128::from(max_bytes.saturating_sub(window));
            let k_ms = cube_root(missing * MS3_PER_C / packet);
            Epoch { began_ns: sample.now_ns, k_ms, reno_bytes: window }
        });
        let origin_bytes = u128::from(max_bytes.max(window));
        let at_ns = sample.now_ns.saturating_sub(epoch.began_ns) + sample.smoothed_rtt_ns;
        let at_ms = u128::from(at_ns / 1_000_000);
        let from_k = at_ms.abs_diff(u128::from(epoch.k_ms)).min(1 << 30);
        let growth = from_k.pow(3) * packet / MS3_PER_C;
        let cubic = match at_ms < u128::from(epoch.k_ms) {
            true => origin_bytes.saturating_sub(growth),
            false => origin_bytes + growth,
        };
        let acked = u128::from(sample.newly_delivered_bytes);
        let alpha = if epoch.reno_bytes >= max_bytes { 1000 } else { ALPHA_PERMILLE };
        let reno = u128::from(alpha) * acked * packet / (1000 * u128::from(window.max(1)));
        epoch.reno_bytes = epoch.reno_bytes.saturating_add(clamp(reno)).min(WINDOW_BYTES_MAX);
        // Towards the target within a round trip, by at most half (4.2).
        let target = clamp(cubic.clamp(u128::from(window), u128::from(window) * 3 / 2));
        let step = u128::from(target - window) * acked / u128::from(window.max(1));
        self.window_bytes = (window + clamp(step)).max(epoch.reno_bytes);
    }

    fn slow_start(&mut self, sample: &Sample) {
        let divisor = if self.hystart.css.is_some() { CSS_GROWTH_DIVISOR } else { 1 };
        self.window_bytes += sample.newly_delivered_bytes / divisor;
        if self.hystart.on_report(sample) {
            self.threshold_bytes = self.window_bytes;
        }
    }
}

impl Cubic {
    fn on_round_trip(&mut self, rtt_ns: u64) {
        if self.min_rtt_ns == 0 || rtt_ns < self.min_rtt_ns {
            self.min_rtt_ns = rtt_ns;
        }
        if self.smoothed_rtt_ns == 0 {
            self.smoothed_rtt_ns = rtt_ns;
        }
    }

    /// Jumps as RFC 9959 says for a window: to half of what is known. Slow start may end there
    /// without a loss.
    fn start_at(&mut self, start: StartRate) {
        if !self.has_sent && self.min_rtt_ns > 0 {
            let known = crate::pacer::bytes_in(self.min_rtt_ns, start.rate_bits_per_s);
            self.window_bytes = self.window_bytes.max((known / 2).min(WINDOW_BYTES_MAX));
        }
    }

    /// RFC 9438, 4.8. The path itself sends little until something is heard.
    fn on_silence(&mut self) {
        self.threshold_bytes =
            (self.window_bytes / 100 * BETA_PERCENT).max(self.min_window_bytes());
        self.max_bytes = self.max_bytes.max(self.window_bytes);
        self.window_bytes = self.min_window_bytes();
        self.epoch = None;
    }

    /// Pacing rate, if the path is not short.
    fn rate_bits_per_s(&self) -> Option<u64> {
        if self.smoothed_rtt_ns == 0 || self.min_rtt_ns < SHORT_PATH_NS {
            return None;
        }
        let percent = if self.is_slow_start() { 200 } else { 120 };
        let per_s =
            u128::from(self.window_bytes) * 8_000_000_000 / u128::from(self.smoothed_rtt_ns);
        Some(clamp(per_s * percent / 100).max(1))
    }
}

impl HyStart {
    /// Returns whether slow start is over.
    fn on_report(&mut self, sample: &Sample) -> bool {
        let Some(rate) = &sample.rate else { return false };
        let mut is_over = false;
        if rate.prior_delivered_bytes >= self.round_end_bytes {
            self.round_end_bytes = sample.delivered_bytes;
            self.last_rtt_ns = self.rtt_ns.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.css {
                *rounds = rounds.saturating_sub(1);
                is_over = *rounds == 0;
            }
        }
        let Some(rtt_ns) = sample.rtt_ns() else { return is_over };
        let rtt_ns = self.rtt_ns.map_or(rtt_ns, |least| least.min(rtt_ns));
        self.rtt_ns = Some(rtt_ns);
        self.samples += 1;
        if self.samples < RTT_SAMPLES {
            return is_over;
        }
        match (self.css, self.last_rtt_ns) {
            // The growth was no queue: back to slow start.
            (Some((baseline_ns, _)), _) if rtt_ns < baseline_ns => self.css = None,
            (None, Some(last_ns)) => {
                let thresh = (last_ns / MIN_RTT_DIVISOR).clamp(RTT_THRESH_NS.0, RTT_THRESH_NS.1);
                if rtt_ns >= last_ns + thresh {
                    self.css = Some((rtt_ns, CSS_ROUNDS));
                }
            }
            _ => {}
        }
        is_over
    }
}

impl Controller for Cubic {
    fn on_sent(&mut self, now_ns: u64, _bytes: u64, in_flight_bytes: u64) {
        self.has_sent = true;
        if in_flight_bytes == 0
            && let Some(epoch) = &mut self.epoch
        {
            // The window does not grow during a pause (RFC 9438, 5.8): the epoch's time goes on
            // from here.
            epoch.began_ns = epoch.began_ns.max(now_ns.saturating_sub(epoch.k_ms * 1_000_000));
        }
    }

    fn on_report(&mut self, sample: &Sample) {
        self.min_rtt_ns = sample.min_rtt_ns;
        self.smoothed_rtt_ns = sample.smoothed_rtt_ns;
        let is_lost = sample.newly_lost_bytes > 0 || sample.newly_marked_bytes > 0;
        let prior_bytes = sample.rate.map_or(sample.delivered_bytes, |r| r.prior_delivered_bytes);
        if is_lost && prior_bytes >= self.recovers_at_bytes {
            self.reduce(sample.delivered_bytes);
        } else if sample.is_window_limited && sample.newly_delivered_bytes > 0 {
            if self.is_slow_start() {
                self.slow_start(sample);
            } else {
                self.avoid_congestion(sample);
            }
        }
        self.window_bytes = self.window_bytes.clamp(self.min_window_bytes(), WINDOW_BYTES_MAX);
    }

    fn on_signal(&mut self, _now_ns: u64, signal: Signal) {
        match signal {
            Signal::RoundTrips(round_trips) => self.on_round_trip(round_trips.newest_ns),
            Signal::Start(start) => self.start_at(start),
            Signal::Silence => self.on_silence(),
            Signal::Shares(_) => {}
        }
    }

    fn limits(&self) -> Limits {
        match self.rate_bits_per_s() {
            Some(rate_bits_per_s) => Limits::paced(self.window_bytes, rate_bits_per_s),
            None => Limits::unpaced(self.window_bytes),
        }
    }

    fn path_bytes(&self, min_rtt_ns: u64) -> u64 {
        if min_rtt_ns > SHORT_PATH_NS { self.window_bytes } else { 0 }
    }
}

fn clamp(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The largest number whose cube is not above `value`.
fn cube_root(value: u128) -> u64 {
    let (mut low, mut high) = (0u64, 1 << 42);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if u128::from(middle).pow(3) <= value {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_exact() {
        for (value, root) in
            [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (10u128.pow(30), 10u64.pow(10))]
        {
            assert_eq!(cube_root(value), root, "{value}");
        }
    }

    #[test]
    fn the_window_returns_to_where_it_was_after_k() {
        let setup = Setup { packet_bytes: 1500, seed: 0 };
        let mut cubic = Cubic::new(setup);
        let before = 1500 * 1000;
        cubic.window_bytes = before;
        cubic.reduce(0);
        assert_eq!(cubic.window_bytes, before / 10 * 7);
        // K = cbrt(300 / 0.4) = 9.09 s (RFC 9438, equation 2).
        let mut at_ns = 0;
        while at_ns < 9_090_000_000 {
            at_ns += 10_000_000;
            cubic.avoid_congestion(&Sample {
                now_ns: at_ns,
                newly_delivered_bytes: cubic.window_bytes / 10,
                smoothed_rtt_ns: 100_000_000,
                ..Sample::default()
            });
        }
        assert!(cubic.window_bytes.abs_diff(before) < before / 50, "{}", cubic.window_bytes);
    }
}
