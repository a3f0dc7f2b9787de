//! The responder: takes the peer's requests in the order of their numbers and nothing else.
//!
//! InfiniBand Architecture Specification, volume 1, section 9.7 (9.7.4.1: what is done with a number;
//! 9.7.4.1.5 to 9.7.4.1.8: what a request must be; 9.9.3: refusals). It belongs to the one worker that
//! receives the queue pair's packets, and takes no lock but that of the receive queue, once per message.
//!
//! Rules of go-back-N:
//!
//! - the expected packet is done and the next one expected;
//! - one behind a gap is dropped, and the first of them is answered by "sequence error", once until the
//!   expected packet comes;
//! - one before the expected is a duplicate: SENDs and WRITEs are acknowledged again and change nothing,
//!   READs are answered again, atomic operations from what they found the first time;
//! - a message that finds no receive is answered by "receiver not ready", and everything is dropped until
//!   it comes again;
//! - a wrong request is refused, and the queue pair has failed.
//!
//! With selective repeat, packets behind a gap are kept (`held`) and done in their turn, and the peer is told
//! once for each batch what has come.
//!
//! A packet behind a gap whose place is known may be written *ahead* of its turn ([`Responder::place_ahead`]),
//! if somebody below keeps its headers until then. That holds for the message that is open alone: what an
//! earlier message writes later must not cover what a later one wrote. In its turn the packet is checked and
//! counted as any other ([`Responder::take_placed`]).
//!
//! Invariants: a byte is written only under a pin of its key or into the message's own receive; a
//! completion comes after the last byte; what a packet says of itself is checked before it is used.

use crate::answers::{Answer, ReadAnswer};
use crate::config::{Peer, RcConfig, Repair};
use crate::held::{Content, Held, HeldRequest};
use crate::receive_queue::ReceiveQueue;
use crate::selective::ranges_max;
use crate::work::{Done, Failure, Operation, Received, RecvWork};
use crate::{PSN_BASE, Payload};
use lacuna_place::region::{KeyTable, Rights};
use lacuna_wire::rc::{
    AtomicHeader, CREDITS_UNLIMITED, Fields, Nak, Opcode, Part, RcHeader, Reth, Syndrome,
};
use lacuna_wire::{PSN_MASK, psn, rc};
use std::collections::VecDeque;
use std::sync::Arc;

/// Packets of a message, at most: half of what lies between two numbers that can be told apart.
pub(crate) const MESSAGE_PACKETS_MAX: u32 = 1 << 22;

/// Packets between the expected one and one that may come at all: more than any path holds (100 Gbit/s over
/// 80 ms, in packets of 1 KB), and few enough that nobody hits them by chance.
const REACH_PACKETS: u64 = 1 << 20;

/// What the responder did with the packets of a run, for the queue pair's other half.
#[derive(Debug, Default)]
pub struct Taken {
    pub(crate) answers: Vec<Answer>,
    pub(crate) done: Vec<Done>,
    /// The queue pair has failed.
    pub(crate) has_failed: bool,
    /// Counts since the queue pair was told last.
    pub(crate) refusals: Refusals,
    /// Something came behind a gap that was kept.
    is_missing: bool,
    /// A packet came that a router had marked.
    pub(crate) is_marked: bool,
    /// Packets whose ICRC was checked but for the identification.
    pub(crate) half_checked: u64,
    /// Repairs that were sent since then.
    pub(crate) repairs: Repairs,
    /// What the shim has done so far, if there is one.
    pub(crate) shim: Option<lacuna_lowar::Counters>,
    /// Why the peer's packets are protected as they are, if the shim chooses that.
    pub(crate) auto: Option<lacuna_lowar::Reason>,
}

/// Repair packets of a shim that were sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Repairs {
    pub(crate) packets: u64,
    /// As UDP payload.
    pub(crate) bytes: u64,
    /// The number behind the last packet of requests that they cover; `None` if of answers alone.
    pub(crate) psn_end: Option<u64>,
}

impl Taken {
    /// Whether there is something to tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
            && self.done.is_empty()
            && !self.has_failed
            && self.repairs.packets == 0
            && !self.is_marked
    }
}

/// Packets that were not taken as a request in order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Behind a gap.
    pub out_of_sequence: u64,
    /// Taken before.
    pub duplicates: u64,
    /// Messages without a receive.
    pub not_ready: u64,
    /// Refused for good.
    pub refused: u64,
    /// Answers, or numbers that no request can have: nobody's packets.
    pub stray: u64,
}

impl Refusals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.out_of_sequence += other.out_of_sequence;
        self.duplicates += other.duplicates;
        self.not_ready += other.not_ready;
        self.refused += other.refused;
        self.stray += other.stray;
    }
}

/// A message of which some packets have come.
#[derive(Debug)]
enum Message {
    Send { receive: RecvWork, bytes: u64, ahead: Ahead },
    Write { reth: Reth, bytes: u32 },
}

/// How far packets of a SEND were placed ahead. Its length is not known, so a packet is surely of it only if
/// at most one is missing before it: that is no end and no beginning, unless both are one.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    /// Behind the last packet that was placed; 0 if none was.
    next: u64,
    /// That was the message's last one.
    is_over: bool,
}

/// See the module's text.
#[derive(Debug)]
pub struct Responder {
    mtu_bytes: u32,
    peer_number: u64,
    answers_max: u8,
    rnr_timer: u8,
    keys: Arc<KeyTable>,
    receives: Arc<ReceiveQueue>,
    /// Number of the next request.
    expected: u64,
    /// Messages that are done, 24 bits.
    messages: u32,
    /// Nothing is said of packets behind the gap any more.
    is_silent: bool,
    message: Option<Message>,
    /// What the last atomic operations found.
    atomics: VecDeque<(u64, u64)>,
    has_failed: bool,
    /// What came behind a gap, with selective repeat.
    held: Option<Box<Held>>,
}

/// A request cannot be done now or ever.
enum Refused {
    NotReady,
    Nak(Nak),
}

impl From<Nak> for Refused {
    fn from(nak: Nak) -> Self {
        Self::Nak(nak)
    }
}

impl Responder {
    /// Takes the requests of `peer` into the memory of `keys` and into `receives`.
    #[must_use]
    pub fn new(
        config: &RcConfig,
        peer: &Peer,
        keys: Arc<KeyTable>,
        receives: Arc<ReceiveQueue>,
    ) -> Self {
        Self {
            mtu_bytes: config.mtu_bytes,
            peer_number: config.peer_number,
            answers_max: config.answers_max,
            rnr_timer: config.rnr_timer,
            keys,
            receives,
            expected: PSN_BASE + u64::from(peer.first_psn),
            messages: 0,
            is_silent: false,
            message: None,
            atomics: VecDeque::new(),
            has_failed: false,
            held: (config.repair == Repair::SelectiveRepeat).then(Box::default),
        }
    }

    /// A batch of packets is over: the peer is told what is missing, if something is.
    pub(crate) fn conclude(&mut self, taken: &mut Taken) {
        if !std::mem::take(&mut taken.is_missing) {
            return;
        }
        let Some(held) = self.held.as_ref().filter(|_| !self.is_silent) else { return };
        let (psn, messages) = (self.expected, self.messages);
        // One that found no receive may be in there: it comes again.
        let behind = held.came().iter().map(|range| range.start.max(psn + 1)..range.end);
        let mut behind = behind.filter(|range| !range.is_empty());
        // The lowest, and the highest.
        let most = ranges_max(self.mtu_bytes);
        let mut came: Vec<_> = behind.by_ref().take(most - 1).collect();
        came.extend(behind.next_back());
        if came.is_empty() {
            return;
        }
        taken.answers.push(Answer::Missing { psn, messages, came });
    }

    /// Takes a request. Answers of the peer are the queue pair's: see [`crate::QueuePair::on_answer`].
    pub fn take(&mut self, header: &RcHeader, payload: &[u8], taken: &mut Taken) {
        self.take_any(header, Payload::Bytes(payload), taken);
    }

    /// Takes a request whose payload was placed ahead, in its turn.
    pub fn take_placed(&mut self, header: &RcHeader, payload_bytes: usize, taken: &mut Taken) {
        self.take_any(header, Payload::Placed(payload_bytes), taken);
    }

    /// Writes the payload of a packet behind a gap to its place, if that is known for sure; `false` if not.
    /// Nothing else changes.
    pub fn place_ahead(&mut self, header: &RcHeader, payload: &[u8]) -> bool {
        let (part, operation) = (header.opcode.part(), header.opcode.operation());
        let number = psn::unwrap(header.psn, self.expected);
        let mtu_bytes = self.mtu_bytes as usize;
        let is_full = payload.len() == mtu_bytes;
        let has_length = if part.ends() { payload.len() <= mtu_bytes } else { is_full };
        if self.has_failed || number <= self.expected || part.begins() || !has_length {
            return false;
        }
        let packets = number - self.expected;
        if packets > u64::from(MESSAGE_PACKETS_MAX) {
            return false;
        }
        let distance = packets * u64::from(self.mtu_bytes);
        match &mut self.message {
            Some(Message::Write { reth, bytes }) if operation == rc::Operation::Write => {
                let before = u64::from(*bytes) + distance;
                let end = before + payload.len() as u64;
                let length = u64::from(reth.length);
                if end > length || (end == length) != part.ends() {
                    return false;
                }
                let reth = *reth;
                self.place(&reth, before as u32, Payload::Bytes(payload), false).is_ok()
            }
            Some(Message::Send { receive, bytes, ahead }) if operation == rc::Operation::Send => {
                let next = ahead.next.max(self.expected);
                let is_sure = if ahead.is_over { number < next } else { number <= next + 1 };
                if !is_sure || receive.into.write(*bytes + distance, payload).is_err() {
                    return false;
                }
                if number >= next {
                    *ahead = Ahead { next: number + 1, is_over: part.ends() };
                }
                true
            }
            _ => false,
        }
    }

    fn take_any(&mut self, header: &RcHeader, payload: Payload<'_>, taken: &mut Taken) {
        if self.has_failed || !header.opcode.is_request() {
            taken.refusals.stray += 1;
            return;
        }
        let number = psn::unwrap(header.psn, self.expected);
        if number.abs_diff(self.expected) > REACH_PACKETS {
            taken.refusals.stray += 1;
            return;
        }
        if number < self.expected {
            taken.refusals.duplicates += 1;
            return self.repeat(number, header, taken);
        }
        if number > self.expected && self.held.is_some() {
            return self.hold(number, header, payload, taken);
        }
        if number > self.expected {
            taken.refusals.out_of_sequence += 1;
            if !std::mem::replace(&mut self.is_silent, true) {
                self.say(self.expected, Syndrome::Nak(Nak::PsnSequence), taken);
            }
            return;
        }
        let mut is_done = self.do_expected(header, payload, taken);
        while is_done
            && let Some(held) = self.held.as_mut().and_then(|held| held.take(self.expected))
        {
            let payload = match &held.content {
                Content::Bytes(bytes) => Payload::Bytes(bytes),
                Content::Placed(bytes) => Payload::Placed(*bytes),
            };
            is_done = self.do_expected(&held.header, payload, taken);
        }
        if let Some(held) = &mut self.held {
            held.on_done(self.expected);
            taken.is_missing |= held.came().last_end().is_some();
        }
    }

    /// Keeps a request that came behind a gap.
    fn hold(&mut self, number: u64, header: &RcHeader, payload: Payload<'_>, taken: &mut Taken) {
        let is_known = self.held.as_ref().is_some_and(|held| held.contains(number));
        taken.is_missing |= !self.is_silent;
        if is_known {
            taken.refusals.duplicates += 1;
            return;
        }
        let content = match payload {
            Payload::Placed(bytes) => Content::Placed(bytes),
            Payload::Bytes(bytes) if self.place_ahead(header, bytes) => {
                Content::Placed(bytes.len())
            }
            Payload::Bytes(bytes) => Content::Bytes(bytes.into()),
        };
        let numbers = match (header.opcode.operation(), header.fields.reth()) {
            (rc::Operation::ReadRequest, Some(reth)) => {
                packets_of(reth.length.into(), self.mtu_bytes).min(MESSAGE_PACKETS_MAX)
            }
            _ => 1,
        };
        let request = HeldRequest { header: *header, content };
        let is_kept = self.held.as_mut().is_some_and(|held| held.keep(number, numbers, request));
        taken.refusals.out_of_sequence += u64::from(!is_kept);
    }

    /// Does the request with the expected number; or refuses it (`false`).
    fn do_expected(&mut self, header: &RcHeader, payload: Payload<'_>, taken: &mut Taken) -> bool {
        let number = self.expected;
        match self.execute(header, payload, taken) {
            Ok(()) => {
                self.is_silent = false;
                return true;
            }
            Err(Refused::NotReady) => {
                taken.refusals.not_ready += 1;
                self.is_silent = true;
                self.say(number, Syndrome::ReceiverNotReady { timer: self.rnr_timer }, taken);
            }
            Err(Refused::Nak(nak)) => {
                taken.refusals.refused += 1;
                self.say(number, Syndrome::Nak(nak), taken);
                self.fail(nak, taken);
            }
        }
        false
    }

    /// The queue pair is over: gives back the receive of a message that is not whole.
    pub fn stop(&mut self, taken: &mut Taken) {
        self.has_failed = true;
        if let Some(Message::Send { receive, bytes, .. }) = self.message.take() {
            taken.done.push(done(&receive, Operation::Receive, Err(Failure::Flushed), bytes, None));
        }
    }

    fn fail(&mut self, nak: Nak, taken: &mut Taken) {
        taken.has_failed = true;
        self.has_failed = true;
        if let Some(Message::Send { receive, bytes, .. }) = self.message.take() {
            let status = Err(Failure::Refused(nak));
            taken.done.push(done(&receive, Operation::Receive, status, bytes, None));
        }
    }

    fn say(&self, psn: u64, syndrome: Syndrome, taken: &mut Taken) {
        taken.answers.push(Answer::Say { psn, syndrome, messages: self.messages });
    }

    fn acknowledge(&self, taken: &mut Taken) {
        self.say(self.expected - 1, Syndrome::Ack { credits: CREDITS_UNLIMITED }, taken);
    }

    /// Answers a duplicate.
    fn repeat(&mut self, number: u64, header: &RcHeader, taken: &mut Taken) {
        match (header.opcode.operation(), header.fields) {
            (rc::Operation::ReadRequest, Fields::Reth(reth)) => {
                let packets = packets_of(reth.length.into(), self.mtu_bytes);
                if number + u64::from(packets) <= self.expected && self.may_read(&reth) {
                    self.answer_read(number, reth, packets, taken);
                }
            }
            (rc::Operation::Atomic, _) => {
                if let Some((_, before)) = self.atomics.iter().find(|(psn, _)| *psn == number) {
                    let (psn, before, messages) = (number, *before, self.messages);
                    taken.answers.push(Answer::Atomic { psn, before, messages });
                }
            }
            _ => self.acknowledge(taken),
        }
    }

    /// Does the expected request.
    fn execute(
        &mut self,
        header: &RcHeader,
        payload: Payload<'_>,
        taken: &mut Taken,
    ) -> Result<(), Refused> {
        let (operation, part) = (header.opcode.operation(), header.opcode.part());
        self.check_part(operation, part, payload.len())?;
        let mut packets = 1;
        match operation {
            rc::Operation::Send => self.send(header, payload, taken)?,
            rc::Operation::Write => self.write(header, payload, taken)?,
            rc::Operation::ReadRequest => {
                let Some(reth) = header.fields.reth() else {
                    return Err(Nak::InvalidRequest.into());
                };
                packets = packets_of(reth.length.into(), self.mtu_bytes);
                if packets > MESSAGE_PACKETS_MAX || payload.len() > 0 || self.answers_max == 0 {
                    return Err(Nak::InvalidRequest.into());
                }
                if !self.may_read(&reth) {
                    return Err(Nak::RemoteAccess.into());
                }
            }
            rc::Operation::Atomic => {
                let before = self.atomic(header, payload.len())?;
                self.messages = (self.messages + 1) & PSN_MASK;
                let (psn, messages) = (self.expected, self.messages);
                if self.atomics.len() >= usize::from(self.answers_max) {
                    self.atomics.pop_front();
                }
                self.atomics.push_back((psn, before));
                self.expected += 1;
                taken.answers.push(Answer::Atomic { psn, before, messages });
                return Ok(());
            }
            _ => return Err(Nak::InvalidRequest.into()),
        }
        let number = self.expected;
        self.expected += u64::from(packets);
        if part.ends() {
            self.messages = (self.messages + 1) & PSN_MASK;
        }
        if let (rc::Operation::ReadRequest, Some(reth)) = (operation, header.fields.reth()) {
            self.answer_read(number, reth, packets, taken);
        } else if header.asks_ack {
            self.acknowledge(taken);
        }
        Ok(())
    }

    /// Whether a packet may come now, and is as long as its part must be.
    fn check_part(&self, operation: rc::Operation, part: Part, bytes: usize) -> Result<(), Nak> {
        let fits = match &self.message {
            None => part.begins(),
            Some(Message::Send { .. }) => operation == rc::Operation::Send && !part.begins(),
            Some(Message::Write { .. }) => operation == rc::Operation::Write && !part.begins(),
        };
        let mtu_bytes = self.mtu_bytes as usize;
        let has_length = match part {
            Part::First | Part::Middle => bytes == mtu_bytes,
            Part::Last => (1..=mtu_bytes).contains(&bytes),
            Part::Only => bytes <= mtu_bytes,
        };
        if fits && has_length { Ok(()) } else { Err(Nak::InvalidRequest) }
    }

    fn send(
        &mut self,
        header: &RcHeader,
        payload: Payload<'_>,
        taken: &mut Taken,
    ) -> Result<(), Refused> {
        if matches!(header.opcode, Opcode::SendLastInvalidate | Opcode::SendOnlyInvalidate) {
            // Remote invalidation is not offered: a peer that uses it was not asked to.
            return Err(Nak::InvalidRequest.into());
        }
        let part = header.opcode.part();
        let (receive, before, ahead) = match self.message.take() {
            Some(Message::Send { receive, bytes, ahead }) => (receive, bytes, ahead),
            _ => (self.receives.take().ok_or(Refused::NotReady)?, 0, Ahead::default()),
        };
        let bytes = before + payload.len() as u64;
        let is_written = match payload {
            Payload::Bytes(payload) => receive.into.write(before, payload).is_ok(),
            Payload::Placed(_) => bytes <= receive.into.len(),
        };
        if !is_written {
            let status = Err(Failure::Length { capacity_bytes: receive.into.len() });
            taken.done.push(done(&receive, Operation::Receive, status, before, None));
            return Err(Nak::InvalidRequest.into());
        }
        if part.ends() {
            let received = Some(received(header));
            taken.done.push(done(&receive, Operation::Receive, Ok(()), bytes, received));
        } else {
            self.message = Some(Message::Send { receive, bytes, ahead });
        }
        Ok(())
    }

    fn write(
        &mut self,
        header: &RcHeader,
        payload: Payload<'_>,
        taken: &mut Taken,
    ) -> Result<(), Refused> {
        let part = header.opcode.part();
        let (reth, before) = match (&self.message, header.fields.reth()) {
            (Some(Message::Write { reth, bytes }), None) => (*reth, *bytes),
            (None, Some(reth)) => (reth, 0),
            _ => return Err(Nak::InvalidRequest.into()),
        };
        let bytes = before as usize + payload.len();
        let is_whole = bytes == reth.length as usize;
        if bytes > reth.length as usize || part.ends() != is_whole {
            return Err(Nak::InvalidRequest.into());
        }
        if packets_of(reth.length.into(), self.mtu_bytes) > MESSAGE_PACKETS_MAX {
            return Err(Nak::InvalidRequest.into());
        }
        // Taken before a byte is written: a message without a receive comes again, and others may have
        // written to the place meanwhile.
        let receive = match part.ends() && header.opcode.has_immediate() {
            true => Some(self.receives.take().ok_or(Refused::NotReady)?),
            false => None,
        };
        if let Err(nak) = self.place(&reth, before, payload, true) {
            if let Some(receive) = receive {
                let status = Err(Failure::Refused(nak));
                taken.done.push(done(&receive, Operation::ReceiveWritten, status, 0, None));
            }
            return Err(nak.into());
        }
        if let Some(receive) = receive {
            let (length, received) = (reth.length.into(), Some(received(header)));
            taken.done.push(done(&receive, Operation::ReceiveWritten, Ok(()), length, received));
        }
        self.message =
            if part.ends() { None } else { Some(Message::Write { reth, bytes: bytes as u32 }) };
        Ok(())
    }

    /// Writes a part of a message; in its turn (`marks`) that is noted as valid. The key is pinned for each
    /// packet, so that revoking it waits for one packet at most; with the first one the whole range is
    /// checked.
    fn place(
        &self,
        reth: &Reth,
        before: u32,
        payload: Payload<'_>,
        marks: bool,
    ) -> Result<(), Nak> {
        if reth.length == 0 {
            // Nothing is accessed, so nothing is checked (section 9.7.4.1.5).
            return Ok(());
        }
        let range = range_of(reth.address, reth.length.into()).ok_or(Nak::RemoteAccess)?;
        let pinned = self
            .keys
            .pin(reth.key, self.peer_number, Rights::REMOTE_WRITE, range)
            .map_err(|_| Nak::RemoteAccess)?;
        let at = reth.address + u64::from(before);
        let region = pinned.region();
        let start = pinned.range().start + at;
        let place = start..start + payload.len() as u64;
        if region.is_exclusive() && region.validity().is_some_and(|map| map.touches(place.clone()))
        {
            return Err(Nak::RemoteAccess);
        }
        if let Payload::Bytes(payload) = payload {
            pinned.write(at, payload).map_err(|_| Nak::RemoteAccess)?;
        }
        if let Some(validity) = region.validity().filter(|_| marks) {
            let whole = pinned.range().start + reth.address..place.end;
            validity.mark_joint(place, whole);
        }
        Ok(())
    }

    fn may_read(&self, reth: &Reth) -> bool {
        if reth.length == 0 {
            return true;
        }
        let Some(range) = range_of(reth.address, reth.length.into()) else { return false };
        self.keys.pin(reth.key, self.peer_number, Rights::REMOTE_READ, range).is_ok()
    }

    fn answer_read(&self, first_psn: u64, reth: Reth, packets: u32, taken: &mut Taken) {
        let Reth { address, key, length: bytes } = reth;
        let messages = self.messages;
        let read = ReadAnswer { first_psn, address, key, bytes, packets, next: 0, messages };
        taken.answers.push(Answer::Read(read));
    }

    /// Does an atomic operation and gives what was there. Atomic among all that go through this responder;
    /// other writers of the same bytes are not held up (`IBV_ATOMIC_NONE` across queue pairs).
    fn atomic(&self, header: &RcHeader, payload_bytes: usize) -> Result<u64, Nak> {
        let Fields::Atomic(AtomicHeader { address, key, swap_or_add, compare }) = header.fields
        else {
            return Err(Nak::InvalidRequest);
        };
        if payload_bytes > 0 || !address.is_multiple_of(8) || self.answers_max == 0 {
            return Err(Nak::InvalidRequest);
        }
        let range = range_of(address, 8).ok_or(Nak::RemoteAccess)?;
        let rights = Rights::REMOTE_WRITE | Rights::REMOTE_READ;
        let pinned =
            self.keys.pin(key, self.peer_number, rights, range).map_err(|_| Nak::RemoteAccess)?;
        let mut bytes = [0; 8];
        pinned.read(address, &mut bytes).map_err(|_| Nak::RemoteAccess)?;
        let before = u64::from_ne_bytes(bytes);
        let after = match header.opcode {
            Opcode::FetchAdd => Some(before.wrapping_add(swap_or_add)),
            _ => (before == compare).then_some(swap_or_add),
        };
        if let Some(after) = after {
            pinned.write(address, &after.to_ne_bytes()).map_err(|_| Nak::RemoteAccess)?;
        }
        Ok(before)
    }
}

/// Packets of a message; one of no bytes has one.
pub(crate) fn packets_of(bytes: u64, mtu_bytes: u32) -> u32 {
    bytes.div_ceil(mtu_bytes.into()).max(1).try_into().unwrap_or(u32::MAX)
}

fn range_of(address: u64, bytes: u64) -> Option<std::ops::Range<u64>> {
    Some(address..address.checked_add(bytes)?)
}

fn received(header: &RcHeader) -> Received {
    Received { immediate: header.fields.immediate(), is_solicited: header.is_solicited }
}

fn done(
    receive: &RecvWork,
    operation: Operation,
    status: Result<(), Failure>,
    bytes: u64,
    received: Option<Received>,
) -> Done {
    Done { id: receive.id, operation, status, bytes, received, is_signaled: true }
}
