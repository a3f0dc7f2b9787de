//! Flush: how far the sender has sent, per channel.
//!
//! After the last packets of a burst nothing arrives that would show their loss. A flush says that
//! everything before a sequence number was sent. Packets that are still missing after the
//! reordering window are lost, and are reported at once instead of at a timeout.
//!
//! ```text
//! | started 8 | per channel: | channel 1 | next_psn 3 |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};
use super::per_channel::{PerChannel, channel_psn, parse_channel_psn};

/// What was sent, for at most [`CHANNELS_MAX`](crate::CHANNELS_MAX) channels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flush {
    /// All messages before this one were started: the peer acknowledges each of them that is open,
    /// even if none of its packets arrived.
    pub started: u64,
    marks: PerChannel<FlushMark>,
}

/// What was sent on one channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlushMark {
    /// The channel, below [`CHANNELS_MAX`](crate::CHANNELS_MAX).
    pub channel: u8,
    /// All packets before this sequence number, 24 bits, were sent.
    pub next_psn: u32,
}

impl FlushMark {
    /// Payload bytes per channel.
    pub const BYTES: usize = 4;
}

impl Flush {
    /// Payload bytes before the channels.
    pub const FIXED_BYTES: usize = 8;

    /// No channels yet.
    #[must_use]
    pub fn new(started: u64) -> Self {
        Self { started, marks: PerChannel::new() }
    }

    /// Adds a channel.
    ///
    /// # Panics
    /// When there is an entry for [`CHANNELS_MAX`](crate::CHANNELS_MAX) channels already.
    pub fn push(&mut self, mark: FlushMark) {
        self.marks.push(mark);
    }

    /// The channels, in the order in which they were added.
    #[must_use]
    pub fn marks(&self) -> &[FlushMark] {
        self.marks.as_slice()
    }

    pub(super) fn bytes(&self) -> usize {
        Self::FIXED_BYTES + self.marks().len() * FlushMark::BYTES
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u64(self.started);
        for FlushMark { channel, next_psn } in self.marks() {
            out.u32(channel_psn(*channel, *next_psn));
        }
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        let started = payload.u64()?;
        let marks = PerChannel::parse(payload, FlushMark::BYTES, |entry| {
            parse_channel_psn(entry).map(|(channel, next_psn)| FlushMark { channel, next_psn })
        })?;
        Ok(Self { started, marks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::test::assert_bytes;
    use crate::frame::{Frame, FrameKind};

    #[test]
    fn bytes() {
        let mut flush = Flush::new(0x1112_1314_1516_1718);
        let started = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
        assert_bytes(&Frame::Flush(flush), &started);
        flush.push(FlushMark { channel: 0, next_psn: 0xff_ffff });
        flush.push(FlushMark { channel: 9, next_psn: 0x01_0203 });
        let marks = [0, 0xff, 0xff, 0xff, 9, 1, 2, 3];
        assert_bytes(&Frame::Flush(flush), &[&started[..], &marks].concat());
    }

    #[test]
    fn bad_entries_are_rejected() {
        let parse = |payload: &[u8]| Frame::parse(FrameKind::Flush, payload).unwrap_err();
        let frame = FrameKind::Flush;
        assert_eq!(parse(&[0; 6]), FrameError::Length { frame, found: 6 });
        assert_eq!(parse(&[0; 14]), FrameError::Length { frame, found: 14 });
        assert_eq!(parse(&[0; 76]), FrameError::TooManyChannels { frame, found: 17 });
        let mut bad_channel = [0; 12];
        bad_channel[8] = 255;
        assert_eq!(parse(&bad_channel), FrameError::Channel { frame, found: 255 });
    }
}
