//! Receiver side: sends no acknowledgements. The queue pair itself tells the sender that a receive
//! is finished, in every mode.

use lacuna_place::receive::Receive;
use lacuna_wire::Ack;

/// See the module's text.
#[derive(Debug)]
pub struct Receiver;

impl Receiver {
    pub(crate) fn poll_ack<'s>(
        &mut self,
        _receive: &Receive,
        _scratch: &'s mut [u8],
    ) -> Option<Ack<'s>> {
        None
    }
}
