//! Errors in a control packet's body.
//!
//! The trailer matched, so nothing was damaged: the peer is a later version, faulty or malicious,
//! and a retry does not help. Frames before the bad one are valid.

use std::fmt;

use thiserror::Error;

use super::FrameKind;
use crate::{CHANNELS_MAX, CONTROL_VERSION};

/// What is wrong with a body or a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum FrameError {
    /// The body is shorter than its fixed part.
    #[error("control body of {found} bytes is shorter than its {needed} bytes of header")]
    BodyTooShort {
        /// Bytes of the fixed part.
        needed: usize,
        /// Bytes of body.
        found: usize,
    },
    /// The body is of another version.
    #[error("control body has version {found}, not {CONTROL_VERSION}")]
    Version {
        /// The version of the body.
        found: u8,
    },
    /// 1 to 3 bytes are left, too few for a frame header.
    #[error("{found} bytes after the last control frame are not a frame header")]
    HeaderTruncated {
        /// Bytes left: 1 to 3.
        found: usize,
    },
    /// A frame claims to be longer than the rest of the body.
    #[error("control frame of type {code:#04x} announces {announced} bytes, {found} are left")]
    Truncated {
        /// The frame's type.
        code: u8,
        /// The length it announces.
        announced: usize,
        /// Bytes left after its header.
        found: usize,
    },
    /// A frame of an unknown type that is not marked as skippable.
    #[error("control frame of unknown type {code:#04x} must not be skipped")]
    UnknownKind {
        /// The frame's type.
        code: u8,
    },
    /// A frame's fields do not end where its payload ends.
    #[error("{frame} frame's fields do not make up its {found} bytes of payload")]
    Length {
        /// Which frame.
        frame: FrameKind,
        /// Bytes of payload.
        found: usize,
    },
    /// A frame has entries for too many channels.
    #[error("{frame} frame has entries for {found} channels, more than {CHANNELS_MAX}")]
    TooManyChannels {
        /// Which frame.
        frame: FrameKind,
        /// Entries in its payload.
        found: usize,
    },
    /// A frame has a channel number out of range.
    #[error("{frame} frame names channel {found}, not one below {CHANNELS_MAX}")]
    Channel {
        /// Which frame.
        frame: FrameKind,
        /// The channel number.
        found: u8,
    },
}

impl fmt::Display for FrameKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
