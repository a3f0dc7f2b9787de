//! Receiver side: says nothing of gaps; that a message is finished is said for
//! every mode by the queue pair.

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
