//! Read: asks the peer to write a part of one of its regions into one of this end's. ReadRefused: it will
//! not.
//!
//! The answer to a read is an ordinary write, so it needs no frame. A read that was not begun is asked for
//! again, with the same number, and is answered once.
//!
//! ```text
//! Read:        | id 8 | key 4 | address 8 | length 8 | sink key 4 | sink address 8 | time left 4 |
//! ReadRefused: | id 8 | why 1 |
//! ```

use super::FrameError;
use super::cursor::{Reader, Writer};

/// A request to read.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Read {
    /// Number of the request, counted up from 1 in each direction.
    pub id: u64,
    /// Key of the region to read.
    pub key: u32,
    /// Where, from the start of the key's range.
    pub address: u64,
    /// How many bytes.
    pub length: u64,
    /// Key of the region that they are written to.
    pub sink_key: u32,
    /// Where, from the start of that key's range.
    pub sink_address: u64,
    /// Time in which the answer is of use, in microseconds; 0 is no limit.
    pub left_us: u32,
}

/// A read that is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadRefused {
    /// Number of the request.
    pub id: u64,
    /// Why.
    pub why: ReadRefusal,
}

/// Why a read is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReadRefusal {
    /// The key is unknown, was revoked, or does not allow it. Code 1.
    Key,
    /// The place is outside of the key's range. Code 2.
    Range,
    /// It is longer than one answer may be. Code 3.
    TooLong,
    /// The peer writes nothing to regions any more. Code 4.
    Unable,
    /// A reason of a later version. Make it with [`ReadRefusal::from_code`], which never returns it for
    /// a known code.
    Other(u8),
}

impl ReadRefusal {
    /// The reason with this code.
    #[must_use]
    pub const fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Key,
            2 => Self::Range,
            3 => Self::TooLong,
            4 => Self::Unable,
            other => Self::Other(other),
        }
    }

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Key => 1,
            Self::Range => 2,
            Self::TooLong => 3,
            Self::Unable => 4,
            Self::Other(code) => code,
        }
    }
}

impl Read {
    /// Bytes of payload.
    pub const BYTES: usize = 44;

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u64(self.id);
        out.u32(self.key);
        out.u64(self.address);
        out.u64(self.length);
        out.u32(self.sink_key);
        out.u64(self.sink_address);
        out.u32(self.left_us);
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self {
            id: payload.u64()?,
            key: payload.u32()?,
            address: payload.u64()?,
            length: payload.u64()?,
            sink_key: payload.u32()?,
            sink_address: payload.u64()?,
            left_us: payload.u32()?,
        })
    }
}

impl ReadRefused {
    /// Bytes of payload.
    pub const BYTES: usize = 9;

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        out.u64(self.id);
        out.u8(self.why.code());
    }

    pub(super) fn parse(payload: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self { id: payload.u64()?, why: ReadRefusal::from_code(payload.u8()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::test::{assert_bytes, assert_only_whole};
    use crate::frame::{Frame, FrameKind};

    #[test]
    fn bytes() {
        let payload: Vec<u8> = (1..=44).collect();
        let read = Read {
            id: 0x0102_0304_0506_0708,
            key: 0x090A_0B0C,
            address: 0x0D0E_0F10_1112_1314,
            length: 0x1516_1718_191A_1B1C,
            sink_key: 0x1D1E_1F20,
            sink_address: 0x2122_2324_2526_2728,
            left_us: 0x292A_2B2C,
        };
        assert_bytes(&Frame::Read(read), &payload);
        assert_only_whole(FrameKind::Read, &payload);
        let refused = ReadRefused { id: 0x0102_0304_0506_0708, why: ReadRefusal::Range };
        assert_bytes(&Frame::ReadRefused(refused), &[1, 2, 3, 4, 5, 6, 7, 8, 2]);
        assert_only_whole(FrameKind::ReadRefused, &[1, 2, 3, 4, 5, 6, 7, 8, 2]);
    }

    #[test]
    fn reasons_keep_their_code() {
        for code in 0..=u8::MAX {
            assert_eq!(ReadRefusal::from_code(code).code(), code);
        }
    }
}
