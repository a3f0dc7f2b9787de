//! Window from measured delivery rate and round-trip time: the start-up and
//! the steady window of BBR (draft-ietf-ccwg-bbr 4.3.1, 4.6.4), without its
//! pacing, probing cycles and loss response.
//!
//! The window doubles per round until the delivery rate stops growing, then is
//! twice the largest recent delivery rate times the smallest RTT.

use super::{Controller, Sample};

/// Enough to fill segmentation offload from the first burst on.
const INITIAL_WINDOW_BYTES: u64 = 128 << 10;
/// Below this no path is worth shrinking to: the bytes fit in the caches, and
/// scheduling noise of a host exceeds the path's own delay. It is four turns of
/// the largest packets; with two, both ends wait for each other by turns (over
/// loopback 43 Gbit/s for 61 with packets of 8,192 bytes, 26 for 37 with 1,400).
/// At 4 MiB the second-level caches no longer hold what is on its way.
const MIN_WINDOW_BYTES: u64 = 2 << 20;
/// The same for one of many that share that core: a bundle of segmentation
/// offload, so that the cost of a packet does not grow.
const MIN_SHARE_BYTES: u64 = 64 << 10;
/// Rounds without 25 % growth after which the pipe is full (BBR 4.3.1.2).
const FULL_ROUNDS: u32 = 3;
/// Rounds a delivery rate is remembered for (BBR's `MaxBwFilterLen` is two
/// cycles of about 8 rounds).
const RATE_ROUNDS: u64 = 16;

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Probing {
    window_bytes: u64,
    window_min_bytes: u64,
    starting: bool,
    /// Largest delivery rate of the recent rounds, bytes per second, with the
    /// round in which it was seen.
    rate_max: (u64, u64),
    /// Rate that the next one must exceed by a quarter.
    full_rate: u64,
    full_rounds: u32,
    round: u64,
    /// Delivered total that ends the current round.
    round_end_bytes: u64,
}

impl Probing {
    /// Starts without knowledge of the path.
    pub fn new() -> Self {
        Self {
            window_bytes: INITIAL_WINDOW_BYTES,
            window_min_bytes: MIN_WINDOW_BYTES,
            starting: true,
            rate_max: (0, 0),
            full_rate: 0,
            full_rounds: 0,
            round: 0,
            round_end_bytes: 0,
        }
    }

    fn check_full(&mut self) {
        if self.rate_max.0 >= self.full_rate.saturating_add(self.full_rate / 4) {
            self.full_rate = self.rate_max.0;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.starting = self.full_rounds < FULL_ROUNDS;
    }
}

impl Controller for Probing {
    fn on_sent(&mut self, _now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {}

    fn on_report(&mut self, sample: &Sample) {
        let Some(rate) = sample.rate else { return };
        let round_ended = rate.prior_delivered_bytes >= self.round_end_bytes;
        if round_ended {
            self.round += 1;
            self.round_end_bytes = sample.delivered_bytes;
        }
        let forgotten = self.round > self.rate_max.1 + RATE_ROUNDS;
        if rate.rate >= self.rate_max.0 || (forgotten && sample.is_window_limited) {
            self.rate_max = (rate.rate, self.round);
        }
        if self.starting {
            if sample.is_window_limited {
                // Doubling per round, but never far beyond what was seen to
                // arrive: once the path is full this stops by itself, before
                // the rounds that confirm it have filled its queue.
                let seen = self.path_bytes(sample.min_rtt_ns).saturating_mul(5) / 2;
                let left = sample.newly_delivered_bytes + sample.newly_lost_bytes;
                let grown = self.window_bytes.saturating_add(left);
                self.window_bytes = self.window_bytes.max(grown.min(seen));
            }
            if round_ended && sample.is_window_limited {
                self.check_full();
            }
        }
        if !self.starting {
            let product = self.path_bytes(sample.min_rtt_ns);
            self.window_bytes = product.saturating_mul(2).max(self.window_min_bytes);
        }
    }

    fn on_rtt(&mut self, _now_ns: u64, _rtt_ns: u64) {}

    fn on_silence(&mut self, _now_ns: u64) {}

    fn set_shares(&mut self, shares: u32) {
        let share = MIN_WINDOW_BYTES / u64::from(shares.max(1));
        self.window_min_bytes = share.max(MIN_SHARE_BYTES);
    }

    fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    fn rate_bits_per_s(&self) -> Option<u64> {
        None
    }

    fn path_bytes(&self, min_rtt_ns: u64) -> u64 {
        (u128::from(self.rate_max.0) * u128::from(min_rtt_ns) / 1_000_000_000) as u64
    }
}

impl Default for Probing {
    fn default() -> Self {
        Self::new()
    }
}
