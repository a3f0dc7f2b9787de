//! Ack: the chunks of one message that have arrived.
//!
//! SDR-RDMA 4.1.1: a cumulative count, and the bitmap from there on as far as it fits. Trailing
//! zero bytes are left out: chunks beyond the bitmap are missing, unless `truncated` says that the
//! bitmap did not fit. Then the Ack does not describe them, and neither the chunks that it skips:
//! successive Acks describe successive windows of a long bitmap.
//!
//! ```text
//! | message 8 | cumulative 4 | immediate_fragments 4 | truncated 1 | skipped 3 | bitmap, to the end |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};

/// The state of one message at its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ack<'a> {
    /// The message, counted from the start of the queue pair.
    pub message: u64,
    /// All chunks before this one have arrived.
    pub cumulative: u32,
    /// Fragments of the user immediate that have arrived: bit `i` for fragment `i`.
    pub immediate_fragments: u32,
    /// The bitmap was cut: chunks beyond it are not described.
    pub truncated: bool,
    /// Bytes of the bitmap between `cumulative` and its first byte, not described; below 2^24.
    pub skipped_bytes: u32,
    /// Bit `i`, least significant first: chunk `cumulative + 8 skipped_bytes + i` has arrived.
    pub chunks: &'a [u8],
}

impl<'a> Ack<'a> {
    /// Payload bytes before the bitmap.
    pub const FIXED_BYTES: usize = 20;
    /// The largest value of three bytes: more than any bitmap has.
    pub const SKIPPED_BYTES_MAX: u32 = (1 << 24) - 1;

    pub(super) fn bytes(&self) -> usize {
        Self::FIXED_BYTES + self.chunks.len()
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u64(self.message);
        out.u32(self.cumulative);
        out.u32(self.immediate_fragments);
        debug_assert!(self.skipped_bytes <= Self::SKIPPED_BYTES_MAX);
        let skipped_bytes = self.skipped_bytes & Self::SKIPPED_BYTES_MAX;
        out.u32(u32::from(self.truncated) << 24 | skipped_bytes);
        out.bytes(self.chunks);
    }

    pub(super) fn parse(payload: &mut Reader<'a>) -> Result<Self, FrameError> {
        let (message, cumulative) = (payload.u64()?, payload.u32()?);
        let (immediate_fragments, described) = (payload.u32()?, payload.u32()?);
        Ok(Self {
            message,
            cumulative,
            immediate_fragments,
            truncated: described >> 24 & 1 == 1,
            skipped_bytes: described & Self::SKIPPED_BYTES_MAX,
            chunks: payload.rest_of(1)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::test::assert_bytes;
    use crate::frame::{Frame, FrameKind};

    #[test]
    fn bytes() {
        let mut ack = Ack {
            message: 0x0102_0304_0506_0708,
            cumulative: 0x1112_1314,
            immediate_fragments: 0x2122_2324,
            truncated: false,
            skipped_bytes: 0,
            chunks: &[],
        };
        let fixed =
            [1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0, 0, 0, 0];
        assert_bytes(&Frame::Ack(ack), &fixed);
        ack.chunks = &[0xfe, 0x01];
        assert_bytes(&Frame::Ack(ack), &[&fixed[..], &[0xfe, 0x01]].concat());
        ack.truncated = true;
        ack.skipped_bytes = 0x31_3233;
        ack.chunks = &[];
        assert_bytes(&Frame::Ack(ack), &[&fixed[..16], &[1, 0x31, 0x32, 0x33]].concat());
    }

    #[test]
    fn less_than_the_fixed_part_is_rejected() {
        let error = FrameError::Length { frame: FrameKind::Ack, found: 19 };
        assert_eq!(Frame::parse(FrameKind::Ack, &[0; 19]), Err(error));
    }
}
