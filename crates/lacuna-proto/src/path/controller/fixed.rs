//! A given rate, for a link that is the user's own: the pacer does it all.

use super::Sample;
use crate::path::pacer::bytes_in;

/// Paces at a configured rate; no window beside the receiver's.
#[derive(Debug, Clone)]
pub struct Fixed {
    rate_bits_per_s: u64,
}

impl Fixed {
    /// Paces at `rate_bits_per_s`.
    pub fn new(rate_bits_per_s: u64) -> Self {
        Self { rate_bits_per_s: rate_bits_per_s.max(1) }
    }

    pub(super) fn on_sample(&mut self, _sample: &Sample) {}

    pub(super) fn window_bytes(&self) -> u64 {
        u64::MAX
    }

    pub(super) fn rate_bits_per_s(&self) -> Option<u64> {
        Some(self.rate_bits_per_s)
    }

    pub(super) fn path_bytes(&self, min_rtt_ns: u64) -> u64 {
        bytes_in(min_rtt_ns, self.rate_bits_per_s)
    }
}
