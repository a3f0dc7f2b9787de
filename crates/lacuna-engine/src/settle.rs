//! What is left to do for a queue pair in a step, once data have left: to tell the peer and the
//! owner, and to note when it wants to be called.

use crate::books::{Books, State};
use crate::channel::{Channel, address};
use crate::engine::{BLOCKED_RETRY_NS, Engine};
use crate::event::Event;
use crate::idle::Patience;
use crate::kinds::Machine;
use crate::time::Time;
use core::net::SocketAddr;
use lacuna_proto::probe::Prober;
use lacuna_proto::qp::QueuePair;
use lacuna_wire::ControlWriter;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// When queue pairs want to be called: times and numbers. An entry may be stale.
pub(crate) type Timers = BinaryHeap<Reverse<(u64, u32)>>;

/// What is left of a queue pair's turn once its lock is let go.
#[derive(Debug)]
struct Settled {
    /// When it wants to be served again.
    due_ns: Option<u64>,
    /// How long it can wait.
    patience: Patience,
}

impl Settled {
    const NOTHING: Self = Self { due_ns: None, patience: Patience::NONE };
}

impl<T: Time> Engine<T> {
    /// What is left to do for a queue pair that had a turn or got something, now that
    /// data have left: to tell the peer and the owner.
    pub(crate) fn settle(&mut self, now_ns: u64, number: u32, on_event: &mut dyn FnMut(Event)) {
        let Some(local) = self.locals.get_mut(number) else { return };
        local.is_unsettled = false;
        let had_queued = std::mem::take(&mut local.had_queued);
        let books = &*local.books;
        let mut teller = Teller {
            time: &self.time,
            channels: &mut self.channels,
            writer: &mut self.writer,
            events: &mut self.events,
        };
        let settled = {
            let mut state = books.lock();
            let State { machine, addresses } = &mut *state;
            match machine {
                Machine::Sdr(qp) => teller.settle_sdr(now_ns, qp, addresses, books, had_queued),
                Machine::Probing(prober, _) => {
                    teller.serve_prober(now_ns, prober, addresses, number)
                }
                Machine::Reserved(_) => Settled::NOTHING,
            }
        };
        let before = std::mem::replace(&mut local.patience, settled.patience);
        self.idle.on_patience(Some(before), Some(settled.patience));
        while let Some(event) = self.events.pop_front() {
            on_event(event);
        }
        self.call_at(now_ns, number, settled.due_ns);
    }

    /// Calls a queue pair again at `due_ns`, with a turn if its time has come.
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

/// What of an engine it takes to tell a peer.
struct Teller<'e, T> {
    time: &'e T,
    channels: &'e mut [Channel],
    writer: &'e mut ControlWriter,
    events: &'e mut VecDeque<Event>,
}

impl<T: Time> Teller<'_, T> {
    fn serve_prober(
        &mut self,
        now_ns: u64,
        prober: &mut Prober,
        addresses: &[Option<SocketAddr>],
        number: u32,
    ) -> Settled {
        let channels = &mut *self.channels;
        loop {
            let owns = |channel| channels.iter().any(|own| own.index == channel);
            let packet = prober.poll_control(now_ns, owns, self.writer);
            let Some((channel, packet)) = packet else { break };
            let own = channels.iter_mut().find(|own| own.index == channel);
            if let (Some(own), Some(to)) = (own, address(addresses, channel)) {
                own.send_control(now_ns, to, packet);
            }
        }
        self.events.push_back(Event::Probed(number));
        Settled { due_ns: prober.poll_timeout(), patience: Patience::NONE }
    }

    // A message of 64 bytes takes 1 % more instructions where this is a call.
    #[inline(always)]
    fn settle_sdr(
        &mut self,
        now_ns: u64,
        qp: &mut QueuePair,
        addresses: &[Option<SocketAddr>],
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
            // The application may wait for it all the same: for a failure, say.
            self.note_events(books.number(), qp);
            return Settled::NOTHING;
        }
        if books.has_too_large() | qp.asks_host() {
            self.settle_size(now_ns, qp, addresses, books);
        }
        // What was flushed just now is behind a flush that speaks of it.
        books.tell_handed(qp);
        // What came here may have queued runs, or opened the window, for
        // channels that only other engines can send on. And when this engine
        // sent the last of it, the others may have something to ask for.
        let waits = (0..agreed).any(|c| owned >> c & 1 == 0 && qp.has_queued_on(c));
        if waits || (had_queued && !qp.has_queued()) {
            self.events.push_back(Event::OthersWanted(books.number()));
        }
        let is_blocked = self.channels.iter().any(|own| own.index < agreed && own.is_blocked);
        let mut due_ns = qp.poll_timeout_on(owned);
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            // Later than what was flushed, of which it speaks.
            let now_ns = self.time.now_ns();
            for channel in self.channels.iter_mut().filter(|own| own.index < agreed) {
                let Some(to) = address(addresses, channel.index) else { continue };
                while let Some(packet) = qp.poll_control(now_ns, channel.index, self.writer) {
                    channel.send_control(now_ns, to, packet);
                }
            }
            due_ns = qp.poll_timeout_on(owned);
        }
        self.note_events(books.number(), qp);
        Settled { due_ns: later(due_ns, now_ns, is_blocked), patience: Patience::of(qp) }
    }

    /// What happened to a queue pair, for its owner.
    #[inline]
    fn note_events(&mut self, number: u32, qp: &mut QueuePair) {
        while let Some(event) = qp.poll_event() {
            self.events.push_back(Event::QueuePair(number, event));
        }
    }

    /// Tells a queue pair whose full packets do not seem to pass what this host has refused, and
    /// what it knows of the route.
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

    /// The channels of this engine below `agreed`, which both ends have; a mask.
    fn owned(&self, agreed: u8) -> u32 {
        let owned = self.channels.iter().filter(|own| own.index < agreed);
        owned.fold(0, |owned, own| owned | 1 << own.index)
    }
}

/// What waits for the way out to be free again is served when it is.
fn later(due_ns: Option<u64>, now_ns: u64, is_blocked: bool) -> Option<u64> {
    if !is_blocked {
        return due_ns;
    }
    due_ns.map(|due_ns| due_ns.max(now_ns + BLOCKED_RETRY_NS))
}
