//! What happened to a queue pair: what its owner is told, who may have somebody waiting for it.
//!
//! Events say of what kind it was, not which operation it was about: each kind is told once however
//! often it happened since it was told last, so what is not told yet takes no room. (The shape is that
//! of quinn's `Connection::poll`.) Whoever waits looks at his operation's state.

use super::{Failure, Narrowed, QueuePair};
use crate::modes::auto;

/// Something that happened to a queue pair.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A send has ended, well or not.
    SendEnded,
    /// The peer's posted receives are others: a send may be posted that could not be before.
    ReceivesPosted,
    /// A receive has ended: its message is complete, its sender has given it up, or the application
    /// has closed it.
    ReceiveEnded,
    /// The queue pair cannot go on.
    Failed(Failure),
    /// The mode `auto` has chosen how to repair.
    Chose(Box<auto::Chosen>),
    /// The path takes shorter packets only.
    Narrowed(Narrowed),
}

/// Kinds of events that were not told yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Untold(u8);

impl Untold {
    pub(super) const SEND_ENDED: Self = Self(1);
    pub(super) const RECEIVES_POSTED: Self = Self(2);
    pub(super) const RECEIVE_ENDED: Self = Self(4);
    pub(super) const FAILED: Self = Self(8);

    #[inline]
    pub(super) fn note(&mut self, kind: Self) {
        self.0 |= kind.0;
    }

    #[inline]
    fn take(&mut self, kind: Self) -> bool {
        let was_noted = self.0 & kind.0 != 0;
        self.0 &= !kind.0;
        was_noted
    }
}

impl QueuePair {
    /// What happened since it was last asked, one event at a time.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if self.untold.0 | self.send.untold.0 != 0 {
            return self.untold_event();
        }
        if let Some(chosen) = self.send.take_choice() {
            return Some(Event::Chose(Box::new(chosen)));
        }
        self.mtu.narrowed.take().map(Event::Narrowed)
    }

    fn untold_event(&mut self) -> Option<Event> {
        self.untold.note(std::mem::take(&mut self.send.untold));
        if self.untold.take(Untold::RECEIVE_ENDED) {
            return Some(Event::ReceiveEnded);
        }
        if self.untold.take(Untold::SEND_ENDED) {
            return Some(Event::SendEnded);
        }
        if self.untold.take(Untold::RECEIVES_POSTED) {
            return Some(Event::ReceivesPosted);
        }
        self.untold.take(Untold::FAILED);
        self.failure().map(Event::Failed)
    }
}
