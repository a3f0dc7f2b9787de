//! Receiver side: selective repeat's acknowledgements. Repaired chunks are in
//! the bitmap like those that came; the repairing is the channels' work.

use crate::modes::sr::bitmap_of;
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
