//! Sent: the sender's word that nothing more of some messages comes.
//!
//! A mode that repairs nothing has no acknowledgements, so a receiver cannot tell a lost tail from one
//! that is still to come. This frame tells: on its channel, everything of the messages before `before`
//! was sent. What of them has not arrived after the time in which the path reorders packets is lost.
//!
//! ```text
//! | channel 1 | next_psn 3 | before 8 |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};
use super::per_channel::{channel_psn, parse_channel_psn};

/// Everything of some messages was sent on one channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sent {
    /// The channel, below [`CHANNELS_MAX`](crate::CHANNELS_MAX): the one that the frame travels on,
    /// because channels keep no order among each other.
    pub channel: u8,
    /// The messages' packets on this channel have lower sequence numbers than this, 24 bits.
    pub next_psn: u32,
    /// All messages before this one, counted from the start of the queue pair.
    pub before: u64,
}

impl Sent {
    /// Bytes of payload.
    pub const BYTES: usize = 12;

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u32(channel_psn(self.channel, self.next_psn));
        out.u64(self.before);
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (channel, next_psn) = parse_channel_psn(payload)?;
        Ok(Self { channel, next_psn, before: payload.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::test::{assert_bytes, assert_only_whole};
    use crate::frame::{Frame, FrameKind};

    #[test]
    fn bytes() {
        let payload = [3, 0x12, 0x34, 0x56, 1, 2, 3, 4, 5, 6, 7, 8];
        let sent = Sent { channel: 3, next_psn: 0x12_3456, before: 0x0102_0304_0506_0708 };
        assert_bytes(&Frame::Sent(sent), &payload);
        assert_only_whole(FrameKind::Sent, &payload);
    }
}
