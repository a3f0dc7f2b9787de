//! How unreliable messages to a peer fare: questions to it, and a congestion controller that hears the answers.
//!
//! Nobody answers for the packets of an unreliable message. So a source asks now and then, behind what it has sent, how
//! many bytes have come from it in all (a *probe*). An answer is a round trip and says what the path delivered
//! meanwhile, and what it lost; that is all that a congestion controller needs. Answers are as long as questions, so
//! that a forged one gains nothing.
//!
//! A target counts the bytes of those sources that ask, for as long as they do.
//!
//! Invariant: what is on the way was sent and neither answered for nor given up.

use crate::peers::PeerId;
use lacuna_path::controller::AnyController;
use lacuna_path::flow::{Flow, Sent};
use std::collections::{HashMap, VecDeque};

/// Bytes on the wire between two questions, if nothing else calls for one.
const PROBE_BYTES: u64 = 64 << 10;
/// Time between two questions while little is sent.
const PROBE_NS: u64 = 10_000_000;
/// Questions without an answer that are kept.
const PROBES_MAX: usize = 1024;
/// When what is on the way is given up: before a round trip was measured, and the least time after.
const TIMEOUT_NS_UNKNOWN: u64 = 250_000_000;
const TIMEOUT_NS_MIN: u64 = 20_000_000;
/// A target counts for a source for so long after its last question.
const COUNTED_NS: u64 = 5_000_000_000;
/// Sources that are counted at a time.
const COUNTED_MAX: usize = 1 << 16;

#[derive(Debug, Clone, Copy)]
struct Probe {
    sequence: u32,
    sent: Sent,
    /// All that was sent before it: payload, and bytes on the wire.
    payload_bytes: u64,
    wire_bytes: u64,
}

/// A source's side, for one peer.
#[derive(Debug)]
pub(crate) struct Feedback {
    flow: Flow,
    probes: VecDeque<Probe>,
    sequence: u32,
    payload_bytes: u64,
    wire_bytes: u64,
    /// What had been sent when the last question was asked, and when that was.
    asked_bytes: u64,
    asked_ns: u64,
    /// Of the last answer: what had been sent, and what the peer had counted.
    answered: Option<(Probe, u64)>,
    heard_ns: u64,
}

impl Feedback {
    pub(crate) fn new(now_ns: u64, controller: AnyController, sequence: u32) -> Self {
        Self {
            flow: Flow::new(controller, false),
            probes: VecDeque::new(),
            sequence,
            payload_bytes: 0,
            wire_bytes: 0,
            asked_bytes: 0,
            asked_ns: now_ns,
            answered: None,
            heard_ns: now_ns,
        }
    }

    /// Packets of so many bytes on the wire that may leave now.
    pub(crate) fn allowance(&mut self, now_ns: u64, wire_bytes: u64, packets_max: usize) -> usize {
        self.flow.allowance(now_ns, wire_bytes, packets_max as u32) as usize
    }

    /// When packets may leave that have to wait now: by the pace, or as what is on the way is given up.
    pub(crate) fn ready_ns(&self) -> u64 {
        self.flow.paced_until_ns().unwrap_or_else(|| self.heard_ns + self.timeout_ns())
    }

    fn timeout_ns(&self) -> u64 {
        let rtt = self.flow.rtt();
        match rtt.smoothed_ns() {
            Some(smoothed_ns) => (smoothed_ns + 4 * rtt.variance_ns()).max(TIMEOUT_NS_MIN),
            None => TIMEOUT_NS_UNKNOWN,
        }
    }

    /// The time of [`Feedback::ready_ns`] has come: what was not answered for in time is given up.
    pub(crate) fn on_ready(&mut self, now_ns: u64) {
        if self.flow.paced_until_ns().is_some()
            || self.flow.in_flight_bytes() == 0
            || now_ns < self.heard_ns + self.timeout_ns()
        {
            return;
        }
        let lost_bytes = self.flow.in_flight_bytes();
        self.flow.on_given_up();
        self.flow.on_answer(now_ns, None, 0, 0, lost_bytes);
        self.probes.clear();
        self.answered = None;
        self.heard_ns = now_ns;
    }

    /// Packets left. The number of the question to ask behind them, if one is due.
    pub(crate) fn on_sent(
        &mut self,
        now_ns: u64,
        payload_bytes: u64,
        wire_bytes: u64,
        packet_wire_bytes: u64,
    ) -> Option<u32> {
        if self.flow.in_flight_bytes() == 0 {
            self.heard_ns = now_ns;
        }
        let sent = self.flow.on_sent(now_ns, wire_bytes, false);
        self.payload_bytes += payload_bytes;
        self.wire_bytes += wire_bytes;
        let window_bytes = self.flow.limits().window_bytes;
        let is_full = self.flow.in_flight_bytes() + packet_wire_bytes > window_bytes;
        let is_due = self.wire_bytes - self.asked_bytes >= PROBE_BYTES
            || now_ns >= self.asked_ns + PROBE_NS
            || is_full
            || self.answered.is_none() && self.probes.is_empty();
        if !is_due || self.probes.len() >= PROBES_MAX {
            return None;
        }
        self.sequence = self.sequence.wrapping_add(1);
        (self.asked_bytes, self.asked_ns) = (self.wire_bytes, now_ns);
        let (sequence, payload_bytes, wire_bytes) =
            (self.sequence, self.payload_bytes, self.wire_bytes);
        self.probes.push_back(Probe { sequence, sent, payload_bytes, wire_bytes });
        Some(sequence)
    }

    /// Payload that was sent in all.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Nothing is left to send.
    pub(crate) fn on_out_of_data(&mut self) {
        self.flow.on_out_of_data();
    }

    /// An answer came: so many bytes of payload have come there.
    pub(crate) fn on_report(&mut self, now_ns: u64, sequence: u32, bytes: u64, waited_ns: u64) {
        let Some(at) = self.probes.iter().position(|probe| probe.sequence == sequence) else {
            return;
        };
        let probe = self.probes[at];
        self.probes.drain(..=at);
        self.heard_ns = now_ns;
        // The first answer begins the count, and so does one that counts less than the one before. What it covers is
        // taken to have come.
        let (before, counted) = match self.answered {
            Some((before, counted)) if counted <= bytes => (before, Some(bytes - counted)),
            _ => (Probe { payload_bytes: 0, wire_bytes: 0, ..probe }, None),
        };
        self.answered = Some((probe, bytes));
        let landed_bytes = (probe.wire_bytes - before.wire_bytes).min(self.flow.in_flight_bytes());
        let sent_bytes = probe.payload_bytes - before.payload_bytes;
        let come_bytes = counted.unwrap_or(sent_bytes).min(sent_bytes);
        let delivered_bytes = match sent_bytes {
            0 => landed_bytes,
            _ => {
                (u128::from(landed_bytes) * u128::from(come_bytes) / u128::from(sent_bytes)) as u64
            }
        };
        self.flow.on_landed(landed_bytes);
        let lost_bytes = landed_bytes - delivered_bytes;
        self.flow.on_answer(now_ns, Some(probe.sent), waited_ns, delivered_bytes, lost_bytes);
    }
}

/// A target's side: what has come of sources that ask.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    of: HashMap<PeerId, (u64, u64)>,
    forget_ns: u64,
}

impl Counts {
    /// Bytes of payload came.
    #[inline]
    pub(crate) fn add(&mut self, peer: PeerId, payload_bytes: usize) {
        if let Some((bytes, _)) = self.of.get_mut(&peer) {
            *bytes = bytes.wrapping_add(payload_bytes as u64);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// A source asks; `None` if too many do.
    pub(crate) fn on_probe(&mut self, now_ns: u64, peer: PeerId) -> Option<u64> {
        if now_ns >= self.forget_ns {
            self.of.retain(|_, (_, asked_ns)| *asked_ns + COUNTED_NS > now_ns);
            self.forget_ns = now_ns + COUNTED_NS;
        }
        if self.of.len() >= COUNTED_MAX && !self.of.contains_key(&peer) {
            return None;
        }
        let (bytes, asked_ns) = self.of.entry(peer).or_insert((0, now_ns));
        *asked_ns = now_ns;
        Some(*bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_path::controller::{ControllerConfig, Setup};

    fn feedback() -> Feedback {
        let controller = ControllerConfig::Cubic.build(Setup { packet_bytes: 1500, seed: 1 });
        Feedback::new(0, controller, 7)
    }

    #[test]
    fn an_answer_takes_off_the_way_what_was_sent_before_its_question() {
        let mut feedback = feedback();
        let first = feedback.on_sent(0, 1400, 1500, 1500).expect("the first one asks");
        assert_eq!(feedback.on_sent(1000, 1400, 1500, 1500), None);
        feedback.on_report(1_000_000, first, 0, 0);
        assert_eq!(feedback.flow.in_flight_bytes(), 1500);
        assert_eq!(feedback.flow.rtt().min_ns(), Some(1_000_000));
        // Of a second one, half has come.
        let second = feedback.on_sent(PROBE_NS, 1400, 1500, 1500).expect("it was long ago");
        feedback.on_report(PROBE_NS + 1_000_000, second, 1400, 0);
        assert_eq!(feedback.flow.in_flight_bytes(), 0);
        // Old and unknown answers say nothing.
        feedback.on_report(PROBE_NS + 2_000_000, second, 9999, 0);
        feedback.on_report(PROBE_NS + 2_000_000, 12345, 9999, 0);
    }

    #[test]
    fn a_peer_that_never_answers_does_not_hold_up_for_ever() {
        let mut feedback = feedback();
        let mut now_ns = 0;
        while feedback.allowance(now_ns, 1500, 64) > 0 {
            feedback.on_sent(now_ns, 1400, 1500, 1500);
        }
        for _ in 0..5 {
            now_ns = feedback.ready_ns();
            feedback.on_ready(now_ns);
            assert!(feedback.allowance(now_ns, 1500, 64) > 0, "at {now_ns}");
            while feedback.allowance(now_ns, 1500, 64) > 0 {
                feedback.on_sent(now_ns, 1400, 1500, 1500);
            }
        }
    }

    #[test]
    fn sources_are_counted_while_they_ask() {
        let mut counts = Counts::default();
        let peer = PeerId::NOBODY;
        counts.add(peer, 5);
        assert_eq!(counts.on_probe(0, peer), Some(0));
        counts.add(peer, 5);
        counts.add(peer, 6);
        assert_eq!(counts.on_probe(1, peer), Some(11));
        assert_eq!(counts.on_probe(2 * COUNTED_NS, peer), Some(0), "it was forgotten");
    }
}
