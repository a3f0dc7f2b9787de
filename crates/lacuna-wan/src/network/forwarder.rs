//! The forwarder: one thread that moves frames from host to host, over the ways of their routes one after the other.
//!
//! As the emulator of a path does ([`crate::emulator`]): it reads a frame, asks the first way of its route
//! ([`super::routes`]) how the bundle is cut and when its parts come out. A part that comes out of a way enters the next
//! one at that time, as a bundle of its own, and is written to its host at the end. A part that is its whole bundle stays
//! where it is in the arena; others are copied once for each way.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use rustix::io::{Errno, read};

use super::routes::{Next, Node, Routes, Step};
use crate::arena::Arena;
use crate::bundle::Bundle;
use crate::emulator::{
    READS_MAX, Writer, clock_ns, cpu_time, early_ns, sharpen_timers, wait_readable,
};
use crate::flight::{Flight, Held};
use crate::host::member_of;
use crate::way::{Part, Way, WayConfig, WayCounters, WayError};

/// Requests of other threads to the forwarder.
pub(super) enum Request {
    /// Change the ways of all links: to the switch or clockwise, and back.
    Change { configs: Box<[WayConfig; 2]>, answer: Sender<Result<(), WayError>> },
    /// Read the counters.
    Read { answer: Sender<NetworkProgress> },
    /// End the thread.
    Stop,
}

/// Counters of a network so far.
#[derive(Clone, Debug)]
pub struct NetworkProgress {
    /// Time since the network was made.
    pub elapsed: Duration,
    /// Of each way, in the order of links; first the one to the switch, or to the next host.
    pub ways: Vec<WayProgress>,
    /// Packets of each host that were for no host of the network, or were no packets.
    pub unroutable: Vec<u64>,
    /// Processor time of the forwarder.
    pub cpu: Duration,
}

/// Counters of one way of a network.
#[derive(Clone, Copy, Debug)]
pub struct WayProgress {
    /// Where it begins.
    pub from: Node,
    /// Where it ends.
    pub to: Node,
    /// What it did; packets are sent to it by its host, or come from another way.
    pub counters: WayCounters,
}

/// The state of the thread.
pub(super) struct Forwarder {
    devices: Vec<OwnedFd>,
    ways: Vec<Way>,
    /// When a packet has last entered each way: times must not run backwards there, and a part that the emulator
    /// writes early has a later time than a packet that is read next.
    entered_ns: Vec<u64>,
    routes: Routes,
    unroutable: Vec<u64>,
    arena: Arena,
    flight: Flight,
    requests: Receiver<Request>,
    /// An eventfd, readable when there is a request.
    waker: Arc<OwnedFd>,
    early_ns: u64,
    start_ns: u64,
    /// Whether each device may have frames to read.
    is_readable: Vec<bool>,
    // Buffers that are reused from frame to frame.
    parts: Vec<Part>,
    moved: Vec<u8>,
    writer: Writer,
}

impl Forwarder {
    pub(super) fn new(
        devices: Vec<OwnedFd>,
        ways: Vec<Way>,
        routes: Routes,
        requests: Receiver<Request>,
        waker: Arc<OwnedFd>,
    ) -> Self {
        let hosts = devices.len();
        Self {
            devices,
            early_ns: early_ns(&ways),
            entered_ns: vec![0; ways.len()],
            ways,
            routes,
            unroutable: vec![0; hosts],
            arena: Arena::new(2 * WayConfig::HELD_BYTES_MAX),
            flight: Flight::default(),
            requests,
            waker,
            start_ns: clock_ns(),
            is_readable: vec![true; hosts],
            parts: vec![],
            moved: vec![],
            writer: Writer::new(),
        }
    }

    /// Runs until it is asked to stop.
    pub(super) fn run(mut self) -> io::Result<NetworkProgress> {
        sharpen_timers()?;
        loop {
            for host in 0..self.devices.len() {
                if self.is_readable[host] {
                    self.is_readable[host] = self.read_frames(host)?;
                }
            }
            self.move_due(self.now_ns())?;
            if !self.answer_requests() {
                return Ok(self.progress());
            }
            match self.is_readable.contains(&true) {
                // Some devices are busy; the others were not polled.
                true => self.is_readable.fill(true),
                false => {
                    let next_ns = self.flight.next_ns();
                    let timeout_ns = next_ns.map(|next_ns| next_ns.saturating_sub(self.now_ns()));
                    wait_readable(&self.devices, &self.waker, timeout_ns, &mut self.is_readable)?;
                }
            }
        }
    }

    fn now_ns(&self) -> u64 {
        clock_ns() - self.start_ns
    }

    /// Reads frames that a host has sent; returns whether there may be more.
    fn read_frames(&mut self, from: usize) -> io::Result<bool> {
        for _ in 0..READS_MAX {
            // Without room, frames are read and dropped: a full network must lose packets and not block the host.
            let (room, has_room) = match self.arena.room() {
                Some(room) => (room, true),
                None => (&mut self.writer.scratch[..], false),
            };
            let frame_bytes = match read(&self.devices[from], &mut *room) {
                Ok(frame_bytes) => frame_bytes,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let frame = &room[..frame_bytes];
            let parsed = Bundle::parse(frame).ok();
            let to = parsed.and_then(|bundle| member_of(bundle.destination(frame)?));
            let first = to.and_then(|to| self.routes.first(from, to));
            let (Some(bundle), Some(step)) = (parsed, first) else {
                let packets = parsed.map_or(1, |bundle| u64::from(bundle.packets()));
                self.unroutable[from] += packets;
                continue;
            };
            if !has_room {
                self.drop_for_room(step, &bundle);
                continue;
            }
            let is_ecn_capable = bundle.is_ecn_capable(frame);
            let now_ns = clock_ns() - self.start_ns;
            if self.enter(now_ns, step, &bundle, is_ecn_capable) {
                let place = self.arena.keep(frame_bytes);
                self.flight.insert(place, bundle, self.parts.iter().map(|part| (step, *part)));
                // Move frames without delay at once, while they are in the cache.
                self.move_due(now_ns)?;
            }
        }
        Ok(true)
    }

    /// A bundle enters the way of a step; its parts are in `parts` then. Returns whether any comes out.
    fn enter(&mut self, now_ns: u64, step: usize, bundle: &Bundle, is_ecn_capable: bool) -> bool {
        let way = self.routes.step(step).way;
        let entered_ns = &mut self.entered_ns[way];
        *entered_ns = now_ns.max(*entered_ns);
        self.parts.clear();
        self.ways[way].on_bundle(*entered_ns, bundle, is_ecn_capable, &mut self.parts);
        !self.parts.is_empty()
    }

    fn drop_for_room(&mut self, step: usize, bundle: &Bundle) {
        let counters = self.ways[self.routes.step(step).way].counters_mut();
        counters.sent_packets += u64::from(bundle.packets());
        counters.sent_bytes += bundle.wire_bytes();
        counters.held_dropped += u64::from(bundle.packets());
    }

    /// Moves the parts that are due: to their next ways, or to their hosts.
    fn move_due(&mut self, now_ns: u64) -> io::Result<()> {
        while let Some((held, (step, part), is_last)) = self.flight.pop_due(now_ns + self.early_ns)
        {
            let Step { way, next } = self.routes.step(step);
            match next {
                Next::Arrived(host) => {
                    let frame = self.arena.frame(held.place);
                    let counters = self.ways[way].counters_mut();
                    self.writer.write(&self.devices[host], &held.bundle, frame, &part, counters)?;
                    if is_last {
                        self.arena.release(held.place);
                    }
                }
                Next::Step(next) => self.hand_on(&held, way, next, &part, is_last),
            }
        }
        Ok(())
    }

    /// A part comes out of a way and enters the next one.
    fn hand_on(&mut self, held: &Held, way: usize, step: usize, part: &Part, is_last: bool) {
        let packets = part.start..part.end;
        let counters = self.ways[way].counters_mut();
        counters.delivered_packets += u64::from(part.end - part.start);
        counters.delivered_bytes += held.bundle.wire_bytes_of(packets.clone());
        let is_whole = packets == (0..held.bundle.packets());
        if is_whole && is_last && !part.is_marked && part.flipped_bit.is_none() {
            let is_ecn_capable = held.bundle.is_ecn_capable(self.arena.frame(held.place));
            if self.enter(part.release_ns, step, &held.bundle, is_ecn_capable) {
                let parts = self.parts.iter().map(|part| (step, *part));
                self.flight.insert(held.place, held.bundle, parts);
            } else {
                self.arena.release(held.place);
            }
            return;
        }
        let mut moved = std::mem::take(&mut self.moved);
        self.writer.copy(&held.bundle, self.arena.frame(held.place), part, &mut moved);
        if is_last {
            self.arena.release(held.place);
        }
        self.enter_copied(&moved, part.release_ns, way, step);
        self.moved = moved;
    }

    /// A frame that is a part of another one enters a way.
    fn enter_copied(&mut self, frame: &[u8], now_ns: u64, from_way: usize, step: usize) {
        // A flipped bit may have made a packet that no router forwards.
        let Ok(bundle) = Bundle::parse(frame) else {
            self.ways[from_way].counters_mut().malformed_frames += 1;
            return;
        };
        let Some(room) = self.arena.room() else { return self.drop_for_room(step, &bundle) };
        let Some(room) = room.get_mut(..frame.len()) else { return };
        room.copy_from_slice(frame);
        if self.enter(now_ns, step, &bundle, bundle.is_ecn_capable(frame)) {
            let place = self.arena.keep(frame.len());
            self.flight.insert(place, bundle, self.parts.iter().map(|part| (step, *part)));
        }
    }

    /// Answers requests; returns `false` when the thread is to end.
    fn answer_requests(&mut self) -> bool {
        loop {
            match self.requests.try_recv() {
                Ok(Request::Change { configs, answer }) => {
                    let mut ways = self.ways.iter_mut().zip(configs.iter().cycle());
                    let changed = ways.try_for_each(|(way, config)| way.change(config.clone()));
                    self.early_ns = early_ns(&self.ways);
                    // The requesting thread may have ended.
                    let _ = answer.send(changed);
                }
                Ok(Request::Read { answer }) => {
                    let _ = answer.send(self.progress());
                }
                Ok(Request::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
    }

    fn progress(&self) -> NetworkProgress {
        let ways = self.routes.ends().iter().zip(&self.ways);
        NetworkProgress {
            elapsed: Duration::from_nanos(self.now_ns()),
            ways: ways
                .map(|((from, to), way)| WayProgress {
                    from: *from,
                    to: *to,
                    counters: *way.counters(),
                })
                .collect(),
            unroutable: self.unroutable.clone(),
            cpu: cpu_time(),
        }
    }
}
