//! Others on the path who keep a queue, and how they take what the queue drops.
//!
//! A queue that stays although no more is sent than arrives is not one's own. What
//! keeps it there is one of two, and what is a fair share beside the one is none
//! beside the other:
//!
//! - *who yields*, as CUBIC or a flow like this one: a full queue drops, they send
//!   less, and for many cycles of probing nothing drops. They come back slowly, by
//!   filling what is left free: beside them a flow leaves some, and does not probe
//!   for more than it needs to see that they have gone;
//! - *who does not*, as version 1, of which every cycle is dropped something. It
//!   takes any room at once, so that leaving some only moves the share: beside it a
//!   flow probes as often and as far as version 1 does itself.
//!
//! Over an emulated path of 40 ms with a queue of as much, beside Linux' TCP for 30 s,
//! a flow that did not tell them apart had 0.1 to 0.45 of the path beside bbr and
//! 0.5 to 0.8 beside cubic; with version 1's manners for both it would have, in the
//! simulation, 0.6 and 0.88.

/// Rounds of an even load after which a queue is another's: one's own has drained.
const QUEUED_ROUNDS: u64 = 5;
/// Cycles with drops, less those without, from which on nobody yields, and the
/// most that are counted. In the simulation three are enough beside CUBIC, but two
/// flows of this kind then share 0.38 to 0.62, with four 0.4 to 0.6. The most is so
/// that version 1, which makes way for a fifth of a second every ten, is not
/// mistaken for another after one cycle.
const UNMOVED_CYCLES: u32 = 4;
const UNMOVED_CYCLES_MAX: u32 = 8;

/// What the others do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// They keep no queue, or there are none.
    Unseen,
    /// They keep a queue, and send less when it drops.
    Yielding,
    /// They keep a queue that drops again and again.
    Unmoved,
}

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd {
    /// Rounds in turn, of those with an even load, that had a queue.
    queued_rounds: u64,
    /// What the path lost by itself before there was such a queue. What is lost
    /// since, whatever is sent here, may be the others' doing.
    own_loss_ppm: u64,
    /// What came and what was lost in this cycle while the queue was another's.
    delivered_bytes: u64,
    lost_bytes: u64,
    /// Cycles in which the queue dropped, less those in which it did not.
    dropped_cycles: u32,
}

impl Crowd {
    pub(super) fn others(&self) -> Others {
        if self.queued_rounds < QUEUED_ROUNDS {
            Others::Unseen
        } else if self.dropped_cycles < UNMOVED_CYCLES {
            Others::Yielding
        } else {
            Others::Unmoved
        }
    }

    fn is_there(&self) -> bool {
        self.others() != Others::Unseen
    }

    /// A round has ended, `is_even` if no more was sent in it than arrives, on a path
    /// that is now believed to lose so much by itself.
    pub(super) fn on_round(&mut self, has_queue: bool, is_even: bool, own_loss_ppm: u64) {
        if !has_queue {
            self.queued_rounds = 0;
        } else if is_even {
            self.queued_rounds += 1;
        }
        if !self.is_there() {
            self.own_loss_ppm = own_loss_ppm;
        }
    }

    /// So much came, and so much was lost.
    pub(super) fn on_report(&mut self, delivered_bytes: u64, lost_bytes: u64) {
        if self.is_there() {
            self.delivered_bytes += delivered_bytes;
            self.lost_bytes += lost_bytes;
        }
    }

    /// A cycle of probing has ended. `is_overflow` tells of what was lost, of what
    /// was sent, and of what the path loses by itself, whether a queue dropped.
    pub(super) fn on_cycle(&mut self, is_overflow: impl FnOnce(u64, u64, u64) -> bool) {
        let lost_bytes = std::mem::take(&mut self.lost_bytes);
        let sent_bytes = std::mem::take(&mut self.delivered_bytes) + lost_bytes;
        self.dropped_cycles = match is_overflow(lost_bytes, sent_bytes, self.own_loss_ppm) {
            true => (self.dropped_cycles + 1).min(UNMOVED_CYCLES_MAX),
            false => self.dropped_cycles.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowded() -> Crowd {
        let mut crowd = Crowd::default();
        for _ in 0..QUEUED_ROUNDS {
            assert_eq!(crowd.others(), Others::Unseen);
            crowd.on_round(true, true, 0);
        }
        crowd
    }

    fn cycle(crowd: &mut Crowd, drops: bool) -> Others {
        crowd.on_report(1000, if drops { 10 } else { 0 });
        crowd.on_cycle(|lost_bytes, sent_bytes, _| lost_bytes * 200 > sent_bytes);
        crowd.others()
    }

    #[test]
    fn a_queue_that_stays_is_of_others_until_it_is_gone() {
        let mut crowd = crowded();
        assert_eq!(crowd.others(), Others::Yielding);
        // Probing makes one of its own, which says nothing.
        crowd.on_round(true, false, 0);
        assert_eq!(crowd.others(), Others::Yielding);
        crowd.on_round(false, true, 0);
        assert_eq!(crowd.others(), Others::Unseen);
    }

    #[test]
    fn drops_in_every_cycle_are_of_who_does_not_yield() {
        let mut crowd = crowded();
        for _ in 1..UNMOVED_CYCLES {
            assert_eq!(cycle(&mut crowd, true), Others::Yielding);
        }
        assert_eq!(cycle(&mut crowd, true), Others::Unmoved);
        for _ in 0..10 {
            cycle(&mut crowd, true);
        }
        // One cycle without is the round trip being looked for.
        assert_eq!(cycle(&mut crowd, false), Others::Unmoved);
        for _ in 0..UNMOVED_CYCLES_MAX {
            cycle(&mut crowd, false);
        }
        assert_eq!(crowd.others(), Others::Yielding);
    }

    #[test]
    fn drops_now_and_then_are_of_who_yields() {
        let mut crowd = crowded();
        for _ in 0..20 {
            for drops in [true, true, false, false] {
                assert_eq!(cycle(&mut crowd, drops), Others::Yielding);
            }
        }
    }

    #[test]
    fn drops_of_a_queue_of_ones_own_do_not_count() {
        let mut crowd = Crowd::default();
        for _ in 0..20 {
            assert_eq!(cycle(&mut crowd, true), Others::Unseen);
        }
        assert_eq!(crowd.dropped_cycles, 0);
    }
}
