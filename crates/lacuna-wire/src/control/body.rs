//! Decoder of a control packet's body: a sequence number, then frames to the end.

use std::iter::FusedIterator;

use super::{BODY_HEADER_BYTES, CONTROL_VERSION, field};
use crate::{Frame, FrameError};

/// A body of the right version. Its frames are decoded during iteration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ControlBody<'a> {
    /// Counts the sender's control packets. Of two bodies, the one with the later sequence has the
    /// newer state.
    pub sequence: u32,
    frames: &'a [u8],
}

impl<'a> ControlBody<'a> {
    /// Reads the fixed part.
    ///
    /// # Errors
    /// When the body is too short or of another version.
    pub fn parse(body: &'a [u8]) -> Result<Self, FrameError> {
        let Some((header, frames)) = body.split_first_chunk::<BODY_HEADER_BYTES>() else {
            return Err(FrameError::BodyTooShort { needed: BODY_HEADER_BYTES, found: body.len() });
        };
        let version = header[field::VERSION];
        if version != CONTROL_VERSION {
            return Err(FrameError::Version { found: version });
        }
        let sequence = header[field::SEQUENCE].try_into().expect("a sequence has four bytes");
        Ok(Self { sequence: u32::from_be_bytes(sequence), frames })
    }

    /// The frames in order; an error is the last item.
    #[must_use]
    pub fn frames(&self) -> FrameIter<'a> {
        FrameIter { rest: self.frames }
    }
}

/// The frames of a [`ControlBody`].
///
/// Ends for any input: each frame takes at least the bytes of its header, and an error takes all
/// that is left.
#[derive(Clone, Debug)]
pub struct FrameIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for FrameIter<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            match Frame::take(&mut self.rest) {
                Ok(Some(frame)) => return Some(Ok(frame)),
                Ok(None) => {}
                Err(error) => {
                    self.rest = &[];
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl FusedIterator for FrameIter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cancel, CancelReason};

    const CANCEL: [u8; 13] = [7, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 3, 1];

    fn frames(parts: &[&[u8]]) -> Vec<Result<String, FrameError>> {
        let body = [&[1, 0, 0, 0, 0, 0, 0, 5], &parts.concat()[..]].concat();
        let body = ControlBody::parse(&body).unwrap();
        assert_eq!(body.sequence, 5);
        body.frames().map(|frame| frame.map(|frame| frame.kind().to_string())).collect()
    }

    #[test]
    fn a_body_without_frames_is_a_body() {
        assert_eq!(frames(&[]), []);
    }

    #[test]
    fn skippable_frames_do_not_show() {
        let unknown = [0xff, 0, 0, 1, 0];
        assert_eq!(frames(&[&unknown, &CANCEL, &unknown]), [Ok("cancel".to_owned())]);
    }

    #[test]
    fn frames_before_an_error_stand_and_those_behind_it_do_not() {
        let unknown = [0x40, 0, 0, 1, 0];
        let error = FrameError::UnknownKind { code: 0x40 };
        assert_eq!(frames(&[&CANCEL, &unknown, &CANCEL]), [Ok("cancel".to_owned()), Err(error)]);
    }

    #[test]
    fn fixed_part_is_checked() {
        let parse = |body| ControlBody::parse(body).unwrap_err();
        assert_eq!(parse(&[1; 7]), FrameError::BodyTooShort { needed: 8, found: 7 });
        assert_eq!(parse(&[2; 8]), FrameError::Version { found: 2 });
    }

    #[test]
    fn reserved_bytes_are_ignored() {
        let mut body = [&[1, 9, 9, 9, 0, 0, 0, 5], &CANCEL[..]].concat();
        body[9] = 0xee;
        let frames: Vec<_> = ControlBody::parse(&body).unwrap().frames().collect();
        let cancel = Cancel { message: 3, reason: CancelReason::Cancelled };
        assert_eq!(frames, [Ok(Frame::Cancel(cancel))]);
    }
}
