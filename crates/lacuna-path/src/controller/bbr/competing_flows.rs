//! Detects competing flows that keep a queue, and whether they yield when the queue drops packets.
//!
//! If a queue stays although this flow sends no more than arrives, competing flows keep it. There are
//! two kinds, which need different behaviour for a fair share:
//!
//! - *Yielding flows*, such as CUBIC or this bbr. When a full queue drops packets they send less, and
//!   nothing is dropped for many cycles of probing. They regain bandwidth slowly. Beside them, a flow
//!   leaves some bandwidth, and probes only as much as it needs to detect that they have gone.
//! - *Unyielding flows*, such as BBR version 1, which causes drops in every cycle. They take free
//!   bandwidth at once, so leaving some only lowers the own share. Beside them, a flow probes as often
//!   and as far as version 1 does.
//!
//! Measured: M-bbr-7.

/// Rounds of an even load after which a queue is that of competitors, because the flow's own has
/// drained.
const QUEUED_ROUNDS: u64 = 5;
/// Cycles with drops, less those without, from which on the competitors count as unyielding, and
/// the largest count. Measured: M-bbr-8.
const UNYIELDING_CYCLES: u32 = 4;
const UNYIELDING_CYCLES_MAX: u32 = 8;

/// Behaviour of competing flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Competitors {
    /// There are none, or they keep no queue.
    Unseen,
    /// They keep a queue, and send less when it drops packets.
    Yielding,
    /// They keep a queue that drops packets again and again.
    Unyielding,
}

/// Observer of competing flows.
#[derive(Debug, Clone, Default)]
pub(super) struct CompetingFlows {
    /// Rounds in a row with an even load and a queue.
    queued_rounds: u64,
    /// The path's own loss before there was such a queue. Later losses may be the competitors'
    /// doing.
    own_loss_ppm: u64,
    /// Bytes delivered and lost in this cycle while the queue was that of competitors.
    delivered_bytes: u64,
    lost_bytes: u64,
    /// Cycles in which the queue dropped packets, less those in which it did not.
    dropped_cycles: u32,
}

impl CompetingFlows {
    pub(super) fn competitors(&self) -> Competitors {
        if self.queued_rounds < QUEUED_ROUNDS {
            Competitors::Unseen
        } else if self.dropped_cycles < UNYIELDING_CYCLES {
            Competitors::Yielding
        } else {
            Competitors::Unyielding
        }
    }

    fn have_queue(&self) -> bool {
        self.competitors() != Competitors::Unseen
    }

    /// A round has ended. `is_even`: no more was sent in it than arrives. `own_loss_ppm` is the
    /// current estimate of the path's own loss.
    pub(super) fn on_round(&mut self, has_queue: bool, is_even: bool, own_loss_ppm: u64) {
        if !has_queue {
            self.queued_rounds = 0;
        } else if is_even {
            self.queued_rounds += 1;
        }
        if !self.have_queue() {
            self.own_loss_ppm = own_loss_ppm;
        }
    }

    /// Counts the bytes of a report.
    pub(super) fn on_report(&mut self, delivered_bytes: u64, lost_bytes: u64) {
        if self.have_queue() {
            self.delivered_bytes += delivered_bytes;
            self.lost_bytes += lost_bytes;
        }
    }

    /// A cycle of probing has ended. `is_overflow` tells from the bytes lost, the bytes sent, and
    /// the path's own loss whether a queue dropped packets.
    pub(super) fn on_cycle(&mut self, is_overflow: impl FnOnce(u64, u64, u64) -> bool) {
        let lost_bytes = std::mem::take(&mut self.lost_bytes);
        let sent_bytes = std::mem::take(&mut self.delivered_bytes) + lost_bytes;
        self.dropped_cycles = match is_overflow(lost_bytes, sent_bytes, self.own_loss_ppm) {
            true => (self.dropped_cycles + 1).min(UNYIELDING_CYCLES_MAX),
            false => self.dropped_cycles.saturating_sub(1),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowded() -> CompetingFlows {
        let mut competing = CompetingFlows::default();
        for _ in 0..QUEUED_ROUNDS {
            assert_eq!(competing.competitors(), Competitors::Unseen);
            competing.on_round(true, true, 0);
        }
        competing
    }

    fn cycle(competing: &mut CompetingFlows, drops: bool) -> Competitors {
        competing.on_report(1000, if drops { 10 } else { 0 });
        competing.on_cycle(|lost_bytes, sent_bytes, _| lost_bytes * 200 > sent_bytes);
        competing.competitors()
    }

    #[test]
    fn a_queue_that_stays_is_of_others_until_it_is_gone() {
        let mut competing = crowded();
        assert_eq!(competing.competitors(), Competitors::Yielding);
        // Probing makes one of its own, which says nothing.
        competing.on_round(true, false, 0);
        assert_eq!(competing.competitors(), Competitors::Yielding);
        competing.on_round(false, true, 0);
        assert_eq!(competing.competitors(), Competitors::Unseen);
    }

    #[test]
    fn drops_in_every_cycle_are_of_who_does_not_yield() {
        let mut competing = crowded();
        for _ in 1..UNYIELDING_CYCLES {
            assert_eq!(cycle(&mut competing, true), Competitors::Yielding);
        }
        assert_eq!(cycle(&mut competing, true), Competitors::Unyielding);
        for _ in 0..10 {
            cycle(&mut competing, true);
        }
        // One cycle without is the round trip being looked for.
        assert_eq!(cycle(&mut competing, false), Competitors::Unyielding);
        for _ in 0..UNYIELDING_CYCLES_MAX {
            cycle(&mut competing, false);
        }
        assert_eq!(competing.competitors(), Competitors::Yielding);
    }

    #[test]
    fn drops_now_and_then_are_of_who_yields() {
        let mut competing = crowded();
        for _ in 0..20 {
            for drops in [true, true, false, false] {
                assert_eq!(cycle(&mut competing, drops), Competitors::Yielding);
            }
        }
    }

    #[test]
    fn drops_of_a_queue_of_ones_own_do_not_count() {
        let mut competing = CompetingFlows::default();
        for _ in 0..20 {
            assert_eq!(cycle(&mut competing, true), Competitors::Unseen);
        }
        assert_eq!(competing.dropped_cycles, 0);
    }
}
