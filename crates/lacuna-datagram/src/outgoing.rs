//! What waits to be sent: the messages of each peer in their order, and the peers in turns.
//!
//! A peer that has something to get has an entry here, made on first use and dropped when nothing is left. Turns go
//! round: each gives one peer at most as many packets as the caller asks for at a time. A peer that has just got an entry
//! goes before those whose turns go round (the new flows of FQ-CoDel, RFC 8290, section 4.2), so a peer with little to
//! get waits for none with much; after some new ones one of the others has its turn. Each peer has a pace of its
//! own: a rate that was given, or one that a controller finds (`feedback.rs`); one that has to wait is asked again
//! when its time has come.
//!
//! Where packets are sealed, an entry waits aside until there are keys for its peer.
//!
//! Invariants: an entry is in `fresh`, in `ready` or in `waiting`, once, or has no keys; a message's packets leave in
//! order.

use crate::deadlines::Deadlines;
use crate::feedback::Feedback;
use crate::groups::Kepts;
use crate::peers::{PeerId, Peers};
use crate::run::{Data, Header, Part, Run};
use crate::work::{Failure, Operation};
use core::net::SocketAddr;
use lacuna_path::IP_UDP_BYTES;
use lacuna_path::controller::{ControllerConfig, Setup};
use lacuna_path::pacer::{Pacer, QUANTUM_NS};
use lacuna_secure::datagram::Keyring;
use lacuna_wire::ddp::{self, About, ControlFrame, Space};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

/// What was found of a path is kept so long once nothing is left to send.
const KEEP_NS: u64 = 1_000_000_000;

/// Bytes of a turn without a rate: two of the longest packets, or of the kernel's bundles.
const TURN_BYTES: u64 = 2 * 65_535;
/// Turns of new entries in a row, while others wait for theirs.
const FRESH_IN_ROW_MAX: u32 = 16;

/// A message that is to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) header: Header,
    pub(crate) is_reliable: bool,
    pub(crate) number: u32,
    pub(crate) data: Data,
    pub(crate) length: u32,
    /// The group that it is for, or 0.
    pub(crate) group: u32,
    /// Where the next packet begins, and where the last one ends.
    pub(crate) next: u32,
    pub(crate) end: u32,
    /// What completes once it has left; `None` of an answer or a question.
    pub(crate) operation: Option<Operation>,
    pub(crate) is_signaled: bool,
    pub(crate) deadline_ns: Option<u64>,
}

/// A message that is over.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) id: u64,
    pub(crate) peer: PeerId,
    pub(crate) operation: Operation,
    pub(crate) status: Result<(), Failure>,
    pub(crate) bytes: u64,
    pub(crate) is_signaled: bool,
}

#[derive(Debug)]
struct Entry {
    peer: PeerId,
    address: SocketAddr,
    queue: VecDeque<Message>,
    pace: Pace,
    /// Since when it is in `waiting`, if it is.
    waits_until_ns: Option<u64>,
    /// The peer is to hear up to where was sent, once all that waits has left.
    says: bool,
    /// It is in no queue until there are keys for the peer.
    lacks_keys: bool,
}

/// What decides how fast packets leave to a peer.
#[derive(Debug)]
enum Pace {
    /// Nothing.
    Free,
    Fixed {
        rate_bits_per_s: u64,
        pacer: Pacer,
    },
    Found(Box<Feedback>),
}

/// What paces a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PaceConfig {
    Free,
    Fixed { rate_bits_per_s: u64 },
    Found { controller: ControllerConfig },
}

impl PaceConfig {
    fn build(self, now_ns: u64, packet_bytes_max: usize, seed: u32) -> Pace {
        match self {
            Self::Free => Pace::Free,
            Self::Fixed { rate_bits_per_s } => {
                Pace::Fixed { rate_bits_per_s, pacer: Pacer::default() }
            }
            Self::Found { controller } => {
                let packet_bytes = packet_bytes_max as u64 + IP_UDP_BYTES;
                let controller = controller.build(Setup { packet_bytes, seed: seed.into() });
                Pace::Found(Box::new(Feedback::new(now_ns, controller, seed)))
            }
        }
    }
}

impl Pace {
    /// Bytes on the wire that may leave now, in bursts of at most so many packets.
    fn allowance(&mut self, now_ns: u64, wire_bytes: u64, packets_max: usize) -> u64 {
        match self {
            Self::Free => TURN_BYTES,
            Self::Fixed { rate_bits_per_s, pacer } => {
                let burst_bytes = packets_max as u64 * wire_bytes / 4;
                pacer.allowance(now_ns, *rate_bits_per_s, burst_bytes)
            }
            Self::Found(feedback) => {
                feedback.allowance(now_ns, wire_bytes, packets_max) as u64 * wire_bytes
            }
        }
    }

    /// When more may leave.
    fn ready_ns(&self) -> u64 {
        match self {
            Self::Free => 0,
            Self::Fixed { pacer, .. } => pacer.ready_ns(),
            Self::Found(feedback) => feedback.ready_ns(),
        }
    }

    /// How long it is worth being kept once nothing is left to send.
    fn keep_until_ns(&self, now_ns: u64) -> u64 {
        match self {
            Self::Free => 0,
            // A new one would have the lateness that a pacer makes up for.
            Self::Fixed { pacer, .. } => pacer.ready_ns().saturating_add(QUANTUM_NS),
            Self::Found(_) => now_ns + KEEP_NS,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pace: PaceConfig,
    packet_bytes_max: usize,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Those that had no turn yet, and those whose turns go round.
    fresh: VecDeque<u32>,
    ready: VecDeque<u32>,
    /// Turns of `fresh` since the last one of `ready`.
    fresh_in_row: u32,
    waiting: BTreeSet<(u64, u32)>,
    deadlines: Deadlines,
    messages: usize,
    /// Peers that are to hear now up to where was sent.
    words: VecDeque<PeerId>,
    /// What was sent to groups, to be sent again, if that is wanted.
    pub(crate) kepts: Kepts,
    group_repairs: bool,
}

impl Outgoing {
    pub(crate) fn new(pace: PaceConfig, packet_bytes_max: usize, group_repairs: bool) -> Self {
        Self {
            pace,
            packet_bytes_max,
            entries: Vec::new(),
            free: Vec::new(),
            fresh: VecDeque::new(),
            ready: VecDeque::new(),
            fresh_in_row: 0,
            waiting: BTreeSet::new(),
            deadlines: Deadlines::default(),
            messages: 0,
            words: VecDeque::new(),
            kepts: Kepts::default(),
            group_repairs,
        }
    }

    /// Messages that have not left.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Peers with something to send.
    pub(crate) fn active_peers(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Adds a message; `false` if the peer is not known.
    pub(crate) fn push(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        peer: PeerId,
        message: Message,
    ) -> bool {
        let index = match peers.active(peer) {
            Some(index) => index,
            None => {
                let Some(address) = peers.address(peer) else { return false };
                let pace = self.pace.build(now_ns, self.packet_bytes_max, message.number);
                let queue = VecDeque::new();
                let waits_until_ns = None;
                let (says, lacks_keys) = (false, false);
                let entry = Entry { peer, address, queue, pace, waits_until_ns, says, lacks_keys };
                let index = match self.free.pop() {
                    Some(index) => index,
                    None => {
                        self.entries.push(None);
                        self.entries.len() as u32 - 1
                    }
                };
                self.entries[index as usize] = Some(entry);
                peers.set_active(peer, Some(index));
                self.fresh.push_back(index);
                index
            }
        };
        let Some(entry) = &mut self.entries[index as usize] else { return false };
        if entry.queue.is_empty()
            && let Some(ns) = entry.waits_until_ns.take()
        {
            // It was only kept.
            self.waiting.remove(&(ns, index));
            self.fresh.push_back(index);
        }
        if let Some(ns) = message.deadline_ns {
            self.deadlines.add(ns, index);
        }
        entry.queue.push_back(message);
        self.messages += 1;
        true
    }

    /// A peer is to hear up to where was sent, behind what waits; `false` if nothing does.
    pub(crate) fn say_after(&mut self, peers: &Peers, peer: PeerId) -> bool {
        let entry = peers.active(peer).and_then(|index| self.entries[index as usize].as_mut());
        let Some(entry) = entry.filter(|entry| !entry.queue.is_empty()) else { return false };
        entry.says = true;
        true
    }

    /// The next peer that is to hear so now.
    pub(crate) fn poll_word(&mut self) -> Option<PeerId> {
        self.words.pop_front()
    }

    /// A peer says how much has come.
    pub(crate) fn on_report(
        &mut self,
        now_ns: u64,
        peers: &Peers,
        peer: PeerId,
        (sequence, bytes, waited_ns): (u32, u64, u64),
    ) {
        let Some(index) = peers.active(peer) else { return };
        let Some(entry) = &mut self.entries[index as usize] else { return };
        let Pace::Found(feedback) = &mut entry.pace else { return };
        feedback.on_report(now_ns, sequence, bytes, waited_ns);
        if !entry.queue.is_empty()
            && let Some(ns) = entry.waits_until_ns.take()
        {
            self.waiting.remove(&(ns, index));
            self.ready.push_back(index);
        }
    }

    /// Ends messages whose time is over, wherever they wait.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, left: &mut Vec<Left>) {
        while let Some(index) = self.deadlines.pop_due(now_ns) {
            let Some(entry) = &mut self.entries[index as usize] else { continue };
            let peer = entry.peer;
            let before = entry.queue.len();
            entry.queue.retain(|message| {
                let is_late = message.deadline_ns.is_some_and(|ns| ns <= now_ns);
                if is_late {
                    left.extend(message.left(peer, Err(Failure::Deadline)));
                }
                !is_late
            });
            self.messages -= before - entry.queue.len();
        }
    }

    /// The next packets for one peer, at most so many, with payloads of at most `payload_bytes`, at `rate` if
    /// there is one. `left` gets the messages that are over.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        packets_max: usize,
        runs: &mut Vec<Run>,
        left: &mut Vec<Left>,
        mut keyring: Option<&mut Keyring>,
    ) -> Option<SocketAddr> {
        while let Some((ns, index)) = self.waiting.first().copied().filter(|(ns, _)| *ns <= now_ns)
        {
            self.waiting.remove(&(ns, index));
            let Some(entry) = &mut self.entries[index as usize] else { continue };
            entry.waits_until_ns = None;
            if entry.queue.is_empty() {
                self.remove(peers, index);
                continue;
            }
            if let Pace::Found(feedback) = &mut entry.pace {
                feedback.on_ready(now_ns);
            }
            self.ready.push_back(index);
        }
        let packet_bytes_max = self.packet_bytes_max;
        let packet_wire_bytes = packet_bytes_max as u64 + IP_UDP_BYTES;
        while let Some(index) = self.next_entry() {
            let Some(entry) = &mut self.entries[index as usize] else { continue };
            if !entry.queue.is_empty()
                && let Some(keyring) = &mut keyring
                && !peers.is_group(entry.peer)
                && !keyring.is_ready(now_ns, entry.address)
            {
                entry.lacks_keys = true;
                continue;
            }
            let mut allowed = entry.pace.allowance(now_ns, packet_wire_bytes, packets_max);
            if allowed == 0 && !entry.queue.is_empty() {
                // A time that has passed is as good as now, but not for ever.
                let ns = entry.pace.ready_ns().max(now_ns + 1);
                entry.waits_until_ns = Some(ns);
                self.waiting.insert((ns, index));
                continue;
            }
            // A question may go behind them.
            let mut packets_left = match entry.pace {
                Pace::Found(_) => (packets_max - 1).max(1),
                _ => packets_max,
            };
            let (mut sent_bytes, mut payload_bytes) = (0, 0);
            while packets_left > 0 && allowed > 0 {
                let Some(message) = entry.queue.front_mut() else { break };
                let is_late = message.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns);
                if !is_late {
                    let part = message.cut(packets_left, packet_bytes_max, allowed);
                    payload_bytes += u64::from(part.bytes);
                    let run = Run::of(part);
                    let bytes = (0..run.len()).map(|at| run.packet_bytes(at) as u64 + IP_UDP_BYTES);
                    let bytes = bytes.sum::<u64>();
                    (packets_left, sent_bytes) = (packets_left - run.len(), sent_bytes + bytes);
                    allowed = allowed.saturating_sub(bytes);
                    runs.push(run);
                }
                if is_late || message.next >= message.end {
                    let Some(message) = entry.queue.pop_front() else { break };
                    if let Some(ns) = message.deadline_ns {
                        self.deadlines.remove(ns, index);
                    }
                    self.messages -= 1;
                    let status = if is_late { Err(Failure::Deadline) } else { Ok(()) };
                    left.extend(message.left(entry.peer, status));
                    let is_first = message.group != 0 && message.operation.is_some();
                    if status.is_ok() && is_first && self.group_repairs {
                        let numbered = message.header.numbered();
                        let message = Message { next: 0, ..message };
                        self.kepts.keep(now_ns, entry.peer, numbered, message);
                    }
                }
            }
            match &mut entry.pace {
                Pace::Fixed { rate_bits_per_s, pacer } if sent_bytes > 0 => {
                    pacer.on_sent(now_ns, sent_bytes, *rate_bits_per_s, 0);
                }
                Pace::Found(feedback) if sent_bytes > 0 => {
                    let asks =
                        feedback.on_sent(now_ns, payload_bytes, sent_bytes, packet_wire_bytes);
                    runs.extend(asks.map(|sequence| probe(sequence, feedback.payload_bytes())));
                    if entry.queue.is_empty() {
                        feedback.on_out_of_data();
                    }
                }
                _ => {}
            }
            if entry.queue.is_empty() && std::mem::take(&mut entry.says) {
                self.words.push_back(entry.peer);
            }
            let address = entry.address;
            let keep_ns = entry.pace.keep_until_ns(now_ns);
            if !entry.queue.is_empty() {
                self.ready.push_back(index);
            } else if keep_ns > now_ns {
                // Its pace is remembered for a while.
                entry.waits_until_ns = Some(keep_ns);
                self.waiting.insert((keep_ns, index));
            } else {
                self.remove(peers, index);
            }
            if !runs.is_empty() {
                return Some(address);
            }
        }
        None
    }

    /// There are keys for a peer.
    pub(crate) fn on_keys(&mut self, peers: &Peers, peer: PeerId) {
        let Some(index) = peers.active(peer) else { return };
        if let Some(entry) = &mut self.entries[index as usize]
            && std::mem::take(&mut entry.lacks_keys)
        {
            self.fresh.push_back(index);
        }
    }

    /// A peer gives no keys: what waits for them is given up.
    pub(crate) fn on_no_keys(&mut self, peers: &mut Peers, peer: PeerId, left: &mut Vec<Left>) {
        let Some(index) = peers.active(peer) else { return };
        let Some(entry) = &mut self.entries[index as usize] else { return };
        if !entry.lacks_keys {
            return;
        }
        self.messages -= entry.queue.len();
        for message in entry.queue.drain(..) {
            if let Some(ns) = message.deadline_ns {
                self.deadlines.remove(ns, index);
            }
            left.extend(message.left(peer, Err(Failure::Unreachable)));
        }
        self.remove(peers, index);
    }

    /// Whose turn it is.
    fn next_entry(&mut self) -> Option<u32> {
        if self.fresh_in_row < FRESH_IN_ROW_MAX || self.ready.is_empty() {
            self.fresh_in_row = self.fresh_in_row.saturating_add(1);
            if let Some(index) = self.fresh.pop_front() {
                return Some(index);
            }
        }
        self.fresh_in_row = 0;
        self.ready.pop_front()
    }

    fn remove(&mut self, peers: &mut Peers, index: u32) {
        if let Some(entry) = self.entries[index as usize].take() {
            peers.set_active(entry.peer, None);
            self.free.push(index);
        }
    }

    /// When something may leave that has to wait now; `None` if nothing waits for a time.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        let waiting_ns = self.waiting.first().map(|(ns, _)| *ns);
        let deadline_ns = self.deadlines.first();
        [waiting_ns, deadline_ns, self.kepts.poll_timeout()].into_iter().flatten().min()
    }

    /// Whether something may leave at once.
    pub(crate) fn is_ready(&self) -> bool {
        !self.fresh.is_empty() || !self.ready.is_empty()
    }

    /// Gives everything up.
    pub(crate) fn flush(&mut self, peers: &mut Peers, left: &mut Vec<Left>) {
        for entry in std::mem::take(&mut self.entries).into_iter().flatten() {
            peers.set_active(entry.peer, None);
            for message in entry.queue {
                left.extend(message.left(entry.peer, Err(Failure::Flushed)));
            }
        }
        *self = Self::new(self.pace, self.packet_bytes_max, self.group_repairs);
    }
}

/// A packet that asks how much has come.
fn probe(sequence: u32, bytes: u64) -> Run {
    let about = About { space: Space::Sends, number: sequence };
    let mut frames = Vec::new();
    ddp::emit_control(&ControlFrame::Probe { about, bytes, unused: 0 }, &mut frames);
    Run::control(frames)
}

impl Message {
    /// A message that is told of to nobody, without a deadline or a number.
    pub(crate) fn new(header: Header, data: Data, length: u32) -> Self {
        Self {
            id: 0,
            header,
            is_reliable: false,
            number: 0,
            data,
            length,
            group: 0,
            next: 0,
            end: length,
            operation: None,
            is_signaled: false,
            deadline_ns: None,
        }
    }

    /// The next packets.
    fn cut(&mut self, packets_max: usize, packet_bytes_max: usize, bytes_max: u64) -> Part {
        let payload_bytes = self.header.payload_bytes(packet_bytes_max);
        let packets = (bytes_max / packet_bytes_max as u64).clamp(1, packets_max as u64) as u32;
        let (place, left) = (self.next, self.end - self.next);
        let is_readable = self.data.is_readable(place, left);
        // What may not be read any more is refused with one packet for all that is left.
        let packets = if is_readable { packets } else { 1 };
        let bytes = left.min(packets.saturating_mul(payload_bytes));
        self.next = if is_readable { place + bytes } else { self.end };
        self.part(place..place + bytes, payload_bytes)
    }

    /// These bytes of it, in packets with payloads of at most so many.
    pub(crate) fn part(&self, bytes: Range<u32>, payload_bytes: u32) -> Part {
        let Self { header, is_reliable, group, number, length, .. } = *self;
        let (place, bytes) = (bytes.start, bytes.end - bytes.start);
        let data = self.data.clone();
        Part { header, is_reliable, group, number, length, data, place, bytes, payload_bytes }
    }

    /// What is told of it once it is over; nothing of an answer or a question.
    pub(crate) fn left(&self, peer: PeerId, status: Result<(), Failure>) -> Option<Left> {
        let Self { id, is_signaled, .. } = *self;
        let bytes = if status.is_ok() { self.length.into() } else { 0 };
        Some(Left { id, peer, operation: self.operation?, status, bytes, is_signaled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_place::buffer::SendBuffer;

    const PACKETS_MAX: usize = 64;

    struct World {
        peers: Peers,
        outgoing: Outgoing,
        ids: Vec<PeerId>,
    }

    impl World {
        fn new(count: u16, packet_bytes_max: usize) -> Self {
            let mut peers = Peers::new(100, 1);
            let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
            let ids = (1..=count).map(|port| peers.find_or_add(address(port)).unwrap()).collect();
            let outgoing = Outgoing::new(PaceConfig::Free, packet_bytes_max, true);
            Self { peers, outgoing, ids }
        }

        fn push(&mut self, peer: usize, bytes: usize) {
            let data = Data::Buffer(SendBuffer::from(vec![0; bytes]));
            let header = Header::Send { is_solicited: false };
            let operation = Some(Operation::Send);
            let message = Message { operation, ..Message::new(header, data, bytes as u32) };
            assert!(self.outgoing.push(0, &mut self.peers, self.ids[peer], message));
        }

        /// Whose turn it is, and how many bytes its packets have.
        fn poll(&mut self) -> Option<(usize, usize)> {
            let (mut runs, mut left) = (Vec::new(), Vec::new());
            let Self { peers, outgoing, .. } = self;
            let to = outgoing.poll(0, peers, PACKETS_MAX, &mut runs, &mut left, None)?;
            let bytes =
                runs.iter().map(|run| (0..run.len()).map(|at| run.packet_bytes(at)).sum::<usize>());
            Some((usize::from(to.port()) - 1, bytes.sum()))
        }
    }

    #[test]
    fn a_peer_with_little_to_get_goes_before_one_with_much_and_both_get_on() {
        let mut world = World::new(3, 1472);
        world.push(0, 10 << 20);
        world.push(1, 10 << 20);
        let mut turns = Vec::new();
        for _ in 0..100 {
            world.push(2, 64);
            turns.push(world.poll().unwrap().0);
        }
        // The small one is new again after each turn of its own, and never waits behind both of the others.
        let small = turns.iter().filter(|peer| **peer == 2).count();
        assert!(small >= 90 && turns.contains(&0) && turns.contains(&1), "{turns:?}");
        let waits = |two: &[usize]| two.iter().all(|peer| *peer != 2);
        assert!(!turns[2..].windows(2).any(waits), "{turns:?}");
    }

    #[test]
    fn a_turn_of_long_packets_is_no_longer_than_one_of_short_ones() {
        let mut world = World::new(1, 65_507);
        world.push(0, 10 << 20);
        let (_, bytes) = world.poll().unwrap();
        assert!(bytes as u64 <= TURN_BYTES, "{bytes}");
        (0..200).for_each(|_| world.push(0, 64));
        while world.poll().unwrap().1 > 64 * 100 {}
        assert_eq!(world.poll().unwrap().1, 64 * (64 + 22), "small ones go together");
    }
}
