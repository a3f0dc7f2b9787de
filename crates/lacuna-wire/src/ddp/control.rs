//! What the ends say about messages: the payload of control segments.
//!
//! ```text
//! frame   | kind 1 | space 1 | bytes of the body 2 | number 4 | rest of the body |
//! ```
//!
//! A payload is frames, one behind the other. A message is named by its *space* (Sends, READs and their answers,
//! Write-Records, all that is sent reliably, Sends or Write-Records to a group), and its number in it. Frames of unknown kinds are skipped, so
//! later versions may add some. Nothing here is a promise: a frame may be lost, repeated or forged, so each
//! carries state, never a change of it.
//!
//! | kind | | rest of the body |
//! |---|---|---|
//! | 1 | report: so many bytes have come in all; the number is the probe's | bytes 8, microseconds that the report waited 4 |
//! | 2 | error: the message was refused | reason 1 |
//! | 3 | cancel: no more of the message will be sent | reason 1, key that its segments name, or 0 4 |
//! | 4 | sent: all of every message up to this number was sent | group, or 0 4 |
//! | 5 | missing: of the message these bytes have not come | ranges: begin 4, end 4, each |
//! | 6 | begin: this is the first message that is sent reliably | instance 4, token 8 |
//! | 7 | ask: where did the messages begin that are sent reliably? | instance that is known, or 0 4, token 8 |
//! | 8 | acknowledge: every message before this one has come, and more | instance 4, record 4, horizon 8, latest 8, bytes 8, microseconds 4; missing: from 8, to 8, each |
//! | 9 | probe: a report is wanted | bytes that were sent in all 8, 0 4 |
//!
//! The messages that are sent reliably to one peer are a line of *positions*: a number and a place in that message,
//! 4 and 4 bytes. An acknowledgement speaks of everything before its horizon: it has come, but for what is listed
//! as missing. Its latest is where the segment begins that came last.

use super::DdpError;

/// Most bytes of frames in a packet.
pub const CONTROL_BYTES_MAX: usize = 1024;

const FRAME_HEADER_BYTES: usize = 4;
const NUMBER_BYTES: usize = 4;
const WORD_BYTES: usize = 4;
const ACKNOWLEDGE_BYTES: usize = 36;

const REPORT: u8 = 1;
const ERROR: u8 = 2;
const CANCEL: u8 = 3;
const SENT: u8 = 4;
const MISSING: u8 = 5;
const BEGIN: u8 = 6;
const ASK: u8 = 7;
const ACKNOWLEDGE: u8 = 8;
const PROBE: u8 = 9;

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
    /// All messages that are sent reliably, of whatever kind.
    Reliable = 3,
    /// Sends to a group. Numbers begin at random, so they say which group, too.
    GroupSends = 4,
    /// Write-Records to a group.
    GroupRecords = 5,
}

impl Space {
    const fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Sends,
            1 => Self::Reads,
            2 => Self::Records,
            3 => Self::Reliable,
            4 => Self::GroupSends,
            5 => Self::GroupRecords,
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

/// A byte in the line of messages that are sent reliably, or the place before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Position {
    /// Number of the message.
    pub number: u32,
    /// Where in it. The end of a message is the beginning of the next.
    pub place: u32,
}

/// Ranges of bytes of a message: begin and end.
pub type MissingRanges<'a> = Rows<'a, 2>;
/// Stretches of the line of messages: number and place of the begin, number and place of the end.
pub type MissingStretches<'a> = Rows<'a, 4>;

/// Rows of so many words each: to be written, or as they came. Nothing is said about their order.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, const WORDS: usize>(List<'a, WORDS>);

#[derive(Clone, Copy, Debug)]
enum List<'a, const WORDS: usize> {
    Values(&'a [[u32; WORDS]]),
    /// Whole rows.
    Bytes(&'a [u8]),
}

impl<'a, const WORDS: usize> Rows<'a, WORDS> {
    /// The most that fit a packet in one frame, by themselves.
    pub const MAX: usize = {
        let fixed = if WORDS == 4 { ACKNOWLEDGE_BYTES } else { 0 };
        (CONTROL_BYTES_MAX - FRAME_HEADER_BYTES - NUMBER_BYTES - fixed) / (WORDS * WORD_BYTES)
    };

    /// These.
    #[must_use]
    pub const fn new(rows: &'a [[u32; WORDS]]) -> Self {
        Self(List::Values(rows))
    }

    fn parse(rest: &'a [u8]) -> Self {
        let row_bytes = WORDS * WORD_BYTES;
        Self(List::Bytes(&rest[..rest.len() / row_bytes * row_bytes]))
    }

    /// All of them.
    pub fn iter(self) -> impl Iterator<Item = [u32; WORDS]> + 'a {
        let (values, bytes): (&[[u32; WORDS]], &[u8]) = match self.0 {
            List::Values(values) => (values, &[]),
            List::Bytes(bytes) => (&[], bytes),
        };
        let of_bytes = bytes
            .chunks_exact(WORDS * WORD_BYTES)
            .map(|row| std::array::from_fn(|at| word(row, at * WORD_BYTES)));
        values.iter().copied().chain(of_bytes)
    }

    fn bytes(self) -> usize {
        match self.0 {
            List::Values(rows) => rows.len() * WORDS * WORD_BYTES,
            List::Bytes(bytes) => bytes.len(),
        }
    }

    fn emit(self, out: &mut Vec<u8>) {
        self.iter().flatten().for_each(|word| out.extend(word.to_be_bytes()));
    }
}

impl<const WORDS: usize> PartialEq for Rows<'_, WORDS> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ControlFrame<'a> {
    /// How much has come. What lies between its probe and this is a round trip, and what came meanwhile a rate.
    Report {
        /// The number is the probe's; the space says nothing.
        about: About,
        /// Payload that has come from this end in all, duplicates included, modulo 2^64.
        bytes: u64,
        /// How long the report waited, in microseconds.
        waited_us: u32,
    },
    /// The source wants a report.
    Probe {
        /// The number is the probe's; the space says nothing.
        about: About,
        /// Payload that was sent to this end in all, modulo 2^64.
        bytes: u64,
        /// 0. A report must not be longer than its question.
        unused: u32,
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
        /// The key that its segments name: the sink of an answer; 0 of Sends.
        key: u32,
    },
    /// All of every message up to this one was sent.
    Sent {
        /// The last of them.
        about: About,
        /// The group that they were for; 0 if there is none.
        group: u32,
    },
    /// Of a message these bytes have not come.
    Missing {
        /// Which.
        about: About,
        /// Which bytes.
        ranges: MissingRanges<'a>,
    },
    /// The messages that are sent reliably begin with this one.
    Begin {
        /// The first of them.
        about: About,
        /// Random: which beginning this is, if the source has begun more than once.
        instance: u32,
        /// That of the question; 0 if there was none.
        token: u64,
    },
    /// The source is to say where its reliable messages begin, with this token.
    Ask {
        /// The message that came without.
        about: About,
        /// The beginning that is known of it; 0 if there is none.
        instance: u32,
        /// To be given back: the source is there, and means it.
        token: u64,
    },
    /// Every reliable message before this one has come, and what else.
    Acknowledge {
        /// The first of which something is missing.
        about: About,
        /// Which beginning it is about.
        instance: u32,
        /// Random: changes if the receiver has lost what it knew of what has come.
        record: u32,
        /// Everything before this has come but for what is missing.
        horizon: Position,
        /// Where the segment begins that came last.
        latest: Position,
        /// Payload that has come from this end in all, duplicates included, modulo 2^64.
        bytes: u64,
        /// How long this waited since that segment came, in microseconds.
        waited_us: u32,
        /// What is missing before the horizon.
        missing: MissingStretches<'a>,
    },
}

impl<'a> ControlFrame<'a> {
    /// The message that it names.
    #[must_use]
    pub const fn about(&self) -> About {
        match self {
            Self::Report { about, .. }
            | Self::Probe { about, .. }
            | Self::Error { about, .. }
            | Self::Cancel { about, .. }
            | Self::Sent { about, .. }
            | Self::Missing { about, .. }
            | Self::Begin { about, .. }
            | Self::Ask { about, .. }
            | Self::Acknowledge { about, .. } => *about,
        }
    }

    const fn kind(&self) -> u8 {
        match self {
            Self::Report { .. } => REPORT,
            Self::Probe { .. } => PROBE,
            Self::Error { .. } => ERROR,
            Self::Cancel { .. } => CANCEL,
            Self::Sent { .. } => SENT,
            Self::Missing { .. } => MISSING,
            Self::Begin { .. } => BEGIN,
            Self::Ask { .. } => ASK,
            Self::Acknowledge { .. } => ACKNOWLEDGE,
        }
    }

    fn rest_bytes(&self) -> usize {
        match self {
            Self::Report { .. } | Self::Probe { .. } => 12,
            Self::Error { .. } => 1,
            Self::Cancel { .. } => 5,
            Self::Sent { .. } => 4,
            Self::Missing { ranges, .. } => ranges.bytes(),
            Self::Begin { .. } | Self::Ask { .. } => 12,
            Self::Acknowledge { missing, .. } => ACKNOWLEDGE_BYTES + missing.bytes(),
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
        let position = |at: usize| Position { number: word(rest, at), place: word(rest, at + 4) };
        Some(match kind {
            REPORT if rest.len() >= 12 => {
                Self::Report { about, bytes: long(rest, 0), waited_us: word(rest, 8) }
            }
            PROBE if rest.len() >= 12 => {
                Self::Probe { about, bytes: long(rest, 0), unused: word(rest, 8) }
            }
            ERROR => Self::Error { about, reason: reason()? },
            CANCEL if rest.len() >= 5 => {
                Self::Cancel { about, reason: reason()?, key: word(rest, 1) }
            }
            SENT if rest.len() >= 4 => Self::Sent { about, group: word(rest, 0) },
            MISSING => Self::Missing { about, ranges: Rows::parse(rest) },
            BEGIN | ASK if rest.len() >= 12 => {
                let (instance, token) = (word(rest, 0), long(rest, 4));
                match kind {
                    BEGIN => Self::Begin { about, instance, token },
                    _ => Self::Ask { about, instance, token },
                }
            }
            ACKNOWLEDGE => {
                let missing = Rows::parse(rest.get(ACKNOWLEDGE_BYTES..)?);
                Self::Acknowledge {
                    about,
                    instance: word(rest, 0),
                    record: word(rest, 4),
                    horizon: position(8),
                    latest: position(16),
                    bytes: long(rest, 24),
                    waited_us: word(rest, 32),
                    missing,
                }
            }
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
        ControlFrame::Report { bytes, waited_us: word, .. }
        | ControlFrame::Probe { bytes, unused: word, .. } => {
            out.extend(bytes.to_be_bytes());
            out.extend(word.to_be_bytes());
        }
        ControlFrame::Error { reason, .. } => out.push(reason.code()),
        ControlFrame::Cancel { reason, key, .. } => {
            out.push(reason.code());
            out.extend(key.to_be_bytes());
        }
        ControlFrame::Missing { ranges, .. } => ranges.emit(out),
        ControlFrame::Begin { instance, token, .. } | ControlFrame::Ask { instance, token, .. } => {
            out.extend(instance.to_be_bytes());
            out.extend(token.to_be_bytes());
        }
        ControlFrame::Acknowledge {
            instance,
            record,
            horizon,
            latest,
            bytes,
            waited_us,
            missing,
            ..
        } => {
            out.extend(instance.to_be_bytes());
            out.extend(record.to_be_bytes());
            for position in [horizon, latest] {
                out.extend(position.number.to_be_bytes());
                out.extend(position.place.to_be_bytes());
            }
            out.extend(bytes.to_be_bytes());
            out.extend(waited_us.to_be_bytes());
            missing.emit(out);
        }
        ControlFrame::Sent { group, .. } => out.extend(group.to_be_bytes()),
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

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) << 32 | u64::from(word(bytes, at + 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn about() -> impl Strategy<Value = About> {
        (0u8..6, any::<u32>())
            .prop_map(|(space, number)| About { space: Space::of(space).unwrap(), number })
    }

    fn read(payload: &[u8]) -> Vec<Result<ControlFrame<'_>, DdpError>> {
        ControlFrames::new(payload).collect()
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            abouts in prop::array::uniform9(about()),
            (unused, bytes, waited_us, code) in any::<(u32, u64, u32, u8)>(),
            (instance, key, place) in any::<(u32, u32, u32)>(),
            ranges in prop::collection::vec(any::<[u32; 2]>(), 0..20),
            stretches in prop::collection::vec(any::<[u32; 4]>(), 0..20),
        ) {
            let reason = ControlReason::from_code(code);
            let [horizon, latest] = [1, 2].map(|at| Position { number: key ^ at, place: place ^ at });
            let (missing, token) = (Rows::new(&stretches), bytes.rotate_left(9));
            let frames = [
                ControlFrame::Report { about: abouts[0], bytes, waited_us },
                ControlFrame::Probe { about: abouts[8], bytes, unused },
                ControlFrame::Error { about: abouts[1], reason },
                ControlFrame::Cancel { about: abouts[2], reason, key },
                ControlFrame::Sent { about: abouts[3], group: key },
                ControlFrame::Missing { about: abouts[4], ranges: Rows::new(&ranges) },
                ControlFrame::Begin { about: abouts[5], instance, token },
                ControlFrame::Ask { about: abouts[6], instance, token },
                ControlFrame::Acknowledge {
                    about: abouts[7], instance, record: key, horizon, latest, bytes, waited_us, missing,
                },
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
        let about = About { space: Space::Records, number: 5 };
        let frame = ControlFrame::Sent { about, group: 0 };
        assert!(emit_control(&frame, &mut payload));
        assert_eq!(read(&payload), [Ok(frame)]);
        payload.pop();
        let found = payload.len() - 7;
        assert_eq!(read(&payload), [Err(DdpError::Body { what: "a control frame", found })]);
    }

    #[test]
    fn no_more_is_written_than_a_packet_holds() {
        let ranges = vec![[1, 2]; MissingRanges::MAX + 1];
        let about = About { space: Space::Sends, number: 1 };
        let frame = |ranges| ControlFrame::Missing { about, ranges: MissingRanges::new(ranges) };
        let mut payload = Vec::new();
        assert!(!emit_control(&frame(&ranges), &mut payload) && payload.is_empty());
        assert!(emit_control(&frame(&ranges[1..]), &mut payload));
        assert_eq!(payload.len(), CONTROL_BYTES_MAX);
        let (place, stretches) = (Position::default(), vec![[1; 4]; MissingStretches::MAX]);
        let frame = ControlFrame::Acknowledge {
            about,
            instance: 1,
            record: 2,
            horizon: place,
            latest: place,
            bytes: 2,
            waited_us: 3,
            missing: Rows::new(&stretches),
        };
        assert!(emit_control(&frame, &mut Vec::new()));
    }
}
