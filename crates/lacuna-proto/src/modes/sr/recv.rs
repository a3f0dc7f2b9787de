//! Receiver side: turns the live bitmap into acknowledgements.
//!
//! An acknowledgement is the state of now: the cumulative count and as much of
//! the bitmap behind it as fits (4.1.1). Losing one costs nothing but time.

use crate::receive::Receive;
use lacuna_wire::Ack;

/// See the module's text.
#[derive(Debug)]
pub struct Receiver;

impl Receiver {
    pub(crate) fn poll_ack<'s>(
        &mut self,
        receive: &Receive,
        scratch: &'s mut [u8],
    ) -> Option<Ack<'s>> {
        Some(bitmap_of(receive, scratch))
    }
}

/// The state of a message as an acknowledgement, its bitmap in `scratch`.
pub(in crate::modes) fn bitmap_of<'s>(receive: &Receive, scratch: &'s mut [u8]) -> Ack<'s> {
    let cumulative = receive.cumulative();
    let room = scratch.len();
    let used = receive.copy_chunk_bits(cumulative, scratch);
    let described = u64::from(cumulative) + room as u64 * 8;
    let truncated = described < u64::from(receive.chunks());
    Ack {
        message: receive.number(),
        cumulative,
        immediate_fragments: receive.fragments(),
        truncated,
        // A truncated bitmap keeps its zeros: its length says how far it goes.
        chunks: if truncated { &scratch[..room] } else { &scratch[..used] },
    }
}
