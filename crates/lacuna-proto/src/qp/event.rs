//! Events of a queue pair, which its owner polls in order to wake threads that wait for an
//! operation.
//!
//! An event names a kind of change, not the operation that changed, and is reported once however
//! often the change happened. Pending events therefore need no queue, and a woken thread checks its
//! own operation. (The interface is that of quinn's `Connection::poll`.)

use super::{Failure, Narrowed, QueuePair};
use crate::modes::auto;

/// Something that happened to a queue pair.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Operations have changed that threads may wait for.
    Changed(Changes),
    /// The queue pair cannot go on.
    Failed(Failure),
    /// The mode `auto` has chosen how to repair.
    Chose(Box<auto::Chosen>),
    /// The path MTU has fallen, and packets are shorter now.
    Narrowed(Narrowed),
}

/// A set of kinds of changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes(u8);

impl Changes {
    /// A send has ended, well or not.
    pub const SEND_ENDED: Self = Self(1);
    /// The peer's posted receives have changed: a send may be posted that could not be before.
    pub const RECEIVES_POSTED: Self = Self(2);
    /// A receive has ended: its message is complete, its sender has cancelled it, or the application
    /// has closed it.
    pub const RECEIVE_ENDED: Self = Self(4);
    /// The peer has written a message with an immediate to a region.
    pub const WRITTEN: Self = Self(8);
    /// A read has ended, well or not.
    pub const READ_ENDED: Self = Self(16);
    /// As many chunks of a receive are here as were [asked for](super::QueuePair::watch_chunks).
    pub const CHUNKS: Self = Self(32);

    /// Whether the set has all of these.
    #[inline]
    pub fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

/// Events that the owner has not polled yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct PendingEvents {
    changes: Changes,
    has_failed: bool,
}

impl PendingEvents {
    #[inline]
    pub(super) fn add(&mut self, change: Changes) {
        self.changes.0 |= change.0;
    }

    pub(super) fn add_failure(&mut self) {
        self.has_failed = true;
    }
}

impl QueuePair {
    /// The next pending event.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        let changes = self.pending_events.changes.0 | self.send.pending_events.changes.0;
        if changes != 0 {
            (self.pending_events.changes, self.send.pending_events.changes) = Default::default();
            return Some(Event::Changed(Changes(changes)));
        }
        if std::mem::take(&mut self.pending_events.has_failed) {
            return self.failure().map(Event::Failed);
        }
        if let Some(chosen) = self.send.take_choice() {
            return Some(Event::Chose(Box::new(chosen)));
        }
        self.mtu.narrowed.take().map(Event::Narrowed)
    }
}
