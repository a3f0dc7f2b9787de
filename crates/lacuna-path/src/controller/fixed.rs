//! A given rate, for a link that is the user's own: the pacer does it all.
//! Neither loss nor marks nor delay change it, and the only window is the
//! receiver's.

use super::{Controller, Sample, Shares, StartRate};
use crate::pacer::bytes_in;

/// Paces at a configured rate.
#[derive(Debug, Clone)]
pub struct Fixed {
    rate_bits_per_s: u64,
}

impl Fixed {
    /// Paces at `rate_bits_per_s`.
    pub fn new(rate_bits_per_s: u64) -> Self {
        Self { rate_bits_per_s: rate_bits_per_s.max(1) }
    }
}

impl Controller for Fixed {
    fn on_sent(&mut self, _now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {}

    fn on_report(&mut self, _sample: &Sample) {}

    fn on_rtt(&mut self, _now_ns: u64, _rtt_ns: u64) {}

    fn start_at(&mut self, _start: StartRate) {}

    fn on_silence(&mut self, _now_ns: u64) {}

    fn set_shares(&mut self, _shares: Shares) {}

    fn window_bytes(&self) -> u64 {
        u64::MAX
    }

    fn rate_bits_per_s(&self) -> Option<u64> {
        Some(self.rate_bits_per_s)
    }

    fn path_bytes(&self, min_rtt_ns: u64) -> u64 {
        bytes_in(min_rtt_ns, self.rate_bits_per_s)
    }
}
