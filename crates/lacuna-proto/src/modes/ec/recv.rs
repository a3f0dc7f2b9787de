//! Receiver side: selective repeat's acknowledgements. Chunks repaired from parity are in the
//! bitmap like those that came; the channel writers repair them (`lacuna_place`).

use crate::modes::sr::BitmapCursor;
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
