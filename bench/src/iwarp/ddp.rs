//! DDP and RDMAP headers as RFC 5041 and RFC 5040 have them, for Sends and RDMA Writes on a connection.
//!
//! ```text
//! tagged    | T=1 L 0000 DV=01 | RV=01 00 0000 | STag 4 | offset 8 |                      RDMA Write
//! untagged  | T=0 L 0000 DV=01 | RV=01 00 0011 | 0 4 | queue 4 | number 4 | offset 4 |    Send
//! ```

/// Bytes of the headers of an untagged segment, the longer ones.
pub(super) const HEADER_BYTES_MAX: usize = 18;
const TAGGED_BYTES: usize = 14;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const DDP_VERSION: u8 = 1;
const RDMAP_VERSION: u8 = 0x40;
const WRITE: u8 = 0x0;
const SEND: u8 = 0x3;
/// The queue of Sends.
const SENDS: u32 = 0;

/// What a segment is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// A Send: its message's number, from 1, and the offset in it.
    Send { number: u32, offset: u32 },
    /// An RDMA Write: the peer's memory, and the offset there.
    Write { stag: u32, offset: u64 },
}

/// Headers of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) place: Place,
    /// The last one of its message.
    pub(super) is_last: bool,
}

impl Header {
    pub(super) fn len(self) -> usize {
        match self.place {
            Place::Send { .. } => HEADER_BYTES_MAX,
            Place::Write { .. } => TAGGED_BYTES,
        }
    }

    /// Writes it to the front of `out`; how many bytes.
    pub(super) fn emit(self, out: &mut [u8; HEADER_BYTES_MAX]) -> usize {
        let last = if self.is_last { LAST } else { 0 };
        match self.place {
            Place::Send { number, offset } => {
                out[..2].copy_from_slice(&[last | DDP_VERSION, RDMAP_VERSION | SEND]);
                out[2..6].fill(0);
                out[6..10].copy_from_slice(&SENDS.to_be_bytes());
                out[10..14].copy_from_slice(&number.to_be_bytes());
                out[14..18].copy_from_slice(&offset.to_be_bytes());
            }
            Place::Write { stag, offset } => {
                out[..2].copy_from_slice(&[TAGGED | last | DDP_VERSION, RDMAP_VERSION | WRITE]);
                out[2..6].copy_from_slice(&stag.to_be_bytes());
                out[6..14].copy_from_slice(&offset.to_be_bytes());
            }
        }
        self.len()
    }

    /// Reads it; `None` if it is another operation, another version or too short.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (&ddp, &rdmap) = (bytes.first()?, bytes.get(1)?);
        let is_last = ddp & LAST != 0;
        let place = match (ddp & !LAST, rdmap) {
            (first, second) if (first, second) == (TAGGED | DDP_VERSION, RDMAP_VERSION | WRITE) => {
                let offset = u64::from(word(6)?) << 32 | u64::from(word(10)?);
                Place::Write { stag: word(2)?, offset }
            }
            (DDP_VERSION, second) if second == RDMAP_VERSION | SEND && word(6)? == SENDS => {
                Place::Send { number: word(10)?, offset: word(14)? }
            }
            _ => return None,
        };
        Some(Self { place, is_last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_the_layout_of_the_standards() {
        let send = Header { place: Place::Send { number: 0x0102_0304, offset: 7 }, is_last: true };
        let mut out = [0xa5; HEADER_BYTES_MAX];
        assert_eq!(send.emit(&mut out), 18);
        assert_eq!(out, [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 7]);
        assert_eq!(Header::parse(&out), Some(send));
        let place = Place::Write { stag: 0x0a0b_0c0d, offset: 0x0102_0304_0506_0708 };
        let write = Header { place, is_last: false };
        assert_eq!(write.emit(&mut out), 14);
        assert_eq!(out[..14], [0x81, 0x40, 10, 11, 12, 13, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Header::parse(&out[..14]), Some(write));
        assert_eq!(Header::parse(&out[..13]), None);
        out[1] = 0x41;
        assert_eq!(Header::parse(&out), None, "a READ request");
    }
}
