//! Receiver side: sends no acknowledgements. The Receives frame, which all modes have, tells the
//! sender which receives are finished.

use lacuna_place::receive::Receive;
use lacuna_wire::Ack;

/// Receiver that acknowledges nothing.
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
