//! A receive that has completed into a queue.

use crate::clock::Clock;
use crate::completed::Completed;
use crate::shared::Shared;
use lacuna_place::reason::Reason;
use lacuna_proto::qp::PostedReceive;
use std::fmt;
use std::sync::Arc;

/// A receive that is over. Its buffer comes back with [`EndedReceive::take`]; dropping it gives its slots
/// back as well.
pub struct EndedReceive {
    /// `None` once it was taken.
    pub(super) held: Option<Held>,
}

pub(super) struct Held {
    pub(super) shared: Arc<Shared>,
    pub(super) clock: Clock,
    pub(super) zeroes: bool,
    pub(super) posted: PostedReceive,
}

impl EndedReceive {
    /// Why the receive is over.
    pub fn reason(&self) -> Reason {
        let reason = self.held.as_ref().and_then(|held| held.posted.reason());
        reason.unwrap_or(Reason::Cancelled)
    }

    /// Bytes of the message that came; copies count once.
    pub fn bytes(&self) -> u64 {
        self.held.as_ref().map_or(0, |held| held.posted.placed_bytes())
    }

    /// User immediate, if all of it came.
    pub fn immediate(&self) -> Option<u32> {
        self.held.as_ref()?.posted.immediate()
    }

    /// Takes the buffer back; in the calling thread, gaps are zeroed if they are to be.
    pub fn take(mut self) -> Completed {
        let held = self.held.take().expect("taken only here and by drop");
        held.close();
        let Held { clock, zeroes, posted, .. } = held;
        Completed::of(posted, || zeroes, clock)
    }
}

impl Held {
    /// Gives the slots back.
    fn close(&self) {
        let now_ns = self.clock.now_ns();
        for part in &self.posted.parts {
            self.shared.table().close(part.number());
        }
        self.shared.with_receives(|qp| qp.on_receive_closed(now_ns, &self.posted));
    }
}

impl Drop for EndedReceive {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        if held.shared.is_inherited() {
            // In this process nobody writes to it, and a thread that is not here may hold it.
            std::mem::forget(held);
            return;
        }
        held.close();
        // Foreign memory goes back to its owner.
        if held.zeroes && !held.posted.is_complete() {
            held.posted.zero_missing();
        }
    }
}

impl fmt::Debug for EndedReceive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndedReceive")
            .field("reason", &self.reason())
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}
