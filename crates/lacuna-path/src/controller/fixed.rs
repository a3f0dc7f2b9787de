//! A fixed rate, for a link that is the user's own: the pacer does all the work. Neither loss nor
//! marks nor delay change the rate, and only the receiver's credit bounds what is in flight.

use super::{Controller, Limits, SHORT_PATH_NS, Sample, Signal};
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

    fn on_signal(&mut self, _now_ns: u64, _signal: Signal) {}

    fn limits(&self) -> Limits {
        Limits::paced(u64::MAX, self.rate_bits_per_s)
    }

    fn path_bytes(&self, min_rtt_ns: u64) -> u64 {
        if min_rtt_ns > SHORT_PATH_NS { bytes_in(min_rtt_ns, self.rate_bits_per_s) } else { 0 }
    }
}
