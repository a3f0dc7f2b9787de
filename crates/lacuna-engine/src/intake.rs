//! Intake: what an engine does with received packets. Data are placed; control packets go to the
//! queue pair's machine. The queue pairs concerned get a turn if they have something to send, else
//! they are settled in the same step.
//!
//! Placing takes no lock. The placed packets are reported to the queue pair under its lock, once
//! for all packets in a row that go to it, across the batches of one receive call. The engine calls
//! [`Intake::tell_placed`] after each receive call for the last of them.
//!
//! Packets of queue pairs whose packets are encrypted are opened first (`intake/secure.rs`).

mod secure;

use crate::challenge_values::ChallengeValues;
use crate::channel::address;
use crate::counters::Counters;
use crate::event::Event;
use crate::icrc::IcrcCheck;
use crate::kinds::{Lane, LockedAnswers, Machine, RcLane};
use crate::locals::{Local, Locals};
use crate::migration::Heard;
use crate::run_queue::RunQueue;
use crate::time::{Time, Timers};
use core::net::SocketAddr;
use lacuna_burst::{Placer, ReceivedBatch};
use lacuna_lowar::Shared;
use lacuna_place::burst::BurstPlacer;
use lacuna_proto::path_frames::PathFrames;
use lacuna_wire::rc::{REPAIR_OPCODE, RcHeader, RepairHeader, is_rc, rc_destination};
use lacuna_wire::{
    DataHeader, Identification, Packet, PacketError, Qpn, Seal, check_crc32c, parse, parse_data,
};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::iter::Peekable;

/// A data packet noted without its bytes ([`crate::Engine::note`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedPacket {
    /// Its headers, with the length of its payload.
    pub header: DataHeader,
    /// Whether a router marked it "congestion experienced" (ECN).
    pub is_marked: bool,
}

/// Handles the packets of one channel.
pub(crate) struct Intake<'e, T> {
    pub(crate) time: &'e T,
    /// Arrival time of the present batch. Read for each batch, because the thread may have lost its
    /// core since the step began.
    pub(crate) now_ns: u64,
    /// Index of the channel in this engine.
    pub(crate) position: usize,
    pub(crate) channel: u8,
    /// Checks the channel's packets that have ICRCs.
    pub(crate) icrc: &'e IcrcCheck,
    pub(crate) locals: &'e mut Locals,
    pub(crate) ready: &'e mut RunQueue,
    pub(crate) unsettled: &'e mut Vec<u32>,
    pub(crate) timers: &'e mut Timers,
    pub(crate) counters: &'e Counters,
    /// Memory of the engine's repair shims.
    pub(crate) repair_memory: &'e mut Shared,
    /// Where encrypted packets are opened.
    pub(crate) opened: &'e mut Vec<u8>,
    pub(crate) challenge_values: &'e mut ChallengeValues,
    /// Events noted under a lock.
    pub(crate) events: &'e mut VecDeque<Event>,
    pub(crate) on_event: &'e mut dyn FnMut(Event),
    /// The queue pair whose latest placed packets were not reported to it yet.
    pub(crate) untold: Option<u32>,
    /// Bytes of packets received.
    pub(crate) bytes: u64,
    /// The shortest wait that their queue pairs allow.
    pub(crate) wait_ns: u64,
}

impl<T: Time> Placer for Intake<'_, T> {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        // Arrival time, not the time of reading: round-trip times measure the path.
        self.now_ns = self.time.now_ns().saturating_sub(batch.waited_ns);
        let mut packets = batch.packets().peekable();
        self.bytes += batch.bytes.len() as u64;
        while let Some(packet) = packets.next() {
            if let Some(number) = self.locals.secure_destination(packet) {
                self.take_secure(number, packet, &batch, &mut packets);
                continue;
            }
            let cut = match parse_data(packet) {
                None => self.locals.cut_by_seal(packet),
                cut => cut,
            };
            if let Some((header, payload)) = cut {
                let number = header.dest.queue_pair();
                let stray = self.begin_stray(number, batch.source);
                self.place(packet, header, payload, &batch, &mut packets);
                if let Some(stray) = stray {
                    self.end_stray(stray);
                }
                continue;
            }
            if is_rc(packet) {
                self.take_rc(packet, &batch, &mut packets);
                continue;
            }
            match self.locals.seal_of(packet).parse_checked(packet) {
                Ok(Packet::Control(header, body)) => {
                    let next = packets.peek().map(|next| parse(next));
                    if let Some(Ok(Packet::Control(next, _))) = next {
                        self.locals.prefetch(next.dest.queue_pair());
                    }
                    let number = header.dest.queue_pair();
                    self.on_control(number, header.qkey, body, packet.len(), batch.source);
                }
                // Handled above.
                Ok(Packet::Data(..)) => {}
                Err(error) => self.counters.reject(&error),
            }
        }
    }
}

impl<T: Time> Intake<'_, T> {
    /// Checks and places a packet and those after it for the same queue pair.
    fn place<'p>(
        &mut self,
        packet: &[u8],
        mut header: DataHeader,
        payload: &[u8],
        batch: &ReceivedBatch<'_>,
        packets: &mut Peekable<impl Iterator<Item = &'p [u8]>>,
    ) {
        let number = header.dest.queue_pair();
        let (counters, icrc) = (self.counters, self.icrc);
        let marked = batch.congestion_experienced;
        self.locals.prefetch(number);
        let Some(mut placer) = self.placer(number) else {
            match Seal::default().check(&mut header, packet) {
                Ok(()) => counters.unknown(),
                Err(error) => counters.reject(&error),
            }
            return;
        };
        let seal = placer.seal();
        let first = (packet, header, payload);
        if seal == Seal::Icrc {
            return place_with_icrc(&mut placer, icrc, batch, first, packets, counters);
        }
        each_of_one(first, packets, |packet, header, payload| {
            let placed = match seal.has_common_length() {
                true => placer.check_and_place(packet, header, payload, marked),
                false => cut_and_place(&mut placer, seal, packet, marked),
            };
            placed.unwrap_or_else(|error| counters.reject(&error));
        });
    }

    /// Notes a packet without its bytes.
    pub(crate) fn note(&mut self, packet: NotedPacket) {
        let NotedPacket { header, is_marked } = packet;
        let number = header.dest.queue_pair();
        let Some(mut placer) = self.placer(number) else { return self.counters.unknown() };
        placer.note(&header, header.length, is_marked);
    }

    /// The placer for packets of queue pair `number` on this channel, if it is connected.
    #[inline(always)]
    fn placer(&mut self, number: u32) -> Option<BurstPlacer<'_>> {
        if self.untold.is_some_and(|untold| untold != number) {
            self.tell_placed();
        }
        let is_open = self.untold.replace(number).is_some();
        let local = self.locals.get_mut(number);
        match local.and_then(|local| local.lanes.get_mut(self.position)) {
            Some(Lane::Sdr(writer)) => Some(match is_open {
                true => writer.resume(),
                false => writer.burst(),
            }),
            Some(Lane::Rc(_)) | None => {
                self.untold = None;
                None
            }
        }
    }

    /// Takes a packet of a reliable connection and those after it for the same queue pair: requests
    /// without the lock, answers and what follows from both under it.
    #[inline(never)]
    fn take_rc<'p>(
        &mut self,
        first: &'p [u8],
        batch: &ReceivedBatch<'_>,
        packets: &mut Peekable<impl Iterator<Item = &'p [u8]>>,
    ) {
        self.tell_placed();
        let nobodys = |counters: &Counters| {
            let trailer_bytes = Seal::default().bytes();
            let read = match first.first() == Some(&REPAIR_OPCODE) {
                true => RepairHeader::parse(first, trailer_bytes).map(drop),
                false => RcHeader::parse(first, trailer_bytes).map(drop),
            };
            match read.and_then(|()| check_crc32c(first)) {
                Ok(()) => counters.unknown(),
                Err(error) => counters.reject(&error),
            }
        };
        let number = rc_destination(first).map_or(0, Qpn::queue_pair);
        let local = self.locals.get_mut(number);
        let Some(local) = local else { return nobodys(self.counters) };
        let Local { books, lanes, .. } = local;
        let Some(Lane::Rc(rc)) = lanes.get_mut(self.position) else {
            return nobodys(self.counters);
        };
        let RcLane { lane, identification, .. } = &mut **rc;
        let seal = books.seal();
        let half_checks = seal == Seal::Icrc
            && *identification == Identification::Any
            && batch.source.ip().to_canonical().is_ipv4();
        if batch.congestion_experienced {
            lane.on_marked();
        }
        let mut packet = first;
        let mut answers = LockedAnswers::new(self.now_ns, books, self.counters);
        loop {
            let checked = match seal {
                Seal::Icrc => self.icrc.check_any(batch, packet, *identification),
                Seal::Crc32c => check_crc32c(packet),
                // Opened before, elsewhere.
                Seal::Aead => Ok(()),
            };
            match checked {
                Ok(()) => {
                    if half_checks {
                        lane.on_half_checked();
                    }
                    let covered = &packet[..packet.len() - seal.bytes()];
                    lane.receive(self.now_ns, self.repair_memory, covered, &mut answers);
                }
                Err(error) => self.counters.reject(&error),
            }
            let is_next = |next: &&[u8]| {
                is_rc(next) && rc_destination(next).map(Qpn::queue_pair) == Some(number)
            };
            match packets.next_if(is_next) {
                Some(next) => packet = next,
                None => break,
            }
        }
        if let Some(qp) = answers.qp() {
            qp.on_taken(self.now_ns, lane.taken());
            if let Some(rtt_ns) = qp.rtt_ns() {
                lane.set_rtt_ns(rtt_ns);
            }
            if qp.take_news() {
                self.events.push_back(Event::Completed(number));
            }
        }
        drop(answers);
        while let Some(event) = self.events.pop_front() {
            (self.on_event)(event);
        }
        local.make_ready(number, self.ready);
    }

    /// Reports the packets placed last to their queue pair, if that was not done. No slot is pinned
    /// here, so the lock may be taken.
    // The compiler does not inline this into `receive` by itself.
    #[inline(always)]
    pub(crate) fn tell_placed(&mut self) {
        let Some(number) = self.untold.take() else { return };
        let Some(local) = self.locals.get_mut(number) else { return };
        let Some(lane) = local.lanes.get_mut(self.position) else { return };
        let Lane::Sdr(writer) = lane else { return };
        if writer.has_repairs() {
            let mut placer = writer.resume();
            let start_ns = self.time.now_ns();
            placer.repair();
            placer.note_decoding(self.time.now_ns() - start_ns);
        }
        let mut report_ns = None;
        if let Machine::Sdr(qp) = &mut local.books.lock().machine {
            report_ns = qp.on_burst(self.now_ns, self.channel, writer.summary());
            while let Some(event) = qp.poll_event() {
                self.events.push_back(Event::QueuePair(number, event));
            }
        }
        while let Some(event) = self.events.pop_front() {
            (self.on_event)(event);
        }
        self.wait_ns = self.wait_ns.min(local.patience.wait_ns);
        // Received data give nothing to send, so no turn: the application, which may wait for just
        // these, comes first.
        if report_ns.is_some_and(|report_ns| report_ns <= self.now_ns) {
            local.unsettle(number, self.unsettled);
        } else if let Some(report_ns) = report_ns
            && local.due_ns.is_none_or(|due_ns| report_ns < due_ns)
        {
            local.due_ns = Some(report_ns);
            self.timers.push(Reverse((report_ns, number)));
        }
    }

    /// Data packets follow that come from elsewhere than those before them. What was placed until now is
    /// reported first, so that what they do shows.
    #[inline]
    fn begin_stray(&mut self, number: u32, source: SocketAddr) -> Option<Stray> {
        match self.locals.is_elsewhere(number, self.position, source) {
            true => self.begin_stray_slowly(number, source),
            false => None,
        }
    }

    #[cold]
    fn begin_stray_slowly(&mut self, number: u32, source: SocketAddr) -> Option<Stray> {
        self.tell_placed();
        let next_psn = self.next_psn(number)?;
        Some(Stray { number, source, next_psn })
    }

    /// One past the highest sequence number that came on this channel.
    fn next_psn(&mut self, number: u32) -> Option<u64> {
        match self.locals.get_mut(number)?.lanes.get_mut(self.position)? {
            Lane::Sdr(writer) => Some(writer.summary().next_psn),
            Lane::Rc(_) => None,
        }
    }

    /// They came. If one was newer than all before them, the peer sends from there now.
    #[cold]
    fn end_stray(&mut self, stray: Stray) {
        let Stray { number, source, next_psn } = stray;
        let is_newest = self.next_psn(number).is_some_and(|next| next > next_psn);
        // Without headers and what came twice: less than what came.
        let bytes = match self.untold {
            Some(untold) if untold == number => self.placed_bytes(number),
            _ => 0,
        };
        self.tell_placed();
        let Some(local) = self.locals.get_mut(number) else { return };
        let heard = Heard {
            now_ns: self.now_ns,
            channel: self.channel,
            source,
            bytes,
            is_newest,
            frames: PathFrames::default(),
        };
        let present = {
            let mut state = local.books.lock();
            state.on_heard(&heard, self.challenge_values, self.counters);
            address(&state.addresses, self.channel)
        };
        if let Some(known) = local.sources.get_mut(self.position) {
            *known = present;
        }
        if present != Some(source) {
            local.unsettle(number, self.unsettled);
        }
    }

    /// Payload bytes that were placed since the last report.
    fn placed_bytes(&mut self, number: u32) -> u64 {
        let local = self.locals.get_mut(number);
        match local.and_then(|local| local.lanes.get_mut(self.position)) {
            Some(Lane::Sdr(writer)) => writer.summary().bytes,
            _ => 0,
        }
    }

    fn on_control(
        &mut self,
        number: u32,
        qkey: u32,
        body: &[u8],
        packet_bytes: usize,
        source: SocketAddr,
    ) {
        self.tell_placed();
        let local = self.locals.get_mut(number);
        let Some(local) = local.filter(|local| local.books.qkey() == qkey) else {
            return self.counters.unknown();
        };
        let mut state = local.books.lock();
        let effects = state.machine.on_control(self.now_ns, self.channel, body, packet_bytes);
        let heard = Heard {
            now_ns: self.now_ns,
            channel: self.channel,
            source,
            bytes: packet_bytes as u64,
            is_newest: effects.is_newest,
            frames: effects.path_frames,
        };
        state.on_heard(&heard, self.challenge_values, self.counters);
        drop(state);
        if effects.has_queued {
            local.make_ready(number, self.ready);
        } else {
            local.unsettle(number, self.unsettled);
        }
    }
}

/// Data packets of a queue pair that come from elsewhere than those before them.
struct Stray {
    number: u32,
    source: SocketAddr,
    /// One past the highest sequence number before them.
    next_psn: u64,
}

/// A packet with its header and payload.
type Cut<'p> = (&'p [u8], DataHeader, &'p [u8]);

/// Gives `take` the first packet and those after it for the same queue pair.
#[inline(always)]
fn each_of_one<'p>(
    (packet, header, payload): Cut<'_>,
    packets: &mut Peekable<impl Iterator<Item = &'p [u8]>>,
    mut take: impl FnMut(&[u8], &DataHeader, &[u8]),
) {
    let number = header.dest.queue_pair();
    take(packet, &header, payload);
    while let Some(packet) = packets.peek() {
        let Some((header, payload)) = parse_data(packet) else { break };
        if header.dest.queue_pair() != number {
            break;
        }
        take(packet, &header, payload);
        packets.next();
    }
}

/// Places packets that are checked with the headers around them. Out of line: it would slow down the
/// others.
#[inline(never)]
fn place_with_icrc<'p>(
    placer: &mut BurstPlacer<'_>,
    icrc: &IcrcCheck,
    batch: &ReceivedBatch<'_>,
    first: Cut<'_>,
    packets: &mut Peekable<impl Iterator<Item = &'p [u8]>>,
    counters: &Counters,
) {
    each_of_one(first, packets, |packet, header, payload| {
        match icrc.check(batch, packet, header) {
            Ok(()) => placer.place(header, payload, batch.congestion_experienced),
            Err(error) => counters.reject(&error),
        }
    });
}

/// Places a packet whose trailer is longer than [`parse_data`] assumed.
#[cold]
fn cut_and_place(
    placer: &mut BurstPlacer<'_>,
    seal: Seal,
    packet: &[u8],
    marked: bool,
) -> Result<(), PacketError> {
    let (header, payload) = seal.parse_data(packet)?;
    placer.check_and_place(packet, &header, payload, marked)
}
