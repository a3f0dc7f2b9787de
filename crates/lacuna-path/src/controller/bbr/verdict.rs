//! The verdict: conclusions from the reports about queue, losses and other flows, computed in one
//! place for all of bbr.
//!
//! | from | the verdict says |
//! |---|---|
//! | `congestion.rs` | whether a queue stands, whether too much was lost or marked, what the path loses by itself |
//! | `competing_flows.rs` | whether the queue is that of other flows, and whether they yield |
//! | `sudden_queue.rs` | whether a queue that came at once is being drained |
//! | `sibling_flows.rs` | whether flows of this host to the same peer have left room |
//!
//! The verdict is computed anew with each report, before anything else of bbr looks at that report.
//! Two events change a part of it later in the same report, both in the cycle of probing: the end
//! of a round tells whose queue there is, and the end of a cycle tells whether the competitors
//! yield.
//!
//! Invariant: [`Judge::verdict`] is what the four observers say now. No other file asks them.

use super::competing_flows::{CompetingFlows, Competitors};
use super::congestion::{Congestion, Load};
use super::sibling_flows::SiblingFlows;
use super::sudden_queue::SuddenQueue;
use super::{MIN_PACKETS, Sample};
use crate::delivery::rate_of;

/// Conclusions from the reports so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The latest round trips show a queue.
    pub(super) has_queue: bool,
    /// Competing flows that keep a queue.
    pub(super) competitors: Competitors,
    /// A sudden queue is being drained.
    pub(super) has_sudden_queue: bool,
    /// The latest report is a sign of congestion: `IsInflightTooHigh` [5.5.10.2].
    pub(super) is_congested: bool,
    /// Loss is heavy.
    pub(super) is_heavy: bool,
    /// The path's own loss, parts per million.
    pub(super) own_loss_ppm: u64,
}

impl Verdict {
    /// Whether competing flows keep a queue.
    pub(super) fn has_competitors(&self) -> bool {
        self.competitors != Competitors::Unseen
    }
}

/// The four observers, and the verdict.
#[derive(Debug, Clone)]
pub(super) struct Judge {
    congestion: Congestion,
    competing: CompetingFlows,
    sudden_queue: SuddenQueue,
    siblings: SiblingFlows,
    verdict: Verdict,
}

impl Judge {
    pub(super) fn new(packet_bytes: u64) -> Self {
        let (congestion, competing) = (Congestion::new(packet_bytes), CompetingFlows::default());
        let (sudden_queue, siblings) = (SuddenQueue::default(), SiblingFlows::default());
        let verdict = verdict_of(&congestion, &competing, &sudden_queue);
        Self { congestion, competing, sudden_queue, siblings, verdict }
    }

    pub(super) fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Takes in a report about this load. `is_drained`: no more is in flight than the path holds.
    pub(super) fn on_report(
        &mut self,
        sample: &Sample,
        min_rtt_ns: u64,
        is_round_start: bool,
        load: Load,
        is_drained: bool,
    ) {
        self.congestion.on_report(sample, min_rtt_ns, is_round_start, load);
        let has_queue = self.congestion.has_queue();
        let rtt_ns = sample.rtt_ns();
        self.sudden_queue.on_report(rtt_ns, min_rtt_ns, is_round_start, has_queue, is_drained);
        self.judge();
    }

    // ---- the cycle of probing ----

    /// A round of the cycle has ended. `is_even`: no more was sent in it than arrives.
    pub(super) fn on_round(&mut self, is_even: bool) {
        let is_even = is_even && !self.verdict.has_sudden_queue;
        self.competing.on_round(self.verdict.has_queue, is_even, self.verdict.own_loss_ppm);
        self.judge();
    }

    /// Counts a report's bytes for the cycle.
    pub(super) fn on_cycle_report(&mut self, delivered_bytes: u64, lost_bytes: u64) {
        self.competing.on_report(delivered_bytes, lost_bytes);
    }

    /// A cycle of probing has ended.
    pub(super) fn on_cycle(&mut self) {
        let congestion = &self.congestion;
        self.competing.on_cycle(|lost, sent, own_ppm| congestion.is_overflow(lost, sent, own_ppm));
        self.judge();
    }

    /// Whether to send less for some rounds, to measure the path's own loss.
    pub(super) fn wants_low_load(&self, now_ns: u64) -> bool {
        self.congestion.wants_low_load(now_ns)
    }

    /// Whether there was congestion since the last call.
    pub(super) fn take_round(&mut self) -> bool {
        self.congestion.take_round()
    }

    /// Discards the losses so far, whose cause is known.
    pub(super) fn forgive(&mut self) {
        self.congestion.forgive();
        self.judge();
    }

    // ---- siblings ----

    /// Sets the number of flows to the same peer with anything in flight, this one included.
    pub(super) fn set_flows(&mut self, flows: u32) {
        self.siblings.set_flows(flows);
    }

    /// Takes in a report for the observer of sibling flows.
    pub(super) fn note_siblings(&mut self, is_probing_up: bool, is_beginning: bool) {
        self.siblings.on_report(is_probing_up, is_beginning);
    }

    /// Whether siblings have left room and there is no queue, for a flow of this rate.
    pub(super) fn have_siblings_left_room(&self, now_ns: u64, rate: u64) -> bool {
        let is_quiet = !self.verdict.has_queue && !self.verdict.has_competitors();
        is_quiet && self.siblings.have_left_room(now_ns, rate)
    }

    /// Begins to double into the room that siblings have left.
    pub(super) fn begin_doubling(&mut self, now_ns: u64) {
        self.siblings.begin_doubling(now_ns);
    }

    /// Whether the flow is doubling.
    pub(super) fn is_doubling(&self) -> bool {
        self.siblings.is_doubling()
    }

    /// Probing upwards has ended and found this rate.
    pub(super) fn on_probed(&mut self, rate: u64) {
        self.siblings.on_probed(rate);
    }

    /// Lowest pacing rate of a flow with siblings: the smallest window [2.7] per round trip, its
    /// queue included, so that many siblings slow themselves down. Where their queue overflows
    /// again and again, the estimate falls below that rate, and one packet per round trip finds no
    /// bandwidth. 0 without siblings.
    pub(super) fn rate_min(&self, packet_bytes: u64, smoothed_rtt_ns: u64) -> u64 {
        match self.siblings.has_any() && smoothed_rtt_ns > 0 {
            true => rate_of(MIN_PACKETS * packet_bytes, smoothed_rtt_ns),
            false => 0,
        }
    }

    fn judge(&mut self) {
        self.verdict = verdict_of(&self.congestion, &self.competing, &self.sudden_queue);
    }
}

fn verdict_of(
    congestion: &Congestion,
    competing: &CompetingFlows,
    sudden_queue: &SuddenQueue,
) -> Verdict {
    Verdict {
        has_queue: congestion.has_queue(),
        competitors: competing.competitors(),
        has_sudden_queue: sudden_queue.is_draining(),
        is_congested: congestion.is_now(),
        is_heavy: congestion.is_heavy(),
        own_loss_ppm: congestion.own_loss_ppm(),
    }
}
