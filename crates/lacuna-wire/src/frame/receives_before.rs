//! ReceivesBefore: how many receives the messages before a [`Receives`](super::Receives) frame's base were.
//!
//! A receive takes one message number or several, so from numbers alone a sender cannot tell which receive
//! of the peer is the n-th, once some are over that it never heard of. In modes where the n-th message
//! belongs to the n-th receive, late or not, this frame goes before the Receives frame in the same packet.
//!
//! ```text
//! | base 8 | receives 8 |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};

/// How many receives there were before a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReceivesBefore {
    /// The base of the Receives frame that follows.
    pub base: u64,
    /// Receives that began before it, counted from the start of the queue pair.
    pub receives: u64,
}

impl ReceivesBefore {
    /// Bytes of payload.
    pub const BYTES: usize = 16;

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u64(self.base);
        out.u64(self.receives);
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { base: payload.u64()?, receives: payload.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::test::{assert_bytes, assert_only_whole};
    use crate::frame::{Frame, FrameKind};

    #[test]
    fn bytes() {
        let payload = [1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 9];
        let before = ReceivesBefore { base: 0x0102_0304_0506_0708, receives: 9 };
        assert_bytes(&Frame::ReceivesBefore(before), &payload);
        assert_only_whole(FrameKind::ReceivesBefore, &payload);
    }
}
