//! Receiver side: selective repeat's acknowledgements. Repaired chunks are in
//! the bitmap like those that came; the repairing is the channels' work.

use crate::modes::sr::BitmapCursor;
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
