//! Path challenge and its response: whether packets to an address reach the peer (RFC 9000, 8.2).
//!
//! A challenge is sent to the address in question and nowhere else, with a value that nobody can guess.
//! Whoever answers with the value has received it.
//!
//! ```text
//! challenge:  | value 8 |
//! response:   | value 8 |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};

/// Asks for a [`PathResponse`], sent to where this comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathChallenge {
    /// What the response has to say.
    pub value: u64,
}

/// Answers a [`PathChallenge`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathResponse {
    /// The challenge's value, unchanged.
    pub value: u64,
}

impl PathChallenge {
    /// Bytes of payload.
    pub const BYTES: usize = 8;

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u64(self.value);
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { value: payload.u64()? })
    }
}

impl PathResponse {
    /// Bytes of payload.
    pub const BYTES: usize = 8;

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u64(self.value);
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { value: payload.u64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::test::{assert_bytes, assert_only_whole};
    use crate::frame::{Frame, FrameKind};

    #[test]
    fn bytes() {
        let (value, payload) = (0x0102_0304_0506_0708, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_bytes(&Frame::PathChallenge(PathChallenge { value }), &payload);
        assert_only_whole(FrameKind::PathChallenge, &payload);
        assert_bytes(&Frame::PathResponse(PathResponse { value }), &payload);
        assert_only_whole(FrameKind::PathResponse, &payload);
    }
}
