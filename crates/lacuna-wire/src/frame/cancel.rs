//! Cancel: the sender has given up a message and will not send the rest.
//!
//! ```text
//! | message 8 | reason 1 |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};

/// A message was given up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cancel {
    /// The message, counted from the start of the queue pair.
    pub message: u64,
    /// Why.
    pub reason: CancelReason,
}

/// Why a message was given up. Only for display, so an unknown reason is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CancelReason {
    /// The application cancelled it. Code 1.
    Cancelled,
    /// The deadline of the message passed. Code 2.
    Deadline,
    /// A reason of a later version. Make it with [`CancelReason::from_code`], which never returns
    /// it for a known code.
    Other(u8),
}

impl CancelReason {
    /// The reason with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Cancelled,
            2 => Self::Deadline,
            other => Self::Other(other),
        }
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Cancelled => 1,
            Self::Deadline => 2,
            Self::Other(code) => code,
        }
    }
}

impl Cancel {
    /// Bytes of payload.
    pub const BYTES: usize = 9;

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u64(self.message);
        out.u8(self.reason.code());
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { message: payload.u64()?, reason: CancelReason::from_code(payload.u8()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::test::{assert_bytes, assert_only_whole};
    use crate::frame::{Frame, FrameKind};

    #[test]
    fn bytes() {
        let payload = [1, 2, 3, 4, 5, 6, 7, 8, 2];
        let reason = CancelReason::Deadline;
        assert_bytes(&Frame::Cancel(Cancel { message: 0x0102_0304_0506_0708, reason }), &payload);
        assert_only_whole(FrameKind::Cancel, &payload);
    }

    #[test]
    fn reasons_keep_their_code() {
        for code in 0..=u8::MAX {
            assert_eq!(CancelReason::from_code(code).code(), code);
        }
    }
}
