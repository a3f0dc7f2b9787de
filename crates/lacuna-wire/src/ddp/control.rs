//! What the ends say about messages: the payload of control segments.
//!
//! ```text
//! frame   | kind 1 | space 1 | bytes of the body 2 | number 4 | rest of the body |
//! ```
//!
//! A payload is frames, one behind the other. A message is named by its *space* (Sends, READs and their answers,
//! Write-Records), and its number in it. Frames of unknown kinds are skipped, so later versions may add some.
//! Nothing here is a promise: a frame may be lost, repeated or forged, so each carries state, never a change of it.
//!
//! | kind | | rest of the body |
//! |---|---|---|
//! | 1 | report: this segment has come, and so many bytes in all | end of the segment in its message 4, bytes 8, microseconds that the report waited 4 |
//! | 2 | error: the message was refused | reason 1 |
//! | 3 | cancel: no more of the message will be sent | reason 1 |
//! | 4 | sent: all of every message up to this number was sent | – |
//! | 5 | missing: of the message these bytes have not come | ranges: begin 4, end 4, each |
//! | 6 | done: every message up to this number has come | – |

use super::DdpError;

/// Most bytes of frames in a packet.
pub const CONTROL_BYTES_MAX: usize = 1024;

const FRAME_HEADER_BYTES: usize = 4;
const NUMBER_BYTES: usize = 4;
const RANGE_BYTES: usize = 8;

const REPORT: u8 = 1;
const ERROR: u8 = 2;
const CANCEL: u8 = 3;
const SENT: u8 = 4;
const MISSING: u8 = 5;
const DONE: u8 = 6;

/// Messages that are numbered together, of one source to one destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Space {
    /// Sends.
    Sends = 0,
    /// READs, and their answers the other way.
    Reads = 1,
    /// Write-Records.
    Records = 2,
}

impl Space {
    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Sends,
            1 => Self::Reads,
            2 => Self::Records,
            _ => return None,
        })
    }
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct About {
    /// What it is numbered among.
    pub space: Space,
    /// Its number.
    pub number: u32,
}

/// Why a message was refused or given up. An unknown reason is kept for display.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ControlReason {
    /// No buffer was posted, or it was too short. Code 1.
    NoBuffer,
    /// No memory has the key, or it was revoked. Code 2.
    Key,
    /// The bytes are not all within the memory. Code 3.
    Bounds,
    /// The memory may not be used so. Code 4.
    Rights,
    /// The receiver has too many messages open. Code 5.
    Busy,
    /// The application gave it up. Code 6.
    Cancelled,
    /// Its time was over. Code 7.
    Deadline,
    /// A reason of a later version. Make it with [`ControlReason::from_code`].
    Other(u8),
}

impl ControlReason {
    /// The reason with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::NoBuffer,
            2 => Self::Key,
            3 => Self::Bounds,
            4 => Self::Rights,
            5 => Self::Busy,
            6 => Self::Cancelled,
            7 => Self::Deadline,
            other => Self::Other(other),
        }
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::NoBuffer => 1,
            Self::Key => 2,
            Self::Bounds => 3,
            Self::Rights => 4,
            Self::Busy => 5,
            Self::Cancelled => 6,
            Self::Deadline => 7,
            Self::Other(code) => code,
        }
    }
}

/// Ranges of bytes: to be written, or as they came.
#[derive(Clone, Copy, Debug)]
pub struct MissingRanges<'a>(Ranges<'a>);

#[derive(Clone, Copy, Debug)]
enum Ranges<'a> {
    Values(&'a [(u32, u32)]),
    /// Whole ranges.
    Bytes(&'a [u8]),
}

impl<'a> MissingRanges<'a> {
    /// The most that fit a packet by themselves.
    pub const MAX: usize = (CONTROL_BYTES_MAX - FRAME_HEADER_BYTES - NUMBER_BYTES) / RANGE_BYTES;

    /// These, as begin and end.
    #[must_use]
    pub const fn new(ranges: &'a [(u32, u32)]) -> Self {
        Self(Ranges::Values(ranges))
    }

    /// All of them. Nothing is said about their order, and they may be empty.
    pub fn iter(self) -> impl Iterator<Item = (u32, u32)> + 'a {
        let (values, bytes): (&[(u32, u32)], &[u8]) = match self.0 {
            Ranges::Values(values) => (values, &[]),
            Ranges::Bytes(bytes) => (&[], bytes),
        };
        let of_bytes =
            bytes.chunks_exact(RANGE_BYTES).map(|range| (word(range, 0), word(range, 4)));
        values.iter().copied().chain(of_bytes)
    }

    fn bytes(self) -> usize {
        match self.0 {
            Ranges::Values(values) => values.len() * RANGE_BYTES,
            Ranges::Bytes(bytes) => bytes.len(),
        }
    }
}

impl PartialEq for MissingRanges<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ControlFrame<'a> {
    /// A segment has come. What lies between its leaving and this is a round trip, and what came meanwhile a rate.
    Report {
        /// Its message.
        about: About,
        /// Its end in the message.
        end: u32,
        /// Payload that has come from this end in all, duplicates included, modulo 2^64.
        bytes: u64,
        /// How long the report waited, in microseconds.
        waited_us: u32,
    },
    /// A message was refused.
    Error {
        /// Which.
        about: About,
        /// Why.
        reason: ControlReason,
    },
    /// No more of a message will be sent.
    Cancel {
        /// Which.
        about: About,
        /// Why.
        reason: ControlReason,
    },
    /// All of every message up to this one was sent.
    Sent {
        /// The last of them.
        about: About,
    },
    /// Of a message these bytes have not come.
    Missing {
        /// Which.
        about: About,
        /// Which bytes.
        ranges: MissingRanges<'a>,
    },
    /// Every message up to this one has come.
    Done {
        /// The last of them.
        about: About,
    },
}

impl<'a> ControlFrame<'a> {
    /// The message that it names.
    #[must_use]
    pub const fn about(&self) -> About {
        match self {
            Self::Report { about, .. }
            | Self::Error { about, .. }
            | Self::Cancel { about, .. }
            | Self::Sent { about }
            | Self::Missing { about, .. }
            | Self::Done { about } => *about,
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Report { .. } => REPORT,
            Self::Error { .. } => ERROR,
            Self::Cancel { .. } => CANCEL,
            Self::Sent { .. } => SENT,
            Self::Missing { .. } => MISSING,
            Self::Done { .. } => DONE,
        }
    }

    fn rest_bytes(&self) -> usize {
        match self {
            Self::Report { .. } => 16,
            Self::Error { .. } | Self::Cancel { .. } => 1,
            Self::Sent { .. } | Self::Done { .. } => 0,
            Self::Missing { ranges, .. } => ranges.bytes(),
        }
    }

    /// Bytes that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        FRAME_HEADER_BYTES + NUMBER_BYTES + self.rest_bytes()
    }

    fn parse(kind: u8, space: u8, body: &'a [u8]) -> Option<Self> {
        let (number, rest) = body.split_first_chunk::<NUMBER_BYTES>()?;
        let about = About { space: Space::of(space)?, number: u32::from_be_bytes(*number) };
        let reason = || Some(ControlReason::from_code(*rest.first()?));
        Some(match kind {
            REPORT if rest.len() >= 16 => Self::Report {
                about,
                end: word(rest, 0),
                bytes: u64::from(word(rest, 4)) << 32 | u64::from(word(rest, 8)),
                waited_us: word(rest, 12),
            },
            ERROR => Self::Error { about, reason: reason()? },
            CANCEL => Self::Cancel { about, reason: reason()? },
            SENT => Self::Sent { about },
            MISSING => {
                let whole = rest.len() / RANGE_BYTES * RANGE_BYTES;
                Self::Missing { about, ranges: MissingRanges(Ranges::Bytes(&rest[..whole])) }
            }
            DONE => Self::Done { about },
            _ => return None,
        })
    }
}

/// Adds a frame to a payload; `false`, and nothing is added, if it would be longer than [`CONTROL_BYTES_MAX`].
pub fn emit_control(frame: &ControlFrame<'_>, out: &mut Vec<u8>) -> bool {
    if out.len() + frame.bytes() > CONTROL_BYTES_MAX {
        return false;
    }
    let about = frame.about();
    let body_bytes = (NUMBER_BYTES + frame.rest_bytes()) as u16;
    out.extend([frame.kind(), about.space as u8]);
    out.extend(body_bytes.to_be_bytes());
    out.extend(about.number.to_be_bytes());
    match frame {
        ControlFrame::Report { end, bytes, waited_us, .. } => {
            out.extend(end.to_be_bytes());
            out.extend(bytes.to_be_bytes());
            out.extend(waited_us.to_be_bytes());
        }
        ControlFrame::Error { reason, .. } | ControlFrame::Cancel { reason, .. } => {
            out.push(reason.code());
        }
        ControlFrame::Missing { ranges, .. } => {
            for (begin, end) in ranges.iter() {
                out.extend(begin.to_be_bytes());
                out.extend(end.to_be_bytes());
            }
        }
        ControlFrame::Sent { .. } | ControlFrame::Done { .. } => {}
    }
    true
}

/// The frames of a payload. It ends with an error at the first one that is cut off; those of unknown kinds, or with
/// bodies that cannot be read, are skipped.
#[derive(Clone, Debug)]
pub struct ControlFrames<'a> {
    rest: &'a [u8],
}

impl<'a> ControlFrames<'a> {
    /// Of a control segment's payload.
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { rest: payload }
    }
}

impl<'a> Iterator for ControlFrames<'a> {
    type Item = Result<ControlFrame<'a>, DdpError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let found = self.rest.len();
            let cut = |rest: &mut &[u8]| {
                *rest = &[];
                Some(Err(DdpError::Body { what: "a control frame", found }))
            };
            let Some(([kind, space, high, low], behind)) = self.rest.split_first_chunk() else {
                return cut(&mut self.rest);
            };
            let body_bytes = usize::from(u16::from_be_bytes([*high, *low]));
            let Some((body, rest)) = behind.split_at_checked(body_bytes) else {
                return cut(&mut self.rest);
            };
            self.rest = rest;
            if let Some(frame) = ControlFrame::parse(*kind, *space, body) {
                return Some(Ok(frame));
            }
        }
        None
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn about() -> impl Strategy<Value = About> {
        (0u8..3, any::<u32>())
            .prop_map(|(space, number)| About { space: Space::of(space).unwrap(), number })
    }

    fn read(payload: &[u8]) -> Vec<Result<ControlFrame<'_>, DdpError>> {
        ControlFrames::new(payload).collect()
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            abouts in (about(), about(), about(), about(), about(), about()),
            (end, bytes, waited_us, code) in any::<(u32, u64, u32, u8)>(),
            ranges in prop::collection::vec(any::<(u32, u32)>(), 0..20),
        ) {
            let reason = ControlReason::from_code(code);
            let frames = [
                ControlFrame::Report { about: abouts.0, end, bytes, waited_us },
                ControlFrame::Error { about: abouts.1, reason },
                ControlFrame::Cancel { about: abouts.2, reason },
                ControlFrame::Sent { about: abouts.3 },
                ControlFrame::Missing { about: abouts.4, ranges: MissingRanges::new(&ranges) },
                ControlFrame::Done { about: abouts.5 },
            ];
            let mut payload = Vec::new();
            for frame in &frames {
                let before = payload.len();
                prop_assert!(emit_control(frame, &mut payload));
                prop_assert_eq!(payload.len() - before, frame.bytes());
            }
            prop_assert_eq!(read(&payload), frames.map(Ok));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic_and_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let frames = read(&bytes);
            prop_assert!(frames.len() <= bytes.len() / FRAME_HEADER_BYTES + 1);
        }
    }

    #[test]
    fn unknown_frames_are_skipped_and_a_cut_one_is_the_end() {
        let mut payload = vec![99, 0, 0, 3, 1, 2, 3];
        let frame = ControlFrame::Sent { about: About { space: Space::Records, number: 5 } };
        assert!(emit_control(&frame, &mut payload));
        assert_eq!(read(&payload), [Ok(frame)]);
        payload.pop();
        let found = payload.len() - 7;
        assert_eq!(read(&payload), [Err(DdpError::Body { what: "a control frame", found })]);
    }

    #[test]
    fn no_more_is_written_than_a_packet_holds() {
        let ranges = vec![(1, 2); MissingRanges::MAX + 1];
        let about = About { space: Space::Sends, number: 1 };
        let frame = |ranges| ControlFrame::Missing { about, ranges: MissingRanges::new(ranges) };
        let mut payload = Vec::new();
        assert!(!emit_control(&frame(&ranges), &mut payload) && payload.is_empty());
        assert!(emit_control(&frame(&ranges[1..]), &mut payload));
        assert_eq!(payload.len(), CONTROL_BYTES_MAX);
    }
}
