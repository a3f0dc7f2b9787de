//! Whether message numbers come round again too soon.
//!
//! A packet names its message by slot and generation, so after `slots` times `generations` messages the
//! same name is used again (SDR 3.3.2). A packet that is later than that would be placed into the wrong
//! message. The reliable modes never have so old a packet that matters: their sender waits for the
//! slot's last message. A mode that repairs nothing waits for nobody, so a fast sender of short messages
//! may come round within the life of a packet. It is counted and said, since only a geometry with more
//! slots or generations helps.

/// Round trips within which numbers should not come round: what a path may hold back for so long was in
/// no measurement. A judgement.
pub(crate) const ROUND_TRIPS: u64 = 4;

/// Watches the numbers of posted receives.
#[derive(Debug, Default)]
pub(super) struct Wraps {
    /// When the numbers last came round; `None` before the first message.
    began_ns: Option<u64>,
}

impl Wraps {
    /// Receives with the numbers `numbers` are posted, of `period` different names. Returns whether the
    /// numbers have come round within `safe_ns`.
    pub(super) fn on_posted(
        &mut self,
        now_ns: u64,
        numbers: &std::ops::Range<u64>,
        period: u64,
        safe_ns: u64,
    ) -> bool {
        let is_round = numbers.start.is_multiple_of(period)
            || numbers.start / period != (numbers.end - 1) / period;
        if !is_round {
            return false;
        }
        let before_ns = self.began_ns.replace(now_ns);
        before_ns.is_some_and(|before_ns| now_ns - before_ns < safe_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_come_round_within_the_life_of_a_packet_are_noticed() {
        let mut wraps = Wraps::default();
        let mut quick = Vec::new();
        for number in 0..40u64 {
            // A message each nanosecond, and slower from number 24 on.
            let now_ns = if number < 24 { number } else { 100 * number };
            if wraps.on_posted(now_ns, &(number..number + 1), 8, 9) {
                quick.push(number);
            }
        }
        assert_eq!(quick, [8, 16]);
    }

    #[test]
    fn a_receive_of_several_slots_may_step_over_the_border() {
        let mut wraps = Wraps::default();
        assert!(!wraps.on_posted(0, &(0..6), 8, 9));
        assert!(wraps.on_posted(5, &(6..12), 8, 9));
        assert!(!wraps.on_posted(6, &(12..16), 8, 9));
    }
}
