//! A trial that is being sent: the next packet, the probes that request an echo, and their round trips.
//!
//! Echoes are requested at random, because periodic samples may coincide with a periodic disturbance
//! (RFC 2330, 11.1); and not more than about [`ECHOES_MAX`], so that the reverse path carries little.

use super::Trial;
use crate::PACKETS_MAX;
use crate::counted::Counted;
use crate::host::HostDrops;
use crate::wire::{Message, TrialPlan};

/// Round trips per trial, about: enough for the 99.9th percentile.
const ECHOES_MAX: u64 = 8192;

/// The current trial; see the module's text.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) number: u32,
    pub(super) plan: TrialPlan,
    pub(super) begins_ns: u64,
    /// When it should end, …
    pub(super) ends_ns: u64,
    /// … and when it did.
    pub(super) ended_ns: u64,
    pub(super) sent: u32,
    /// Of these, packets that this host refused.
    pub(super) refused: u64,
    /// This host's drop counters at the beginning.
    pub(super) drops_before: Option<HostDrops>,
    /// Drops of this host during the trial, once it is over.
    pub(super) drops: HostDrops,
    echoes: Vec<Echo>,
    /// A probe requests an echo if its random draw of 64 bits is not above this.
    threshold: u64,
    seed: u64,
}

/// A requested echo.
#[derive(Debug)]
struct Echo {
    index: u32,
    sent_ns: u64,
    rtt_ns: Option<u64>,
}

impl Sending {
    /// A trial of about `packets`.
    pub(super) fn new(number: u32, plan: TrialPlan, now_ns: u64, seed: u64, packets: u64) -> Self {
        let threshold = match packets {
            0..=ECHOES_MAX => u64::MAX,
            packets => u64::MAX / packets * ECHOES_MAX,
        };
        Self {
            number,
            plan,
            begins_ns: now_ns,
            ends_ns: now_ns.saturating_add(plan.duration_ns),
            ended_ns: now_ns,
            sent: 0,
            refused: 0,
            drops_before: None,
            drops: HostDrops::default(),
            echoes: Vec::new(),
            threshold,
            seed: seed ^ u64::from(number) << 32,
        }
    }

    /// Whether the trial has its most packets.
    pub(super) fn is_full(&self) -> bool {
        self.sent == PACKETS_MAX
    }

    /// The next probe and its lane.
    pub(super) fn next(&mut self, now_ns: u64) -> (Message, usize) {
        let index = self.sent;
        self.sent += 1;
        let wants_echo = mix(self.seed.wrapping_add(u64::from(index))) <= self.threshold;
        if wants_echo {
            self.echoes.push(Echo { index, sent_ns: now_ns, rtt_ns: None });
        }
        let lane = 1 + index as usize % usize::from(self.plan.flows);
        let bytes = self.plan.payload_bytes;
        let trial = self.number;
        (Message::Probe { trial, index, sent_ns: now_ns, wants_echo, bytes }, lane)
    }

    /// An echo has arrived; false if it was not requested, or arrived before.
    pub(super) fn on_echo(&mut self, index: u32, sent_ns: u64, rtt_ns: u64) -> bool {
        let at = self.echoes.binary_search_by_key(&index, |echo| echo.index);
        match at.ok().and_then(|at| self.echoes.get_mut(at)) {
            Some(echo) if echo.sent_ns == sent_ns && echo.rtt_ns.is_none() => {
                echo.rtt_ns = Some(rtt_ns);
                true
            }
            _ => false,
        }
    }

    pub(super) fn into_trial(self, began_ns: u64, counted: Counted) -> Trial {
        Trial {
            number: self.number,
            payload_bytes: self.plan.payload_bytes,
            flows: self.plan.flows,
            begins_ns: self.begins_ns.saturating_sub(began_ns),
            duration_ns: self.ended_ns.saturating_sub(self.begins_ns),
            sent: self.sent,
            refused: self.refused,
            counted,
            rtts_ns: self.echoes.iter().filter_map(|echo| echo.rtt_ns).collect(),
            sender_drops: self.drops,
        }
    }
}

/// `SplitMix64` (Steele, Lea and Flood 2014): the n-th number without the ones before it.
fn mix(n: u64) -> u64 {
    let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending(packets: u64) -> Sending {
        let plan = TrialPlan { payload_bytes: 100, flows: 3, duration_ns: 1000 };
        Sending::new(1, plan, 0, 7, packets)
    }

    #[test]
    fn flows_take_turns() {
        let mut sending = sending(10);
        let lanes: Vec<usize> = (0..7).map(|_| sending.next(0).1).collect();
        assert_eq!(lanes, [1, 2, 3, 1, 2, 3, 1]);
    }

    #[test]
    fn a_short_trial_has_every_probe_answered_and_a_long_one_a_sample() {
        let mut few = sending(100);
        (0..100).for_each(|at| drop(few.next(at)));
        assert_eq!(few.echoes.len(), 100);
        let mut many = sending(1_000_000);
        (0..1_000_000).for_each(|at| drop(many.next(at)));
        assert!((8000..8400).contains(&many.echoes.len()), "{}", many.echoes.len());
    }

    #[test]
    fn only_the_first_answer_to_a_probe_counts_and_only_if_it_was_asked_for() {
        let mut sending = sending(10);
        (0..3).for_each(|at| drop(sending.next(at)));
        assert!(!sending.on_echo(1, 9, 50), "another time than the probe's");
        assert!(!sending.on_echo(7, 1, 50), "never sent");
        assert!(sending.on_echo(1, 1, 50));
        assert!(!sending.on_echo(1, 1, 90), "a second time");
        assert_eq!(sending.into_trial(0, Counted::default()).rtts_ns, [50]);
    }
}
