//! Receives: which receives are posted, how long they are, and which are finished.
//!
//! Both clear-to-send and completion: the posted receives are the sender's window, and a slot is
//! free for the next message once its receive is finished. Messages are counted from the start of
//! the queue pair and never wrap, so an old frame is never misread.
//!
//! ```text
//! | base 8 | posted 8 | failed_from 8 | finished, bytes 2 | failed, entries 2 |
//! | finished bitmap | failed, 8 each | runs, 13 each, to the end of the payload |
//! ```

use super::cursor::{Reader, Writer};
use super::{Entry, FrameError, RunList, U64List};

/// The state of the receives of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Receives<'a> {
    /// Every message before this one is finished.
    pub base: u64,
    /// Receives posted so far: messages `base..posted` are open, or finished out of order.
    pub posted: u64,
    /// Bit `i`, least significant first, is set if message `base + i` is finished.
    pub finished: &'a [u8],
    /// From this message on [`failed`](Self::failed) is complete: a finished message that is not in
    /// it arrived whole. Earlier messages are not described.
    pub failed_from: u64,
    /// Messages that finished incomplete.
    pub failed: U64List<'a>,
    /// Capacities of messages `base..posted`, in order. May cover only the first of them.
    pub runs: RunList<'a>,
}

/// Consecutive messages whose receives have equal capacity.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Run {
    /// Number of messages.
    pub count: u32,
    /// Capacity of each, in bytes.
    pub capacity_bytes: u64,
    /// These messages belong to the same receive as the message before them: a receive longer than
    /// a slot allows is several messages.
    pub continues: bool,
}

impl<'a> Receives<'a> {
    /// Payload bytes before the bitmap and the lists.
    pub const FIXED_BYTES: usize = 28;

    pub(super) fn bytes(&self) -> usize {
        Self::FIXED_BYTES + self.finished.len() + self.failed.bytes() + self.runs.bytes()
    }

    pub(super) fn emit(&self, out: &mut Writer<'_>) {
        // Both counts fit: they are parts of a payload with a 16-bit length.
        let short = |count| u16::try_from(count).expect("a part of a frame is not longer than it");
        out.u64(self.base);
        out.u64(self.posted);
        out.u64(self.failed_from);
        out.u16(short(self.finished.len()));
        out.u16(short(self.failed.len()));
        out.bytes(self.finished);
        self.failed.emit(out);
        self.runs.emit(out);
    }

    pub(super) fn parse(payload: &mut Reader<'a>) -> Result<Self, FrameError> {
        let base = payload.u64()?;
        let posted = payload.u64()?;
        let failed_from = payload.u64()?;
        let finished_bytes = payload.u16()?;
        let failed_entries = payload.u16()?;
        Ok(Self {
            base,
            posted,
            finished: payload.bytes(usize::from(finished_bytes))?,
            failed_from,
            failed: U64List::parse(payload, usize::from(failed_entries))?,
            runs: RunList::parse_rest(payload)?,
        })
    }
}

const CONTINUES: u8 = 1;

/// ```text
/// | count 4 | capacity_bytes 8 | flags 1: bit 0 continues, the others reserved |
/// ```
impl Entry for Run {
    const BYTES: usize = 13;

    fn encode(self, out: &mut [u8]) {
        let mut out = Writer::new(out);
        out.u32(self.count);
        out.u64(self.capacity_bytes);
        out.u8(if self.continues { CONTINUES } else { 0 });
        out.end();
    }

    fn decode(bytes: &[u8]) -> Self {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().expect("an entry has its size");
        let [c0, c1, c2, c3, capacity @ .., flags] = *bytes;
        Self {
            count: u32::from_be_bytes([c0, c1, c2, c3]),
            capacity_bytes: u64::from_be_bytes(capacity),
            continues: flags & CONTINUES != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::test::assert_bytes;
    use crate::frame::{Frame, FrameKind};

    #[rustfmt::skip]
    const PAYLOAD: [u8; Receives::FIXED_BYTES + 3 + 16 + 26] = [
        1, 2, 3, 4, 5, 6, 7, 8, // base
        1, 2, 3, 4, 5, 6, 7, 0x20, // posted
        0, 0, 0, 0, 0, 0, 0, 9, // failed from
        0, 3, 0, 2,
        0x02, 0x00, 0x80,
        0, 0, 0, 0, 0, 0, 0, 10, 1, 2, 3, 4, 5, 6, 7, 1, // failed
        0, 0, 0, 23, 0, 0, 0, 0, 0x40, 0, 0, 0, 0,
        0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0x10, 0, 1,
    ];

    #[test]
    fn bytes() {
        let receives = Receives {
            base: 0x0102_0304_0506_0708,
            posted: 0x0102_0304_0506_0720,
            finished: &[0x02, 0x00, 0x80],
            failed_from: 9,
            failed: U64List::from_values(&[10, 0x0102_0304_0506_0701]),
            runs: RunList::from_runs(&[
                Run { count: 23, capacity_bytes: 1 << 30, continues: false },
                Run { count: 1, capacity_bytes: 4096, continues: true },
            ]),
        };
        assert_bytes(&Frame::Receives(receives), &PAYLOAD);
    }

    #[test]
    fn nothing_posted_is_the_fixed_part() {
        let receives = Receives {
            base: 0,
            posted: 0,
            finished: &[],
            failed_from: 0,
            failed: U64List::default(),
            runs: RunList::default(),
        };
        assert_bytes(&Frame::Receives(receives), &[0; Receives::FIXED_BYTES]);
    }

    #[test]
    fn parts_that_overrun_the_payload_are_rejected() {
        let reject = |payload: &[u8]| {
            let error = FrameError::Length { frame: FrameKind::Receives, found: payload.len() };
            assert_eq!(Frame::parse(FrameKind::Receives, payload), Err(error));
        };
        for cut in 0..PAYLOAD.len() {
            // A cut between two runs gives a valid frame with fewer runs.
            if cut + 13 != PAYLOAD.len() && cut + 26 != PAYLOAD.len() {
                reject(&PAYLOAD[..cut]);
            }
        }
        for count in [24, 26] {
            let mut payload = PAYLOAD;
            payload[count..count + 2].fill(0xff);
            reject(&payload);
        }
    }
}
