//! Sending side of a queue pair: turns an application's send into messages, a message's machine
//! into runs to transmit, and the peer's frames into the send's outcome.
//!
//! A send of any length becomes one message per slot that it needs; the n-th send goes to the n-th
//! posted receive (SDR-RDMA 3.1.3). A send whose receive is not posted yet waits in order.

mod assign;
mod fences;
mod offers;
mod pairing;
mod parity;
mod repairs;
mod stream;
mod writes;

pub(super) use offers::Withheld;
pub use writes::Target;

use super::error::{Failure, PostSendError, SendFailure, WaitedFor};
use super::event::{Changes, PendingEvents};
use super::outgoing::{Messages, Outgoing};
use super::peer_receives::{PeerReceives, PeerStatus};
use super::queues::{Position, Queues};
use super::transmit::{Measured, Segment, Transmit};
use super::user_send::{SendId, SendRequest, SendStatus, UserSend, UserSends};
use super::waiting::Waiting;
use crate::modes::auto::{Chooser, Policy};
use crate::modes::{Mode, SentRun};
use assign::Assigned;
use fences::Fences;
use lacuna_code::Codec;
use lacuna_path::Path;
use lacuna_path::ledger::{LedgerEntry, Sent};
use lacuna_place::geometry::Geometry;
use lacuna_wire::{Ack, Cancel, CancelReason, Receives};
use offers::Offers;
use std::ops::Range;
use std::sync::Arc;
use writes::Writes;

/// Most sends that may wait for the peer's receives. A judgement.
const WAITING_MAX: usize = 65_536;

/// Sending side of a queue pair.
#[derive(Debug)]
pub(crate) struct SendSide {
    geometry: Geometry,
    /// Longest payload of a packet on the wire.
    payload_bytes_max: u32,
    /// Pieces that a full packet is cut into; 1 unless the path MTU has fallen.
    pieces: u32,
    mode: Mode,
    /// `None` in a mode without a code.
    codec: Option<Arc<Codec>>,
    /// The peer's queue pair and remote key; `None` until connected.
    peer: Option<(u32, u32)>,
    pub(crate) peer_receives: PeerReceives,
    next_number: u64,
    waiting: Waiting,
    /// Sends whose messages have numbers and are not built yet.
    assigned: Assigned,
    messages: Messages,
    sends: UserSends,
    queues: Queues,
    /// Nothing is sent but writes to regions.
    is_one_sided: bool,
    /// The n-th send belongs to the peer's n-th receive, and is lost with it (`pairing.rs`). Else it
    /// takes the first open one.
    pairs_in_order: bool,
    writes: Writes,
    /// Sends whose data are offered part by part.
    offers: Offers,
    /// Sends that wait for earlier ones to end.
    fences: Fences,
    /// Streams and sends that may still grow, with their first numbers; others until the next look.
    growing: Vec<(u64, SendId)>,
    /// Messages of which the last queued run on a channel was polled, for `on_polled`.
    polled: Vec<u64>,
    /// Only in the mode `auto`.
    chooser: Option<Chooser>,
    /// Events that the owner has not polled yet.
    pub(super) pending_events: PendingEvents,
    /// The application wants to send and no receive is posted. Flushes ask the peer for its state,
    /// because the frame that announced a receive may have been lost.
    wants_receive: bool,
    pub(crate) stats: SendStats,
}

/// Counters of the sending side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendStats {
    /// Data packets put on the wire.
    pub packets: u64,
    /// Payload bytes put on the wire, repairs included.
    pub bytes: u64,
    /// Of the packets, repairs.
    pub retransmitted_packets: u64,
    /// Chunks queued to be sent again. A chunk acknowledged before it leaves is counted but not
    /// sent.
    pub retransmitted_chunks: u64,
    /// Of the packets, parity.
    pub parity_packets: u64,
    /// Payload bytes of the parity packets.
    pub parity_bytes: u64,
    /// Time spent on encoding, as far as the owner measures it.
    pub encode_ns: u64,
    /// Submessages of finished messages whose parity did not suffice.
    pub fallbacks: u64,
    /// Sends completed.
    pub messages: u64,
}

impl SendSide {
    pub(crate) fn new(
        geometry: Geometry,
        mode: Mode,
        policy: Policy,
        codec: Option<Arc<Codec>>,
    ) -> Self {
        Self {
            chooser: mode.chooser(policy),
            payload_bytes_max: geometry.mtu_bytes(),
            pieces: 1,
            geometry,
            mode,
            codec,
            peer: None,
            peer_receives: PeerReceives::default(),
            next_number: 0,
            waiting: Waiting::default(),
            assigned: Assigned::default(),
            messages: Messages::default(),
            sends: UserSends::default(),
            queues: Queues::new(geometry),
            is_one_sided: false,
            pairs_in_order: matches!(mode, Mode::Bounded(_)),
            writes: Writes::default(),
            offers: Offers::default(),
            fences: Fences::default(),
            growing: Vec::new(),
            polled: Vec::new(),
            pending_events: PendingEvents::default(),
            wants_receive: false,
            stats: SendStats::default(),
        }
    }

    pub(crate) fn connect(&mut self, queue_pair: u32, rkey: u32) {
        self.peer = Some((queue_pair, rkey));
    }

    // ---- the application's calls ----

    /// Queues a send; it waits until its receive is posted.
    pub(crate) fn queue(&mut self, request: SendRequest) -> Result<SendId, PostSendError> {
        self.queue_then(request, |_, _| ())
    }

    /// As [`SendSide::queue`]; `prepare` is called before anything of it may be sent.
    #[inline(always)]
    fn queue_then(
        &mut self,
        request: SendRequest,
        prepare: impl FnOnce(&mut Self, SendId),
    ) -> Result<SendId, PostSendError> {
        if self.is_one_sided {
            return Err(PostSendError::OneSided);
        }
        self.queue_any(request, prepare)
    }

    /// As [`SendSide::queue_then`], on a queue pair of either kind.
    #[inline(always)]
    fn queue_any(
        &mut self,
        request: SendRequest,
        prepare: impl FnOnce(&mut Self, SendId),
    ) -> Result<SendId, PostSendError> {
        self.check(request.immediate)?;
        let waiting = self.waiting.len() + self.fences.len();
        if waiting >= WAITING_MAX {
            return Err(PostSendError::QueueFull { waiting });
        }
        let id = self.sends.admit(request.data.len() as u64, request.deadline_ns);
        prepare(self, id);
        if self.fences.is_idle() {
            self.enqueue_send(id, request);
        } else if let Some(request) = self.hold(id, request) {
            self.enqueue_send(id, request);
        }
        Ok(id)
    }

    /// Assigns a send to its receive, or queues it until that is posted.
    #[inline(always)]
    fn enqueue_send(&mut self, id: SendId, request: SendRequest) {
        if self.pairs_in_order {
            self.waiting.push(id, request);
            return self.assign_waiting();
        }
        let len_bytes = request.data.len() as u64;
        match self.receive_for(len_bytes).filter(|_| self.waiting.is_empty()) {
            Some(receive) => self.assign_if_fits(id, request, receive),
            None => self.waiting.push(id, request),
        }
    }

    /// Starts a send, if its receive is posted.
    pub(crate) fn post(&mut self, request: SendRequest) -> Result<SendId, PostSendError> {
        self.check(request.immediate)?;
        if self.is_one_sided {
            return Err(PostSendError::OneSided);
        }
        let receive = self.next_receive()?;
        let len_bytes = request.data.len() as u64;
        if len_bytes > receive.capacity_bytes {
            let capacity_bytes = receive.capacity_bytes;
            return Err(PostSendError::TooLong { len_bytes, capacity_bytes });
        }
        let id = self.sends.admit(len_bytes, request.deadline_ns);
        self.assign(id, request, receive);
        Ok(id)
    }

    fn check(&self, immediate: Option<u32>) -> Result<(), PostSendError> {
        if self.peer.is_none() {
            return Err(PostSendError::NotConnected);
        }
        if immediate.is_some() && self.geometry.split().fragments() == 0 {
            return Err(PostSendError::NoImmediate);
        }
        Ok(())
    }

    pub(crate) fn status(&self, id: SendId) -> Option<SendStatus> {
        let send = self.sends.get(id)?;
        let live = self.messages.of(&send.numbers);
        let live: u64 = live.map(|outgoing| outgoing.machine.counts().retransmitted_chunks).sum();
        let started = !send.numbers.is_empty();
        Some(SendStatus {
            injected: started && send.uninjected == 0,
            finished: started && send.unfinished == 0,
            outcome: send.outcome,
            retransmitted_chunks: send.retransmitted_chunks + live,
        })
    }

    /// See [`UserSends::notify`].
    pub(crate) fn notify(&mut self, id: SendId) {
        self.sends.notify(id);
    }

    /// See [`UserSends::poll_ended`].
    pub(crate) fn poll_ended(&mut self) -> Option<(SendId, Result<(), SendFailure>)> {
        self.sends.poll_ended()
    }

    /// Forgets a send once it has ended. A send in progress goes on.
    pub(crate) fn release(&mut self, id: SendId) {
        self.sends.release(id);
    }

    /// Cancels a send; the peer is told, and its receive fails.
    pub(crate) fn cancel(&mut self, now_ns: u64, id: SendId) {
        if self.end(now_ns, id, CancelReason::Cancelled, SendFailure::Cancelled) {
            self.drop_queued();
        }
        self.lift_fences();
    }

    /// A send's deadline has passed; the peer has been silent for `silent_ms`. Returns the same as
    /// [`SendSide::end`].
    fn on_deadline(&mut self, now_ns: u64, id: SendId, silent_ms: u64) -> bool {
        let Some(send) = self.sends.get(id) else { return false };
        let failure = SendFailure::Deadline {
            acked_bytes: self.acked_bytes(send),
            len_bytes: send.len_bytes,
            waited_for: self.waited_for(send),
            silent_ms,
        };
        self.end(now_ns, id, CancelReason::Deadline, failure)
    }

    /// Ends a send, but leaves its queued runs: many sends may end at once, and
    /// [`SendSide::drop_queued`] looks through the queues once for all. Returns whether the send
    /// may have queued runs.
    fn end(&mut self, now_ns: u64, id: SendId, reason: CancelReason, failure: SendFailure) -> bool {
        let send = self.sends.get(id).filter(|send| send.outcome.is_none());
        let Some(numbers) = send.map(|send| send.numbers.clone()) else { return false };
        let had_started = !numbers.is_empty();
        self.build_before(numbers.end);
        self.messages.cancel(now_ns, numbers, reason);
        self.waiting.remove(id);
        self.fences.remove(id);
        self.settle(id, Err(failure));
        self.pass_over();
        had_started
    }

    fn waited_for(&self, send: &UserSend) -> WaitedFor {
        if send.numbers.is_empty() {
            WaitedFor::Receive
        } else if send.uninjected > 0 {
            WaitedFor::Transmission
        } else {
            WaitedFor::Acknowledgement
        }
    }

    fn acked_bytes(&self, send: &UserSend) -> u64 {
        let live: u64 = self
            .messages
            .of(&send.numbers)
            .map(|outgoing| {
                let acked = u64::from(outgoing.machine.acked_chunks());
                (acked * self.geometry.chunk_bytes()).min(outgoing.len_bytes)
            })
            .sum();
        send.acked_bytes + live
    }

    /// Cuts full packets into at most `pieces` pieces from now on: fewer, if the same length of a
    /// piece allows.
    pub(crate) fn set_pieces(&mut self, pieces: u32) {
        let mtu_bytes = self.geometry.mtu_bytes();
        self.payload_bytes_max = mtu_bytes.div_ceil(pieces);
        self.pieces = mtu_bytes.div_ceil(self.payload_bytes_max);
    }

    /// Pieces that a full packet is cut into.
    pub(crate) fn pieces(&self) -> u32 {
        self.pieces
    }

    /// Longest payload of a packet on the wire.
    pub(crate) fn payload_bytes_max(&self) -> u32 {
        self.payload_bytes_max
    }

    // ---- queues of runs ----

    /// Moves the runs that the message's machine wants sent to the channels' queues.
    fn collect_runs(&mut self, number: u64, position: Position) {
        if let Some(outgoing) = self.messages.get_mut(number) {
            outgoing.enqueue_runs(&mut self.queues, position);
            if outgoing.withheld.is_some() {
                self.release_runs(number, position);
            }
        }
    }

    fn enqueue(&mut self, segment: &Arc<Segment>, packets: &Range<u32>, position: Position) {
        if let Some(outgoing) = self.messages.get_mut(segment.number) {
            outgoing.queued += self.queues.push(segment, packets, position);
        }
    }

    /// Number of the next message: all before it belong to some send, built yet or not.
    pub(crate) fn started(&self) -> u64 {
        self.next_number
    }

    /// The number before which everything of the messages was sent on this channel; 0 while something
    /// is queued for it.
    pub(crate) fn sent_before(&mut self, channel: usize) -> u64 {
        if !self.queues.is_empty_on(channel) {
            return 0;
        }
        let (sends, offers) = (&self.sends, &self.offers);
        let is_streaming = |id: SendId| sends.get(id).is_some_and(|send| send.streaming);
        self.growing.retain(|(_, id)| is_streaming(*id) || offers.is_open(*id));
        self.growing.iter().map(|(number, _)| *number).fold(self.next_number, u64::min)
    }

    /// The peer has said that its receives of all messages before this one are over.
    pub(crate) fn peer_finished_before(&self) -> u64 {
        self.peer_receives.base()
    }

    /// Whether anything is queued.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queues.is_empty()
    }

    /// Whether something is queued, and less than `bytes`.
    pub(crate) fn is_near_end(&self, bytes: u64) -> bool {
        let packets = bytes / u64::from(self.geometry.mtu_bytes());
        let packets = packets.saturating_sub(self.assigned.packets());
        self.has_queued() && !self.queues.has_packets(packets as u32)
    }

    /// Whether anything is queued for this channel.
    pub(crate) fn has_queued_on(&self, channel: usize) -> bool {
        !self.queues.is_empty_on(channel)
    }

    /// See [`Queues::packets_on`]. All packets of messages that are not built yet count, too.
    pub(crate) fn queued_packets_on(&self, channel: usize, most: u32) -> u32 {
        let assigned = self.assigned.packets().min(u64::from(u32::MAX)) as u32;
        self.queues.packets_on(channel, most).saturating_add(assigned)
    }

    /// Drops the queued runs of messages that have ended or were cancelled.
    fn drop_queued(&mut self) {
        let messages = &mut self.messages;
        self.queues.retain(|number| match messages.get_mut(number) {
            Some(outgoing) if outgoing.cancelled.is_none() => true,
            Some(outgoing) => {
                outgoing.queued -= 1;
                false
            }
            None => false,
        });
        self.build_next();
    }

    /// The next run for `channel`, of at most `packets_max` packets as far as
    /// the path allows. Counts it as sent.
    pub(crate) fn poll_transmit(
        &mut self,
        now_ns: u64,
        channel: u8,
        packets_max: u32,
        path: &mut Path,
    ) -> Option<Transmit> {
        let index = usize::from(channel);
        let waiting = self.next_packets(channel, path);
        if waiting == 0 {
            return None;
        }
        let (most, pieces) = match self.is_one_sided {
            true => (self.geometry.mtu_bytes(), 1),
            false => (self.payload_bytes_max, self.pieces),
        };
        let on_the_wire = waiting.saturating_mul(pieces);
        let packet_bytes = u64::from(most + self.geometry.overhead_bytes(false));
        let allowed = path.allowance_packets(now_ns, index, packet_bytes, on_the_wire);
        let allowed = allowed.min(packets_max);
        if allowed == 0 {
            return None;
        }
        let allowed = match pieces {
            1 => allowed.min(waiting),
            // The pieces of one packet are sent together.
            _ => (allowed / pieces).clamp(1, waiting),
        };
        let taken = self.queues.take(channel, allowed)?;
        let (number, packets) = (taken.segment.number, taken.packets);
        let (segment, run_end) = (taken.segment, taken.run_end);
        let mut transmit = Transmit::new(segment, packets.clone(), run_end, channel, most);
        let Measured { padded_bytes: payload_bytes, overhead_bytes, short } = transmit.measure();
        let (bytes, pieces) = (payload_bytes + overhead_bytes, transmit.pieces);
        transmit.takes_marks = path.takes_marks();
        let sent = Sent { number, packets, pieces, short, bytes };
        let count = sent.count();
        transmit.first_psn = path.on_sent(now_ns, index, sent);
        self.stats.packets += count;
        self.stats.bytes += payload_bytes;
        if transmit.is_parity() {
            self.stats.parity_packets += count;
            self.stats.parity_bytes += payload_bytes;
        }
        if taken.is_repair {
            self.stats.retransmitted_packets += count;
        }
        if taken.is_last {
            self.on_last_taken(number, path);
            self.build_next();
        }
        Some(transmit)
    }

    /// The last packet of a queued run was taken from its queue.
    fn on_last_taken(&mut self, number: u64, path: &Path) {
        if let Some(outgoing) = self.messages.get_mut(number) {
            outgoing.queued -= 1;
        }
        self.choose(number, path);
        self.polled.push(number);
    }

    /// Accounts for the runs polled since the last call.
    pub(crate) fn on_polled(&mut self) {
        while let Some(number) = self.polled.pop() {
            self.check_injected(number);
        }
        self.lift_fences();
    }

    /// Marks a message as injected once all of it was sent once.
    fn check_injected(&mut self, number: u64) {
        let Some(outgoing) = self.messages.get_mut(number) else { return };
        if outgoing.injected || outgoing.queued > 0 || outgoing.withheld.is_some() {
            return;
        }
        let id = outgoing.send;
        let Some(send) = self.sends.get_mut(id) else { return };
        if send.streaming {
            return;
        }
        outgoing.injected = true;
        send.uninjected -= 1;
        if !outgoing.machine.awaits_peer() {
            // Nothing will be sent again, so the application may have its memory back.
            outgoing.segment = None;
            if send.uninjected == 0 {
                self.settle(id, Ok(()));
            }
        }
    }

    // ---- frames from the peer ----

    /// Takes in the state of the peer's receives.
    pub(crate) fn on_receives(&mut self, frame: &Receives<'_>) {
        let posted = self.peer_receives.posted();
        let may_hold_back = !self.offers.is_empty();
        self.peer_receives.update(frame);
        self.wants_receive &= self.peek_receive().is_none();
        if self.peer_receives.posted() != posted {
            self.pending_events.add(Changes::RECEIVES_POSTED);
        }
        // The peer may have closed receives of messages that are not built yet.
        self.build_before(self.peer_receives.finished_end());
        let (mut next, mut were_queued) = (0, false);
        let end = self.peer_receives.finished_end();
        while let Some((at, number)) = self.messages.first_of(next..end) {
            next = number + 1;
            let status = self.peer_receives.status_of(number);
            if status != PeerStatus::Open
                && let Some((_, outgoing)) = &self.messages.remove_at(at)
            {
                self.pending_events.add(Changes::SEND_ENDED);
                were_queued |= outgoing.queued > 0;
                were_queued |= self.finish(outgoing, status);
            }
        }
        if were_queued {
            self.drop_queued();
        }
        if may_hold_back {
            // A send that held later ones back may have ended.
            self.build_next();
        }
        self.assign_waiting();
        self.lift_fences();
    }

    /// Ends a message, which was removed. Returns whether other messages were cancelled with it, whose runs
    /// may be queued.
    #[inline]
    fn finish(&mut self, outgoing: &Outgoing, status: PeerStatus) -> bool {
        let counts = outgoing.machine.counts();
        self.stats.retransmitted_chunks += counts.retransmitted_chunks;
        self.stats.fallbacks += counts.fallbacks;
        let id = outgoing.send;
        let Some(send) = self.sends.get_mut(id) else { return false };
        send.unfinished -= 1;
        send.retransmitted_chunks += counts.retransmitted_chunks;
        if !outgoing.injected {
            send.uninjected -= 1;
        }
        let is_complete = match status {
            PeerStatus::Complete => true,
            PeerStatus::Unknown => {
                outgoing.machine.acked_chunks() == self.geometry.chunks(outgoing.len_bytes)
            }
            PeerStatus::Open | PeerStatus::Incomplete => false,
        };
        if is_complete {
            send.stream_is_whole = send.streaming;
            send.acked_bytes += outgoing.len_bytes;
        }
        if !is_complete && outgoing.machine.awaits_peer() {
            // The other messages of the same send are of no use any more.
            self.messages.cancel(0, send.numbers.clone(), CancelReason::Cancelled);
            self.settle(
                id,
                Err(match self.is_one_sided {
                    true => SendFailure::Refused,
                    false => SendFailure::ClosedByPeer,
                }),
            );
            return true;
        }
        if send.unfinished == 0 {
            self.settle(id, Ok(()));
        }
        false
    }

    pub(crate) fn on_ack(&mut self, sequence: u64, ack: &Ack<'_>) {
        if let Some(outgoing) = self.messages.get_mut(ack.message) {
            outgoing.machine.on_ack(sequence, ack);
            self.collect_runs(ack.message, Position::Repair);
            self.messages.update_timer(ack.message);
        }
    }

    pub(crate) fn on_passed(&mut self, sequence: u64, entry: LedgerEntry, rto_ns: u64) {
        let number = entry.sent.number;
        if let Some(outgoing) = self.messages.get_mut(number) {
            let run = SentRun { packets: entry.sent.packets, sent_ns: entry.sent_ns };
            outgoing.machine.on_passed(sequence, run, rto_ns);
            self.collect_runs(number, Position::Repair);
            self.messages.update_timer(number);
        }
    }

    pub(crate) fn on_expired(&mut self, entry: LedgerEntry) {
        let number = entry.sent.number;
        if let Some(outgoing) = self.messages.get_mut(number) {
            let run = SentRun { packets: entry.sent.packets, sent_ns: entry.sent_ns };
            outgoing.machine.on_expired(run);
            self.collect_runs(number, Position::Repair);
            self.messages.update_timer(number);
        }
    }

    // ---- time ----

    /// When [`SendSide::on_timeout`] wants to be called.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.messages.poll_timeout().into_iter().chain(self.sends.next_deadline_ns()).min()
    }

    /// Handles the timeouts that are due. Returns how many runs a mode sends again because their
    /// timeout has expired. The peer has been silent for `silent_ms`, 0 if it is not silent.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, silent_ms: u64) -> u64 {
        let mut expired = 0;
        let mut were_queued = false;
        while let Some(id) = self.sends.overdue(now_ns) {
            were_queued |= self.on_deadline(now_ns, id, silent_ms);
        }
        if were_queued {
            self.drop_queued();
        }
        self.lift_fences();
        while let Some(number) = self.messages.due(now_ns) {
            let Some(outgoing) = self.messages.get_mut(number) else { break };
            expired += outgoing.machine.on_timeout(now_ns);
            self.collect_runs(number, Position::Repair);
            self.messages.update_timer(number);
        }
        expired
    }

    /// Cancel frames that are due.
    pub(crate) fn poll_cancels(&mut self, now_ns: u64, rto_ns: u64) -> Vec<Cancel> {
        self.messages.poll_cancels(now_ns, rto_ns)
    }

    /// Whether the application waits for a receive to send to.
    pub(crate) fn wants_receive(&self) -> bool {
        self.wants_receive
    }

    /// Whether something waits for the peer: for its receives, or to hear that a message is
    /// finished.
    pub(crate) fn awaits_peer(&self) -> bool {
        !self.waiting.is_empty() || !self.messages.is_empty()
    }

    /// Ends all sends.
    pub(crate) fn fail(&mut self, failure: Failure) {
        self.waiting.clear();
        self.fences.clear();
        self.assigned = Assigned::default();
        self.messages = Messages::default();
        self.drop_queued();
        for id in self.sends.open() {
            self.settle(id, Err(SendFailure::Failed(failure)));
        }
    }

    fn settle(&mut self, id: SendId, outcome: Result<(), SendFailure>) {
        if self.sends.settle(id, outcome) {
            if !self.offers.is_empty() {
                self.offers.forget(id);
            }
            self.fences.on_settled(id);
            self.pending_events.add(Changes::SEND_ENDED);
            self.stats.messages += u64::from(outcome.is_ok());
        }
    }
}
