//! Packets that wait behind a gap: the ring that all flows of a host share, and the queue of one flow.
//!
//! LoWAR IV-B2: a shared ring reordering buffer, of 2,048 packets in the prototype (2.4 MB at its MTU).
//! Its slots are handed out in the order in which they became free, and their memory is allocated on first
//! use. A packet that was placed in memory ahead of its turn (section VII, "Reordering optimization") takes
//! no slot; only its headers are kept.
//!
//! Invariants of a queue: sorted by number, at most [`HELD_MAX`] packets, one data packet a number.

use crate::packet::{BTH_BYTES, HEADER_BYTES_MAX, Kind, Packet};
use crate::units::{Unit, UnitPool};
use crate::upper::How;
use lacuna_wire::rc::Opcode;
use std::collections::VecDeque;

/// Packets of a host's ring: those of the paper's prototype (section V).
pub const RING_PACKETS_DEFAULT: usize = 2048;

/// Most packets of a flow that wait; a flow that was placed ahead holds no slot, so this is its bound.
pub(crate) const HELD_MAX: usize = 2048;

/// The ring of a host; see the module's text.
#[derive(Debug)]
pub struct Ring {
    pub(crate) slots: UnitPool,
}

impl Ring {
    /// A ring of `packets` packets with payloads of up to `payload_bytes_max`.
    #[must_use]
    pub fn new(packets: usize, payload_bytes_max: usize) -> Self {
        Self { slots: UnitPool::new(packets, payload_bytes_max) }
    }

    /// Packets that wait in it.
    #[must_use]
    pub fn used(&self) -> usize {
        self.slots.used()
    }

    /// Bytes of memory that the ring has allocated, and the most that it will.
    #[must_use]
    pub fn memory_bytes(&self) -> (usize, usize) {
        self.slots.memory_bytes()
    }
}

/// What is kept of a packet that waits.
#[derive(Debug)]
pub(crate) enum Content {
    /// The packet, and how it will be handed up: it came and was copied, or was recovered.
    Copy(Unit, How),
    /// It was placed ahead of its turn: its headers, and how many bytes they are.
    Placed([u8; HEADER_BYTES_MAX], u8),
}

/// A packet that waits.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) psn: u64,
    pub(crate) opcode: Opcode,
    pub(crate) kind: Kind,
    pub(crate) payload_bytes: u16,
    pub(crate) arrived_ns: u64,
    pub(crate) content: Content,
}

impl Held {
    /// Headers of the packet that are kept of a packet that was placed ahead.
    pub(crate) fn placed(packet: &[u8], opcode: Opcode) -> Content {
        let header_bytes = BTH_BYTES + opcode.extended_bytes();
        let mut headers = [0; HEADER_BYTES_MAX];
        headers[..header_bytes].copy_from_slice(&packet[..header_bytes]);
        Content::Placed(headers, header_bytes as u8)
    }

    /// Its body, if it is there.
    pub(crate) fn body(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Copy(unit, _) => {
                let bytes = self.opcode.extended_bytes() + usize::from(self.payload_bytes);
                unit.filled().get(..bytes)
            }
            Content::Placed(..) => None,
        }
    }

    /// Replaces what was recovered by the packet itself, which came after all and has all bits of its BTH;
    /// false if this one was not recovered, or the packet is another one.
    pub(crate) fn replace(&mut self, bytes: &[u8], packet: &Packet<'_>) -> bool {
        match &mut self.content {
            Content::Copy(unit, how) if *how == How::Recovered => {
                let is_same = self.opcode == packet.opcode
                    && self.payload_bytes == packet.payload_bytes
                    && unit.store(bytes, BTH_BYTES);
                *how = if is_same { How::Held } else { How::Recovered };
                is_same
            }
            _ => false,
        }
    }

    /// Whether a packet is the same one, as far as that can be known.
    pub(crate) fn is_same(&self, packet: &[u8]) -> bool {
        match &self.content {
            Content::Copy(unit, _) => unit.packet(BTH_BYTES) == packet,
            Content::Placed(headers, header_bytes) => {
                packet.starts_with(&headers[..usize::from(*header_bytes)])
            }
        }
    }
}

/// The packets of a flow that wait.
#[derive(Debug, Default)]
pub(crate) struct Queue(VecDeque<Held>);

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= HELD_MAX
    }

    pub(crate) fn front(&self) -> Option<&Held> {
        self.0.front()
    }

    pub(crate) fn last(&self) -> Option<&Held> {
        self.0.back()
    }

    pub(crate) fn pop_front(&mut self) -> Option<Held> {
        self.0.pop_front()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.0.iter()
    }

    /// The data packets with numbers from `first` to below `end`, ascending.
    pub(crate) fn data_in(&self, first: u64, end: u64) -> impl Iterator<Item = &Held> {
        let start = self.0.partition_point(|held| held.psn < first);
        let here = self.0.range(start..).take_while(move |held| held.psn < end);
        here.filter(|held| matches!(held.kind, Kind::Data(_)))
    }

    /// The packet with a number that takes numbers, as `packet` does.
    pub(crate) fn find_mut(&mut self, psn: u64, packet: &Packet<'_>) -> Option<&mut Held> {
        let start = self.0.partition_point(|held| held.psn < psn);
        let here = self.0.range_mut(start..).take_while(|held| held.psn == psn);
        let is_answer = packet.kind == Kind::Answer;
        here.into_iter().find(|held| (held.kind == Kind::Answer) == is_answer)
    }

    /// Adds a packet, behind those with the same number.
    pub(crate) fn insert(&mut self, held: Held) {
        match self.0.back() {
            Some(last) if last.psn > held.psn => {
                let at = self.0.partition_point(|other| other.psn <= held.psn);
                self.0.insert(at, held);
            }
            _ => self.0.push_back(held),
        }
    }

    /// Bytes of memory, without slots of the ring.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Held>()
    }
}
