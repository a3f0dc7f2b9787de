//! Other flows that keep a queue, and whether they yield when it drops packets.
//!
//! A queue that stays although the flow sends no more than arrives is that of other flows. There are
//! two kinds, and a fair share beside one kind is none beside the other:
//!
//! - *Flows that yield*, as CUBIC or another bbr of this kind. A full queue drops packets, they send
//!   less, and for many cycles of probing nothing is dropped. They come back slowly, by filling what is
//!   free. Beside them a flow leaves some bandwidth, and probes no more than it needs to see that they
//!   have gone.
//! - *Flows that do not yield*, as BBR version 1, which loses packets in every cycle. They take free
//!   bandwidth at once, so leaving some only moves the share. Beside them a flow probes as often and as
//!   far as version 1 does.
//!
//! Measured: M-bbr-7.

/// Rounds of an even load after which a queue is another's: one's own has drained.
const QUEUED_ROUNDS: u64 = 5;
/// Cycles with drops, less those without, from which on the others count as not yielding, and the
/// most that are counted. Measured: M-bbr-8.
const UNMOVED_CYCLES: u32 = 4;
const UNMOVED_CYCLES_MAX: u32 = 8;

/// What the others do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// No others, or they keep no queue.
    Unseen,
    /// They keep a queue, and send less when it drops.
    Yielding,
    /// They keep a queue that drops again and again.
    Unmoved,
}

/// See the module's text.
#[derive(Debug, Clone, Default)]
pub(super) struct Crowd {
    /// Rounds in a row with an even load that had a queue.
    queued_rounds: u64,
    /// What the path lost by itself before there was such a queue. Later losses may be the others'
    /// doing.
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
