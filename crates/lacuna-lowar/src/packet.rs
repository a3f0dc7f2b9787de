//! What the shim looks at in a packet: what it is, its number, and its *body*, which is everything behind
//! the BTH without the pad.
//!
//! Repairs are sums of bodies (see `lacuna_wire::rc::RepairHeader`), so extended headers and immediates are
//! restored with the payload. The BTH of a lost packet is made anew: opcode by kind of message and place,
//! number by place, pad by length. AckReq and the solicited event cannot be known; both are set on the
//! last packet of a message, where a requester sets AckReq anyway.

use lacuna_wire::rc::{MessageClass, Opcode, Operation, Part, RcHeader, Reth};
use lacuna_wire::{Qpn, pad_bytes};

/// Bytes of a BTH.
pub(crate) const BTH_BYTES: usize = 12;
/// The most bytes of headers, BTH included.
pub(crate) const HEADER_BYTES_MAX: usize = lacuna_wire::rc::RC_HEADER_BYTES_MAX;
/// MigReq in byte 1 of the BTH: cards set it in all packets of a connection or in none.
const MIGRATION: u8 = 0x40;
/// No datagram is longer.
const PACKET_BYTES_MAX: usize = 65_535;

/// What a packet is to the shim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Part of a SEND, a WRITE or the answer to a READ: it is coded.
    Data(Part),
    /// A READ request, of which the answer's bytes are known, or an atomic operation: not coded, but it
    /// takes numbers of the flow.
    Request {
        /// Bytes that were asked for.
        length: u32,
    },
    /// An acknowledgement or an atomic operation's answer. It takes no number; its own says that
    /// everything before has been answered.
    Answer,
}

/// A packet of the reliable connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'p> {
    pub(crate) opcode: Opcode,
    pub(crate) kind: Kind,
    pub(crate) psn: u32,
    pub(crate) destination: Qpn,
    /// MigReq of its BTH.
    pub(crate) migration: u8,
    /// Behind the BTH, without pad.
    pub(crate) body: &'p [u8],
    pub(crate) payload_bytes: u16,
}

impl<'p> Packet<'p> {
    /// Reads a packet without trailer; `None` if it is of no reliable connection.
    #[inline]
    pub(crate) fn parse(packet: &'p [u8]) -> Option<Self> {
        let (header, payload) = RcHeader::parse(packet, 0).ok()?;
        if packet.len() > PACKET_BYTES_MAX {
            return None;
        }
        let kind = match header.opcode.operation() {
            Operation::Send | Operation::Write | Operation::ReadResponse => {
                Kind::Data(header.opcode.part())
            }
            Operation::ReadRequest => {
                let Reth { length, .. } = header.fields.reth()?;
                Kind::Request { length }
            }
            Operation::Atomic => Kind::Request { length: 0 },
            Operation::Acknowledge | Operation::AtomicAcknowledge => Kind::Answer,
        };
        Some(Self {
            opcode: header.opcode,
            kind,
            psn: header.psn,
            destination: header.destination,
            migration: packet[1] & MIGRATION,
            body: &packet[BTH_BYTES..header.header_bytes() + payload.len()],
            payload_bytes: payload.len() as u16,
        })
    }

    /// The part of its message, if it is coded.
    #[inline]
    pub(crate) fn part(&self) -> Option<Part> {
        match self.kind {
            Kind::Data(part) => Some(part),
            _ => None,
        }
    }
}

/// The kind of message that a packet's opcode tells.
pub(crate) fn class_of(opcode: Opcode) -> Option<MessageClass> {
    let is_invalidate = matches!(opcode, Opcode::SendLastInvalidate | Opcode::SendOnlyInvalidate);
    Some(match (opcode.operation(), opcode.has_immediate()) {
        (Operation::Send, _) if is_invalidate => MessageClass::SendInvalidate,
        (Operation::Send, false) => MessageClass::Send,
        (Operation::Send, true) => MessageClass::SendImmediate,
        (Operation::Write, false) => MessageClass::Write,
        (Operation::Write, true) => MessageClass::WriteImmediate,
        (Operation::ReadResponse, _) => MessageClass::ReadResponse,
        _ => return None,
    })
}

/// The operation of a kind of message.
pub(crate) fn operation_of(class: MessageClass) -> Operation {
    match class {
        MessageClass::Send | MessageClass::SendImmediate | MessageClass::SendInvalidate => {
            Operation::Send
        }
        MessageClass::Write | MessageClass::WriteImmediate => Operation::Write,
        MessageClass::ReadResponse => Operation::ReadResponse,
    }
}

/// The opcode of a part of a message.
pub(crate) fn opcode_of(class: MessageClass, part: Part) -> Opcode {
    match (class, part) {
        (MessageClass::SendInvalidate, Part::Last) => Opcode::SendLastInvalidate,
        (MessageClass::SendInvalidate, Part::Only) => Opcode::SendOnlyInvalidate,
        _ => {
            let has_immediate =
                matches!(class, MessageClass::SendImmediate | MessageClass::WriteImmediate);
            Opcode::of_part(operation_of(class), part, has_immediate)
                .expect("operations of messages have all parts")
        }
    }
}

/// The BTH of a recovered packet.
pub(crate) fn recovered_header(
    opcode: Opcode,
    destination: Qpn,
    psn: u32,
    payload_bytes: usize,
    migration: u8,
) -> [u8; BTH_BYTES] {
    let is_end = opcode.part().ends();
    let flags = u8::from(is_end) << 7 | migration | (pad_bytes(payload_bytes) as u8) << 4;
    let [_, q2, q1, q0] = destination.bits().to_be_bytes();
    let [_, p2, p1, p0] = psn.to_be_bytes();
    [opcode as u8, flags, 0xff, 0xff, 0, q2, q1, q0, u8::from(is_end) << 7, p2, p1, p0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_and_a_part_give_the_opcode_back() {
        for opcode in Opcode::all() {
            let Some(class) = class_of(opcode) else { continue };
            assert_eq!(opcode_of(class, opcode.part()), opcode, "{}", opcode.name());
            assert_eq!(operation_of(class), opcode.operation());
        }
    }

    #[test]
    fn a_recovered_header_is_one_that_the_wire_format_reads() {
        for opcode in Opcode::all().filter(|opcode| class_of(*opcode).is_some()) {
            for payload_bytes in [0usize, 1, 2, 3, 4, 1001] {
                let qpn = Qpn::from_bits(0x12_3456);
                let header = recovered_header(opcode, qpn, 0xab_cdef, payload_bytes, MIGRATION);
                let mut packet = header.to_vec();
                let body = opcode.extended_bytes() + payload_bytes;
                packet.resize((BTH_BYTES + body).next_multiple_of(4), 0);
                let read = Packet::parse(&packet).unwrap();
                assert_eq!((read.opcode, read.psn, read.destination), (opcode, 0xab_cdef, qpn));
                assert_eq!((read.body.len(), read.migration), (body, MIGRATION));
                let (header, _) = RcHeader::parse(&packet, 0).unwrap();
                let ends = opcode.part().ends();
                assert_eq!((header.asks_ack, header.is_solicited), (ends, ends));
            }
        }
    }
}
