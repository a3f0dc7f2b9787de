//! A worker: the progress of some channels, and of all queue pairs on them.
//!
//! One step reads what has come, places it, lets the queue pairs concerned
//! react, and sends what they may send. The same step runs on a thread of its
//! own or inside the application's calls. A worker owns its channels' sockets
//! and the right to place their packets; it shares nothing with other workers
//! but the queue pairs' locks, taken once per burst, and the atomic bitmaps.

mod intake;
mod locals;
mod settle;
#[cfg(test)]
mod tests;
mod turns;

use crate::clock::Clock;
use crate::control_queue::ControlQueue;
use crate::inbox::{Command, Inbox};
use crate::packetize::{Packetizer, Refused};
use crate::rest::Rest;
use crate::shared::{Machine, Shared, State};
use crate::spin::Spin;
use crate::told::Told;
use intake::Intake;
use lacuna_datapath::{Datapath, Waiter};
use lacuna_place::writer::ChannelWriter;
use lacuna_wire::{ControlWriter, DATA_OVERHEAD_BYTES, PacketError, RejectKind};
use locals::{FEW_QUEUE_PAIRS, Locals};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use turns::Turns;

/// What one queue pair may send on a channel per turn, in pieces that leave in
/// one system call: some 250 KiB. Small enough that acknowledgements are read
/// in time and queue pairs take turns. A rest of less than a piece goes along: as a
/// turn of its own it costs two more visits to a queue pair that is in no cache by
/// then and another report, 3 % of a message of 256 KiB with a thousand queue pairs.
/// (That it waits for those of others, to fill a piece with them, is no gain: the
/// message then ends a turn later all the same.)
const TURN_BUNDLES: u32 = 4;
/// The same where each packet is a piece of its own.
const TURN_PACKETS: u32 = 64;
/// Queue pairs that get a turn in one step, if they have too little to fill a burst: all
/// are settled before they have left the caches. 16 are no better.
const TURNS_MAX: usize = 64;
/// Batches read from one channel per step: together a quarter of the smallest
/// window, so that the sender hears of it while there is more on its way.
const TURN_BATCHES: usize = 2;
/// Fewer packets than this at once are no bulk transfer.
const FEW_PACKETS: usize = 4;
/// Largest control packet: fits every path that carries data at all (IPv6's
/// smallest MTU of 1280 less headers).
const CONTROL_BYTES_MAX: usize = 1200;
/// How long to wait before trying again when the way out is full and the
/// datapath cannot say when there is room.
const BLOCKED_RETRY_NS: u64 = 200_000;

/// How often the datapaths are asked what they dropped, if anything came.
const DROPS_EVERY_NS: u64 = 10_000_000;

/// Packets refused before they reached a queue pair, by reason; and more that
/// has no queue pair to count it.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    pub(crate) rejected: [AtomicU64; RejectKind::COUNT],
    pub(crate) unknown: AtomicU64,
    pub(crate) receive_drops: AtomicU64,
    pub(crate) refused_by_datapath: AtomicU64,
}

impl WorkerCounters {
    #[cold]
    fn reject(&self, error: &PacketError) {
        self.rejected[error.kind().as_index()].fetch_add(1, Ordering::Relaxed);
    }
}

/// One channel of the context.
struct Channel {
    index: u8,
    datapath: Box<dyn Datapath>,
    packetizer: Packetizer,
    control: ControlQueue,
    /// Packets that are worth a burst.
    turn_packets: u32,
    is_blocked: bool,
    told: Told,
}

impl Channel {
    /// Packets of `mtu_bytes` payload that leave in one piece; notes what a turn of them is.
    fn bundle(&mut self, mtu_bytes: u32) -> u32 {
        let packet_bytes = mtu_bytes as usize + DATA_OVERHEAD_BYTES;
        let bundle = self.datapath.capabilities().bundle_packets(packet_bytes) as u32;
        self.turn_packets = if bundle > 1 { TURN_BUNDLES * bundle } else { TURN_PACKETS };
        bundle
    }

    fn send_control(&mut self, now_ns: u64, to: SocketAddr, packet: &[u8]) {
        self.control.push(now_ns, &mut *self.datapath, to, packet);
    }
}

/// A queue pair as this worker knows it.
struct Local {
    shared: Arc<Shared>,
    /// Writers of this worker's channels, in their order; empty until connected.
    writers: Vec<ChannelWriter>,
    /// When it wants to be served; the timer heap may hold stale entries.
    due_ns: Option<u64>,
    /// In the ready list.
    is_ready: bool,
    /// Its last turn took a whole burst.
    had_burst: bool,
    /// In the list of the unsettled.
    is_unsettled: bool,
    /// Data waited at a turn since it was last settled.
    had_queued: bool,
    /// Its time has come.
    is_due: bool,
    /// How long it may be left alone.
    rest_ns: u64,
    /// Its peer is so near that to wait for it awake pays.
    is_near: bool,
}

impl Local {
    /// It is settled in this step.
    fn unsettle(&mut self, number: u32, unsettled: &mut Vec<u32>) {
        if !std::mem::replace(&mut self.is_unsettled, true) {
            unsettled.push(number);
        }
    }
}

/// See the module's text.
pub(crate) struct Worker {
    index: usize,
    clock: Clock,
    channels: Vec<Channel>,
    locals: Locals,
    inbox: Arc<Inbox>,
    commands: Vec<Command>,
    waiter: Waiter,
    spin: Spin,
    rest: Rest,
    told: Told,
    /// Queue pairs that want a turn: data may wait, or their time has come.
    ready: Turns,
    /// Queue pairs to settle in this step: those that had a turn, and those that what
    /// came gave nothing to send, who need not wait for the turns of others.
    unsettled: Vec<u32>,
    timers: BinaryHeap<Reverse<(u64, u32)>>,
    writer: ControlWriter,
    counters: Arc<WorkerCounters>,
    refused: Refused,
    /// When to ask the datapaths again what they dropped; `None` if nothing came since.
    drops_due_ns: Option<u64>,
    /// When they were asked last.
    drops_counted_ns: u64,
    now_ns: u64,
    stopped: bool,
}

impl Worker {
    pub(crate) fn new(
        index: usize,
        clock: Clock,
        datapaths: Vec<(u8, Box<dyn Datapath>)>,
        inbox: Arc<Inbox>,
        waiter: Waiter,
        spin: Duration,
    ) -> Self {
        let channel = |(index, datapath)| Channel {
            index,
            datapath,
            packetizer: Packetizer::new(clock),
            control: ControlQueue::new(),
            turn_packets: TURN_PACKETS,
            is_blocked: false,
            told: Told::default(),
        };
        Self {
            index,
            clock,
            channels: datapaths.into_iter().map(channel).collect(),
            locals: Locals::default(),
            inbox,
            commands: Vec::new(),
            waiter,
            spin: Spin::new(spin),
            rest: Rest::new(),
            told: Told::default(),
            ready: Turns::default(),
            unsettled: Vec::new(),
            timers: BinaryHeap::new(),
            writer: ControlWriter::new(CONTROL_BYTES_MAX),
            counters: Arc::new(WorkerCounters::default()),
            refused: Refused::default(),
            drops_due_ns: Some(0),
            drops_counted_ns: 0,
            now_ns: 0,
            stopped: false,
        }
    }

    pub(crate) fn counters(&self) -> Arc<WorkerCounters> {
        self.counters.clone()
    }

    /// Runs until stopped.
    pub(crate) fn run(&mut self) {
        while !self.stopped {
            self.step_or_wait(None);
        }
    }

    /// One round of progress; if there was nothing to do, spins or sleeps, at
    /// most `limit`.
    pub(crate) fn step_or_wait(&mut self, limit: Option<Duration>) {
        if self.step() {
            self.spin.on_work();
            self.take_rest(limit);
            return;
        }
        let now_ns = self.clock.now_ns();
        if self.spin.looks_again(now_ns) {
            std::hint::spin_loop();
        } else {
            self.sleep(limit);
            let slept_ns = self.clock.now_ns() - now_ns;
            self.spin.on_slept(slept_ns);
            self.rest.on_slept(slept_ns);
        }
    }

    /// Leaves the sockets alone for a while, if that is allowed.
    fn take_rest(&mut self, limit: Option<Duration>) {
        let held = self.channels.iter().map(|own| own.datapath.capabilities().receive_buffer_bytes);
        let socket_bytes = held.min().unwrap_or(0) as u64;
        let Some(rest_ns) = self.rest.take(self.now_ns, socket_bytes) else { return };
        // Timers wait too: what they are for allows it, and the pace makes up for it.
        let rest = match self.pressing_ns() {
            Some(event_ns) => self.clock.until(event_ns).min(Duration::from_nanos(rest_ns)),
            None => Duration::from_nanos(rest_ns),
        };
        let rest = limit.map_or(rest, |limit| limit.min(rest));
        if !rest.is_zero()
            && let Err(error) = self.waiter.wait(std::iter::empty(), Some(rest))
            && self.told.is_news(&error)
        {
            tracing::error!(%error, "cannot rest");
        }
    }

    /// How long nothing is to be done of which this worker knows.
    fn sleep_limit(&self, limit: Option<Duration>) -> Option<Duration> {
        match (self.next_event_ns().map(|event_ns| self.clock.until(event_ns)), limit) {
            (Some(event), Some(limit)) => Some(event.min(limit)),
            (event, limit) => event.or(limit),
        }
    }

    /// Sleeps until something is to be done, at most `limit`.
    fn sleep(&mut self, limit: Option<Duration>) {
        self.count_drops();
        let timeout = self.sleep_limit(limit);
        if timeout == Some(Duration::ZERO) {
            return;
        }
        let sources = self.channels.iter().map(|channel| &*channel.datapath as &dyn Datapath);
        if let Err(error) = self.waiter.wait(sources, timeout) {
            if self.told.is_news(&error) {
                tracing::error!(%error, "cannot wait for packets");
            }
            std::thread::yield_now();
        }
    }

    fn next_event_ns(&self) -> Option<u64> {
        let timer = self.timers.peek().map(|Reverse((due_ns, _))| *due_ns);
        [timer, self.drops_due_ns, self.pressing_ns()].into_iter().flatten().min()
    }

    /// When there is something to do that may not wait.
    fn pressing_ns(&self) -> Option<u64> {
        if !self.ready.is_empty() {
            return Some(0);
        }
        let blocked = self.channels.iter().any(|channel| channel.is_blocked);
        let retry = blocked.then(|| self.clock.now_ns() + BLOCKED_RETRY_NS);
        let held = self.channels.iter().filter_map(|channel| channel.datapath.next_event_ns());
        held.chain(retry).min()
    }

    /// One round of progress; `false` if there was nothing to do.
    pub(crate) fn step(&mut self) -> bool {
        // What the application has asked for goes out before what has come is
        // read: that costs a system call, found or not.
        let mut worked = self.take_commands();
        let mut now_ns = self.clock.now_ns();
        if worked && self.serve_ready(now_ns) {
            now_ns = self.clock.now_ns();
        }
        self.now_ns = now_ns;
        for channel in 0..self.channels.len() {
            worked |= self.receive(now_ns, channel);
            worked |= self.send_rest(now_ns, channel);
        }
        worked |= self.take_timers(now_ns);
        if self.ready.is_empty() && self.unsettled.is_empty() {
            return worked;
        }
        let now_ns = self.clock.now_ns();
        self.serve_ready(now_ns)
    }

    /// Queue pairs that are ready now get turns, in order, until a burst
    /// is full or [`TURNS_MAX`] had theirs: it leaves at once, and what has come
    /// meanwhile is read before the next. So a step sends as much with a thousand of
    /// them as with one, and what it sends is still in cache when a receiver on this
    /// core reads it. Packets of several share bursts. After the turns goes what is left of one, and then
    /// everything for which nobody's data should wait: what they have to tell, and
    /// the books. `false` if there was nothing to do.
    fn serve_ready(&mut self, mut now_ns: u64) -> bool {
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
                now_ns = self.clock.now_ns();
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
            self.settle(now_ns, number);
        }
        drop(numbers);
        self.unsettled = unsettled;
        for channel in &mut self.channels {
            channel.control.flush(now_ns, &mut *channel.datapath);
            for (number, packet_bytes) in channel.control.take_too_large() {
                if let Some(local) = self.locals.get_mut(number) {
                    local.shared.on_too_large(packet_bytes);
                }
            }
        }
        let control = self.channels.iter().map(|channel| channel.control.refused()).sum::<u64>();
        let refused = self.refused.packets + control;
        self.counters.refused_by_datapath.store(refused, Ordering::Relaxed);
        true
    }

    /// When the last step began.
    pub(crate) fn stepped_ns(&self) -> u64 {
        self.now_ns
    }

    fn take_commands(&mut self) -> bool {
        if self.inbox.is_empty() {
            return false;
        }
        let mut commands = std::mem::take(&mut self.commands);
        let ready = self.inbox.take(&mut commands);
        let any = ready.is_some() || !commands.is_empty();
        for command in commands.drain(..) {
            match command {
                Command::Add(shared) => self.add(shared),
                Command::Write(number, writers) => {
                    if let Some(local) = self.locals.get_mut(number) {
                        local.writers = writers;
                        local.shared.on_writers();
                    }
                    self.make_ready(number);
                }
                Command::Ready(number) => self.make_ready(number),
                Command::Remove(number) => {
                    let local = self.locals.remove(number);
                    let local = local.as_ref();
                    self.rest.change(local.map(|local| local.rest_ns), None);
                    self.spin.change(local.is_some_and(|local| local.is_near), false);
                }
                Command::Stop => self.stopped = true,
            }
        }
        self.commands = commands;
        if let Some(number) = ready {
            self.make_ready(number);
        }
        any
    }

    fn add(&mut self, shared: Arc<Shared>) {
        let number = shared.number;
        self.locals.insert(Local {
            shared,
            writers: Vec::new(),
            due_ns: None,
            is_ready: false,
            had_burst: false,
            is_unsettled: false,
            had_queued: false,
            is_due: false,
            rest_ns: 0,
            is_near: false,
        });
        self.rest.change(None, Some(0));
        self.make_ready(number);
    }

    fn make_ready(&mut self, number: u32) {
        if let Some(local) = self.locals.get_mut(number)
            && !local.is_ready
        {
            local.is_ready = true;
            self.ready.push(number, local.had_burst);
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

    fn receive(&mut self, now_ns: u64, channel: usize) -> bool {
        let mut intake = Intake {
            clock: self.clock,
            now_ns,
            position: channel,
            channel: self.channels[channel].index,
            locals: &mut self.locals,
            ready: &mut self.ready,
            unsettled: &mut self.unsettled,
            timers: &mut self.timers,
            counters: &self.counters,
            bytes: 0,
            rest_ns: u64::MAX,
        };
        let Channel { datapath, told, .. } = &mut self.channels[channel];
        let (mut any, mut is_much, mut is_left) = (false, false, true);
        for _ in 0..TURN_BATCHES {
            match datapath.receive(now_ns, &mut intake) {
                Ok(0) => is_left = false,
                // To look again costs as much as such a burst: it is served
                // first, and the next step looks.
                Ok(packets) if packets < FEW_PACKETS => (any, is_left) = (true, false),
                Ok(_) => (any, is_much) = (true, true),
                Err(error) => {
                    if told.is_news(&error) {
                        tracing::error!(%error, channel, "cannot receive");
                    }
                    is_left = false;
                }
            }
            if !is_left {
                break;
            }
        }
        self.rest.on_received(intake.bytes, is_much, intake.rest_ns);
        if is_left {
            self.rest.on_left();
        }
        if any {
            self.drops_due_ns.get_or_insert(self.drops_counted_ns + DROPS_EVERY_NS);
        }
        any
    }

    /// Asking costs a system call a channel.
    fn count_drops(&mut self) {
        let now_ns = self.clock.now_ns();
        if self.drops_due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            (self.drops_due_ns, self.drops_counted_ns) = (None, now_ns);
            let drops = self.channels.iter().map(|channel| channel.datapath.receive_drops()).sum();
            self.counters.receive_drops.store(drops, Ordering::Relaxed);
        }
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
        let datapath = &mut *channel.datapath;
        let was_blocked = channel.is_blocked;
        channel.is_blocked = !channel.packetizer.flush(now_ns, datapath, &mut self.refused);
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

    /// Lets one queue pair send data.
    fn serve(&mut self, now_ns: u64, number: u32) {
        let Some(local) = self.locals.get_mut(number) else { return };
        local.is_ready = false;
        local.unsettle(number, &mut self.unsettled);
        let is_due = std::mem::take(&mut local.is_due);
        local.shared.unready(self.index);
        let mut state = local.shared.lock();
        let State { machine, addresses } = &mut *state;
        let Machine::Connected(qp) = machine else { return };
        if is_due {
            qp.on_timeout(now_ns);
        }
        local.had_queued |= qp.has_queued();
        // What may go now moves to the channels.
        let agreed = qp.config().geometry.channels();
        let mtu_bytes = qp.payload_bytes_max();
        let (mut goes_on, mut most_packets, mut burst_packets) = (false, 0, u32::MAX);
        for channel in self.channels.iter_mut().filter(|own| own.index < agreed) {
            let Some(to) = address(addresses, channel.index) else { continue };
            if channel.is_blocked {
                continue;
            }
            let bundle = channel.bundle(mtu_bytes);
            qp.set_bundle(bundle);
            let mut left = channel.turn_packets;
            let with_rest = left + bundle - 1;
            if qp.queued_packets_on(channel.index, with_rest) <= with_rest {
                left = with_rest;
            }
            let most = left;
            while left > 0 && qp.has_queued_on(channel.index) {
                let Some(run) = qp.poll_run(now_ns, channel.index, left) else { break };
                // The pieces of a packet may be more.
                left = left.saturating_sub(run.len() as u32);
                self.rest.on_sent(run.len() as u64 * u64::from(mtu_bytes));
                channel.packetizer.push(to, run, local.shared.clone());
            }
            goes_on |= left == 0;
            most_packets = most_packets.max(most - left);
            burst_packets = burst_packets.min(channel.turn_packets);
        }
        drop(state);
        if most_packets > 0 {
            local.had_burst = most_packets >= burst_packets;
        }
        if goes_on {
            // The turn was too short for all.
            local.is_ready = true;
            self.ready.push_on(number, self.ready.len() >= FEW_QUEUE_PAIRS);
        }
    }
}

/// Where a channel's packets go, once that is known.
fn address(addresses: &[Option<SocketAddr>], channel: u8) -> Option<SocketAddr> {
    addresses.get(usize::from(channel)).copied().flatten()
}
