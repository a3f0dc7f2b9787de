//! RDMAP opcodes (RFC 5040, section 4.3), and the queues that untagged segments are for.

/// What a segment is part of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Operation {
    /// RDMA Read Request: bytes of the receiver's memory are wanted.
    ReadRequest = 0x1,
    /// Send.
    Send = 0x3,
    /// Send with Solicited Event.
    SendSolicited = 0x5,
    /// Write-Record, also as the answer to a READ. Not in RFC 5040.
    WriteRecord = 0xc,
    /// What an end says about messages. Not in RFC 5040.
    Control = 0xe,
}

/// The queue of an untagged segment. 0 to 2 are RFC 5040's; 2, for Terminate, is not used here, as an error ends
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Queue {
    /// Buffers for Sends.
    Sends = 0,
    /// Requests of READs.
    Reads = 1,
    /// Control. Not in RFC 5040.
    Control = 3,
    /// Buffers for Sends, and requests of READs, that are sent reliably: numbered together. Not in RFC 5040.
    Reliable = 4,
}

impl Operation {
    /// The operation of an opcode.
    #[must_use]
    pub const fn of(opcode: u8) -> Option<Self> {
        Some(match opcode {
            0x1 => Self::ReadRequest,
            0x3 => Self::Send,
            0x5 => Self::SendSolicited,
            0xc => Self::WriteRecord,
            0xe => Self::Control,
            _ => return None,
        })
    }

    /// The queue that its segments are for; `None` if they are tagged.
    #[must_use]
    pub const fn queue(self, is_reliable: bool) -> Option<Queue> {
        match (self, is_reliable) {
            (Self::WriteRecord, _) => None,
            (Self::Control, _) => Some(Queue::Control),
            (_, true) => Some(Queue::Reliable),
            (Self::Send | Self::SendSolicited, false) => Some(Queue::Sends),
            (Self::ReadRequest, false) => Some(Queue::Reads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opcode_is_that_of_its_operation() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|byte| Operation::of(*byte).is_some()).collect();
        assert_eq!(known, [0x1, 0x3, 0x5, 0xc, 0xe]);
        for byte in known {
            assert_eq!(Operation::of(byte).unwrap() as u8, byte);
        }
    }
}
