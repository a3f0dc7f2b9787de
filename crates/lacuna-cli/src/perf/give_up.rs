//! When a receiver gives a message or its sender up. Pure decisions on a clock that is passed in.
//!
//! Without repair, missing packets may never come, and nothing on the wire says so. A message is
//! given up in two cases: a later message has begun to arrive and the path had time for reordered
//! packets; or the message is known to have been sent, at least in part, and the path is quiet
//! although a working sender would use it. A message that may not have been sent yet is not given
//! up: its sender may pause. In every mode, a sender that is silent for [`IDLE`] counts as gone.

use std::collections::VecDeque;
use std::time::Duration;

/// Least time for reordered packets after a later message has begun to arrive. The time itself is a
/// quarter of a round trip, as in RACK (RFC 8985, 6.2); the minimum is for workers of several
/// channels that do not run at the same time.
const GRACE_MIN: Duration = Duration::from_millis(20);
/// Least time without packets after which the path is quiet. A sender with a window of one packet
/// leaves a round trip between packets; the minimum is for short round trips and busy hosts.
const QUIET_MIN: Duration = Duration::from_millis(300);
const QUIET_RTTS: u32 = 3;
/// How long a sender may send nothing before it counts as gone. It may be filling gigabytes with a
/// pattern.
pub(super) const IDLE: Duration = Duration::from_secs(30);
/// Longest time until the next check, so that other events are noticed.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(50);
/// The same for messages that may be given up: the resolution of the time at which they were
/// overtaken.
const CHECK_INTERVAL_RAW: Duration = Duration::from_millis(5);

/// The facts at a check.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation {
    /// Time since a fixed moment.
    pub(super) now: Duration,
    /// Packets received so far.
    pub(super) packets: u64,
    /// Number of the message that is waited for.
    pub(super) front: u64,
    /// Whether a part of it is known to have been sent.
    pub(super) is_begun: bool,
    /// The newest message with a chunk here, if any.
    pub(super) newest: Option<u64>,
}

/// The decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Check again after this time.
    Wait(Duration),
    /// The missing part of the front message is lost.
    GiveUp,
    /// The sender is gone: silent for this long.
    Gone(Duration),
}

/// The state of the decision.
#[derive(Debug)]
pub(super) struct GiveUpRule {
    /// Whether the mode repairs losses: then no message is given up.
    repairs: bool,
    grace: Duration,
    quiet: Duration,
    idle: Duration,
    packets: u64,
    /// When the last packet came.
    quiet_since: Duration,
    /// Entries "messages before this number were overtaken at this time", both ascending.
    overtaken: VecDeque<(u64, Duration)>,
}

impl GiveUpRule {
    pub(super) fn new(repairs: bool, rtt: Duration, idle: Duration, now: Duration) -> Self {
        Self {
            repairs,
            grace: GRACE_MIN.max(rtt / 4),
            quiet: QUIET_MIN.max(rtt * QUIET_RTTS),
            idle: idle + rtt * QUIET_RTTS,
            packets: 0,
            quiet_since: now,
            overtaken: VecDeque::new(),
        }
    }

    /// Decides on the front message.
    pub(super) fn decide(&mut self, seen: &Observation) -> Verdict {
        if seen.packets != self.packets {
            self.packets = seen.packets;
            self.quiet_since = seen.now;
        }
        let quiet_for = seen.now.saturating_sub(self.quiet_since);
        if quiet_for >= self.idle {
            return Verdict::Gone(quiet_for);
        }
        let until_idle = self.idle - quiet_for;
        if self.repairs {
            return Verdict::Wait(until_idle.min(CHECK_INTERVAL_MAX));
        }
        if let Some(newest) = seen.newest
            && self.overtaken.back().is_none_or(|(before, _)| newest > *before)
        {
            self.overtaken.push_back((newest, seen.now));
        }
        while self.overtaken.front().is_some_and(|(before, _)| *before <= seen.front) {
            self.overtaken.pop_front();
        }
        let overtaken_since = self.overtaken.front().map(|(_, since)| *since);
        let quiet_since = seen.is_begun.then_some(self.quiet_since);
        let due = [
            overtaken_since.map(|since| since + self.grace),
            quiet_since.map(|since| since + self.quiet),
        ];
        let due = due.into_iter().flatten().min();
        if due.is_some_and(|due| due <= seen.now) {
            return Verdict::GiveUp;
        }
        let until_due = due.map_or(CHECK_INTERVAL_RAW, |due| due - seen.now);
        Verdict::Wait(until_due.min(CHECK_INTERVAL_RAW))
    }

    /// This end was busy until now, so the silence says nothing of the sender.
    pub(super) fn resume(&mut self, now: Duration) {
        self.quiet_since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(200);
    const GRACE: Duration = Duration::from_millis(50);
    const QUIET: Duration = Duration::from_millis(600);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn raw() -> GiveUpRule {
        GiveUpRule::new(false, RTT, IDLE, Duration::ZERO)
    }

    /// A look at a message that has begun.
    fn seen_at(now: Duration, packets: u64, front: u64, newest: Option<u64>) -> Observation {
        Observation { now, packets, front, is_begun: true, newest }
    }

    fn waits(verdict: Verdict) -> bool {
        matches!(verdict, Verdict::Wait(time) if !time.is_zero())
    }

    #[test]
    fn a_message_is_given_up_a_quarter_round_trip_after_a_later_one_began() {
        let mut give_up_rule = raw();
        assert!(waits(give_up_rule.decide(&seen_at(ms(10), 100, 0, Some(0)))));
        assert!(waits(give_up_rule.decide(&seen_at(ms(20), 200, 0, Some(1)))));
        assert!(waits(give_up_rule.decide(&seen_at(ms(20) + GRACE - ms(1), 300, 0, Some(1)))));
        let overdue = seen_at(ms(20) + GRACE, 400, 0, Some(1));
        assert_eq!(give_up_rule.decide(&overdue), Verdict::GiveUp);
    }

    #[test]
    fn messages_that_were_overtaken_together_are_given_up_together() {
        let mut give_up_rule = raw();
        assert!(waits(give_up_rule.decide(&seen_at(ms(0), 100, 0, Some(3)))));
        for front in 0..3 {
            let verdict = give_up_rule.decide(&seen_at(GRACE, 200, front, Some(3)));
            assert_eq!(verdict, Verdict::GiveUp, "message {front}");
        }
        assert!(
            waits(give_up_rule.decide(&seen_at(GRACE, 200, 3, Some(3)))),
            "nothing came after it"
        );
        assert!(waits(give_up_rule.decide(&seen_at(GRACE + ms(5), 300, 3, Some(4)))));
        let due = GRACE + ms(5) + GRACE;
        assert!(waits(give_up_rule.decide(&seen_at(due - ms(1), 400, 3, Some(9)))));
        assert_eq!(give_up_rule.decide(&seen_at(due, 400, 3, Some(9))), Verdict::GiveUp);
    }

    #[test]
    fn the_last_message_is_given_up_when_the_path_is_quiet() {
        let mut give_up_rule = raw();
        assert!(waits(give_up_rule.decide(&seen_at(ms(10), 100, 7, Some(7)))));
        assert!(waits(give_up_rule.decide(&seen_at(ms(10) + QUIET - ms(1), 100, 7, Some(7)))));
        assert_eq!(give_up_rule.decide(&seen_at(ms(10) + QUIET, 100, 7, Some(7))), Verdict::GiveUp);
    }

    #[test]
    fn a_message_of_which_nothing_came_is_given_up_only_if_it_was_sent() {
        let mut give_up_rule = raw();
        let unsent = Observation { is_begun: false, ..seen_at(ms(10), 100, 7, None) };
        assert!(waits(give_up_rule.decide(&unsent)));
        for pause in 1..20 {
            let now = ms(10) + QUIET * pause;
            assert!(waits(give_up_rule.decide(&Observation { now, ..unsent })), "after {now:?}");
        }
        let sent = Observation { now: ms(10) + QUIET * 20, is_begun: true, ..unsent };
        assert_eq!(give_up_rule.decide(&sent), Verdict::GiveUp);
    }

    #[test]
    fn a_long_path_is_not_quiet_while_the_sender_waits_for_its_window() {
        let rtt = Duration::from_secs(2);
        let mut give_up_rule = GiveUpRule::new(false, rtt, IDLE, Duration::ZERO);
        for round in 0..5 {
            let packets = u64::from(round) + 1;
            assert!(waits(give_up_rule.decide(&seen_at(rtt * round, packets, 0, Some(0)))));
            let between = rtt * round + rtt * 9 / 10;
            assert!(
                waits(give_up_rule.decide(&seen_at(between, packets, 0, Some(0)))),
                "round {round}"
            );
        }
    }

    #[test]
    fn a_mode_that_repairs_waits_as_long_as_anything_comes() {
        let mut give_up_rule = GiveUpRule::new(true, RTT, IDLE, Duration::ZERO);
        for second in (0..600).step_by(20) {
            let now = Duration::from_secs(second);
            assert!(waits(give_up_rule.decide(&seen_at(now, second, 0, Some(5)))), "{second} s");
        }
    }

    #[test]
    fn a_sender_of_which_nothing_comes_is_gone_in_every_mode() {
        for repairs in [true, false] {
            let mut give_up_rule = GiveUpRule::new(repairs, RTT, IDLE, ms(5));
            let idle = IDLE + RTT * QUIET_RTTS;
            let silent = Observation { is_begun: false, ..seen_at(ms(4) + idle, 0, 0, None) };
            assert!(waits(give_up_rule.decide(&silent)));
            let later = Observation { now: ms(5) + idle, ..silent };
            assert_eq!(give_up_rule.decide(&later), Verdict::Gone(idle));
        }
    }

    #[test]
    fn time_spent_on_checking_is_not_counted_as_silence() {
        let mut give_up_rule = raw();
        assert!(waits(give_up_rule.decide(&seen_at(ms(10), 100, 0, Some(0)))));
        give_up_rule.resume(ms(10) + QUIET);
        assert!(waits(give_up_rule.decide(&seen_at(ms(10) + QUIET, 100, 1, Some(0)))));
        assert_eq!(
            give_up_rule.decide(&seen_at(ms(10) + QUIET * 2, 100, 1, Some(0))),
            Verdict::GiveUp
        );
    }
}
