//! Where the n-th send belongs to the peer's n-th receive: in bounded modes, in which both ends work by
//! deadlines. (OptiNIC numbers messages for the same reason, 3.1: a late one must not be taken for the
//! next.) A send that ends before it has begun leaves its receive without a message, and a receive that is
//! over before its send has begun ends that send. Neither shifts what comes after.
//!
//! In other modes a message that is late is still wanted: it takes the first receive that is open.
//!
//! Sends count from the start of the queue pair, whatever becomes of them; so a peer that lets receives end
//! while it only looks for messages ends sends. The library tells it to wait on the receive instead.

use super::SendSide;
use crate::qp::error::SendFailure;
use crate::qp::peer_receives::{NextReceive, OwnReceive};
use crate::qp::user_send::SendId;
use lacuna_wire::ReceivesBefore;

impl SendSide {
    /// How many receives there were before the next Receives frame's.
    pub(crate) fn on_before(&mut self, before: &ReceivesBefore) {
        self.peer_receives.on_before(before);
    }

    /// The peer's receive for a send that would be made now, if no other waits.
    pub(super) fn peek_receive(&self) -> Option<NextReceive> {
        if !self.pairs_in_order {
            return self.peer_receives.next_receive(self.next_number);
        }
        match self.own_receive(self.sends.admitted()) {
            OwnReceive::Open(receive) => Some(receive),
            OwnReceive::Over | OwnReceive::Unknown => None,
        }
    }

    /// The receive of the send that has `earlier` sends before it. One whose numbers earlier sends have
    /// used is over: a peer that contradicts itself may say so.
    fn own_receive(&self, earlier: u64) -> OwnReceive {
        match self.peer_receives.of_send(earlier) {
            OwnReceive::Open(receive) if receive.first < self.next_number => OwnReceive::Over,
            receive => receive,
        }
    }

    /// Assigns the waiting sends to their receives, as far as these are known.
    pub(super) fn assign_in_order(&mut self) {
        while let Some(id) = self.waiting.first() {
            let receive = match self.own_receive(id.earlier()) {
                OwnReceive::Open(receive) => Some(receive),
                OwnReceive::Over => None,
                OwnReceive::Unknown => break,
            };
            let Some((id, request)) = self.waiting.pop() else { break };
            match receive {
                Some(receive) => self.assign_if_fits(id, request, receive),
                None => self.settle(id, Err(SendFailure::ClosedByPeer)),
            }
        }
        self.pass_over();
    }

    /// Moves on behind the receives of sends that have ended without a message, so that the sender's word
    /// covers them: nothing more comes for those.
    pub(super) fn pass_over(&mut self) {
        if self.pairs_in_order {
            let held = self.fences.first().into_iter().chain(self.waiting.first()).min();
            let earlier = held.map_or(self.sends.admitted(), SendId::earlier);
            self.next_number = self.next_number.max(self.peer_receives.end_of_earlier(earlier));
        }
    }
}
