//! What a loss means. The draft takes 2 % of loss in a round trip for a sign of
//! too much in flight [5.5.10.2]; here that is a sign only of a path that loses.
//! Congestion is one of:
//!
//! - *loss with a queue*: more than 2 % is lost beyond the path's own loss while
//!   round trips are longer than the path. A queue that overflows is full, so
//!   the packets around a drop have waited in it, whatever it holds; packets lost
//!   on the way have not. The path's own loss is learnt while there is no queue,
//!   so that 5 % of it do not pass for an overflow when a queue stands for
//!   another reason;
//! - *marks*: more than 2 % of a round carry "congestion experienced". Whoever
//!   marks has a queue;
//! - *heavy loss*, a fifth of a thousand packets and of a round trip: nobody
//!   would want to run through it, and a policer that drops without a queue
//!   shows only so.
//!
//! What this gives up: a queue that holds less than a sixteenth of the path, or
//! a quarter of a millisecond, can overflow unnoticed up to that fifth. There
//! the rate is still bounded by what was delivered, as in BBR's first version.

use crate::path::controller::{RateSample, Sample};

/// `LossThresh` [2.9], parts per million.
const THRESHOLD_PPM: u64 = 20_000;
/// Loss that is congestion without any other sign.
const HEAVY_PPM: u64 = 200_000;
/// What a path may lose of its own, at most; what is more is not excused.
const OWN_LOSS_PPM_MAX: u64 = 150_000;
/// Packets in flight that the threshold counts at least: of a handful, one is
/// no rate.
const FEW_PACKETS: u64 = 128;
/// Packets that tell the path's own loss from chance.
const LEARN_PACKETS: u64 = 512;
/// Weight of the past in the mean of the own loss.
const LEARN_TIMES: u64 = 8;
/// A round trip is longer than the path if it is so by one part in 16,
const QUEUE_PART: u64 = 16;
/// by a quarter of a millisecond, which the hosts' scheduling takes,
const QUEUE_NS_MIN: u64 = 250_000;
/// and so are this many samples in turn: jitter is not. A round trip has some 16
/// reports, or one per millisecond.
const QUEUE_SAMPLES: u32 = 8;

/// See the module's text.
#[derive(Debug, Clone)]
pub(super) struct Congestion {
    packet_bytes: u64,
    /// Round trips in turn that were longer than the path.
    queued_samples: u32,
    /// Mean of what the path loses by itself, and how often it was learnt.
    own_loss_ppm: u64,
    learnt: u64,
    /// What is no sign of congestion: the own loss, and more after a burst.
    excused_ppm: u64,
    /// Sums since the own loss was last learnt, over whole rounds.
    delivered_bytes: u64,
    lost_bytes: u64,
    had_queue: bool,
    /// Sums of the round.
    round_delivered_bytes: u64,
    round_marked_bytes: u64,
    is_heavy: bool,
    /// The latest report is a sign of congestion.
    is_now: bool,
    /// One of the round's reports was.
    in_round: bool,
}

impl Congestion {
    pub(super) fn new(packet_bytes: u64) -> Self {
        Self {
            packet_bytes,
            queued_samples: 0,
            own_loss_ppm: 0,
            learnt: 0,
            excused_ppm: 0,
            delivered_bytes: 0,
            lost_bytes: 0,
            had_queue: false,
            round_delivered_bytes: 0,
            round_marked_bytes: 0,
            is_heavy: false,
            is_now: false,
            in_round: false,
        }
    }

    pub(super) fn on_report(&mut self, sample: &Sample, min_rtt_ns: u64, is_round_start: bool) {
        if let Some(rtt_ns) = sample.rtt_ns {
            let wait_ns = (min_rtt_ns / QUEUE_PART).max(QUEUE_NS_MIN);
            let is_longer = rtt_ns > min_rtt_ns + wait_ns;
            self.queued_samples = if is_longer { self.queued_samples + 1 } else { 0 };
        }
        self.had_queue |= self.has_queue();
        if is_round_start {
            self.round_delivered_bytes = 0;
            self.round_marked_bytes = 0;
            self.learn();
        }
        self.delivered_bytes += sample.newly_delivered_bytes;
        self.lost_bytes += sample.newly_lost_bytes;
        self.round_delivered_bytes += sample.newly_delivered_bytes;
        self.round_marked_bytes += sample.newly_marked_bytes;
        let is_marked = exceeds(self.round_marked_bytes, self.round_delivered_bytes, THRESHOLD_PPM);
        let overflows = sample.rate.as_ref().is_some_and(|rate| self.overflows(rate));
        self.is_now = is_marked || self.is_heavy || overflows;
        // What is told again of an older loss was answered already.
        self.in_round |= self.is_now && (sample.newly_lost_bytes > 0 || is_marked);
    }

    /// Whether a queue stands, by the latest samples.
    pub(super) fn has_queue(&self) -> bool {
        self.queued_samples >= QUEUE_SAMPLES
    }

    /// Whether more was lost of a round trip than the path loses by itself, with
    /// a queue.
    fn overflows(&self, rate: &RateSample) -> bool {
        let sent = rate.in_flight_bytes.max(FEW_PACKETS * self.packet_bytes);
        let allowed_ppm = THRESHOLD_PPM + self.excused_ppm;
        self.has_queue() && exceeds(rate.lost_bytes, sent, allowed_ppm)
    }

    /// At the start of a round: what of the last ones was the path's own loss.
    fn learn(&mut self) {
        self.is_heavy = false;
        let sent = self.delivered_bytes + self.lost_bytes;
        if sent < LEARN_PACKETS * self.packet_bytes {
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
        if !self.had_queue && !is_heavy {
            self.learnt = (self.learnt + 1).min(LEARN_TIMES);
            let step = |own: u64, part: u64| match loss_ppm > own {
                true => own + (loss_ppm - own) / part,
                false => own - (own - loss_ppm) / part,
            };
            self.own_loss_ppm = step(self.own_loss_ppm, self.learnt);
            // Losses come in bursts: excused soon, and for a while.
            let part = if loss_ppm > self.excused_ppm { 2 } else { LEARN_TIMES };
            self.excused_ppm = step(self.excused_ppm, part);
        }
        self.delivered_bytes = 0;
        self.lost_bytes = 0;
        self.had_queue = false;
    }

    /// What the path loses without any queue.
    pub(super) fn own_loss_ppm(&self) -> u64 {
        self.own_loss_ppm
    }

    /// `IsInflightTooHigh` [5.5.10.2], of the latest report.
    pub(super) fn is_now(&self) -> bool {
        self.is_now
    }

    /// Whether there was congestion since this was last asked.
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

    const MS: u64 = 1_000_000;
    const PACKET: u64 = 1500;

    /// A round of 1000 packets of which `lost` are lost, on a path of 40 ms.
    fn round(congestion: &mut Congestion, rtt_ms: u64, lost: u64, marked: u64) -> bool {
        for part in 0..10 {
            congestion.on_report(
                &Sample {
                    newly_delivered_bytes: (100 - lost / 10) * PACKET,
                    newly_lost_bytes: lost / 10 * PACKET,
                    newly_marked_bytes: marked / 10 * PACKET,
                    rtt_ns: Some(rtt_ms * MS),
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
    fn an_overflowing_queue_is_congestion() {
        let mut congestion = Congestion::new(PACKET);
        assert!(!round(&mut congestion, 40, 0, 0));
        assert!(round(&mut congestion, 44, 30, 0));
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
