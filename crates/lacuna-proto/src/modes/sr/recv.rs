//! Receiver side: turns the live bitmap into acknowledgements.
//!
//! An acknowledgement is the state of now: the cumulative count and as much of
//! the bitmap behind it as fits (4.1.1). Losing one costs nothing but time. Where
//! more has come than one has room for, they take turns: parts of the bitmap that
//! overlap by half, so that any run of packets lies within one of them.

use lacuna_place::receive::Receive;
use lacuna_wire::Ack;

/// See the module's text.
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

/// Which part of the bitmap is told next.
#[derive(Debug, Default)]
pub(in crate::modes) struct BitmapCursor {
    skipped_bytes: u32,
}

impl BitmapCursor {
    /// The state of a message as an acknowledgement, its bitmap in `scratch`.
    pub(in crate::modes) fn ack<'s>(
        &mut self,
        receive: &Receive,
        scratch: &'s mut [u8],
    ) -> Ack<'s> {
        // Before the bits are read: what comes meanwhile is told next time.
        let done = receive.chunks_done();
        let cumulative = receive.cumulative();
        let room = scratch.len();
        let mut skipped_bytes = std::mem::take(&mut self.skipped_bytes);
        let first = |skipped_bytes: u32| cumulative.saturating_add(skipped_bytes.saturating_mul(8));
        // All that came came in order, which is to say mostly: most messages that a
        // report speaks of have not begun yet.
        let mut used = match done > cumulative {
            true => receive.copy_chunk_bits(first(skipped_bytes), scratch),
            false => 0,
        };
        if used <= room / 2 && skipped_bytes > 0 {
            // Nothing that the part before it had not told.
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
            // A truncated bitmap keeps its zeros: its length says how far it goes.
            chunks: if truncated { &scratch[..room] } else { &scratch[..used] },
        }
    }
}
