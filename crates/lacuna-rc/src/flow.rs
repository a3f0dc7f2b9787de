//! How much a requester may send, and how fast: what acknowledgements say of the path.
//!
//! A reliable connection has no reports as SDR's queue pairs have: numbers come again when packets are
//! sent again, and a foreign peer says nothing but "all up to here". So what is known of the path comes
//! from packets that ask for an answer. Each of them leaves a *mark*; the newest mark that an answer covers
//! gives one sample to the [`Flow`](lacuna_path::flow::Flow) below.
//!
//! Repairs of a shim below are packets on the path as the others: they are in flight until the packets
//! that they cover are answered, and count as delivered then.

use crate::config::Repair;
use crate::responder::Repairs;
use lacuna_path::IP_UDP_BYTES;
use lacuna_path::controller::{AnyController, StartRate};
use lacuna_path::flow::Sent;
use lacuna_path::rtt::RttEstimator;
use std::collections::VecDeque;

/// Marks that are kept: more packets that ask than any window holds would be asked in vain.
const MARKS_MAX: usize = 4096;

/// What a notification of congestion counts for: a packet.
const MARKED_BYTES: u64 = 1500;

/// A packet that asked for an answer.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// The number after it.
    psn_end: u64,
    sent: Sent,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Flow {
    path: lacuna_path::flow::Flow,
    marks: VecDeque<Mark>,
    /// Repairs in flight: the number behind what they cover, and their bytes on the wire.
    repairs: VecDeque<(u64, u64)>,
    /// Something was acknowledged.
    has_delivered: bool,
    /// Nothing that was sent came as long as packets could be marked: the path may drop such ones.
    marks_are_refused: bool,
}

/// Bytes on the wire of packets with so many bytes of UDP payload in all.
fn wire_bytes_of(packets: u64, bytes: u64) -> u64 {
    bytes + packets * IP_UDP_BYTES
}

impl Flow {
    pub(crate) fn new(controller: AnyController, repair: Repair) -> Self {
        Self {
            path: lacuna_path::flow::Flow::new(controller, repair == Repair::SelectiveRepeat),
            marks: VecDeque::new(),
            repairs: VecDeque::new(),
            has_delivered: false,
            marks_are_refused: false,
        }
    }

    pub(crate) fn rtt(&self) -> &RttEstimator {
        self.path.rtt()
    }

    pub(crate) fn controller(&self) -> &AnyController {
        self.path.controller()
    }

    pub(crate) fn in_flight_bytes(&self) -> u64 {
        self.path.in_flight_bytes()
    }

    pub(crate) fn start_at(&mut self, now_ns: u64, start: StartRate) {
        self.path.start_at(now_ns, start);
    }

    pub(crate) fn guess_rtt(&mut self, rtt_ns: u64) {
        self.path.guess_rtt(rtt_ns);
    }

    /// Packets of `packet_bytes` that fit the window.
    pub(crate) fn window_packets(&self, packet_bytes: u64) -> u64 {
        self.path.limits().window_bytes / wire_bytes_of(1, packet_bytes)
    }

    /// Packets of `packet_bytes` bytes of UDP payload that may leave now, of `waiting`.
    pub(crate) fn allowance(&mut self, now_ns: u64, packet_bytes: u64, waiting: u32) -> u32 {
        self.path.allowance(now_ns, wire_bytes_of(1, packet_bytes), waiting)
    }

    /// When the pacer lets the next packet leave, if it holds one back.
    pub(crate) fn paced_until_ns(&self) -> Option<u64> {
        self.path.paced_until_ns()
    }

    /// Counts packets of `bytes` bytes of UDP payload in all that leave now. `asked`: the number after the
    /// last one that asks for an answer, and whether it was sent before.
    pub(crate) fn on_sent(
        &mut self,
        now_ns: u64,
        packets: u64,
        bytes: u64,
        asked: Option<(u64, bool)>,
    ) {
        let is_again = asked.is_some_and(|(_, is_again)| is_again);
        let sent = self.path.on_sent(now_ns, wire_bytes_of(packets, bytes), is_again);
        if let Some((psn_end, _)) = asked
            && self.marks.len() < MARKS_MAX
        {
            self.marks.push_back(Mark { psn_end, sent });
        }
    }

    /// Counts packets that are not answered for, such as what was read: they are paced all the same.
    pub(crate) fn on_sent_unanswered(&mut self, now_ns: u64, packets: u64, bytes: u64) {
        self.path.on_sent_unanswered(now_ns, wire_bytes_of(packets, bytes));
    }

    /// Counts repairs that left.
    pub(crate) fn on_repairs(&mut self, now_ns: u64, repairs: &Repairs) {
        let Repairs { packets, bytes, psn_end } = *repairs;
        let Some(psn_end) = psn_end.filter(|_| self.in_flight_bytes() > 0) else {
            return self.on_sent_unanswered(now_ns, packets, bytes);
        };
        self.on_sent(now_ns, packets, bytes, None);
        let wire_bytes = wire_bytes_of(packets, bytes);
        let is_full = self.repairs.len() >= MARKS_MAX;
        match self.repairs.back_mut() {
            Some(last) if is_full => *last = (psn_end, last.1 + wire_bytes),
            _ => self.repairs.push_back((psn_end, wire_bytes)),
        }
    }

    /// Packets without answers that the pacer lets leave now, of `waiting`.
    pub(crate) fn allowance_unanswered(
        &mut self,
        now_ns: u64,
        packet_bytes: u64,
        waiting: u32,
    ) -> u32 {
        self.path.allowance_unanswered(now_ns, wire_bytes_of(1, packet_bytes), waiting)
    }

    /// When [`Flow::allowance_unanswered`] allows more.
    pub(crate) fn unanswered_until_ns(&self) -> u64 {
        self.path.unanswered_until_ns()
    }

    /// Everything before `psn` has come; `wire_bytes` have come that had not, of which `landed_bytes` were
    /// under way.
    pub(crate) fn on_acknowledged(
        &mut self,
        now_ns: u64,
        psn: u64,
        mut wire_bytes: u64,
        mut landed_bytes: u64,
    ) {
        while let Some((_, bytes)) = self.repairs.front().filter(|(psn_end, _)| *psn_end <= psn) {
            wire_bytes += bytes;
            landed_bytes += bytes;
            self.repairs.pop_front();
        }
        self.path.on_landed(landed_bytes);
        self.has_delivered |= wire_bytes > 0;
        let mut newest = None;
        while self.marks.front().is_some_and(|mark| mark.psn_end <= psn) {
            newest = self.marks.pop_front();
        }
        self.path.on_answer(now_ns, newest.map(|mark| mark.sent), 0, wire_bytes, 0);
    }

    /// Packets are lost, and the others still under way (selective repeat).
    pub(crate) fn on_lost(&mut self, now_ns: u64, wire_bytes: u64) {
        self.path.on_landed(wire_bytes);
        self.path.on_answer(now_ns, None, 0, 0, wire_bytes);
    }

    /// Everything in flight is sent again; of that `lost_bytes` are taken for lost by the path.
    pub(crate) fn on_go_back(&mut self, now_ns: u64, lost_bytes: u64) {
        self.path.on_given_up();
        self.marks.clear();
        self.repairs.clear();
        self.path.on_answer(now_ns, None, 0, 0, lost_bytes);
    }

    /// Whether packets are sent as ones that routers may mark: if the controller listens to marks.
    pub(crate) fn takes_marks(&self) -> bool {
        !self.marks_are_refused && !matches!(self.controller(), AnyController::Fixed(_))
    }

    /// The peer says that packets were marked. Notifications do not say how many; they are as few as one in
    /// 50 us, so each stands for little.
    pub(crate) fn on_marked(&mut self, now_ns: u64) {
        self.path.on_marked(MARKED_BYTES);
        self.path.on_answer(now_ns, None, 0, 0, 0);
    }

    /// Nothing came for a whole timeout. If nothing ever did, marks may be why (RFC 9000, 13.4.2).
    pub(crate) fn on_timeout(&mut self) {
        self.marks_are_refused |= !self.has_delivered;
    }

    /// Nothing is left to send.
    pub(crate) fn on_out_of_data(&mut self) {
        self.path.on_out_of_data();
    }
}
