//! A token bucket: when the next packet may be sent, so that a rate is never exceeded.
//!
//! A packet of `b` bits needs `b` tokens. The bucket is empty at first and holds at most the tokens of
//! `burst_ns` (or of one packet, if that is more), so
//!
//! * from the start up to any moment at most rate times time is sent, and
//! * within any span at most rate times the span is sent, plus the burst or a packet.
//!
//! Tokens are counted in bits times nanoseconds per second, so nothing is rounded.

const NS_PER_S: u128 = 1_000_000_000;

/// A token bucket; see the module's text.
#[derive(Debug, Clone)]
pub struct TokenBucket {
    rate_bits_per_s: u64,
    burst_ns: u64,
    /// Tokens at `since_ns`, in bits times [`NS_PER_S`].
    left: u128,
    since_ns: u64,
}

impl TokenBucket {
    /// An empty bucket. A rate of 0 counts as 1 bit/s.
    #[must_use]
    pub fn new(rate_bits_per_s: u64, burst_ns: u64, now_ns: u64) -> Self {
        let rate_bits_per_s = rate_bits_per_s.max(1);
        Self { rate_bits_per_s, burst_ns, left: 0, since_ns: now_ns }
    }

    /// Whether a packet of `bytes` may be sent now; if so, takes its tokens.
    pub fn take(&mut self, now_ns: u64, bytes: u64) -> bool {
        let cost = cost(bytes);
        let rate = u128::from(self.rate_bits_per_s);
        let elapsed_ns = u128::from(now_ns.saturating_sub(self.since_ns));
        let most = (rate * u128::from(self.burst_ns)).max(cost);
        let held = (self.left + rate * elapsed_ns).min(most);
        if held < cost {
            return false;
        }
        self.left = held - cost;
        self.since_ns = self.since_ns.max(now_ns);
        true
    }

    /// When a packet of `bytes` may be sent.
    #[must_use]
    pub fn ready_ns(&self, bytes: u64) -> u64 {
        let missing = cost(bytes).saturating_sub(self.left);
        let wait_ns = missing.div_ceil(u128::from(self.rate_bits_per_s));
        self.since_ns.saturating_add(u64::try_from(wait_ns).unwrap_or(u64::MAX))
    }
}

fn cost(bytes: u64) -> u128 {
    u128::from(bytes) * 8 * NS_PER_S
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes as often as it can, looking at these times.
    fn run(bucket: &mut TokenBucket, looks: impl Iterator<Item = u64>, bytes: u64) -> Vec<u64> {
        let mut sent = Vec::new();
        for now_ns in looks {
            while bucket.take(now_ns, bytes) {
                sent.push(now_ns);
            }
        }
        sent
    }

    #[test]
    fn packets_go_at_the_rate_when_somebody_looks_at_the_right_time() {
        // 8 bits/ns: a packet of 1000 bytes takes 1000 ns.
        let mut bucket = TokenBucket::new(8_000_000_000, 0, 500);
        let mut sent = Vec::new();
        for _ in 0..5 {
            let ready_ns = bucket.ready_ns(1000);
            assert!(!bucket.take(ready_ns - 1, 1000));
            assert!(bucket.take(ready_ns, 1000));
            sent.push(ready_ns);
        }
        assert_eq!(sent, [1500, 2500, 3500, 4500, 5500]);
    }

    #[test]
    fn who_looks_late_makes_up_for_a_burst_and_no_more() {
        let mut bucket = TokenBucket::new(8_000_000_000, 3000, 0);
        // Ten packets' time has passed; three may go at once.
        assert_eq!(run(&mut bucket, std::iter::once(10_000), 1000), [10_000; 3]);
        assert_eq!(bucket.ready_ns(1000), 11_000);
    }

    #[test]
    fn a_packet_larger_than_the_burst_goes_when_it_is_paid_for() {
        let mut bucket = TokenBucket::new(8_000_000, 1000, 0);
        assert_eq!(bucket.ready_ns(9000), 9_000_000);
        assert!(!bucket.take(8_999_999, 9000));
        assert!(bucket.take(9_000_000, 9000));
        assert!(!bucket.take(9_000_000, 1));
    }

    #[test]
    fn a_clock_that_steps_back_gives_nothing_away() {
        let mut bucket = TokenBucket::new(8_000_000_000, 1000, 1000);
        assert!(bucket.take(2000, 1000));
        assert!(!bucket.take(0, 1000));
        assert_eq!(run(&mut bucket, [2500, 2999, 3000].into_iter(), 1000), [3000]);
    }

    proptest::proptest! {
        #[test]
        fn no_span_ever_has_more_than_the_rate_and_a_burst(
            rate in 1_000u64..200_000_000_000,
            burst_ns in 0u64..2_000_000,
            steps in proptest::collection::vec((0u64..3_000_000, 1u64..9000), 1..200),
        ) {
            let mut bucket = TokenBucket::new(rate, burst_ns, 0);
            let mut now_ns = 0;
            // Time and bits of each packet that went.
            let mut sent: Vec<(u64, u128)> = Vec::new();
            for (gap_ns, bytes) in steps {
                now_ns += gap_ns;
                for _ in 0..20 {
                    if !bucket.take(now_ns, bytes) { break; }
                    sent.push((now_ns, u128::from(bytes) * 8));
                }
            }
            let allowed = |span_ns: u64| u128::from(rate) * u128::from(span_ns);
            let mut total = 0;
            for (at_ns, bits) in &sent {
                total += bits * NS_PER_S;
                proptest::prop_assert!(total <= allowed(*at_ns));
            }
            for i in 0..sent.len() {
                let (mut bits, mut largest) = (0, 0);
                for packet in &sent[i..] {
                    bits += packet.1 * NS_PER_S;
                    largest = largest.max(packet.1 * NS_PER_S);
                    let burst = allowed(burst_ns).max(largest);
                    proptest::prop_assert!(bits <= allowed(packet.0 - sent[i].0) + burst);
                }
            }
        }
    }
}
