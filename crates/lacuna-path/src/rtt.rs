//! Round-trip time: the smoothed value and its variance (RFC 6298, section 2), and the smallest
//! sample of the last ten seconds.
//!
//! Retransmission timeouts follow the smoothed value. The smallest sample is the round-trip time
//! without queues.

/// Window of the minimum, as in BBR (draft-ietf-ccwg-bbr, `MinRTTFilterLen`).
const MIN_LASTS_NS: u64 = 10_000_000_000;

/// Samples are capped at a minute: no path takes longer, and sums of them do not overflow.
const SAMPLE_NS_MAX: u64 = 60_000_000_000;

/// Estimator of the round-trip time. All values in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct RttEstimator {
    /// Smoothed RTT and its variance; `None` before the first sample.
    smoothed: Option<(u64, u64)>,
    latest_ns: u64,
    min_ns: u64,
    min_seen_ns: u64,
    /// The values are a guess, which the first sample replaces.
    is_guess: bool,
}

impl RttEstimator {
    /// Takes in a sample: the time from sending a packet to its report, less the peer's delay.
    pub fn on_sample(&mut self, now_ns: u64, sample_ns: u64) {
        let sample_ns = sample_ns.clamp(1, SAMPLE_NS_MAX);
        if std::mem::take(&mut self.is_guess) {
            self.smoothed = None;
        }
        self.latest_ns = sample_ns;
        if self.smoothed.is_none()
            || sample_ns <= self.min_ns
            || now_ns.saturating_sub(self.min_seen_ns) > MIN_LASTS_NS
        {
            self.min_ns = sample_ns;
            self.min_seen_ns = now_ns;
        }
        self.smoothed = Some(match self.smoothed {
            // RFC 6298 (2.2)
            None => (sample_ns, sample_ns / 2),
            // RFC 6298 (2.3), alpha = 1/8, beta = 1/4
            Some((srtt, rttvar)) => {
                let deviation = srtt.abs_diff(sample_ns);
                (srtt - srtt / 8 + sample_ns / 8, rttvar - rttvar / 4 + deviation / 4)
            }
        });
    }

    /// Takes in a value to use until there is a sample; ignored after one.
    pub fn guess(&mut self, guess_ns: u64) {
        if self.smoothed.is_none() {
            self.on_sample(0, guess_ns);
            self.is_guess = true;
        }
    }

    /// Smoothed RTT, if there was a sample or a guess.
    #[inline]
    pub fn smoothed_ns(&self) -> Option<u64> {
        self.smoothed.map(|(srtt, _)| srtt)
    }

    /// Variance, 0 before the first sample.
    #[inline]
    pub fn variance_ns(&self) -> u64 {
        self.smoothed.map_or(0, |(_, rttvar)| rttvar)
    }

    /// Smallest sample of the last ten seconds.
    #[inline]
    pub fn min_ns(&self) -> Option<u64> {
        self.smoothed.map(|_| self.min_ns)
    }

    /// The latest sample.
    #[inline]
    pub fn latest_ns(&self) -> Option<u64> {
        self.smoothed.map(|_| self.latest_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_sets_everything() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.smoothed_ns(), None);
        rtt.on_sample(0, 1000);
        assert_eq!(
            (rtt.smoothed_ns(), rtt.variance_ns(), rtt.min_ns()),
            (Some(1000), 500, Some(1000))
        );
    }

    #[test]
    fn a_guess_holds_until_there_is_a_sample() {
        let mut rtt = RttEstimator::default();
        rtt.guess(100);
        assert_eq!((rtt.smoothed_ns(), rtt.min_ns()), (Some(100), Some(100)));
        rtt.on_sample(0, 1000);
        assert_eq!((rtt.smoothed_ns(), rtt.min_ns()), (Some(1000), Some(1000)));
        rtt.guess(5);
        assert_eq!(rtt.min_ns(), Some(1000));
    }

    #[test]
    fn smoothing_follows_the_rfc() {
        let mut rtt = RttEstimator::default();
        rtt.on_sample(0, 800);
        rtt.on_sample(1, 1600);
        assert_eq!(rtt.smoothed_ns(), Some(900));
        assert_eq!(rtt.variance_ns(), 500);
    }

    #[test]
    fn the_minimum_is_forgotten_after_its_time() {
        let mut rtt = RttEstimator::default();
        rtt.on_sample(0, 100);
        rtt.on_sample(MIN_LASTS_NS, 500);
        assert_eq!(rtt.min_ns(), Some(100));
        rtt.on_sample(MIN_LASTS_NS + 1, 400);
        assert_eq!(rtt.min_ns(), Some(400));
    }
}
