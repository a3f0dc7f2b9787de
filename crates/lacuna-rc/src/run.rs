//! Packets that were polled under the queue pair's lock, and are made into bytes outside of it.

use crate::work::Remote;
use lacuna_place::buffer::SendBuffer;
use lacuna_place::region::{KeyTable, Rights};
use lacuna_wire::rc::{
    Aeth, Fields, NOTIFICATION_BYTES, Nak, Opcode, Operation, Part, RcHeader, Reth, Syndrome,
    emit_notification,
};
use lacuna_wire::{PSN_MASK, Qpn, psn};
use std::ops::Range;
use std::sync::Arc;

/// Packets of one message or answer, in order.
#[derive(Debug)]
pub struct Run {
    destination: Qpn,
    mtu_bytes: u32,
    /// Number of the run's first packet.
    first_psn: u64,
    len: u32,
    kind: Kind,
}

/// What the packets are.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A part of a SEND or WRITE.
    Message(Box<Message>),
    /// A part of the answer to a READ.
    Answer(Answer),
    /// One packet without payload.
    One { opcode: Opcode, fields: Fields, asks_ack: bool },
    /// One packet that says what is missing and what has come behind it.
    Missing { messages: u32, came: Vec<Range<u64>> },
    /// One packet that tells of congestion.
    Notification,
}

/// A SEND or WRITE.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) data: SendBuffer,
    /// Of a WRITE.
    pub(crate) remote: Option<Remote>,
    pub(crate) immediate: Option<u32>,
    pub(crate) is_solicited: bool,
    /// Packets of the whole message, and which of them is the run's first.
    pub(crate) packets: u32,
    pub(crate) first: u32,
    /// Every packet whose number is this modulo `ack_every` asks for an answer, and the message's last.
    pub(crate) ack_every: u32,
    /// The run's last packet asks, too.
    pub(crate) last_asks: bool,
}

/// The answer to a READ.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) keys: Arc<KeyTable>,
    pub(crate) peer_number: u64,
    pub(crate) key: u32,
    /// Address and bytes of what was asked for.
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    /// Packets of the whole answer, and which of them is the run's first.
    pub(crate) packets: u32,
    pub(crate) first: u32,
    pub(crate) messages: u32,
}

impl Run {
    pub(crate) fn new(
        destination: Qpn,
        mtu_bytes: u32,
        first_psn: u64,
        len: u32,
        kind: Kind,
    ) -> Self {
        Self { destination, mtu_bytes, first_psn, len, kind }
    }

    /// Packets.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a run has a packet at least")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Number of its first packet, as on the wire.
    #[must_use]
    pub fn first_psn(&self) -> u32 {
        psn::wrap(self.first_psn)
    }

    /// The number behind its last packet, if they are packets of a SEND or WRITE.
    pub(crate) fn request_end(&self) -> Option<u64> {
        matches!(self.kind, Kind::Message(_)).then(|| self.first_psn + u64::from(self.len))
    }

    /// Whether they are packets of an answer to a READ.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self.kind, Kind::Answer(_))
    }

    /// The header of a packet, and where its payload begins and how long it is.
    fn header(&self, index: u32) -> (RcHeader, u64, usize) {
        let number = self.first_psn + u64::from(index);
        let mut header = RcHeader {
            opcode: Opcode::Acknowledge,
            destination: self.destination,
            psn: psn::wrap(number),
            asks_ack: false,
            is_solicited: false,
            fields: Fields::None,
        };
        let mtu_bytes = u64::from(self.mtu_bytes);
        let extent = |first: u32, bytes: u64| {
            let at = u64::from(first + index) * mtu_bytes;
            (at, (bytes - at.min(bytes)).min(mtu_bytes) as usize)
        };
        match &self.kind {
            Kind::Missing { messages, came } => {
                let syndrome = Syndrome::Nak(Nak::PsnSequence);
                header.fields = Fields::Aeth(Aeth { syndrome, messages: *messages });
                (header, 0, came.len() * RANGE_BYTES)
            }
            // It has no such header: see `emit`.
            Kind::Notification => (header, 0, 0),
            Kind::One { opcode, fields, asks_ack } => {
                (header.opcode, header.fields, header.asks_ack) = (*opcode, *fields, *asks_ack);
                (header, 0, 0)
            }
            Kind::Message(message) => {
                let at = message.first + index;
                let part = Part::of(at == 0, at + 1 == message.packets);
                let operation =
                    if message.remote.is_some() { Operation::Write } else { Operation::Send };
                let opcode = Opcode::of_part(operation, part, message.immediate.is_some());
                header.opcode = opcode.expect("messages have all parts");
                let reth = message.remote.filter(|_| part.begins()).map(|remote| Reth {
                    address: remote.address,
                    key: remote.key,
                    length: message.data.len() as u32,
                });
                let immediate = message.immediate.filter(|_| part.ends());
                header.fields = match (reth, immediate) {
                    (None, None) => Fields::None,
                    (Some(reth), None) => Fields::Reth(reth),
                    (None, Some(immediate)) => Fields::Immediate(immediate),
                    (Some(reth), Some(immediate)) => Fields::RethImmediate(reth, immediate),
                };
                header.asks_ack = message.asks(number, part, index + 1 == self.len);
                header.is_solicited = message.is_solicited && part.ends();
                let (from, length) = extent(message.first, message.data.len() as u64);
                (header, from, length)
            }
            Kind::Answer(answer) => {
                let at = answer.first + index;
                let part = Part::of(at == 0, at + 1 == answer.packets);
                let opcode = Opcode::of_part(Operation::ReadResponse, part, false);
                header.opcode = opcode.expect("answers have all parts");
                if part != Part::Middle {
                    header.fields = Fields::Aeth(Aeth::ack(answer.messages));
                }
                let (from, length) = extent(answer.first, answer.bytes.into());
                (header, from, length)
            }
        }
    }

    /// Bytes of a packet from the BTH to the pad.
    #[must_use]
    pub fn packet_bytes(&self, index: usize) -> usize {
        if let Kind::Notification = self.kind {
            return NOTIFICATION_BYTES;
        }
        let (header, _, length) = self.header(index as u32);
        header.packet_bytes(length)
    }

    /// Writes a packet from the BTH to the pad, and gives its length. What was to be read and may not be any
    /// more becomes a refusal.
    ///
    /// # Panics
    /// If `out` is shorter than [`packet_bytes`](Self::packet_bytes).
    pub fn emit(&self, index: usize, out: &mut [u8]) -> usize {
        if let (Kind::Notification, Some(out)) = (&self.kind, out.first_chunk_mut()) {
            emit_notification(self.destination, out);
            return NOTIFICATION_BYTES;
        }
        let (header, from, length) = self.header(index as u32);
        let (head_bytes, packet_bytes) = (header.header_bytes(), header.packet_bytes(length));
        let (head, rest) = out[..packet_bytes].split_at_mut(head_bytes);
        let (payload, pad) = rest.split_at_mut(length);
        pad.fill(0);
        match &self.kind {
            Kind::One { .. } | Kind::Notification => {}
            Kind::Missing { came, .. } => {
                for (range, out) in came.iter().zip(payload.as_chunks_mut().0) {
                    *out = range_to_bytes(range);
                }
            }
            Kind::Message(message) => message.data.copy_to(from as usize, payload),
            Kind::Answer(answer) if !answer.read(from, payload) => {
                let syndrome = Syndrome::Nak(Nak::RemoteAccess);
                let aeth = Aeth { syndrome, messages: answer.messages };
                let refusal =
                    RcHeader { opcode: Opcode::Acknowledge, fields: Fields::Aeth(aeth), ..header };
                refusal.emit(0, out);
                return refusal.packet_bytes(0);
            }
            Kind::Answer(_) => {}
        }
        header.emit(length, head);
        packet_bytes
    }
}

/// A range of numbers behind a gap, as a refusal of selective repeat carries it: its first number and how many.
pub(crate) const RANGE_BYTES: usize = 8;

fn range_to_bytes(range: &Range<u64>) -> [u8; RANGE_BYTES] {
    let [a, b, c, d] = psn::wrap(range.start).to_be_bytes();
    let [e, f, g, h] = ((range.end - range.start) as u32).to_be_bytes();
    [a, b, c, d, e, f, g, h]
}

/// The ranges of such a refusal; `near` is a number near them.
pub(crate) fn ranges_of(payload: &[u8], near: u64) -> impl Iterator<Item = Range<u64>> {
    payload.as_chunks::<RANGE_BYTES>().0.iter().map(move |[a, b, c, d, e, f, g, h]| {
        let start = psn::unwrap(u32::from_be_bytes([*a, *b, *c, *d]) & PSN_MASK, near);
        start..start + u64::from(u32::from_be_bytes([*e, *f, *g, *h]) & PSN_MASK)
    })
}

impl Message {
    /// Whether the packet asks for an answer.
    fn asks(&self, psn: u64, part: Part, ends_run: bool) -> bool {
        part.ends() || (ends_run && self.last_asks) || asks_by_number(psn, self.ack_every)
    }
}

/// Whether a packet asks for an answer because of its number.
pub(crate) fn asks_by_number(psn: u64, ack_every: u32) -> bool {
    (psn + 1).is_multiple_of(u64::from(ack_every))
}

impl Answer {
    /// Copies what was asked for, if that is still allowed.
    fn read(&self, from: u64, out: &mut [u8]) -> bool {
        if out.is_empty() {
            return true;
        }
        let range = self.address..self.address + u64::from(self.bytes);
        let pinned = self.keys.pin(self.key, self.peer_number, Rights::REMOTE_READ, range);
        pinned.is_ok_and(|pinned| pinned.read(self.address + from, out).is_ok())
    }
}
