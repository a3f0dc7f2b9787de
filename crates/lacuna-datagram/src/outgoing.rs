//! What waits to be sent: the messages of each peer in their order, and the peers in turns.
//!
//! A peer that has something to get has an entry here, made on first use and dropped when nothing is left. Turns go
//! round: each gives one peer at most as many packets as the caller asks for at a time. A peer that has just got an entry
//! goes before those whose turns go round (the new flows of FQ-CoDel, RFC 8290, section 4.2), so a peer with little to
//! get waits for none with much; after some new ones one of the others has its turn. With a rate, each peer has
//! a pace of its own; one that has to wait is asked again when its time has come.
//!
//! Invariants: an entry is in `fresh`, in `ready` or in `waiting`, once; a message's packets leave in order.

use crate::peers::{PeerId, Peers};
use crate::run::{Data, Header, Part, Run};
use crate::work::{Failure, Operation};
use core::net::SocketAddr;
use lacuna_path::IP_UDP_BYTES;
use lacuna_path::pacer::Pacer;
use std::collections::{BTreeSet, VecDeque};

/// Bytes of a turn without a rate: two of the longest packets, or of the kernel's bundles.
const TURN_BYTES: u64 = 2 * 65_535;
/// Turns of new entries in a row, while others wait for theirs.
const FRESH_IN_ROW_MAX: u32 = 16;

/// A message that is to be sent.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) header: Header,
    pub(crate) number: u32,
    pub(crate) data: Data,
    pub(crate) length: u32,
    /// Where the next packet begins.
    pub(crate) next: u32,
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
    pacer: Pacer,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Those that had no turn yet, and those whose turns go round.
    fresh: VecDeque<u32>,
    ready: VecDeque<u32>,
    /// Turns of `fresh` since the last one of `ready`.
    fresh_in_row: u32,
    waiting: BTreeSet<(u64, u32)>,
    messages: usize,
}

impl Outgoing {
    /// Messages that have not left.
    pub(crate) fn messages(&self) -> usize {
        self.messages
    }

    /// Peers with something to send.
    pub(crate) fn active_peers(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Adds a message; `false` if the peer is not known.
    pub(crate) fn push(&mut self, peers: &mut Peers, peer: PeerId, message: Message) -> bool {
        let index = match peers.active(peer) {
            Some(index) => index,
            None => {
                let Some(address) = peers.address(peer) else { return false };
                let (queue, pacer) = (VecDeque::new(), Pacer::default());
                let entry = Entry { peer, address, queue, pacer };
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
        entry.queue.push_back(message);
        self.messages += 1;
        true
    }

    /// The next packets for one peer, at most so many, with payloads of at most `payload_bytes`, at `rate` if
    /// there is one. `left` gets the messages that are over.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        peers: &mut Peers,
        (packets_max, packet_bytes_max): (usize, usize),
        rate_bits_per_s: Option<u64>,
        runs: &mut Vec<Run>,
        left: &mut Vec<Left>,
    ) -> Option<SocketAddr> {
        while let Some((ns, index)) = self.waiting.first().copied().filter(|(ns, _)| *ns <= now_ns)
        {
            self.waiting.remove(&(ns, index));
            match &self.entries[index as usize] {
                Some(entry) if entry.queue.is_empty() => self.remove(peers, index),
                _ => self.ready.push_back(index),
            }
        }
        while let Some(index) = self.next_entry() {
            let Some(entry) = &mut self.entries[index as usize] else { continue };
            let burst_bytes = (packets_max * packet_bytes_max) as u64;
            let mut allowed = match rate_bits_per_s {
                Some(rate) => entry.pacer.allowance(now_ns, rate, burst_bytes / 4),
                None => TURN_BYTES,
            };
            if allowed == 0 {
                self.waiting.insert((entry.pacer.ready_ns(), index));
                continue;
            }
            let mut packets_left = packets_max;
            let mut sent_bytes = 0;
            while packets_left > 0 && allowed > 0 {
                let Some(message) = entry.queue.front_mut() else { break };
                let is_late = message.deadline_ns.is_some_and(|deadline_ns| deadline_ns <= now_ns);
                if !is_late {
                    let part = message.cut(packets_left, packet_bytes_max, allowed);
                    let run = Run::of(part);
                    let bytes = (0..run.len()).map(|at| run.packet_bytes(at) as u64 + IP_UDP_BYTES);
                    let bytes = bytes.sum::<u64>();
                    (packets_left, sent_bytes) = (packets_left - run.len(), sent_bytes + bytes);
                    allowed = allowed.saturating_sub(bytes);
                    runs.push(run);
                }
                if is_late || message.next >= message.length {
                    let Some(message) = entry.queue.pop_front() else { break };
                    self.messages -= 1;
                    let status = if is_late { Err(Failure::Deadline) } else { Ok(()) };
                    left.extend(message.left(entry.peer, status));
                }
            }
            if let Some(rate) = rate_bits_per_s {
                entry.pacer.on_sent(now_ns, sent_bytes, rate, 0);
            }
            let address = entry.address;
            let paced_ns = entry.pacer.ready_ns();
            match (entry.queue.is_empty(), rate_bits_per_s) {
                (false, _) => self.ready.push_back(index),
                // Its pace is remembered until it could send again.
                (true, Some(_)) if paced_ns > now_ns => {
                    self.waiting.insert((paced_ns, index));
                }
                (true, _) => self.remove(peers, index),
            }
            if !runs.is_empty() {
                return Some(address);
            }
        }
        None
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
        self.waiting.first().map(|(ns, _)| *ns)
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
        *self = Self::default();
    }
}

impl Message {
    /// The next packets.
    fn cut(&mut self, packets_max: usize, packet_bytes_max: usize, bytes_max: u64) -> Part {
        let header_bytes = match self.header {
            Header::Record { .. } => lacuna_wire::ddp::TAGGED_HEADER_BYTES,
            Header::Send { .. } | Header::Request => lacuna_wire::ddp::UNTAGGED_HEADER_BYTES,
        };
        let overhead = header_bytes + lacuna_wire::ddp::TRAILER_BYTES;
        let payload_bytes = packet_bytes_max.saturating_sub(overhead).max(1) as u32;
        let packets = (bytes_max / packet_bytes_max as u64).clamp(1, packets_max as u64) as u32;
        let bytes = (self.length - self.next).min(packets.saturating_mul(payload_bytes));
        let place = self.next;
        self.next += bytes;
        let (header, number, length) = (self.header, self.number, self.length);
        Part { header, number, length, data: self.data.clone(), place, bytes, payload_bytes }
    }

    fn left(self, peer: PeerId, status: Result<(), Failure>) -> Option<Left> {
        let Self { id, is_signaled, .. } = self;
        let bytes = if status.is_ok() { self.length.into() } else { 0 };
        Some(Left { id, peer, operation: self.operation?, status, bytes, is_signaled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lacuna_place::buffer::SendBuffer;

    const LIMITS: (usize, usize) = (64, 1472);

    struct World {
        peers: Peers,
        outgoing: Outgoing,
        ids: Vec<PeerId>,
    }

    impl World {
        fn new(count: u16) -> Self {
            let mut peers = Peers::new(100, 1);
            let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
            let ids = (1..=count).map(|port| peers.find_or_add(address(port)).unwrap()).collect();
            Self { peers, outgoing: Outgoing::default(), ids }
        }

        fn push(&mut self, peer: usize, bytes: usize) {
            let message = Message {
                id: 0,
                header: Header::Send { is_solicited: false },
                number: 0,
                data: Data::Buffer(SendBuffer::from(vec![0; bytes])),
                length: bytes as u32,
                next: 0,
                operation: Some(Operation::Send),
                is_signaled: false,
                deadline_ns: None,
            };
            assert!(self.outgoing.push(&mut self.peers, self.ids[peer], message));
        }

        /// Whose turn it is, and how many bytes its packets have.
        fn poll(&mut self, limits: (usize, usize)) -> Option<(usize, usize)> {
            let (mut runs, mut left) = (Vec::new(), Vec::new());
            let Self { peers, outgoing, .. } = self;
            let to = outgoing.poll(0, peers, limits, None, &mut runs, &mut left)?;
            let bytes =
                runs.iter().map(|run| (0..run.len()).map(|at| run.packet_bytes(at)).sum::<usize>());
            Some((usize::from(to.port()) - 1, bytes.sum()))
        }
    }

    #[test]
    fn a_peer_with_little_to_get_goes_before_one_with_much_and_both_get_on() {
        let mut world = World::new(3);
        world.push(0, 10 << 20);
        world.push(1, 10 << 20);
        let mut turns = Vec::new();
        for _ in 0..100 {
            world.push(2, 64);
            turns.push(world.poll(LIMITS).unwrap().0);
        }
        // The small one is new again after each turn of its own, and never waits behind both of the others.
        let small = turns.iter().filter(|peer| **peer == 2).count();
        assert!(small >= 90 && turns.contains(&0) && turns.contains(&1), "{turns:?}");
        let waits = |two: &[usize]| two.iter().all(|peer| *peer != 2);
        assert!(!turns[2..].windows(2).any(waits), "{turns:?}");
    }

    #[test]
    fn a_turn_of_long_packets_is_no_longer_than_one_of_short_ones() {
        let mut world = World::new(1);
        world.push(0, 10 << 20);
        let (_, bytes) = world.poll((64, 65_507)).unwrap();
        assert!(bytes as u64 <= TURN_BYTES, "{bytes}");
        (0..200).for_each(|_| world.push(0, 64));
        while world.poll((64, 65_507)).unwrap().1 > 64 * 100 {}
        assert_eq!(world.poll((64, 65_507)).unwrap().1, 64 * (64 + 22), "small ones go together");
    }
}
