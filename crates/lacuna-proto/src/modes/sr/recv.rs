//! Receiver side: turns the live bitmap into acknowledgements.
//!
//! An acknowledgement is the current state: the cumulative count, and as much of the bitmap after
//! it as fits (4.1.1). Losing one costs time and nothing else. A bitmap that is too long for one
//! acknowledgement is sent in parts that overlap by half, so that each run lies within one part.

use lacuna_place::receive::Receive;
use lacuna_wire::Ack;

/// Receiver of one message.
#[derive(Debug, Default)]
pub struct Receiver {
    cursor: BitmapCursor,
}

impl Receiver {
    pub(crate) fn poll_ack<'s>(
        &mut self,
        receive: &Receive,
        scratch: &'s mut [u8],
    ) -> Option<Ack<'s>> {
        Some(self.cursor.ack(receive, scratch))
    }
}

/// The part of the bitmap that the next acknowledgement carries.
#[derive(Debug, Default)]
pub(in crate::modes) struct BitmapCursor {
    skipped_bytes: u32,
}

impl BitmapCursor {
    /// The message's state as an acknowledgement, its bitmap in `scratch`.
    pub(in crate::modes) fn ack<'s>(
        &mut self,
        receive: &Receive,
        scratch: &'s mut [u8],
    ) -> Ack<'s> {
        // Read the counts before the bits. Chunks that complete in between are in the next
        // acknowledgement.
        let done = receive.chunks_done();
        let cumulative = receive.cumulative();
        let room = scratch.len();
        let mut skipped_bytes = std::mem::take(&mut self.skipped_bytes);
        let first = |skipped_bytes: u32| cumulative.saturating_add(skipped_bytes.saturating_mul(8));
        // The bitmap is empty if all chunks arrived in order, or none did. Most messages of a report
        // have not begun yet, so skip reading it.
        let mut used = match done > cumulative {
            true => receive.copy_chunk_bits(first(skipped_bytes), scratch),
            false => 0,
        };
        if used <= room / 2 && skipped_bytes > 0 {
            // The part before covered this one, so begin again at the front.
            scratch.fill(0);
            skipped_bytes = 0;
            used = receive.copy_chunk_bits(cumulative, scratch);
        }
        if used == room {
            self.skipped_bytes = (skipped_bytes + room as u32 / 2).min(Ack::SKIPPED_BYTES_MAX);
        }
        let described = u64::from(first(skipped_bytes)) + room as u64 * 8;
        let truncated = described < u64::from(receive.chunks());
        Ack {
            message: receive.number(),
            cumulative,
            immediate_fragments: receive.fragments(),
            truncated,
            skipped_bytes,
            // A truncated bitmap keeps its trailing zeros, because its length is the covered range.
            chunks: if truncated { &scratch[..room] } else { &scratch[..used] },
        }
    }
}
