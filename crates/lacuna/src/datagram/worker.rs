//! The worker of a datagram queue pair: datagrams in, packets out, timers. The same step runs on a thread of its
//! own or, with manual progress, in the application's calls.
//!
//! What was posted leaves before the socket is read: an empty read takes half a microsecond, and somebody waits for
//! the message. Timers come last. Packets are polled under the lock, and made into bytes and sent without it. What the
//! socket does not take stays in the burst, in order, and nothing is polled before it has left: the socket's
//! buffer is the queue pair's pace where it has no other.
//!
//! Sealed packets are sealed as they are made, and opened where they came, both without the lock; what does not open
//! goes to the endpoint's keys, which ask who its sender is.
//!
//! While the queue pair knows one peer, the datapath may connect a socket to it, which makes small messages a fifth
//! faster. With more of them it may not: packets of the others would be looked for less often.

use super::Shared;
use crate::clock::Clock;
use crate::told::Told;
use lacuna_datagram::{Emitter, Parsed, Run};
use lacuna_datapath::{Burst, BurstBuffers, Datapath, Placer, ReceivedBatch, Waiter};
use lacuna_path::small_vec::SmallVec;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Packets of a turn: a bundle of the kernel's.
const TURN_PACKETS: usize = 64;
/// Packets of a turn while other peers get few packets now and then, which wait for what is being sent: a turn of
/// Ethernet's packets takes some 8 us instead of 30.
const SHARED_TURN_PACKETS: usize = 16;
/// For so long after a peer got fewer packets than that in a turn.
const SHARED_NS: u64 = 1_000_000;
/// Turns of a step, which ends sooner after the packets of a full turn, so that packets that come are not left alone
/// for long.
const TURNS: usize = 8;

/// See the module's text.
pub(super) struct Worker {
    clock: Clock,
    datapath: Box<dyn Datapath>,
    waiter: Waiter,
    spin: Duration,
    /// When it found nothing to do first.
    idle_since: Option<Instant>,
    /// The last turn of few packets, and whether one peer is known.
    few_ns: Option<u64>,
    has_one_peer: bool,
    buffers: BurstBuffers,
    /// Packets that were polled and have not left, and how many have.
    to: Option<SocketAddr>,
    source: Option<IpAddr>,
    runs: Vec<Run>,
    emitter: Emitter,
    sent: usize,
    told: Told,
    /// It sends and keeps the time; others on the same port only take what comes.
    is_first: bool,
}

/// Takes datagrams under one lock for each batch.
struct Taker<'w> {
    now_ns: u64,
    shared: &'w Shared,
    has_any: bool,
}

impl Placer for Taker<'_> {
    fn on_packets(&mut self, mut batch: ReceivedBatch<'_>) {
        self.has_any = true;
        let (source, local) = (batch.source, batch.local);
        let mut held = Vec::new();
        // Checksums and ciphers take longest, and need no lock.
        let parsed: SmallVec<Parsed<'_>> = match self.shared.is_sealed {
            false => batch.packets().map(Parsed::of).collect(),
            true => self.open(&mut batch, &mut held),
        };
        let mut entries = self.shared.sink.as_ref().map(|sink| sink.lock());
        let mut endpoint = self.shared.lock();
        if let Some(entries) = &mut entries {
            // Without an entry for its completion no Write-Record may begin.
            let beginning = parsed.iter().filter(|parsed| parsed.is_tagged()).count();
            entries.make_room(&mut endpoint, beginning);
        }
        for parsed in parsed {
            endpoint.on_parsed(self.now_ns, source, parsed);
        }
        if let Some(local) = local.filter(|local| !local.is_multicast()) {
            endpoint.on_asked_at(source, Some(local));
        }
    }
}

impl Taker<'_> {
    /// Opens packets where they are. `held` gets those that were waiting for the keys of their source, if these came
    /// now.
    fn open<'p>(
        &self,
        batch: &'p mut ReceivedBatch<'_>,
        held: &'p mut Vec<Vec<u8>>,
    ) -> SmallVec<Parsed<'p>> {
        let (now_ns, source) = (self.now_ns, batch.source);
        let Some(opener) = self.shared.lock().opener(now_ns, source) else {
            return std::iter::empty().collect();
        };
        let opened: SmallVec<&'p [u8]> = batch
            .packets_mut()
            .filter_map(|packet| {
                let is_open = match opener.open(packet) {
                    Ok(()) => true,
                    Err(error) => {
                        let mut endpoint = self.shared.lock();
                        let is_open = endpoint.on_unopened(now_ns, source, packet, error);
                        held.append(&mut endpoint.take_opened());
                        is_open
                    }
                };
                is_open.then_some(&*packet)
            })
            .collect();
        // Those that were held came first.
        held.iter().map(Vec::as_slice).chain(opened).filter_map(Parsed::opened).collect()
    }
}

impl Worker {
    pub(super) fn new(
        clock: Clock,
        datapath: Box<dyn Datapath>,
        waiter: Waiter,
        spin: Duration,
        is_first: bool,
    ) -> Self {
        Self {
            clock,
            datapath,
            waiter,
            spin,
            idle_since: None,
            few_ns: None,
            has_one_peer: false,
            buffers: BurstBuffers::new(),
            to: None,
            source: None,
            runs: Vec::new(),
            emitter: Emitter::default(),
            sent: 0,
            told: Told::default(),
            is_first,
        }
    }

    /// The worker's thread.
    pub(super) fn run(&mut self, shared: &Shared) {
        while !shared.is_over.load(Ordering::Acquire) {
            self.step_or_wait(shared, None);
        }
    }

    /// One step; if there was nothing to do, looks again for a while and then sleeps, at most `limit`.
    pub(super) fn step_or_wait(&mut self, shared: &Shared, limit: Option<Duration>) {
        if self.step(shared) {
            self.idle_since = None;
            return;
        }
        let idle_since = *self.idle_since.get_or_insert_with(Instant::now);
        if idle_since.elapsed() < self.spin {
            std::hint::spin_loop();
            return;
        }
        let due_ns = if !self.is_first {
            None
        } else {
            let endpoint = shared.lock();
            if endpoint.has_packets() && self.to.is_none() {
                return;
            }
            endpoint.poll_timeout()
        };
        let due_ns = [due_ns, self.datapath.next_event_ns()].into_iter().flatten().min();
        let due = due_ns.map(|due_ns| self.clock.until(due_ns));
        let timeout = [due, limit].into_iter().flatten().min();
        if timeout == Some(Duration::ZERO) {
            return;
        }
        let sources = std::iter::once(&*self.datapath);
        if let Err(error) = self.waiter.wait(sources, timeout) {
            if self.told.is_news(&error) {
                tracing::error!(%error, "cannot wait for packets");
            }
            std::thread::yield_now();
        }
    }

    /// Sends what may leave, takes what has come; whether there was anything.
    pub(super) fn step(&mut self, shared: &Shared) -> bool {
        let now_ns = self.clock.now_ns();
        let mut has_any = self.is_first && self.transmit(now_ns, shared);
        let mut taker = Taker { now_ns, shared, has_any: false };
        if let Err(error) = self.datapath.receive(now_ns, &mut taker)
            && self.told.is_news(&error)
        {
            tracing::error!(%error, "cannot receive");
        }
        has_any |= taker.has_any;
        if !self.is_first {
            if has_any {
                // It may have something to send now, or another time to look at.
                shared.waker.wake();
                shared.notify();
            }
            return has_any;
        }
        // Behind what came, which may be what a timer waits for.
        let mut endpoint = shared.lock();
        if endpoint.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
            endpoint.on_timeout(now_ns);
            has_any = true;
        }
        drop(endpoint);
        if has_any {
            shared.notify();
        }
        has_any
    }

    fn transmit(&mut self, now_ns: u64, shared: &Shared) -> bool {
        let mut endpoint = shared.lock();
        // Of several sockets each peer has one already.
        let has_one_peer = endpoint.peers() == 1 && shared.others.is_empty();
        if self.has_one_peer != has_one_peer {
            self.has_one_peer = has_one_peer;
            self.datapath.connect_peer(has_one_peer);
        }
        let is_shared = !has_one_peer
            && self.few_ns.is_some_and(|few_ns| now_ns.saturating_sub(few_ns) < SHARED_NS);
        let turn_packets = if is_shared { SHARED_TURN_PACKETS } else { TURN_PACKETS };
        let mut has_any = false;
        let mut packets = 0;
        for _ in 0..TURNS {
            if self.to.is_none() {
                self.runs.clear();
                self.sent = 0;
                self.to = endpoint.poll_transmit(now_ns, turn_packets, &mut self.runs);
                self.source = self.to.and_then(|to| endpoint.leaves_from(to));
                if let Some(to) = self.to {
                    match endpoint.emitter(now_ns, to) {
                        Some(emitter) => self.emitter = emitter,
                        // A greeting goes without keys; other packets are lost with them.
                        None => {
                            self.emitter = Emitter::default();
                            self.runs.retain(Run::is_greeting);
                        }
                    }
                }
            }
            let Some(to) = self.to else { break };
            drop(endpoint);
            if self.packets() < SHARED_TURN_PACKETS {
                self.few_ns = Some(now_ns);
            }
            let sent_before = self.sent;
            let from = self.source;
            let is_sent = self.send(now_ns, to);
            has_any |= is_sent;
            packets += self.sent - sent_before;
            endpoint = shared.lock();
            if self.source != from {
                endpoint.on_asked_at(to, None);
            }
            if self.to.is_none() {
                endpoint.on_emitted();
            }
            if !is_sent || packets >= turn_packets {
                break;
            }
        }
        has_any
    }

    /// Sends what was polled; `false` if the socket has no room.
    fn send(&mut self, now_ns: u64, to: SocketAddr) -> bool {
        let mut burst = self.buffers.start(to);
        // Nobody answers congestion marks of these packets.
        burst.refuse_marks();
        if let Some(source) = self.source {
            burst.leave_from(source);
        }
        let emitter = &self.emitter;
        let packets = self.runs.iter().flat_map(|run| (0..run.len()).map(move |at| (run, at)));
        for (run, at) in packets.skip(self.sent).take(Burst::PACKETS_MAX) {
            burst.push_up_to(emitter.packet_bytes(run, at), |out| emitter.emit(run, at, out));
        }
        while !burst.is_empty() {
            match self.datapath.send(now_ns, &burst) {
                Ok(0) => return false,
                Ok(count) => {
                    burst.advance(count);
                    self.sent += count;
                }
                // The host may have lost the address that was asked: another one is better than none.
                Err(error) if self.source.is_some() => {
                    tracing::debug!(%error, %to, "no packet leaves from the address that was asked");
                    self.source = None;
                    return true;
                }
                Err(error) => {
                    // It concerns the first packet, which is lost as if the path had lost it.
                    tracing::debug!(%error, %to, "a packet was not sent");
                    burst.advance(1);
                    self.sent += 1;
                }
            }
        }
        if self.sent >= self.packets() {
            self.to = None;
        }
        true
    }

    /// Packets of the turn at hand.
    fn packets(&self) -> usize {
        self.runs.iter().map(Run::len).sum()
    }
}
