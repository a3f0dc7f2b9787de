//! The queue pair: its states, its requester, and the answers of its responder.
//!
//! States after InfiniBand volume 1, section 10.3.1, and `ibv_modify_qp`:
//!
//! ```text
//! Reset -> Init -> ReadyToReceive -> ReadyToSend <-> Draining (SQD)
//!                                any -> Error: everything posted completes, flushed
//! ```
//!
//! A number that was in use must not be used again while old packets may come: a new queue pair under it
//! would take them for its own. Who gives numbers waits as long as packets may be under way
//! (section 10.3.1.2 leaves it to the consumer; the facade does it here).

use crate::Payload;
use crate::answers::{Answer, Answers, ReadAnswer};
use crate::config::{ConfigError, Peer, RcConfig};
use crate::receive_queue::ReceiveQueue;
use crate::requester::{Counts, Requester};
use crate::responder::{MESSAGE_PACKETS_MAX, Refusals, Responder, Taken, packets_of};
use crate::run::{self, Kind, Run};
use crate::work::{Done, Failure, Operation, PostError, RecvWork, SendWork, Verb};
use lacuna_path::controller::{AnyController, StartRate};
use lacuna_place::region::KeyTable;
use lacuna_wire::rc::{Aeth, Fields, Opcode, RcHeader};
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes of a message, at most (section 9.7.7).
const MESSAGE_BYTES_MAX: u64 = 1 << 31;
/// Payload and headers of a packet of an answer, beside the MTU.
const ANSWER_OVERHEAD_BYTES: u64 = 20;

/// Notifications of congestion are this far apart at least, as cards send them (DCQCN, section 3.1).
const NOTIFY_EVERY_NS: u64 = 50_000;

/// The state of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Nothing may be posted.
    Reset,
    /// Receives may be posted.
    Init,
    /// The peer's requests are taken (RTR).
    ReadyToReceive,
    /// Own requests are sent (RTS).
    ReadyToSend,
    /// No new request begins; those that have begun are finished (SQD).
    Draining,
    /// It has failed or was closed.
    Error,
}

/// Counts of a queue pair.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RcStats {
    /// Packets of requests that were sent.
    pub packets: u64,
    /// Of these, packets that were sent before.
    pub retransmitted_packets: u64,
    /// Bytes of messages that were finished.
    pub bytes_acknowledged: u64,
    /// Refusals "sequence error" that came.
    pub psn_naks: u64,
    /// Refusals "receiver not ready" that came.
    pub rnr_naks: u64,
    /// Timeouts that expired.
    pub timeouts: u64,
    /// READs that were asked again because an answer was lost.
    pub reads_again: u64,
    /// Answers that came to no question.
    pub stray_answers: u64,
    /// Packets of answers that were sent.
    pub answer_packets: u64,
    /// What the responder did not take.
    pub refusals: Refusals,
    /// Smoothed round trip; 0 before the first.
    pub rtt_ns: u64,
    /// Bytes on the wire that are not answered for.
    pub in_flight_bytes: u64,
    /// What the repair shim did, if there is one.
    pub shim: Option<lacuna_lowar::Counters>,
    /// Why the peer's packets are protected as they are, if the shim chooses that (`lowar:auto`).
    pub auto: Option<lacuna_lowar::Reason>,
    /// Notifications of congestion that were sent, since marked packets had come.
    pub notifications_sent: u64,
    /// Those that came.
    pub notifications: u64,
    /// Packets of a foreign peer whose ICRC was checked but for the identification of IPv4, which a socket
    /// does not see: of damaged ones one in 2^16 passes.
    pub half_checked_packets: u64,
}

impl RcStats {
    /// These counts and those of another queue pair together; the round trip is the longer one.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut refusals = self.refusals;
        refusals.add(&other.refusals);
        let shim = match (self.shim, other.shim) {
            (Some(one), Some(two)) => Some(one.with(&two)),
            (one, two) => one.or(two),
        };
        Self {
            packets: self.packets + other.packets,
            retransmitted_packets: self.retransmitted_packets + other.retransmitted_packets,
            bytes_acknowledged: self.bytes_acknowledged + other.bytes_acknowledged,
            psn_naks: self.psn_naks + other.psn_naks,
            rnr_naks: self.rnr_naks + other.rnr_naks,
            timeouts: self.timeouts + other.timeouts,
            reads_again: self.reads_again + other.reads_again,
            stray_answers: self.stray_answers + other.stray_answers,
            answer_packets: self.answer_packets + other.answer_packets,
            refusals,
            rtt_ns: self.rtt_ns.max(other.rtt_ns),
            in_flight_bytes: self.in_flight_bytes + other.in_flight_bytes,
            shim,
            auto: self.auto.or(other.auto),
            notifications_sent: self.notifications_sent + other.notifications_sent,
            notifications: self.notifications + other.notifications,
            half_checked_packets: self.half_checked_packets + other.half_checked_packets,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct QueuePair {
    config: RcConfig,
    state: QpState,
    keys: Arc<KeyTable>,
    receives: Arc<ReceiveQueue>,
    peer: Option<Peer>,
    requester: Option<Requester>,
    answers: Answers,
    answer_packets: u64,
    refusals: Refusals,
    shim: Option<lacuna_lowar::Counters>,
    auto: Option<lacuna_lowar::Reason>,
    /// Marked packets have come, which the peer is to be told.
    owes_notification: bool,
    notified_ns: Option<u64>,
    notifications_sent: u64,
    notifications: u64,
    half_checked_packets: u64,
    /// The pacer held an answer back until then.
    answer_due_ns: Option<u64>,
    done: VecDeque<Done>,
    scratch: Vec<Done>,
    /// Completions that were there when it was told last.
    told: usize,
    /// The responder must be stopped ([`Responder::stop`]).
    must_stop: bool,
}

impl QueuePair {
    /// A queue pair in the state [`QpState::Init`].
    ///
    /// # Errors
    /// When the configuration cannot be.
    pub fn new(
        config: RcConfig,
        keys: Arc<KeyTable>,
        receives: Arc<ReceiveQueue>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            config,
            state: QpState::Init,
            keys,
            receives,
            peer: None,
            requester: None,
            answers: Answers::default(),
            answer_packets: 0,
            refusals: Refusals::default(),
            shim: None,
            auto: None,
            owes_notification: false,
            notified_ns: None,
            notifications_sent: 0,
            notifications: 0,
            half_checked_packets: 0,
            answer_due_ns: None,
            done: VecDeque::new(),
            scratch: Vec::new(),
            told: 0,
            must_stop: false,
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &RcConfig {
        &self.config
    }

    /// Its state.
    pub fn state(&self) -> QpState {
        self.state
    }

    /// Its peer, once it is known.
    pub fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// How it describes itself to its peer.
    pub fn describe(&self) -> Peer {
        Peer {
            number: self.config.number,
            first_psn: self.config.first_psn,
            answers_max: self.config.answers_max,
        }
    }

    /// The peer is known: requests are taken from now on, by the responder that is given back
    /// ([`QpState::ReadyToReceive`]). `None` in any other state than [`QpState::Init`].
    #[must_use]
    pub fn accept(&mut self, peer: Peer) -> Option<Responder> {
        if self.state != QpState::Init {
            return None;
        }
        self.state = QpState::ReadyToReceive;
        self.peer = Some(peer);
        self.requester = Some(Requester::new(&self.config, &peer));
        Some(Responder::new(&self.config, &peer, self.keys.clone(), self.receives.clone()))
    }

    /// The peer takes requests: own ones are sent from now on ([`QpState::ReadyToSend`]).
    pub fn start(&mut self) {
        if self.state == QpState::ReadyToReceive {
            self.state = QpState::ReadyToSend;
        }
    }

    /// No new request begins ([`QpState::Draining`]); [`QueuePair::is_drained`] tells when those that have
    /// begun are done.
    pub fn drain(&mut self) {
        if let (QpState::ReadyToSend, Some(requester)) = (self.state, &mut self.requester) {
            requester.set_draining(true);
            self.state = QpState::Draining;
        }
    }

    /// Whether it drains and everything that had begun is done.
    pub fn is_drained(&self) -> bool {
        self.state == QpState::Draining && self.requester.as_ref().is_some_and(Requester::is_idle)
    }

    /// Requests begin again after [`QueuePair::drain`].
    pub fn resume(&mut self) {
        if let (QpState::Draining, Some(requester)) = (self.state, &mut self.requester) {
            requester.set_draining(false);
            self.state = QpState::ReadyToSend;
        }
    }

    /// Closes or fails it: everything that was posted completes as flushed ([`QpState::Error`]).
    pub fn close(&mut self) {
        self.fail(Failure::Flushed);
    }

    /// It cannot go on: the oldest request fails with this, all else is flushed. Nothing happens if it has failed
    /// before.
    pub fn fail(&mut self, failure: Failure) {
        if std::mem::replace(&mut self.state, QpState::Error) == QpState::Error {
            return;
        }
        if let Some(requester) = &mut self.requester {
            requester.fail(failure, &mut self.scratch);
            self.done.extend(self.scratch.drain(..));
        }
        self.must_stop = true;
        self.flush_receives();
    }

    fn flush_receives(&mut self) {
        for RecvWork { id, .. } in self.receives.flush() {
            let status = Err(Failure::Flushed);
            self.done.push_back(Done {
                id,
                operation: Operation::Receive,
                status,
                bytes: 0,
                received: None,
                is_signaled: true,
            });
        }
    }

    /// Starts at a rate that is known from elsewhere, and expects round trips of this length.
    pub fn start_at(&mut self, now_ns: u64, rate: Option<StartRate>, rtt_ns: Option<u64>) {
        let Some(requester) = &mut self.requester else { return };
        if let Some(rate) = rate {
            requester.flow.start_at(now_ns, rate);
        }
        if let Some(rtt_ns) = rtt_ns {
            requester.flow.guess_rtt(rtt_ns);
        }
    }

    // ---- the application ----

    /// Posts a work request.
    ///
    /// # Errors
    /// When it cannot be; then nothing was posted.
    pub fn post_send(&mut self, work: SendWork) -> Result<(), PostError> {
        let state = self.state;
        let Some(requester) = self.requester.as_mut().filter(|_| {
            matches!(state, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::Draining)
        }) else {
            return Err(PostError::State { state });
        };
        match &work.verb {
            Verb::CompareSwap { into, remote, .. } | Verb::FetchAdd { into, remote, .. } => {
                let (address, bytes) = (remote.address, into.len());
                if bytes != 8 || !address.is_multiple_of(8) {
                    return Err(PostError::Atomic { address, bytes });
                }
            }
            verb => {
                let bytes = verb.bytes();
                let packets = packets_of(bytes, self.config.mtu_bytes);
                if bytes > MESSAGE_BYTES_MAX || packets > MESSAGE_PACKETS_MAX {
                    return Err(PostError::TooLong { bytes });
                }
            }
        }
        requester.post(work);
        Ok(())
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// When the queue pair has failed.
    pub fn post_recv(&mut self, work: RecvWork) -> Result<(), PostError> {
        if matches!(self.state, QpState::Error | QpState::Reset) {
            return Err(PostError::State { state: self.state });
        }
        self.receives.post(work);
        Ok(())
    }

    /// The next completion.
    pub fn poll_done(&mut self) -> Option<Done> {
        self.told = self.told.saturating_sub(1);
        self.done.pop_front()
    }

    /// Whether there are completions that this was not asked about before.
    pub fn take_news(&mut self) -> bool {
        std::mem::replace(&mut self.told, self.done.len()) < self.done.len()
    }

    /// Work requests of the send queue that are not done.
    pub fn open_sends(&self) -> usize {
        self.requester.as_ref().map_or(0, Requester::open)
    }

    /// Its congestion controller, once it is connected.
    pub fn controller(&self) -> Option<&AnyController> {
        self.requester.as_ref().map(|requester| requester.flow.controller())
    }

    /// The smoothed round trip, once one was measured.
    pub fn rtt_ns(&self) -> Option<u64> {
        self.requester.as_ref()?.flow.rtt().smoothed_ns()
    }

    /// Counts.
    pub fn stats(&self) -> RcStats {
        let mut stats = RcStats {
            answer_packets: self.answer_packets,
            refusals: self.refusals,
            shim: self.shim,
            auto: self.auto,
            notifications_sent: self.notifications_sent,
            notifications: self.notifications,
            half_checked_packets: self.half_checked_packets,
            ..RcStats::default()
        };
        if let Some(requester) = &self.requester {
            let Counts {
                packets,
                packets_again,
                bytes_acknowledged,
                sequence_naks,
                rnr_naks,
                timeouts,
                reads_again,
                stray_answers,
            } = requester.counts;
            (stats.packets, stats.retransmitted_packets) = (packets, packets_again);
            (stats.bytes_acknowledged, stats.psn_naks) = (bytes_acknowledged, sequence_naks);
            (stats.rnr_naks, stats.timeouts) = (rnr_naks, timeouts);
            (stats.reads_again, stats.stray_answers) = (reads_again, stray_answers);
            stats.rtt_ns = requester.flow.rtt().smoothed_ns().unwrap_or(0);
            stats.in_flight_bytes = requester.flow.in_flight_bytes();
        }
        stats
    }

    // ---- packets ----

    /// Takes what the responder did with a run of packets, and what was sent beside it.
    pub fn on_taken(&mut self, now_ns: u64, taken: &mut Taken) {
        self.shim = taken.shim.or(self.shim);
        self.auto = taken.auto.or(self.auto);
        self.owes_notification |= std::mem::take(&mut taken.is_marked);
        self.half_checked_packets += std::mem::take(&mut taken.half_checked);
        let repairs = std::mem::take(&mut taken.repairs);
        if let Some(requester) = self.requester.as_mut().filter(|_| repairs.packets > 0) {
            requester.flow.on_repairs(now_ns, &repairs);
        }
        self.refusals.add(&std::mem::take(&mut taken.refusals));
        self.done.extend(taken.done.drain(..));
        let has_failed = std::mem::take(&mut taken.has_failed);
        for answer in taken.answers.drain(..) {
            if answer.is_read() && self.answers.reads() > usize::from(self.config.answers_max) {
                // More than it was told that it may ask; a duplicate of one that waits replaces it.
                continue;
            }
            self.answers.push(answer);
        }
        if has_failed {
            self.fail(Failure::Flushed);
        }
    }

    /// Takes an answer of the peer.
    pub fn on_answer(&mut self, now_ns: u64, header: &RcHeader, payload: &[u8]) {
        self.on_any_answer(now_ns, header, Payload::Bytes(payload));
    }

    /// Takes an answer whose payload was placed ahead, in its turn.
    pub fn on_placed_answer(&mut self, now_ns: u64, header: &RcHeader, payload_bytes: usize) {
        self.on_any_answer(now_ns, header, Payload::Placed(payload_bytes));
    }

    /// Writes the payload of an answer to a READ to its place although answers before it are missing;
    /// `false` if its place is not known. Nothing else changes.
    pub fn place_answer_ahead(&self, header: &RcHeader, payload: &[u8]) -> bool {
        let requester = self.requester.as_ref().filter(|_| self.state != QpState::Error);
        requester.is_some_and(|requester| requester.place_ahead(header, payload))
    }

    fn on_any_answer(&mut self, now_ns: u64, header: &RcHeader, payload: Payload<'_>) {
        if self.state == QpState::Error {
            return;
        }
        let Some(requester) = &mut self.requester else { return };
        let result = requester.on_answer(now_ns, header, payload, &mut self.scratch);
        self.done.extend(self.scratch.drain(..));
        if let Err(failure) = result {
            self.fail(failure);
        }
    }

    /// The peer says that packets of this end met congestion.
    pub fn on_notification(&mut self, now_ns: u64) {
        self.notifications += 1;
        if let Some(requester) = &mut self.requester {
            requester.flow.on_marked(now_ns);
        }
    }

    /// Whether packets of requests are sent as ones that routers may mark.
    pub fn takes_marks(&self) -> bool {
        self.requester.as_ref().is_some_and(|requester| requester.flow.takes_marks())
    }

    /// Whether the responder must be stopped now: it gives back the receive of a message that is not whole,
    /// and [`QueuePair::on_taken`] takes it.
    pub fn take_stop(&mut self) -> bool {
        std::mem::take(&mut self.must_stop)
    }

    /// When [`QueuePair::on_timeout`] is to be called and the queue pair to be polled.
    pub fn poll_timeout(&self) -> Option<u64> {
        let requests_ns = match (self.state, &self.requester) {
            (QpState::ReadyToSend | QpState::Draining, Some(requester)) => requester.poll_timeout(),
            _ => None,
        };
        let answers_ns = self.answer_due_ns.filter(|_| !self.answers.is_empty());
        [requests_ns, answers_ns].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn on_timeout(&mut self, now_ns: u64) {
        if self.state == QpState::Error {
            return;
        }
        let Some(requester) = &mut self.requester else { return };
        if let Err(failure) = requester.on_timeout(now_ns) {
            self.fail(failure);
        }
    }

    /// The next answers that may leave now, at most `packets_max` packets. They leave before requests.
    pub fn poll_answer(&mut self, now_ns: u64, packets_max: u32) -> Option<Run> {
        let destination = self.peer.as_ref()?.number;
        let mtu_bytes = self.config.mtu_bytes;
        self.answer_due_ns = None;
        let may_notify =
            self.notified_ns.is_none_or(|notified_ns| now_ns >= notified_ns + NOTIFY_EVERY_NS);
        if self.owes_notification && may_notify {
            (self.owes_notification, self.notified_ns) = (false, Some(now_ns));
            self.notifications_sent += 1;
            return Some(Run::new(destination, mtu_bytes, 0, 1, Kind::Notification));
        }
        let one = |psn, opcode, fields| {
            Run::new(destination, mtu_bytes, psn, 1, Kind::One { opcode, fields, asks_ack: false })
        };
        let run = match self.answers.front_mut()? {
            Answer::Say { psn, syndrome, messages } => {
                let aeth = Aeth { syndrome: *syndrome, messages: *messages };
                let run = one(*psn, Opcode::Acknowledge, Fields::Aeth(aeth));
                self.answers.pop();
                run
            }
            Answer::Missing { psn, messages, came } => {
                let kind = Kind::Missing { messages: *messages, came: std::mem::take(came) };
                let run = Run::new(destination, mtu_bytes, *psn, 1, kind);
                self.answers.pop();
                run
            }
            Answer::Atomic { psn, before, messages } => {
                let fields = Fields::AtomicAck(Aeth::ack(*messages), *before);
                let run = one(*psn, Opcode::AtomicAcknowledge, fields);
                self.answers.pop();
                run
            }
            Answer::Read(read) => {
                let left = (read.packets - read.next).min(packets_max);
                let packet_bytes = u64::from(read.bytes.min(mtu_bytes)) + ANSWER_OVERHEAD_BYTES;
                let requester = self.requester.as_mut()?;
                let len = requester.flow.allowance_unanswered(now_ns, packet_bytes, left);
                if len == 0 {
                    self.answer_due_ns = Some(requester.flow.unanswered_until_ns());
                    return None;
                }
                requester.flow.on_sent_unanswered(
                    now_ns,
                    len.into(),
                    packet_bytes * u64::from(len),
                );
                let ReadAnswer { first_psn, address, key, bytes, packets, next, messages } = *read;
                read.next += len;
                let is_over = read.next == packets;
                let answer = run::Answer {
                    keys: self.keys.clone(),
                    peer_number: self.config.peer_number,
                    key,
                    address,
                    bytes,
                    packets,
                    first: next,
                    messages,
                };
                if is_over {
                    self.answers.pop();
                }
                let psn = first_psn + u64::from(next);
                Run::new(destination, mtu_bytes, psn, len, Kind::Answer(answer))
            }
        };
        self.answer_packets += run.len() as u64;
        Some(run)
    }

    /// The next packets of requests that may leave now, at most `packets_max`.
    pub fn poll_request(&mut self, now_ns: u64, packets_max: u32) -> Option<Run> {
        if !matches!(self.state, QpState::ReadyToSend | QpState::Draining) {
            return None;
        }
        self.requester.as_mut()?.poll(now_ns, packets_max)
    }
}
