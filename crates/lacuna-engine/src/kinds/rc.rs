//! The kind RC: requests and answers of a reliable connection, in order (`lacuna_rc`), and the repair shim
//! below it (`lacuna_lowar`).
//!
//! All its packets go over one channel, since they must be taken in order. That channel's lane has the
//! responder and the shim, without a lock; requester and answers are the machine. Packets of a connection
//! with a shim are made into bytes when they are polled, since repairs follow from the bytes; those of others
//! only when they leave.

use super::Machine;
use super::copying::has_room;
use crate::books::{Books, State};
use crate::counters::Counters;
use lacuna_burst::Burst;
use lacuna_rc::{AnswerSink, Coded, Run};
use lacuna_wire::rc::RcHeader;
use lacuna_wire::{Identification, PacketError, Seal};
use std::sync::MutexGuard;

/// What an engine alone has of a reliable connection.
#[derive(Debug)]
pub struct RcLane {
    channel: u8,
    pub(crate) lane: lacuna_rc::Lane,
    /// Which ICRCs of the peer are accepted.
    pub(crate) identification: Identification,
}

impl RcLane {
    /// The lane of `channel`.
    pub fn new(channel: u8, lane: lacuna_rc::Lane) -> Self {
        Self { channel, lane, identification: Identification::OfBundle }
    }

    /// The same for a peer that is no Lacuna's, whose identifications cannot be known.
    #[must_use]
    pub fn of_foreign_peer(mut self) -> Self {
        self.identification = Identification::Any;
        self
    }

    pub(super) fn channel(&self) -> u8 {
        self.channel
    }
}

/// Gives answers to the queue pair, whose lock is taken with the first one and held until a request comes.
pub(crate) struct LockedAnswers<'b> {
    pub(crate) now_ns: u64,
    pub(crate) books: &'b Books,
    pub(crate) counters: &'b Counters,
    pub(crate) locked: Option<MutexGuard<'b, State>>,
}

impl<'b> LockedAnswers<'b> {
    pub(crate) fn new(now_ns: u64, books: &'b Books, counters: &'b Counters) -> Self {
        Self { now_ns, books, counters, locked: None }
    }

    /// The queue pair, under its lock.
    pub(crate) fn qp(&mut self) -> Option<&mut lacuna_rc::QueuePair> {
        match &mut self.locked.get_or_insert_with(|| self.books.lock()).machine {
            Machine::Rc(qp) => Some(qp),
            _ => None,
        }
    }
}

impl AnswerSink for LockedAnswers<'_> {
    fn on_answer(&mut self, header: &RcHeader, payload: &[u8]) {
        let now_ns = self.now_ns;
        if let Some(qp) = self.qp() {
            qp.on_answer(now_ns, header, payload);
        }
    }

    fn place_answer_ahead(&mut self, header: &RcHeader, payload: &[u8]) -> bool {
        self.qp().is_some_and(|qp| qp.place_answer_ahead(header, payload))
    }

    fn on_placed_answer(&mut self, header: &RcHeader, payload_bytes: usize) {
        let now_ns = self.now_ns;
        if let Some(qp) = self.qp() {
            qp.on_placed_answer(now_ns, header, payload_bytes);
        }
    }

    fn on_notification(&mut self) {
        let now_ns = self.now_ns;
        if let Some(qp) = self.qp() {
            qp.on_notification(now_ns);
        }
    }

    fn before_request(&mut self) {
        self.locked = None;
    }

    fn on_rejected(&mut self, error: PacketError) {
        self.counters.reject(&error);
    }
}

/// Packets of a reliable connection on their way.
#[derive(Debug)]
pub(crate) struct RcRun {
    pub(crate) packets: RcPackets,
    pub(crate) seal: Seal,
    pub(crate) channel: u8,
    pub(crate) takes_marks: bool,
}

/// As what the packets are there.
#[derive(Debug)]
pub(crate) enum RcPackets {
    /// To be made.
    Run(Run),
    /// As bytes, with trailers.
    Coded(Coded),
}

impl RcRun {
    pub(super) fn len(&self) -> usize {
        match &self.packets {
            RcPackets::Run(run) => run.len(),
            RcPackets::Coded(coded) => coded.len(),
        }
    }
}

/// Adds the run's packets from `next` on to the burst; `waiting` packets are in the queue. `false`
/// once the burst has no room.
pub(super) fn fill<'p>(
    rc: &'p RcRun,
    next: usize,
    burst: &mut Burst<'_, 'p>,
    waiting: usize,
) -> bool {
    let RcRun { packets, seal, .. } = rc;
    for index in next..rc.len() {
        if burst.len() == Burst::PACKETS_MAX {
            return false;
        }
        match packets {
            RcPackets::Run(run) => {
                let bytes_max = run.packet_bytes(index) + seal.bytes();
                if !has_room(burst, bytes_max, waiting) {
                    return false;
                }
                // What may not be read any more becomes a refusal, which is shorter.
                burst.push_up_to(bytes_max, |packet| {
                    let bytes = run.emit(index, packet);
                    let (covered, rest) = packet.split_at_mut(bytes);
                    seal.emit_trailer_of(covered, &mut rest[..seal.bytes()]);
                    bytes + seal.bytes()
                });
            }
            // They lie there until the kernel copies them.
            RcPackets::Coded(coded) => burst.push(&[], coded.packet(index), &[]),
        }
    }
    true
}
