//! Inputs of a congestion controller: a sample for each report, and other signals.

pub use crate::delivery::RateSample;

/// Round-trip times that were measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundTrips {
    /// The newest.
    pub newest_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Number of round trips.
    pub count: u32,
}

impl RoundTrips {
    /// A single round trip.
    pub fn one(rtt_ns: u64) -> Self {
        Self { newest_ns: rtt_ns, min_ns: rtt_ns, max_ns: rtt_ns, count: 1 }
    }

    /// Adds a newer round trip.
    pub fn add(&mut self, rtt_ns: u64) {
        self.newest_ns = rtt_ns;
        self.min_ns = self.min_ns.min(rtt_ns);
        self.max_ns = self.max_ns.max(rtt_ns);
        self.count += 1;
    }
}

/// The sums of a report.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// When the report came.
    pub now_ns: u64,
    /// When the newest reported packet arrived, plus the time that the report took back.
    pub arrived_ns: u64,
    /// When the newest reported run was sent.
    pub sent_ns: u64,
    /// Bytes delivered with this report.
    pub newly_delivered_bytes: u64,
    /// Bytes delivered in all.
    pub delivered_bytes: u64,
    /// Bytes lost, by this report.
    pub newly_lost_bytes: u64,
    /// Of the bytes delivered with this report, those with a congestion mark.
    pub newly_marked_bytes: u64,
    /// Delivery-rate sample of the newest reported run.
    pub rate: Option<RateSample>,
    /// Round-trip times of the newest reported packets, one per channel, without the time that the
    /// peer held them.
    pub round_trips: Option<RoundTrips>,
    /// How long the peer held the newest packet: from its arrival at the host to the report. 0
    /// without a round-trip time.
    pub endpoint_ns: u64,
    /// Smallest round-trip time of the last ten seconds; 0 before the first.
    pub min_rtt_ns: u64,
    /// Smoothed round-trip time; 0 before the first.
    pub smoothed_rtt_ns: u64,
    /// Bytes in flight now.
    pub in_flight_bytes: u64,
    /// Whether the congestion window, and not the application, held the sender back since the last
    /// report.
    pub is_window_limited: bool,
}

impl Sample {
    /// Round-trip time of the newest reported packet.
    #[inline]
    pub fn rtt_ns(&self) -> Option<u64> {
        self.round_trips.map(|round_trips| round_trips.newest_ns)
    }
}

/// Inputs of a controller besides reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Round-trip times not from a report, as before the first byte.
    RoundTrips(RoundTrips),
    /// A known rate to start at. It comes after the first round-trip time and before anything is
    /// sent, and is ignored later.
    Start(StartRate),
    /// Nothing was heard for a whole timeout: what was in flight is gone. The path itself decides
    /// how little is sent meanwhile.
    Silence,
    /// How many queue pairs share host and path; with each report, before its sample.
    Shares(Shares),
}

/// A rate known before the first packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartRate {
    /// Wire bits per second.
    pub rate_bits_per_s: u64,
}

/// Queue pairs of this owner that have anything in flight, this one among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Those that send to any peer. The smallest window on a short path is divided among them.
    pub host: u32,
    /// Those that send to the same peer.
    pub path: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_keep_their_spread_and_the_newest() {
        let mut round_trips = RoundTrips::one(30);
        round_trips.add(10);
        round_trips.add(20);
        let expected = RoundTrips { newest_ns: 20, min_ns: 10, max_ns: 30, count: 3 };
        assert_eq!(round_trips, expected);
    }
}
