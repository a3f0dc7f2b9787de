//! Engines joined in virtual time: hosts, each with an engine of its own, and packets that fly between
//! them.
//!
//! The engines are those of the transport; only their datapaths ([`Port`]), their clock and what is
//! between them are made up. What is between them is whoever implements [`Wire`]: [`Links`] has a
//! [`Pipe`](lacuna_link::Pipe) with rates, delays and losses for each pair of hosts. Time moves from event to event, so a second of an idle path
//! costs nothing. Everything is deterministic: events at the same time happen in the order in which they
//! were caused, and a wire draws from a seed.

mod links;
mod port;

pub use links::Links;
pub use port::{Packet, Place, Port, Sent};

use crate::books::{Books, State};
use crate::engine::Engine;
use crate::event::Event;
use crate::intake::NotedPacket;
use crate::kinds::{Lane, Machine};
use crate::packetize::SentHeader;
use crate::time::Time;
use core::time::Duration;
use lacuna_burst::Datapath;
use lacuna_proto::qp::{Peer, QpConfig, QueuePair};
use lacuna_secure::{SECRET_BYTES, Secret};
use std::cmp::{self, Reverse};
use std::collections::BinaryHeap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

/// When virtual time begins: so that "a moment ago" never underflows.
const START_NS: u64 = 1_000_000_000;

/// Steps in which a host must have done all that is due at one time. A time that stays in the past
/// would make a thread spin.
const STEPS_MAX: usize = 1 << 20;

/// The time of a [`Net`]; copies tell the same.
#[derive(Debug, Clone)]
pub struct VirtualClock(Arc<AtomicU64>);

impl Time for VirtualClock {
    fn now_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is between the hosts: says of each packet that was sent when it arrives, and where, if at all.
pub trait Wire {
    /// Carries one packet: each [`Flights::fly`] is one that will arrive.
    fn carry(&mut self, now_ns: u64, sent: Sent, flights: &mut Flights);
}

/// Packets under way.
#[derive(Debug, Default)]
pub struct Flights {
    heap: BinaryHeap<Reverse<Flying>>,
    counter: u64,
}

/// A packet under way; ordered by arrival, then by departure.
#[derive(Debug)]
struct Flying {
    due_ns: u64,
    counter: u64,
    from: Place,
    to: Place,
    is_marked: bool,
    packet: Packet,
}

impl Flying {
    fn order(&self) -> (u64, u64) {
        (self.due_ns, self.counter)
    }
}

impl PartialEq for Flying {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Flying {}

impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flying {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl Flights {
    /// A packet arrives at `due_ns`; a router has marked it "congestion experienced" or not.
    pub fn fly(&mut self, due_ns: u64, from: Place, to: Place, packet: Packet, is_marked: bool) {
        self.counter += 1;
        let counter = self.counter;
        self.heap.push(Reverse(Flying { due_ns, counter, from, to, is_marked, packet }));
    }
}

/// A host of a [`Net`].
#[derive(Debug)]
pub struct Host {
    engine: Engine<VirtualClock>,
    ports: Vec<Port>,
    /// Packets without bytes that have arrived, with their channels.
    noted: Vec<(u8, NotedPacket)>,
    /// What the engine told, until it is taken.
    events: Vec<Event>,
}

impl Host {
    /// Its engine.
    pub fn engine(&mut self) -> &mut Engine<VirtualClock> {
        &mut self.engine
    }

    /// The port of a channel.
    pub fn port(&self, channel: u8) -> &Port {
        &self.ports[usize::from(channel)]
    }

    /// What its engine told since this was last called.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

/// A queue pair of a [`Net`]: it is on one host.
#[derive(Debug, Clone)]
pub struct Handle {
    /// The host.
    pub host: usize,
    /// The engine's books.
    pub books: Arc<Books>,
}

impl Handle {
    /// The queue pair of the kind SDR. Whoever changes it has its engine look at it ([`Net::kick`]).
    ///
    /// # Panics
    /// If it is in use further up: there is one thread.
    pub fn qp(&self) -> Held<'_> {
        Held(self.books.try_lock().expect("the queue pair is held by the same thread"))
    }
}

/// A queue pair under its lock.
#[derive(Debug)]
pub struct Held<'b>(MutexGuard<'b, State>);

impl Deref for Held<'_> {
    type Target = QueuePair;

    fn deref(&self) -> &QueuePair {
        match &self.0.machine {
            Machine::Sdr(qp) => qp,
            other => panic!("a queue pair that is connected, not {other:?}"),
        }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut QueuePair {
        match &mut self.0.machine {
            Machine::Sdr(qp) => qp,
            other => panic!("a queue pair that is connected, not {other:?}"),
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Net {
    clock: VirtualClock,
    hosts: Vec<Host>,
    flights: Flights,
}

impl Default for Net {
    fn default() -> Self {
        Self::new()
    }
}

impl Net {
    /// No host yet.
    pub fn new() -> Self {
        let clock = VirtualClock(Arc::new(AtomicU64::new(START_NS)));
        Self { clock, hosts: Vec::new(), flights: Flights::default() }
    }

    /// Now.
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// Adds a host with so many channels, and returns its number.
    pub fn add_host(&mut self, channels: u8) -> usize {
        let host = self.hosts.len();
        let ports: Vec<_> =
            (0..channels).map(|channel| Port::new(Place { host, channel })).collect();
        let datapath =
            |port: &Port| (port.place().channel, Box::new(port.clone()) as Box<dyn Datapath>);
        let datapaths = ports.iter().map(datapath).collect();
        let secret = Secret::new([host as u8; SECRET_BYTES]);
        let engine = Engine::new(self.clock.clone(), datapaths, Duration::ZERO, secret);
        self.hosts.push(Host { engine, ports, noted: Vec::new(), events: Vec::new() });
        host
    }

    /// The same of a host whose data packets have no bytes: what it sends is never looked at
    /// ([`Zeros`](lacuna_place::buffer::Zeros) do), and what it receives goes nowhere
    /// (`Placement::phantom`). It costs neither memory nor copies nor checksums.
    pub fn add_host_without_bytes(&mut self, channels: u8) -> usize {
        let host = self.add_host(channels);
        self.hosts[host].engine.send_headers();
        host
    }

    /// A host.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn host(&mut self, host: usize) -> &mut Host {
        &mut self.hosts[host]
    }

    /// Makes two queue pairs, one on each of two hosts, and connects them.
    ///
    /// # Panics
    /// If a configuration has more channels than its host.
    pub fn connect(&mut self, hosts: [usize; 2], configs: [QpConfig; 2]) -> [Handle; 2] {
        let now_ns = self.now_ns();
        let channels = configs[0].geometry.channels().min(configs[1].geometry.channels());
        let peers = configs.each_ref().map(|config| Peer {
            queue_pair: config.queue_pair,
            rkey: config.rkey,
            qkey: config.qkey,
            first_psn: config.first_psn,
            credit_bytes: config.credit_bytes,
        });
        let mut qps = configs.map(QueuePair::new);
        qps[0].connect(now_ns, peers[1]);
        qps[1].connect(now_ns, peers[0]);
        let mut ends = hosts.into_iter().zip([hosts[1], hosts[0]]).zip(qps);
        std::array::from_fn(|_| {
            let ((host, far), mut qp) = ends.next().expect("two ends");
            let lanes = qp.take_writers().into_iter().map(Lane::Sdr).collect();
            let (number, qkey) = (qp.config().queue_pair, qp.config().qkey);
            let seal = qp.config().geometry.seal();
            let far = |channel| Some(Place { host: far, channel }.address());
            let state = State::new(Machine::Sdr(qp), (0..channels).map(far));
            self.open(host, Books::new(number, qkey, seal, state, 1), lanes)
        })
    }

    /// Opens a queue pair of any kind on a host, with a lane for each channel that it has there.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn open(&mut self, host: usize, books: Books, lanes: Vec<Lane>) -> Handle {
        let books = Arc::new(books);
        let Host { engine, events, .. } = &mut self.hosts[host];
        engine.add(books.clone());
        engine.set_lanes(books.number(), lanes, &mut |event| events.push(event));
        Handle { host, books }
    }

    /// Has a queue pair looked at: the application has done something with it.
    pub fn kick(&mut self, handle: &Handle) {
        self.hosts[handle.host].engine.make_ready(handle.books.number());
    }

    /// Puts bytes on their way that no host has sent.
    pub fn inject(&mut self, from: Place, to: Place, bytes: Vec<u8>) {
        let now_ns = self.now_ns();
        self.flights.fly(now_ns, from, to, Packet::Bytes(bytes), false);
    }

    /// When the next packet arrives or a host has something to do.
    pub fn next_event_ns(&self) -> Option<u64> {
        let arrives_ns = self.flights.heap.peek().map(|Reverse(flying)| flying.due_ns);
        let engines = self.hosts.iter().filter_map(|host| host.engine.next_event_ns());
        engines.chain(arrives_ns).min()
    }

    /// Does all that is due now.
    ///
    /// # Panics
    /// If something stays due for ever.
    pub fn run_now(&mut self, wire: &mut impl Wire) {
        let now_ns = self.now_ns();
        loop {
            self.deliver(now_ns);
            for host in 0..self.hosts.len() {
                self.run_host(now_ns, host, wire);
            }
            if self.next_event_ns().is_none_or(|next_ns| next_ns > now_ns) {
                return;
            }
        }
    }

    /// Runs until `done`, which is asked whenever all is done that is due at a time; `false` if that
    /// takes longer than `limit_ns`.
    pub fn run_until(
        &mut self,
        limit_ns: u64,
        wire: &mut impl Wire,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let end_ns = self.now_ns().saturating_add(limit_ns);
        loop {
            self.run_now(wire);
            if done(self) {
                return true;
            }
            if self.now_ns() >= end_ns {
                return false;
            }
            self.advance(end_ns);
        }
    }

    /// Moves the clock: nobody ran meanwhile.
    ///
    /// # Panics
    /// If that would be backwards.
    pub fn set_now_ns(&mut self, now_ns: u64) {
        assert!(now_ns >= self.now_ns(), "time does not run backwards");
        self.clock.0.store(now_ns, Ordering::Relaxed);
    }

    /// Moves the clock to the next event, or to the end if nothing will happen before.
    pub fn advance(&mut self, end_ns: u64) {
        let next_ns = self.next_event_ns().unwrap_or(end_ns);
        let next_ns = next_ns.max(self.now_ns() + 1).min(end_ns);
        self.clock.0.store(next_ns, Ordering::Relaxed);
    }

    /// Packets that are due now lie in their hosts' ports.
    #[cfg(test)]
    pub(crate) fn deliver_now(&mut self) {
        self.deliver(self.now_ns());
    }

    /// Packets that are due lie in their hosts' ports.
    fn deliver(&mut self, now_ns: u64) {
        while self.flights.heap.peek().is_some_and(|Reverse(flying)| flying.due_ns <= now_ns) {
            let Some(Reverse(flying)) = self.flights.heap.pop() else { break };
            let Flying { from, to, is_marked, packet, .. } = flying;
            let Some(host) = self.hosts.get_mut(to.host) else { continue };
            match packet {
                Packet::Bytes(bytes) => {
                    if let Some(port) = host.ports.get(usize::from(to.channel)) {
                        port.put(from, bytes, is_marked);
                    }
                }
                Packet::Header(header) => {
                    host.noted.push((to.channel, NotedPacket { header, is_marked }));
                }
            }
        }
    }

    fn run_host(&mut self, now_ns: u64, host: usize, wire: &mut impl Wire) {
        let Host { engine, ports, noted, events } = &mut self.hosts[host];
        for together in noted.chunk_by(|one, next| one.0 == next.0) {
            let packets = together.iter().map(|(_, packet)| *packet);
            engine.note(together[0].0, packets, &mut |event| events.push(event));
        }
        noted.clear();
        for step in 0..STEPS_MAX {
            let worked = engine.step(step == 0, &mut |event| events.push(event));
            for port in &*ports {
                port.take_sent(|sent| wire.carry(now_ns, sent, &mut self.flights));
            }
            engine.take_headers(|channel, sent| {
                let SentHeader { to, header, takes_marks } = sent;
                if let Some(to) = Place::of(to) {
                    let (from, packet) = (Place { host, channel }, Packet::Header(header));
                    wire.carry(now_ns, Sent { from, to, takes_marks, packet }, &mut self.flights);
                }
            });
            engine.count_drops();
            if !worked && engine.next_event_ns().is_none_or(|next_ns| next_ns > now_ns) {
                return;
            }
        }
        panic!("host {host} has something due at {now_ns} for ever");
    }
}
