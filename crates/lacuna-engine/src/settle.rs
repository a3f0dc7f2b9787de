//! Settling a queue pair, once its data have left in a step: sends control packets, reports events,
//! and sets its timer.

use crate::books::{Books, State};
use crate::channel::{Channel, address};
use crate::counters::Counters;
use crate::engine::{BLOCKED_RETRY_NS, Engine};
use crate::event::Event;
use crate::idle::Patience;
use crate::kinds::{Lane, Machine};
use crate::migration::{self, Migration, Outgoing};
use crate::time::Time;
use core::net::SocketAddr;
use core::sync::atomic::Ordering;
use lacuna_proto::probe::Prober;
use lacuna_proto::qp::QueuePair;
use lacuna_secure::Association;
use lacuna_wire::{ControlWriter, PathChallenge};
use std::cmp::Reverse;
use std::collections::VecDeque;

/// Results of settling, applied after the lock is released.
#[derive(Debug)]
struct Settled {
    /// When its timer expires.
    due_ns: Option<u64>,
    /// How long it can wait for the next step.
    patience: Patience,
}

impl Settled {
    const NOTHING: Self = Self { due_ns: None, patience: Patience::NONE };
}

impl<T: Time> Engine<T> {
    /// Settles a queue pair that had a turn or received something.
    pub(crate) fn settle(&mut self, now_ns: u64, number: u32, on_event: &mut dyn FnMut(Event)) {
        let Some(local) = self.locals.get_mut(number) else { return };
        local.is_unsettled = false;
        let had_queued = std::mem::take(&mut local.had_queued);
        let (books, lanes) = (&*local.books, &mut local.lanes);
        let mut settler = Settler {
            time: &self.time,
            channels: &mut self.channels,
            writer: &mut self.writer,
            events: &mut self.events,
        };
        // What it sends after that would be nothing to the peer.
        let spent = || books.association().and_then(Association::spent_packets);
        let spent_packets = spent();
        let settled = {
            let mut state = books.lock();
            let migrates = state.migration.is_active();
            if migrates {
                settler.send_path_frames(now_ns, &mut state, books, &self.counters);
            }
            let State { machine, addresses, migration } = &mut *state;
            if let Some(packets) = spent_packets {
                machine.on_key_spent(packets);
            }
            let mut settled = match machine {
                Machine::Sdr(qp) => {
                    settler.settle_sdr(now_ns, qp, (addresses, migration), books, had_queued)
                }
                Machine::Probing(prober, _) => {
                    settler.serve_prober(now_ns, prober, (addresses, migration), books)
                }
                Machine::Rc(qp) => settler.settle_rc(now_ns, qp, lanes, books),
                Machine::Reserved(_) => Settled::NOTHING,
            };
            if migrates {
                let round_ns = migration.poll_timeout(|channel| settler.owns(channel));
                settled.due_ns = [settled.due_ns, round_ns].into_iter().flatten().min();
            }
            settled
        };
        // A control packet of just now was one too many.
        let is_newly_spent = spent_packets.is_none() && spent().is_some();
        let before = std::mem::replace(&mut local.patience, settled.patience);
        self.idle.on_patience(Some(before), Some(settled.patience));
        while let Some(event) = self.events.pop_front() {
            on_event(event);
        }
        self.call_at(now_ns, number, settled.due_ns);
        if is_newly_spent {
            self.make_ready(number);
        }
    }

    /// Sets the timer of a queue pair; gives it a turn if it has expired.
    fn call_at(&mut self, now_ns: u64, number: u32, due_ns: Option<u64>) {
        let Some(local) = self.locals.get_mut(number) else { return };
        local.is_due &= due_ns.is_some_and(|due_ns| due_ns <= now_ns);
        if local.is_due {
            self.make_ready(number);
        } else if local.due_ns != due_ns {
            local.due_ns = due_ns;
            if let Some(due_ns) = due_ns {
                self.timers.push(Reverse((due_ns, number)));
            }
        }
    }
}

/// The parts of an engine that settling uses while the queue pair is borrowed.
struct Settler<'e, T> {
    time: &'e T,
    channels: &'e mut [Channel],
    writer: &'e mut ControlWriter,
    events: &'e mut VecDeque<Event>,
}

impl<T: Time> Settler<'_, T> {
    /// Sends path challenges that are due, and responses.
    #[cold]
    fn send_path_frames(
        &mut self,
        now_ns: u64,
        state: &mut State,
        books: &Books,
        counters: &Counters,
    ) {
        let State { machine, migration, .. } = state;
        let channels = &mut *self.channels;
        let owns = |channels: &[Channel], index| channels.iter().any(|own| own.index == index);
        let packet_bytes = books.seal().control_overhead_bytes()
            + lacuna_wire::FRAME_HEADER_BYTES
            + PathChallenge::BYTES;
        let interval_ns = migration::interval_ns(machine.rtt_ns());
        let unproved =
            migration.on_timeout(now_ns, |index| owns(channels, index), packet_bytes, interval_ns);
        counters.paths_unproved.fetch_add(unproved, Ordering::Relaxed);
        while let Some(Outgoing { channel, to, frame }) =
            migration.poll(|index| owns(channels, index))
        {
            let own = channels.iter_mut().find(|own| own.index == channel);
            let packet = machine.write_alone(channel, &frame, self.writer);
            if let (Some(own), Some(packet)) = (own, packet) {
                own.send_control(now_ns, to, packet, books);
            }
        }
        if migration.has_outgoing() {
            self.events.push_back(Event::OthersWanted(books.number()));
        }
    }

    fn owns(&self, channel: u8) -> bool {
        self.channels.iter().any(|own| own.index == channel)
    }

    fn serve_prober(
        &mut self,
        now_ns: u64,
        prober: &mut Prober,
        (addresses, migration): (&[Option<SocketAddr>], &mut Migration),
        books: &Books,
    ) -> Settled {
        let channels = &mut *self.channels;
        loop {
            let owns = |channel| channels.iter().any(|own| own.index == channel);
            let packet = prober.poll_control(now_ns, owns, self.writer);
            let Some((channel, packet)) = packet else { break };
            let own = channels.iter_mut().find(|own| own.index == channel);
            if let (Some(own), Some(to)) = (own, address(addresses, channel)) {
                send_with_copy(own, (now_ns, to), packet, books, migration);
            }
        }
        self.events.push_back(Event::Probed(books.number()));
        Settled { due_ns: prober.poll_timeout(), patience: Patience::NONE }
    }

    // Inlined: as a call it costs a message of 64 bytes 1 % more instructions.
    #[inline(always)]
    fn settle_sdr(
        &mut self,
        now_ns: u64,
        qp: &mut QueuePair,
        (addresses, migration): (&[Option<SocketAddr>], &mut Migration),
        books: &Books,
        had_queued: bool,
    ) -> Settled {
        let agreed = qp.config().geometry.channels();
        qp.on_polled(now_ns);
        let owned = self.owned(agreed);
        if owned == 0 {
            return Settled::NOTHING;
        }
        if !books.can_place() {
            // The application may wait for an event all the same, such as a failure.
            self.note_events(books.number(), qp);
            return Settled::NOTHING;
        }
        if books.has_too_large() | qp.asks_host() {
            self.settle_size(now_ns, qp, addresses, books);
        }
        // Data that left in this step are before the flush that asks about them.
        books.tell_handed(qp);
        // Packets received here may have queued runs, or opened the window, for channels of other
        // engines. And when this engine has sent the last data, others may have a flush to send.
        let waits = (0..agreed).any(|c| owned >> c & 1 == 0 && qp.has_queued_on(c));
        if waits || (had_queued && !qp.has_queued()) {
            self.events.push_back(Event::OthersWanted(books.number()));
        }
        let is_blocked = self.channels.iter().any(|own| own.index < agreed && own.is_blocked);
        let mut due_ns = qp.poll_timeout_on(owned);
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            // Later than the data that left in this step, which the control packets may report.
            let now_ns = self.time.now_ns();
            for channel in self.channels.iter_mut().filter(|own| own.index < agreed) {
                let Some(to) = address(addresses, channel.index) else { continue };
                while let Some(packet) = qp.poll_control(now_ns, channel.index, self.writer) {
                    send_with_copy(channel, (now_ns, to), packet, books, migration);
                }
            }
            due_ns = qp.poll_timeout_on(owned);
        }
        self.note_events(books.number(), qp);
        Settled {
            due_ns: not_before_retry(due_ns, now_ns, is_blocked),
            patience: Patience::of(qp, now_ns),
        }
    }

    /// Collects what has ended on a reliable connection, and when it goes on.
    fn settle_rc(
        &mut self,
        now_ns: u64,
        qp: &mut lacuna_rc::QueuePair,
        lanes: &mut [Lane],
        books: &Books,
    ) -> Settled {
        let must_stop = qp.take_stop();
        let mut due_ns = qp.poll_timeout();
        for lane in lanes {
            let Lane::Rc(rc) = lane else { continue };
            let lane = &mut rc.lane;
            if must_stop {
                lane.stop();
            }
            qp.on_taken(now_ns, lane.taken());
            due_ns = [due_ns, lane.poll_timeout()].into_iter().flatten().min();
        }
        if qp.take_news() {
            self.events.push_back(Event::Completed(books.number()));
        }
        let is_blocked = self.channels.iter().any(|own| own.is_blocked);
        let due_ns = not_before_retry(due_ns, now_ns, is_blocked);
        Settled { due_ns, patience: Patience::of_path(qp.rtt_ns()) }
    }

    /// Collects the queue pair's events for the engine's caller.
    #[inline]
    fn note_events(&mut self, number: u32, qp: &mut QueuePair) {
        while let Some(event) = qp.poll_event() {
            self.events.push_back(Event::QueuePair(number, event));
        }
    }

    /// Tells a queue pair whose full packets do not seem to pass which length this host refused,
    /// and the route's MTU.
    #[cold]
    fn settle_size(
        &self,
        now_ns: u64,
        qp: &mut QueuePair,
        addresses: &[Option<SocketAddr>],
        books: &Books,
    ) {
        if let Some(packet_bytes) = books.take_too_large() {
            qp.on_too_large(now_ns, packet_bytes as u32);
        }
        if qp.take_route_question() {
            let known = self
                .channels
                .iter()
                .find_map(|own| own.datapath.route_packet_bytes(address(addresses, own.index)?));
            if let Some(packet_bytes) = known {
                qp.on_route_mtu(now_ns, packet_bytes.try_into().unwrap_or(u32::MAX));
            }
        }
    }

    /// Mask of this engine's channels below `agreed`, the channels that both ends have.
    fn owned(&self, agreed: u8) -> u32 {
        let owned = self.channels.iter().filter(|own| own.index < agreed);
        owned.fold(0, |owned, own| owned | 1 << own.index)
    }
}

/// Sends a control packet, and a copy to where the peer seems to have moved.
#[inline]
fn send_with_copy(
    own: &mut Channel,
    (now_ns, to): (u64, SocketAddr),
    packet: &[u8],
    books: &Books,
    migration: &mut Migration,
) {
    own.send_control(now_ns, to, packet, books);
    if let Some(to) = migration.copy_to(own.index, packet.len()) {
        own.send_control(now_ns, to, packet, books);
    }
}

/// A timer that expires while a datapath is full is served when sending is tried again.
fn not_before_retry(due_ns: Option<u64>, now_ns: u64, is_blocked: bool) -> Option<u64> {
    if !is_blocked {
        return due_ns;
    }
    due_ns.map(|due_ns| due_ns.max(now_ns + BLOCKED_RETRY_NS))
}
