//! What a READ asks for: the RDMA Read Request Header (RFC 5040, section 4.4), and the time that is left.
//!
//! ```text
//! | sink STag 4 | sink offset 8 | bytes 4 | source STag 4 | source offset 8 | time left 4 |
//! ```
//!
//! The answer is a Write-Record to the sink. The time is what the asker still waits, in microseconds, at most; 0
//! is no limit. What comes later is of no use, so it is not sent. RFC 5040 has no such field.

use super::DdpError;

/// Bytes of a request.
pub const READ_REQUEST_BYTES: usize = 32;

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadRequest {
    /// Key of the asker's memory.
    pub sink_stag: u32,
    /// Where the first byte goes there.
    pub sink_offset: u64,
    /// How many.
    pub length: u32,
    /// Key of the memory that is read.
    pub source_stag: u32,
    /// Where the first byte is there.
    pub source_offset: u64,
    /// How long the asker waits, in microseconds; 0 is no limit.
    pub time_left_us: u32,
}

impl ReadRequest {
    /// The payload of the request.
    #[must_use]
    pub fn emit(&self) -> [u8; READ_REQUEST_BYTES] {
        let mut out = [0; READ_REQUEST_BYTES];
        out[..4].copy_from_slice(&self.sink_stag.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        out[12..16].copy_from_slice(&self.length.to_be_bytes());
        out[16..20].copy_from_slice(&self.source_stag.to_be_bytes());
        out[20..28].copy_from_slice(&self.source_offset.to_be_bytes());
        out[28..].copy_from_slice(&self.time_left_us.to_be_bytes());
        out
    }

    /// Reads the payload of a request.
    ///
    /// # Errors
    /// When it is not as long as a request.
    pub fn parse(payload: &[u8]) -> Result<Self, DdpError> {
        let Ok(bytes) = <&[u8; READ_REQUEST_BYTES]>::try_from(payload) else {
            return Err(DdpError::Body { what: "a READ request", found: payload.len() });
        };
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"));
        let double = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight"));
        Ok(Self {
            sink_stag: word(0),
            sink_offset: double(4),
            length: word(12),
            source_stag: word(16),
            source_offset: double(20),
            time_left_us: word(28),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_that_of_the_standard_with_the_time_behind_it() {
        let request = ReadRequest {
            sink_stag: 0x0102_0304,
            sink_offset: 0x1112_1314_1516_1718,
            length: 0x2122_2324,
            source_stag: 0x3132_3334,
            source_offset: 0x4142_4344_4546_4748,
            time_left_us: 0x5152_5354,
        };
        let bytes = request.emit();
        let expected: Vec<u8> =
            [0x01..=0x04, 0x11..=0x18, 0x21..=0x24, 0x31..=0x34, 0x41..=0x48, 0x51..=0x54]
                .into_iter()
                .flatten()
                .collect();
        assert_eq!(bytes[..], expected);
        assert_eq!(ReadRequest::parse(&bytes), Ok(request));
        for found in (0..64).filter(|found| *found != READ_REQUEST_BYTES) {
            let error = DdpError::Body { what: "a READ request", found };
            assert_eq!(ReadRequest::parse(&vec![0; found]), Err(error));
        }
    }
}
