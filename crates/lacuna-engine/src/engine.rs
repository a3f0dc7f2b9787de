//! The engine: the queue pairs of some channels, and the order of a step.
//!
//! A step reads what has come, places it, lets the queue pairs concerned react, and sends what they may
//! send. The owner decides when; whatever the step finds out that is the owner's business it tells as
//! [`Event`]s, right behind the lock under which it was found.

use crate::books::Books;
use crate::channel::Channel;
use crate::counters::Counters;
use crate::event::Event;
use crate::idle::{Idle, Look};
use crate::intake::{Intake, NotedPacket};
use crate::kinds::Lane;
use crate::locals::{Local, Locals};
use crate::packetize::{Refused, SentHeader};
use crate::run_queue::RunQueue;
use crate::settle::Timers;
use crate::time::Time;
use core::time::Duration;
use lacuna_burst::Datapath;
use lacuna_wire::ControlWriter;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Queue pairs that get a turn in one step, if they have too little to fill a burst: all
/// are settled before they have left the caches. 16 are no better.
const TURNS_MAX: usize = 64;
/// Batches read from one channel per step: together a quarter of the smallest
/// window, so that the sender hears of it while there is more on its way.
const TURN_BATCHES: usize = 2;
/// Fewer packets than this at once are no bulk transfer.
pub(crate) const FEW_PACKETS: usize = 4;
/// Largest control packet: fits every path that carries data at all (IPv6's
/// smallest MTU of 1280 less headers).
const CONTROL_BYTES_MAX: usize = 1200;
/// How long to wait before trying again when the way out is full and the
/// datapath cannot say when there is room.
pub(crate) const BLOCKED_RETRY_NS: u64 = 200_000;
/// How often the datapaths are asked what they dropped, if anything came.
const DROPS_EVERY_NS: u64 = 10_000_000;

/// See the module's text.
pub struct Engine<T> {
    pub(crate) time: T,
    pub(crate) channels: Vec<Channel>,
    pub(crate) locals: Locals,
    /// Queue pairs that want a turn: data may wait, or their time has come.
    pub(crate) ready: RunQueue,
    /// Queue pairs to settle in this step: those that had a turn, and those that what
    /// came gave nothing to send, who need not wait for the turns of others.
    pub(crate) unsettled: Vec<u32>,
    pub(crate) timers: Timers,
    pub(crate) writer: ControlWriter,
    pub(crate) idle: Idle,
    /// Events that were noted under a lock, until it is let go.
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Arc<Counters>,
    refused: Refused,
    /// When to ask the datapaths again what they dropped; `None` if nothing came since.
    drops_due_ns: Option<u64>,
    /// When they were asked last.
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
    /// An engine of these channels, by their indices. Before it says [`Look::Sleep`] it says
    /// [`Look::Spin`] for so long.
    pub fn new(time: T, datapaths: Vec<(u8, Box<dyn Datapath>)>, spin: Duration) -> Self {
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
            refused: Refused::default(),
            drops_due_ns: Some(0),
            drops_counted_ns: 0,
            now_ns: 0,
        }
    }

    /// What it counts that belongs to no queue pair.
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

    /// Serves this queue pair from now on.
    pub fn add(&mut self, books: Arc<Books>) {
        let number = books.number();
        self.locals.insert(Local::new(books));
        self.idle.on_patience(None, Some(crate::idle::Patience::NONE));
        self.make_ready(number);
    }

    /// A queue pair's packets may be taken from now on: it is connected. One lane for each of this
    /// engine's channels that both ends have, in their order.
    pub fn set_lanes(&mut self, number: u32, lanes: Vec<Lane>, on_event: &mut dyn FnMut(Event)) {
        if let Some(local) = self.locals.get_mut(number) {
            local.lanes = lanes;
            if local.books.on_lanes() {
                on_event(Event::OthersWanted(number));
            }
        }
        self.make_ready(number);
    }

    /// Forgets a queue pair.
    pub fn remove(&mut self, number: u32) {
        let local = self.locals.remove(number);
        self.idle.on_patience(local.map(|local| local.patience), None);
    }

    /// Gives a queue pair a turn in the next step: there is something to send or to tell.
    pub fn make_ready(&mut self, number: u32) {
        if let Some(local) = self.locals.get_mut(number)
            && !local.is_ready
        {
            local.is_ready = true;
            self.ready.push(number, local.had_burst);
        }
    }

    // ---- packets without bytes ----

    /// From here on data packets leave as headers, without a look at their payloads:
    /// [`Engine::take_headers`] has them, and only control packets go by the datapaths. For a
    /// simulation, whose receivers take them by [`Engine::note`].
    pub fn send_headers(&mut self) {
        self.channels.iter_mut().for_each(|channel| channel.headers = Some(Vec::new()));
    }

    /// Data packets that left as headers since this was last called, in order, by channel.
    pub fn take_headers(&mut self, mut each: impl FnMut(u8, SentHeader)) {
        for Channel { index, headers, .. } in &mut self.channels {
            headers.iter_mut().flat_map(|sent| sent.drain(..)).for_each(|sent| each(*index, sent));
        }
    }

    /// Takes note of data packets that came to a channel and whose payloads are in their places
    /// already, put there by a network card, or are nowhere, in a simulation. The next step does what
    /// follows from it. To be called with as many as came together.
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

    /// One round of progress; `false` if there was nothing to do. What the owner has asked for since
    /// the last (`is_asked`) goes out before what has come is read: that costs a system call, found or
    /// not.
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

    /// Queue pairs that are ready now get turns, in order, until a burst
    /// is full or [`TURNS_MAX`] had theirs: it leaves at once, and what has come
    /// meanwhile is read before the next. So a step sends as much with a thousand of
    /// them as with one, and what it sends is still in cache when a receiver on this
    /// core reads it. Packets of several share bursts. After the turns goes what is left of one, and then
    /// everything for which nobody's data should wait: what they have to tell, and
    /// the books. `false` if there was nothing to do.
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
                // A turn may have sent much.
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
        let mut numbers = unsettled.drain(..).peekable();
        while let Some(number) = numbers.next() {
            if let Some(&next) = numbers.peek() {
                self.locals.prefetch(next);
            }
            self.settle(now_ns, number, on_event);
        }
        drop(numbers);
        self.unsettled = unsettled;
        for channel in &mut self.channels {
            channel.control.flush(now_ns, &mut *channel.datapath);
        }
        self.on_refused();
        true
    }

    /// Counts what datapaths refused, and has those looked at whose packets were too large.
    fn on_refused(&mut self) {
        let mut packets = self.refused.packets;
        let mut too_large = std::mem::take(&mut self.refused.too_large);
        for channel in &mut self.channels {
            let refused = channel.control.refused();
            packets += refused.packets;
            too_large.append(&mut refused.too_large);
        }
        self.counters.refused_by_datapath.store(packets, Ordering::Relaxed);
        for (number, packet_bytes) in too_large {
            if let Some(local) = self.locals.get_mut(number) {
                local.books.on_too_large(packet_bytes);
                self.make_ready(number);
            }
        }
    }

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
                // What came for it may have made that needless.
                if !local.is_unsettled {
                    self.make_ready(number);
                }
            }
        }
        any
    }

    /// A channel's datapath, and who takes what it received.
    fn intake<'e>(
        &'e mut self,
        now_ns: u64,
        position: usize,
        on_event: &'e mut dyn FnMut(Event),
    ) -> (&'e mut dyn Datapath, Intake<'e, T>) {
        let Channel { index, datapath, .. } = &mut self.channels[position];
        let intake = Intake {
            time: &self.time,
            now_ns,
            position,
            channel: *index,
            locals: &mut self.locals,
            ready: &mut self.ready,
            unsettled: &mut self.unsettled,
            timers: &mut self.timers,
            counters: &self.counters,
            events: &mut self.events,
            on_event,
            untold: None,
            bytes: 0,
            wait_ns: u64::MAX,
        };
        (&mut **datapath, intake)
    }

    /// Reads one channel.
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
                // To look again costs as much as such a burst: it is served
                // first, and the next step looks.
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

    /// Sends what waits on a channel. If that makes the way out free again,
    /// all queue pairs get a turn: they were passed over while it was not.
    fn flush(&mut self, now_ns: u64, index: usize) {
        let channel = &mut self.channels[index];
        if let Some(headers) = &mut channel.headers {
            return channel.packetizer.hand_out(headers);
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

    /// When to look again, behind a step that has `worked` or had nothing to do.
    pub fn look(&mut self, worked: bool) -> Look {
        if !worked {
            return self.idle.after_nothing(self.time.now_ns());
        }
        let held = self.datapaths().map(|own| own.capabilities().receive_buffer_bytes);
        let socket_bytes = held.min().unwrap_or(0) as u64;
        let Look::After(wait_ns) = self.idle.after_work(self.now_ns, socket_bytes) else {
            return Look::Now;
        };
        // Timers wait too: what they are for allows it, and the pace makes up for it.
        let pressing_ns = self.pressing_ns().map_or(u64::MAX, |event_ns| self.until(event_ns));
        match wait_ns.min(pressing_ns) {
            0 => Look::Now,
            wait_ns => Look::After(wait_ns),
        }
    }

    /// The owner slept for so long.
    pub fn on_slept(&mut self, slept_ns: u64) {
        self.idle.on_slept(slept_ns);
    }

    /// When there is something to do though nothing comes; a time already past means at once.
    pub fn next_event_ns(&self) -> Option<u64> {
        let timer = self.timers.peek().map(|Reverse((due_ns, _))| *due_ns);
        [timer, self.drops_due_ns, self.pressing_ns()].into_iter().flatten().min()
    }

    /// When there is something to do that may not wait.
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

    /// Asks the datapaths what they dropped, if it is time: that costs a system call a channel, so it is
    /// to be done before the owner sleeps.
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
