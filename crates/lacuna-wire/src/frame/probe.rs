//! Probe and its reply: measure the round-trip time, and prove that a packet size passes.
//!
//! The reply echoes the sender's clock, so the two clocks need not agree. A probe may be padded
//! (see [`ControlWriter::pad_to`](crate::ControlWriter::pad_to)); the reply has the size that
//! arrived.
//!
//! ```text
//! probe:  | id 4 | sent_ns 8 |
//! reply:  | id 4 | echo_ns 8 | packet_bytes 4 |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};

/// Asks for a [`ProbeReply`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Probe {
    /// Chosen by the sender, to tell its probes apart.
    pub id: u32,
    /// The sender's clock in nanoseconds, of any epoch.
    pub sent_ns: u64,
}

/// Answers a [`Probe`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ProbeReply {
    /// The probe's id.
    pub id: u32,
    /// The probe's `sent_ns`, unchanged.
    pub echo_ns: u64,
    /// Size of the probe's packet, from BTH to trailer.
    pub packet_bytes: u32,
}

impl Probe {
    /// Bytes of payload.
    pub const BYTES: usize = 12;

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u32(self.id);
        out.u64(self.sent_ns);
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { id: payload.u32()?, sent_ns: payload.u64()? })
    }
}

impl ProbeReply {
    /// Bytes of payload.
    pub const BYTES: usize = 16;

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u32(self.id);
        out.u64(self.echo_ns);
        out.u32(self.packet_bytes);
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { id: payload.u32()?, echo_ns: payload.u64()?, packet_bytes: payload.u32()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::test::{assert_bytes, assert_only_whole};
    use crate::frame::{Frame, FrameKind};

    #[test]
    fn probe_bytes() {
        let payload = [0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_bytes(&Frame::Probe(Probe { id: 7, sent_ns: 0x0102_0304_0506_0708 }), &payload);
        assert_only_whole(FrameKind::Probe, &payload);
    }

    #[test]
    fn reply_bytes() {
        let payload = [0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x05, 0xdc];
        let reply = ProbeReply { id: 7, echo_ns: 0x0102_0304_0506_0708, packet_bytes: 1500 };
        assert_bytes(&Frame::ProbeReply(reply), &payload);
        assert_only_whole(FrameKind::ProbeReply, &payload);
    }
}
