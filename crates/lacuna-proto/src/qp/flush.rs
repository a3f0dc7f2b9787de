//! Flush timers: when a sender probes for tail loss, like TCP's TLP (RFC 8985, section 7).
//!
//! A flush says "I have sent everything before this number" and asks for a report. It is sent when
//! everything was sent and something is not acknowledged: soon at first, then less and less often. A
//! lost tail is so detected after a round trip instead of a timeout. After a flush without an answer,
//! the next one is sent in twice as many packets: loss bursts are counted in packets, so with one
//! packet per round trip a burst of n packets would last n round trips.
//!
//! Channels keep no order among each other, so a flush covers only the channel that it is sent on,
//! behind that channel's data. There is one [`FlushTimer`] per channel.

/// Times and counts of flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlushPolicy {
    /// Shortest and longest time from the last packet to the first flush.
    pub(super) delay_ns: (u64, u64),
    /// Within these limits, that time is the round trip divided by this.
    pub(super) delay_rtt_part: u64,
    /// Time between flushes while the round trip is not known.
    pub(super) interval_ns: u64,
    /// Longest time between flushes.
    pub(super) interval_ns_max: u64,
    /// Longest time between flushes while the path is dark.
    pub(super) dark_interval_ns_max: u64,
    /// Flushes at the same interval before the interval doubles, from `repeats_from_ns` on.
    pub(super) repeats: u32,
    /// Shortest interval that is repeated. A path with a shorter round trip is a *short* one.
    pub(super) repeats_from_ns: u64,
    /// Most packets of a flush that is sent again, and of its answer.
    pub(super) copies_max: u32,
    /// The same while the path is dark, where flushes follow each other closely.
    pub(super) dark_copies_max: u32,
}

impl FlushPolicy {
    pub(super) const DEFAULT: Self = Self {
        // The peer's own report mostly comes within this time, which `ReportPolicy` delays by 50 us
        // to 1 ms as well; then no flush is needed.
        delay_ns: (50_000, 1_000_000),
        delay_rtt_part: 32,
        interval_ns: 10_000_000,
        interval_ns_max: 100_000_000,
        // Repairs arrive one and a half round trips after the first flush that gets through. The goal
        // is that a transfer resumes within a round trip plus 200 ms on paths of up to 300 ms.
        dark_interval_ns_max: 25_000_000,
        // In a loss burst each answer is as likely to be lost as the one before; the burst ends only
        // after more packets. Measured: M-path-3.
        repeats: 8,
        repeats_from_ns: 1_000_000,
        // Measured: M-path-4.
        copies_max: 8,
        dark_copies_max: 4,
    };
}

const POLICY: FlushPolicy = FlushPolicy::DEFAULT;

/// Timer of one channel's flushes.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlushTimer {
    due_ns: u64,
    interval_ns: u64,
    /// Flushes sent with this interval.
    repeats: u32,
    /// The path is so short that a missing answer is more likely late than lost.
    is_short: bool,
    /// When the last flush was sent.
    flushed_ns: u64,
    /// Flushes in a row without an answer.
    unanswered: u32,
    /// Copies of the last flush still to be sent.
    copies_left: u32,
}

impl FlushTimer {
    /// The timer of a channel on which nothing was sent.
    pub(super) fn idle() -> Self {
        Self::new(0, POLICY.interval_ns)
    }

    /// Packets were sent over a path with this smoothed round trip; 0 if not known.
    pub(super) fn on_sent(now_ns: u64, srtt_ns: u64) -> Self {
        let (least_ns, most_ns) = POLICY.delay_ns;
        let due_ns = now_ns + (srtt_ns / POLICY.delay_rtt_part).clamp(least_ns, most_ns);
        let interval_ns = if srtt_ns == 0 { POLICY.interval_ns } else { srtt_ns };
        Self::new(due_ns, interval_ns)
    }

    fn new(due_ns: u64, interval_ns: u64) -> Self {
        let is_short = interval_ns < POLICY.repeats_from_ns;
        Self {
            due_ns,
            interval_ns,
            repeats: 0,
            is_short,
            flushed_ns: 0,
            unanswered: 0,
            copies_left: 0,
        }
    }

    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// The next flush need not wait.
    pub(super) fn hasten(&mut self, now_ns: u64) {
        self.due_ns = self.due_ns.min(now_ns);
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.copies_left > 0 || self.due_ns <= now_ns
    }

    /// A flush was sent, or a copy of one. The peer was last heard at `heard_ns`.
    pub(super) fn on_flush_sent(&mut self, now_ns: u64, heard_ns: u64, is_dark: bool) {
        if self.copies_left > 0 {
            self.copies_left -= 1;
            return;
        }
        if heard_ns > self.flushed_ns {
            self.unanswered = 0;
        }
        let most = match is_dark {
            true => POLICY.dark_copies_max,
            // The answer is late, not lost; more packets would delay it further.
            false if self.is_short => 1,
            false => POLICY.copies_max,
        };
        self.copies_left = (1 << self.unanswered.min(most.ilog2())) - 1;
        self.flushed_ns = now_ns;
        self.unanswered = self.unanswered.saturating_add(1);
        self.next(now_ns, is_dark);
    }

    /// Sets the time of the next flush.
    fn next(&mut self, now_ns: u64, is_dark: bool) {
        if is_dark {
            // While the path is dark the interval is short from the start.
            self.interval_ns = self.interval_ns.min(POLICY.dark_interval_ns_max);
        }
        self.due_ns = now_ns + self.interval_ns;
        self.repeats += 1;
        // An interval above the longest, from a long round trip, drops to the longest at once.
        let is_repeated =
            (POLICY.repeats_from_ns..=POLICY.interval_ns_max).contains(&self.interval_ns);
        if !is_repeated || self.repeats >= POLICY.repeats {
            let most_ns =
                if is_dark { POLICY.dark_interval_ns_max } else { POLICY.interval_ns_max };
            self.interval_ns = (self.interval_ns * 2).min(most_ns);
            self.repeats = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pauses between so many flushes, in milliseconds.
    fn pauses_ms(first_ms: u64, count: usize, is_dark: bool) -> Vec<u64> {
        let mut timer = FlushTimer::new(0, first_ms * 1_000_000);
        let mut pause = || {
            let now_ns = timer.due_ns;
            timer.next(now_ns, is_dark);
            (timer.due_ns - now_ns) / 1_000_000
        };
        (0..count).map(|_| pause()).collect()
    }

    #[test]
    fn pauses_between_flushes_double_by_and_by_up_to_the_most() {
        let expected = [[1; 8], [2; 8], [4; 8], [8; 8]].concat();
        assert_eq!(pauses_ms(1, 32, false), expected);
        assert_eq!(pauses_ms(64, 10, false), [&[64; 8][..], &[100; 2]].concat());
    }

    #[test]
    fn after_a_long_round_trip_the_most_is_the_pause_at_once() {
        assert_eq!(pauses_ms(250, 3, false), [250, 100, 100]);
        assert_eq!(pauses_ms(250, 3, true), [25, 25, 25]);
    }

    /// Packets of each of so many questions that nobody answers, over this round trip.
    fn packets_per_flush(rtt_ns: u64, count: usize) -> Vec<u32> {
        let mut timer = FlushTimer::new(rtt_ns, rtt_ns);
        let mut flush = || {
            let now_ns = timer.due_ns;
            let mut packets = 0;
            while timer.is_due(now_ns) {
                timer.on_flush_sent(now_ns, 0, false);
                packets += 1;
            }
            packets
        };
        (0..count).map(|_| flush()).collect()
    }

    #[test]
    fn what_is_asked_in_vain_is_asked_with_twice_as_many_packets_but_over_short_paths() {
        for rtt_ns in [40_000_000, 1_000_000] {
            assert_eq!(packets_per_flush(rtt_ns, 6), [1, 2, 4, 8, 8, 8], "{rtt_ns} ns");
        }
        for rtt_ns in [400_000, 20_000] {
            assert_eq!(packets_per_flush(rtt_ns, 12), [1; 12], "{rtt_ns} ns");
        }
    }
}
