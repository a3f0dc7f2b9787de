//! The order in which messages are posted, peer by peer: that of operations, and in an operation that of
//! its table. Both ends keep it, so the n-th send meets the n-th receive.

use super::board::Board;
use super::fabric::{Fabric, FabricError, Posting, Token};
use std::collections::VecDeque;

#[derive(Debug, Default)]
struct Port {
    /// Not yet posted.
    sends: VecDeque<Posting>,
    receives: VecDeque<Posting>,
    /// Receives that are posted and not over.
    open: usize,
}

/// What is to be posted for each peer.
#[derive(Debug)]
pub(super) struct Ports {
    ports: Vec<Port>,
    receives_ahead: usize,
    /// What goes along with notes.
    pub(super) board: Board,
}

impl Ports {
    pub(super) fn new(ranks: usize, receives_ahead: usize) -> Self {
        let ports = (0..ranks).map(|_| Port::default()).collect();
        Self { ports, receives_ahead: receives_ahead.max(1), board: Board::new(ranks) }
    }

    pub(super) fn add_send(&mut self, posting: Posting) {
        self.ports[posting.peer].sends.push_back(posting);
    }

    pub(super) fn add_receive(&mut self, posting: Posting) {
        self.ports[posting.peer].receives.push_back(posting);
    }

    /// Posts receives of a peer as far as they may be ahead.
    pub(super) fn post_receives(
        &mut self,
        fabric: &mut impl Fabric,
        peer: usize,
    ) -> Result<(), FabricError> {
        let port = &mut self.ports[peer];
        while port.open < self.receives_ahead
            && let Some(posting) = port.receives.pop_front()
        {
            fabric.post_receive(&posting)?;
            port.open += 1;
        }
        Ok(())
    }

    /// A receive of this peer is over.
    pub(super) fn ended(
        &mut self,
        fabric: &mut impl Fabric,
        peer: usize,
    ) -> Result<(), FabricError> {
        self.ports[peer].open -= 1;
        self.post_receives(fabric, peer)
    }

    /// Posts a send, and those before it, if that has not been done.
    pub(super) fn post_send(
        &mut self,
        fabric: &mut impl Fabric,
        peer: usize,
        token: Token,
    ) -> Result<(), FabricError> {
        let port = &mut self.ports[peer];
        // Tokens of one peer increase.
        while let Some(posting) = port.sends.front().filter(|posting| posting.token <= token) {
            fabric.post_send(posting)?;
            port.sends.pop_front();
        }
        Ok(())
    }
}
