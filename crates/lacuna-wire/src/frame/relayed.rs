//! Relayed: a control body of another queue pair of the same connection.
//!
//! A connection that is closed says its last words on the control connection, where nothing is lost: the
//! last report of its queue pair, so that the peer's last sends end well. Those of its further queue pairs
//! go along in these frames. In packets they mean nothing.
//!
//! ```text
//! | queue pair 4 | control body, to the end |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};

/// A control body for another queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relayed<'a> {
    /// The number of the queue pair at the end that reads this.
    pub queue_pair: u32,
    /// The body of a control packet for it.
    pub body: &'a [u8],
}

impl<'a> Relayed<'a> {
    /// Bytes of payload before the body.
    pub const FIXED_BYTES: usize = 4;

    pub(super) fn bytes(&self) -> usize {
        Self::FIXED_BYTES + self.body.len()
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u32(self.queue_pair);
        out.bytes(self.body);
    }

    pub(super) fn parse(payload: &mut Reader<'a>) -> Result<Self, FrameError> {
        Ok(Self { queue_pair: payload.u32()?, body: payload.rest_of(1)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::Frame;
    use crate::frame::test::assert_bytes;

    #[test]
    fn bytes() {
        let relayed = Relayed { queue_pair: 0x0102_0304, body: &[9, 8, 7] };
        assert_bytes(&Frame::Relayed(relayed), &[1, 2, 3, 4, 9, 8, 7]);
        assert_bytes(&Frame::Relayed(Relayed { queue_pair: 1, body: &[] }), &[0, 0, 0, 1]);
    }
}
