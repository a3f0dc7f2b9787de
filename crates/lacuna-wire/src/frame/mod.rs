//! Control frames between the two ends of a queue pair.
//!
//! ```text
//! | type 1 | reserved 1 | length 2 | payload, `length` bytes |
//! ```
//!
//! Frames carry state, never a change of state: "all messages before 17 are finished", not "one
//! more is finished". So any frame may be lost, repeated or reordered, and the next one makes up
//! for it. Each frame has its own file; its payload ends where its fields end.
//!
//! A receiver skips a frame of an unknown type whose high bit is set; at any other unknown type it
//! rejects the rest of the body. So a later version sets this bit on frames that an earlier one may
//! ignore. The protocol checks values (is this message in the window?). Only the channel is checked
//! here, because it indexes tables.

mod ack;
mod cancel;
mod cursor;
mod error;
mod flush;
mod list;
mod path;
mod per_channel;
mod probe;
mod read;
mod receives;
mod receives_before;
mod relayed;
mod report;
mod sent;

pub use ack::Ack;
pub use cancel::{Cancel, CancelReason};
pub use error::FrameError;
pub use flush::{Flush, FlushMark};
pub use list::{Entry, List, ListIter, RunList, U64List};
pub use path::{PathChallenge, PathResponse};
pub use probe::{Probe, ProbeReply};
pub use read::{Read, ReadRefusal, ReadRefused};
pub use receives::{Receives, Run};
pub use receives_before::ReceivesBefore;
pub use relayed::Relayed;
pub use report::{ChannelReport, Report};
pub use sent::Sent;

use cursor::{Reader, Writer};

/// Bytes of type, reserved byte and length before a frame's payload.
pub const FRAME_HEADER_BYTES: usize = 4;

/// Set in types that a receiver may skip if it does not know them.
const SKIPPABLE: u8 = 0x80;

/// One control frame.
// Reports are large (16 channels, inline), the others small. Frames live briefly on the stack, and
// a box would let the network cause allocations.
#[allow(clippy::large_enum_variant)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// This many bytes without meaning, to make a packet a certain size.
    Padding(u16),
    /// Asks for a reply, to measure the round-trip time and to prove that this packet size passes.
    Probe(Probe),
    /// The reply to a probe.
    ProbeReply(ProbeReply),
    /// What was received, per channel.
    Report(Report),
    /// Receives that are posted, and receives that are finished.
    Receives(Receives<'a>),
    /// Chunks of one message that have arrived.
    Ack(Ack<'a>),
    /// How far packets were sent, per channel.
    Flush(Flush),
    /// A message that was given up.
    Cancel(Cancel),
    /// Messages of which nothing more comes.
    Sent(Sent),
    /// Asks for a part of a region.
    Read(Read),
    /// A read that is not answered.
    ReadRefused(ReadRefused),
    /// How many receives there were before the next frame's first.
    ReceivesBefore(ReceivesBefore),
    /// A control body of another queue pair of the connection.
    Relayed(Relayed<'a>),
    /// Asks whether packets reach the peer at the address that this is sent to.
    PathChallenge(PathChallenge),
    /// The response to a path challenge.
    PathResponse(PathResponse),
}

/// The type of a frame. The discriminants are the codes on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum FrameKind {
    /// See [`Frame::Probe`].
    Probe = 1,
    /// See [`Frame::ProbeReply`].
    ProbeReply = 2,
    /// See [`Frame::Report`].
    Report = 3,
    /// See [`Frame::Receives`].
    Receives = 4,
    /// See [`Frame::Ack`].
    Ack = 5,
    /// See [`Frame::Flush`].
    Flush = 6,
    /// See [`Frame::Cancel`].
    Cancel = 7,
    /// See [`Frame::Padding`]. Always skippable.
    Padding = SKIPPABLE,
    /// See [`Frame::Sent`]. Skippable: a receiver that does not know it waits for its deadline.
    Sent = SKIPPABLE | 1,
    /// See [`Frame::Read`]. Skippable: one that is not understood is asked for until its deadline.
    Read = SKIPPABLE | 2,
    /// See [`Frame::ReadRefused`].
    ReadRefused = SKIPPABLE | 3,
    /// See [`Frame::ReceivesBefore`]. Skippable: only some modes need it.
    ReceivesBefore = SKIPPABLE | 4,
    /// See [`Frame::Relayed`]. Skippable.
    Relayed = SKIPPABLE | 5,
    /// See [`Frame::PathChallenge`]. Skippable: to one that does not know it the path stays as it is.
    PathChallenge = SKIPPABLE | 6,
    /// See [`Frame::PathResponse`]. Skippable.
    PathResponse = SKIPPABLE | 7,
}

impl FrameKind {
    /// The type of a frame with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Probe,
            2 => Self::ProbeReply,
            3 => Self::Report,
            4 => Self::Receives,
            5 => Self::Ack,
            6 => Self::Flush,
            7 => Self::Cancel,
            SKIPPABLE => Self::Padding,
            code if code == SKIPPABLE | 1 => Self::Sent,
            code if code == SKIPPABLE | 2 => Self::Read,
            code if code == SKIPPABLE | 3 => Self::ReadRefused,
            code if code == SKIPPABLE | 4 => Self::ReceivesBefore,
            code if code == SKIPPABLE | 5 => Self::Relayed,
            code if code == SKIPPABLE | 6 => Self::PathChallenge,
            code if code == SKIPPABLE | 7 => Self::PathResponse,
            _ => return None,
        })
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name in messages and statistics: lower case, stable.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::ProbeReply => "probe_reply",
            Self::Report => "report",
            Self::Receives => "receives",
            Self::Ack => "ack",
            Self::Flush => "flush",
            Self::Cancel => "cancel",
            Self::Padding => "padding",
            Self::Sent => "sent",
            Self::Read => "read",
            Self::ReadRefused => "read_refused",
            Self::ReceivesBefore => "receives_before",
            Self::Relayed => "relayed",
            Self::PathChallenge => "path_challenge",
            Self::PathResponse => "path_response",
        }
    }
}

impl<'a> Frame<'a> {
    /// The type.
    #[must_use]
    pub const fn kind(&self) -> FrameKind {
        match self {
            Self::Padding(_) => FrameKind::Padding,
            Self::Probe(_) => FrameKind::Probe,
            Self::ProbeReply(_) => FrameKind::ProbeReply,
            Self::Report(_) => FrameKind::Report,
            Self::Receives(_) => FrameKind::Receives,
            Self::Ack(_) => FrameKind::Ack,
            Self::Flush(_) => FrameKind::Flush,
            Self::Cancel(_) => FrameKind::Cancel,
            Self::Sent(_) => FrameKind::Sent,
            Self::Read(_) => FrameKind::Read,
            Self::ReadRefused(_) => FrameKind::ReadRefused,
            Self::ReceivesBefore(_) => FrameKind::ReceivesBefore,
            Self::Relayed(_) => FrameKind::Relayed,
            Self::PathChallenge(_) => FrameKind::PathChallenge,
            Self::PathResponse(_) => FrameKind::PathResponse,
        }
    }

    /// Bytes of payload, without [`FRAME_HEADER_BYTES`].
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        match self {
            Self::Padding(bytes) => usize::from(*bytes),
            Self::Probe(_) => Probe::BYTES,
            Self::ProbeReply(_) => ProbeReply::BYTES,
            Self::Report(report) => report.bytes(),
            Self::Receives(receives) => receives.bytes(),
            Self::Ack(ack) => ack.bytes(),
            Self::Flush(flush) => flush.bytes(),
            Self::Cancel(_) => Cancel::BYTES,
            Self::Sent(_) => Sent::BYTES,
            Self::Read(_) => Read::BYTES,
            Self::ReadRefused(_) => ReadRefused::BYTES,
            Self::ReceivesBefore(_) => ReceivesBefore::BYTES,
            Self::Relayed(relayed) => relayed.bytes(),
            Self::PathChallenge(_) => PathChallenge::BYTES,
            Self::PathResponse(_) => PathResponse::BYTES,
        }
    }

    /// Adds the frame to the end of a control body.
    ///
    /// # Panics
    /// If its payload is longer than a frame's may be, 65,535 bytes.
    pub fn append_to(&self, body: &mut Vec<u8>) {
        let start = body.len();
        body.resize(start + FRAME_HEADER_BYTES + self.payload_bytes(), 0);
        self.emit(&mut body[start..]);
    }

    /// Writes header and payload. `out` must have their size, and the payload must fit the length
    /// field: [`ControlWriter::push`](crate::ControlWriter::push) ensures both.
    pub(crate) fn emit(&self, out: &mut [u8]) {
        let length = u16::try_from(out.len() - FRAME_HEADER_BYTES).expect("a frame's length fits");
        let mut out = Writer::new(out);
        out.u8(self.kind().code());
        out.u8(0);
        out.u16(length);
        match self {
            Self::Padding(bytes) => out.zeros(usize::from(*bytes)),
            Self::Probe(probe) => probe.emit(&mut out),
            Self::ProbeReply(reply) => reply.emit(&mut out),
            Self::Report(report) => report.emit(&mut out),
            Self::Receives(receives) => receives.emit(&mut out),
            Self::Ack(ack) => ack.emit(&mut out),
            Self::Flush(flush) => flush.emit(&mut out),
            Self::Cancel(cancel) => cancel.emit(&mut out),
            Self::Sent(sent) => sent.emit(&mut out),
            Self::Read(read) => read.emit(&mut out),
            Self::ReadRefused(refused) => refused.emit(&mut out),
            Self::ReceivesBefore(before) => before.emit(&mut out),
            Self::Relayed(relayed) => relayed.emit(&mut out),
            Self::PathChallenge(challenge) => challenge.emit(&mut out),
            Self::PathResponse(response) => response.emit(&mut out),
        }
        out.end();
    }

    /// Removes one frame from the front of `rest`. `Ok(None)` is a frame to skip.
    pub(crate) fn take(rest: &mut &'a [u8]) -> Result<Option<Self>, FrameError> {
        let Some(([code, _reserved, length @ ..], behind)) =
            rest.split_first_chunk::<FRAME_HEADER_BYTES>()
        else {
            return Err(FrameError::HeaderTruncated { found: rest.len() });
        };
        let announced = usize::from(u16::from_be_bytes(*length));
        let Some((payload, behind)) = behind.split_at_checked(announced) else {
            return Err(FrameError::Truncated { code: *code, announced, found: behind.len() });
        };
        *rest = behind;
        match FrameKind::from_code(*code) {
            Some(kind) => Self::parse(kind, payload).map(Some),
            None if code & SKIPPABLE != 0 => Ok(None),
            None => Err(FrameError::UnknownKind { code: *code }),
        }
    }

    fn parse(kind: FrameKind, payload: &'a [u8]) -> Result<Self, FrameError> {
        let mut payload = Reader::new(kind, payload);
        let frame = match kind {
            FrameKind::Padding => Self::Padding(payload.skip_rest()),
            FrameKind::Probe => Self::Probe(Probe::parse(&mut payload)?),
            FrameKind::ProbeReply => Self::ProbeReply(ProbeReply::parse(&mut payload)?),
            FrameKind::Report => Self::Report(Report::parse(&mut payload)?),
            FrameKind::Receives => Self::Receives(Receives::parse(&mut payload)?),
            FrameKind::Ack => Self::Ack(Ack::parse(&mut payload)?),
            FrameKind::Flush => Self::Flush(Flush::parse(&mut payload)?),
            FrameKind::Cancel => Self::Cancel(Cancel::parse(&mut payload)?),
            FrameKind::Sent => Self::Sent(Sent::parse(&mut payload)?),
            FrameKind::Read => Self::Read(Read::parse(&mut payload)?),
            FrameKind::ReadRefused => Self::ReadRefused(ReadRefused::parse(&mut payload)?),
            FrameKind::ReceivesBefore => Self::ReceivesBefore(ReceivesBefore::parse(&mut payload)?),
            FrameKind::Relayed => Self::Relayed(Relayed::parse(&mut payload)?),
            FrameKind::PathChallenge => Self::PathChallenge(PathChallenge::parse(&mut payload)?),
            FrameKind::PathResponse => Self::PathResponse(PathResponse::parse(&mut payload)?),
        };
        payload.end()?;
        Ok(frame)
    }
}

/// Helpers for the tests of the frames.
#[cfg(test)]
pub(crate) mod test {
    use super::*;

    /// Checks that the frame encodes to these bytes, over a buffer that shows bytes not written,
    /// and that these bytes decode to the frame.
    pub(crate) fn assert_bytes(frame: &Frame<'_>, payload: &[u8]) {
        let mut expected = vec![frame.kind().code(), 0];
        expected.extend(u16::try_from(payload.len()).unwrap().to_be_bytes());
        expected.extend(payload);

        assert_eq!(frame.payload_bytes(), payload.len());
        let mut out = vec![0xa5; expected.len()];
        frame.emit(&mut out);
        assert_eq!(out, expected);

        assert_eq!(Frame::parse(frame.kind(), payload), Ok(*frame));
    }

    /// Checks that a payload of this kind is refused at every other length.
    pub(crate) fn assert_only_whole(kind: FrameKind, payload: &[u8]) {
        for cut in 0..payload.len() {
            let error = FrameError::Length { frame: kind, found: cut };
            assert_eq!(Frame::parse(kind, &payload[..cut]), Err(error));
        }
        let longer = [payload, &[0]].concat();
        let error = FrameError::Length { frame: kind, found: longer.len() };
        assert_eq!(Frame::parse(kind, &longer), Err(error));
    }

    #[test]
    fn codes_and_kinds_agree() {
        let known = (0..=u8::MAX).filter_map(|code| Some((code, FrameKind::from_code(code)?)));
        assert_eq!(known.clone().count(), 15);
        assert!(known.into_iter().all(|(code, kind)| kind.code() == code));
    }

    #[test]
    fn padding_is_zeros_of_any_length() {
        for bytes in [0, 1, 7, 1000] {
            assert_bytes(&Frame::Padding(bytes), &vec![0; usize::from(bytes)]);
        }
    }

    #[test]
    fn unknown_kinds_are_skipped_only_if_marked() {
        let mut rest = &[0xfe, 0, 0, 2, 1, 2, 0x7e, 0, 0, 0][..];
        assert_eq!(Frame::take(&mut rest), Ok(None));
        assert_eq!(Frame::take(&mut rest), Err(FrameError::UnknownKind { code: 0x7e }));
    }

    #[test]
    fn lengths_that_lie_are_rejected() {
        let mut rest = &[0x80, 0, 0][..];
        assert_eq!(Frame::take(&mut rest), Err(FrameError::HeaderTruncated { found: 3 }));
        let mut rest = &[0x80, 0, 0, 9, 0, 0][..];
        let error = FrameError::Truncated { code: 0x80, announced: 9, found: 2 };
        assert_eq!(Frame::take(&mut rest), Err(error));
    }
}
