//! `lowar:auto`: which strength a flow's sender is to use, chosen by its receiver while the flow runs.
//!
//! LoWAR (VII, "Adaptive FEC") has the channel for it, requests in negotiation packets, and leaves the rule to
//! the future. This is one:
//!
//! | | |
//! |---|---|
//! | `trail` | which packets came and which were lost, in the order in which they were sent, protected or not |
//! | `evidence` | distances between losses for as long as the path stays the same; a change is found |
//! | `fit` | a two-state chain that loses so, and how sure that is |
//! | `choice` | the strength with the largest expected goodput, by the model's closed forms |
//! | `requests` | asks for it until it is granted, or refused |
//! | `config`, `reason` | what it is chosen for, and why: numbers and a sentence |
//! | here | when to look, and when a better strength is worth a change |
//!
//! **When to look.** Each slice of evidence, a quarter of a round trip or [`SLICE_NS`], is tried for a change of
//! the path. The strengths are judged again when the path has changed, or when the fit has moved, once in a
//! round trip and [`LOOK_NS`] at most: that costs some tens of microseconds, and up to a millisecond where
//! losses come in bursts.
//!
//! **Hysteresis.** Another strength must gain at least [`GAIN_MIN`], and what it gains in as much time as the
//! last choice has lasted must be worth [`CHANGE_NS`] of sending. So small gains are waited for and
//! large ones are not, and a path at the border between two strengths does not go to and fro.
//!
//! Nothing is sent while nothing comes. There is no clock here: times are arguments.

mod choice;
mod config;
mod evidence;
mod fit;
mod reason;
mod requests;
mod trail;

pub use config::AutoConfig;
pub use fit::LossFit;
pub use reason::Reason;

use crate::packet::{Kind, Packet, class_of};
use choice::{Choice, Judge, candidates, is_in_time};
use config::Circumstances;
use evidence::Evidence;
use lacuna_wire::rc::{BlockHeader, REPAIR_OPCODE, RepairHeader, Strength};
use requests::Requests;
use trail::Trail;

/// Length of the shortest slices of evidence, at most; a quarter of the round trip otherwise.
const SLICE_NS: u64 = 10_000_000;
/// At least, so that a short path costs no time.
const SLICE_NS_MIN: u64 = 1_000_000;
/// The strengths are judged again after this time at the earliest, if the path has not changed.
const LOOK_NS: u64 = 10_000_000;
/// What another strength must gain at least, as a share of the goodput.
const GAIN_MIN: f64 = 0.001;
/// What it must gain in as much time as the last choice has lasted. A change costs next to nothing by
/// itself; this is for estimates that move.
const CHANGE_NS: u64 = 2_000_000;
/// Packets whose arrival times give a measure of the flow's rate.
const RATE_PACKETS: u64 = 64;
/// A packet's time on the link before it was measured: 1 KiB at 1 Gbit/s.
const PACKET_NS_UNKNOWN: u64 = 8_600;

/// What the choice did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct AutoCounters {
    /// Strengths that were chosen, other than the one before.
    pub choices: u64,
    /// Times that the path was found to have changed.
    pub path_changes: u64,
    /// Strengths that the peer did not grant.
    pub refusals: u64,
    /// Losses in a row that were too many for any repairs.
    pub outages: u64,
}

/// The pace of packets as they come in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    begin_ns: u64,
    last_ns: u64,
    packets: u64,
    packet_ns: Option<u64>,
}

impl Rate {
    /// A packet came; longer than this between two is a pause.
    fn on_packet(&mut self, now_ns: u64, pause_ns: u64) {
        if self.packets == 0 || now_ns.saturating_sub(self.last_ns) > pause_ns {
            (self.begin_ns, self.packets) = (now_ns, 0);
        }
        self.last_ns = now_ns;
        self.packets += 1;
        let took_ns = now_ns.saturating_sub(self.begin_ns);
        // Packets that are read together have the same time: not before some time has passed.
        if self.packets > RATE_PACKETS && took_ns > pause_ns / 4 {
            let measured_ns = (took_ns / (self.packets - 1)).max(1);
            self.packet_ns = Some(match self.packet_ns {
                None => measured_ns,
                Some(mean_ns) => mean_ns - mean_ns / 4 + measured_ns.div_ceil(4),
            });
            (self.begin_ns, self.packets) = (now_ns, 1);
        }
    }
}

/// Packets that are numbered together.
#[derive(Debug, Default)]
struct Followed {
    trail: Trail,
    /// Its packets that were judged.
    judged: u64,
}

/// See the module's text.
#[derive(Debug)]
pub struct Auto {
    config: AutoConfig,
    requests_trail: Followed,
    answers_trail: Followed,
    /// The last packet of data was an answer's.
    is_answering: bool,
    /// Packets of both that were judged.
    position: u64,
    evidence: Evidence,
    rate: Rate,
    packet_bytes: u32,
    rtt_ns: u64,
    /// What the strengths were judged by.
    judged: Option<(u64, LossFit, Circumstances)>,
    reason: Option<Reason>,
    requests: Requests,
    counters: AutoCounters,
}

impl Auto {
    /// Nothing is known of the path.
    #[must_use]
    pub fn new(config: AutoConfig) -> Self {
        Self {
            config,
            requests_trail: Followed::default(),
            answers_trail: Followed::default(),
            is_answering: false,
            position: 0,
            evidence: Evidence::default(),
            rate: Rate::default(),
            packet_bytes: 0,
            rtt_ns: 0,
            judged: None,
            reason: None,
            requests: Requests::default(),
            counters: AutoCounters::default(),
        }
    }

    /// A packet came from the path, from the BTH to the pad: of the connection, or of the peer's shim. For a
    /// caller without a [`Shim`](crate::Shim), whose decoder is another one's work.
    pub fn on_receive(&mut self, now_ns: u64, packet: &[u8]) {
        if packet.first() != Some(&REPAIR_OPCODE) {
            if let Some(packet) = Packet::parse(packet) {
                self.on_packet(now_ns, &packet);
            }
            return;
        }
        match RepairHeader::parse(packet, 0) {
            Ok((_, RepairHeader::Repair { block, index }, _)) => {
                self.on_repair(now_ns, &block, index);
            }
            Ok((_, RepairHeader::Announce { strength, .. }, _)) => self.on_strength(strength),
            Ok((_, RepairHeader::Request { .. }, _)) | Err(_) => {}
        }
    }

    /// The packets that come next are of another flow on the same path. What is missing of this one is lost;
    /// what is known of the path, and what the peer was asked for, stays.
    pub fn on_other_flow(&mut self, now_ns: u64) {
        self.judge(now_ns, u64::MAX, (0, 0));
        self.requests_trail.trail.on_other_flow();
        self.answers_trail.trail.on_other_flow();
        self.rate.packets = 0;
    }

    /// Tells the evidence what is certain at a time. Requests and answers went over one path: for the evidence
    /// they are one behind the other.
    fn judge(&mut self, now_ns: u64, at_ns: u64, window_ns: (u64, u64)) {
        let Self { evidence, position, .. } = self;
        for followed in [&mut self.requests_trail, &mut self.answers_trail] {
            let before = followed.judged;
            let judged = followed.trail.judge(at_ns, window_ns, |at, packets| {
                evidence.on_lost(now_ns, *position + at.saturating_sub(before), packets);
            });
            followed.judged = judged.max(before);
            *position += followed.judged - before;
        }
        evidence.on_judged(now_ns, *position);
    }

    /// A packet of the connection came from the path.
    pub(crate) fn on_packet(&mut self, now_ns: u64, packet: &Packet<'_>) {
        self.rate.on_packet(now_ns, self.pause_ns());
        self.packet_bytes = self.packet_bytes.max(packet.payload_bytes.into());
        self.is_answering = match class_of(packet.opcode) {
            Some(class) => class.is_answer(),
            None if packet.kind == Kind::Answer => return,
            None => false,
        };
        self.followed(self.is_answering).trail.on_packet(now_ns, packet);
    }

    /// Of answers or of requests, which are numbered apart.
    fn followed(&mut self, is_answer: bool) -> &mut Followed {
        if is_answer { &mut self.answers_trail } else { &mut self.requests_trail }
    }

    /// A repair came.
    pub(crate) fn on_repair(&mut self, now_ns: u64, block: &BlockHeader, index: u8) {
        self.rate.on_packet(now_ns, self.pause_ns());
        self.followed(block.class.is_answer()).trail.on_repair(now_ns, block, index);
        self.requests.on_repair(block);
    }

    /// The peer protects its packets so.
    pub(crate) fn on_strength(&mut self, strength: Strength) {
        self.requests.on_strength(strength);
    }

    fn pause_ns(&self) -> u64 {
        if self.rtt_ns > 0 { self.rtt_ns / 8 } else { SLICE_NS }
    }

    /// Looks at what has come, and says what the peer is to be asked for now, if anything. `late_ns` is how
    /// late packets of this path may be. To be called after packets were taken.
    pub fn poll(&mut self, now_ns: u64, rtt_ns: u64, late_ns: u64) -> Option<Option<Strength>> {
        self.rtt_ns = rtt_ns;
        let slice_ns = (rtt_ns / 4).clamp(SLICE_NS_MIN, SLICE_NS);
        // Not as long as a round trip: what comes then was sent again.
        let window_ns_max = if rtt_ns == 0 { late_ns } else { rtt_ns / 3 };
        let window_ns = (late_ns.max(rtt_ns / 32), window_ns_max);
        self.judge(now_ns, now_ns, window_ns);
        if let Some(has_changed) = self.evidence.close(now_ns, slice_ns) {
            self.counters.outages = self.evidence.outages();
            self.counters.path_changes += u64::from(has_changed);
            self.look(now_ns, has_changed);
        }
        // The answer takes a round trip and the rest of a block.
        let wait_ns = rtt_ns + rtt_ns / 4 + SLICE_NS_MIN;
        let asked = self.requests.poll(now_ns, wait_ns);
        self.counters.refusals = self.requests.refusals();
        asked
    }

    /// Judges the strengths anew if there is a reason to. Without a round trip there is nothing to judge by.
    fn look(&mut self, now_ns: u64, has_changed: bool) {
        let last = if self.is_answering { &self.answers_trail } else { &self.requests_trail };
        let Some(message_packets) = last.trail.message_packets().filter(|_| self.rtt_ns > 0) else {
            return;
        };
        let circumstances = Circumstances {
            packet_ns: self.rate.packet_ns.unwrap_or(PACKET_NS_UNKNOWN),
            rtt_ns: self.rtt_ns,
            packet_bytes: self.packet_bytes,
            message_packets,
        };
        if let Some((when_ns, ..)) = self.judged
            && now_ns < when_ns + self.rtt_ns.max(LOOK_NS)
            && !has_changed
        {
            return;
        }
        let fit = LossFit::of(&self.evidence.sum());
        if let Some((_, before, of)) = &self.judged
            && fit.is_near(before)
            && circumstances.is_near(of)
            && !self.may_settle(now_ns)
            && !self.is_otherwise()
        {
            return;
        }
        self.judged = Some((now_ns, fit, circumstances));
        let granted_percent_max = self.requests.granted_percent_max(now_ns);
        let percent_max = granted_percent_max.unwrap_or(self.config.percent_max);
        let judge = Judge::new(&self.config, &fit, &circumstances);
        let best = judge.best(&candidates(&self.config, percent_max, &circumstances));
        // The peer may have another one than was chosen, by its own will.
        let before = self.requests.wanted();
        let since_ns = self.reason.map_or(0, |reason| reason.since_ns);
        // A strength that was chosen for a faster flow may have blocks that come too late: they save nothing.
        let is_of_use = before.is_none_or(|strength| is_in_time(strength, &circumstances));
        let goodput_before = judge.goodput(before.filter(|_| is_of_use));
        let lasted_ns = now_ns.saturating_sub(since_ns).max(1);
        let gain_min = (CHANGE_NS as f64 / lasted_ns as f64).max(GAIN_MIN);
        let is_better = best.goodput > goodput_before * (1.0 + gain_min);
        let Choice { strength, goodput } = match is_better {
            true => best,
            false => Choice { strength: before, goodput: goodput_before },
        };
        let is_new = strength != before;
        self.reason = Some(Reason {
            strength,
            loss: fit,
            goodput,
            goodput_without: judge.goodput(None),
            window_packets: circumstances.rtt_ns / circumstances.packet_ns.max(1),
            message_packets: circumstances.message_packets,
            since_ns: if is_new { now_ns } else { since_ns },
            granted_percent_max,
        });
        if is_new {
            self.counters.choices += 1;
            self.requests.ask(now_ns, strength);
        }
    }

    /// Whether the peer does something else than was chosen.
    fn is_otherwise(&self) -> bool {
        self.reason.is_some_and(|reason| reason.strength != self.requests.wanted())
    }

    /// Whether a gain that was too small some time ago may be worth a change now.
    fn may_settle(&self, now_ns: u64) -> bool {
        let (Some((when_ns, ..)), Some(reason)) = (&self.judged, &self.reason) else { return true };
        // The allowance has halved since.
        now_ns.saturating_sub(reason.since_ns) > 2 * when_ns.saturating_sub(reason.since_ns)
    }

    /// Why the strength that is in force or asked for; `None` while nothing is known of the path.
    #[must_use]
    pub fn reason(&self) -> Option<&Reason> {
        self.reason.as_ref()
    }

    /// What it did.
    #[must_use]
    pub fn counters(&self) -> AutoCounters {
        self.counters
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.evidence.memory_bytes()
            + self.requests_trail.trail.memory_bytes()
            + self.answers_trail.trail.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
