//! When a sender asks the peer what has come (a probe for tail loss, like TCP's TLP, RFC 8985).
//!
//! A flush says "I have sent everything before this number" and asks for a report. The sender asks
//! when everything was sent and something is not answered: soon at first, then less and less often.
//! So a lost tail shows after a round trip instead of a timeout. A flush that had no answer is sent
//! in twice as many packets the next time: bursts of losses end with the packets that they take,
//! and one packet per round trip would take as many round trips.
//!
//! A flush speaks only of the channel that it travels on, where it follows that channel's data,
//! because channels keep no order among each other. So there is one [`FlushTimer`] per channel.

/// Times and counts of flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FlushPolicy {
    /// Shortest and longest time from the last packet to the first flush.
    pub(super) delay_ns: (u64, u64),
    /// Between these two, the time is the round trip divided by this.
    pub(super) delay_rtt_part: u64,
    /// Time between flushes while the round trip is not known.
    pub(super) interval_ns: u64,
    /// Longest time between flushes.
    pub(super) interval_ns_max: u64,
    /// Longest time between flushes while the path is dark.
    pub(super) dark_interval_ns_max: u64,
    /// Flushes with the same time between them before the time doubles, once it has reached
    /// `repeats_from_ns`.
    pub(super) repeats: u32,
    /// Least time between flushes that is repeated. A path with a shorter round trip is a *short*
    /// one.
    pub(super) repeats_from_ns: u64,
    /// Most packets of a flush that is sent again, and of its answer.
    pub(super) copies_max: u32,
    /// The same while the path is dark, where flushes follow each other closely.
    pub(super) dark_copies_max: u32,
}

impl FlushPolicy {
    pub(super) const DEFAULT: Self = Self {
        // The peer's report mostly comes first, because the peer has waited for 50 us to 1 ms as
        // well (`ReportPolicy`), and no flush is needed.
        delay_ns: (50_000, 1_000_000),
        delay_rtt_part: 32,
        interval_ns: 10_000_000,
        interval_ns_max: 100_000_000,
        // Repairs arrive one and a half round trips after the first flush that gets through. On any
        // path of up to 300 ms a transfer is to resume within one round trip and 200 ms.
        dark_interval_ns_max: 25_000_000,
        // In a burst of losses an answer is as likely to be lost as the one before, and only more
        // packets end the burst. Measured: M-path-3.
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
    /// The path is so short that a missing answer is rather late than lost.
    is_short: bool,
    /// When the last flush was sent, and how many in a row had no answer.
    asked_ns: u64,
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
            asked_ns: 0,
            unanswered: 0,
            copies_left: 0,
        }
    }

    pub(super) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.copies_left > 0 || self.due_ns <= now_ns
    }

    /// A flush was sent, or a copy of one. The peer was last heard at `heard_ns`.
    pub(super) fn on_asked(&mut self, now_ns: u64, heard_ns: u64, is_dark: bool) {
        if self.copies_left > 0 {
            self.copies_left -= 1;
            return;
        }
        if heard_ns > self.asked_ns {
            self.unanswered = 0;
        }
        let most = match is_dark {
            true => POLICY.dark_copies_max,
            // More packets would make the answer later.
            false if self.is_short => 1,
            false => POLICY.copies_max,
        };
        self.copies_left = (1 << self.unanswered.min(most.ilog2())) - 1;
        self.asked_ns = now_ns;
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
    fn packets_of_questions(rtt_ns: u64, count: usize) -> Vec<u32> {
        let mut timer = FlushTimer::new(rtt_ns, rtt_ns);
        let mut question = || {
            let now_ns = timer.due_ns;
            let mut packets = 0;
            while timer.is_due(now_ns) {
                timer.on_asked(now_ns, 0, false);
                packets += 1;
            }
            packets
        };
        (0..count).map(|_| question()).collect()
    }

    #[test]
    fn what_is_asked_in_vain_is_asked_with_twice_as_many_packets_but_over_short_paths() {
        for rtt_ns in [40_000_000, 1_000_000] {
            assert_eq!(packets_of_questions(rtt_ns, 6), [1, 2, 4, 8, 8, 8], "{rtt_ns} ns");
        }
        for rtt_ns in [400_000, 20_000] {
            assert_eq!(packets_of_questions(rtt_ns, 12), [1; 12], "{rtt_ns} ns");
        }
    }
}
