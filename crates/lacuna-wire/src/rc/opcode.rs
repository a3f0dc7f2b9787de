//! The operations of the reliable connection, one line each.
//!
//! InfiniBand Architecture Specification, volume 1, table 38. The table says for each opcode which part of
//! a message it is and which headers follow the BTH; no other place knows them.

use super::{NOTIFICATION_OPCODE, REPAIR_OPCODE};
use crate::Qpn;

/// An opcode of the reliable connection: the first byte of its packets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum Opcode {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImmediate = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
}

/// What a packet does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operation {
    /// Bytes for the next receive.
    Send,
    /// Bytes for memory that the packet names.
    Write,
    /// Asks for bytes of memory.
    ReadRequest,
    /// Bytes that were asked for.
    ReadResponse,
    /// Says what has come, or refuses.
    Acknowledge,
    /// Changes eight bytes of memory and asks for what they were.
    Atomic,
    /// What they were.
    AtomicAcknowledge,
}

/// Which part of its message a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Part {
    /// The first of several packets.
    First,
    /// Neither the first nor the last.
    Middle,
    /// The last of several packets.
    Last,
    /// The whole message.
    Only,
}

impl Part {
    /// Whether a message begins with it.
    #[inline]
    #[must_use]
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends with it.
    #[inline]
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// The part of a packet that begins or ends its message, or neither.
    #[inline]
    #[must_use]
    pub const fn of(begins: bool, ends: bool) -> Self {
        match (begins, ends) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// The headers behind the BTH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Headers {
    None,
    Reth,
    RethImmediate,
    Immediate,
    Aeth,
    AtomicAck,
    Atomic,
    Invalidate,
}

impl Headers {
    /// Their bytes.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Immediate | Self::Aeth | Self::Invalidate => 4,
            Self::AtomicAck => 12,
            Self::Reth => 16,
            Self::RethImmediate => 20,
            Self::Atomic => 28,
        }
    }
}

/// A line of the table.
#[derive(Clone, Copy, Debug)]
struct Entry {
    opcode: Opcode,
    operation: Operation,
    part: Part,
    headers: Headers,
    name: &'static str,
}

const fn entry(
    opcode: Opcode,
    operation: Operation,
    part: Part,
    headers: Headers,
    name: &'static str,
) -> Option<Entry> {
    Some(Entry { opcode, operation, part, headers, name })
}

/// The opcodes by their value; 0x15 is reserved.
#[rustfmt::skip]
const TABLE: [Option<Entry>; 0x18] = {
    use Headers as H;
    use Opcode as C;
    use Operation as O;
    use Part as P;
    [
        entry(C::SendFirst, O::Send, P::First, H::None, "SEND First"),
        entry(C::SendMiddle, O::Send, P::Middle, H::None, "SEND Middle"),
        entry(C::SendLast, O::Send, P::Last, H::None, "SEND Last"),
        entry(C::SendLastImmediate, O::Send, P::Last, H::Immediate, "SEND Last with Immediate"),
        entry(C::SendOnly, O::Send, P::Only, H::None, "SEND Only"),
        entry(C::SendOnlyImmediate, O::Send, P::Only, H::Immediate, "SEND Only with Immediate"),
        entry(C::WriteFirst, O::Write, P::First, H::Reth, "RDMA WRITE First"),
        entry(C::WriteMiddle, O::Write, P::Middle, H::None, "RDMA WRITE Middle"),
        entry(C::WriteLast, O::Write, P::Last, H::None, "RDMA WRITE Last"),
        entry(C::WriteLastImmediate, O::Write, P::Last, H::Immediate, "RDMA WRITE Last with Immediate"),
        entry(C::WriteOnly, O::Write, P::Only, H::Reth, "RDMA WRITE Only"),
        entry(C::WriteOnlyImmediate, O::Write, P::Only, H::RethImmediate, "RDMA WRITE Only with Immediate"),
        entry(C::ReadRequest, O::ReadRequest, P::Only, H::Reth, "RDMA READ Request"),
        entry(C::ReadResponseFirst, O::ReadResponse, P::First, H::Aeth, "RDMA READ Response First"),
        entry(C::ReadResponseMiddle, O::ReadResponse, P::Middle, H::None, "RDMA READ Response Middle"),
        entry(C::ReadResponseLast, O::ReadResponse, P::Last, H::Aeth, "RDMA READ Response Last"),
        entry(C::ReadResponseOnly, O::ReadResponse, P::Only, H::Aeth, "RDMA READ Response Only"),
        entry(C::Acknowledge, O::Acknowledge, P::Only, H::Aeth, "Acknowledge"),
        entry(C::AtomicAcknowledge, O::AtomicAcknowledge, P::Only, H::AtomicAck, "ATOMIC Acknowledge"),
        entry(C::CompareSwap, O::Atomic, P::Only, H::Atomic, "CmpSwap"),
        entry(C::FetchAdd, O::Atomic, P::Only, H::Atomic, "FetchAdd"),
        None,
        entry(C::SendLastInvalidate, O::Send, P::Last, H::Invalidate, "SEND Last with Invalidate"),
        entry(C::SendOnlyInvalidate, O::Send, P::Only, H::Invalidate, "SEND Only with Invalidate"),
    ]
};

/// The one value in the table that no opcode has.
const RESERVED: u8 = 0x15;

/// Whether a datagram begins as a packet of a reliable connection does, of the repair shim below it, or a
/// notification of congestion.
#[inline]
#[must_use]
pub fn is_rc(packet: &[u8]) -> bool {
    // The table without looking at it: this is asked of all packets that are no data of SDR.
    packet.first().is_some_and(|first| {
        *first < TABLE.len() as u8 && *first != RESERVED
            || matches!(*first, REPAIR_OPCODE | NOTIFICATION_OPCODE)
    })
}

/// The queue pair that such a packet is for: a repair has it in its first word.
#[inline]
#[must_use]
pub fn rc_destination(packet: &[u8]) -> Option<Qpn> {
    if packet.first() != Some(&REPAIR_OPCODE) {
        return crate::destination(packet);
    }
    let word = u32::from_be_bytes(*packet.first_chunk()?);
    Some(Qpn::from_bits(word & 0xff_ffff))
}

impl Opcode {
    /// Every opcode.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().flatten().map(|entry| entry.opcode)
    }

    /// The opcode of a first byte.
    #[inline]
    #[must_use]
    pub const fn of(byte: u8) -> Option<Self> {
        if byte as usize >= TABLE.len() {
            return None;
        }
        match &TABLE[byte as usize] {
            Some(entry) => Some(entry.opcode),
            None => None,
        }
    }

    /// The opcode of a part of a SEND or WRITE, or of the answer to a READ; `None` for what has no such
    /// parts.
    #[must_use]
    pub const fn of_part(operation: Operation, part: Part, has_immediate: bool) -> Option<Self> {
        Some(match (operation, part, has_immediate && part.ends()) {
            (Operation::Send, Part::First, _) => Self::SendFirst,
            (Operation::Send, Part::Middle, _) => Self::SendMiddle,
            (Operation::Send, Part::Last, false) => Self::SendLast,
            (Operation::Send, Part::Last, true) => Self::SendLastImmediate,
            (Operation::Send, Part::Only, false) => Self::SendOnly,
            (Operation::Send, Part::Only, true) => Self::SendOnlyImmediate,
            (Operation::Write, Part::First, _) => Self::WriteFirst,
            (Operation::Write, Part::Middle, _) => Self::WriteMiddle,
            (Operation::Write, Part::Last, false) => Self::WriteLast,
            (Operation::Write, Part::Last, true) => Self::WriteLastImmediate,
            (Operation::Write, Part::Only, false) => Self::WriteOnly,
            (Operation::Write, Part::Only, true) => Self::WriteOnlyImmediate,
            (Operation::ReadResponse, Part::First, _) => Self::ReadResponseFirst,
            (Operation::ReadResponse, Part::Middle, _) => Self::ReadResponseMiddle,
            (Operation::ReadResponse, Part::Last, _) => Self::ReadResponseLast,
            (Operation::ReadResponse, Part::Only, _) => Self::ReadResponseOnly,
            _ => return None,
        })
    }

    const fn entry(self) -> &'static Entry {
        match &TABLE[self as usize] {
            Some(entry) => entry,
            None => panic!("every opcode has its line"),
        }
    }

    /// What the packet does.
    #[inline]
    #[must_use]
    pub const fn operation(self) -> Operation {
        self.entry().operation
    }

    /// Which part of its message it is.
    #[inline]
    #[must_use]
    pub const fn part(self) -> Part {
        self.entry().part
    }

    pub(super) const fn headers(self) -> Headers {
        self.entry().headers
    }

    /// Bytes of the headers behind the BTH.
    #[inline]
    #[must_use]
    pub const fn extended_bytes(self) -> usize {
        self.headers().bytes()
    }

    /// Whether an immediate follows.
    #[inline]
    #[must_use]
    pub const fn has_immediate(self) -> bool {
        matches!(self.headers(), Headers::Immediate | Headers::RethImmediate)
    }

    /// Whether the packet goes from the requester to the responder.
    #[inline]
    #[must_use]
    pub const fn is_request(self) -> bool {
        use Operation::{Atomic, ReadRequest, Send, Write};
        matches!(self.operation(), Send | Write | ReadRequest | Atomic)
    }

    /// Its name in the specification.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.entry().name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_stands_at_its_value() {
        for byte in 0..=u8::MAX {
            let opcode = Opcode::of(byte);
            assert_eq!(opcode.is_some(), byte < 0x18 && byte != 0x15, "{byte:#04x}");
            assert!(opcode.is_none_or(|opcode| opcode as u8 == byte));
            let is_beside = matches!(byte, REPAIR_OPCODE | NOTIFICATION_OPCODE);
            assert_eq!(is_rc(&[byte]), opcode.is_some() || is_beside);
        }
    }

    #[test]
    fn parts_give_back_their_opcodes() {
        for opcode in Opcode::all() {
            let (operation, part) = (opcode.operation(), opcode.part());
            let has_parts =
                matches!(operation, Operation::Send | Operation::Write | Operation::ReadResponse);
            let found = Opcode::of_part(operation, part, opcode.has_immediate());
            match opcode {
                Opcode::SendLastInvalidate | Opcode::SendOnlyInvalidate => {}
                _ => assert_eq!(found, has_parts.then_some(opcode), "{}", opcode.name()),
            }
        }
    }
}
