//! Which group packets were sent lately: for receivers that hear of this sender by one of them, and are to take it.
//!
//! Such a receiver says for how long it is sure that it has taken nothing, as it began or forgot a sender then. What was
//! sent before that is not for it: it may have been taken, or be recorded.

use std::collections::VecDeque;

/// Group packets as old as this are taken by a receiver that asks for the first time.
const RECENT_NS: u64 = 1_000_000_000;
/// Less than that by the time for which an end may not have looked at its clock.
const SLACK_NS: u64 = 10_000_000;
/// How exactly that is known.
const MARK_NS: u64 = RECENT_NS / 16;
const MARKS_MAX: usize = 17;

/// From when on which numbers were sent, for about the last second.
#[derive(Debug, Default)]
pub(super) struct Marks(VecDeque<(u64, u64)>);

impl Marks {
    /// A packet is about to be sent; `number` tells which.
    pub(super) fn on_sending(&mut self, now_ns: u64, number: impl FnOnce() -> u64) {
        if self.0.back().is_none_or(|(ns, _)| now_ns >= ns + MARK_NS) {
            if self.0.len() == MARKS_MAX {
                self.0.pop_front();
            }
            self.0.push_back((now_ns, number()));
        }
    }

    /// The number of the first packet that was sent in the last so many nanoseconds, and the last second, or a later
    /// one; `None` if none is known to be.
    pub(super) fn floor(&self, now_ns: u64, fresh_ns: u64) -> Option<u64> {
        let recent_ns = fresh_ns.min(RECENT_NS).saturating_sub(SLACK_NS);
        let is_recent = |(ns, _): &&(u64, u64)| recent_ns > 0 && ns + recent_ns >= now_ns;
        self.0.iter().find(is_recent).map(|(_, number)| *number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_before_a_receiver_began_is_never_above_the_floor() {
        let mut marks = Marks::default();
        let step_ns = 3_000_000;
        for number in 0..2000u64 {
            let now_ns = 5_000_000_000 + number * step_ns;
            marks.on_sending(now_ns, || number);
            for fresh in [0, 1, 5, 30, 100, 500, 5000] {
                let Some(floor) = marks.floor(now_ns, fresh * step_ns) else { continue };
                let began = number.saturating_sub(fresh);
                assert!(floor >= began && floor <= number, "{floor} of {number}, {fresh}");
                // With the time that is told it is never much later than it needs to be.
                assert!(fresh < 100 || floor <= number.saturating_sub(fresh.min(300)) + 30);
            }
        }
        assert_eq!(Marks::default().floor(0, 0), None);
    }
}
