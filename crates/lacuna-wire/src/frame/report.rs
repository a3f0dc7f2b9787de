//! Report: what an end has received, per channel, and what its sockets can still buffer.
//!
//! The sender's congestion control, loss estimation and flow control depend on this frame. All
//! counters run from the start of the queue pair: two reports give the rates between them, and a
//! lost report does no harm.
//!
//! ```text
//! per channel, 44 bytes:
//! | channel 1 | next_psn 3 | reserved 1 | flushed_psn 3 | received 8 | duplicate 8 | marked 8 |
//! | reorder 4 | delay_ns 4 | credit_bytes 4 |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};
use super::per_channel::{PerChannel, channel_psn, parse_channel_psn};
use crate::PSN_MASK;

/// What was received, for at most [`CHANNELS_MAX`](crate::CHANNELS_MAX) channels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    channels: PerChannel<ChannelReport>,
}

/// What was received on one channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ChannelReport {
    /// The channel, below [`CHANNELS_MAX`](crate::CHANNELS_MAX).
    pub channel: u8,
    /// One past the largest sequence number received, 24 bits.
    pub next_psn: u32,
    /// A [`Flush`](super::Flush) announced all packets before this sequence number, 24 bits, as
    /// sent; missing ones are late or lost.
    pub flushed_psn: u32,
    /// Packets received with a sequence number not seen before.
    pub received_packets: u64,
    /// Packets received again.
    pub duplicate_packets: u64,
    /// Packets received with a congestion mark (ECN CE).
    pub marked_packets: u64,
    /// The largest distance by which a packet came late, in packets.
    pub reorder_packets: u32,
    /// Time since packet `next_psn - 1` arrived, in nanoseconds, at most 2^32 - 1.
    pub delay_ns: u32,
    /// Bytes that this channel's socket can buffer for the sender.
    pub credit_bytes: u32,
}

impl Report {
    /// No channels yet.
    #[must_use]
    pub fn new() -> Self {
        Self { channels: PerChannel::new() }
    }

    /// Adds a channel.
    ///
    /// # Panics
    /// When there is an entry for [`CHANNELS_MAX`](crate::CHANNELS_MAX) channels already.
    pub fn push(&mut self, channel: ChannelReport) {
        self.channels.push(channel);
    }

    /// The channels, in the order in which they were added.
    #[must_use]
    pub fn channels(&self) -> &[ChannelReport] {
        self.channels.as_slice()
    }

    pub(super) fn bytes(&self) -> usize {
        self.channels().len() * ChannelReport::BYTES
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        for channel in self.channels() {
            channel.emit(out);
        }
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        let channels = PerChannel::parse(payload, ChannelReport::BYTES, ChannelReport::parse)?;
        Ok(Self { channels })
    }
}

impl Default for Report {
    fn default() -> Self {
        Self::new()
    }
}

impl ChannelReport {
    /// Payload bytes per channel.
    pub const BYTES: usize = 44;

    fn emit(&self, out: &mut Writer<'_>) {
        debug_assert!(self.flushed_psn <= PSN_MASK);
        out.u32(channel_psn(self.channel, self.next_psn));
        out.u32(self.flushed_psn & PSN_MASK);
        out.u64(self.received_packets);
        out.u64(self.duplicate_packets);
        out.u64(self.marked_packets);
        out.u32(self.reorder_packets);
        out.u32(self.delay_ns);
        out.u32(self.credit_bytes);
    }

    fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        let (channel, next_psn) = parse_channel_psn(payload)?;
        Ok(Self {
            channel,
            next_psn,
            flushed_psn: payload.u32()? & PSN_MASK,
            received_packets: payload.u64()?,
            duplicate_packets: payload.u64()?,
            marked_packets: payload.u64()?,
            reorder_packets: payload.u32()?,
            delay_ns: payload.u32()?,
            credit_bytes: payload.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CHANNELS_MAX;
    use crate::frame::test::assert_bytes;
    use crate::frame::{Frame, FrameKind};

    #[rustfmt::skip]
    const PAYLOAD: [u8; ChannelReport::BYTES] = [
        0x0f, 0x12, 0x34, 0x56, 0x00, 0x12, 0x34, 0x50,
        0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6,
        0, 0, 0, 7, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0,
    ];

    const CHANNEL: ChannelReport = ChannelReport {
        channel: 15,
        next_psn: 0x12_3456,
        flushed_psn: 0x12_3450,
        received_packets: 0x1_0000_0002,
        duplicate_packets: 0x3_0000_0004,
        marked_packets: 0x5_0000_0006,
        reorder_packets: 7,
        delay_ns: u32::MAX,
        credit_bytes: 65536,
    };

    fn report(channels: usize) -> Report {
        let mut report = Report::new();
        for _ in 0..channels {
            report.push(CHANNEL);
        }
        report
    }

    #[test]
    fn bytes_for_any_number_of_channels() {
        for channels in 0..=CHANNELS_MAX {
            assert_bytes(&Frame::Report(report(channels)), &PAYLOAD.repeat(channels));
        }
    }

    #[test]
    fn a_part_of_a_channel_is_rejected() {
        let error = FrameError::Length { frame: FrameKind::Report, found: 45 };
        let payload = [&PAYLOAD[..], &[0]].concat();
        assert_eq!(Frame::parse(FrameKind::Report, &payload), Err(error));
    }

    #[test]
    fn more_channels_than_there_can_be_are_rejected() {
        let error = FrameError::TooManyChannels { frame: FrameKind::Report, found: 17 };
        assert_eq!(Frame::parse(FrameKind::Report, &PAYLOAD.repeat(17)), Err(error));
    }

    #[test]
    fn a_channel_out_of_range_is_rejected() {
        let mut payload = PAYLOAD;
        payload[0] = 16;
        let error = FrameError::Channel { frame: FrameKind::Report, found: 16 };
        assert_eq!(Frame::parse(FrameKind::Report, &payload), Err(error));
    }

    #[test]
    #[should_panic(expected = "at most one entry per channel")]
    fn pushing_too_many_channels_panics() {
        report(CHANNELS_MAX + 1);
    }
}
