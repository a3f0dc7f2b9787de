//! What a worker does with what its datapaths received: data is placed, control packets
//! are handed on, and the queue pairs concerned are noted, for a turn if they have
//! something to send, else to be settled in the same step.

use super::WorkerCounters;
use super::locals::Locals;
use super::turns::Turns;
use crate::clock::Clock;
use crate::shared::Machine;
use lacuna_datapath::{Placer, ReceivedBatch};
use lacuna_wire::{DataHeader, Packet, parse, parse_checked, parse_data};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter::Peekable;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

/// Takes what a datapath received: places data, hands control packets on.
pub(super) struct Intake<'w> {
    pub(super) clock: Clock,
    /// When the batch at hand came to this host. Read anew for each: the thread
    /// may have lost its core since the step began.
    pub(super) now_ns: u64,
    /// Position of the channel among this worker's.
    pub(super) position: usize,
    pub(super) channel: u8,
    pub(super) locals: &'w mut Locals,
    pub(super) ready: &'w mut Turns,
    pub(super) unsettled: &'w mut Vec<u32>,
    pub(super) timers: &'w mut BinaryHeap<Reverse<(u64, u32)>>,
    pub(super) counters: &'w WorkerCounters,
    /// Bytes of packets taken.
    pub(super) bytes: u64,
    /// The least that their queue pairs may be left alone for.
    pub(super) rest_ns: u64,
}

impl Placer for Intake<'_> {
    fn on_packets(&mut self, batch: ReceivedBatch<'_>) {
        // When they came, not when somebody had time to look: what is measured
        // is the path.
        self.now_ns = self.clock.now_ns().saturating_sub(batch.waited_ns);
        let marked = batch.congestion_experienced;
        let mut packets = batch.packets().peekable();
        self.bytes += batch.bytes.len() as u64;
        while let Some(packet) = packets.next() {
            if let Some((header, payload)) = parse_data(packet) {
                self.place(packet, header, payload, marked, &mut packets);
                continue;
            }
            match parse_checked(packet) {
                Ok(Packet::Control(header, body)) => {
                    let next = packets.peek().map(|next| parse(next));
                    if let Some(Ok(Packet::Control(next, _))) = next {
                        self.locals.prefetch(next.dest.queue_pair());
                    }
                    let number = header.dest.queue_pair();
                    self.on_control(number, header.qkey, body, packet.len(), batch.source);
                }
                // Was taken for such above.
                Ok(Packet::Data(..)) => {}
                Err(error) => self.counters.reject(&error),
            }
        }
    }
}

impl Intake<'_> {
    /// Checks and places a packet and those behind it that go to the same queue pair.
    fn place<'p>(
        &mut self,
        packet: &[u8],
        mut header: DataHeader,
        payload: &[u8],
        marked: bool,
        packets: &mut Peekable<impl Iterator<Item = &'p [u8]>>,
    ) {
        let number = header.dest.queue_pair();
        self.locals.prefetch(number);
        let local = self.locals.get_mut(number);
        let Some(local) = local.filter(|local| local.writers.len() > self.position) else {
            match header.check(packet) {
                Ok(()) => _ = self.counters.unknown.fetch_add(1, Ordering::Relaxed),
                Err(error) => self.counters.reject(&error),
            }
            return;
        };
        let shared = &local.shared;
        let mut placer = local.writers[self.position].burst();
        let mut take = |packet, header: DataHeader, payload| {
            let placed = placer.check_and_place(packet, &header, payload, marked);
            placed.unwrap_or_else(|error| self.counters.reject(&error));
        };
        take(packet, header, payload);
        while let Some(packet) = packets.peek() {
            let Some((header, payload)) = parse_data(packet) else { break };
            if header.dest.queue_pair() != number {
                break;
            }
            take(packet, header, payload);
            packets.next();
        }
        if placer.has_repairs() {
            let start_ns = self.clock.now_ns();
            placer.repair();
            placer.note_decoding(self.clock.now_ns() - start_ns);
        }
        // Unpinned before the lock is taken.
        let summary = placer.end();
        let (mut report_ns, mut news) = (None, false);
        if let Machine::Connected(qp) = &mut shared.lock().machine {
            report_ns = qp.on_burst(self.now_ns, self.channel, summary);
            news = qp.take_news();
        }
        if news {
            shared.notify();
        }
        drop(placer);
        self.rest_ns = self.rest_ns.min(local.rest_ns);
        // A turn would find nothing to send by what came: the application, which
        // may wait for just this, comes first.
        if report_ns.is_some_and(|report_ns| report_ns <= self.now_ns) {
            local.unsettle(number, self.unsettled);
        } else if let Some(report_ns) = report_ns
            && local.due_ns.is_none_or(|due_ns| report_ns < due_ns)
        {
            local.due_ns = Some(report_ns);
            self.timers.push(Reverse((report_ns, number)));
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
        let local = self.locals.get_mut(number);
        let Some(local) = local.filter(|local| local.shared.qkey == qkey) else {
            self.counters.unknown.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let mut state = local.shared.lock();
        let mut has_queued = false;
        let is_newest = match &mut state.machine {
            Machine::Reserved(early) => {
                early.keep(self.now_ns, self.channel, body, packet_bytes);
                false
            }
            Machine::Probing(prober, early) => {
                prober.on_control(self.now_ns, self.channel, body, packet_bytes);
                early.keep(self.now_ns, self.channel, body, packet_bytes);
                true
            }
            Machine::Connected(qp) => {
                let taken = qp.on_control(self.now_ns, self.channel, body, packet_bytes);
                has_queued = qp.has_queued();
                taken.unwrap_or_else(|error| {
                    tracing::debug!(number, %error, "control packet dropped");
                    false
                })
            }
        };
        // The key was right and it is no old copy, so this is the peer, wherever
        // address translation makes it appear today.
        if is_newest && let Some(address) = state.addresses.get_mut(usize::from(self.channel)) {
            *address = Some(source);
        }
        drop(state);
        if has_queued {
            if !local.is_ready {
                local.is_ready = true;
                self.ready.push(number, local.had_burst);
            }
        } else {
            local.unsettle(number, self.unsettled);
        }
    }
}
