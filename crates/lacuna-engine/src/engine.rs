//! The engine: serves the queue pairs of some channels, one step at a time.
//!
//! A step reads the datapaths, places data, gives queue pairs turns to send, and settles those that
//! had one. The caller decides when to step. Events for the caller are delivered during the step,
//! right after the lock under which they arose was released.

use crate::books::Books;
use crate::challenge_values::ChallengeValues;
use crate::channel::{Channel, address};
use crate::counters::Counters;
use crate::event::Event;
use crate::idle::{Idle, Look};
use crate::intake::{Intake, NotedPacket};
use crate::kinds::Lane;
use crate::locals::{Local, Locals};
use crate::packetize::{Refused, SentHeader};
use crate::run_queue::RunQueue;
use crate::time::{Time, Timers};
use core::time::Duration;
use lacuna_burst::Datapath;
use lacuna_lowar::Shared;
use lacuna_secure::Secret;
use lacuna_wire::ControlWriter;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Queue pairs that get a turn per step while their packets do not fill a burst. All of them are
/// settled before they have left the caches; 16 are no better.
const TURNS_MAX: usize = 64;
/// Batches read from one channel per step. Together a quarter of the smallest window, so that the
/// sender gets a report while more is in flight.
const TURN_BATCHES: usize = 2;
/// Fewer packets per receive call are not a bulk transfer.
pub(crate) const FEW_PACKETS: usize = 4;
/// Longest control packet: fits every path that carries data at all (IPv6's minimum MTU of 1280
/// less headers).
const CONTROL_BYTES_MAX: usize = 1200;
/// Pause before sending is tried again when the datapath is full and cannot say when it has room.
pub(crate) const BLOCKED_RETRY_NS: u64 = 200_000;
/// Least time between two queries of the datapaths' drop counters.
const DROPS_EVERY_NS: u64 = 10_000_000;

/// The queue pairs of some channels.
pub struct Engine<T> {
    pub(crate) time: T,
    pub(crate) channels: Vec<Channel>,
    pub(crate) locals: Locals,
    /// Queue pairs that wait for a turn: they may have data, or their timer has expired.
    pub(crate) ready: RunQueue,
    /// Queue pairs to settle in this step: those that had a turn, and those whose packets gave them
    /// nothing to send, which need not wait for others' turns.
    pub(crate) unsettled: Vec<u32>,
    pub(crate) timers: Timers,
    pub(crate) writer: ControlWriter,
    pub(crate) idle: Idle,
    /// Events noted under a lock, delivered once it is released.
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Arc<Counters>,
    /// Memory of the repair shims of reliable connections: coding units and packets that wait.
    pub(crate) repair_memory: Box<Shared>,
    /// Where encrypted packets are opened, one at a time.
    opened: Vec<u8>,
    challenge_values: ChallengeValues,
    refused: Refused,
    /// When to query the datapaths' drop counters; `None` if nothing was received since.
    drops_due_ns: Option<u64>,
    /// When they were queried last.
    drops_counted_ns: u64,
    /// When the last step began.
    now_ns: u64,
}

impl<T> fmt::Debug for Engine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let channels: Vec<_> = self.channels.iter().map(|channel| channel.index).collect();
        f.debug_struct("Engine").field("channels", &channels).finish_non_exhaustive()
    }
}

impl<T: Time> Engine<T> {
    /// An engine of these datapaths, each with the index of its channel. It answers [`Look::Spin`]
    /// for `spin` before [`Look::Sleep`]. From the secret follows what peers cannot guess.
    pub fn new(
        time: T,
        datapaths: Vec<(u8, Box<dyn Datapath>)>,
        spin: Duration,
        secret: Secret,
    ) -> Self {
        let channel = |(index, datapath)| Channel::new(index, datapath);
        Self {
            time,
            channels: datapaths.into_iter().map(channel).collect(),
            locals: Locals::default(),
            ready: RunQueue::default(),
            unsettled: Vec::new(),
            timers: Timers::new(),
            writer: ControlWriter::new(CONTROL_BYTES_MAX),
            idle: Idle::new(spin),
            events: VecDeque::new(),
            counters: Arc::default(),
            repair_memory: Box::default(),
            opened: Vec::new(),
            challenge_values: ChallengeValues::new(secret),
            refused: Refused::default(),
            drops_due_ns: Some(0),
            drops_counted_ns: 0,
            now_ns: 0,
        }
    }

    /// Counters that belong to no queue pair.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Its datapaths, in the order of its channels.
    pub fn datapaths(&self) -> impl Iterator<Item = &dyn Datapath> {
        self.channels.iter().map(|channel| &*channel.datapath as &dyn Datapath)
    }

    /// When the last step began.
    pub fn stepped_ns(&self) -> u64 {
        self.now_ns
    }

    // ---- queue pairs ----

    /// Serves a queue pair from now on.
    pub fn add(&mut self, books: Arc<Books>) {
        let number = books.number();
        self.locals.insert(Local::new(books, self.channels.len()));
        self.idle.on_patience(None, Some(crate::idle::Patience::NONE));
        self.make_ready(number);
    }

    /// A queue pair is connected: places its packets from now on. `lanes`: one for each of this
    /// engine's channels that both ends have, in order.
    pub fn set_lanes(&mut self, number: u32, lanes: Vec<Lane>, on_event: &mut dyn FnMut(Event)) {
        if lanes.iter().any(Lane::needs_local) {
            self.channels.iter_mut().for_each(|channel| channel.datapath.tell_local());
        }
        if let Some(local) = self.locals.get_mut(number) {
            local.lanes = lanes;
            let state = local.books.lock();
            let known = self.channels.iter().map(|own| address(&state.addresses, own.index));
            local.sources = known.collect();
            drop(state);
            if local.books.on_lanes() {
                on_event(Event::OthersWanted(number));
            }
        }
        self.make_ready(number);
    }

    /// Stops serving a queue pair.
    pub fn remove(&mut self, number: u32) {
        let Some(local) = self.locals.remove(number) else { return };
        self.idle.on_patience(Some(local.patience), None);
        for lane in local.lanes {
            if let Lane::Rc(rc) = lane {
                rc.lane.release(&mut self.repair_memory);
            }
        }
    }

    /// Gives a queue pair a turn in the next step: it has something to send, or to tell the peer.
    pub fn make_ready(&mut self, number: u32) {
        if let Some(local) = self.locals.get_mut(number) {
            local.make_ready(number, &mut self.ready);
        }
    }

    // ---- packets without bytes ----

    /// From now on data packets leave as headers without payload; [`Engine::take_headers`] returns
    /// them, and only control packets use the datapaths. For a simulation, whose receivers take
    /// them with [`Engine::note`].
    pub fn send_headers(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.headers = Some(Vec::new()));
    }

    /// Takes the headers sent since the last call, in order, with their channels.
    pub fn take_headers(&mut self, mut each: impl FnMut(u8, SentHeader)) {
        for Channel { index, headers, .. } in &mut self.channels {
            headers.iter_mut().flat_map(|sent| sent.drain(..)).for_each(|sent| each(*index, sent));
        }
    }

    /// Notes data packets of a channel without their bytes: a network card has placed the payloads,
    /// or a simulation has none. The next step reacts to them. Call once for all packets that
    /// arrived together.
    pub fn note(
        &mut self,
        channel: u8,
        packets: impl IntoIterator<Item = NotedPacket>,
        on_event: &mut dyn FnMut(Event),
    ) {
        let now_ns = self.time.now_ns();
        let found = self.channels.iter().position(|own| own.index == channel);
        let Some(position) = found else { return };
        let (_, mut intake) = self.intake(now_ns, position, on_event);
        packets.into_iter().for_each(|packet| intake.note(packet));
        intake.tell_placed();
    }

    // ---- steps ----

    /// One step; `false` if there was nothing to do. With `is_asked` (the caller had commands since
    /// the last step) queue pairs are served before the sockets are read, which costs a system call
    /// each even if nothing arrived.
    #[inline]
    pub fn step(&mut self, is_asked: bool, on_event: &mut dyn FnMut(Event)) -> bool {
        let mut worked = is_asked;
        let mut now_ns = self.time.now_ns();
        if worked && self.serve_ready(now_ns, on_event) {
            now_ns = self.time.now_ns();
        }
        self.now_ns = now_ns;
        for channel in 0..self.channels.len() {
            worked |= self.receive(now_ns, channel, on_event);
            worked |= self.send_rest(now_ns, channel);
        }
        worked |= self.take_timers(now_ns);
        if self.ready.is_empty() && self.unsettled.is_empty() {
            return worked;
        }
        let now_ns = self.time.now_ns();
        self.serve_ready(now_ns, on_event)
    }

    /// Serves the queue pairs that are ready, in order, until a burst is full or [`TURNS_MAX`] had
    /// their turns. A full burst leaves at once, and the sockets are read before the next one, so a
    /// step sends as much with a thousand queue pairs as with one, and the packets are still in
    /// cache when a receiver on this core reads them. Packets of several queue pairs share bursts.
    /// The rest of the last burst leaves after the turns; then queue pairs are settled, since
    /// control packets and events must not delay data. `false` if there was nothing to do.
    fn serve_ready(&mut self, mut now_ns: u64, on_event: &mut dyn FnMut(Event)) -> bool {
        if self.ready.is_empty() && self.unsettled.is_empty() {
            return false;
        }
        for turn in 0..self.ready.len().min(TURNS_MAX) {
            let Some(number) = self.ready.pop() else { break };
            if let Some(next) = self.ready.peek() {
                self.locals.prefetch(next);
            }
            if turn > 0 {
                // The turn before may have taken long.
                now_ns = self.time.now_ns();
            }
            self.serve(now_ns, number);
            if self.flush_full(now_ns) {
                break;
            }
        }
        for index in 0..self.channels.len() {
            self.flush(now_ns, index);
        }
        let mut unsettled = std::mem::take(&mut self.unsettled);
        for (index, &number) in unsettled.iter().enumerate() {
            if let Some(&next) = unsettled.get(index + 1) {
                self.locals.prefetch(next);
            }
            self.settle(now_ns, number, on_event);
        }
        unsettled.clear();
        self.unsettled = unsettled;
        for channel in &mut self.channels {
            channel.control.flush(now_ns, &mut *channel.datapath);
        }
        self.on_refused();
        true
    }

    /// Counts packets that datapaths refused, and gives queue pairs whose packets were too large a
    /// turn.
    fn on_refused(&mut self) {
        let by_control = self.channels.iter_mut().map(|channel| channel.control.refused().packets);
        let packets = self.refused.packets + by_control.sum::<u64>();
        // The usual case. A packet that was too large counts as refused, too.
        if packets == self.counters.refused_by_datapath.load(Ordering::Relaxed) {
            return;
        }
        self.counters.refused_by_datapath.store(packets, Ordering::Relaxed);
        let mut too_large = std::mem::take(&mut self.refused.too_large);
        for channel in &mut self.channels {
            too_large.append(&mut channel.control.refused().too_large);
        }
        for (number, packet_bytes) in too_large {
            if let Some(local) = self.locals.get_mut(number) {
                local.books.on_too_large(packet_bytes);
                self.make_ready(number);
            }
        }
    }

    #[inline]
    fn take_timers(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        while let Some(Reverse((due_ns, number))) = self.timers.peek().copied() {
            if due_ns > now_ns {
                break;
            }
            self.timers.pop();
            if let Some(local) = self.locals.get_mut(number)
                && local.due_ns == Some(due_ns)
            {
                (local.due_ns, local.is_due) = (None, true);
                any = true;
                // Settling follows in any case, and may find that no turn is needed.
                if !local.is_unsettled {
                    self.make_ready(number);
                }
            }
        }
        any
    }

    /// The datapath at `position`, and the intake for its packets.
    fn intake<'e>(
        &'e mut self,
        now_ns: u64,
        position: usize,
        on_event: &'e mut dyn FnMut(Event),
    ) -> (&'e mut dyn Datapath, Intake<'e, T>) {
        let Channel { index, datapath, icrc, .. } = &mut self.channels[position];
        let intake = Intake {
            time: &self.time,
            now_ns,
            position,
            channel: *index,
            icrc,
            locals: &mut self.locals,
            ready: &mut self.ready,
            unsettled: &mut self.unsettled,
            timers: &mut self.timers,
            counters: &self.counters,
            repair_memory: &mut self.repair_memory,
            opened: &mut self.opened,
            challenge_values: &mut self.challenge_values,
            events: &mut self.events,
            on_event,
            untold: None,
            bytes: 0,
            wait_ns: u64::MAX,
        };
        (&mut **datapath, intake)
    }

    /// Reads one channel.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        now_ns: u64,
        channel: usize,
        on_event: &mut dyn FnMut(Event),
    ) -> bool {
        let (datapath, mut intake) = self.intake(now_ns, channel, on_event);
        let (mut any, mut is_much, mut is_left) = (false, false, true);
        for _ in 0..TURN_BATCHES {
            let received = datapath.receive(now_ns, &mut intake);
            intake.tell_placed();
            match received {
                Ok(0) => is_left = false,
                // Reading again costs as much as such a burst: serve it first, the next step reads
                // on.
                Ok(packets) if packets < FEW_PACKETS => (any, is_left) = (true, false),
                Ok(_) => (any, is_much) = (true, true),
                Err(error) => {
                    let channel = intake.channel;
                    (intake.on_event)(Event::CannotReceive { channel, error });
                    is_left = false;
                }
            }
            if !is_left {
                break;
            }
        }
        let Intake { bytes, wait_ns, .. } = intake;
        self.idle.moderation.on_received(bytes, is_much, wait_ns);
        if is_left {
            self.idle.moderation.on_left();
        }
        if any {
            self.drops_due_ns.get_or_insert(self.drops_counted_ns + DROPS_EVERY_NS);
        }
        any
    }

    fn send_rest(&mut self, now_ns: u64, index: usize) -> bool {
        if self.channels[index].packetizer.is_empty() {
            return false;
        }
        self.flush(now_ns, index);
        !self.channels[index].is_blocked
    }

    /// Sends the packets that wait on a channel. When a full datapath has room again, all queue
    /// pairs get a turn: they were skipped while it was full.
    fn flush(&mut self, now_ns: u64, index: usize) {
        let channel = &mut self.channels[index];
        if let Some(headers) = &mut channel.headers {
            channel.packetizer.hand_out(headers);
            if channel.packetizer.is_empty() {
                return;
            }
        }
        let datapath = &mut *channel.datapath;
        let was_blocked = channel.is_blocked;
        channel.is_blocked =
            !channel.packetizer.flush(now_ns, &self.time, datapath, &mut self.refused);
        if was_blocked && !channel.is_blocked {
            for number in self.locals.numbers() {
                self.make_ready(number);
            }
        }
    }

    /// Sends the bursts that are full; `false` if none is.
    fn flush_full(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        for index in 0..self.channels.len() {
            let channel = &self.channels[index];
            if channel.packetizer.packets() >= channel.turn_packets as usize {
                self.flush(now_ns, index);
                any = true;
            }
        }
        any
    }

    // ---- between steps ----

    /// When to step again, after a step that `worked` or had nothing to do.
    pub fn look(&mut self, worked: bool) -> Look {
        if !worked {
            return self.idle.after_nothing(self.time.now_ns());
        }
        let held = self.datapaths().map(|own| own.capabilities().receive_buffer_bytes);
        let socket_bytes = held.min().unwrap_or(0) as u64;
        let Look::After(wait_ns) = self.idle.after_work(self.now_ns, socket_bytes) else {
            return Look::Now;
        };
        // Timers wait, too: pacing makes up for it.
        let pressing_ns = self.pressing_ns().map_or(u64::MAX, |event_ns| self.until(event_ns));
        match wait_ns.min(pressing_ns) {
            0 => Look::Now,
            wait_ns => Look::After(wait_ns),
        }
    }

    /// The caller slept for this long.
    pub fn on_slept(&mut self, slept_ns: u64) {
        self.idle.on_slept(slept_ns);
    }

    /// Time of the next timer; a past time means at once.
    pub fn next_event_ns(&self) -> Option<u64> {
        let timer = self.timers.peek().map(|Reverse((due_ns, _))| *due_ns);
        [timer, self.drops_due_ns, self.pressing_ns()].into_iter().flatten().min()
    }

    /// Time of the next event that an idle wait must not delay.
    fn pressing_ns(&self) -> Option<u64> {
        if !self.ready.is_empty() {
            return Some(0);
        }
        let blocked = self.channels.iter().any(|channel| channel.is_blocked);
        let retry = blocked.then(|| self.time.now_ns() + BLOCKED_RETRY_NS);
        let held = self.channels.iter().filter_map(|channel| channel.datapath.next_event_ns());
        held.chain(retry).min()
    }

    fn until(&self, event_ns: u64) -> u64 {
        event_ns.saturating_sub(self.time.now_ns())
    }

    /// Queries the datapaths' drop counters if that is due. Costs a system call per channel, so it
    /// belongs before a sleep.
    pub fn count_drops(&mut self) {
        let now_ns = self.time.now_ns();
        if self.drops_due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            (self.drops_due_ns, self.drops_counted_ns) = (None, now_ns);
            let drops = self.channels.iter().map(|channel| channel.datapath.receive_drops()).sum();
            self.counters.receive_drops.store(drops, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
