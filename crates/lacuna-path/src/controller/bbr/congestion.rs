//! Decides whether losses and marks are a sign of congestion.
//!
//! The draft takes 2 % of loss in a round trip for too much in flight [5.5.10.2]. Here that alone is
//! only the sign of a path that loses packets. Congestion is one of:
//!
//! - *Loss with a queue*: more than 2 % is lost beyond the path's own loss while round trips are
//!   longer than the path's. A queue that overflows is full, so the packets around a drop have
//!   waited in it, however long it is. Packets around a loss elsewhere have not.
//! - *Loss that grows with what is sent*: a queue too short to be seen, or a policer without one, drops
//!   what is sent too fast. The sign is more than 2 % beyond the own loss in one round of probing
//!   upwards, or in two rounds in a row at any other time: a burst of losses passes, an overflow stays.
//! - *Marks*: more than 2 % of a round carry "congestion experienced". A router that marks has a
//!   queue.
//! - *Heavy loss*: a fifth of a thousand packets and of a round trip. No sender should go on
//!   through it.
//!
//! The path's *own loss* is the loss that remains when less is sent than the path carries. Only
//! rounds with less (Down, and after a cut) raise it, and it is believed for a while then; any
//! round may lower it. So an overflow does not count as own loss. A path that begins to lose
//! packets costs one cut, which shows that sending less does not help; Down lasts some rounds
//! longer to see that. "More" leaves three standard deviations of independent losses to chance: of
//! 128 packets at 5 %, ten are often lost.

use crate::controller::{RateSample, Sample};

/// `LossThresh` [2.9], parts per million.
const THRESHOLD_PPM: u64 = 20_000;
/// The same for a whole cycle of probing beside competing flows that keep a queue, which drops
/// little at a time. Measured: M-bbr-15.
const CYCLE_THRESHOLD_PPM: u64 = 2_500;
/// Loss that is congestion without any other sign.
const HEAVY_PPM: u64 = 200_000;
/// Largest own loss; more is not excused.
const OWN_LOSS_PPM_MAX: u64 = 150_000;
/// Own loss from which on it is measured again, and how often, because routes change.
const WORTH_PPM: u64 = 10_000;
const BELIEVED_NS: u64 = 10_000_000_000;
/// The threshold is computed on at least this many packets: one of a handful is no rate.
const FEW_PACKETS: u64 = 128;
/// Packets needed to tell the path's own loss from chance.
const LEARN_PACKETS: u64 = 512;
/// Weight of the past in the mean of the own loss.
const LEARN_TIMES: u64 = 8;
/// Rounds in a row with more than the own loss that are not a burst any more.
const SUSPECT_ROUNDS: u32 = 2;
/// A round trip shows a queue if it is longer than the smallest one by a sixteenth,
const QUEUE_PART: u64 = 16;
/// by a fifth of a millisecond, which hosts' scheduling takes (measured: M-bbr-9),
const QUEUE_NS_MIN: u64 = 200_000;
/// and this many samples in a row are: jitter does not last. A round trip has some 16 reports, or
/// one per millisecond.
const QUEUE_SAMPLES: u32 = 8;

/// How much was sent when the reported packets left, a round trip ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Not known yet.
    Start,
    /// Less than the estimate of the path.
    Low,
    /// As much as the estimate.
    Even,
    /// More than the estimate.
    Probing,
}

/// Observer of losses, marks and queues.
#[derive(Debug, Clone)]
pub(super) struct Congestion {
    packet_bytes: u64,
    /// Samples in a row that showed a queue.
    queued_samples: u32,
    /// Mean of the path's own loss.
    own_loss_ppm: u64,
    learnt: u64,
    seen_ns: Option<u64>,
    /// Loss that is no sign of congestion beside a queue: the own loss, and more after a burst.
    excused_ppm: u64,
    /// Sums since the own loss was last learnt, over whole rounds.
    delivered_bytes: u64,
    lost_bytes: u64,
    had_queue: bool,
    was_low: bool,
    /// Sums of the round.
    round_delivered_bytes: u64,
    round_lost_bytes: u64,
    round_marked_bytes: u64,
    /// Rounds in a row that lost more than the own loss.
    suspect_rounds: u32,
    /// There was such a round since the own loss was last measured.
    is_doubted: bool,
    /// The latest round was one too many of them.
    is_suspect: bool,
    is_heavy: bool,
    /// The latest report is a sign of congestion.
    is_now: bool,
    /// One of the round's reports was such a sign.
    in_round: bool,
}

impl Congestion {
    pub(super) fn new(packet_bytes: u64) -> Self {
        Self {
            packet_bytes,
            queued_samples: 0,
            own_loss_ppm: 0,
            learnt: 0,
            seen_ns: None,
            excused_ppm: 0,
            delivered_bytes: 0,
            lost_bytes: 0,
            had_queue: false,
            was_low: false,
            round_delivered_bytes: 0,
            round_lost_bytes: 0,
            round_marked_bytes: 0,
            suspect_rounds: 0,
            is_doubted: false,
            is_suspect: false,
            is_heavy: false,
            is_now: false,
            in_round: false,
        }
    }

    pub(super) fn on_report(
        &mut self,
        sample: &Sample,
        min_rtt_ns: u64,
        is_round_start: bool,
        load: Load,
    ) {
        if let Some(rtt_ns) = sample.rtt_ns() {
            let wait_ns = (min_rtt_ns / QUEUE_PART).max(QUEUE_NS_MIN);
            let is_longer = rtt_ns > min_rtt_ns.saturating_add(wait_ns);
            self.queued_samples = if is_longer { self.queued_samples + 1 } else { 0 };
        }
        self.had_queue |= self.has_queue();
        if is_round_start {
            self.suspect(load);
            self.round_marked_bytes = 0;
            self.learn(sample.now_ns, load);
        }
        if load == Load::Low && !self.was_low {
            // Samples from before say nothing about low load.
            self.restart_learning();
        }
        self.was_low = load == Load::Low;
        self.delivered_bytes += sample.newly_delivered_bytes;
        self.lost_bytes += sample.newly_lost_bytes;
        self.round_delivered_bytes += sample.newly_delivered_bytes;
        self.round_lost_bytes += sample.newly_lost_bytes;
        self.round_marked_bytes += sample.newly_marked_bytes;
        let is_marked = exceeds(self.round_marked_bytes, self.round_delivered_bytes, THRESHOLD_PPM);
        let overflows = sample.rate.as_ref().is_some_and(|rate| self.overflows(rate));
        self.is_now = is_marked || self.is_heavy || self.is_suspect || overflows;
        // A loss that is reported again was answered already.
        self.in_round |= self.is_now && (sample.newly_lost_bytes > 0 || is_marked);
    }

    /// Whether the latest samples show a queue.
    pub(super) fn has_queue(&self) -> bool {
        self.queued_samples >= QUEUE_SAMPLES
    }

    /// Whether more of a round trip was lost, with a queue, than the path loses by itself.
    fn overflows(&self, rate: &RateSample) -> bool {
        let sent = rate.in_flight_bytes.max(FEW_PACKETS * self.packet_bytes);
        let allowed_ppm = THRESHOLD_PPM + self.excused_ppm;
        self.has_queue() && self.differs(rate.lost_bytes, sent, allowed_ppm)
    }

    /// At the start of a round: whether the last one lost more than the own loss.
    fn suspect(&mut self, load: Load) {
        let sent = self.round_delivered_bytes + self.round_lost_bytes;
        if sent < FEW_PACKETS * self.packet_bytes {
            return;
        }
        let is_more = self.differs(self.round_lost_bytes, sent, self.own_loss_ppm + THRESHOLD_PPM);
        let is_more = is_more && matches!(load, Load::Even | Load::Probing);
        self.suspect_rounds = if is_more { self.suspect_rounds + 1 } else { 0 };
        self.is_doubted |= is_more;
        let rounds = if load == Load::Probing { 1 } else { SUSPECT_ROUNDS };
        self.is_suspect = self.suspect_rounds >= rounds;
        self.round_delivered_bytes = 0;
        self.round_lost_bytes = 0;
    }

    /// Whether losses of a cycle of probing are more than a path with this own loss has: a queue
    /// has dropped packets.
    pub(super) fn is_overflow(&self, lost_bytes: u64, sent_bytes: u64, own_ppm: u64) -> bool {
        self.differs(lost_bytes, sent_bytes, own_ppm + CYCLE_THRESHOLD_PPM)
    }

    /// Whether the losses are more than this share, and not by chance.
    fn differs(&self, lost_bytes: u64, sent_bytes: u64, share_ppm: u64) -> bool {
        let (lost, sent) = (lost_bytes / self.packet_bytes, sent_bytes / self.packet_bytes);
        let expected = u128::from(sent) * u128::from(share_ppm);
        // Three standard deviations, in millionths of packets.
        let chance = 3 * (expected * 1_000_000).isqrt();
        u128::from(lost) * 1_000_000 > expected + chance
    }

    /// At the start of a round: learns the path's own loss from the last rounds.
    fn learn(&mut self, now_ns: u64, load: Load) {
        self.is_heavy = false;
        let sent = self.delivered_bytes + self.lost_bytes;
        let is_low = load == Load::Low && self.was_low;
        let enough = if is_low { FEW_PACKETS } else { LEARN_PACKETS };
        if sent < enough * self.packet_bytes {
            return;
        }
        let is_many = sent >= 2 * LEARN_PACKETS * self.packet_bytes;
        let is_heavy = exceeds(self.lost_bytes, sent, HEAVY_PPM);
        if is_heavy && !is_many {
            return;
        }
        self.is_heavy = is_heavy;
        let loss_ppm = u128::from(self.lost_bytes) * 1_000_000 / u128::from(sent);
        let loss_ppm = (loss_ppm as u64).min(OWN_LOSS_PPM_MAX);
        let step = |own: u64, part: u64| match loss_ppm > own {
            true => own + (loss_ppm - own) / part,
            false => own - (own - loss_ppm) / part,
        };
        if (is_low || !self.had_queue) && !is_heavy {
            self.learnt = (self.learnt + 1).min(LEARN_TIMES);
            if is_low {
                let part = if self.is_doubted { 1 } else { 2 };
                self.own_loss_ppm = step(self.own_loss_ppm, part);
                self.seen_ns = Some(now_ns);
                self.is_doubted = false;
            } else if self.seen_ns.is_none()
                || !self.differs(self.lost_bytes, sent, self.own_loss_ppm)
            {
                self.own_loss_ppm = step(self.own_loss_ppm, self.learnt);
            }
            // Losses come in bursts: excuse them soon, and for a while.
            let part = if loss_ppm > self.excused_ppm { 2 } else { LEARN_TIMES };
            self.excused_ppm = step(self.excused_ppm, part);
        }
        self.restart_learning();
    }

    /// Discards the losses so far, whose cause is known.
    pub(super) fn forgive(&mut self) {
        *self = Self { queued_samples: self.queued_samples, ..Self::new(self.packet_bytes) };
    }

    fn restart_learning(&mut self) {
        self.delivered_bytes = 0;
        self.lost_bytes = 0;
        self.had_queue = false;
    }

    /// Whether loss is heavy.
    pub(super) fn is_heavy(&self) -> bool {
        self.is_heavy
    }

    /// The path's own loss.
    pub(super) fn own_loss_ppm(&self) -> u64 {
        self.own_loss_ppm
    }

    /// Whether to send less for some rounds, to measure the own loss.
    pub(super) fn wants_low_load(&self, now_ns: u64) -> bool {
        let is_old =
            self.seen_ns.is_none_or(|seen_ns| now_ns.saturating_sub(seen_ns) > BELIEVED_NS);
        self.is_doubted || (is_old && self.own_loss_ppm >= WORTH_PPM)
    }

    /// `IsInflightTooHigh` [5.5.10.2], of the latest report.
    pub(super) fn is_now(&self) -> bool {
        self.is_now
    }

    /// Whether there was congestion since the last call.
    pub(super) fn take_round(&mut self) -> bool {
        std::mem::take(&mut self.in_round)
    }
}

fn exceeds(part: u64, whole: u64, limit_ppm: u64) -> bool {
    u128::from(part) * 1_000_000 > u128::from(whole) * u128::from(limit_ppm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::RoundTrips;

    const MS: u64 = 1_000_000;
    const PACKET: u64 = 1500;

    /// A round of 1000 packets of which `lost` are lost, on a path of 40 ms.
    fn round(congestion: &mut Congestion, rtt_ms: u64, lost: u64, marked: u64) -> bool {
        loaded_round(congestion, rtt_ms, lost, marked, Load::Even)
    }

    fn loaded_round(
        congestion: &mut Congestion,
        rtt_ms: u64,
        lost: u64,
        marked: u64,
        load: Load,
    ) -> bool {
        for part in 0..10 {
            congestion.on_report(
                &Sample {
                    newly_delivered_bytes: (100 - lost / 10) * PACKET,
                    newly_lost_bytes: lost / 10 * PACKET,
                    newly_marked_bytes: marked / 10 * PACKET,
                    round_trips: Some(RoundTrips::one(rtt_ms * MS)),
                    rate: Some(RateSample {
                        rate: 0,
                        delivered_bytes: 0,
                        prior_delivered_bytes: 0,
                        lost_bytes: lost * PACKET,
                        in_flight_bytes: 1000 * PACKET,
                        is_app_limited: false,
                        late_ns: 0,
                    }),
                    ..Sample::default()
                },
                40 * MS,
                part == 0,
                load,
            );
        }
        congestion.take_round()
    }

    #[test]
    fn loss_without_a_queue_is_no_congestion() {
        let mut congestion = Congestion::new(PACKET);
        for _ in 0..100 {
            assert!(!round(&mut congestion, 40, 50, 0));
        }
        // And is not when a queue stands for another reason.
        assert!(!round(&mut congestion, 50, 50, 0));
    }

    #[test]
    fn loss_that_comes_with_the_load_is_congestion_without_any_queue() {
        let mut congestion = Congestion::new(PACKET);
        for _ in 0..10 {
            for _ in 0..3 {
                loaded_round(&mut congestion, 40, 0, 0, Load::Low);
            }
            for _ in 0..3 {
                round(&mut congestion, 40, 50, 0);
            }
            assert!(round(&mut congestion, 40, 50, 0));
            assert!(congestion.own_loss_ppm() < 1000, "{}", congestion.own_loss_ppm());
            assert!(congestion.wants_low_load(0));
        }
    }

    #[test]
    fn a_path_that_begins_to_lose_is_taken_for_congested_once() {
        let mut congestion = Congestion::new(PACKET);
        for load in [Load::Even, Load::Even, Load::Low, Load::Low, Load::Low, Load::Even] {
            loaded_round(&mut congestion, 40, 0, 0, load);
        }
        let mut is_congested = false;
        for _ in 0..4 {
            is_congested = round(&mut congestion, 40, 50, 0);
        }
        assert!(is_congested && congestion.wants_low_load(0));
        // Sending less does not help.
        for _ in 0..4 {
            loaded_round(&mut congestion, 40, 50, 0, Load::Low);
        }
        assert!(!congestion.wants_low_load(0));
        for _ in 0..20 {
            assert!(!round(&mut congestion, 40, 50, 0));
        }
    }

    #[test]
    fn a_burst_of_losses_is_no_congestion() {
        let mut congestion = Congestion::new(PACKET);
        for _ in 0..50 {
            assert!(!round(&mut congestion, 40, 0, 0));
            assert!(!round(&mut congestion, 40, 100, 0));
            assert!(!round(&mut congestion, 40, 0, 0));
        }
    }

    #[test]
    fn an_overflowing_queue_is_congestion() {
        let mut congestion = Congestion::new(PACKET);
        assert!(!round(&mut congestion, 40, 0, 0));
        assert!(round(&mut congestion, 44, 40, 0));
        // On a path with 1 % of its own too.
        for _ in 0..20 {
            round(&mut congestion, 40, 10, 0);
        }
        assert!(!round(&mut congestion, 44, 20, 0));
        assert!(round(&mut congestion, 44, 50, 0));
    }

    #[test]
    fn marks_and_heavy_loss_need_no_queue() {
        let mut congestion = Congestion::new(PACKET);
        assert!(!round(&mut congestion, 40, 0, 10));
        assert!(round(&mut congestion, 40, 0, 100));
        round(&mut congestion, 40, 300, 0);
        round(&mut congestion, 40, 300, 0);
        assert!(round(&mut congestion, 40, 300, 0));
    }
}
