//! A transmitter of fixed rate with a drop-tail queue in front of it.
//!
//! A packet's departure is computed at its arrival, from when the transmitter will be free, so the link
//! needs no timer. Times are exact: the fraction of a nanosecond of a departure is carried to the next
//! one, so a long run of packets takes exactly as long as its bits.

use std::collections::VecDeque;

const NS_PER_S: u128 = 1_000_000_000;

/// A transmitter with its queue; see the module's text.
#[derive(Debug)]
pub struct Link {
    rate_bits_per_s: u64,
    queue_bytes_max: u64,
    /// The transmitter has sent all admitted packets at `free_ns + free_rest / rate_bits_per_s`.
    free_ns: u64,
    /// The fraction of a nanosecond; less than the rate.
    free_rest: u64,
    /// Queued packets: start of their transmission, and their bytes.
    waiting: VecDeque<(u64, u64)>,
    /// Sum over `waiting`; at most `queue_bytes_max`.
    waiting_bytes: u64,
}

impl Link {
    /// An idle link. `queue_bytes_max` bounds the queue without the packet in transmission.
    ///
    /// # Panics
    ///
    /// When the rate is 0.
    #[must_use]
    pub fn new(rate_bits_per_s: u64, queue_bytes_max: u64) -> Self {
        assert!(rate_bits_per_s > 0, "a link cannot have a rate of 0 bits/s");
        Self {
            rate_bits_per_s,
            queue_bytes_max,
            free_ns: 0,
            free_rest: 0,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// A packet of `bytes` on the wire arrives. Returns when its last bit leaves, or `None` if the queue
    /// is full. The packet in transmission is not in the queue.
    pub fn admit(&mut self, now_ns: u64, bytes: u64) -> Option<u64> {
        self.begin_until(now_ns);
        let starts_ns = self.free_at_ns();
        if starts_ns <= now_ns {
            (self.free_ns, self.free_rest) = (now_ns, 0);
        } else if self.waiting_bytes.saturating_add(bytes) <= self.queue_bytes_max {
            self.waiting.push_back((starts_ns, bytes));
            self.waiting_bytes += bytes;
        } else {
            return None;
        }
        let rate = u128::from(self.rate_bits_per_s);
        let work = u128::from(bytes) * 8 * NS_PER_S + u128::from(self.free_rest);
        // Real packets fit in 64 bits, where division is many times as fast.
        let (takes_ns, rest) = match u64::try_from(work) {
            Ok(work) => (work / self.rate_bits_per_s, work % self.rate_bits_per_s),
            Err(_) => (u64::try_from(work / rate).unwrap_or(u64::MAX), (work % rate) as u64),
        };
        self.free_ns = self.free_ns.saturating_add(takes_ns);
        self.free_rest = rest;
        Some(self.free_at_ns())
    }

    /// Its rate.
    #[must_use]
    pub fn rate_bits_per_s(&self) -> u64 {
        self.rate_bits_per_s
    }

    /// Bytes in the queue, without the packet in transmission.
    pub fn waiting_bytes(&mut self, now_ns: u64) -> u64 {
        self.begin_until(now_ns);
        self.waiting_bytes
    }

    /// Changes rate and queue. Packets that were admitted before keep their departure times.
    ///
    /// # Panics
    ///
    /// When the rate is 0.
    pub fn change(&mut self, rate_bits_per_s: u64, queue_bytes_max: u64) {
        assert!(rate_bits_per_s > 0, "a link cannot have a rate of 0 bits/s");
        // The rest is in units of the old rate.
        (self.free_ns, self.free_rest) = (self.free_at_ns(), 0);
        self.rate_bits_per_s = rate_bits_per_s;
        self.queue_bytes_max = queue_bytes_max;
    }

    /// Removes packets from the queue whose transmission has begun.
    fn begin_until(&mut self, now_ns: u64) {
        while let Some((_, bytes)) = self.waiting.front().filter(|(starts, _)| *starts <= now_ns) {
            self.waiting_bytes -= bytes;
            self.waiting.pop_front();
        }
    }

    /// The first whole nanosecond at which the transmitter is free.
    pub(crate) fn free_at_ns(&self) -> u64 {
        self.free_ns.saturating_add(u64::from(self.free_rest > 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_leave_one_after_the_other_at_the_rate() {
        // 8 bits/ns: a packet of 1000 bytes takes 1000 ns.
        let mut link = Link::new(8_000_000_000, 10_000);
        assert_eq!(link.admit(50, 1000), Some(1050));
        assert_eq!(link.admit(50, 1000), Some(2050));
        assert_eq!(link.admit(60, 500), Some(2550));
        assert_eq!(link.admit(5000, 1), Some(5001));
    }

    #[test]
    fn fractions_of_a_nanosecond_add_up() {
        // 3 bytes at 7 Gbit/s take 24/7 ns.
        let mut link = Link::new(7_000_000_000, 1 << 30);
        let mut last = None;
        for i in 1..=7_000_000u64 {
            last = link.admit(0, 3);
            if i < 20 {
                assert_eq!(last, Some((24 * i).div_ceil(7)));
            }
        }
        assert_eq!(last, Some(24_000_000));
    }

    #[test]
    fn a_full_queue_drops_what_arrives() {
        let mut link = Link::new(8_000_000_000, 250);
        assert_eq!(link.admit(0, 100), Some(100)); // in transmission, not in the queue
        assert_eq!(link.admit(0, 100), Some(200));
        assert_eq!(link.admit(0, 100), Some(300));
        assert_eq!(link.admit(0, 100), None);
        assert_eq!(link.admit(0, 50), Some(350)); // fits where the larger one did not
        assert_eq!(link.admit(99, 1), None);
        assert_eq!(link.admit(100, 100), Some(450)); // the second has begun
        assert_eq!(link.admit(100, 1), None);
    }

    #[test]
    fn without_a_queue_the_link_takes_a_packet_when_idle() {
        let mut link = Link::new(8_000_000_000, 0);
        assert_eq!(link.admit(0, 100), Some(100));
        assert_eq!(link.admit(99, 100), None);
        assert_eq!(link.admit(100, 100), Some(200));
    }

    #[test]
    fn the_slowest_link_does_not_overflow() {
        let mut link = Link::new(1, u64::MAX);
        assert_eq!(link.admit(0, 1), Some(8_000_000_000));
        assert_eq!(link.admit(0, u64::from(u32::MAX)), Some(u64::MAX));
        assert_eq!(link.admit(0, 1), Some(u64::MAX));
    }

    #[test]
    fn what_waits_is_told_and_a_new_rate_holds_for_what_comes_after() {
        let mut link = Link::new(8_000_000_000, 1000);
        assert_eq!(link.admit(0, 100), Some(100));
        assert_eq!(link.admit(0, 100), Some(200));
        assert_eq!(link.admit(0, 100), Some(300));
        assert_eq!((link.waiting_bytes(0), link.waiting_bytes(100)), (200, 100));
        link.change(4_000_000_000, 150);
        assert_eq!(link.admit(100, 100), None);
        assert_eq!(link.admit(100, 50), Some(400));
        assert_eq!(link.waiting_bytes(300), 0);
    }

    /// The same link, computed from the list of all packets it ever took, in units of 1/rate ns.
    #[derive(Default)]
    struct Oracle {
        /// Beginning and end of transmission, and bytes.
        packets: Vec<(u128, u128, u64)>,
    }

    impl Oracle {
        fn admit(&mut self, rate: u64, queue_bytes: u64, now_ns: u64, bytes: u64) -> Option<u64> {
            let now = u128::from(now_ns) * u128::from(rate);
            let starts = self.packets.last().map_or(0, |packet| packet.1).max(now);
            let waiting =
                self.packets.iter().filter(|packet| packet.0 > now).map(|packet| packet.2);
            if starts > now && waiting.sum::<u64>() + bytes > queue_bytes {
                return None;
            }
            let ends = starts + u128::from(bytes) * 8 * NS_PER_S;
            self.packets.push((starts, ends, bytes));
            Some(u64::try_from(ends.div_ceil(u128::from(rate))).unwrap())
        }
    }

    proptest::proptest! {
        #[test]
        fn the_link_agrees_with_a_list_of_all_packets(
            rate in 1_000_000..20_000_000_000u64,
            queue_bytes in 0..20_000u64,
            packets in proptest::collection::vec((0..20_000u64, 0..9000u64), 1..200),
        ) {
            let mut link = Link::new(rate, queue_bytes);
            let mut oracle = Oracle::default();
            let mut now_ns = 0;
            for (gap_ns, bytes) in packets {
                now_ns += gap_ns;
                let expected = oracle.admit(rate, queue_bytes, now_ns, bytes);
                proptest::prop_assert_eq!(link.admit(now_ns, bytes), expected);
            }
        }
    }
}
