//! What the reports say of the path: one verdict, which the rest of bbr reads.
//!
//! | from | the verdict says |
//! |---|---|
//! | `congestion.rs` | whether a queue stands, whether too much was lost or marked, what the path loses by itself |
//! | `crowd.rs` | whether the queue is that of other flows, and whether they yield |
//! | `surge.rs` | whether a queue that came at once is being drained |
//! | `sibling_flows.rs` | whether flows of this host to the same peer have left room |
//!
//! The verdict is made anew with each report, before anything else of bbr looks at that report. Two
//! events change a part of it later in the same report, both in the cycle of probing: a round that
//! has ended tells whose queue stands, and a cycle that has ended tells whether the others yield.
//!
//! Invariant: [`Judge::verdict`] is what the four observers say now. No other file asks them.

use super::congestion::{Congestion, Load};
use super::crowd::{Crowd, Others};
use super::sibling_flows::SiblingFlows;
use super::surge::Surge;
use super::{MIN_PACKETS, Sample};
use crate::delivery::rate_of;

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// A queue stands, by the latest round trips.
    pub(super) has_queue: bool,
    /// Other flows that keep a queue.
    pub(super) others: Others,
    /// A queue that came at once is being drained.
    pub(super) is_surging: bool,
    /// The latest report is a sign of congestion: `IsInflightTooHigh` [5.5.10.2].
    pub(super) is_congested: bool,
    /// So much is lost that nobody would run through it.
    pub(super) is_heavy: bool,
    /// What the path loses without any queue, parts per million.
    pub(super) own_loss_ppm: u64,
}

impl Verdict {
    /// Whether other flows keep a queue.
    pub(super) fn has_others(&self) -> bool {
        self.others != Others::Unseen
    }
}

/// The four observers and what they say.
#[derive(Debug, Clone)]
pub(super) struct Judge {
    congestion: Congestion,
    crowd: Crowd,
    surge: Surge,
    siblings: SiblingFlows,
    verdict: Verdict,
}

impl Judge {
    pub(super) fn new(packet_bytes: u64) -> Self {
        let (congestion, crowd) = (Congestion::new(packet_bytes), Crowd::default());
        let (surge, siblings) = (Surge::default(), SiblingFlows::default());
        let verdict = verdict_of(&congestion, &crowd, &surge);
        Self { congestion, crowd, surge, siblings, verdict }
    }

    pub(super) fn verdict(&self) -> &Verdict {
        &self.verdict
    }

    /// Takes in a report, of so much `load`. `is_drained`: no more is in flight than the path holds.
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
        self.surge.on_report(rtt_ns, min_rtt_ns, is_round_start, has_queue, is_drained);
        self.judge();
    }

    // ---- the cycle of probing ----

    /// A round of the cycle has ended, `is_even` if no more was sent in it than arrives.
    pub(super) fn on_round(&mut self, is_even: bool) {
        let is_even = is_even && !self.verdict.is_surging;
        self.crowd.on_round(self.verdict.has_queue, is_even, self.verdict.own_loss_ppm);
        self.judge();
    }

    /// A report of the cycle: so much came, and so much was lost.
    pub(super) fn on_cycle_report(&mut self, delivered_bytes: u64, lost_bytes: u64) {
        self.crowd.on_report(delivered_bytes, lost_bytes);
    }

    /// A cycle of probing has ended.
    pub(super) fn on_cycle(&mut self) {
        let congestion = &self.congestion;
        self.crowd.on_cycle(|lost, sent, own_ppm| congestion.is_overflow(lost, sent, own_ppm));
        self.judge();
    }

    /// Whether to send less for some rounds, to see what the path loses then.
    pub(super) fn wants_low_load(&self, now_ns: u64) -> bool {
        self.congestion.wants_low_load(now_ns)
    }

    /// Whether there was congestion since this was last asked.
    pub(super) fn take_round(&mut self) -> bool {
        self.congestion.take_round()
    }

    /// What was lost so far was lost for another reason, and is known.
    pub(super) fn forgive(&mut self) {
        self.congestion.forgive();
        self.judge();
    }

    // ---- siblings ----

    /// So many flows to the same peer have anything in flight, this one among them.
    pub(super) fn set_flows(&mut self, flows: u32) {
        self.siblings.set_flows(flows);
    }

    /// A report of a flow that is in the middle of doubling, or of its beginning, or neither.
    pub(super) fn note_siblings(&mut self, is_probing_up: bool, is_beginning: bool) {
        self.siblings.on_report(is_probing_up, is_beginning);
    }

    /// Whether siblings have left room, and no queue of anybody speaks against taking it, for a flow
    /// of this rate.
    pub(super) fn have_siblings_left_room(&self, now_ns: u64, rate: u64) -> bool {
        let is_quiet = !self.verdict.has_queue && !self.verdict.has_others();
        is_quiet && self.siblings.have_left_room(now_ns, rate)
    }

    /// The flow doubles, into the room that siblings have left.
    pub(super) fn begin_doubling(&mut self, now_ns: u64) {
        self.siblings.begin_doubling(now_ns);
    }

    /// Whether it does.
    pub(super) fn is_doubling(&self) -> bool {
        self.siblings.is_doubling()
    }

    /// Probing upwards has come to its end, and found this rate.
    pub(super) fn on_probed(&mut self, rate: u64) {
        self.siblings.on_probed(rate);
    }

    /// The lowest rate that a flow with siblings is paced at: the smallest window [2.7] in a round
    /// trip, the queue counted, so that many siblings slow themselves down. The estimate falls
    /// below that rate where their queue overflows again and again, and one packet in a round trip
    /// finds no bandwidth. 0 without siblings.
    pub(super) fn rate_min(&self, packet_bytes: u64, smoothed_rtt_ns: u64) -> u64 {
        match self.siblings.has_any() && smoothed_rtt_ns > 0 {
            true => rate_of(MIN_PACKETS * packet_bytes, smoothed_rtt_ns),
            false => 0,
        }
    }

    fn judge(&mut self) {
        self.verdict = verdict_of(&self.congestion, &self.crowd, &self.surge);
    }
}

fn verdict_of(congestion: &Congestion, crowd: &Crowd, surge: &Surge) -> Verdict {
    Verdict {
        has_queue: congestion.has_queue(),
        others: crowd.others(),
        is_surging: surge.is_draining(),
        is_congested: congestion.is_now(),
        is_heavy: congestion.is_heavy(),
        own_loss_ppm: congestion.own_loss_ppm(),
    }
}
